"""What findings say of the shared recordings, counted a second time in the plainest way from the files' events.

The preconditions of what they advise are looked up there too.
"""

from __future__ import annotations

import gzip
import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from functools import cache, cached_property
from itertools import groupby, pairwise
from math import prod

import msgspec
import pytest
from findings_on_recordings import FINDINGS

from pytest_torchprof import load
from pytest_torchprof.findings import find
from pytest_torchprof.kernels.names import decode as decode_name

pytestmark = pytest.mark.any_torch

GPU = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}
CALLS = {"cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "hip_driver"}
RANGES = {"user_annotation", "cpu_op", "operator"}
OPERATORS = {"cpu_op", "operator"}
OWN = ("Activity Buffer Request", "Buffer Flush", "Instrumentation", "Resource", "Command Buffer Full")


BLOCKING = re.compile(r"(cuda|hip)((Stream|Event|Device)Synchronize|Memcpy)|hipMemcpyWithStream")
ONCE = re.compile(
    r"(cuda|hip)(Malloc|Free|HostAlloc|HostMalloc|FreeHost|HostFree|GraphInstantiate|LibraryLoad)|cuModuleLoad"
)
LOADING = ("Lazy Function Loading", "Runtime Triggered Module Loading", "Driver Compiler")
CONSTANTS = {"aten::arange", "aten::linspace", "aten::eye", "aten::tril_indices", "aten::triu_indices"}
PEAKS = {"NVIDIA H100 80GB HBM3": (989e12, 3.35e12)}
"""What a GPU does in a second at most: operations in 16-bit types, and bytes from its memory."""


decode = cache(decode_name)


def union(spans):
    """Return the spans without overlaps, in order."""
    found = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def length(spans):
    """Return how long the union of spans is."""
    return sum(end - start for start, end in union(spans))


def both(spans, others):
    """Return how long spans of both kinds run at once."""
    return length(spans) + length(others) - length([*spans, *others])


class Event:
    def __init__(self, event):
        self.name = event["name"]
        self.kind = event.get("cat", "").lower()
        self.start = round(event["ts"] * 1000)
        self.end = self.start + round(event.get("dur", 0) * 1000)
        self.thread = (event["pid"], event["tid"])
        self.args = event.get("args", {})
        self.correlation = self.args.get("correlation", self.args.get("correlation id"))
        self.device = self.args.get("device", 0)
        self.stream = self.args.get("stream")

    @property
    def us(self):
        return (self.end - self.start) / 1000

    @property
    def span(self):
        return self.start, self.end


class Raw:
    """The events of a file, and nothing that the package makes of them but what a kernel's name means."""

    def __init__(self, path):
        whole = msgspec.json.decode(gzip.decompress(path.read_bytes()))
        self.header = {} if isinstance(whole, list) else whole
        events = [one for one in (whole if isinstance(whole, list) else whole["traceEvents"]) if one.get("ph") == "X"]
        self.events = [Event(one) for one in events]
        self.gpu = [one for one in self.events if one.kind in GPU]
        self.calls = [one for one in self.events if one.kind in CALLS]
        self.call_of = {one.correlation: one for one in self.calls if one.correlation}
        steps = [one for one in self.events if one.name.startswith("ProfilerStep#") and one.kind in RANGES]
        self.steps = sorted(steps, key=lambda one: one.start)
        self.orphans = [one for one in self.gpu if one.correlation not in self.call_of]
        self.work = [one for one in self.gpu if self.is_in_a_step(one)]
        self.kernels = [one for one in self.work if one.kind == "kernel"]
        self.kernel_us = sum(one.us for one in self.kernels)
        self.devices = sorted({one.device for one in self.gpu})

    def is_in_a_step(self, one):
        if one.correlation not in self.call_of:
            return False
        if not self.steps:
            return True
        start = self.call_of[one.correlation].start
        return any(step.start <= start < step.end for step in self.steps)

    @cached_property
    def window(self):
        ends = [one.end for one in self.gpu]
        if self.steps:
            return self.steps[0].start, max([*ends, *(step.end for step in self.steps)])
        first = [one for one in self.events if one.kind in RANGES | CALLS]
        flush = max((one for one in first if "DeviceSynchronize" in one.name), key=lambda one: one.start, default=None)
        return min(one.start for one in first), max([*ends, *(one.end for one in first if one is not flush)])

    @property
    def window_us(self):
        start, end = self.window
        return (end - start) / 1000

    def inside(self, events):
        """Return when these ran inside the window."""
        start, end = self.window
        return [(max(one.start, start), min(one.end, end)) for one in events if one.end > start]

    def is_of_a_step(self, one):
        """Whether something of the CPU's side began in a step."""
        return not self.steps or any(step.start <= one.start < step.end for step in self.steps)

    def step_of(self, one):
        start = self.call_of[one.correlation].start
        return next((place for place, step in enumerate(self.steps) if step.start <= start < step.end), 0)

    @cached_property
    def holders(self):
        """The operators around each operator and each call of the runtime, by its id, the innermost last."""
        threads, found = defaultdict(list), {}
        for one in self.events:
            if one.kind in OPERATORS | CALLS:
                threads[one.thread].append((one.start, one.kind in CALLS, -one.end, one))
        for entries in threads.values():
            around = []
            for *_, one in sorted(entries, key=lambda entry: entry[:3]):
                while around and around[-1].end <= one.start:
                    around.pop()
                found[id(one)] = tuple(around)
                if one.kind in OPERATORS:
                    around.append(one)
        return found

    def ops_around(self, one):
        """Return the operators around the launch of an operation of the GPU, the innermost last."""
        return self.holders[id(self.call_of[one.correlation])]

    def op(self, one):
        """Return the operator that launched it, None for none."""
        return next(reversed(self.ops_around(one)), None)

    def types(self, one):
        """Return the types of the operands of the operator that launched it, () where they are not recorded."""
        op = self.op(one)
        return () if op is None else tuple(filter(None, op.args.get("Input type", op.args.get("Input Types", ()))))

    def dims(self, one):
        op = self.op(one)
        return () if op is None else op.args.get("Input Dims", op.args.get("Input dims", ()))

    @cached_property
    def blocking(self):
        """The calls of the steps that wait for the GPU, but the one with which the profiler ends."""
        found = [one for one in self.calls if BLOCKING.fullmatch(one.name)]
        last = max((one for one in found if "DeviceSync" in one.name), key=lambda one: one.start, default=None)
        return [one for one in found if one is not last and self.is_of_a_step(one)]

    @cached_property
    def busy(self):
        """When each device ran something."""
        return [union(self.inside(self.on(device, self.gpu))) for device in self.devices]

    def worked(self, start, end):
        """Return how long the device that worked most did between two instants."""
        worked = []
        for spans in self.busy:
            near = spans[max(bisect_right(spans, (start,)) - 1, 0) : bisect_right(spans, (end,))]
            worked.append(sum(max(min(until, end) - max(since, start), 0) for since, until in near))
        return max(worked)

    def during(self, events):
        """Return the share of the window in which one of these on the CPU's side went on."""
        start, end = self.window
        return (
            length([(max(one.start, start), min(one.end, end)) for one in events if one.end > start])
            / 1000
            / self.window_us
        )

    def launched_in_turn(self):
        """Yield the operations of each step that a thread launched one by one, in the order of their launches."""
        found = defaultdict(list)
        for one in self.work:
            call = self.call_of[one.correlation]
            if "GraphLaunch" not in call.name:
                found[self.step_of(one), call.thread].append(one)
        for ones in found.values():
            yield sorted(ones, key=lambda one: self.call_of[one.correlation].start)

    def on(self, device, events):
        return [one for one in events if one.device == device]

    def share(self, events):
        """Return the share of the window in which one of these ran, the mean over devices."""
        found = [length(self.inside(self.on(device, events))) for device in self.devices]
        return sum(found) / len(found) / 1000 / self.window_us

    @cached_property
    def own(self):
        """When the profiler was busy with its own buffers."""
        return union(one.span for one in self.events if one.kind == "overhead" and one.name in OWN)

    def gaps(self):
        """Yield what idled before an operation of a step, without what the profiler took: from, to, the operation."""
        begin = self.window[0]
        of_step = set(map(id, self.work))
        for device in self.devices:
            reached = None
            for one in sorted(self.on(device, self.gpu), key=lambda one: one.start):
                if reached is not None and one.start > max(reached, begin) and id(one) in of_step:
                    yield from ((start, end, one) for start, end in self.without_own(max(reached, begin), one.start))
                reached = max(reached or one.end, one.end)

    def without_own(self, start, end):
        """Return what is left of a span without the profiler's own time."""
        left = []
        for own_start, own_end in self.own[max(bisect_right(self.own, (start, end)) - 1, 0) :]:
            if own_start >= end:
                break
            if own_start > start:
                left.append((start, own_start))
            start = max(start, own_end)
        return [*left, (start, end)] if start < end else left

    def late(self):
        """Yield the gaps whose operation was launched only when the device had run dry, and how much the host took."""
        for start, end, one in self.gaps():
            call = self.call_of[one.correlation]
            if call.start > start:
                yield start, min(end, call.end), one


def communicates(one):
    return one.kind == "kernel" and decode(one.name).family == "communication"


def in_flight(raw, _):
    return {"orphans": len(raw.orphans), "time_us": sum(one.us for one in raw.orphans)}


def lost(raw, _):
    launches = [one for one in raw.call_of.values() if "LaunchKernel" in one.name]
    seen = {one.correlation for one in raw.gpu}
    return {"launches": len(launches), "lost_kernels": sum(one.correlation not in seen for one in launches)}


def profilers_gap(raw, _):
    own = raw.inside([one for one in raw.events if one.kind == "overhead" and one.name in OWN])
    idle = [length(own) - both(own, raw.inside(raw.on(device, raw.gpu))) for device in raw.devices]
    return {"time_us": max(idle) / 1000, "share": max(idle) / 1000 / raw.window_us}


def computing(raw, _):
    busy = [one for one in raw.gpu if one.kind == "kernel" and not communicates(one)]
    return {"share": raw.share(busy)}


def gaps_of_launches(raw, _):
    late = [(start, end) for start, end, _ in raw.late() if end > start]
    lost_us = sum(end - start for start, end in late) / 1000 / len(raw.devices)
    copies = [
        raw.call_of[one.correlation]
        for one in raw.work
        if "Pageable" in one.name and raw.call_of[one.correlation].end >= one.end
    ]
    waits = union((call.start, call.end) for call in [*raw.blocking, *copies])
    of_waits = [
        end - start
        for start, end in late
        for since, until in waits[max(bisect_right(waits, (start, math.inf)) - 1, 0) :][:1]
        if since <= start <= until <= end
    ]
    return {
        "after_waits_us": sum(of_waits) / 1000 / len(raw.devices),
        "graphs": any("GraphLaunch" in one.name for one in raw.calls),
        "time_us": lost_us,
        "share": lost_us / raw.window_us,
        "gaps": len(late),
        "longest_us": max(end - start for start, end in late) / 1000,
    }


def late_launches(raw, _):
    gaps = list(raw.gaps())
    late = [(end - start, one) for start, end, one in gaps if raw.call_of[one.correlation].start > start]
    waited = sum(lasted for lasted, _ in late) / 1000 / len(raw.devices)
    of_step = [[one for one in raw.work if raw.step_of(one) == step] for step in range(max(len(raw.steps), 1))]
    busy = [length(one.span for one in raw.on(device, ones)) for ones in of_step for device in raw.devices]
    return {
        "late_launches": len({id(one) for _, one in late}) / len(raw.work),
        "time_us": waited,
        "share": waited / raw.window_us,
        "busy_us": sum(busy) / 1000,
        "busy_share": raw.share(raw.gpu),
        "longest_us": max(end - start for start, end, _ in gaps) / 1000,
    }


def waiting(raw, finding):
    waits = []
    for device in raw.devices:
        first = min(raw.on(device, raw.gpu), key=lambda one: one.start)
        alone = [(raw.window[0], first.start, first)] if id(first) in set(map(id, raw.work)) else []
        for start, end, one in alone:
            waits += [(begin, until, one) for begin, until in raw.without_own(start, max(start, end))]
    waits += raw.gaps()
    lengths = [end - max(start, raw.call_of[one.correlation].end) for start, end, one in waits]
    long = [one for one in lengths if one >= 30_000]
    return {
        "gaps": len(long),
        "longest_us": max(long) / 1000,
        "time_us": sum(long) / 1000 / len(raw.devices),
        "share": sum(long) / 1000 / len(raw.devices) / raw.window_us,
        "streams": max(len({one.stream for one in raw.on(device, raw.gpu)}) for device in raw.devices),
        "communicates": any(map(communicates, raw.kernels)),
    }


def exposed(raw, _):
    lost = []
    for device in raw.devices:
        kernels = [one for one in raw.on(device, raw.gpu) if one.kind == "kernel"]
        talking = raw.inside([one for one in kernels if communicates(one)])
        lost.append(length(talking) - both(talking, raw.inside([one for one in kernels if not communicates(one)])))
    return {"time_us": max(lost) / 1000, "share": max(lost) / 1000 / raw.window_us}


def hotspot(raw, finding):
    if finding.kernels:
        meant = [one for one in raw.kernels if one.name == finding.kernels[0]]
    else:
        meant = [one for one in raw.kernels if raw.op(one) is not None and raw.op(one).name == finding.ops[0]]
    spent = sum(one.us for one in meant)
    return {
        "count": len(meant),
        "time_us": spent,
        "share": raw.share(meant),
        "kernel_share": spent / raw.kernel_us,
    }


def small_grids(raw, _):
    """Look at each piece of time between two edges of kernels: all that run then, on each device."""
    small, unused = 0, 0.0
    counted = set()
    of_step = set(map(id, raw.kernels))
    for device in raw.devices:
        kernels = [one for one in raw.on(device, raw.gpu) if one.kind == "kernel"]
        edges = sorted({edge for one in kernels for edge in one.span})
        running, ordered = [], sorted(kernels, key=lambda one: one.start)
        place = 0
        for start, end in pairwise(edges):
            while place < len(ordered) and ordered[place].start <= start:
                running.append(ordered[place])
                place += 1
            running = [one for one in running if one.end > start]
            blocks = [one.args.get("blocks per SM") for one in running]
            if not running or None in blocks or sum(blocks) >= 1:
                continue
            meant = [one for one in running if id(one) in of_step and not communicates(one)]
            counted |= set(map(id, meant))
            small += len(meant) * (end - start)
            unused += (1 - sum(blocks)) * (end - start) if meant else 0
    return {
        "count": len(counted),
        "time_us": small / 1000,
        "kernel_share": small / 1000 / raw.kernel_us,
        "unused_us": unused / 1000,
    }


def moving(raw, _):
    meant = [one for one in raw.kernels if decode(one.name).family == "copy" or "quantize" in decode(one.name).stem]
    spent = sum(one.us for one in meant)
    return {"count": len(meant), "time_us": spent, "kernel_share": spent / raw.kernel_us, "share": raw.share(meant)}


def layouts(raw, _):
    meant = [one for one in raw.kernels if "transpose" in one.name.lower() and "batched" in one.name]
    spent = sum(one.us for one in meant)
    return {"count": len(meant), "time_us": spent, "kernel_share": spent / raw.kernel_us}


def first_launch(raw, _):
    delays = [(one.start - raw.call_of[one.correlation].start) / 1000 for one in raw.kernels]
    first = min(raw.kernels, key=lambda one: raw.call_of[one.correlation].start)
    return {
        "first_us": (first.start - raw.call_of[first.correlation].start) / 1000,
        "median_us": sorted(delays)[len(delays) // 2],
    }


def empty_steps(raw, _):
    made = [step for step in raw.steps if any(step.start <= one.start < step.end for one in raw.call_of.values())]
    return {"of_steps": len(raw.steps), "steps": [one.name for one in raw.steps if one not in made]}


def optimizer(raw, finding):
    ranges = [one for one in raw.events if one.name.startswith("Optimizer.step#") and one.kind in RANGES]
    inside = []
    for one in raw.kernels:
        call = raw.call_of[one.correlation]
        if any(r.thread == call.thread and r.start <= call.start < r.end for r in ranges):
            inside.append(one)
    meant = [one for one in inside if decode(one.name).family == "pointwise" and "multi_tensor" not in one.name]
    return {
        "count": len(meant),
        "time_us": sum(one.us for one in meant),
        "steps_taken": len(ranges),
        "cpu_us": sum(one.us for one in ranges),
    }


def of_kernels(raw, meant):
    spent = sum(one.us for one in meant)
    return {"count": len(meant), "time_us": spent, "kernel_share": spent / raw.kernel_us, "share": raw.share(meant)}


def of_type(raw, name, types):
    """Return the products and convolutions that compute in a type: their names say so, or else their operands."""
    meant = []
    for one in raw.kernels:
        decoded = decode(one.name)
        says = decoded.dtype == name or (decoded.dtype is None and set(raw.types(one)[:2]) <= types and raw.types(one))
        if decoded.family in ("gemm", "conv") and decoded.helper is None and says:
            meant.append(one)
    return meant


def fp32(raw, _):
    return of_kernels(raw, of_type(raw, "fp32", {"float"}))


def tf32(raw, _):
    return of_kernels(raw, of_type(raw, "tf32", set()))


def fp64(raw, _):
    # A cast has two types, a sort computes nothing, and of boxes the threshold alone is a double.
    others = ("direct_copy", "radixSort", "nms_kernel")
    meant = [one for one in raw.kernels if "double" in one.name and not any(word in one.name for word in others)]
    return of_kernels(raw, meant)


def outermost(raw, call):
    """Return what the program called that made this call: an operator of ATen, else one of others; no region."""
    around = [one.name for one in raw.holders[id(call)]]
    aten = [name for name in around if name.startswith("aten::")]
    if aten:
        return aten[0]
    return around[-1] if around and not around[-1].startswith("Torch-Compiled Region") else None


def hidden_waits(raw, finding):
    waits = [(one, raw.holders[id(one)][-1]) for one in raw.blocking if outermost(raw, one) is not None]
    synchronized = {id(op) for _, op in waits}
    ops = Counter(outermost(raw, call) for call, _ in waits)
    for one in raw.work:
        call = raw.call_of[one.correlation]
        if "Pageable" in one.name and call.end >= one.end and raw.ops_around(one):
            waits.append((call, raw.op(one)))
            if id(raw.op(one)) not in synchronized:
                ops[outermost(raw, call)] += 1
    copying = {id(op) for call, op in waits if outermost(raw, call) in finding.COPYING}
    copied = [one for one in raw.work if "Memcpy" in one.name and id(raw.op(one)) in copying]
    directions = Counter(re.findall("[HD]to[HD]", " ".join(one.name for one in copied)))
    return {
        "directions": dict(directions),
        "time_us": sum(call.us for call, _ in waits),
        "share": raw.during([call for call, _ in waits]),
        "ops": dict(ops),
        "syncs": ops.total(),
    }


def waits_for_little(raw, _):
    meant = [one for one in raw.blocking if one.us > 50 and raw.worked(*one.span) < 0.1 * (one.end - one.start)]
    idle = [end - start - raw.worked(start, end) for start, end in union(raw.inside(meant))]
    return {
        "time_us": sum(one.end - one.start - raw.worked(*one.span) for one in meant) / 1000,
        "share": sum(idle) / 1000 / raw.window_us,
        "calls": dict(Counter(one.name for one in meant)),
    }


def children(raw, finding):
    ops = [one for one in raw.events if one.kind in OPERATORS and not one.name.startswith("ProfilerStep#")]
    spent = Counter()
    for one in ops:
        if not raw.holders[id(one)] and raw.is_of_a_step(one):
            spent[one.name] += one.end - one.start
    (name, most), *_ = spent.most_common(1)
    parents = [one for one in ops if one.name == name and not raw.holders[id(one)] and raw.is_of_a_step(one)]
    within = Counter()
    known = set(map(id, parents))
    for one in ops:
        if raw.holders[id(one)] and id(raw.holders[id(one)][-1]) in known and one.name != name:
            within[one.name] += one.end - one.start
    (child, longest), *_ = within.most_common(1)
    return {
        "ops": [name, child],
        "time_us": most / 1000,
        "share": raw.during(parents),
        "self_us": (most - within.total()) / 1000,
        "inside_share": within.total() / most,
        "child_us": longest / 1000,
    }


def bias_copies(raw, _):
    """Look at what each product that adds launches before the product itself."""
    by_op = defaultdict(list)
    for one in raw.work:
        for op in raw.ops_around(one)[-2:]:
            if op.name in ("aten::addmm", "aten::addmm_", "aten::baddbmm", "aten::_addmm_activation"):
                by_op[id(op)].append(one)
    meant = []
    for ones in by_op.values():
        ones.sort(key=lambda one: raw.call_of[one.correlation].start)
        at = next((place for place, one in enumerate(ones) if decode(one.name).family == "gemm"), 0)
        meant += [one for one in ones[:at] if "copy" in one.name.lower() or "DtoD" in one.name]
    spent = sum(one.us for one in meant)
    return {"copies": len(meant), "time_us": spent, "share": raw.share(meant)}


def small_calls(raw, _):
    launches = [one for one in raw.calls if re.search("Launch.*Kernel|GraphLaunch", one.name)]
    launch_us = sorted(one.us for one in launches)[len(launches) // 2]
    by_op = defaultdict(list)
    for one in raw.kernels:
        if raw.op(one) is not None and decode(one.name).family not in ("gemm", "conv", "attention", "communication"):
            by_op[raw.op(one).name].append(one)
    steps = max(len(raw.steps), 1)
    mean = {op: sum(one.us for one in ones) / len(ones) for op, ones in by_op.items()}
    many = {op for op, ones in by_op.items() if len(ones) >= max(100 * steps, 0.1 * len(raw.work)) and mean[op] <= 10}
    calls = {
        id(raw.call_of[one.correlation]): raw.call_of[one.correlation]
        for one in raw.kernels
        if raw.op(one) is not None and raw.op(one).name in many
    }
    return {
        "ops": {op: len(by_op[op]) // steps for op in many},
        "mean_us": {op: mean[op] for op in many},
        "launch_us": launch_us,
        "time_us": sum(len(by_op[op]) for op in many) * launch_us,
        "share": raw.during(calls.values()),
    }


def varying(raw, _):
    """Compare the runs of a kernel on the same operands within one step."""
    alike = defaultdict(list)
    for one in raw.kernels:
        op, own_time = raw.op(one), decode(one.name).family in ("index", "sort", "communication", "other", "rng", None)
        if raw.dims(one) and not own_time:
            given = repr([op.args.get(name) for name in ("Input Dims", "Input type", "Input Strides")])
            alike[one.name, op.name, given, one.args.get("blocks per SM"), raw.step_of(one)].append(one)
    slow = []
    for ones in alike.values():
        usual = sorted(one.us for one in ones)[len(ones) // 2]
        slow += [(one, usual) for one in ones if len(ones) >= 5 and one.us > 1.5 * usual and one.us >= 20]
    worst, usual = max(slow, key=lambda pair: pair[0].us - pair[1])
    return {
        "count": len(slow),
        "time_us": sum(one.us - usual for one, usual in slow),
        "took_us": worst.us,
        "usual_us": usual,
    }


def misaligned(raw, _):
    """Look at how far the rows of a product's matrices are from one another, in elements of 2 bytes."""
    products = [one for one in raw.kernels if decode(one.name).family == "gemm"]
    meant, sizes = [], []
    for one in products:
        op = raw.op(one)
        if op is None or op.name not in ("aten::addmm", "aten::mm", "aten::bmm"):
            continue
        first = 1 if op.name == "aten::addmm" else 0
        strides = op.args["Input Strides"][first : first + 2]
        columns = raw.dims(one)[first + 1][-1]
        if any(apart % 8 for apart in (columns, *map(max, strides))):
            meant.append(one)
            sizes.append(f"N={columns}")
    spent = sum(one.us for one in meant)
    return {
        "count": len(meant),
        "time_us": spent,
        "share": raw.share(meant),
        "product_share": spent / sum(one.us for one in products),
        "sizes": sizes,
    }


def constants(raw, _):
    made = defaultdict(list)
    for one in raw.events:
        outer = raw.holders.get(id(one), ())
        if one.name in CONSTANTS and raw.is_of_a_step(one) and not (outer and outer[-1].name in CONSTANTS):
            made[one.name, repr(one.args.get("Concrete Inputs"))].append(one)
    often = [ones for ones in made.values() if len(ones) >= 20]
    return {
        "count": sum(map(len, often)),
        "different": len(often),
        "calls_per_step": sorted(map(len, often), reverse=True),
        "time_us": sum(one.us for ones in often for one in ones[1:]),
    }


def graph_inputs(raw, _):
    """Look for copies in the operator that launches a graph behind them."""
    launches = {}
    for one in raw.calls:
        if "GraphLaunch" in one.name and raw.holders[id(one)] and raw.is_of_a_step(one):
            op = raw.holders[id(one)][-1]
            launches[id(op)] = max(launches.get(id(op), 0), one.start)
    meant = []
    for one in raw.work:
        around, call = raw.ops_around(one), raw.call_of[one.correlation]
        is_copy = len(around) > 1 and around[-1].name in ("aten::copy_", "aten::_foreach_copy_")
        if is_copy and "GraphLaunch" not in call.name and call.start < launches.get(id(around[-2]), 0):
            meant.append(one)
    return {
        "count": len(meant),
        "time_us": sum(one.us for one in meant),
        "share": raw.share(meant),
        "bytes": sum(one.args.get("bytes", 0) for one in meant),
    }


def cold(raw, _):
    """Look for what is done once: memory allocated, code loaded, graphs captured and made."""
    found = defaultdict(list)
    for one in raw.events:
        if (one.kind in CALLS and ONCE.match(one.name)) or (one.kind == "overhead" and one.name in LOADING):
            found[one.name].append(one.span)
    started = {id(raw.call_of[one.correlation]): one.start for one in raw.gpu if one.correlation in raw.call_of}
    for one in raw.calls:
        is_idle = 10 * raw.worked(*one.span) < one.end - one.start
        if (
            "LaunchKernel" in one.name
            and one.us >= 1000
            and is_idle
            and started.get(id(one), 2**62) - one.end < 1_000_000
        ):
            found[f"{one.name} that loads code"].append(one.span)
    begun = {}
    for one in sorted(raw.calls, key=lambda one: one.start):
        if "StreamBeginCapture" in one.name:
            begun.setdefault(one.thread, one.start)
        elif "StreamEndCapture" in one.name:
            found["graph capture"].append((begun.pop(one.thread), one.end))
    start, end = raw.window
    inside = {
        name: union((since, min(until, end)) for since, until in spans if start <= since < end)
        for name, spans in found.items()
    }
    spent = length([one for spans in inside.values() for one in spans]) / 1000
    return {
        "setup": {name: len(spans) for name, spans in inside.items() if spans},
        "setup_us": spent,
        "time_us": spent,
        "share": spent / raw.window_us,
    }


def roofline(raw, finding):
    """Compute what attention on these operands takes at the peaks of the GPU; a causal one computes half of it."""
    operations_per_s, bytes_per_s = PEAKS[raw.header["deviceProperties"][0]["name"]]
    meant = [one for one in raw.kernels if raw.op(one) is not None and raw.op(one).name == finding.op]
    ((batch, length_, heads, size),) = {tuple(raw.dims(one)[0]) for one in meant}
    causal = {raw.op(one).args["Concrete Inputs"][8] for one in meant} == {"True"}
    operations = 4 * batch * heads * length_**2 * size / (2 if causal else 1)
    moved = 4 * batch * heads * length_ * size * 2
    return {
        **of_kernels(raw, meant),
        "mean_us": sum(one.us for one in meant) / len(meant),
        "flops": operations,
        "bytes": moved,
        "bound_us": max(operations / operations_per_s, moved / bytes_per_s) * 1e6,
    }


def fusible(one):
    decoded = decode(one.name)
    return decoded.family == "pointwise" and decoded.library == "aten" and "multi_tensor" not in one.name


def elements(raw, one):
    """Return how many elements the largest operand has of the operator that launched it."""
    return max((prod(one) for one in raw.dims(one) if one or one == []), default=0) if raw.dims(one) else 0


def pointwise_chains(raw, _):
    chains = []
    for ones in raw.launched_in_turn():
        for key, run in groupby(ones, key=lambda one: fusible(one) and (elements(raw, one), one.stream, one.device)):
            alike = list(run)
            if key and key[0] and len(alike) >= 3:
                chains.append(alike)
    meant = [one for chain in chains for one in chain]
    return {
        "count": len(meant),
        "chains": len(chains),
        "time_us": sum(one.us for one in meant),
        "saved_us": sum(sum(one.us for one in chain) - max(one.us for one in chain) for chain in chains),
        "share": raw.share(meant),
    }


def attention(raw, _):
    """Look for a batched product, a softmax and a batched product that takes a matrix of the size the first made."""

    def sizes(one):
        op = raw.op(one)
        is_product = decode(one.name).family == "gemm" and op is not None and op.name in ("aten::bmm", "aten::baddbmm")
        if not is_product:
            return None
        first = 1 if op.name == "aten::baddbmm" else 0
        return [tuple(one) for one in raw.dims(one)[first : first + 2]]

    found = []
    for ones in raw.launched_in_turn():
        kernels, reached = [one for one in ones if one.kind == "kernel"], 0
        for place, one in enumerate(kernels):
            if not re.search("(?<!log)(?<!log_)softmax", one.name.lower()):
                continue
            before = [at for at in range(max(reached, place - 8), place) if sizes(kernels[at]) is not None]
            after = [at for at in range(place + 1, min(len(kernels), place + 8)) if sizes(kernels[at]) is not None]
            if not before or not after:
                continue
            made, taken = sizes(kernels[before[-1]]), sizes(kernels[after[0]])
            if not made or not taken or (*made[0][:2], made[1][2]) in taken:
                found.append(kernels[before[-1] : after[0] + 1])
                reached = after[0] + 1
    meant = [one for ones in found for one in ones]
    return {
        "count": len(found),
        "time_us": sum(one.us for one in meant),
        "share": raw.share(meant),
        "between_us": sum(one.us for ones in found for one in ones[1:-1]),
    }


WITNESSES = {
    "in-flight-kernels": in_flight,
    "lost-kernels": lost,
    "no-gpu-work": empty_steps,
    "profiler-gap": profilers_gap,
    "compute-bound": computing,
    "launch-gaps": gaps_of_launches,
    "overhead-bound": late_launches,
    "queued-work-waits": waiting,
    "exposed-communication": exposed,
    "hotspot": hotspot,
    "small-grid": small_grids,
    "copy-kernels": moving,
    "layout-conversion": layouts,
    "launch-delay": first_launch,
    "single-tensor-optimizer": optimizer,
    "below-roofline": roofline,
    "cold-start": cold,
    "costly-children": children,
    "cudagraph-input-copy": graph_inputs,
    "fp32-gemm": fp32,
    "hidden-copy": bias_copies,
    "implicit-sync": hidden_waits,
    "kernel-time-varies": varying,
    "many-small-calls": small_calls,
    "misaligned-gemm": misaligned,
    "repeated-constant": constants,
    "sync-over-little-work": waits_for_little,
    "tf32-gemm": tf32,
    "unasked-fp64": fp64,
    "unfused-attention": attention,
    "unfused-pointwise": pointwise_chains,
}


def test_each_finding_of_the_recordings_is_counted_again():
    assert {code for found in FINDINGS.values() for code in found} == set(WITNESSES)


def hides_communication(raw, remedy, _):
    names = {one.name for one in raw.events}
    assert ("DDP" in remedy) == any("DistributedDataParallel.forward" in one or ".ddp." in one for one in names)
    assert ("FSDP" in remedy) == any(one.startswith(("FSDP::", "FullyShardedDataParallel.")) for one in names)


def names_what_may_be_waited_for(raw, remedy, finding):
    streams = [len({one.stream for one in raw.on(device, raw.gpu)}) for device in raw.devices]
    assert ("another stream" in remedy) == (max(streams) > 1)
    assert ("a rank" in remedy) == any(map(communicates, raw.kernels))
    assert ("CUDA graph" in remedy) == (finding.gaps_in_graphs > 0)


def turns_tf32_on(raw, remedy, _):
    """Look whether the GPU has it, and whether products compute in it already; a convolution has its own setting."""
    assert ("fp16" in remedy) == any("volta" in one.name for one in raw.kernels)
    if "TF32" in remedy:
        assert not any("volta" in one.name or one.name.startswith("Cijk_") for one in raw.kernels)
    if "float32_matmul_precision" in remedy:
        in_tf32 = [one for one in raw.kernels if (decode(one.name).family, decode(one.name).dtype) == ("gemm", "tf32")]
        assert all("conv" in one.name for one in map(raw.op, in_tf32))


def leaves_tf32(raw, *_):
    assert all(set(raw.types(one)[:2]) <= {"float"} for one in of_type(raw, "tf32", set()))


def waits_no_more(raw, remedy, _):
    waiting = {outermost(raw, call) for call in raw.blocking} - {None}
    indexing = ("aten::index", "aten::_index", "aten::nonzero", "aten::masked_select")
    assert ("torch.where" in remedy) == any(one.startswith(indexing) for one in waiting)
    copying = {one for one in waiting if one in ("aten::to", "aten::copy_")}
    assert ("pinned memory" in remedy) == bool(copying)
    assert "into pinned memory" not in remedy or any("DtoH" in one.name for one in raw.work)
    assert "pinned memory" not in remedy or any(re.search("Memcpy|CopyHostToDevice", one.name) for one in raw.work)


def loads_beside(raw, remedy, _):
    loading = [one for one in raw.events if one.name.startswith("enumerate(Data") and raw.is_of_a_step(one)]
    assert ("num_workers" in remedy) == (raw.during(loading) >= 0.05)
    assert "synchronization" not in remedy or any(raw.is_of_a_step(one) for one in raw.blocking)
    assert ("warm up" in remedy) <= any("BeginCapture" in one.name for one in raw.calls)
    assert ("the CUDA graphs" in remedy) == any("GraphLaunch" in one.name for one in raw.calls)


def warms_up(_, remedy, finding):
    assert ("warm steps" in remedy) == (finding.cpu_gpu_ratio > 100)


def takes_tensors_together(raw, *_):
    assert not any(one.name.startswith(("aten::_foreach_", "aten::_fused_")) for one in raw.events)


def names_the_fallback(raw, _, finding):
    in_math = any("_scaled_dot_product_attention_math" in one.name for one in raw.events)
    assert ("no fused kernel takes" in finding.message) == in_math


def feeds_it_first(raw, remedy, _):
    assert ("idles" in remedy) == (raw.share(raw.gpu) < 0.5)


ADVICE = {
    "exposed-communication": hides_communication,
    "fp32-gemm": turns_tf32_on,
    "hotspot": feeds_it_first,
    "implicit-sync": waits_no_more,
    "launch-gaps": loads_beside,
    "overhead-bound": warms_up,
    "queued-work-waits": names_what_may_be_waited_for,
    "single-tensor-optimizer": takes_tensors_together,
    "tf32-gemm": leaves_tf32,
    "unfused-attention": names_the_fallback,
}
"""By code, what looks up whether that is there of which the remedy speaks; the other remedies speak of the finding itself."""


@pytest.mark.parametrize("recording", FINDINGS)
def test_findings_are_what_the_events_say(recording, shared_trace):
    path = shared_trace(recording)
    raw = Raw(path)
    profile = load(path)
    for finding in find(profile):
        if finding.code in ADVICE:
            ADVICE[finding.code](raw, finding.remedy, finding)
        if finding.code == "overhead-bound":
            assert finding.cpu_gpu_ratio == profile.median.cpu_gpu_ratio
        for name, fact in WITNESSES[finding.code](raw, finding).items():
            expected = fact if isinstance(fact, list) else pytest.approx(fact, rel=1e-6)
            assert finding.evidence[name] == expected, (finding.code, name)
