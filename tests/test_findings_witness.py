"""What findings say of the shared recordings, counted a second time in the plainest way from the files' events.

The preconditions of what they advise are looked up there too.
"""

from __future__ import annotations

import gzip
from bisect import bisect_right
from collections import defaultdict
from functools import cache, cached_property
from itertools import pairwise

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
        calls = [one for one in self.events if one.kind in CALLS]
        self.call_of = {one.correlation: one for one in calls if one.correlation}
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
    return {
        "time_us": lost_us,
        "share": lost_us / raw.window_us,
        "gaps": len(late),
        "longest_us": max(end - start for start, end in late) / 1000,
    }


def late_launches(raw, _):
    late = {id(one) for _, _, one in raw.late()}
    return {"late_launches": len(late) / len(raw.work)}


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


def launched_by(raw):
    """Return for each kernel of the steps the innermost operator around its launch."""
    threads = defaultdict(list)
    for one in raw.events:
        if one.kind in OPERATORS:
            threads[one.thread].append((one.start, -one.end, one))
    calls = {id(call): call for call in (raw.call_of[one.correlation] for one in raw.kernels)}
    for call in calls.values():
        threads[call.thread].append((call.start, 0, call))
    around = {}
    for entries in threads.values():
        open_ops = []
        for _, is_op, one in sorted(entries, key=lambda entry: entry[:2]):
            while open_ops and open_ops[-1].end <= one.start:
                open_ops.pop()
            if is_op:
                open_ops.append(one)
            else:
                around[id(one)] = open_ops[-1].name if open_ops else None
    return {id(one): around[id(raw.call_of[one.correlation])] for one in raw.kernels}


def hotspot(raw, finding):
    if finding.kernels:
        meant = [one for one in raw.kernels if one.name == finding.kernels[0]]
    else:
        op_of = launched_by(raw)
        meant = [one for one in raw.kernels if op_of[id(one)] == finding.ops[0]]
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
}

# What these say rests on what the package makes of operands, operators and stacks; it has its own tests on built traces.
WITHOUT = {
    "below-roofline",
    "cold-start",
    "costly-children",
    "cudagraph-input-copy",
    "fp32-gemm",
    "hidden-copy",
    "implicit-sync",
    "kernel-time-varies",
    "many-small-calls",
    "misaligned-gemm",
    "repeated-constant",
    "sync-over-little-work",
    "tf32-gemm",
    "unasked-fp64",
    "unfused-attention",
    "unfused-pointwise",
}


def test_each_finding_of_the_recordings_is_counted_again_or_is_named():
    assert {code for found in FINDINGS.values() for code in found} == set(WITNESSES) | WITHOUT
    assert not set(WITNESSES) & WITHOUT


def advises_what_the_recording_has(raw, finding):
    """Look up whether what a remedy speaks of is there."""
    names = {one.name for one in raw.events}
    if finding.code == "exposed-communication":
        assert ("DDP" in finding.remedy) == any(
            "DistributedDataParallel.forward" in one or ".ddp." in one for one in names
        )
        assert ("FSDP" in finding.remedy) == any(
            one.startswith(("FSDP::", "FullyShardedDataParallel.")) for one in names
        )
    if finding.code == "queued-work-waits":
        streams = [len({one.stream for one in raw.on(device, raw.gpu)}) for device in raw.devices]
        assert ("another stream" in finding.remedy) == (max(streams) > 1)
        assert ("a rank" in finding.remedy) == any(map(communicates, raw.kernels))
        assert ("CUDA graph" in finding.remedy) == (finding.gaps_in_graphs > 0)
    if finding.code == "fp32-gemm" and "float32_matmul_precision" in finding.remedy:
        op_of = launched_by(raw)
        in_tf32 = [one for one in raw.kernels if (decode(one.name).family, decode(one.name).dtype) == ("gemm", "tf32")]
        assert all("conv" in (op_of[id(one)] or "") for one in in_tf32)


@pytest.mark.parametrize("recording", FINDINGS)
def test_findings_are_what_the_events_say(recording, shared_trace):
    path = shared_trace(recording)
    raw = Raw(path)
    for finding in find(load(path)):
        advises_what_the_recording_has(raw, finding)
        if finding.code in WITNESSES:
            again = WITNESSES[finding.code](raw, finding)
            steps = again.pop("steps", finding.evidence.get("steps"))
            assert finding.evidence.get("steps") == steps
            assert {name: finding.evidence[name] for name in again} == pytest.approx(again, rel=1e-6), finding.code
