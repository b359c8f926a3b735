"""What the headline says of a recording, computed a second time from the events of its file.

That is whose the gap or the longest call is, the line that launched it, and what the time was spent with.
"""

from __future__ import annotations

import re
from collections import defaultdict
from math import prod

import pytest
from raw_events import (
    both,
    captured_again,
    carried_out,
    communicates,
    decode,
    length,
    set_up,
    standing_still,
    union,
)

from pytest_torchprof.findings.catalogue.headlines import GpuBusy, GpuCommunicated, GpuHeldUp, GpuIdled

NOT_THE_USERS = re.compile(r"(^|/)(torch|triton|functorch|numpy)/|/lib/python3[^/]*/(?!site-packages)|^<")


def operation_at(profile, raw, headline):
    """Return the operation that the headline's gap is beside, or that is the longest call, by its times."""
    events, gpu = headline.events, profile.trace.gpu
    (number,) = events.gpu_ops or [beside for _, _, beside in events.gaps]
    alike = [one for one in raw.gpu if one.name == profile.trace.names[gpu.name[number]]]
    found = min(alike, key=lambda one: abs(one.start - gpu.start[number]))
    # A number of microseconds since 1970 with a fraction is no whole number of nanoseconds.
    assert abs(found.start - gpu.start[number]) < 200
    return found


def is_in_graph(raw, one):
    return one.correlation in raw.call_of and "GraphLaunch" in raw.call_of[one.correlation].name


def operator(raw, one):
    """Return the innermost operator around a launch; a CUDA graph, which many have made, has none."""
    op = None if one.correlation not in raw.call_of or is_in_graph(raw, one) else raw.op(one)
    return None if op is None else op.name


def called(raw, one):
    """Return the operator that launched an operation; without one, the operation itself."""
    return operator(raw, one) or (decode(one.name).short if one.kind == "kernel" else one.name)


def line(raw, one):
    """Return the innermost function of the user's around a launch, as "function (file.py:line)"; None without."""
    call = raw.call_of.get(one.correlation)
    frames = [
        (frame.start, match)
        for frame in raw.events
        if frame.kind == "python_function" and call and frame.start <= call.start < frame.end
        if frame.thread == call.thread and (match := re.fullmatch(r"(.+\.py)\((\d+)\): (.+)", frame.name))
    ]
    users = [match for _, match in sorted(frames, key=lambda frame: frame[0]) if not NOT_THE_USERS.search(match[1])]
    return f"{users[-1][3]} ({users[-1][1]}:{users[-1][2]})" if users else None


def late_of(raw):
    """Return the gaps of each device in which its next operation was not launched yet."""
    gaps = defaultdict(list)
    for start, end, one in raw.late:
        if end > start:
            gaps[one.device].append((start, end))
    return [union(each) for each in gaps.values()]


def mean_us(raw, spans):
    return sum(spans) / 1000 / len(raw.devices)


def if_much(us, least):
    """Return what is worth a word, None for less."""
    return pytest.approx(us) if us >= least and us else None


def causes_of_idling(raw):
    """Return what the time in which the GPUs idled was spent with."""
    ran = [raw.inside(raw.on(device, raw.gpu)) for device in raw.devices]
    late, window, own = late_of(raw), raw.window_us, raw.inside_spans(raw.own)
    again = captured_again(raw)
    loading = [one.span for one in raw.events if one.name.startswith("enumerate(Data") and raw.is_of_a_step(one)]
    once = [span for each in set_up(raw).values() for span in each]
    queued = mean_us(raw, [max(start - until, 0) for start, until in launched_and_waiting(raw)])
    talking = mean_us(raw, (alone(raw, device) for device in raw.devices)) / window
    waited = mean_us(raw, map(length, late))
    times_of_again = [one.span for one in again]
    recaptured = mean_us(raw, (length([*times_of_again, *each, *own]) - length([*each, *own]) for each in ran))
    return {
        "late_us": pytest.approx(waited),
        "loading_us": if_much(mean_us(raw, (both(each, loading) for each in late)), 0.05 * window),
        "late_once_us": if_much(mean_us(raw, (both(each, once) for each in late)), 0.01 * window),
        "silent_us": if_much(mean_us(raw, (both(each, raw.silent) for each in late)), 0.5 * waited),
        "stacks": any(one.kind == "python_function" for one in raw.events),
        "profiler_us": pytest.approx(mean_us(raw, (length([*own, *each]) - length(each) for each in ran)), abs=1e-6),
        "queued_us": pytest.approx(queued),
        "communicating_share": if_much(talking, 0.2),
        "recaptured_us": pytest.approx(recaptured),
        "recaptured_from_us": tuple((one.start - raw.window[0]) / 1000 for one in again),
        "recaptured_in": tuple(dict.fromkeys(one.name for one in again)),
    }


def launched_and_waiting(raw):
    """Yield for how long operations waited although their launch had returned, as far as that is no mere delay."""
    for start, end, one in raw.gaps_from_start:
        since = max(start, raw.call_of[one.correlation].end)
        if end - since >= 30_000:
            yield end, since


def alone(raw, device):
    """Return how long a device did nothing but communicate."""
    ran = raw.on(device, raw.gpu)
    others = raw.inside([one for one in ran if not communicates(one)])
    return length(raw.inside(ran)) - length(others)


def causes_of_communicating(raw):
    """Return how long the GPUs did nothing else, and what that and the idle time were spent with."""
    share = mean_us(raw, (alone(raw, device) for device in raw.devices)) / raw.window_us
    ran = [[*raw.inside(raw.on(device, raw.gpu)), *raw.inside_spans(raw.own)] for device in raw.devices]
    idle_us = raw.window_us - mean_us(raw, map(length, ran))
    slow = raw.inside_spans((start, start + lasted) for lasted, _, _, start in standing_still(raw))
    held_us = mean_us(raw, (length([*slow, *each]) - length(each) for each in ran))
    return {
        "share": pytest.approx(share),
        "idle_share": if_much(idle_us / raw.window_us, 0.2),
        "held_us": if_much(held_us, 0.5 * idle_us),
        "beyond_usual_us": if_much(beyond_usual_us(raw), 0.5 * share * raw.window_us),
        "longest_us": max(one.us for one in raw.gpu if communicates(one)),
    }


def beyond_usual_us(raw):
    """Return by how much collectives took longer than the fastest quarter of those that send as much."""
    alike, others = defaultdict(list), raw.inside([one for one in raw.kernels if not communicates(one)])
    for one in filter(communicates, raw.kernels):
        asked = next(op for op in raw.ops_around(one) if op.name.startswith("c10d::"))
        (shape,), *_ = asked.args["Input Dims"]
        alike[carried_out(raw, one), prod(shape)].append(one)
    beyond = 0
    for those in (each for each in alike.values() if len(each) >= 4):
        usual = sorted(one.us for one in those)[(len(those) - 1) // 4]
        beyond += sum(max(min(one.us - usual, one.us - both([one.span], others) / 1000), 0) for one in those)
    return beyond


def went_on(raw, start, end, following):
    """Return what most of a gap was spent with."""
    loading = [one.span for one in raw.events if one.name.startswith("enumerate(Data") and raw.is_of_a_step(one)]
    launched = max(start, raw.call_of[following.correlation].end) if following is not None else end
    passed = {
        "set_up": both([(start, end)], [span for spans in set_up(raw).values() for span in spans]),
        "recaptured": both([(start, end)], [one.span for one in captured_again(raw)]),
        "loading": both([(start, end)], loading),
        "queued": end - launched,
        "silent": both([(start, end)], raw.silent),
    }
    return next((what for what, ns in passed.items() if ns >= (end - start) / 2), None)


def says_what_went_on(raw, headline):
    spans = [span for each in set_up(raw).values() for span in each]
    busy = [[*raw.inside(raw.on(device, raw.gpu)), *raw.own] for device in raw.devices]
    once_ns = sum(length(spans) - both(spans, each) for each in busy)
    assert headline.set_up_us == pytest.approx(once_ns / 1000 / len(raw.devices))
    gaps = []
    for each in busy:
        edges = [raw.window[0], *(edge for span in union(raw.inside_spans(each)) for edge in span), raw.window[1]]
        gaps += [gap for gap in zip(edges[::2], edges[1::2], strict=True) if gap[0] < gap[1]]
    gaps.sort(key=lambda gap: gap[0] - gap[1])
    assert headline.gaps == len(gaps)
    (start, end, _) = headline.events.gaps[0]
    longest = gaps[0]
    is_cold = once_ns / 1000 / len(raw.devices) >= headline.share * raw.window_us / 4
    other = next((gap for gap in gaps if both([gap], spans) < (gap[1] - gap[0]) / 2), gaps[0])
    if not is_cold or other[1] - other[0] >= (longest[1] - longest[0]) / 2:
        longest = other
    assert end - start == longest[1] - longest[0]
    assert headline.once_us == (None if longest == gaps[0] else (gaps[0][1] - gaps[0][0]) / 1000)
    following = next((one for one in sorted(raw.gpu, key=lambda one: one.start) if one.start == end), None)
    assert headline.meanwhile == went_on(raw, start, end, following)


def says_what_the_headline_says(raw, profile, headline):
    """Hold a headline about a GPU to what the events say."""
    if not isinstance(headline, GpuIdled | GpuHeldUp | GpuBusy | GpuCommunicated):
        return
    one = operation_at(profile, raw, headline)
    assert headline.source == line(raw, one)
    facts = {}
    if isinstance(headline, GpuBusy):
        facts = {"name": decode(one.name).short, "op": operator(raw, one), "in_graph": is_in_graph(raw, one)}
    elif isinstance(headline, GpuCommunicated):
        assert headline.name.startswith(f"{carried_out(raw, one)} (")
        facts = causes_of_communicating(raw)
    else:
        facts = {"name": called(raw, one)}
    if isinstance(headline, GpuIdled):
        facts |= causes_of_idling(raw)
        says_what_went_on(raw, headline)
    assert {name: getattr(headline, name) for name in facts} == facts
