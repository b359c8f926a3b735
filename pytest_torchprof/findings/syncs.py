"""Findings about synchronization: the host waits for the GPU."""

from __future__ import annotations

from collections import Counter, defaultdict
from operator import itemgetter, sub
from typing import TYPE_CHECKING

from pytest_torchprof.analysis.parts import copy_direction
from pytest_torchprof.analysis.steps import once
from pytest_torchprof.findings.catalogue.syncs import ImplicitSync, SyncOverLittleWork
from pytest_torchprof.findings.events import Events
from pytest_torchprof.findings.finding import HOST_PACE, LAUNCHES, OPERATORS, Finding, Rule, Threshold
from pytest_torchprof.findings.places import source_of_calls
from pytest_torchprof.findings.queued import launched_waits
from pytest_torchprof.findings.waiting import after_waits_ns
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import picked
from pytest_torchprof.trace.intervals import Spans

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.gpu_work import GpuWork
    from pytest_torchprof.findings.catalogue.syncs import WaitedFor

WORK = Threshold("work", 0.1, "a call that waits ten times as long as the GPU works waits for something else")
WAIT_US = Threshold(
    "wait_us",
    50.0,
    "a blocking call itself takes some 10 us; what is shorter than five of them is not worth mentioning",
)

_INDEXING = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})
_COUNTING = frozenset({"aten::nonzero", "aten::masked_select", "aten::masked_scatter", "aten::argwhere"})
"""Operators whose result is as large as a mask says, for which the CPU has to wait."""
_COPYING = frozenset({"aten::to", "aten::_to_copy", "aten::copy_", "aten::cpu", "aten::cuda"})


def _sync_over_little_work(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find long blocking calls during which the GPU was hardly busy."""
    trace, work, calls = analysis.trace, analysis.gpu_work, analysis.trace.calls
    idle_ns = _idle_in_calls(analysis, at[WORK], at[WAIT_US])
    if not idle_ns:
        return
    together = intervals.within(intervals.of(calls, idle_ns), work.whole)
    idle_us = (intervals.length(together) - sum(work.worked_ns(together.starts, together.ends))) / 1000
    held_ns = intervals.length_within(together, held_on_gpu(analysis))
    wasted = sum(idle_ns.values()) / 1000
    names = Counter(trace.names[calls.name[i]] for i in idle_ns)
    yield SyncOverLittleWork(
        time_us=wasted,
        share=work.share_of_window(idle_us),
        calls=names,
        source=source_of_calls(work, idle_ns),
        events=Events(calls=tuple(idle_ns)),
        saves_us=max(wasted - held_ns / 1000, 0.0),
    )


def _idle_in_calls(analysis: Analysis, most: float, longer_us: float) -> dict[int, int]:
    """Return for each call that blocks longer, and in which the GPU works less than this share, its idle time."""
    work, calls = analysis.gpu_work, analysis.trace.calls
    long = [i for i in work.blocking if calls.end[i] - calls.start[i] > longer_us * 1000]
    starts, ends = picked(calls.start, long), picked(calls.end, long)
    waits = zip(long, map(sub, ends, starts), work.worked_ns(starts, ends), strict=True)
    return {i: spent - worked for i, spent, worked in waits if worked < most * spent}


@once
def waits_for_little(analysis: Analysis) -> Spans:
    """Return when the CPU waited long for a GPU that hardly worked."""
    return intervals.of(analysis.trace.calls, _idle_in_calls(analysis, WORK.value, WAIT_US.value))


def _implicit_sync(analysis: Analysis) -> Iterator[Finding]:
    """Find blocking calls that an operator made: the program did not ask for a synchronization.

    A copy from or to memory that is not pinned waits in its own call, before the synchronization that follows.
    """
    work = analysis.gpu_work
    waits = _waits_by_operator(analysis)
    if not waits:
        return
    took_ns, worked_ns = _took_and_worked(analysis)
    spent_ns: dict[str, int] = defaultdict(int)
    took_by: dict[WaitedFor, int] = defaultdict(int)
    idled: dict[WaitedFor, int] = defaultdict(int)
    for (name, cause), took in took_ns.items():
        spent_ns[name] += took
        took_by[cause] += took
        idled[cause] += took - worked_ns[name, cause]
    spent = {name: ns / 1000 for name, ns in spent_ns.items()}
    order = sorted(waits, key=lambda name: (-spent[name], name))
    members = [i for name in order for i in waits[name]]
    waited = waits_in_operators(analysis)
    total, causes = sum(spent.values()), sorted(took_by, key=lambda cause: -took_by[cause])
    held = held_on_gpu(analysis)
    inside = intervals.within(waited, work.whole)
    busy_ns, busy = _busy_meanwhile(work, inside, sum(took_ns.values()), sum(worked_ns.values()))
    idle_ns = intervals.length(inside) - busy_ns
    held_ns = intervals.length_within(intervals.without(inside, busy), held) if held else 0
    # Time in which the GPU runs dry after the wait is gained with it; time in which the GPU itself waits is not.
    free_us = (idle_ns - held_ns + after_waits_ns(analysis)) / 1000
    held_us = intervals.length_within(waited, held) / 1000
    yield ImplicitSync(
        time_us=total,
        share=work.share_during(waited),
        idle_us=idle_ns / 1000,
        held_us=held_ns / 1000,
        ops={name: len(waits[name]) for name in order},
        ops_us={name: spent[name] for name in order},
        syncs=len(members),
        causes_us={cause: took_by[cause] / 1000 for cause in causes},
        causes_idle_us={cause: idled[cause] / 1000 for cause in causes},
        source=source_of_calls(work, _waits_in_operators(analysis)),
        events=Events(calls=_longer_calls(analysis, members)),
        # While the CPU waits for a busy GPU nothing is lost, and the GPU's own waits cannot be gained.
        saves_us=min(max(total - held_us, 0.0), free_us),
    )


def _waits_by_operator(analysis: Analysis) -> dict[str, list[int]]:
    """Return the waits by the operator that the program called; a copy and the synchronization after it are one."""
    around, copies, asked = _waits_and_operators(analysis)
    synchronized = set(around.values())
    alone = {i: op for i, op in copies.items() if op not in synchronized}
    waits: dict[str, list[int]] = defaultdict(list)
    for i, op in (around | alone).items():
        if (name := asked[op]) is not None:
            waits[name].append(i)
    return waits


_Kind = tuple[str, "WaitedFor"]
"""The operator that the program called, and what the CPU waited for in it."""


def _took_and_worked(analysis: Analysis) -> tuple[dict[_Kind, int], dict[_Kind, int]]:
    """Return how long the waits in operators took by kind, and for how long of it a device worked, in ns."""
    calls = analysis.trace.calls
    _, _, asked = _waits_and_operators(analysis)
    cause_of = _causes(analysis, asked)
    kind_of = {op: (name, cause_of[op]) for op, name in asked.items() if name is not None}
    members: dict[_Kind, list[int]] = defaultdict(list)
    for i, op in _waits_in_operators(analysis).items():
        members[kind_of[op]].append(i)
    worked = _worked_in_each(analysis, sorted(_waits_in_operators(analysis)))
    took_ns, worked_ns = {}, {}
    for kind, those in members.items():
        took_ns[kind] = sum(map(sub, picked(calls.end, those), picked(calls.start, those)))
        worked_ns[kind] = sum(picked(worked, those))
    return took_ns, worked_ns


def _worked_in_each(analysis: Analysis, waits: Sequence[int]) -> list[int]:
    """Return for each call for how long of it a device worked, in ns, as far as it is one of the ``waits``."""
    calls = analysis.trace.calls
    worked = [0] * len(calls)
    # All at once: most files have calls in the order of their start, in which the device's work is gone through once.
    together = analysis.gpu_work.worked_ns(picked(calls.start, waits), picked(calls.end, waits))
    for i, ns in zip(waits, together, strict=True):
        worked[i] = ns
    return worked


def _busy_meanwhile(work: GpuWork, inside: Spans, took_ns: int, worked_ns: int) -> tuple[int, Spans]:
    """Return for how long a device was busy inside waits, and when: of several the one that idles longest meanwhile.

    ``took_ns`` is what the waits took one by one, ``worked_ns`` for how long of it a device worked.
    """
    devices = list(work.busy.values())
    if len(devices) == 1 and took_ns == intervals.length(inside):
        # No two waits overlap, so that the sum over them is the time itself.
        return worked_ns, devices[0]
    return min(
        ((intervals.length_within(inside, busy), busy) for busy in devices),
        key=itemgetter(0),
        default=(0, Spans()),
    )


def _longer_calls(analysis: Analysis, waits: Sequence[int]) -> tuple[int, ...]:
    """Return for each wait its longer call: the synchronization, or the copy of its operator before it."""
    start, end = analysis.trace.calls.start, analysis.trace.calls.end
    around, copies, _ = _waits_and_operators(analysis)
    copy_of = {op: i for i, op in copies.items()}
    # Of several synchronizations in one operator the first comes after the copy.
    longer = {
        i: copy
        for i, op in around.items()
        if (copy := copy_of.pop(op, i)) != i and end[copy] - start[copy] > end[i] - start[i]
    }
    return tuple(map(longer.get, waits, waits))


@once
def _waits_and_operators(analysis: Analysis) -> tuple[dict[int, int], dict[int, int], dict[int, str | None]]:
    """Return the blocking calls and those of copies, each with its operator, and the operators the program called."""
    trace = analysis.trace
    work = analysis.gpu_work
    innermost = trace.around_calls
    around, copies = {i: innermost[i] for i in work.blocking}, work.waiting_copies
    ops = [*{*around.values(), *copies.values()}]
    return around, copies, dict(zip(ops, analysis.launching.called_operators(ops), strict=True))


@once
def _waits_in_operators(analysis: Analysis) -> Mapping[int, int]:
    """Return the calls in which the CPU waited and that operators made, each with its operator."""
    around, copies, asked = _waits_and_operators(analysis)
    waits = around | copies
    return {i: op for i, op in waits.items() if asked[op] is not None} if None in asked.values() else waits


@once
def waits_in_operators(analysis: Analysis) -> Spans:
    """Return when the CPU waited in calls that operators made: the program did not ask for them."""
    work, waited = analysis.gpu_work, _waits_in_operators(analysis)
    if len(waited) == len(work.blocking) + len(work.waiting_copies):
        return work.waits
    return intervals.of(analysis.trace.calls, waited)


@once
def held_on_gpu(analysis: Analysis) -> Spans:
    """Return when a device idled although work was queued: a CPU that waits then waits for the same thing."""
    return intervals.merged((start, end) for start, end, _ in launched_waits(analysis))


def _causes(analysis: Analysis, ops: Collection[int]) -> dict[int, WaitedFor]:
    """Return for each operator in which the CPU waited what it waited for."""
    trace, launching, copies = analysis.trace, analysis.launching, analysis.gpu_work.copies
    op_of, named = launching.op_of, trace.gpu.name
    direction = {name: copy_direction(trace.names[name]) for name in {named[i] for i in copies}}
    to_gpu, to_cpu = ({op_of[i] for i in copies if direction[named[i]] == towards} for towards in ("HtoD", "DtoH"))
    # Thousands of operators share a few chains.
    alike = list(
        zip(launching.chain_numbers(ops), map(to_gpu.__contains__, ops), map(to_cpu.__contains__, ops), strict=True)
    )
    cause = {
        key: _cause(launching.chain(op), to_gpu=key[1], to_cpu=key[2])
        for key, op in dict(zip(alike, ops, strict=True)).items()
    }
    return dict(zip(ops, map(cause.__getitem__, alike), strict=True))


def _cause(chain: tuple[str, ...], *, to_gpu: bool, to_cpu: bool) -> WaitedFor:
    """Return the kind of wait of the innermost operator of a chain, which copied in these directions."""
    if not _COUNTING.isdisjoint(chain):
        return "masks"
    if chain[-1:] and chain[-1] in _COPYING:
        if to_gpu == to_cpu:
            return "copies"
        return "to_cpu" if to_cpu else "to_gpu" if _INDEXING.isdisjoint(chain) else "indices"
    return "value" if _INDEXING.isdisjoint(chain) else "masks"


RULES = (
    Rule(
        code="sync-over-little-work",
        find=_sync_over_little_work,
        needs=(LAUNCHES,),
        thresholds=(WORK, WAIT_US),
        explains=(*HOST_PACE, "max_syncs"),
    ),
    Rule(
        code="implicit-sync",
        find=_implicit_sync,
        needs=(OPERATORS,),
        explains=(*HOST_PACE, "max_memcpys", "max_syncs"),
    ),
)
