"""The events of a recording's file as they stand there, and what is plain to see in them, for a second computation."""

from __future__ import annotations

import gzip
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from functools import cache, cached_property

import msgspec

from pytest_torchprof.kernels.names import decode as decode_name

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
ALLOCATING = ("aten::empty", "aten::empty_strided", "aten::empty_like", "aten::empty_permuted")
VIEWS = {
    f"aten::{name}"
    for name in ["alias", "as_strided", "detach", "expand", "permute", "reshape", "select", "slice", "split"]
} | {f"aten::{name}" for name in ["split_with_sizes", "squeeze", "t", "transpose", "unsqueeze", "view"]}
CONSTANTS = {"aten::arange", "aten::linspace", "aten::eye", "aten::tril_indices", "aten::triu_indices"}
PEAKS = {"NVIDIA H100 80GB HBM3": (989e12, 3.35e12)}
"""What a GPU does in a second at most: operations in 16-bit types, and bytes from its memory."""


decode = cache(decode_name)


def union(spans):
    """Return the spans without overlaps, in order."""
    found, since, reached = [], None, None
    for start, end in sorted(spans):
        if since is None:
            since, reached = start, end
        elif start > reached:
            found.append((since, reached))
            since, reached = start, end
        elif end > reached:
            reached = end
    return found if since is None else [*found, (since, reached)]


def length(spans):
    """Return how long the union of spans is."""
    return sum(end - start for start, end in union(spans))


def both(spans, others):
    """Return how long spans of both kinds run at once."""
    return length(spans) + length(others) - length([*spans, *others])


class Event:
    __slots__ = ("args", "correlation", "device", "end", "kind", "name", "span", "start", "stream", "thread", "us")

    def __init__(self, event):
        self.name = event["name"]
        self.kind = event.get("cat", "").lower()
        self.start = round(event["ts"] * 1000)
        self.end = self.start + round(event.get("dur", 0) * 1000)
        self.us = (self.end - self.start) / 1000
        self.span = self.start, self.end
        self.thread = (event["pid"], event["tid"])
        self.args = event.get("args", {})
        self.correlation = self.args.get("correlation", self.args.get("correlation id"))
        self.device = self.args.get("device", 0)
        self.stream = self.args.get("stream")


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

    def inside_spans(self, spans):
        """Return the parts of spans that lie inside the window."""
        start, end = self.window
        return [(max(since, start), min(until, end)) for since, until in spans if until > start]

    def is_of_a_step(self, one):
        """Whether something of the CPU's side began in a step."""
        return not self.steps or any(step.start <= one.start < step.end for step in self.steps)

    def step_of(self, one):
        start = self.call_of[one.correlation].start
        return next((place for place, step in enumerate(self.steps) if step.start <= start < step.end), 0)

    @cached_property
    def set_up(self):
        """What is done once, and the first calls among it."""
        return _set_up(self)

    @cached_property
    def capturing(self):
        """The outermost operators in which a CUDA graph was captured, in order."""
        return _capturing(self)

    @cached_property
    def captured_again(self):
        """Those that hold the same operators as another one, with a graph launched in between."""
        return _captured_again(self)

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

    @cached_property
    def long(self):
        """Where a thread was in one call or operator for 1 ms, with no other one and no Python inside: which, from, to."""
        inside, found = defaultdict(list), []
        for one in self.events:
            if self.holders.get(id(one)):
                inside[id(self.holders[id(one)][-1])].append(one.span)
        for one in self.events:
            if one.kind in OPERATORS | CALLS and one.us >= 1000:
                reached = one.start
                inside[id(one)] += self.python_inside(one) if one.kind in OPERATORS else []
                for start, end in [*union(inside[id(one)]), (one.end, one.end)]:
                    if start - reached >= 1_000_000:
                        found.append((one, reached, start))
                    reached = max(reached, end)
        return found

    @cached_property
    def frames(self):
        """When the Python functions of each thread went on, in the order of their begins."""
        found = defaultdict(list)
        for one in self.events:
            if one.kind == "python_function":
                found[one.thread].append(one.span)
        return {thread: sorted(spans) for thread, spans in found.items()}

    def python_inside(self, one):
        frames = self.frames.get(one.thread, [])
        return frames[bisect_left(frames, (one.start,)) : bisect_left(frames, (one.end,))]

    def idles(self, start, end):
        return 10 * self.worked(start, end) < end - start

    @cached_property
    def firsts(self):
        """When the first event began of each name among the calls, the GPU's operations and the operators."""
        found = {}
        for one in self.events:
            for what, kinds in enumerate((CALLS, GPU, OPERATORS)):
                if one.kind in kinds:
                    found[what, one.name] = min(found.get((what, one.name), one.start), one.start)
        return found

    def is_first(self, one):
        """Whether nothing of its name and kind ran before."""
        return one.start == self.firsts[0 if one.kind in CALLS else 1 if one.kind in GPU else 2, one.name]

    @cached_property
    def launched(self):
        """What each operator launched itself, by its id."""
        found = defaultdict(list)
        for one in self.gpu:
            if one.correlation in self.call_of and self.op(one) is not None:
                found[id(self.op(one))].append(one)
        return found

    @cached_property
    def launching(self):
        """The operators that launched something themselves."""
        return {id(self.op(one)) for one in self.gpu if one.correlation in self.call_of and self.op(one) is not None}

    def started_soon(self, call):
        """Return the operation that a call launched, if that began within a millisecond."""
        launched = [one for one in self.gpu if one.correlation == call.correlation]
        return next((one for one in launched if one.start - call.end < 1_000_000), None)

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

    @cached_property
    def gaps(self):
        """What idled before an operation of a step, without what the profiler took: from, to, the operation."""
        return list(self._gaps())

    def _gaps(self):
        begin = self.window[0]
        of_step = set(map(id, self.work))
        for device in self.devices:
            reached = None
            for one in sorted(self.on(device, self.gpu), key=lambda one: one.start):
                if reached is not None and one.start > max(reached, begin) and id(one) in of_step:
                    yield from ((start, end, one) for start, end in self.without_own(max(reached, begin), one.start))
                reached = max(reached or one.end, one.end)

    @cached_property
    def gaps_from_start(self):
        """Those, and before them what idled before the first operation of each device."""
        return [*self._gaps_before(), *self.gaps]

    def _gaps_before(self):
        of_step = set(map(id, self.work))
        for device in self.devices:
            first = min(self.on(device, self.gpu), key=lambda one: one.start)
            if id(first) in of_step and first.start > self.window[0]:
                yield from ((start, end, first) for start, end in self.without_own(self.window[0], first.start))

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

    @cached_property
    def late(self):
        """The gaps whose operation was launched only when the device had run dry, and how much the host took."""
        calls = [(start, end, one, self.call_of[one.correlation]) for start, end, one in self.gaps_from_start]
        return [(start, min(end, call.end), one) for start, end, one, call in calls if call.start > start]

    @cached_property
    def silent(self):
        """When the file has no event at all but the steps and what mirrors others."""
        kinds = OPERATORS | CALLS | GPU | {"user_annotation", "python_function", "overhead"}
        events = [one for one in self.events if one.kind in kinds and not one.name.startswith("ProfilerStep#")]
        reached, end = self.window
        gaps = []
        for start, until in [*union(one.span for one in events), (end, end)]:
            if min(start, end) > reached:
                gaps.append((reached, min(start, end)))
            reached = max(reached, until)
        return gaps

    @cached_property
    def captures(self):
        """When each thread captured a CUDA graph."""
        begun, found = {}, []
        for one in sorted(self.calls, key=lambda one: one.start):
            if "StreamBeginCapture" in one.name:
                begun.setdefault(one.thread, one.start)
            elif "StreamEndCapture" in one.name:
                found.append((begun.pop(one.thread), one.end))
        return found


def communicates(one):
    return one.kind == "kernel" and decode(one.name).family == "communication"


def waiting_copies(raw):
    """Return the calls of copies from or to memory that is not pinned which returned only when these were done."""
    return [
        raw.call_of[one.correlation]
        for one in raw.work
        if "Pageable" in one.name and raw.call_of[one.correlation].end >= one.end
    ]


ASKED = {
    "reduce_scatter": "reduce_scatter",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
}


def carried_out(raw, one):
    """Return what the operator around the launch of a kernel asked for, or else what the kernel's name says."""
    around = raw.holders[id(raw.call_of[one.correlation])] if one.correlation in raw.call_of else ()
    asked = [
        match[1]
        for each in around
        if (match := re.match("c10d::_?(reduce_scatter|allreduce|allgather|alltoall)", each.name))
    ]
    if asked:
        return ASKED[asked[0]]
    word = re.search("SendRecv|AllReduce|AllGather|ReduceScatter|Broadcast", one.name)[0]
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", word).lower()


def set_up(raw):
    """Look for what is done once: memory allocated, code loaded, graphs captured and made; all first calls that last."""
    return raw.set_up[0]


def first_calls(raw):
    """Return the first calls that last by what they are, each as its id."""
    return raw.set_up[1]


def _set_up(raw):
    found, firsts = defaultdict(list), defaultdict(set)
    for one in raw.events:
        if (one.kind in CALLS and ONCE.match(one.name)) or (one.kind == "overhead" and one.name in LOADING):
            found[one.name].append(one.span)
    again = [one.span for one in captured_again(raw)]
    found["graph capture"] = raw.captures
    found["call that captures a graph"] = [one.span for one in capturing(raw) if one.span not in again]
    told = [*raw.own, *(one.span for one in capturing(raw))]
    for one, start, end in raw.long:
        if raw.idles(start, end) and loads_code(raw, one):
            found[f"{one.name} that loads code"].append(one.span)
        elif raw.idles(start, end) and is_first_call(raw, one) and not both([(start, end)], told):
            found[f"first {one.name}"].append((start, end))
            if raw.window[0] <= start < raw.window[1]:
                firsts[f"first {one.name}"].add(id(one))
    start, end = raw.window
    inside = {
        name: union(
            (since, min(until, end))
            for since, until in spans
            if start <= since < end and not any(first <= since < last for first, last in again)
        )
        for name, spans in found.items()
    }
    return {name: spans for name, spans in inside.items() if spans}, firsts


def capturing(raw):
    """Return the outermost operators in which a CUDA graph was captured, in order."""
    return raw.capturing


def _capturing(raw):
    spans = raw.captures
    if not spans:
        return []
    outermost = (one for one in raw.events if one.kind in OPERATORS and not raw.holders[id(one)])
    holding = (one for one in outermost if any(one.start <= start and end <= one.end for start, end in spans))
    return sorted((one for one in holding if not one.name.startswith("ProfilerStep")), key=lambda one: one.start)


def captured_again(raw):
    """Return those that hold the same operators as another one, with a graph launched in between.

    The first is one of them if it took no more than half as long again as the quickest of the others.
    """
    return raw.captured_again


def _captured_again(raw):
    launched = [one.start for one in raw.calls if "GraphLaunch" in one.name]
    first, again = {}, []
    for one in capturing(raw):
        held = [
            each for each in raw.events if each.kind in OPERATORS and one.start <= each.start and each.end <= one.end
        ]
        named = tuple(each.name for each in sorted(held, key=lambda each: (each.start, -each.end)))
        since = first.setdefault(named, one)
        if any(since.start < start < one.start for start in launched):
            again.append((since, one))
    colder = {id(since) for since, _ in again if since.us > 1.5 * min(one.us for other, one in again if other is since)}
    alike = {id(one): one for pair in again for one in pair if id(one) not in colder}
    return list(alike.values())


def loads_code(raw, one):
    kernel = raw.started_soon(one) if "LaunchKernel" in one.name and one.kind in CALLS else None
    return kernel is not None and raw.is_first(kernel)


def is_first_call(raw, one):
    """Whether a call or an operator does something for the first time: an operator, each kernel that is new."""
    if one.kind in CALLS:
        return is_of_the_driver(one) and raw.is_first(one) and not ONCE.match(one.name)
    is_meant = one.name in ALLOCATING or id(one) in raw.launching
    return is_meant and (raw.is_first(one) or any(map(raw.is_first, raw.launched.get(id(one), ()))))


def is_of_the_driver(call):
    """Whether a call neither launches, nor waits, nor copies."""
    return not re.search("Launch|Synchronize|Memcpy|Free|Capture", call.name)


def standing_still(raw):
    """Look for calls that take fifty times as long as their like, on whatever they happen to be doing.

    Each has its length, its name, the usual length, and when it began.
    """
    once = [span for spans in set_up(raw).values() for span in spans]
    slow = []
    for one, start, end in raw.long:
        if "LaunchKernel" in one.name:
            is_meant = raw.idles(start, end) and raw.started_soon(one) is not None
        elif one.kind in CALLS:
            is_meant = is_of_the_driver(one) and "Memset" not in one.name
        else:
            # An identifier is the name of an autograd function of somebody's own.
            is_own = one.name.isidentifier()
            is_meant = one.name in ALLOCATING[:3] or one.name in VIEWS or is_own or id(one) in raw.launching
        if not is_meant or not raw.is_of_a_step(one) or both([(start, end)], once):
            continue
        alike = CALLS if one.kind in CALLS else OPERATORS
        lengths = sorted(each.us for each in raw.events if each.name == one.name and each.kind in alike)
        usual = lengths[len(lengths) // 2]
        if end - start >= 50_000 * usual:
            slow.append((end - start, one.name, usual, start))
    return slow
