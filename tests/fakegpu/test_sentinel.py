"""Sessions that lose more kernels at their head each time: the sentinel has as many to lose, and nothing measured is."""

from __future__ import annotations

import pytest

from pytest_torchprof.recording.reader import read
from pytest_torchprof.trace import SENTINEL

pytestmark = pytest.mark.simulated_gpu

# Two kernels each, after idle time or without any.
SESSIONS = """
import time

@pytest.fixture(autouse=True)
def idle():
    time.sleep({idle_s})

@pytest.mark.parametrize("number", range({sessions}))
@pytest.mark.torchprof(max_kernels=2, min_kernels=2)
def test_it(number):
    torch.ones(8, device="cuda").add_(1)
"""
# Measurements of one step in one process.
MEASUREMENTS = """
import tempfile
from pathlib import Path
from pytest_torchprof import capture, load
from pytest_torchprof.capture.this_process import this_process

plan = capture.Plan(device="cuda:0", warmup=0, steps=1, record=frozenset(), nodeid="t.py::t", label=None)
folder, kernels, calls = tempfile.TemporaryDirectory(), [], 0
path = Path(folder.name, "t.json")
for _ in range({measurements}):
    for _ in capture.iterations(plan, path, lambda path: load(path).doubt):
        torch.ones(8, device="cuda").add_(1)
        calls += 1
    kernels.append(load(path).steps[0].kernels.count)
print(json.dumps([kernels, calls, this_process().sentinel]))
"""
# As an application's own sessions, which nobody here counts, would do.
FOREIGN = """
@pytest.fixture(autouse=True, scope="module")
def foreign():
    from torch.profiler import ProfilerActivity, profile
    for _ in range({sessions}):
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
            torch.ones(8, device="cuda")
"""


@pytest.fixture
def sentinels(run_tests, pytester, monkeypatch):
    """Return a function that runs tests and gives their outcomes, and the kernels that each sentinel launched and lost."""

    def run(source, *, head_ms):
        monkeypatch.setenv("FAKEGPU_CUPTI_HEAD", str(head_ms))
        result = run_tests(source, "--torchprof-save=saved", in_process=False)
        saved = sorted((pytester.path / "saved").rglob("*.json*"), key=lambda path: path.stat().st_mtime_ns)
        outcomes = {name: count for name, count in result.parseoutcomes().items() if name != "warnings"}
        return outcomes, [lost_and_launched(read(path)) for path in saved]

    return run


def lost_and_launched(trace):
    (head,) = trace.spans(SENTINEL)
    own = {i for i in trace.links.launches if trace.calls.start[i] < head.end_ns}
    return len(own & set(trace.links.lost)), len(own)


@pytest.mark.parametrize(("head_ms", "idle_s"), [(0, 0), (50, 0.1)], ids=["no idle time", "some idle time"])
def test_thirty_sessions_lose_more_and_more_of_the_sentinel_alone(sentinels, head_ms, idle_s):
    outcomes, found = sentinels(SESSIONS.format(sessions=30, idle_s=idle_s), head_ms=head_ms)
    assert outcomes == {"passed": 30}
    lost, launched = zip(*found, strict=True)
    assert list(lost) == list(range(lost[0], lost[0] + 30))
    assert all(one < other for one, other in zip(lost, launched, strict=True))


def test_where_none_are_lost_the_sentinel_stays_short(sentinels):
    outcomes, found = sentinels(SESSIONS.format(sessions=60, idle_s=0), head_ms=-1)
    assert outcomes == {"passed": 60}
    assert max(launched for _, launched in found) <= 30
    assert not any(lost for lost, _ in found)


def test_after_sessions_of_others_the_sentinel_grows_until_it_is_long_enough(sentinels):
    source = FOREIGN.format(sessions=25) + SESSIONS.format(sessions=2, idle_s=0)
    outcomes, found = sentinels(source, head_ms=0)
    assert outcomes == {"passed": 2}
    assert all(launched > lost >= 25 for lost, launched in found)


def test_all_measurements_of_a_process_beyond_the_512th_have_their_kernels_at_the_first_attempt(process):
    kernels, calls, sentinel = process(MEASUREMENTS.format(measurements=540), CUPTI_HEAD=0)
    assert kernels == [2] * 540
    assert calls == 540
    assert 540 < sentinel < 570


def test_a_process_that_has_lost_more_than_its_first_sentinels_could_goes_on_measuring(sentinels):
    """Beyond the 512th measurement of a process too; the loss of that many is what other sessions add at once."""
    source = FOREIGN.format(sessions=540) + SESSIONS.format(sessions=20, idle_s=0)
    outcomes, found = sentinels(source, head_ms=0)
    assert outcomes == {"passed": 20}
    assert all(launched > lost >= 540 for lost, launched in found)
    assert found[-1][1] <= found[-1][0] + 30
