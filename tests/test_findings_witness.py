"""What findings say of the shared recordings, counted a second time in the plainest way from the files' events.

The preconditions of what they advise are looked up there too.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from itertools import groupby, pairwise
from math import prod

import pytest
from builder import TraceBuilder
from facts import LEFT_OUT
from findings_on_recordings import FINDINGS, is_in_shorter_ones
from headline_witness import says_what_the_headline_says
from raw_events import (
    BLOCKING,
    CALLS,
    CONSTANTS,
    OPERATORS,
    OWN,
    PEAKS,
    RANGES,
    VIEWS,
    Raw,
    both,
    captured_again,
    capturing,
    carried_out,
    communicates,
    decode,
    first_calls,
    length,
    set_up,
    standing_still,
    union,
    waiting_copies,
)

from pytest_torchprof import load
from pytest_torchprof.findings import RULES, find
from pytest_torchprof.findings.headline import headline_of

pytestmark = pytest.mark.any_torch


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
    late = [(start, end) for start, end, _ in raw.late if end > start]
    lost_us = sum(end - start for start, end in late) / 1000 / len(raw.devices)
    waits = union((call.start, call.end) for call in [*raw.blocking, *waiting_copies(raw)])
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


def late_launches(raw, finding):
    late = [(start, end, one) for start, end, one in raw.late if end > start]
    waited = sum(end - start for start, end, _ in late) / 1000 / len(raw.devices)
    of_step = [[one for one in raw.work if raw.step_of(one) == step] for step in range(max(len(raw.steps), 1))]
    busy = [length(one.span for one in raw.on(device, ones)) for ones in of_step for device in raw.devices]
    launching_us = launching(raw) / 1000
    return {
        "late_launches": len({id(one) for _, _, one in raw.late}) / len(raw.work),
        "time_us": waited,
        "share": waited / raw.window_us,
        "busy_us": sum(busy) / 1000,
        "gaps": len(late),
        "launching_us": launching_us,
        "launch_ratio": launching_us / (sum(busy) / 1000),
        "longest_us": max(end - start for start, end, _ in late) / 1000,
    }


def launching(raw):
    """Return how long the CPU did in the steps what is recorded, and was neither a wait, nor loading, nor done once."""
    waiting_copies = [
        raw.call_of[one.correlation]
        for one in raw.work
        if "Pageable" in one.name and raw.call_of[one.correlation].end >= one.end
    ]
    loading = [one for one in raw.events if one.kind in RANGES and one.name.startswith("enumerate(Data")]
    other = [
        *(one.span for one in raw.calls if BLOCKING.fullmatch(one.name)),
        *(one.span for one in (*waiting_copies, *loading)),
        *(span for spans in set_up(raw).values() for span in spans),
        *raw.own,
        *raw.silent,
    ]
    # What the profiler waits for at its end is none of the program's time.
    cpu = [one for one in raw.events if one.kind in RANGES | CALLS]
    flush = max((one for one in cpu if "DeviceSynchronize" in one.name), key=lambda one: one.start, default=None)
    last = max(one.end for one in cpu if one is not flush)
    steps = [step.span for step in raw.steps] or [(raw.window[0], last)]
    return length(steps) - both(steps, other)


def waiting(raw, finding):
    lengths = [(end - max(start, raw.call_of[one.correlation].end), one) for start, end, one in raw.gaps_from_start]
    long = [lasted for lasted, _ in lengths if lasted >= 30_000]
    firsts = {}
    for one in sorted(raw.gpu, key=lambda one: one.start):
        firsts.setdefault((one.device, one.stream), id(one))
    before = [lasted for lasted, one in lengths if lasted >= 30_000 and id(one) in firsts.values()]
    _, longest = max(lengths, key=lambda row: row[0])
    return {
        "gaps": len(long),
        "longest_us": max(long) / 1000,
        "time_us": sum(long) / 1000 / len(raw.devices),
        "from_before_us": 0 if "torchprof" in raw.header else sum(before) / 1000 / len(raw.devices),
        "share": sum(long) / 1000 / len(raw.devices) / raw.window_us,
        "graph_starts_us": sum(lasted for lasted, one in lengths if lasted >= 30_000 and starts_a_graph(raw, one))
        / 1000
        / len(raw.devices),
        "in_graphs_us": sum(
            lasted for lasted, one in lengths if lasted >= 30_000 and "GraphLaunch" in raw.call_of[one.correlation].name
        )
        / 1000
        / len(raw.devices),
        "cpu_waited_us": waited_beside(raw, lengths),
        "after_other_gpu": any(
            longest.start - 5_000 < one.end <= longest.start for one in raw.gpu if one.device != longest.device
        ),
    }


def waited_beside(raw, lengths):
    """Return for how long the CPU waited while launched work did, in what the other findings call waits."""
    idle = [(one.start - lasted, one.start) for lasted, one in lengths if lasted >= 30_000]
    return both(idle, [call.span for call in [*raw.blocking, *waiting_copies(raw)]]) / 1000


def starts_a_graph(raw, one):
    """Whether it is the first operation of a CUDA graph that began."""
    if "GraphLaunch" not in raw.call_of[one.correlation].name:
        return False
    return one.start == min(each.start for each in raw.gpu if each.correlation == one.correlation)


def exposed(raw, _):
    lost = []
    for device in raw.devices:
        kernels = [one for one in raw.on(device, raw.gpu) if one.kind == "kernel"]
        talking = raw.inside([one for one in kernels if communicates(one)])
        lost.append(length(talking) - both(talking, raw.inside([one for one in kernels if not communicates(one)])))
    spent = Counter()
    for one in filter(communicates, raw.gpu):
        spent[carried_out(raw, one)] += one.us
    return {
        "time_us": max(lost) / 1000,
        "share": max(lost) / 1000 / raw.window_us,
        "collectives_us": dict(spent),
    }


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
    counted, counted_spans = set(), []
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
            lasting = [one for one in running if "spin_kernel" in one.name]
            meant = [one for one in running if id(one) in of_step and not communicates(one) and one not in lasting]
            counted |= set(map(id, meant))
            small += len(meant) * (end - start)
            counted_spans += [(start, end)] if meant else []
            unused += (1 - sum(blocks)) * (end - start) if meant else 0
    return {
        "count": len(counted),
        "time_us": small / 1000,
        "kernel_share": small / 1000 / raw.kernel_us,
        "unused_us": unused / 1000,
        "share": length(raw.inside_spans(counted_spans)) / 1000 / raw.window_us,
    }


def moving(raw, _):
    meant = [one for one in raw.kernels if decode(one.name).family == "copy" or "quantize" in decode(one.name).stem]
    spent = sum(one.us for one in meant)
    return {"count": len(meant), "time_us": spent, "kernel_share": spent / raw.kernel_us, "share": raw.share(meant)}


def layouts(raw, _):
    meant = [one for one in raw.kernels if "transpose" in one.name.lower() and "batched" in one.name]
    return of_kernels(raw, meant)


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
    ranges, inside = launched_in(raw, "Optimizer.step#")
    meant = [one for one in inside if decode(one.name).family == "pointwise" and "multi_tensor" not in one.name]
    return {
        "count": len(meant),
        "time_us": sum(one.us for one in meant),
        "steps_taken": len(ranges),
        "cpu_us": sum(one.us for one in ranges),
        "zeroing": len(launched_in(raw, "Optimizer.zero_grad#")[1]) // len(ranges),
    }


def launched_in(raw, prefix):
    """Return the ranges of that name, and the kernels that were launched in them."""
    ranges = [one for one in raw.events if one.name.startswith(prefix) and one.kind in RANGES]
    inside = []
    for one in raw.kernels:
        call = raw.call_of[one.correlation]
        if any(r.thread == call.thread and r.start <= call.start < r.end for r in ranges):
            inside.append(one)
    return ranges, inside


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


def cause_of(around, copied):
    """Look at what lies around a wait: what counts the elements of a mask, a copy, or neither."""
    indexes = any(name.startswith(("aten::index", "aten::_index_put")) for name in around)
    if any("nonzero" in name and name != "aten::is_nonzero" for name in around) or "aten::masked_select" in around:
        return "masks"
    if around[-1] in ("aten::copy_", "aten::to", "aten::_to_copy"):
        ways = {one[0] + one[-1] for one in copied}
        if ways == {"DH"}:
            return "to_cpu"
        return "copies" if ways != {"HD"} else "indices" if indexes else "to_gpu"
    return "masks" if indexes else "value"


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
    copied = defaultdict(set)
    for one in raw.work:
        if raw.op(one) is not None:
            copied[id(raw.op(one))] |= set(re.findall("[HD](?:ost|evice)?[tT]o[HD]", one.name))
    causes, idled, spent = Counter(), Counter(), Counter()
    for call, op in waits:
        cause = cause_of([one.name for one in raw.holders[id(call)]], copied[id(op)])
        causes[cause] += call.us
        idled[cause] += call.us - raw.worked(*call.span) / 1000
        spent[outermost(raw, call)] += call.us
    queued = [
        (max(start, raw.call_of[one.correlation].end), end)
        for start, end, one in raw.gaps_from_start
        if end - max(start, raw.call_of[one.correlation].end) >= 30_000
    ]
    waited = raw.inside([call for call, _ in waits])
    idle, free = (
        [
            length(waited) - both(waited, [*raw.inside(raw.on(device, raw.gpu)), *raw.inside_spans(others)])
            for device in raw.devices
        ]
        for others in ([], queued)
    )
    most = max(range(len(idle)), key=idle.__getitem__)
    return {
        "idle_us": idle[most] / 1000,
        "held_us": (idle[most] - free[most]) / 1000,
        "ops_us": dict(spent),
        "causes_us": dict(causes),
        "causes_idle_us": {cause: max(idled[cause], 0) for cause in causes},
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
    whole, longest = within.total(), max(within.values())
    path, call, last = innermost(raw, ops, name, most, parents)
    return {
        "ops": path[:2],
        "innermost": call or path[-1],
        "innermost_us": last / 1000,
        "time_us": most / 1000,
        "share": raw.during(parents),
        "self_us": (most - whole) / 1000,
        "inside_share": whole / most,
        "child_us": longest / 1000,
    }


def spent_inside(raw, events, holders):
    known = set(map(id, holders))
    inside = [one for one in events if raw.holders[id(one)] and id(raw.holders[id(one)][-1]) in known]
    spent = Counter()
    for one in inside:
        spent[one.name] += one.end - one.start
    return spent, inside


def innermost(raw, ops, name, most, holders):
    """Go into what takes the longest as long as it is half of the time, at last into a call."""
    path, last = [name], most
    spent, inside = spent_inside(raw, ops, holders)
    spent.pop(name, None)
    while spent and (len(path) == 1 or 2 * max(spent.values()) >= last):
        ((child, last),) = spent.most_common(1)
        path.append(child)
        holders = [one for one in inside if one.name == child]
        spent, inside = spent_inside(raw, ops, holders)
    called, _ = spent_inside(raw, raw.calls, holders)
    if called and 2 * max(called.values()) >= last:
        return path, *called.most_common(1)[0]
    return path, None, last


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


def recaptured(raw, _):
    again = captured_again(raw)
    spent = sum(one.us for one in again)
    return {
        "time_us": spent,
        "share": spent / raw.window_us,
        "count": len(again),
        "captures": len(capturing(raw)),
        "ops": list({one.name for one in again}),
        "begun_us": [(one.start - raw.window[0]) / 1000 for one in again],
    }


def cold(raw, _):
    inside, firsts = set_up(raw), first_calls(raw)
    spent = length([one for spans in inside.values() for one in spans]) / 1000
    return {
        "setup": {name: len(firsts.get(name) or spans) for name, spans in inside.items()},
        "setup_us": spent,
        "time_us": spent,
        "share": spent / raw.window_us,
    }


def held_up(raw, _):
    slow = standing_still(raw)
    spans = raw.inside_spans((start, start + lasted) for lasted, _, _, start in slow)
    longest, name, usual, _ = max(slow)
    return {
        "count": len(slow),
        "views": sum(name in VIEWS for _, name, _, _ in slow),
        "time_us": sum(lasted for lasted, *_ in slow) / 1000,
        "share": length(spans) / 1000 / raw.window_us,
        "longest_us": longest / 1000,
        "longest": name,
        "usual_us": usual,
    }


def silence(raw, _):
    gaps = sorted((end - start for start, end in raw.silent), reverse=True)
    few = next(count for count in range(1, len(gaps) + 1) if sum(gaps[:count]) >= 0.75 * sum(gaps))
    return {
        "few": few,
        "few_us": sum(gaps[:few]) / 1000,
        "few_least_us": gaps[few - 1] / 1000,
        "time_us": sum(gaps) / 1000,
        "share": sum(gaps) / 1000 / raw.window_us,
        "gaps": len(gaps),
        "longest_us": max(gaps) / 1000,
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
            after = [at for at in range(place + 1, min(len(kernels), place + 8)) if sizes(kernels[at]) is not None]
            taken = sizes(kernels[after[0]]) if after else None
            for at in range(place - 1, max(reached, place - 12) - 1, -1) if after else ():
                made = sizes(kernels[at])
                if made is not None and (not made or not taken or (*made[0][:2], made[1][2]) in taken):
                    found.append(kernels[at : after[0] + 1])
                    reached = after[0] + 1
                    break
    meant = [one for ones in found for one in ones]
    return {
        "count": len(found),
        "time_us": sum(one.us for one in meant),
        "share": raw.share(meant),
        "between_us": sum(one.us for ones in found for one in ones[1:-1] if sizes(one) is None),
    }


def norms(raw, _):
    """Look for the names of RMSNorm's operators, written as letters in the order of their launch."""
    letters = {"aten::copy_": "c", "aten::mean": "m", "aten::rsqrt": "r", "aten::add": "a", "aten::pow": "p"} | {
        "aten::mul": "x"
    }
    found = []
    for ones in raw.launched_in_turn():
        kernels = [one for one in ones if one.kind == "kernel"]
        word = "".join(letters.get(op.name, ".") if (op := raw.op(one)) is not None else "." for one in kernels)
        found += [kernels[match.start() : match.end()] for match in re.finditer("c?pmarx(?:cx|x)?", word)]
    meant = [one for ones in found for one in ones]
    return {**of_kernels(raw, meant), "norms": len(found)}


def rotary(raw, _):
    """Look for the names of the operators that turn queries and keys, in the order of their launch."""
    turning = ["aten::mul", "aten::neg", "aten::cat", "aten::mul", "aten::add"]
    found = []
    for ones in raw.launched_in_turn():
        kernels = [one for one in ones if one.kind == "kernel"]
        names = [None if (op := raw.op(one)) is None else op.name for one in kernels]
        starts = [at for at in range(len(names)) if names[at : at + 5] == turning]
        found += [kernels[at : at + 5] for at in starts]
    meant = [one for ones in found for one in ones]
    return {**of_kernels(raw, meant), "embeddings": len(found)}


def copies(raw, _):
    """Count the copies by where they go, and when no kernel ran beside them."""
    meant = [one for one in raw.work if "Memcpy" in one.name or re.match("Copy[A-Z]", one.name)]
    directions = Counter()
    for one in meant:
        ends = re.search("([HD])(?:ost|evice)?[tT]o([HD])", one.name)
        directions[f"{ends[1]}to{ends[2]}"] += one.us
    alone = []
    for device in raw.devices:
        kernels = [one for one in raw.on(device, raw.gpu) if one.kind == "kernel"]
        own = raw.inside(raw.on(device, meant))
        alone.append(length(own) - both(own, raw.inside(kernels)))
    longest = max(meant, key=lambda one: one.us)
    return {
        "count": len(meant),
        "time_us": sum(one.us for one in meant),
        "share": raw.share(meant),
        "bytes": sum(one.args.get("bytes", 0) for one in meant),
        "directions_us": dict(directions),
        "pageable_us": sum(one.us for one in meant if "Pageable" in one.name),
        "alone_us": max(alone) / 1000,
        "longest_us": longest.us,
        "longest": longest.name,
    }


WITNESSES = {
    "copies-take-long": copies,
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
    "cpu-held-up": held_up,
    "nothing-recorded": silence,
    "layout-conversion": layouts,
    "launch-delay": first_launch,
    "single-tensor-optimizer": optimizer,
    "below-roofline": roofline,
    "cold-start": cold,
    "graph-recaptured": recaptured,
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
    "unfused-norm": norms,
    "unfused-rotary": rotary,
    "unfused-pointwise": pointwise_chains,
}


def test_each_finding_of_the_recordings_is_counted_again():
    assert {code for found in FINDINGS.values() for code in found} | {"copies-take-long"} == set(WITNESSES)


def hides_communication(raw, remedy, _):
    names = {one.name for one in raw.events}
    spent = Counter()
    for one in filter(communicates, raw.kernels):
        spent[carried_out(raw, one)] += one.us
    (longest, _), *_ = spent.most_common(1)
    reduces, gathers = longest == "all_reduce", longest in ("all_gather", "reduce_scatter")
    in_ddp = any("DistributedDataParallel.forward" in one or ".ddp." in one for one in names)
    in_fsdp = any(one.startswith(("FSDP::", "FullyShardedDataParallel.")) for one in names)
    assert ("DDP" in remedy) == (in_ddp and reduces)
    assert ("FSDP" in remedy) == (in_fsdp and gathers)


def names_what_may_be_waited_for(raw, remedy, finding):
    told = waiting(raw, finding)
    if finding.severity == "warning":
        assert ("another GPU" in remedy) == told["after_other_gpu"]
        assert ("CUDA graph" in remedy) == (2 * told["graph_starts_us"] >= told["time_us"])
    by_stream = defaultdict(list)
    for one in raw.gpu:
        by_stream[one.device, one.stream].append(one)
    firsts = [min(ones, key=lambda one: one.start) for ones in by_stream.values()]
    waited = {
        one.start - max(raw.window[0], raw.call_of[one.correlation].end) for one in firsts if raw.is_in_a_step(one)
    }
    if 10 * told["from_before_us"] >= 9 * told["time_us"]:
        assert (finding.severity, remedy[:13]) == ("recording", "record longer")
    else:
        assert ("before the recording" in remedy) == (round(finding.longest_us * 1000) in waited)


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


def waits_no_more(raw, remedy, finding):
    idle = finding.causes_idle_us
    longest = max(idle, key=idle.__getitem__) if any(idle.values()) else next(iter(finding.causes_us))
    first = {"masks": "masks", "indices": "indices", "value": "keep", "to_gpu": "copies with", "to_cpu": "copies to"}
    assert remedy.startswith(first[longest])
    inside = {one.name for call in raw.blocking for one in raw.holders[id(call)]}
    assert "torch.where" not in remedy or "aten::nonzero" in inside
    assert "to_cpu" not in finding.causes or any("DtoH" in one.name for one in raw.work)
    assert "pinned memory" not in remedy or any(re.search("Memcpy|CopyHostToDevice", one.name) for one in raw.work)


def loads_beside(raw, remedy, _):
    loading = [one for one in raw.events if one.name.startswith("enumerate(Data") and raw.is_of_a_step(one)]
    late = [(start, end) for start, end, _ in raw.late if end > start]
    loads = both(late, [one.span for one in loading]) if loading else 0
    assert ("num_workers" in remedy) == (loads / 1000 >= 0.05 * raw.window_us)
    assert "synchronization" not in remedy or any(raw.is_of_a_step(one) for one in raw.blocking)
    assert ("warm up" in remedy) <= any("BeginCapture" in one.name for one in raw.calls)
    assert ("the CUDA graphs" in remedy) == any("GraphLaunch" in one.name for one in raw.calls)


def warms_up(_, remedy, finding):
    assert ("warm steps" in remedy) == (finding.launch_ratio > 100 and 2 * finding.longest_us >= finding.time_us)


def batches_what_is_torchs(_, remedy, finding):
    by_masks = next(iter(finding.ops)) == "aten::nonzero"
    assert ("torch.where" in remedy) == by_masks
    assert ("_foreach_" in remedy) == (not by_masks and any(op.startswith("aten::") for op in finding.ops))


def takes_tensors_together(raw, *_):
    assert not any(one.name.startswith(("aten::_foreach_", "aten::_fused_")) for one in raw.events)


def names_the_fallback(raw, _, finding):
    in_math = any("_scaled_dot_product_attention_math" in one.name for one in raw.events)
    assert ("no fused kernel takes" in finding.message) == in_math


def feeds_it_first(raw, remedy, _):
    assert ("idles" in remedy) == (raw.share(raw.gpu) < 0.5)


def shows_more(raw, remedy, _):
    assert ("with_stack" in remedy) == (not any(one.kind == "python_function" for one in raw.events))


def names_the_innermost(raw, remedy, finding):
    assert remedy.startswith(f"look at {finding.innermost},")


def copies_another_way(raw, remedy, _):
    spent = Counter()
    for one in raw.work:
        if one.kind == "gpu_memcpy":
            spent["DtoD" in one.name or "DeviceToDevice" in one.name] += one.us
    assert ("pin_memory" in remedy) == any("Pageable" in one.name for one in raw.work)
    assert ("within the GPU" in remedy) == (spent[True] > spent[False])


ADVICE = {
    "copies-take-long": copies_another_way,
    "costly-children": names_the_innermost,
    "nothing-recorded": shows_more,
    "exposed-communication": hides_communication,
    "fp32-gemm": turns_tf32_on,
    "hotspot": feeds_it_first,
    "implicit-sync": waits_no_more,
    "launch-gaps": loads_beside,
    "many-small-calls": batches_what_is_torchs,
    "overhead-bound": warms_up,
    "queued-work-waits": names_what_may_be_waited_for,
    "single-tensor-optimizer": takes_tensors_together,
    "tf32-gemm": leaves_tf32,
    "unfused-attention": names_the_fallback,
}
"""By code, what looks up whether that is there of which the remedy speaks; the other remedies speak of the finding itself."""


def copied(*, pageable, beside, devices=1):
    """Build a recording that copies for nearly all of its time, to and from the host, a kernel beside some of it."""
    builder = TraceBuilder()
    for number in range(2):
        begin = 1000 * number
        builder.step(number, begin, 1000)
        for device in range(devices):
            for direction, start, dur in (("HtoD", 20, 600 + 50 * device), ("DtoH", 700, 250)):
                call = builder.call("copy", begin + start - 15 + 3 * device)
                builder.memcpy(direction, begin + start, dur, call, size=2**20, device=device, stream=9)
                if not pageable:
                    builder.events[-1]["name"] = builder.events[-1]["name"].replace("Pageable", "Pinned")
        builder.kernel("ampere_sgemm_128x64_tn", begin + 30, 300 if beside else 2, builder.launch(begin + 25))
    return builder


def within_the_gpu():
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    for name, start, dur in (("CopyDeviceToDevice", 10, 500), ("CopyDeviceToHost", 600, 300)):
        builder.memcpy("DtoD", start, dur, builder.call("copy", start - 5), size=2**20)
        builder.events[-1]["name"] = name
    return builder


@pytest.mark.parametrize(
    ("build", "share", "alone_us"),
    [
        (lambda: copied(pageable=True, beside=True), 0.85, 1100),
        (lambda: copied(pageable=False, beside=False), 0.85, 1696),
        (lambda: copied(pageable=True, beside=True, devices=2), 0.875, 1800),
        (within_the_gpu, 0.8, 800),
    ],
    ids=["pageable, computing beside", "pinned, alone", "two devices", "as ROCm spells it"],
)
def test_copies_that_are_most_of_the_time_are_what_the_events_say(build, share, alone_us, tmp_path):
    """No shared recording has so many."""
    path = build().write(tmp_path / "copied.json.gz")
    raw = Raw(path)
    (found,) = (one for one in find(load(path)) if one.code == "copies-take-long")
    assert (found.share, found.alone_us) == (pytest.approx(share), alone_us)
    says_what_the_events_say(raw, found)
    first = next(one for one in load(path).findings if one.severity == "warning")
    assert first.code == "copies-take-long"


def says_what_the_events_say(raw, finding):
    if finding.code in ADVICE:
        ADVICE[finding.code](raw, finding.remedy, finding)
    for name, fact in WITNESSES[finding.code](raw, finding).items():
        expected = fact if isinstance(fact, list | str) else pytest.approx(fact, rel=1e-6)
        assert finding.evidence[name] == expected, (finding.code, name)


@pytest.mark.parametrize("recording", FINDINGS)
def test_findings_are_what_the_events_say(recording, shared_trace):
    codes = [code for code in FINDINGS[recording] if not is_in_shorter_ones(code, recording)]
    if not codes:
        pytest.skip("shorter recordings have all that is found in it")
    path = shared_trace(recording)
    raw = Raw(path)
    profile = load(path)
    for finding in find(profile, [rule for rule in RULES if rule.code in codes]):
        says_what_the_events_say(raw, finding)
    if recording not in LEFT_OUT:
        says_what_the_headline_says(raw, profile, headline_of(profile))
