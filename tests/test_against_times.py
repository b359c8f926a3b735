"""`pytest --torchprof-against REF` compares times by pairs of processes; what they say is decided by exact statistics."""

from __future__ import annotations

import json
import math
import re
import tracemalloc
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replaced
from repository import Repository

from pytest_torchprof.against.pairs import PairCosts, PairedTiming, Reading, TimedMeasurement
from pytest_torchprof.against.side import Side
from pytest_torchprof.compare.pace import LEAST_PAIRS, MOST_PAIRS, TimedPairs, TimePair, slowdown
from pytest_torchprof.compare.paired import chance_of_sum, hodges_lehmann, interval
from pytest_torchprof.reasons.commits_asked import NoCommitNamed
from pytest_torchprof.reasons.commits_measured import NoBudget, NoShareOfTime
from pytest_torchprof.reasons.comparing import SideName
from pytest_torchprof.reasons.timing import (
    BudgetForTooFewPairs,
    OtherConditions,
    PairsUndecided,
    ProcessWithoutTest,
    StepTooShort,
)
from pytest_torchprof.reasons.whole_runs import TimesNotCompared
from pytest_torchprof.report import Reference
from pytest_torchprof.report.account import FromReport
from pytest_torchprof.report.result import Outcome, Result
from pytest_torchprof.testing.timed_results import with_times

pytestmark = pytest.mark.any_torch

# Hollander and Wolfe, Nonparametric Statistical Methods (1973), table 3.1, and what R's wilcox.test says of it.
BEFORE = (1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30)
AFTER = (0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29)
differences = st.lists(st.integers(-50, 50).filter(bool), min_size=2, max_size=9)


def test_the_middle_and_its_interval_are_those_of_the_textbook():
    moved = [before - after for before, after in zip(BEFORE, AFTER, strict=True)]
    assert hodges_lehmann(moved) == pytest.approx(0.46)
    assert interval(moved) == pytest.approx((0.01, 0.786), abs=5e-4)


@given(differences)
def test_the_chance_of_a_sum_counts_all_ways_to_throw_the_signs(values):
    ways = [sum(signs[at] * value for at, value in enumerate(values)) for signs in product((1, -1), repeat=len(values))]
    assert chance_of_sum(values) == sum(way >= sum(values) for way in ways) / len(ways)


def test_as_many_pairs_as_there_are_with_those_that_confirm_take_no_memory_to_speak_of():
    """By all ways one after the other, 30 pairs took 20 GB, and the system ended the run."""
    tracemalloc.start()
    try:
        assert chance_of_sum([1.0] * 22) == 2**-22
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert chance_of_sum([1.0] * 2 * MOST_PAIRS) == 2.0 ** (-2 * MOST_PAIRS)


@given(differences)
def test_the_interval_leaves_out_at_most_one_in_twenty_throws_of_signs(values):
    """An interval that misses 0 belongs to differences whose signed ranks are rare; ties widen it."""
    values = [value + at / 1000 for at, value in enumerate(values)]
    low, high = interval(values)
    ranks = {value: rank for rank, value in enumerate(sorted(values, key=abs), 1)}
    positive = sum(rank for value, rank in ranks.items() if value > 0)
    sums = [
        sum(rank for rank, taken in zip(ranks.values(), way, strict=True) if taken)
        for way in product((0, 1), repeat=len(values))
    ]
    rarer = min(sum(one <= positive for one in sums), sum(one >= positive for one in sums)) / len(sums)
    if len(values) >= 6:
        assert (low > 0 or high < 0) == (rarer <= 0.025)
    assert low <= hodges_lehmann(values) <= high


def pairs(*shares: float, bases: tuple[float, ...] = (1.0,)) -> list[TimePair]:
    """Return pairs whose working tree takes so much longer than the commit."""
    return [TimePair(bases[at % len(bases)], bases[at % len(bases)] * (1 + share)) for at, share in enumerate(shares)]


def pace_of(taken: list[TimePair]) -> TimedPairs:
    pace = TimedPairs(allowed=0.10)
    for pair in taken:
        assert pace.wanting
        pace = pace.with_pair(pair)
    return pace


CLEAR = (0.21, 0.18, 0.22, 0.20, 0.19, 0.23, 0.20)
EVEN = (0.01, -0.02, 0.03, 0.0, -0.01, 0.02, 0.01)
WIDE = (0.4, -0.2, 0.3, 0.1, -0.1, 0.35, 0.0)


def test_slower_code_is_worse_once_fresh_pairs_confirm_it():
    first = pace_of(pairs(*CLEAR))
    assert (first.verdict, first.wanting) == ("ambiguous", LEAST_PAIRS)
    assert (pace_of(pairs(*CLEAR, *CLEAR)).verdict, pace_of(pairs(*CLEAR, *CLEAR)).wanting) == ("worse", 0)


def test_what_fresh_pairs_do_not_confirm_is_ambiguous():
    doubted = pace_of(pairs(*CLEAR, *EVEN, *EVEN, 0.0))
    assert (doubted.verdict, doubted.wanting) == ("ambiguous", 0)
    assert len(doubted.pairs) == LEAST_PAIRS


@pytest.mark.parametrize(("shares", "verdict"), [(EVEN, "same"), ([-share for share in CLEAR], "better")])
def test_what_is_clear_is_decided_by_the_fewest_pairs(shares, verdict):
    pace = pace_of(pairs(*shares))
    assert (pace.verdict, pace.wanting) == (verdict, 0)


def test_what_stays_open_takes_the_most_pairs_and_is_ambiguous():
    pace = pace_of(pairs(*WIDE, *WIDE, 0.2))
    assert (pace.verdict, pace.wanting, len(pace.pairs)) == ("ambiguous", 0, MOST_PAIRS)


PASSED = Result(nodeid="test_it.py::test_it", label=None, outcome=Outcome.PASSED, time_share=0.1)


@pytest.fixture
def side(tmp_path):
    return Side(
        **dict.fromkeys(("is_base", "own_tests", "keeps_recordings"), False),
        **dict.fromkeys(("tree", "other", "caches", "results"), tmp_path),
        reference=Reference(ref="main", sha="a" * 40, dirty=False),
        roots=(),
        starter=1,
    )


@pytest.mark.parametrize("outcome", [Outcome.PASSED, Outcome.FAILED])
def test_times_that_fail_a_test_are_shown_once(side, outcome):
    """By its failure; where the test had failed before, and that was shown already, by the section at the end."""
    measured = TimedMeasurement(pace=pace_of(pairs(*CLEAR, *CLEAR)))
    told = with_times(
        replaced(PASSED, outcome=outcome, account=(FromReport("missed"),)), measured, side, seed=1, budget_s=60
    )
    time = told.against_time
    assert (told.outcome, time.verdict, time.fails) == (Outcome.FAILED, "worse", True)
    assert told.message.endswith(time.failure("main (aaaaaaa)"))
    if outcome is Outcome.PASSED:
        assert (told.change_lines, told.message.startswith("missed")) == ((), False)
    else:
        assert told.change_lines == (*time.lines, f"  do: {time.remedy}")
        assert told.message.startswith("missed")


def test_equal_times_are_shown_only_where_everything_is(side):
    told = with_times(PASSED, TimedMeasurement(pace=pace_of(pairs(*EVEN))), side, seed=1, budget_s=60)
    assert (told.decided_lines(), told.varied_lines) == ((), told.against_time.lines)


@pytest.mark.parametrize(("shares", "is_failure"), [((*WIDE, *WIDE, 0.2), True), (EVEN, False)])
def test_what_stays_open_can_fail(side, shares, is_failure):
    measured = TimedMeasurement(pace=pace_of(pairs(*shares)))
    assert not with_times(PASSED, measured, side, seed=1, budget_s=math.inf).outcome.is_failure
    told = with_times(PASSED, measured, replace(side, ambiguous_fails=True), seed=1, budget_s=math.inf)
    assert told.outcome.is_failure == is_failure
    assert told.against_time.fails == is_failure
    assert (told.against_time.reason == PairsUndecided(0.1)) == is_failure
    assert told.message == (told.against_time.failure("main (aaaaaaa)") if is_failure else "")


def test_fewer_than_the_fewest_pairs_decide_nothing():
    assert pace_of(pairs(*CLEAR[:6])).wanting == 1


def test_a_slowdown_within_what_the_same_code_differs_by_is_none():
    calm, restless = pairs(*CLEAR), pairs(*CLEAR, bases=(1.0, 1.5))
    assert slowdown(tuple(calm)).exceeds(0.10)
    found = slowdown(tuple(restless))
    assert found.floor == pytest.approx(0.5)
    assert found.share == pytest.approx(slowdown(tuple(calm)).share)
    assert not found.exceeds(0.10)


def test_a_slowdown_within_the_tolerance_is_none():
    pace = pace_of(pairs(*(share / 4 for share in CLEAR)))
    assert pace.verdict == "same"
    assert slowdown(pace.pairs).chance == 1 / 128


def reading(us: float, kernel_us: float | None = None, **conditions: object) -> Reading:
    return Reading(us, kernel_us, {"clock": "perf_counter", **conditions}, ())


BOOM = ProcessWithoutTest(SideName(), 1, "it failed: boom")


class Machine:
    """Two processes at once cost their start and their tests; what they say is given."""

    def __init__(self, **said) -> None:
        self.said = said
        self.now_s = 0.0
        self.turns = []

    def clock(self) -> float:
        return self.now_s

    def take(self, keys):
        self.turns.append([nodeid for nodeid, _ in keys])
        self.now_s += 2 * (1.0 + len(keys))
        base = {key: reading(100.0) for key in keys}
        return base, {key: self.said[key[0]](len(self.turns)) for key in keys}

    def timing(self, budget_s: float = math.inf) -> PairedTiming:
        taken = PairedTiming(
            measurements={(name, None): TimedMeasurement(pace=TimedPairs(allowed=0.10)) for name in self.said},
            costs=PairCosts(start_s=1.0, test_s=dict.fromkeys(self.said, 1.0)),
            budget_s=budget_s,
            clock=self.clock,
        )
        while keys := taken.next_keys():
            taken.take(self.take, keys)
        return taken


def same(turn):
    return reading(100.0 + turn % 3)


def slower(turn):
    return reading(130.0 + turn % 3)


def test_all_tests_share_processes_and_those_that_are_decided_leave_them():
    machine = Machine(slower=slower, same=same)
    taken = machine.timing()
    assert machine.turns == [["slower", "same"]] * 7 + [["slower"]] * 7
    assert [one.pace.verdict for one in taken.measurements.values()] == ["worse", "same"]


def test_a_budget_is_for_as_many_tests_as_the_fewest_pairs_of_fit():
    machine = Machine(first=same, second=same, third=same)
    taken = machine.timing(budget_s=7 * 6)
    assert {key[0]: len(one.pace.pairs) for key, one in taken.measurements.items()} == {
        "first": 7,
        "second": 7,
        "third": 0,
    }
    assert taken.spent_s <= 7 * 6


def test_a_budget_that_is_spent_before_a_slowdown_is_confirmed_leaves_it_open():
    machine = Machine(slower=slower)
    (one,) = machine.timing(budget_s=7 * 4 + 7 * 4 - 1).measurements.values()
    assert (one.pace.verdict, len(one.pace.pairs), len(one.pace.fresh)) == ("ambiguous", 7, 0)


def test_processes_that_are_slower_than_expected_are_not_begun_beyond_the_budget():
    machine = Machine(one=same, other=same)
    whole = machine.take
    machine.take = lambda keys: (setattr(machine, "now_s", machine.now_s + 3 * len(keys)), whole(keys))[1]
    taken = machine.timing(budget_s=7 * 9)
    assert {key[0]: len(one.pace.pairs) for key, one in taken.measurements.items()} == {"one": 7, "other": 1}
    assert taken.spent_s <= 7 * 9


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (lambda _turn: BOOM, BOOM),
        (
            lambda _turn: reading(100.0, threads=1),
            OtherConditions((("clock", "perf_counter"),), (("clock", "perf_counter"), ("threads", 1))),
        ),
        (lambda _turn: reading(0.0), StepTooShort()),
    ],
)
def test_a_test_whose_processes_fail_is_given_up(said, reason):
    machine = Machine(broken=said, same=same)
    taken = machine.timing()
    broken = taken.measurements["broken", None]
    assert broken.lost == (reason, reason)
    assert (broken.pace.pairs, broken.wanting) == ((), 0)
    assert machine.turns == [["broken", "same"]] * 2 + [["same"]] * 5


def test_one_process_that_fails_costs_a_pair():
    machine = Machine(once=lambda turn: BOOM if turn == 3 else same(turn))
    (one,) = machine.timing().measurements.values()
    assert (one.pace.verdict, len(one.pace.pairs), len(machine.turns)) == ("same", 7, 8)


def test_the_time_of_kernels_is_kept_apart():
    measured = TimedMeasurement(pace=TimedPairs(allowed=0.10)).with_readings(reading(100.0, 60.0), reading(120.0, 61.0))
    assert measured.pace.pairs == (TimePair(100.0, 120.0),)
    assert measured.kernels == (TimePair(60.0, 61.0),)


BEFORE_CHANGE = """
import torch

def hurried(x):
    for _ in range(20):
        x.add(1)

def kept(x):
    for _ in range(20):
        x.mul(1)
"""
AFTER_CHANGE = BEFORE_CHANGE.replace("range(20)", "range(400)", 1) + "\n\nlatter = kept\n"
CASES = """
import os
from pathlib import Path
import pytest, torch
import waves

x = torch.ones(4096)
timed = pytest.mark.torchprof(device="cpu", tolerance={"time": 0.10, "kernels": 1000})

@timed
def test_hurried():
    waves.hurried(x)

@timed
def test_kept():
    waves.kept(x)

@timed
def test_fading(torchprof):
    runs = Path(os.environ["RUNS"])
    with runs.open("a") as file:
        file.write("once more\\n")
    assert len(runs.read_text().splitlines()) <= 2, "it has faded"
    torchprof(waves.kept, x)

@pytest.mark.torchprof(device="cpu")
def test_untimed():
    waves.kept(x)

@pytest.mark.torchprof(tolerance={"time": 0.10})
def test_anywhere():
    waves.kept(x)
"""
# 28 processes sample two tests each, of which one calls twenty times as many operators afterwards.
SHORT = """
from pytest_torchprof.capture import samples

samples._BUDGET_S = 0.05
"""
NEW = """
@timed
def test_new():
    waves.latter(x)
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    files = {"waves.py": BEFORE_CHANGE, "tests/test_waves.py": CASES, "tests/conftest.py": SHORT}
    made = Repository(tmp_path_factory.mktemp("times") / "a folder", files)
    made.write({"waves.py": AFTER_CHANGE, "tests/test_waves.py": CASES + NEW})
    return made


@pytest.fixture(scope="module")
def before(repository):
    return repository.state()


@pytest.fixture(scope="module")
def compared(repository, before, tmp_path_factory):
    told = tmp_path_factory.mktemp("told")
    files = [f"--torchprof-report={told / name}" for name in ("run.json", "run.md")]
    run = repository.against(
        *("main", "-n", "2", *files, f"--junitxml={told / 'junit.xml'}"),
        GITHUB_ACTIONS="true",
        GITHUB_STEP_SUMMARY=str(told / "summary.md"),
        RUNS=str(told / "runs"),
        CUDA_VISIBLE_DEVICES="",
        patience_s=1500,  # It starts 28 processes, one after the other.
    )
    run.folder = told
    return run


@pytest.fixture(scope="module")
def times(compared):
    results = json.loads((compared.folder / "run.json").read_text())["results"]
    return {one["nodeid"].partition("::")[2]: (one["outcome"], one["against_time"]) for one in results}


def test_the_plan_is_said_before_the_pairs_are_run(compared):
    plan = compared.out.index("torchprof: times of 3 measurements against main (")
    assert compared.out[plan - 1] == "\n"
    assert plan < compared.out.index("7 to 15 pairs of processes in random order (seed ", plan)
    # 14 confirm the slower code; equal code may stay open for one more.
    told = re.search(r"^torchprof: 1[45] pairs .* in \d+ s$", compared.out, re.MULTILINE)
    assert plan < told.start() < compared.out.index("= FAILURES =")


def test_slower_code_fails_and_equal_code_does_not(compared, times):
    assert compared.status == 1
    outcome, slow = times["test_hurried"]
    assert (outcome, slow["verdict"], slow["pairs"], slow["confirming_pairs"]) == ("failed", "worse", 14, 7)
    assert slow["step"]["here_us"] > 5 * slow["step"]["base_us"]
    assert slow["step"]["low"] <= slow["step"]["share"] <= slow["step"]["high"]
    assert slow["kernels"] is None  # There is no GPU.
    outcome, kept = times["test_kept"]
    assert outcome == "passed"
    assert kept["verdict"] in ("same", "better", "ambiguous")
    assert kept["pairs"] >= LEAST_PAIRS


def test_what_could_not_be_timed_is_not_measured(compared, times):
    outcome, faded = times["test_fading"]
    assert (outcome, faded["verdict"], faded["pairs"]) == ("not measured", "not measured", 0)
    assert "it has faded" in faded["words"]
    assert (faded["reason"]["reason"], faded["reason"]["why"]["reason"]) == ("pairs-lost", "process-without-test")
    assert "no-times" in compared.out


def test_what_is_not_to_be_timed_says_so(times):
    assert times["test_untimed"] == ("passed", None)
    assert (times["test_new"][0], times["test_new"][1]["verdict"]) == ("passed", "new")
    assert (times["test_anywhere"][0], times["test_anywhere"][1]["verdict"]) == ("passed", "not judged")


def test_every_report_has_the_times(compared):
    assert compared.out.count("slower than at main (") == 3  # The failure, the last lines and GitHub's annotation.
    assert "FAILED tests/test_waves.py::test_hurried - slower than at main (" in compared.out
    assert "2 failed, 4 passed" in compared.out
    assert "worse +" in compared.out
    assert "### tests/test\\_waves.py::test\\_hurried: failed" in (compared.folder / "run.md").read_text()
    assert "slower than at main (" in (compared.folder / "summary.md").read_text()
    (suite,) = ET.parse(compared.folder / "junit.xml").getroot()
    told = {one.get("name"): one.get("value") for one in suite.find("properties")}
    assert told["torchprof.time[tests/test_waves.py::test_hurried]"].startswith("time ")
    failed = {one.get("name") for one in suite.iter("testcase") if one.find("failure") is not None}
    assert failed == {"test_hurried", "test_fading"}


def test_the_repository_is_as_it_was(repository, before, compared):
    assert repository.state() == before
    assert not list((repository.path / ".torchprof/against").glob("*/tree"))


def test_a_budget_for_no_pairs_measures_nothing(repository, before, tmp_path):
    run = repository.against("main", "-k", "kept", "--torchprof-against-budget=0.5s", RUNS=str(tmp_path / "runs"))
    assert run.status == 1
    assert "; the budget of 0.5 s is enough for 0 of them" in run.out
    assert BudgetForTooFewPairs(pairs=0, needed=7, budget_s=0.5).sentence in run.out
    assert repository.state() == before


def test_a_run_that_stops_early_says_that_no_times_were_compared(repository, tmp_path):
    (tmp_path / "runs").write_text("once\ntwice\n")
    run = repository.against("main", "-x", "-k", "kept or fading", RUNS=str(tmp_path / "runs"))
    assert run.status == 1
    assert str(TimesNotCompared(("tests/test_waves.py::test_kept",))) in run.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--torchprof-against-time=10%"], "name it, with --torchprof-against=REF"),
        (["--torchprof-against-budget=10s"], "name it, with --torchprof-against=REF"),
        (["--torchprof-against-python", "python"], "name it, with --torchprof-against=REF"),
        (["--torchprof-against-tests=own"], "name it, with --torchprof-against=REF"),
        (["--torchprof-against="], str(NoCommitNamed("--torchprof-against", ""))),
        (["--torchprof-against=main", "--torchprof-against-time=3"], str(NoShareOfTime("3"))),
        (["--torchprof-against=main", "--torchprof-against-time=-5%"], str(NoShareOfTime("-5%"))),
        (["--torchprof-against=main", "--torchprof-against-budget=soon"], str(NoBudget("soon"))),
        (["--torchprof-against=main", "--torchprof-against-time=nan%", "--co"], str(NoShareOfTime("nan%"))),
    ],
)
def test_options_that_cannot_be_used_are_refused(pytester, monkeypatch, words, said):
    monkeypatch.chdir(Repository(pytester.path / "repository", {"test_nothing.py": ""}).path)
    result = pytester.runpytest(*words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in result.stderr.str()
