"""The times in a history: which commits made a test slower or faster, how sure that is, and what could not be seen."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import os
import random
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from facts import says, why_command_refused
from histories import H100, UPGRADED, launched, run_of, sha
from msgspec.structs import replace
from schema_checks import errors

from pytest_torchprof.baseline.entry import Times
from pytest_torchprof.cli import main
from pytest_torchprof.history.machines import machine_of
from pytest_torchprof.history.rank_test import least_share, one_sided
from pytest_torchprof.history.record import SUFFIX, MachineRecord, VaryingRecord, encode
from pytest_torchprof.history.steps import LARGEST_CHANCE, largest_chance, next_chance, one_per_process, steps_of
from pytest_torchprof.reasons.command_line import OptionTakes, WrongOption

pytestmark = pytest.mark.any_torch

TEST = "test_model.py::test_block"
FIVE = {"gemm bf16 tn": 4, "softmax": 1}
SIX = {**FIVE, "pointwise sigmoid": 1}


def kept(folder, runs):
    """Write records of runs into a folder, and return it."""
    folder.mkdir(exist_ok=True)
    for run in runs:
        (folder / f"{run.uuid}{SUFFIX}").write_bytes(encode(run))
    return folder


def scattered(count, seed=0, scatter=0.005):
    """Return factors that scatter as the times of processes do."""
    chosen = random.Random(seed)
    return [math.exp(chosen.gauss(0, scatter)) for _ in range(count)]


def timed(commit, us, kernels=FIVE, test=TEST, **facts):
    """Return a run in which one test kept the GPU busy for so long."""
    return run_of(commit, launched(test, kernels), varying=(VaryingRecord(numbers={"gpu_busy_us": us}),), **facts)


def stepped(step, at, count, **facts):
    """Return runs of as many commits, which take longer by a share from a commit on."""
    return [
        timed(commit, 100 * factor * (1 + step * (commit >= at)), **facts)
        for commit, factor in enumerate(scattered(count))
    ]


def changes(capsys, folder, *options, status=0):
    assert main(["history", "changes", str(folder), "--json", *options]) == status
    answer = json.loads(capsys.readouterr().out)
    assert errors("history", answer) == []
    return answer


def steps(capsys, folder, *options):
    return changes(capsys, folder, *options)["time_events"]


def shown(capsys, *options, status=0):
    assert main(["history", *map(str, options)]) == status
    return " ".join(capsys.readouterr().out.split())


# -------------------------------------------------------------------------------------------------- which steps there are


def test_a_long_history_is_read_by_several_processes_and_tells_the_same(tmp_path, capsys):
    """Of 240 records parts are read side by side; conditions of times and measurements have numbers of their own."""
    runs = []
    for commit, factor in enumerate(scattered(240)):
        kernels = FIVE if commit < 100 else SIX
        us = 200 * factor * (1 if commit < 150 else 1.1)
        time = Times(
            conditions={"clock": "events", "threads": 1 + commit % 2},
            samples=20,
            median_us=us,
            quantiles_us=(us,),
        )
        runs.append(
            run_of(
                commit,
                launched(TEST, kernels),
                launched("test_model.py::test_other", FIVE if commit % 7 else None),
                varying=(VaryingRecord(time=time), VaryingRecord(numbers={"gpu_busy_us": 50 * factor})),
            )
        )
    folder = kept(tmp_path, runs)
    damaged = folder / f"{'f' * 32}{SUFFIX}"
    damaged.write_bytes(b"no record")
    main(["history", "changes", str(folder), "--json"])
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert [(event["after"], event["came"]) for event in answer["events"]] == [(sha(100), {"pointwise sigmoid": 1})]
    points = {times["conditions"].get("threads"): times["points"] for times in answer["times"]}
    assert points == {1: 120, 2: 120, None: 240 - 35}
    assert {sha(150)} <= {commit for event in answer["time_events"] for commit in event["commits"]}
    assert {step["conditions"]["threads"] for event in answer["time_events"] for step in event["tests"]} == {1, 2}
    assert str(damaged) in err


@pytest.mark.skipif(sys.platform == "win32", reason="a console there tells processes by groups")
def test_ctrl_c_while_a_process_begins_to_read_is_the_commands_alone(tmp_path):
    kept(tmp_path / "history", stepped(0, 0, 240))
    script = tmp_path / "log.py"
    script.write_text(
        "import sys\nfrom pytest_torchprof.cli import main\nif __name__ == '__main__':\n    sys.exit(main())"
    )
    interrupted = (
        "import os, signal, sys\nif 'spawn_main' in ' '.join(sys.orig_argv): os.kill(os.getpid(), signal.SIGINT)"
    )
    (tmp_path / "early").mkdir()
    (tmp_path / "early" / "sitecustomize.py").write_text(interrupted)
    path = os.pathsep.join(filter(None, [str(tmp_path / "early"), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, str(script), "history", "changes", str(tmp_path / "history")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "240 runs of 240 commits" in ended.stdout


def test_a_step_is_called_at_its_commit_with_its_size_and_the_same_kernels(capsys, tmp_path):
    kept(tmp_path, stepped(0.1, 40, 80))
    (event,) = steps(capsys, tmp_path)
    assert (event["before"], event["after"], event["cause"]) == (sha(39), sha(40), "commit")
    (step,) = event["tests"]
    assert (step["test"], step["kernels"], step["state"]) == (TEST, "same kernels", "confirmed")
    assert step["share"] == pytest.approx(0.1, abs=0.005)
    assert (step["old_us"], step["new_us"]) == (pytest.approx(100, rel=0.005), pytest.approx(110, rel=0.005))
    assert step["chance"] < 1e-6


def test_a_test_that_became_faster_has_a_step_down(capsys, tmp_path):
    kept(tmp_path, stepped(-0.1, 40, 80))
    ((step,),) = (event["tests"] for event in steps(capsys, tmp_path))
    assert step["share"] == pytest.approx(-0.1, abs=0.005)


def test_steps_with_other_kernels_are_told_apart_and_can_be_bisected(capsys, tmp_path):
    runs = stepped(0.1, 40, 80)
    runs = [timed(at, run.varying[0].numbers["gpu_busy_us"], SIX if at >= 40 else FIVE) for at, run in enumerate(runs)]
    kept(tmp_path, [run for at, run in enumerate(runs) if at != 40])
    (event,) = steps(capsys, tmp_path)
    assert (event["cause"], event["commits"]) == ("range", [sha(40), sha(41)])
    assert event["tests"][0]["kernels"] == "other kernels"
    line = f"torchprof bisect --changed {TEST} --good {sha(39)[:12]} --bad {sha(41)[:12]}"
    assert shown(capsys, "changes", tmp_path).count(line) == 2


def test_times_that_only_scatter_have_no_step(capsys, tmp_path):
    kept(tmp_path, stepped(0, 0, 80))
    assert steps(capsys, tmp_path) == []
    assert "no step of the times" in shown(capsys, "changes", tmp_path)


def test_what_was_slow_in_single_runs_is_no_step(capsys, tmp_path):
    runs = [timed(at, 100 * factor * (1.5 if at % 17 == 5 else 1)) for at, factor in enumerate(scattered(90))]
    kept(tmp_path, runs)
    assert steps(capsys, tmp_path) == []


def test_a_slow_drift_is_no_step(capsys, tmp_path):
    kept(
        tmp_path,
        [timed(at, 100 * factor * 1.05 ** (at / 365)) for at, factor in enumerate(scattered(180, scatter=0.002))],
    )
    assert steps(capsys, tmp_path) == []


def test_a_step_that_was_taken_back_is_undone(capsys, tmp_path):
    runs = [timed(at, 100 * factor * (1.1 if 40 <= at < 60 else 1)) for at, factor in enumerate(scattered(100))]
    kept(tmp_path, runs)
    first, second = steps(capsys, tmp_path)
    assert (first["tests"][0]["state"], first["tests"][0]["undone_at"]) == ("undone", sha(60))
    assert second["tests"][0]["state"] == "confirmed"


def test_two_runs_of_a_commit_are_two_processes_and_nothing_recorded_may_have_changed(capsys, tmp_path):
    factors = scattered(60)
    same = [timed(0, 100 * factor * (1.1 if at >= 30 else 1)) for at, factor in enumerate(factors)]
    kept(tmp_path, [replace(run, uuid=f"{at:032x}") for at, run in enumerate(same)])
    (event,) = steps(capsys, tmp_path)
    assert (event["cause"], event["before"], event["after"]) == ("none", sha(0), sha(0))
    assert "between runs of this commit" in shown(capsys, "changes", tmp_path)


# ------------------------------------------------------------------------------------- what is compared with what


def test_runs_of_two_machines_are_never_compared(capsys, tmp_path):
    machines = [MachineRecord(digest=digit * 16, gpu="NVIDIA H100 80GB HBM3") for digit in "ab"]
    chosen = random.Random(1)
    # The slower machine takes all of the later runs.
    on = [int(at > 60 or chosen.random() < 0.1) for at in range(120)]
    runs = [
        timed(at, 100 * factor * (1 + 0.2 * on[at]), machine=machines[on[at]])
        for at, factor in enumerate(scattered(120))
    ]
    kept(tmp_path, runs)
    answer = changes(capsys, tmp_path)
    assert answer["time_events"] == []
    assert sorted((own["machine"], own["points"]) for own in answer["times"]) == [
        ("a" * 16, on.count(0)),
        ("b" * 16, on.count(1)),
    ]
    as_one = kept(tmp_path / "one", [replace(run, machine=machines[0]) for run in runs])
    assert steps(capsys, as_one)


def test_versions_side_by_side_are_not_compared_and_an_upgrade_is_a_step(capsys, tmp_path):
    factors = scattered(120)
    matrix = [
        timed(at // 2, 100 * factor * (1 + 0.1 * (at % 2)), environment=(UPGRADED if at % 2 else H100))
        for at, factor in enumerate(factors)
    ]
    assert steps(capsys, kept(tmp_path / "matrix", matrix)) == []
    upgrade = [
        timed(at, 100 * factor * (1 + 0.1 * (at >= 60)), environment=(UPGRADED if at >= 60 else H100))
        for at, factor in enumerate(factors)
    ]
    (event,) = steps(capsys, kept(tmp_path / "upgrade", upgrade))
    assert (event["cause"], event["moved"]) == ("undecidable", {"torch": ["2.14.0", "2.15.0"]})


def test_the_untraced_time_is_taken_where_there_is_one_and_other_conditions_are_not_compared(capsys, tmp_path):
    runs = []
    for at, factor in enumerate(scattered(90)):
        us = 50 * factor * (1.2 if at >= 45 else 1)
        time = Times(
            conditions={"clock": "events", "threads": 1 if at < 45 else 2},
            samples=20,
            median_us=us,
            quantiles_us=(us,),
        )
        varying = VaryingRecord(numbers={"gpu_busy_us": 100.0 + at}, time=time)
        runs.append(run_of(at, launched(TEST, FIVE), varying=(varying,)))
    answer = changes(capsys, kept(tmp_path, runs))
    assert answer["time_events"] == []
    assert [(own["number"], own["conditions"]["threads"], own["points"]) for own in answer["times"]] == [
        ("time", 1, 45),
        ("time", 2, 45),
    ]
    assert answer["times"][0]["segments"][0]["median_us"] == pytest.approx(50, rel=0.01)


def test_times_of_one_process_count_as_one():
    assert one_per_process([1.0, 2.0, 9.0, 4.0], "abaa") == [4.0, 2.0]


@pytest.mark.parametrize("unusable", [{}, {"gpu_busy_us": 0.0}, {"gpu_busy_us": -1.0}])
def test_a_time_that_is_not_known_is_no_point(capsys, tmp_path, unusable):
    runs = stepped(0.1, 40, 80)
    runs[20] = replace(runs[20], varying=(VaryingRecord(numbers=unusable),))
    answer = changes(capsys, kept(tmp_path, runs))
    assert [own["points"] for own in answer["times"]] == [79]
    assert [event["after"] for event in answer["time_events"]] == [sha(40)]


def test_the_same_commits_in_many_tests_are_one_event_of_what_their_ranges_have_in_common(capsys, tmp_path):
    factors = scattered(80), scattered(80, seed=1)
    runs = []
    for at in range(80):
        # Each test misses other runs around the step at 40.
        own = [name for name, missing in (("a", (40, 41)), ("b", (38, 39))) if at not in missing]
        measured = [launched(f"test_m.py::test_{name}", FIVE) for name in own]
        us = [100 * factors[name == "b"][at] * (1.1 if at >= 40 else 1) for name in own]
        varying = tuple(VaryingRecord(numbers={"gpu_busy_us": value}) for value in us)
        runs.append(run_of(at, *measured, varying=varying))
    (event,) = steps(capsys, kept(tmp_path, runs))
    assert [step["test"] for step in event["tests"]] == ["test_m.py::test_b", "test_m.py::test_a"]
    assert (event["commits"], event["cause"]) == ([sha(40)], "commit")


# --------------------------------------------------------------------------------------- what could be shown, and exits


def test_each_series_says_how_small_a_step_it_could_show(capsys, tmp_path):
    kept(tmp_path / "calm", stepped(0, 0, 80))
    kept(tmp_path / "rough", [timed(at, 100 * factor) for at, factor in enumerate(scattered(80, scatter=0.02))])
    calm, rough = (changes(capsys, tmp_path / name)["times"][0]["smallest_step"] for name in ("calm", "rough"))
    assert 0.004 < calm < 0.02 < rough < 0.06
    assert f"smallest step that could be shown: {100 * calm:.1f}%" in shown(capsys, "log", tmp_path / "calm", TEST)
    assert f"could show is {100 * rough:.1f}%" in shown(capsys, "changes", tmp_path / "rough")
    # Twice as much is found.
    twice = [timed(at, 100 * f * (1 + 2 * rough * (at >= 40))) for at, f in enumerate(scattered(80, scatter=0.02))]
    assert len(steps(capsys, kept(tmp_path / "twice", twice))) == 1


def test_a_series_that_is_too_short_says_how_many_runs_it_needs(capsys, tmp_path):
    kept(tmp_path, stepped(0.5, 5, 10))
    answer = changes(capsys, tmp_path)
    assert answer["time_events"] == []
    (own,) = answer["times"]
    assert own["smallest_step"] is None
    needed = own["runs_needed"]
    assert f"no step could be shown yet: 10 of at least {needed} runs" in shown(capsys, "log", tmp_path, TEST)
    assert "1 series is too short" in shown(capsys, "changes", tmp_path)
    kept(tmp_path / "long", stepped(0.5, needed // 2, needed))
    assert changes(capsys, tmp_path / "long")["time_events"]


def test_a_log_has_the_times_of_each_stretch(capsys, tmp_path):
    kept(tmp_path, stepped(0.1, 40, 80))
    text = shown(capsys, "log", tmp_path, TEST)
    assert f"{sha(0)[:7]}..{sha(39)[:7]} 2026-01-01 40 99.9 us" in text
    assert f"{sha(40)[:7]}..{sha(79)[:7]} 2026-02-10 40 110 us" in text
    assert "(+10." in text


def test_nothing_fails_by_times_unless_that_is_asked_for(capsys, tmp_path):
    kept(tmp_path, stepped(0.1, 40, 80))
    assert steps(capsys, tmp_path)
    changes(capsys, tmp_path, "--fail-on", "counts")
    changes(capsys, tmp_path, "--fail-on", "times", status=1)
    changes(capsys, tmp_path, "--fail-on", "counts,times", status=1)
    assert changes(capsys, tmp_path, "--fail-on", "times", "--since", "2027-01-01")["time_events"] == []


def test_a_gate_by_times_passes_steady_ones_and_cannot_tell_of_short_or_unfinished_ones(capsys, tmp_path):
    changes(capsys, kept(tmp_path / "steady", stepped(0, 0, 80)), "--fail-on", "times")
    changes(capsys, kept(tmp_path / "short", stepped(0, 0, 10)), "--fail-on", "times", status=3)
    lost = run_of(80, launched(TEST, None), varying=(VaryingRecord(),))
    kept(tmp_path / "steady", [lost])
    changes(capsys, tmp_path / "steady", "--fail-on", "times", status=3)


def test_what_else_than_counts_and_times_may_fail_is_refused(tmp_path):
    refused = why_command_refused("history", "changes", str(tmp_path), "--fail-on", "time")
    assert says(refused, WrongOption, option="--fail-on", value="time", expected=OptionTakes.JUDGED)


# ------------------------------------------------------------------------------------------------------- the statistics


@pytest.mark.parametrize(("lower", "higher"), [(3, 3), (3, 5), (4, 4), (6, 2)])
def test_the_rank_test_counts_all_orders(lower, higher):
    values = range(lower + higher)
    splits = list(itertools.combinations(values, higher))

    def pairs(chosen):
        return sum(value > other for value in chosen for other in values if other not in chosen)

    for chosen in splits:
        others = [value for value in values if value not in chosen]
        as_far = sum(pairs(split) >= pairs(chosen) for split in splits) / len(splits)
        assert one_sided(others, chosen) == pytest.approx(as_far)


def test_equal_values_never_make_a_difference_clearer():
    assert one_sided([1, 1, 1, 1], [1, 1, 1, 1]) == 1
    assert one_sided([1, 1, 2], [2, 3, 3]) >= one_sided([1, 1, 2], [2.5, 3, 3])


def test_the_least_share_is_where_both_sides_together_reach_the_chance():
    # Of 20 orders of three and three values, two are as clear as can be.
    assert least_share(3, 3, 0.1) == 1
    assert least_share(3, 3, 0.099) is None


def test_a_chance_has_to_be_smaller_among_more_series():
    assert largest_chance([1e-5]) == LARGEST_CHANCE
    assert largest_chance([1e-5, *[1.0] * 999]) == pytest.approx(0.05 / 1000)
    assert largest_chance([1e-4, *[1.0] * 999]) == 0
    # The more of them have a step, the less does another one need: Benjamini and Hochberg.
    assert largest_chance([1e-5, 9e-5, *[1.0] * 998]) == pytest.approx(0.1 / 1000)
    assert next_chance([1e-5, *[1.0] * 999]) == pytest.approx(0.1 / 1000)
    # Where no series is long enough yet, the first one that is will be alone.
    assert next_chance([]) == LARGEST_CHANCE


def test_no_side_of_a_step_has_fewer_than_three_processes():
    values = [math.log(factor) for factor in scattered(2000)]
    for at in (1997, 1998, 1999):
        assert steps_of([*values[:at], *[9.0] * (2000 - at)]).steps == ()


def test_equal_times_with_a_step_have_that_step():
    (step,) = steps_of([1.0] * 40 + [1.1] * 8).steps
    assert (step.earliest, step.at, step.latest) == (40, 40, 40)


def test_no_times_have_no_steps():
    for count in range(8):
        assert steps_of([1.0] * count).steps == ()
        assert steps_of([1.0] * count).smallest(LARGEST_CHANCE) is None


# ------------------------------------------------------------------------------------------ series of known truth, small


@pytest.fixture(scope="module")
def time_steps():
    """The program whose large table is in docs/history.md."""
    file = Path(__file__).parents[1] / "benchmarks" / "time_steps.py"
    spec = importlib.util.spec_from_file_location("time_steps", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


KINDS = (
    "steady, 1 %",
    "two modes, 2 % apart",
    "outliers, 1 run in 20",
    "drift, 5 % a year",
    "two machines, 10 % apart",
    "in steps of 2 %",
    "all of these",
)


@pytest.mark.parametrize("kind", KINDS)
def test_series_of_known_truth_have_no_false_step_and_nearly_all_of_twice_the_smallest(time_steps, kind):
    assert set(time_steps.KINDS) == set(KINDS)
    came = time_steps.watched(time_steps.KINDS[kind], Namespace(series=12, months=1, runs_a_day=2), share=0.5)
    assert came.false_alarms == 0
    assert came.planted >= 3
    # 95 % of many are found, and of so few all but one.
    assert came.hits >= came.planted - 1
    assert came.named >= 0.85 * came.hits


def test_the_log_is_of_one_machine_and_since_a_day_where_that_is_asked_for(capsys, tmp_path):
    runs = [
        timed(
            at,
            us * factor,
            kernels=FIVE if at < 50 else SIX,
            uuid=f"{2 * at + number:032x}",
            machine=MachineRecord(digest=str(number) * 16, gpu=H100.gpu),
        )
        for number, us in enumerate((100, 300))
        for at, factor in enumerate(scattered(60, seed=number))
    ]
    folder = kept(tmp_path, runs)
    log = shown(capsys, "log", folder, TEST)
    assert all(f"on machine {digit * 8}" in log for digit in "01")
    one_machine = shown(capsys, "log", folder, TEST, "--machine", "1111")
    assert "on machine 11111111" in one_machine
    assert "on machine 00000000" not in one_machine
    assert shown(capsys, "log", folder, TEST, "--machine", "machine 11111111") == one_machine
    assert shown(capsys, "log", folder, TEST, "--machine", "h100") == log
    # Of the stretch before the change only the runs of the last days are counted.
    late = shown(capsys, "log", folder, TEST, "--since", "2026-02-18")
    assert f"{sha(48)[:7]}..{sha(49)[:7]} 2026-02-18 4 5" in late
    assert f"{sha(50)[:7]}, after {sha(49)[:7]}" in late
    later = shown(capsys, "log", folder, TEST, "--since", "2026-02-21")
    assert "after" not in later.split("smallest step")[0]
    assert f"{sha(51)[:7]}..{sha(59)[:7]} 2026-02-21 18 6" in later
    assert "no run that is asked for" in shown(capsys, "log", folder, TEST, "--since", "2027-01-01")
    assert main(["history", "log", str(folder), TEST, "--machine", "MI300"]) == 2
    assert "NVIDIA H100 80GB HBM3, machine 00000000, machine 11111111 [no-history]" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------- what people say of a step


def test_a_step_that_is_accepted_no_longer_fails_though_later_runs_narrow_it(capsys, tmp_path):
    runs = stepped(0.1, 40, 80)
    folder = kept(tmp_path, [run for at, run in enumerate(runs[:60]) if at % 2])
    failing = ["changes", folder, "--fail-on=times"]
    shown(capsys, *failing, status=1)
    ((early,),) = [steps(capsys, folder)]
    assert "known from now on, in 1 test" in shown(capsys, "accept", folder, early["id"][:8], "the new loader")
    assert "known: the new loader" in shown(capsys, *failing)
    kept(folder, runs)
    ((late,),) = [steps(capsys, folder)]
    assert late["id"] != early["id"]
    assert (early["accepted"], late["accepted"]) == (None, "the new loader")
    assert "known: the new loader" in shown(capsys, *failing)
    assert "known: the new loader" in shown(capsys, "log", folder, TEST)


def test_another_test_or_another_direction_or_another_time_is_not_accepted_with_a_step(capsys, tmp_path):
    folder = kept(tmp_path, stepped(0.1, 40, 80))
    (step,) = steps(capsys, folder)
    shown(capsys, "accept", folder, step["id"], "meant")
    back = [timed(at, 100 * factor, test=TEST) for at, factor in enumerate(scattered(140, seed=3))]
    kept(folder, [replace(run, uuid=f"{at:032x}") for at, run in enumerate(back) if at >= 80])
    there, and_back = steps(capsys, folder)
    assert (there["accepted"], and_back["accepted"]) == ("meant", None)
    shown(capsys, "changes", folder, "--fail-on=times", status=1)
    other = [
        timed(at, 70 * factor * (1 + 0.1 * (at >= 40)), test="test_m.py::test_other")
        for at, factor in enumerate(scattered(80, 5))
    ]
    both = kept(
        tmp_path / "both", [*stepped(0.1, 40, 80), *(replace(run, uuid=f"{at:032x}") for at, run in enumerate(other))]
    )
    (alone,) = (note for note in folder.glob("*.note.json"))
    (both / alone.name).write_bytes(alone.read_bytes())
    (event,) = steps(capsys, both)
    assert len(event["tests"]) == 2
    assert event["accepted"] is None
    out = shown(capsys, "changes", both)
    assert out.count("same kernels; known: meant") == out.count("known:") == 1


def test_a_step_stays_accepted_though_its_test_is_renamed_later(capsys, tmp_path):
    new = "test_new.py::test_block"
    runs = stepped(0.1, 40, 80)
    folder = kept(tmp_path, runs)
    (step,) = steps(capsys, folder)
    shown(capsys, "accept", folder, step["id"], "meant")
    kept(folder, [timed(80 + at, 110 * factor, test=new) for at, factor in enumerate(scattered(20, seed=4))])
    shown(capsys, "alias", folder, TEST, new)
    (step,) = steps(capsys, folder)
    assert [own["test"] for own in step["tests"]] == [new]
    assert step["accepted"] == "meant"


def test_a_remark_on_a_step_stays_with_it(capsys, tmp_path):
    runs = stepped(0.1, 40, 80)
    folder = kept(tmp_path, [run for at, run in enumerate(runs) if at % 2])
    (step,) = steps(capsys, folder)
    assert f"event {step['id'][:8]}: noted" in shown(capsys, "note", folder, step["id"][:8], "seen by the team")
    kept(folder, runs)
    (step,) = steps(capsys, folder)
    assert step["remarks"] == ["seen by the team"]
    assert "note: seen by the team" in shown(capsys, "changes", folder)
    shown(capsys, "note", folder, step["commits"][0], "a slow day")
    assert "note: a slow day" in shown(capsys, "changes", folder)


@pytest.mark.parametrize("first", [False, True], ids=["now-and-then", "always"])
def test_the_machine_of_a_time_is_that_of_its_own_gpu_whichever_test_of_a_host_with_two_ran_first(
    tmp_path, capsys, first
):
    """A run names its environments in the order of its tests."""
    other = replace(H100, gpu="NVIDIA A100-SXM4-80GB")
    runs = []
    for commit, (factor, beside) in enumerate(zip(scattered(60), scattered(60, seed=1), strict=True)):
        own = timed(commit, 100 * factor * (1.1 if commit >= 40 else 1))
        measured = own.measurements[0]
        rows = [(H100, measured, own.varying[0])]
        rows.append((other, replace(measured, test="test_a100"), VaryingRecord(numbers={"gpu_busy_us": 50 * beside})))
        rows = rows[::-1] if first or commit % 2 else rows
        environments = tuple(environment for environment, _, _ in rows)
        runs.append(
            replace(
                own,
                environments=environments,
                measurements=tuple(replace(row, environment=at) for at, (_, row, _) in enumerate(rows)),
                varying=tuple(row for _, _, row in rows),
                machine=MachineRecord(digest=str(commit % 2) * 16, gpu=environments[0].gpu),
            )
        )
    answer = changes(capsys, kept(tmp_path, runs))
    assert [times["points"] for times in answer["times"]] == [60, 60]
    assert len({times["machine"] for times in answer["times"]}) == 2
    ((step,),) = [event["tests"] for event in answer["time_events"]]
    assert (step["test"], sha(40) in answer["time_events"][0]["commits"]) == (TEST, True)


def test_the_machine_of_a_run_is_the_same_whichever_of_its_gpus_was_measured_first():
    environments = (H100, replace(H100, gpu="NVIDIA A100-SXM4-80GB", driver="1"))
    assert machine_of(environments) == machine_of(environments[::-1])


def test_the_machine_of_a_test_on_the_cpu_does_not_hang_on_whether_a_gpu_was_measured_beside_it(tmp_path, capsys):
    """Each third run has a test on the GPU too, whose own times are those of the machine as a whole."""
    host = replace(H100, cpu="AMD EPYC", driver="580.1")
    on_cpu = replace(host, gpu=None, driver=None)
    runs = []
    for commit, (factor, beside) in enumerate(zip(scattered(60), scattered(60, seed=1), strict=True)):
        own = timed(commit, 100 * factor * (1.1 if commit >= 40 else 1), environment=on_cpu)
        rows = [(on_cpu, replace(own.measurements[0], device="cpu"), own.varying[0])]
        if commit % 3 == 0:
            on_gpu = replace(own.measurements[0], test="test_gpu")
            rows.append((host, on_gpu, VaryingRecord(numbers={"gpu_busy_us": 50 * beside})))
        environments = tuple(environment for environment, _, _ in rows)
        runs.append(
            replace(
                own,
                environments=environments,
                measurements=tuple(replace(row, environment=at) for at, (_, row, _) in enumerate(rows)),
                varying=tuple(row for _, _, row in rows),
                machine=machine_of(environments),
            )
        )
    answer = changes(capsys, kept(tmp_path, runs))
    machines = {times["test"]: (times["machine"], times["points"]) for times in answer["times"]}
    assert machines == {TEST: (machine_of([on_cpu]).digest, 60), "test_gpu": (machine_of([host]).digest, 20)}
    ((step,),) = [event["tests"] for event in answer["time_events"]]
    assert (step["test"], sha(40) in answer["time_events"][0]["commits"]) == (TEST, True)
