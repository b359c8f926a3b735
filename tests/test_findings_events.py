"""Findings know their events: as many as their own numbers say, and of the kind that they speak of."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import SHARED_TRACES
from finding_numbers import CHAINS, OWN_NUMBER

from pytest_torchprof import load
from pytest_torchprof.findings import find, find_with_events

if TYPE_CHECKING:
    from pytest_torchprof.findings import Finding

pytestmark = pytest.mark.any_torch

RECORDINGS = sorted([*(Path(__file__).parent / "recordings").glob("*.json.gz"), *SHARED_TRACES.glob("*.json.gz")])


def count_of(finding: Finding) -> int:
    """Return how many events a finding has."""
    events = finding.events
    assert events is not None
    parts = (events.gpu_ops, events.calls, events.ops, events.annotations, events.overheads, events.gaps)
    assert all(len(set(part)) == len(part) for part in parts)
    return sum(map(len, parts))


@pytest.fixture(scope="module", params=RECORDINGS, ids=lambda path: path.name)
def profile(request):
    """Return each recording's profile; all tests of one come before those of the next, so that each is read once."""
    return load(request.param)


@pytest.fixture(scope="module")
def findings(profile):
    return find_with_events(profile)


def test_a_finding_has_as_many_events_as_it_says(findings):
    for finding in findings:
        facts = finding.evidence
        if finding.code in OWN_NUMBER:
            assert count_of(finding) == OWN_NUMBER[finding.code](facts), finding.code
        if finding.code in CHAINS:
            assert len(finding.events.chains) == CHAINS[finding.code](facts), finding.code
            assert sum(finding.events.chains) == len(finding.events.gpu_ops), finding.code
        if finding.code == "cold-start" and "setup" in facts:
            events = finding.events
            done_once = len(events.calls) + len(events.ops) + len(events.overheads)
            assert done_once == sum(facts["setup"].values())


def test_the_events_take_the_time_that_the_finding_says(profile, findings):
    gpu, devices = profile.trace.gpu, max(len(profile.gpu_work.by_device), 1)
    for finding in findings:
        events, facts = finding.events, finding.evidence
        if finding.code in ("launch-gaps", "overhead-bound", "queued-work-waits"):
            gaps = events.gaps
            assert sum(end - start for start, end, _ in gaps) / 1000 / devices == pytest.approx(facts["time_us"])
            assert max(end - start for start, end, _ in gaps) / 1000 == pytest.approx(facts["longest_us"])
            for start, end, before in gaps:
                assert start < end <= gpu.start[before]
        elif finding.code == "nothing-recorded":
            lengths = [(end - start) / 1000 for start, end, _ in events.gaps]
            assert sum(lengths) == pytest.approx(facts["time_us"])
            assert max(lengths) == pytest.approx(facts["longest_us"])
            assert {before for _, _, before in events.gaps} == {-1}
        elif finding.code in (
            "fp32-gemm",
            "copy-kernels",
            "hotspot",
            "unfused-attention",
            "unfused-norm",
            "unfused-rotary",
            "copies-take-long",
        ):
            spent = sum(gpu.end[i] - gpu.start[i] for i in events.gpu_ops) / 1000
            assert spent == pytest.approx(facts["time_us"]), finding.code
        elif finding.code == "implicit-sync":
            calls = profile.trace.calls
            spent = sum(calls.end[i] - calls.start[i] for i in events.calls) / 1000
            # Of a copy and the synchronization after it, which are one wait, the longer one is shown.
            assert 0.7 * facts["time_us"] <= spent <= facts["time_us"] * 1.0001


def test_what_a_finding_says_by_name_are_its_events_by_name(profile, findings):
    """Of findings that say a number for each of several names, or none."""
    trace, launching = profile.trace, profile.launching
    gpu, steps, begun = trace.gpu, len(trace.steps), trace.steps[0].start_ns
    for finding in findings:
        events, facts = finding.events, finding.evidence
        if finding.code == "many-small-calls":
            called = Counter(launching.op_name(launching.op_of[i]) for i in events.gpu_ops)
            assert {op: count // steps for op, count in called.items()} == facts["ops"]
        elif finding.code == "exposed-communication" and not facts["on_cpu"]:
            sending = {i for i, name in enumerate(gpu.name) if "nccl" in trace.names[name].lower()}
            assert {*events.gpu_ops} == {i for i in sending if gpu.end[i] > begun}
            spent = sum(gpu.end[i] - gpu.start[i] for i in events.gpu_ops) / 1000
            assert sum(facts["collectives_us"].values()) == pytest.approx(spent)
        elif finding.code == "profiler-gap":
            own = trace.overheads
            assert {*events.overheads} == {i for i, name in enumerate(own.name) if "Buffer" in trace.names[name]}
            assert sum(own.end[i] - own.start[i] for i in events.overheads) / 1000 >= facts["time_us"]


def test_events_stay_with_the_recording_and_are_no_facts():
    profile = load(RECORDINGS[0])
    without, with_events = find(profile), find_with_events(profile)
    assert [finding.code for finding in without] == [finding.code for finding in with_events]
    assert all(finding.events is None for finding in without)
    assert [finding.evidence for finding in without] == [finding.evidence for finding in with_events]
    assert all("events" not in finding.in_words() for finding in with_events)


def test_a_chain_is_made_of_kernels_that_were_launched_one_after_the_other(profile, findings):
    for finding in findings:
        if finding.code not in CHAINS:
            continue
        at, launched = 0, [profile.trace.calls.start[call] for call in profile.trace.links.call_of]
        assert finding.events.chains
        for length in finding.events.chains:
            chain = finding.events.gpu_ops[at : at + length]
            assert [*chain] == sorted(chain, key=launched.__getitem__)
            assert len([*groupby(profile.trace.step_of_gpu_op[i] for i in chain)]) == 1
            at += length


def test_some_recording_has_chains(shared_trace):
    """Those above would hold without any."""
    assert {finding.code for finding in find(load(shared_trace("a100_graphs_nccl_orphans")))} & CHAINS.keys()
