"""Times held against a baseline: sampled only when asked for, told only where the samples tell."""

from __future__ import annotations

import gzip
import json
from itertools import combinations, cycle
from pathlib import Path
from time import perf_counter, perf_counter_ns

import pytest
from facts import WORSE, reasons_in

from pytest_torchprof.baseline.entry import QUANTILES, times
from pytest_torchprof.capture import devices, nvml, samples
from pytest_torchprof.compare.time_changes import chance, time_verdict, unsure
from pytest_torchprof.reasons.comparing import NoSamplesHere, RecordedWithoutTimes, WorkersShareDevice
from pytest_torchprof.reasons.disturbances import Brake, NothingKnown, SlowedDown
from pytest_torchprof.reasons.measuring import StepsLeft
from pytest_torchprof.report.account import NotJudgedOnCpu
from pytest_torchprof.report.baseline_failure import AmbiguousToBaseline

CONDITIONS = {"clock": "perf_counter", "cache": "hot", "machine": "a machine", "threads": 2}

TIMED = """
from pytest_torchprof.capture import devices
calls = []
@pytest.mark.torchprof(device="cpu", warmup=1, steps=2, tolerance={"time": 0.10})
def test_block():
    calls.append(1)
    torch.mm(x, x)
    devices.perf_counter_ns.pass_us(1000)
"""
LIVE = TIMED.replace("    devices.perf_counter_ns.pass_us(1000)\n", "")


class Clock:
    """A clock by which time passes only where the measured code says so: no machine is too slow or too busy for it."""

    def __init__(self):
        self._now_ns = 0
        self._varying = cycle([0.98, 1.0, 1.02, 0.99, 1.01])

    def __call__(self):
        return self._now_ns

    def pass_us(self, about):
        self._now_ns += round(about * 1000 * next(self._varying))


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Let samples be taken by that clock, in this process."""
    ours = Clock()
    monkeypatch.setattr(devices, "perf_counter_ns", ours)
    monkeypatch.setattr(samples, "perf_counter", lambda: ours() / 1e9)


def spread(middle, share=0.02, count=40):
    """Samples around a middle, from `share` below to as much above."""
    return [middle * (1 + share * (2 * i / (count - 1) - 1)) for i in range(count)]


def taken(*samples, confirmed=True, **conditions):
    return times({**CONDITIONS, **conditions}, samples, confirmed=confirmed)


def baseline_file(pytester):
    (path,) = pytester.path.rglob("__torchprof__/*.json")
    return path


def edit_times(pytester, change):
    """Rewrite the time of the one entry in the one baseline file."""
    path = baseline_file(pytester)
    data = json.loads(path.read_text())
    (entry,) = data["entries"].values()
    entry["time"] = change(entry["time"])
    path.write_text(json.dumps(data))


def edit_recording(pytester, change):
    """Rewrite what is ours in the one recording that was kept."""
    (path,) = (pytester.path / "kept").glob("*.json.gz")
    document = json.loads(gzip.decompress(path.read_bytes()))
    change(document["torchprof"])
    path.write_bytes(gzip.compress(json.dumps(document).encode()))


def scaled(factor):
    def change(time):
        return {
            **time,
            "median_us": time["median_us"] * factor,
            "quantiles_us": [value * factor for value in time["quantiles_us"]],
        }

    return change


def recorded(pytester):
    (path,) = (pytester.path / "kept").glob("*.json.gz")
    return json.loads(gzip.decompress(path.read_bytes()))["torchprof"]


# The rules


@pytest.mark.parametrize("sizes", [(8, 8), (8, 10), (9, 7)])
def test_the_rank_test_agrees_with_counting_all_orders(sizes):
    fewer, more = sizes
    total = fewer + more
    orders = [sum(places) for places in combinations(range(1, total + 1), more)]
    for highest in range(0, more + 1, 2):
        places = [*range(1, more - highest + 1), *range(total - highest + 1, total + 1)]
        exact = sum(order >= sum(places) for order in orders) / len(orders)
        others = [place for place in range(1, total + 1) if place not in places]
        assert chance(others, places) == pytest.approx(exact, abs=0.012)


def test_ranks_that_are_all_tied_differ_by_chance():
    assert chance([3.0] * 20, [3.0] * 20) == 1.0
    assert 0.4 < chance([1.0, 2.0] * 10, [1.0, 2.0] * 10) < 0.6


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (spread(1000), spread(1050), "same"),
        (spread(1000), spread(1200), "worse"),
        (spread(1200), spread(1000), "better"),
        (spread(20), spread(26), "same"),  # six microseconds are less than the clock's floor
        (spread(1000, share=0.5), spread(1150, share=0.5), "ambiguous"),
        (spread(1000), spread(1000)[:19] + spread(9000)[:21], "ambiguous"),
        (spread(1000)[:19] + spread(9000)[:21], spread(1200), "ambiguous"),  # it was busy when the baseline was taken
        (spread(1000), spread(1000)[:8] + spread(1300)[:32], "ambiguous"),  # a busy machine: as fast at its best
    ],
)
def test_slower_is_beyond_the_share_the_floor_the_rank_and_in_the_best_calls(old, new, said):
    assert time_verdict(taken(*old), taken(*new), 0.10) == said


def test_slower_once_is_ambiguous_until_it_is_measured_again():
    old, new = taken(*spread(1000)), taken(*spread(1300), confirmed=False)
    assert time_verdict(old, new, 0.10) == "ambiguous"
    assert unsure(old, new, 0.10)
    assert not unsure(None, new, 0.10)
    assert not unsure(taken(*spread(1000), threads=8), new, 0.10)


# As a user meets them


def test_without_a_time_tolerance_nothing_is_sampled(run_tests, pytester):
    source = TIMED.replace(', tolerance={"time": 0.10}', "") + "\ndef test_calls(): assert len(calls) == 3\n"
    run_tests(source, "--torchprof-save=kept").assert_outcomes(passed=2)
    assert "timing" not in recorded(pytester)


def test_samples_follow_the_profiled_steps_and_their_calls_are_counted(run_tests, pytester, monkeypatch):
    monkeypatch.setattr(devices, "perf_counter_ns", perf_counter_ns)
    monkeypatch.setattr(samples, "perf_counter", perf_counter)
    source = LIVE + "\ndef test_calls(): __import__('pathlib').Path('calls').write_text(str(len(calls)))\n"
    run_tests(source, "--torchprof-save=kept").assert_outcomes(passed=2)
    ours = recorded(pytester)
    (batch,) = ours["timing"]["batches"]
    assert len(batch["samples_us"]) >= 20
    assert min(batch["samples_us"]) > 0
    assert ours["calls"] == int((pytester.path / "calls").read_text()) == 1 + 2 + 3 + len(batch["samples_us"])
    assert ours["timing"]["clock"] == "perf_counter"


def test_off_and_baseline_false_sample_nothing(run_tests, pytester):
    run_tests(TIMED, "--torchprof-baseline=off", "--torchprof-save=kept").assert_outcomes(passed=1)
    assert "timing" not in recorded(pytester)
    run_tests(TIMED.replace("steps=2", "steps=2, baseline=False"), "--torchprof-save=kept").assert_outcomes(passed=1)
    assert "timing" not in recorded(pytester)


def test_the_baseline_keeps_a_summary_and_quantiles_of_two_batches(run_tests, pytester):
    run_tests(TIMED, "--torchprof-baseline=update", "--torchprof-save=kept").assert_outcomes(passed=1)
    assert len(recorded(pytester)["timing"]["batches"]) == 2
    (entry,) = json.loads(baseline_file(pytester).read_text())["entries"].values()
    time = entry["time"]
    assert time["samples"] >= 20
    assert len(time["quantiles_us"]) == QUANTILES
    assert time["quantiles_us"] == sorted(time["quantiles_us"])
    assert time["quantiles_us"][0] <= time["median_us"] <= time["quantiles_us"][-1]
    assert set(time["conditions"]) == {"cache", "clock", "machine", "threads"}


def test_a_second_update_leaves_times_that_hardly_moved(run_tests, pytester):
    times = []
    for _ in range(2):
        run_tests(TIMED.replace("0.10", "50.0"), "--torchprof-baseline=update").assert_outcomes(passed=1)
        times.append(json.loads(baseline_file(pytester).read_text())["entries"]["test_block"]["time"])
    assert times[0] == times[1]


def test_slower_code_fails_after_a_second_measurement_and_says_by_how_much(run_tests, pytester):
    run_tests(TIMED, "--torchprof-baseline=update")
    edit_times(pytester, scaled(0.01))
    result = run_tests(TIMED, "--torchprof-save=kept")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"{WORSE}*: time * -> * (+*%)", "*worse (+*% time)*failed*"])
    assert len(recorded(pytester)["timing"]["batches"]) == 2


def test_a_slowdown_is_found_and_as_fast_as_before_passes(run_tests):
    run_tests(TIMED, "--torchprof-baseline=update")
    run_tests(TIMED).assert_outcomes(passed=1)
    run_tests(TIMED.replace("1000", "1200")).assert_outcomes(failed=1)


def test_the_same_code_is_measured_once(run_tests, pytester):
    run_tests(TIMED, "--torchprof-baseline=update")
    edit_times(pytester, scaled(1.0))
    result = run_tests(TIMED.replace("0.10", "50.0"), "--torchprof-save=kept")
    result.assert_outcomes(passed=1)
    assert len(recorded(pytester)["timing"]["batches"]) == 1


def test_faster_code_passes_as_better(run_tests, pytester):
    run_tests(TIMED, "--torchprof-baseline=update")
    edit_times(pytester, scaled(100))
    result = run_tests(TIMED)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*better (-*% time)*passed*"])


def overlapping(time):
    return {**time, "median_us": 0.5, "quantiles_us": [*[0.1] * 10, *[1e9] * 10]}


def test_an_ambiguous_time_is_measured_again_and_passes_with_a_warning(run_tests, pytester):
    run_tests(TIMED, "--torchprof-baseline=update")
    edit_times(pytester, overlapping)
    result = run_tests(TIMED, "--torchprof-save=kept", "-W", "default")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*TorchprofWarning: *ambiguous*", "*ambiguous (+*% time)*passed*", "*do not tell*"])
    assert len(recorded(pytester)["timing"]["batches"]) == 2


def test_an_ambiguous_time_fails_under_strict(run_tests, pytester):
    run_tests(TIMED, "--torchprof-baseline=update")
    edit_times(pytester, overlapping)
    result = run_tests(TIMED, "--torchprof-baseline=strict")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{AmbiguousToBaseline('*')}*", "*do not tell*"])


def test_a_baseline_without_times_is_no_silent_pass(run_tests):
    run_tests(TIMED.replace(', tolerance={"time": 0.10}', ""), "--torchprof-baseline=update")
    result = run_tests(TIMED, "-W", "error")  # shown all the same, and no failure
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*ambiguous (time not compared*passed*", "*not compared: *--torchprof-baseline=update*"]
    )
    run_tests(TIMED, "--torchprof-baseline=strict").assert_outcomes(failed=1)


def test_times_under_other_conditions_are_not_compared(run_tests, monkeypatch):
    monkeypatch.setattr(samples, "_BUDGET_S", 0.02)  # Before each sample all of the cache is written.
    run_tests(TIMED, "--torchprof-baseline=update")
    result = run_tests(TIMED.replace("0.10", '0.10, "cache": "cold"'), "-W", "default")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*not compared: *cache hot*cache cold*"])


@pytest.mark.parametrize(
    ("kept", "shown"),
    [
        (SlowedDown(Brake.TEMPERATURE).to_plain(), str(SlowedDown(Brake.TEMPERATURE))),
        ("an earlier version's text", "an earlier version's text"),
    ],
)
def test_what_was_wrong_with_the_machine_is_shown(run_tests, pytester, kept, shown):
    run_tests(TIMED.replace("0.10", "50.0"), "--torchprof-baseline=update")
    edit_times(pytester, lambda time: {**time, "disturbed": [kept]})
    result = run_tests(TIMED.replace("0.10", "50.0"), "--torchprof-report=out.json")
    result.stdout.fnmatch_lines([f"*during *samples {shown}*"])
    (reported,) = json.loads((pytester.path / "out.json").read_text())["results"]
    assert reported["comparison"]["disturbed"] == [[kept], []]


@pytest.mark.parametrize("kept", [SlowedDown(Brake.TEMPERATURE).to_plain(), "an earlier version's text"])
def test_what_was_wrong_with_the_machine_is_read_from_a_recording(run_tests, pytester, kept):
    run_tests(TIMED.replace("0.10", "50.0"), "--torchprof-baseline=update", "--torchprof-save=kept")
    edit_recording(pytester, lambda ours: ours["timing"]["batches"][0].update(disturbed=[kept]))
    run_tests(TIMED.replace("0.10", "50.0"), "--torchprof-replay=kept", "--torchprof-report=out.json")
    (reported,) = json.loads((pytester.path / "out.json").read_text())["results"]
    assert reported["comparison"]["disturbed"] == [[], [kept]]
    assert reported["time"]["disturbed"] == [kept]


def test_where_nobody_tells_what_was_wrong_with_the_machine_that_is_said():
    with nvml.watched("GPU-that-is-not-there") as disturbances:
        (unknown,) = disturbances()
    assert isinstance(unknown, NothingKnown)


def test_a_kept_recording_is_judged_as_it_was_live(run_tests, pytester):
    run_tests(TIMED, "--torchprof-baseline=update")
    edit_times(pytester, scaled(0.01))
    run_tests(TIMED, "--torchprof-save=kept").assert_outcomes(failed=1)
    result = run_tests(TIMED, "--torchprof-replay=kept")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*time * -> * (+*%)*"])


def test_a_recording_measured_once_cannot_fail_against_another_baseline(run_tests, pytester):
    run_tests(TIMED, "--torchprof-save=kept").assert_outcomes(passed=1)
    run_tests(TIMED, "--torchprof-baseline=update")
    edit_times(pytester, scaled(0.01))
    result = run_tests(TIMED, "--torchprof-replay=kept", "-W", "default")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*not confirmed*"])


def test_a_recording_without_samples_is_not_measured(run_tests):
    run_tests(TIMED.replace(', tolerance={"time": 0.10}', ""), "--torchprof-save=kept")
    result = run_tests(TIMED, "--torchprof-replay=kept")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not measured: *[[]no-times]*", "FAILED *: not measured: *"])


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lambda ours: ours["timing"]["batches"][0].update(disturbed=None), RecordedWithoutTimes),
        (lambda ours: ours["timing"]["batches"][0]["samples_us"].append("fast"), RecordedWithoutTimes),
        (lambda ours: ours["timing"].update(batches=[]), NoSamplesHere),
        (lambda ours: ours.update(environment=None), NoSamplesHere),
    ],
)
def test_samples_that_are_damaged_are_not_measured(run_tests, pytester, damage, kind):
    run_tests(TIMED, "--torchprof-baseline=update", "--torchprof-save=kept")
    edit_recording(pytester, damage)
    result = run_tests(TIMED, "--torchprof-replay=kept", "--torchprof-report=out.json")
    result.assert_outcomes(failed=1)
    assert {type(reason) for reason in reasons_in(Path("out.json"))} == {kind}


def test_without_a_gpu_times_are_not_judged_and_not_sampled(run_tests, pytester):
    if __import__("torch").cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    result = run_tests(TIMED.replace('device="cpu", ', ""), "--torchprof-save=kept", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"*{NotJudgedOnCpu(('tolerance of time',))}*"])
    assert "timing" not in recorded(pytester)


def test_times_beside_other_workers_are_refused(run_tests):
    result = run_tests(LIVE, "-n", "2", "--torchprof-report=out.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=1)
    assert WorkersShareDevice(2) in reasons_in(Path("out.json"))
    result.stdout.fnmatch_lines(["*not measured: *", "*with -n 0*", "*[[]no-times]*"])
    run_tests(LIVE, "-n", "1").assert_outcomes(passed=1)


@pytest.mark.parametrize("setting", ["CUDA_LAUNCH_BLOCKING=1", "HIP_LAUNCH_BLOCKING=1", "AMD_SERIALIZE_KERNEL=3"])
def test_blocking_launches_make_times_meaningless(run_tests, monkeypatch, setting):
    monkeypatch.setenv(*setting.split("="))
    result = run_tests(TIMED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            f"torchprof: {setting}: counts are judged*",
            f"*tolerance={{*not measured: {setting} makes*",
            "FAILED *: not measured: *",
        ]
    )


def test_a_profiler_that_is_set_up_anew_for_each_recording_is_told_in_the_header(run_tests, monkeypatch):
    monkeypatch.setenv("TEARDOWN_CUPTI", "1")
    run_tests(TIMED).stdout.fnmatch_lines(["torchprof: TEARDOWN_CUPTI=1: the GPU's tracing is set up anew*"])


def test_a_step_too_long_to_sample_is_not_measured(run_tests, monkeypatch):
    monkeypatch.setattr("pytest_torchprof.capture.samples._LIMIT_S", 0.0)
    result = run_tests(TIMED)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not measured: *20 samples *", "*[[]no-times]*"])


def test_a_block_left_while_times_are_sampled_is_not_measured(run_tests):
    source = """
@pytest.mark.torchprof(device="cpu", warmup=0, steps=1, tolerance={"time": 0.10})
def test_left(torchprof):
    with torchprof.measure("a") as m:
        for i, _ in enumerate(m.steps()):
            if i == 10:
                break
"""
    result = run_tests(source)
    result.assert_outcomes(failed=1)
    assert StepsLeft("'a'", calls=11).sentence in result.stdout.str()


# The tolerance itself

TWO = TIMED.replace("torch.mm(x, x)", "torch.add(torch.mm(x, x), x)").replace('{"time": 0.10}', '{"kernels": 1}')


def test_a_tolerance_of_kernels_lets_so_many_more_pass(run_tests):
    run_tests(TIMED.replace('{"time": 0.10}', "{}"), "--torchprof-baseline=update")
    run_tests(TWO).assert_outcomes(passed=1)
    run_tests(TWO.replace("1}", "0}")).assert_outcomes(failed=1)


def test_the_ini_file_gives_a_tolerance_and_the_marker_wins(run_tests, pytester):
    pytester.makeini("[pytest]\ntorchprof_tolerance = time=0.10, kernels=1\n")
    run_tests(TIMED.replace(', tolerance={"time": 0.10}', ""), "--torchprof-baseline=update", "--torchprof-save=kept")
    assert "timing" in recorded(pytester)
    run_tests(TWO.replace(', tolerance={"kernels": 1}', "")).assert_outcomes(passed=1)
    run_tests(TWO.replace('{"kernels": 1}', "{}")).assert_outcomes(failed=1)


def test_an_ini_tolerance_that_cannot_be_used_stops_the_run(run_tests, pytester):
    pytester.makeini("[pytest]\ntorchprof_tolerance = tme=0.10\n")
    result = run_tests(TIMED)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "unknown tolerance 'tme'; did you mean 'time'?" in result.stderr.str() + result.stdout.str()


@pytest.mark.parametrize("text", ["=5", "kernels=1,kernels=2", "time=10"])
def test_an_ini_tolerance_that_can_be_misunderstood_stops_the_run(run_tests, pytester, text):
    pytester.makeini(f"[pytest]\ntorchprof_tolerance = {text}")
    result = run_tests(TIMED)
    assert result.ret == 4


def test_one_more_kernel_and_twice_as_many_are_not_a_point_apart(run_tests):
    assert run_tests(TWO.replace('{"kernels": 1}', '{"kernels": 1.0}')).ret == 4
