"""The shared recordings give the numbers that were computed from the same definitions by others."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from pytest_torchprof import Profile, load

TRACES = Path(__file__).parents[2] / "shared" / "traces"
EXPECTED = TRACES / "expected.json"
UNKNOWN = {"mi250_string_tids": "memcpy_bytes"}
"""The numbers that others take for 0 although the recording does not tell them: its copies do not say how many bytes."""
COUNTS = ("events", "steps", "orphans", "lost_kernels", "kernel_names")

pytestmark = [
    pytest.mark.any_torch,
    pytest.mark.skipif(not EXPECTED.exists(), reason=f"no recordings in {TRACES}"),
]


def recordings():
    entries = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else []
    return [pytest.param(entry["file"], entry["expected"], id=entry["file"].split(".")[0]) for entry in entries]


def differences(numbers, expected, unknown):
    """Return what differs: counts at all, times and shares by more than 0.1 % and the last digit written."""
    found = {}
    for name, wanted in expected.items():
        value = getattr(numbers, name)
        if name == unknown:
            assert not value
            assert wanted == 0
            continue
        if wanted is None or value is None or isinstance(wanted, int):
            same = value == wanted
        else:
            same = value == pytest.approx(wanted, rel=1e-3, abs=1e-6)
        if not same:
            found[name] = (value, wanted)
    return found


@pytest.mark.parametrize(("file", "expected"), recordings())
def test_the_numbers_are_those_expected(file, expected):
    profile = load(TRACES / file)
    assert isinstance(profile, Profile)
    trace = profile.trace
    kernels = {trace.names[n] for n, kind in zip(trace.gpu.name, trace.gpu.kind, strict=True) if kind == 0}
    found = (trace.events, len(trace.steps), trace.orphans, trace.lost_kernels, len(kernels))
    assert dict(zip(COUNTS, found, strict=True)) == {name: expected[name] for name in COUNTS}
    summary, unknown = dict(expected["summary"]), UNKNOWN.get(file.split(".")[0])
    assert differences(profile.worst, summary.pop("worst"), unknown) == {}
    assert differences(profile.median, summary, unknown) == {}
    for step, wanted in zip(profile.steps, expected.get("per_step", profile.steps), strict=True):
        if isinstance(wanted, dict):
            assert step.name == wanted.pop("name")
            assert differences(step.numbers, wanted, unknown) == {}


@pytest.mark.parametrize(("file", "expected"), recordings())
def test_the_most_frequent_kernels_of_all_steps_are_those_expected(file, expected):
    profile = load(TRACES / file)
    counts = {}
    for step in profile.steps:
        for kernel in step.kernels:
            key = hashlib.sha1(kernel.name.encode(), usedforsecurity=False).hexdigest()
            counts[key] = counts.get(key, 0) + 1
    assert {key: counts.get(key) for key in expected["kernels"]} == expected["kernels"]
    assert sorted(counts.values())[-20:] == sorted(expected["kernels"].values())
