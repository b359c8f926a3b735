"""The catalogue of changes: a row for each kind, with its words, what it means and what to do.

Failures, the terminal, pages, JSON and ``diff`` take the words from here, ``torchprof explain`` and docs/ the rest.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from pytest_torchprof.analysis.numbers import BY_NAME
from pytest_torchprof.compare.family_words import kind_of, number_of
from pytest_torchprof.compare.number_words import movement_words, number_words
from pytest_torchprof.compare.renames import explain_rename
from pytest_torchprof.text import counted, first_of, printable, printable_line
from pytest_torchprof.text.units import show_us

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_torchprof.baseline.entry import KernelRecord
    from pytest_torchprof.compare.change import Change, Kind, LostFusion, Undecided

_REPLAYED: Final = ", launched by the replay of a CUDA graph, which has no operator"


class KindOfChange(NamedTuple):
    """A kind of change: how it reads, and what ``torchprof explain`` says of it, in Markdown."""

    words: Callable[[Change], str]
    meaning: str
    remedy: str


def change_words(change: Change) -> str:
    """Return a change in a few words that fit into a line."""
    words = CATALOGUE[change.kind].words(change)
    return f"{words}; {_fusion_words(change.lost_fusion)}" if change.lost_fusion else words


def noise_words(change: Change) -> str:
    """Return the change of a number that gates nothing, without the factor: it must not look like a decision."""
    return movement_words(BY_NAME[change.what], change.old, change.new)


def _come_or_gone_words(change: Change) -> str:
    return _per_step_words(change, f"{change.times}")


def _count_words(change: Change) -> str:
    return _per_step_words(change, f"{change.old} -> {change.new}")


def _per_step_words(change: Change, count: str) -> str:
    (kernel,) = change.after or change.before
    launched = f", launched by {printable(kernel.op)}" if kernel.op else _REPLAYED if change.replayed else ""
    return f"{kernel.short}: {count} per step{launched}"


def _fusion_words(lost: LostFusion) -> str:
    return f"fusion lost: {', '.join(lost.ops[:-1])} and {lost.ops[-1]} ran in this kernel, and now in {lost.kernels}"


def _pair_words(change: Change) -> str:
    return _kernel_words(change.before[0], change.after[0])


def _order_words(change: Change) -> str:
    return f"another order: {counted(change.times, 'kernel')} moved, first {change.what}"


def _number_words(change: Change) -> str:
    return _time_words(change) if change.what == "time" else number_words(BY_NAME[change.what], change.old, change.new)


def _kernel_words(was: KernelRecord, now: KernelRecord) -> str:
    if _types_differ(was, now):
        return _type_words(was, now)
    how = rename_words(was, now)
    return f"{was.short} -> {now.short}" if how in was.short + now.short else f"{now.short}: {how}"


def rename_words(was: KernelRecord, now: KernelRecord) -> str:
    """Return the difference between the names of two kernels."""
    return printable(explain_rename(was.name, now.name))


def _types_differ(was: KernelRecord, now: KernelRecord) -> bool:
    return (was.dtype, was.layout, was.operands) != (now.dtype, now.layout, now.operands)


def _type_words(was: KernelRecord, now: KernelRecord) -> str:
    """Return "gemm mm: bf16 tn -> fp32 nn, launched by aten::mm": each side with all known facts."""
    facts = [fact for fact in ("dtype", "layout") if getattr(was, fact) or getattr(now, fact)]
    sides = (_side_words(kernel, facts) for kernel in (was, now))
    bare = [structs.replace(kernel, dtype=None, layout=None).short for kernel in (was, now)]
    launched = f", launched by {printable(now.op)}" if now.op else ""
    return f"{' -> '.join(dict.fromkeys(bare))}: {' -> '.join(sides)}{launched}"


def _side_words(kernel: KernelRecord, facts: Sequence[str]) -> str:
    known = " ".join(getattr(kernel, fact) for fact in facts if getattr(kernel, fact))
    if kernel.operands is not None:
        given = [] if kernel.operands == kernel.dtype else [f"given {printable(kernel.operands)}"]
        return ", ".join(filter(None, (known, *given)))
    unknown = [f"{fact} unknown" for fact in facts or ["dtype"] if not getattr(kernel, fact)]
    return ", ".join(filter(None, (known, *unknown)))


def _kinds_words(kernels: Sequence[KernelRecord]) -> str:
    counts = Counter(map(kind_of, kernels))
    if len(counts) > 2:
        return number_of("other", len(kernels))
    return " and ".join(number_of(kind, count) for kind, count in counts.items())


def _replacement_words(change: Change) -> str:
    """Return "two pointwise became one Triton kernel: pointwise gelu, ... -> triton_poi_..."."""
    head = f"{became_words(change)}{times_words(change.times)}"
    if len(change.before) == len(change.after) == 1:
        return f"{head}: {_one_for_one_words(change.before[0], change.after[0])}"
    names = [_list_names(change.before), _list_names(change.after, replayed=change.replayed)]
    return f"{head}: {' -> '.join(filter(None, names))}"


def _one_for_one_words(was: KernelRecord, now: KernelRecord) -> str:
    if _types_differ(was, now):
        return _type_words(was, now)
    how = explain_rename(was.name, now.name)
    names = " -> ".join(_list_names([kernel]) for kernel in (was, now))
    return names if was.short in how else f"{names}: {printable_line(how)}"


def became_words(change: Change) -> str:
    """Return which kernels replaced which: "two pointwise became one Triton kernel", "one GEMM became another"."""
    was, now = _kinds_words(change.before), _kinds_words(change.after)
    if not change.after:
        return f"{was} gone"
    if not change.before:
        return f"{now} more"
    if was == now:
        return f"{was} became {'another' if len(change.before) == 1 else 'others'}"
    return f"{was} became {now}"


def times_words(count: int) -> str:
    """Return " (3x)", or nothing for a count of one."""
    return f" ({count}x)" if count > 1 else ""


def _list_names(kernels: Sequence[KernelRecord], shown: int = 4, *, replayed: bool = False) -> str:
    launchers = [kernel.op or ("graph replay" if replayed else "") for kernel in kernels]
    words = [
        f"{kernel.short}{f' ({launcher})' if launcher and launcher != kernel.short else ''}"
        for kernel, launcher in zip(kernels, launchers, strict=True)
    ]
    return first_of([printable_line(word) for word in words], shown)


def _time_words(change: Change) -> str:
    after = show_us(change.new)
    if change.old is None or (change.undecided and change.undecided.why == "other conditions"):
        return f"time {after}, not compared: {_undecided_words(change.undecided)}"
    moved = (change.new or 0) / change.old - 1 if change.old else 0.0
    words = f"time {show_us(change.old)} -> {after} ({moved:+.1%})"
    return f"{words}: {_undecided_words(change.undecided)}" if change.undecided else words


def _undecided_words(undecided: Undecided | None) -> str:
    if undecided is None or undecided.why == "no samples":
        return "the baseline has no times; --torchprof-baseline=update keeps them"
    if undecided.why == "not confirmed":
        return "measured once, not confirmed"
    if undecided.why == "close samples":
        return "the samples do not tell"
    sides = (
        ", ".join(f"{name} {'unknown' if value is None else value}" for name, value in side)
        for side in (
            [(name, old) for name, old, _ in undecided.conditions],
            [(name, new) for name, _, new in undecided.conditions],
        )
    )
    return "the baseline's samples were taken with {}, this run's with {}".format(*sides)


CATALOGUE: Final[Mapping[Kind, KindOfChange]] = {
    "added": KindOfChange(
        _come_or_gone_words,
        "a step launches a kernel that it did not launch before, which fails a test unless its `tolerance` allows it",
        "see what changed at the line that is named below it, or accept it with the command that the failure prints",
    ),
    "removed": KindOfChange(
        _come_or_gone_words,
        "a step no longer launches this kernel, which alone fails no test",
        "if that is meant, accept it with the command that the summary prints, so that it cannot come back unnoticed",
    ),
    "count": KindOfChange(
        _count_words,
        "a step launches the same kernel more or less often; more fails a test unless its `tolerance` allows it, less "
        "fails none",
        'look for a loop, a size or a branch that has changed; `tolerance={"kernels": 1}` allows one more',
    ),
    "changed": KindOfChange(
        _pair_words,
        "another kernel does this work: with another dtype, layout or operands, or, where it is no GEMM, convolution "
        "or attention kernel, under another name; most of these fail a test, and [the page on "
        "baselines](baselines.md#what-a-name-does-not-say) has the exceptions. The verdict *changed* of a test only "
        "says that something differs that does not fail it",
        "where a dtype changed, look at autocast, weights and inputs; where a layout did, at what is transposed or "
        "strided",
    ),
    "renamed": KindOfChange(
        _pair_words,
        "the same work by a kernel of another name, such as another tile of a GEMM, which fails no test; in a test "
        'with `names="exact"` it is `changed`, and fails',
        "nothing; after an upgrade, accept it with `--torchprof-baseline=update`",
    ),
    "replaced": KindOfChange(
        _replacement_words,
        "only between two recordings: where the first ran these kernels, the second ran those; *gone* and *more*: one "
        "of the two ran none there",
        "several that became one were most likely fused; where one became several, a fusion may be lost: see "
        "`torchprof explain graph-break` and `torchprof explain unfused-pointwise`",
    ),
    "reordered": KindOfChange(
        _order_words,
        "the same kernels in another order, which fails no test",
        "nothing, unless what ran beside communication no longer does: `torchprof explain exposed-communication`",
    ),
    "number": KindOfChange(
        _number_words,
        "a number is different; more kernels, launches, copies, syncs or graph breaks fail a test unless its "
        "`tolerance` allows them, more peak memory or time only where its `tolerance` names them",
        "`torchprof explain max_syncs` and the like say what a number counts, `torchprof explain tolerance` how to "
        "allow more",
    ),
}
"""The kinds of changes, in the order in which they are explained."""
