"""A GPU model on which nothing is measured any more: a gap that keeps the gate open until somebody says that it may be."""

from __future__ import annotations

from datetime import timedelta

import pytest
from histories import DAY, H100, launched, run_of, sha, write
from msgspec.structs import replace
from test_history import EVERYWHERE, FIVE, SIX, TEST, changes

from pytest_torchprof.cli import main
from pytest_torchprof.history.record import Event

pytestmark = pytest.mark.any_torch
A100 = replace(H100, gpu="NVIDIA A100-SXM4-80GB")


def on_h100(commit, kernels=FIVE, **facts):
    return run_of(commit, launched(TEST, kernels), **facts)


def on_a100(commit, kernels=FIVE, **facts):
    return on_h100(commit, kernels, environment=A100, **facts)


@pytest.fixture
def lost(tmp_path):
    """The H100 measured five commits, the A100 these and fifteen more."""
    return write(tmp_path, [*map(on_h100, range(5)), *map(on_a100, range(20))])


def said(capsys, status, *words):
    assert main(["history", *map(str, words)]) == status
    return " ".join(capsys.readouterr().out.split())


def test_a_gpu_that_is_measured_no_more_is_named_and_leaves_the_gate_open(lost, capsys):
    (stopped,) = changes(capsys, lost, "--fail-on=counts", status=3)["stopped"]
    assert (stopped["hardware"], stopped["until"], stopped["runs"]) == (H100.gpu, sha(4), 15)
    assert stopped["missed_from"] == sha(6)
    last, missed = f"last at {sha(4)[:7]} (2026-01-05)", f"missed since {sha(6)[:7]} (2026-01-07)"
    named = f"not measured any more: {H100.gpu}, {last}, {missed}; 15 runs of this branch"
    assert named in said(capsys, 3, "changes", lost, "--fail-on=times")
    assert named in said(capsys, 3, "when", lost, TEST, "kernels >= 5")
    assert named in said(capsys, 0, "log", lost, TEST)


def test_a_gpu_that_was_given_up_is_accepted_and_shown_with_the_reason(lost, capsys):
    (stopped,) = changes(capsys, lost)["stopped"]
    assert "in 1 test" in said(capsys, 0, "accept", lost, stopped["id"][:8], "returned to the vendor")
    assert changes(capsys, lost, "--fail-on=counts", status=0)["stopped"][0]["accepted"] == "returned to the vendor"
    assert "known: returned to the vendor" in said(capsys, 0, "when", lost, TEST, "kernels >= 5")
    # Measured once more, and lost again, it is another loss.
    write(lost, [on_h100(19), *map(on_a100, range(20, 40))])
    assert changes(capsys, lost, "--fail-on=counts", status=3)["stopped"][0]["accepted"] is None


def test_a_loss_that_was_due_before_the_day_that_is_asked_for_is_no_news(lost, capsys):
    changes(capsys, lost, "--fail-on=counts", "--since=2026-01-07", status=3)
    changes(capsys, lost, "--fail-on=counts", "--since=2026-01-08", status=0)


@pytest.mark.parametrize(
    "runs",
    [
        [*map(on_a100, range(20)), *map(on_h100, range(19))],
        [*map(on_a100, range(20)), *map(on_h100, range(0, 20, 6))],
        [*map(on_a100, range(20)), on_h100(3)],
    ],
    ids=["still-to-come", "each-sixth-commit", "tried-once"],
)
def test_a_gpu_that_keeps_its_pace_or_never_had_one_is_not_missed(tmp_path, capsys, runs):
    assert changes(capsys, write(tmp_path, runs), "--fail-on=counts", status=0)["stopped"] == []


def test_a_change_goes_before_what_is_not_measured_any_more(tmp_path, capsys):
    runs = [*map(on_h100, range(5)), *(on_a100(at, FIVE if at < 9 else SIX) for at in range(20))]
    assert len(changes(capsys, write(tmp_path, runs), "--fail-on=counts", status=1)["stopped"]) == 1


def lacking(capsys, folder, *words):
    """Return what ``changes --fail-on counts`` misses: its exit status, the hardware, and since when."""
    status = main(["history", "changes", str(folder), "--fail-on=counts", *words])
    capsys.readouterr()
    stopped = changes(capsys, folder)["stopped"]
    return status, [(own["hardware"], own["until"], own["missed_from"]) for own in stopped]


@pytest.mark.parametrize("since_then", [20, 21])
def test_a_long_holiday_is_forgotten_after_twenty_pauses(tmp_path, capsys, since_then):
    """The H100 rested for thirty commits, came back for some, and is gone."""
    last = 31 + since_then
    own = [0, 1, *range(32, last + 1)]
    folder = write(tmp_path, [*map(on_h100, own), *map(on_a100, range(last + 10))])
    missed = [] if since_then == 20 else [(H100.gpu, sha(last), sha(last + 2))]
    assert lacking(capsys, folder) == (3 if missed else 0, missed)


def test_a_rolling_day_sees_the_loss_of_a_gpu_that_is_measured_weekly(tmp_path, capsys):
    """The gate asks for the last seven days, each day anew: at some of them the loss is news."""
    write(tmp_path, [*map(on_h100, range(0, 29, 7)), *map(on_a100, range(28))])
    statuses = {}
    for today in range(28, 50):
        folder = write(tmp_path, [on_a100(today)])
        day = (DAY + timedelta(days=today - 6)).date().isoformat()
        statuses[today] = lacking(capsys, folder, f"--since={day}")[0]
        assert lacking(capsys, folder)[0] == (3 if today > 35 else 0)
    assert [today for today, status in statuses.items() if status == 3] == [*range(36, 43)]


def hours(run, passed):
    """Return a run that began, at a commit of that time, so many hours after the first day."""
    at = DAY + timedelta(hours=passed)
    return replace(run, began=at, ended=at, commit=replace(run.commit, date=at))


NIGHTLY = [hours(on_a100(at), at * 6) for at in range(41)]
"""Four commits a day for ten days."""
NIGHTS = [hours(on_h100(at), at * 6 + 1) for at in range(0, 41, 4)]


def test_a_nightly_gpu_is_not_missed_on_a_day_with_many_commits(tmp_path, capsys):
    busy = [hours(on_a100(at), 240 + (at - 40) / 2) for at in range(41, 80)]
    folder = write(tmp_path, [*NIGHTLY, *NIGHTS, *busy])
    assert lacking(capsys, folder) == (0, [])
    # But it is after the night.
    write(folder, [hours(on_a100(80), 240 + 26)])
    assert lacking(capsys, folder) == (3, [(H100.gpu, sha(40), sha(80))])


def test_what_lacks_a_long_time_and_few_commits_is_not_missed(tmp_path, capsys):
    few = [hours(on_a100(at), 240 + (at - 40) * 100) for at in range(41, 45)]
    assert lacking(capsys, write(tmp_path / "few", [*NIGHTLY, *NIGHTS, *few])) == (0, [])
    one_more = hours(on_a100(45), 640 + 100)
    folder = write(tmp_path / "more", [*NIGHTLY, *NIGHTS, *few, one_more])
    assert lacking(capsys, folder) == (3, [(H100.gpu, sha(40), sha(45))])


def test_a_gpu_whose_machine_is_some_commits_behind_on_a_busy_day_is_not_missed(tmp_path, capsys):
    runs = [hours(on_a100(at), at) for at in range(30)]
    assert lacking(capsys, write(tmp_path, [*runs, *(hours(on_h100(at), at) for at in range(25))])) == (0, [])


@pytest.mark.parametrize(("first", "second"), [(1, 4), (2, 4)])
def test_of_a_gpu_that_ci_measured_twice_twice_the_pause_is_waited_for(tmp_path, capsys, first, second):
    pause = second - first
    at_last = second + 2 * pause
    folder = write(tmp_path, [on_h100(first), on_h100(second), *map(on_a100, range(at_last + 1))])
    assert lacking(capsys, folder) == (0, [])
    folder = write(folder, [on_a100(at_last + 1)])
    assert lacking(capsys, folder) == (3, [(H100.gpu, sha(second), sha(at_last + 1))])


def test_a_gpu_that_somebody_has_at_home_is_expected_of_nobody(tmp_path, capsys):
    at_home = replace(H100, gpu="NVIDIA GeForce RTX 4090")
    own = [on_h100(at, event=Event.LOCAL, environment=at_home) for at in (*range(8), 9)]
    folder = write(tmp_path, [*own, *map(on_a100, range(30))])
    assert lacking(capsys, folder) == (0, [])
    # What CI has measured too is expected, until somebody measures it at home or in CI.
    by_ci = [on_h100(at, environment=at_home) for at in range(3)]
    assert lacking(capsys, write(folder, by_ci)) == (3, [(at_home.gpu, sha(9), sha(11))])


def on_cpu(commit, cpu, **facts):
    return on_h100(commit, environment=replace(H100, gpu=None, cpu=cpu), **facts)


def test_cpus_of_machines_that_come_at_random_are_never_missed_one_by_one(tmp_path, capsys):
    random = [on_cpu(at, ("AMD EPYC", "Intel Xeon", "Arm Neoverse")[(at * at + at // 3) % 3]) for at in range(12)]
    runs = [*random, *(on_cpu(at, "AMD EPYC") for at in range(12, 40))]
    assert lacking(capsys, write(tmp_path, runs)) == (0, [])
    # All of them together are.
    folder = write(tmp_path, map(on_a100, range(60)))
    assert lacking(capsys, folder) == (3, [(None, sha(39), sha(41))])
    (stopped,) = changes(capsys, folder)["stopped"]
    assert "not measured any more: any CPU" in said(capsys, 3, "when", folder, TEST, "kernels >= 5")
    assert "in 1 test" in said(capsys, 0, "accept", folder, stopped["id"][:8], "only GPUs are measured now")
    assert lacking(capsys, folder)[0] == 0


def test_hardware_that_is_gone_is_not_missed_by_a_test_that_was_removed_before(tmp_path, capsys):
    other = launched("test_model.py::test_other", FIVE)
    runs = [run_of(at, *([launched(TEST, FIVE), other] if at < 4 else [other])) for at in range(4)]
    runs += [run_of(at, other, all_tests=EVERYWHERE) for at in range(4, 7)]
    folder = write(tmp_path, [*runs, *(run_of(at, other, environment=A100) for at in range(20))])
    said(capsys, 3, "when", folder, "test_model.py::test_other", "kernels >= 5")
    assert "removed" not in said(capsys, 0, "when", folder, TEST, "kernels >= 5")
