"""What differs between two measurements, one thing at a time, in the words of a reviewer."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from msgspec import Struct, structs
from msgspec.structs import replace

from pytest_torchprof.baseline.entry import STRUCTURAL, KernelRecord
from pytest_torchprof.compare.difference import RULES, difference, keys, most_alike
from pytest_torchprof.compare.fusions import lost_fusion
from pytest_torchprof.compare.ratios import ratio_of, show_factor
from pytest_torchprof.compare.sameness import as_read_now, said_less, work_on_the_same
from pytest_torchprof.devices.kinds import device_kinds
from pytest_torchprof.kernels.names import decode, normal_name, without_index
from pytest_torchprof.kernels.operand_types import name_is_the_code
from pytest_torchprof.kernels.reply import NOT_KNOWN
from pytest_torchprof.text import counted, numbered, printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.numbers import Number
    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.compare.difference import Difference, Names, Step
    from pytest_torchprof.kernels.names import KernelName

    Environment = Mapping[str, str | bool]
    Sides = tuple[str, str]

T = TypeVar("T")

# In the order people ask for them: what it computes, on what, then how.
_FACTS: Final = ("family", "layout", "dtype", "tensor_core", "library", "triton", "collective", "helper")
_TUNING: Final = ("tile", "stages", "cluster", "split_k", "epilogue", "alignment", "arch")
# How ATen's pointwise kernels walk their operands tells what became of these (aten/src/ATen/native/cuda/CUDALoops.cuh).
_LOOPS: Final = {
    "vectorized_elementwise_kernel": "vectorized",
    "unrolled_elementwise_kernel": "unrolled, operands that are converted or not aligned",
    " at::native::elementwise_kernel": "strided, operands that are not contiguous",
}
_NOUNS: Final = {
    "gemm": "GEMM",
    "conv": "convolution",
    "attention": "attention kernel",
    "pointwise": "pointwise",
    "reduction": "reduction",
    "copy": "copy",
    "communication": "collective",
    "triton": "Triton kernel",
    "other": "kernel",
    "memcpy": "memory copy",
    "memset": "memory fill",
}
_FEW: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
THIS_RUN: Final = ("baseline", "this run")
"""What the two sides are called."""
HANDFUL: Final = 10
"""Counts below it are said without their ratio."""
_DEVICE: Final = ("gpu", "compute_capability")
_SWITCHES: Final[dict[object, str]] = {None: "unknown", True: "on", False: "off"}
_SPOKEN: Final = {"cuda": "CUDA", "rocm": "ROCm", "cudnn": "cuDNN", "triton": "Triton"}
_WORDS: Final = {"tensor_core": "tensor core", "split_k": "split-K", "triton": "Triton category", "alignment": "align"}

Direction = Literal["better", "worse", "neutral", "ambiguous", "unknown"]
BETTER: Final = "better"
WORSE: Final = "worse"
NEUTRAL: Final = "neutral"
AMBIGUOUS: Final = "ambiguous"
"""It may be worse; the samples leave it open."""
UNKNOWN: Final = "unknown"
"""Whether it is the same kernel is not known: what it works on is not told."""

WORTH_A_LINE: Final = 0.10
"""A number that varies from run to run gets a line only where it moved by more than this share."""


class Change(Struct, frozen=True, kw_only=True):
    """One difference, with which way it goes and whether that fails the test."""

    kind: Literal["added", "removed", "changed", "count", "reordered", "number"]
    what: str
    """A kernel's short name, or a number's name."""
    old: str | int | float | None
    """The kernel's raw name or count, the number; None where the baseline has none."""
    new: str | int | float | None
    direction: Direction
    gated: bool
    """Whether it decides the verdict."""
    words: str
    renamed: str | None = None
    """What of its name differs, where other software calls the same kernel otherwise."""
    times: int = 1
    """How many launches of a step it concerns."""
    step: int = 0
    """Which of the new entry's distinct steps it was found in."""
    launches: tuple[int, ...] = ()
    """Which kernels of that step it is about, where it has them."""

    @property
    def fails(self) -> bool:
        """Whether it fails the test."""
        return self.gated and self.direction == WORSE


def kernel_changes(old: Entry, new: Entry, names: Names, *, allowed: float = 0) -> tuple[Change, ...]:
    """Return what changed in the kernels of each distinct step; up to ``allowed`` further launches do not fail.

    A step is the same if any step of the baseline ran its kernels; any other is compared with the baseline's step that
    is most like it.
    """
    rule = RULES[names]
    known = {tuple(keys(step, rule.same)): step for step in as_read_now(old, new) or ((),)}
    changes: dict[tuple[str, str, object], Change] = {}
    for number, step in enumerate(new.steps or ((),)):
        before = known.get(tuple(keys(step, rule.same))) or most_alike(step, known.values(), rule)
        for change in _step_changes(difference(before, step, rule), before, step, names, allowed):
            once = (change.kind, change.what, change.old if change.kind == "changed" else None)
            if once not in changes or changes[once].times < change.times:
                changes[once] = replace(change, step=number)
    return tuple(changes.values())


def _step_changes(delta: Difference, before: Step, step: Step, names: Names, allowed: float) -> Iterator[Change]:
    too_many = len(delta.came) > (allowed if isinstance(allowed, int) else len(before) * allowed)
    # What stands in a kernel's place may carry a part of what it carried.
    came = {*delta.came, *(now for _, now in delta.swapped)}
    for (was, now), at in _group(zip(delta.swapped, delta.swapped_at, strict=True)).items():
        if not _may_be_one(was, now, names):
            yield _with_fusion(_swap_change(was, now, at, names), was, came)
    same = RULES[names].same
    were, are = Counter(keys(before, same)), Counter(keys(step, same))
    went: dict[bool, list[Change]] = {True: [], False: []}
    for kernel, times in Counter(delta.went).items():
        gone = _count_change(kernel, times, were[same(kernel)], are[same(kernel)], gated=True)
        told = _with_fusion(gone, kernel, came)
        went[told is not gone].append(told)
    # Where not all fit the screen, these are seen: the cause of kernels that came, these, and then what merely went.
    yield from went[True]
    for kernel, at in _group(zip(delta.came, delta.came_at, strict=True)).items():
        change = _count_change(kernel, len(at), were[same(kernel)], are[same(kernel)], gated=too_many)
        yield replace(change, launches=at)
    yield from went[False]
    for (was, now), times in delta.renamed.items():
        how = explain_rename(was.name, now.name)
        change = _variant_change(was, now, times, NEUTRAL, how)
        yield replace(change, renamed=printable(how)) if names == "structure" else change
    if delta.moved:
        first, times = delta.moved[0][1].short, len(delta.moved)
        words = f"another order: {counted(times, 'kernel')} moved, first {first}"
        yield Change(
            kind="reordered", what=first, old=None, new=None, direction=NEUTRAL, gated=False, words=words, times=times
        )


def _with_fusion(change: Change, was: KernelRecord, came: Collection[KernelRecord]) -> Change:
    lost = lost_fusion(was, came)
    return change if lost is None else replace(change, words=f"{change.words}; {lost}")


def _group(pairs: Iterable[tuple[T, int]]) -> dict[T, tuple[int, ...]]:
    """Return the places at which each thing stands."""
    places: defaultdict[T, list[int]] = defaultdict(list)
    for thing, place in pairs:
        places[thing].append(place)
    return {thing: tuple(at) for thing, at in places.items()}


def _may_be_one(was: KernelRecord, now: KernelRecord, names: Names) -> bool:
    """Whether nothing tells a kernel from the baseline's, which was written before its operands were kept."""
    same_name = was.name == now.name if names == "exact" else without_index(was.name) == without_index(now.name)
    return same_name and said_less(was, now) and work_on_the_same(was, now).may_be


def _swap_change(was: KernelRecord, now: KernelRecord, at: tuple[int, ...], names: Names) -> Change:
    same = work_on_the_same(was, now)
    differ = any(getattr(was, fact) != getattr(now, fact) for fact in ("dtype", "layout", "operands"))
    same_name = was.family in STRUCTURAL or names == "structure" or was.normal_name == now.normal_name
    is_variant = same.may_be and same_name and (names != "exact" or (differ and was.name == now.name))
    how = explain_rename(was.name, now.name)
    change = _variant_change(was, now, len(at), NEUTRAL if is_variant else WORSE, how)
    is_told = same is not NOT_KNOWN or said_less(was, now) or _is_one_code(was, now)
    if is_variant and was.family in STRUCTURAL and not is_told:
        change = replace(change, direction=UNKNOWN)
    if names == "structure" and not differ and was.op == now.op:
        change = replace(change, renamed=printable(how))
    return replace(change, launches=at, words=swap_words(was, now) if differ else change.words)


def _is_one_code(was: KernelRecord, now: KernelRecord) -> bool:
    return was.name == now.name and name_is_the_code(was.name, was.op) and name_is_the_code(now.name, now.op)


def swap_words(was: KernelRecord, now: KernelRecord) -> str:
    """Return "gemm mm: bf16 tn -> fp32 nn, launched by aten::mm": each side with all that is told of it."""
    facts = [fact for fact in ("dtype", "layout") if getattr(was, fact) or getattr(now, fact)]
    sides = (_tell(one, facts) for one in (was, now))
    bare = [structs.replace(one, dtype=None, layout=None).short for one in (was, now)]
    launched = f", launched by {printable(now.op)}" if now.op else ""
    return f"{' -> '.join(dict.fromkeys(bare))}: {' -> '.join(sides)}{launched}"


def _tell(kernel: KernelRecord, facts: Sequence[str]) -> str:
    told = " ".join(getattr(kernel, fact) for fact in facts if getattr(kernel, fact))
    if kernel.operands is not None:
        given = [] if kernel.operands == kernel.dtype else [f"given {printable(kernel.operands)}"]
        return ", ".join(filter(None, (told, *given)))
    untold = [f"{fact} not told" for fact in facts or ["dtype"] if not getattr(kernel, fact)]
    return ", ".join(filter(None, (told, *untold)))


def _variant_change(was: KernelRecord, now: KernelRecord, times: int, direction: Direction, how: str) -> Change:
    how = printable(how)
    return Change(
        kind="changed",
        what=now.short,
        old=was.name,
        new=now.name,
        direction=direction,
        gated=direction == WORSE,
        words=f"{was.short} -> {now.short}" if how in was.short + now.short else f"{now.short}: {how}",
        times=times,
    )


def _count_change(kernel: KernelRecord, times: int, was: int, now: int, *, gated: bool) -> Change:
    kind: Literal["added", "removed", "count"] = "count" if was and now else "removed" if was else "added"
    launched = f", launched by {printable(kernel.op)}" if kernel.op else ""
    per_step = f"{was} -> {now} per step" if kind == "count" else f"{times} per step"
    return Change(
        kind=kind,
        what=kernel.short,
        old=was or None,
        new=now or None,
        direction=WORSE if now > was else BETTER,
        gated=gated,
        words=f"{kernel.short}: {per_step}{launched}",
        times=times,
    )


def explain_rename(a: str, b: str) -> str:
    """Return what changed from kernel name ``a`` to ``b``: "layout tn -> nn, tile 128x256 -> 64x64 (bf16 as before)".

    Only what both names tell is called a change; a field that one of them leaves open is "not told".
    """
    if a == b:
        return "same name"
    old, new = decode(a), decode(b)
    if {old.family, new.family} <= {None, "other"} or (old.library, new.library) == ("triton", "triton"):
        return _explain_plain(a, b, old, new)
    # Tuning is not comparable between libraries, apart from the tile.
    tuning = _TUNING if old.library == new.library else _TUNING[:1]
    changed = [text for fact in (*_FACTS, *tuning) if (text := _explain_fact(fact, old, new))]
    if old.family != new.family or not changed:
        return _explain_plain(a, b, old, new) if not changed else ", ".join(changed)
    kept = [value for fact in ("dtype", "layout") if (value := getattr(old, fact)) and value == getattr(new, fact)]
    return ", ".join(changed) + (f" ({', '.join(kept)} as before)" if kept else "")


def _explain_plain(a: str, b: str, old: KernelName, new: KernelName) -> str:
    """Explain names that have no grammar of fields, or whose fields are the same."""
    if old.triton_ops or new.triton_ops:
        lost = [op for op in dict.fromkeys(old.triton_ops) if op not in new.triton_ops]
        gained = [op for op in dict.fromkeys(new.triton_ops) if op not in old.triton_ops]
        parts = [f"no longer carries {', '.join(lost)}"] if lost else []
        parts += [f"also carries {', '.join(gained)}"] if gained else []
        if old.triton != new.triton:
            parts.append(f"Triton category {old.triton or 'none'} -> {new.triton or 'none'}")
        return ", ".join(parts) or "only the index differs"
    loops = _loop_of(a, old), _loop_of(b, new)
    if old.stem == new.stem and None not in loops and loops[0] != loops[1]:
        return f"{old.short}: {loops[0]} -> {loops[1]}"
    if normal_name(a) == normal_name(b):
        return "only template arguments differ" if "<" in a + b else "only the index differs"
    if old.family not in (None, "other") and old.stem == new.stem:
        return f"another variant of {old.short}"
    return f"{old.short} -> {new.short}"


def _loop_of(name: str, decoded: KernelName) -> str | None:
    if decoded.library != "aten":
        return None
    return next((words for loop, words in _LOOPS.items() if loop in name), None)


def _explain_fact(fact: str, old: KernelName, new: KernelName) -> str | None:
    before, after = getattr(old, fact), getattr(new, fact)
    if before == after:
        return None
    if fact in _TUNING and (before in (None, ()) or after in (None, ())):
        # What only one of the names can say is no change: cuBLAS names have no cluster, nvjet names no alignment.
        return f"{'' if after else 'no '}{_WORDS.get(fact, fact)}" if fact == "split_k" else None
    if fact == "tile":
        return _explain_tile(before, after)
    return f"{_WORDS.get(fact, fact)} {_show_fact(before)} -> {_show_fact(after)}"


def _explain_tile(before: tuple[int, ...], after: tuple[int, ...]) -> str | None:
    """Compare two tiles as far as both are told; the K step is shown only where nothing else differs."""
    for length in (2, 3):
        old, new = before[:length], after[:length]
        if len(old) == len(new) and old != new:
            return f"tile {_show_fact(old)} -> {_show_fact(new)}"
    return None


def _show_fact(value: object) -> str:
    if value is None:
        return "not told"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ("x" if all(isinstance(part, int) for part in value) else "+").join(map(str, value)) or "none"
    return str(value)


def other_device(old: Environment, new: Environment, sides: Sides) -> str | None:
    """Return a line that names both devices, None if they are the same."""
    if all(old.get(key) == new.get(key) for key in _DEVICE):
        return None
    return f"{sides[0]} recorded on {_device_words(old)}, {sides[1]} used {_device_words(new)}"


def other_software(old: Environment, new: Environment, sides: Sides) -> str | None:
    """Return a line that names the software and precision flags that differ, None if none do."""
    # Of these an entry has what its own kind of device names.
    keys = dict.fromkeys(key for kind in device_kinds() for key in kind.environment)
    differ = [key for key in keys if key not in _DEVICE and old.get(key) != new.get(key)]
    if not differ:
        return None
    return (
        f"{sides[0]} recorded with {_software_words(old, differ)}, {sides[1]} has {_software_words(new, differ)}: "
        "names may differ, structure is compared"
    )


def _software_words(environment: Environment, keys: list[str]) -> str:
    values = ((_SPOKEN.get(key, key), environment.get(key)) for key in keys)
    return printable(" / ".join(f"{name} {_SWITCHES.get(value, value)}" for name, value in values))


def _device_words(environment: Environment) -> str:
    gpu, capability = environment.get("gpu"), environment.get("compute_capability")
    return printable(f"{gpu} ({capability})" if capability else str(gpu or "the CPU"))


def number_words(number: Number, was: float | None, now: float | None, *, called: str | None = None) -> str:
    """Return "syncs 1 -> 2", "busy 1.2 ms -> 9.4 ms, 7.8x": counts by their name, others by what they are called."""
    before, after = ("not recorded" if value is None else number.show(value) for value in (was, now))
    # Of a GPU or of the CPU as device.
    word = called or (number.name if number.exact else number.noun.removeprefix("GPU "))
    ratio = ratio_of(was, now)
    # Of a handful everybody sees it, and a share is one already.
    obvious = number.unit in ("share", "ratio") or (number.unit == "count" and max(was or 0, now or 0) < HANDFUL)
    return f"{word} {before} -> {after}" + ("" if ratio is None or obvious else f", {show_factor(ratio)}")


def kind_of(kernel: KernelRecord) -> str:
    """Return the kind of kernel by which it is counted: its family, or that Triton wrote it."""
    if kernel.family not in STRUCTURAL and decode(kernel.name).triton is not None:
        return "triton"
    return kernel.family if kernel.family is not None and kernel.family in _NOUNS else "other"


def family_noun(family: str) -> str:
    """Return what one kernel of a family is called."""
    return _NOUNS.get(family) or f"{family} kernel"


def noun(kind: str, count: int) -> str:
    """Return what so many kernels of a kind are called."""
    return numbered(count, _NOUNS[kind])


def number_of(kind: str, count: int) -> str:
    """Return "two GEMMs", "12 pointwise"."""
    return f"{amount(count)} {noun(kind, count)}"


def amount(count: int) -> str:
    """Return a number as prose has it, the small ones spelled out."""
    return _FEW[count] if count < len(_FEW) else str(count)
