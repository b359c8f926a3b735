"""Runs of people's own commits beside those of CI: whose branch it is, and what nobody knows while CI is silent."""

from __future__ import annotations

from datetime import timedelta

import pytest
from histories import DAY, launched, run_of, sha, write
from test_history import FIVE, SIX, TEST, changes, given_up

from pytest_torchprof.cli import main
from pytest_torchprof.history.record import Event

pytestmark = pytest.mark.any_torch


def by_ci(commit, kernels=FIVE, **facts):
    return run_of(commit, launched(TEST, kernels), **facts)


def local(commit, kernels=FIVE, **facts):
    return by_ci(commit, kernels, event=Event.LOCAL, **facts)


def asked(capsys, folder, status):
    """Return what ``changes --fail-on counts --json`` says."""
    return changes(capsys, folder, "--fail-on=counts", status=status)


@pytest.mark.parametrize("event", [Event.PUSH, Event.SCHEDULE, Event.OTHER])
def test_one_run_of_ci_does_not_take_a_branch_from_those_who_measure_it(tmp_path, capsys, event):
    runs = [local(at, FIVE if at < 15 else SIX) for at in range(20)]
    told = asked(capsys, write(tmp_path, [*runs, by_ci(5, event=event)]), 1)
    assert (told["runs"], told["not_pushed"], told["ci_pause"]) == (21, [], None)
    assert [own["after"] for own in told["events"]] == [sha(15)]


@pytest.mark.parametrize("event", [Event.PUSH, Event.SCHEDULE, Event.OTHER])
def test_what_any_run_of_ci_measures_is_measured_by_ci(tmp_path, capsys, event):
    runs = [by_ci(at, event=event) for at in range(8)]
    told = asked(capsys, write(tmp_path, [*runs, given_up(5)]), 0)
    assert (told["runs"], told["not_pushed"], told["events"]) == (8, [sha("mine")], [])


@pytest.mark.parametrize(("of_ci", "left_out"), [(1, 0), (2, 2), (3, 2)])
def test_a_branch_is_cis_where_it_measured_as_many_commits_as_people_did(tmp_path, capsys, of_ci, left_out):
    runs = [*map(by_ci, range(of_ci)), *map(local, (5, 6)), local(6, version="again")]
    told = asked(capsys, write(tmp_path, runs), 3 if left_out else 0)
    assert len(told["not_pushed"]) == left_out


def test_while_ci_is_silent_and_others_go_on_nobody_knows_what_the_newest_code_launches(tmp_path, capsys):
    folder = write(tmp_path, [*map(by_ci, range(10)), *(local(at, SIX) for at in range(10, 14))])
    told = asked(capsys, folder, 3)
    assert (told["runs"], told["events"]) == (10, [])
    assert (told["ci_pause"]["last"], told["ci_pause"]["ahead"]) == (sha(9), [sha(at) for at in range(10, 14)])
    assert main(["history", "when", str(folder), TEST, "kernels >= 5"]) == 3
    shown = " ".join(capsys.readouterr().out.split())
    assert f"CI has measured nothing on main since {sha(9)[:7]} (2026-01-10)" in shown
    # However many people measure meanwhile.
    told = asked(capsys, write(folder, [local(at, SIX) for at in range(14, 30)]), 3)
    assert (told["runs"], len(told["ci_pause"]["ahead"])) == (10, 20)
    # As soon as CI is back, what it has passed is known again.
    told = asked(capsys, write(folder, [by_ci(30, SIX)]), 1)
    assert (told["runs"], told["not_pushed"], told["ci_pause"]) == (31, [], None)


@pytest.mark.parametrize(
    ("runs", "own", "status"),
    [
        pytest.param(range(10), local(10), 0, id="the next day"),
        pytest.param(range(10), local(11), 3, id="two days later"),
        pytest.param(range(0, 50, 7), local(56), 0, id="weekly, after a week"),
        pytest.param(range(0, 50, 7), local(57), 3, id="weekly, after more than a week"),
        pytest.param((0, 60, *range(61, 80)), local(139), 0, id="a long pause among the last twenty"),
        pytest.param((0, 60, *range(61, 81)), local(139), 3, id="a long pause before the last twenty"),
        pytest.param((5,), local(6), 0, id="measured once, a day later"),
        pytest.param((5,), local(8), 3, id="measured once, days later"),
        pytest.param((0, 3), local(9), 0, id="measured twice, after twice the pause"),
        pytest.param((0, 3), local(10), 3, id="measured twice, after more than that"),
    ],
)  # fmt: skip
def test_ci_is_silent_when_it_pauses_for_longer_than_it_did_of_late(tmp_path, capsys, runs, own, status):
    told = asked(capsys, write(tmp_path, [*map(by_ci, runs), own]), status)
    assert (told["ci_pause"] is not None) is (status == 3)
    assert told["not_pushed"] == [own.commit.sha]


def late(**facts):
    """A local run long after CI's last one, of a commit that CI does not know."""
    return local(40, SIX, sha=sha("late"), began=DAY + timedelta(days=40), **facts)


@pytest.mark.parametrize(
    ("own", "status"),
    [
        pytest.param(late(ancestors=tuple(map(sha, range(8, -1, -1)))), 0, id="beside the newest commit"),
        pytest.param(late(ancestors=tuple(map(sha, range(9, -1, -1)))), 3, id="after it"),
        pytest.param(late(ancestors=(), parents=(), date=DAY + timedelta(days=8)), 0, id="unknown and older"),
        pytest.param(late(ancestors=(), parents=(), date=DAY + timedelta(days=12)), 3, id="unknown and newer"),
    ],
)
def test_only_a_commit_after_all_that_ci_knows_leaves_something_open(tmp_path, capsys, own, status):
    told = asked(capsys, write(tmp_path, [*map(by_ci, range(10)), own]), status)
    assert (told["runs"], told["not_pushed"]) == (10, [sha("late")])
