"""The differences between the kernels of two entries, one kernel at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from msgspec.structs import replace

from pytest_torchprof.baseline.entry import STRUCTURAL, KernelRecord
from pytest_torchprof.compare.change import BETTER, NEUTRAL, UNKNOWN, WORSE, Change, LostFusion
from pytest_torchprof.compare.difference import RULES, difference, keys, most_alike
from pytest_torchprof.compare.sameness import decoded_anew, lacks_operands, work_on_the_same
from pytest_torchprof.kernels.fields import bare
from pytest_torchprof.kernels.names import decode, without_index
from pytest_torchprof.kernels.operand_types import name_is_the_code
from pytest_torchprof.kernels.reply import NOT_KNOWN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.compare.change import Direction
    from pytest_torchprof.compare.difference import Difference, Names, Step

T = TypeVar("T")

_RUN_AS: Final = {"clamp_min": "relu"}
"""The operator that ATen runs on the CPU for one that Inductor calls by another name."""


def kernel_changes(old: Entry, new: Entry, names: Names, *, allowed: float = 0) -> tuple[Change, ...]:
    """Return the changes in the kernels of each distinct step; up to ``allowed`` further launches do not fail.

    A step is the same if some step of the baseline ran its kernels; any other step is compared with the baseline's most
    similar step.
    """
    rule = RULES[names]
    known = {tuple(keys(step, rule.same)): step for step in decoded_anew(old, new) or ((),)}
    changes: dict[tuple[str, ...], Change] = {}
    for number, step in enumerate(new.steps or ((),)):
        before = known.get(tuple(keys(step, rule.same))) or most_alike(step, known.values(), rule)
        in_step = _by_subject(_step_changes(difference(before, step, rule), before, step, names, allowed))
        for subject, change in in_step.items():
            if subject not in changes or changes[subject].times < change.times:
                changes[subject] = replace(change, step=number)
    return tuple(changes.values())


def _by_subject(changes: Iterable[Change]) -> dict[tuple[str, ...], Change]:
    """Return a step's changes by their subject: kernels of one name on several types share one change."""
    by_subject: dict[tuple[str, ...], Change] = {}
    for change in changes:
        others = [kernel.name for kernel in change.before] if change.kind in ("changed", "renamed") else ()
        subject = change.kind, change.what, change.direction, *others
        by_subject[subject] = _both(by_subject[subject], change) if subject in by_subject else change
    return by_subject


def _both(first: Change, second: Change) -> Change:
    def total(left: float | None, right: float | None) -> float | None:
        return None if left is None and right is None else (left or 0) + (right or 0)

    return replace(
        first,
        old=total(first.old, second.old),
        new=total(first.new, second.new),
        gated=first.gated or second.gated,
        times=first.times + second.times,
        launches=(*first.launches, *second.launches),
        lost_fusion=first.lost_fusion or second.lost_fusion,
    )


def _step_changes(delta: Difference, before: Step, step: Step, names: Names, allowed: float) -> Iterator[Change]:
    too_many = len(delta.came) > (allowed if isinstance(allowed, int) else len(before) * allowed)
    # A kernel that replaced another may carry a part of the operators of the other.
    came = {*delta.came, *(now for _, now in delta.swapped)}
    for (was, now), at in _group(zip(delta.swapped, delta.swapped_at, strict=True)).items():
        if not _may_be_one(was, now, names):
            yield replace(_swap_change(was, now, at, names), lost_fusion=lost_fusion(was, came))
    same = RULES[names].same
    were, are = Counter(keys(before, same)), Counter(keys(step, same))
    went: dict[bool, list[Change]] = {True: [], False: []}
    for kernel, times in Counter(delta.went).items():
        gone = _count_change(kernel, times, were[same(kernel)], are[same(kernel)], gated=True)
        lost = lost_fusion(kernel, came)
        went[lost is not None].append(replace(gone, lost_fusion=lost))
    # If not all fit the screen, this order decides: the cause of kernels that came, those kernels, and then kernels
    # that merely went.
    yield from went[True]
    for kernel, at in _group(zip(delta.came, delta.came_at, strict=True)).items():
        change = _count_change(kernel, len(at), were[same(kernel)], are[same(kernel)], gated=too_many)
        yield replace(change, launches=at)
    yield from went[False]
    for (was, now), times in delta.renamed.items():
        yield Change(kind="renamed", what=now.short, before=(was,), after=(now,), times=times)
    if delta.moved:
        yield reordering(delta)


def reordering(delta: Difference) -> Change:
    """Return the change that says that kernels moved within the step, named after the first of them."""
    return Change(kind="reordered", what=delta.moved[0][1].short, times=len(delta.moved))


def _group(pairs: Iterable[tuple[T, int]]) -> dict[T, tuple[int, ...]]:
    """Return the indices of each distinct thing."""
    places: defaultdict[T, list[int]] = defaultdict(list)
    for thing, place in pairs:
        places[thing].append(place)
    return {thing: tuple(at) for thing, at in places.items()}


def _may_be_one(was: KernelRecord, now: KernelRecord, names: Names) -> bool:
    """Return whether a kernel may be the same as the baseline's, which was written before operands were kept."""
    same_name = was.name == now.name if names == "exact" else without_index(was.name) == without_index(now.name)
    return same_name and lacks_operands(was, now) and work_on_the_same(was, now).may_be


def _swap_change(was: KernelRecord, now: KernelRecord, at: tuple[int, ...], names: Names) -> Change:
    same = work_on_the_same(was, now)
    differ = any(getattr(was, fact) != getattr(now, fact) for fact in ("dtype", "layout", "operands"))
    same_name = was.family in STRUCTURAL or names == "structure" or was.normal_name == now.normal_name
    is_variant = same.may_be and same_name and (names != "exact" or (differ and was.name == now.name))
    is_known = same is not NOT_KNOWN or lacks_operands(was, now) or _is_one_code(was, now)
    direction: Direction = NEUTRAL if is_variant else WORSE
    if is_variant and was.family in STRUCTURAL and not is_known:
        direction = UNKNOWN
    return Change(
        kind="renamed" if names == "structure" and not differ and was.op == now.op else "changed",
        what=now.short,
        direction=direction,
        gated=direction == WORSE,
        before=(was,),
        after=(now,),
        times=len(at),
        launches=at,
    )


def _is_one_code(was: KernelRecord, now: KernelRecord) -> bool:
    return was.name == now.name and name_is_the_code(was.name, was.op) and name_is_the_code(now.name, now.op)


def _count_change(kernel: KernelRecord, times: int, was: int, now: int, *, gated: bool) -> Change:
    kind: Literal["added", "removed", "count"] = "count" if was and now else "removed" if was else "added"
    return Change(
        kind=kind,
        what=kernel.short,
        old=was or None,
        new=now or None,
        direction=WORSE if now > was else BETTER,
        gated=gated,
        before=(kernel,) if was else (),
        after=(kernel,) if now else (),
        times=times,
    )


def lost_fusion(was: KernelRecord, came: Collection[KernelRecord]) -> LostFusion | None:
    """Return the operators that a kernel that went had fused and several kernels carry now; None if nothing was lost.

    ``came`` are the kernels that only the new step has.
    """
    fused = tuple(map(bare, decode(was.name).triton_ops))
    carried = [(kernel, {*_operators(kernel)} & {*fused}) for kernel in came]
    parts = [(kernel, ops) for kernel, ops in carried if ops]
    if len(fused) < 2 or len(parts) < 2 or any(ops == {*fused} for _, ops in parts):
        return None
    lost = [op for op in dict.fromkeys(fused) if any(op in ops for _, ops in parts)]
    return LostFusion(ops=tuple(lost), kernels=len(parts)) if len(lost) > 1 else None


def _operators(kernel: KernelRecord) -> tuple[str, ...]:
    """Return the operators that a kernel carries: those in its name, or the one that launched it."""
    carried = decode(kernel.name).triton_ops or (() if kernel.op is None else (kernel.op,))
    return tuple(_RUN_AS.get(op, op) for op in map(bare, carried))
