"""No false friends: on every shared recording the findings are those that a person found right."""

from __future__ import annotations

import gzip
import sys

import msgspec
import pytest
from conftest import recording_of
from findings_on_recordings import FINDINGS, HEALTHY, TOLD_BY, is_in_shorter_ones

from pytest_torchprof import load
from pytest_torchprof.findings import RULES, find
from pytest_torchprof.kernels.names import decode

pytestmark = pytest.mark.any_torch

NAMED = ("time_us", "lost_kernels", "steps")


def figure(finding):
    """Return the time that the finding names, or else its count."""
    value = next(finding.evidence[key] for key in NAMED if key in finding.evidence)
    return len(value) if isinstance(value, list) else value


@pytest.fixture(scope="module", params=FINDINGS)
def recording(request):
    """Return the name of each recording; all tests of one come before those of the next, so that each is read once."""
    return request.param


@pytest.fixture(scope="module")
def profile(recording):
    return load(recording_of(recording))


@pytest.fixture(scope="module")
def findings(profile):
    """Return all that is found in a recording, whether it stands out or not."""
    return find(profile)


def test_the_findings_are_those_a_person_found_right(recording, findings):
    found = {finding.code: figure(finding) for finding in findings}
    expected = {code: number for code, (number, _) in FINDINGS[recording].items()}
    assert sorted(found) == sorted(expected)
    assert found == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("recording", HEALTHY, indirect=True)
def test_nothing_warns_on_a_healthy_recording(profile):
    assert {finding.severity for finding in profile.findings} <= {"information"}


WRITTEN_OUT = {"unfused-norm", "unfused-rotary"}


def test_what_does_not_stand_out_is_about_little_time_or_told_by_another(recording, profile, findings):
    start = min(step.start_ns for step in profile.trace.steps)
    window_us = (max([*profile.trace.gpu.end, *(step.end_ns for step in profile.trace.steps)]) - start) / 1000
    told = TOLD_BY.get(recording, {})
    assert set(told.values()) <= {one.code for one in profile.findings}
    assert not told.keys() & {one.code for one in profile.findings}
    for finding in (one for one in findings if one not in profile.findings):
        assert finding.code in told or max(finding.share, finding.saves_us / window_us) < 0.01
    for finding in profile.findings:
        # To what is written as single operators belongs also how long the GPU waited for each of them.
        if finding.severity != "recording" and "share" in finding.evidence and finding.code not in WRITTEN_OUT:
            assert max(finding.share, finding.saves_us / window_us) >= 0.01


# What the finding rests on, by its code: which events, given the finding. Without them there is nothing to find.
RUNTIME = {"cuda_runtime", "cuda_driver", "runtime"}
OPERATORS = {"cpu_op", "operator"}


class Arguments(msgspec.Struct):
    """What is asked of an event's arguments."""

    blocks_per_sm: float = msgspec.field(name="blocks per SM", default=1)


class Event(msgspec.Struct):
    """What is asked of an event."""

    name: str = ""
    ph: str = ""
    cat: str = ""
    dur: float = 0
    args: Arguments = msgspec.field(default_factory=Arguments)
    category: str = ""

    def __post_init__(self):
        self.category = sys.intern(self.cat.lower())


def calls(*words):
    return lambda _: lambda event: event.category in RUNTIME and any(word in event.name for word in words)


def operators(*words):
    return lambda _: lambda event: event.category in OPERATORS and any(word in event.name for word in words)


def kernels(*families):
    return lambda _: lambda event: event.category == "kernel" and decode(event.name).family in families


def named(key):
    """Return what removes the operators that the finding names."""

    def of(finding):
        names = finding.evidence[key]
        return lambda event: event.category in OPERATORS and event.name in names

    return of


def launched_there(finding):
    """Return what removes the kernels of that name, or those that take the time of an operator."""
    if kernels_named := finding.evidence["kernels"]:
        return lambda event: event.name in kernels_named
    return lambda event: event.category == "kernel" and decode(event.name).family in {"gemm", "conv", "other", None}


def subject(finding):
    """Return what is found: where something always comes first, another one may take its place."""
    about = ("kernels", "ops") if finding.code in {"hotspot", "costly-children"} else ()
    return finding.code, *(finding.evidence.get(key) for key in about)


EVIDENCE = {
    "lost-kernels": calls("LaunchKernel"),
    "in-flight-kernels": lambda _: (
        lambda event: event.category in {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}
    ),
    "no-gpu-work": lambda finding: lambda event: event.name in finding.evidence["steps"],
    "profiler-gap": lambda _: lambda event: event.name in {"Activity Buffer Request", "Buffer Flush"},
    "overhead-bound": calls(""),
    "launch-gaps": calls(""),
    "queued-work-waits": calls(""),
    "graph-recaptured": calls("Capture"),
    "unasked-fp64": lambda _: lambda event: event.category == "kernel" and "double" in event.name,
    "launch-delay": lambda _: lambda event: "Launch" in event.name and event.dur > 1000,
    "compute-bound": lambda _: lambda event: event.category == "kernel",
    "sync-over-little-work": calls("Synchronize", "MemcpyWithStream"),
    "implicit-sync": lambda _: (
        lambda event: calls("Synchronize", "MemcpyWithStream")(None)(event) or "Pageable" in event.name
    ),
    "exposed-communication": kernels("communication"),
    "hotspot": launched_there,
    "many-small-calls": lambda _: lambda event: event.category == "kernel" and event.dur < 20,
    "costly-children": named("ops"),
    "cold-start": lambda finding: (
        lambda event: (
            event.category == "overhead"
            or calls("Launch", "Malloc", "Free", "Capture", "Instantiate", "ModuleLoad")(None)(event)
            or f"first {event.name}" in finding.setup
        )
    ),
    "cpu-held-up": lambda _: lambda event: event.category in RUNTIME | OPERATORS and event.dur >= 1000,
    "kernel-time-varies": kernels("gemm"),
    "fp32-gemm": kernels("gemm", "conv"),
    "tf32-gemm": kernels("gemm", "conv"),
    "misaligned-gemm": named("ops"),
    "below-roofline": named("ops"),
    "repeated-constant": operators("aten::arange"),
    "copy-kernels": kernels("copy"),
    "hidden-copy": operators("aten::addmm"),
    "unfused-pointwise": kernels("pointwise"),
    "unfused-rotary": operators("aten::neg"),
    "unfused-norm": lambda _: lambda event: event.category == "kernel" and "MeanOps" in event.name,
    "unfused-attention": lambda _: lambda event: event.category == "kernel" and "softmax" in event.name.lower(),
    "layout-conversion": lambda _: lambda event: event.category == "kernel" and "transpose" in event.name,
    "single-tensor-optimizer": lambda _: lambda event: event.name.startswith("Optimizer.step"),
    "small-grid": lambda _: lambda event: event.args.blocks_per_sm < 1,
    "cudagraph-input-copy": operators("copy_"),
}
# What is missing does not come by taking something else away.
ABSENT = {"no-gpu-work": {"cpu_only_steps"}, "nothing-recorded": set(FINDINGS)}


def is_among_the_smallest(code, recording):
    """Whether a finding is looked at in this recording without its evidence: of those that have it, in the two smallest.

    In a large one it rests on the same events, and each time all of it is written and read again.
    """
    having = [name for name, codes in FINDINGS.items() if code in codes and not is_in_shorter_ones(code, name)]
    return recording in sorted(having, key=lambda name: recording_of(name).stat().st_size)[:2]


def parts_of(text):
    """Return what stands around the events, None for nothing, and each event as it is written."""
    if text.lstrip().startswith(b"["):
        return None, msgspec.json.decode(text, type=list[msgspec.Raw])
    around = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    return around, msgspec.json.decode(around.pop("traceEvents"), type=list[msgspec.Raw])


def test_a_finding_goes_when_its_evidence_goes(recording, findings, tmp_path):
    looked_at = [
        finding
        for finding in findings
        if is_among_the_smallest(finding.code, recording) and recording not in ABSENT.get(finding.code, ())
    ]
    if not looked_at:
        pytest.skip("smaller recordings have all that is found in it")
    path = recording_of(recording)
    header, written = parts_of(gzip.decompress(path.read_bytes()))
    events = msgspec.json.decode(b"[" + b",".join(written) + b"]", type=list[Event])
    for finding in looked_at:
        gone = EVIDENCE[finding.code](finding)
        kept = [text for text, event in zip(written, events, strict=True) if not (event.ph == "X" and gone(event))]
        assert len(kept) < len(events)
        cut = tmp_path / "cut.json"
        cut.write_bytes(msgspec.json.encode(kept if header is None else {**header, "traceEvents": kept}))
        (rule,) = (rule for rule in RULES if rule.code == finding.code)
        assert subject(finding) not in map(subject, find(load(cut), [rule])), finding.code
