"""Commits of a branch after the newest measured one, and projects that the newest runs left out: named, without noise."""

from __future__ import annotations

from datetime import timedelta

import pytest
from histories import launched, run_of, write
from msgspec.structs import replace
from test_history import EVERYWHERE, FIVE, SIX, TEST, changes, git

from pytest_torchprof.cli import main
from pytest_torchprof.history.record import CiJob, Event

pytestmark = pytest.mark.any_torch
GITHUB = {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": "push"}
GATE = "--fail-on=counts"
BY_GITHUB = {"ci": CiJob(provider="github"), "event": Event.PUSH}


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone of six commits."""
    for name in ("CI", *GITHUB):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init")
    for at in range(6):
        git(folder, "commit", "-m", str(at), "--allow-empty")
    return folder


@pytest.fixture
def shas(clone):
    return git(clone, "rev-list", "--reverse", "main").split()


def measured(tmp_path, shas, *commits, **facts):
    """Return a history with a run of each of these commits."""
    facts = {**BY_GITHUB, **facts}
    line = {at: tuple(shas[:at][::-1]) for at in commits}
    runs = [run_of(at, launched(TEST, FIVE), sha=shas[at], ancestors=line[at], **facts) for at in commits]
    return write(tmp_path / "kept", runs)


def in_ci(monkeypatch, **variables):
    for name, value in {**GITHUB, **variables}.items():
        monkeypatch.setenv(name, value)


def test_commits_after_the_newest_measured_one_are_counted_and_named(clone, shas, tmp_path, capsys):
    folder = measured(tmp_path, shas, 0, 1, 2)
    told = changes(capsys, folder, f"--git={clone}", "--fail-on=counts,times", status=3)
    assert (told["ahead"], told["newest_was_due"]) == (shas[3:], False)
    changes(capsys, folder, f"--git={clone}", GATE, status=0)
    for words in (("changes",), ("log", TEST), ("when", TEST, "kernels >= 5")):
        command, *rest = words
        assert main(["history", command, str(folder), *rest, f"--git={clone}"]) == 0
        heading = " ".join(capsys.readouterr().out.split())
        named = ", ".join(sha[:7] for sha in shas[:2:-1])
        assert f"3 commits after {shas[2][:7]}: {named}" in heading


def test_the_job_of_ci_that_was_to_measure_the_newest_commit_cannot_tell_what_it_launches(
    clone, shas, tmp_path, capsys, monkeypatch
):
    folder = measured(tmp_path, shas, 0, 1, 2, 3, 4)
    in_ci(monkeypatch)
    told = changes(capsys, folder, f"--git={clone}", GATE, status=3)
    assert (told["ahead"], told["newest_was_due"]) == (shas[5:], True)
    assert main(["history", "when", str(folder), TEST, "kernels >= 5", f"--git={clone}"]) == 3
    capsys.readouterr()
    # A change goes before what cannot be told, and without --fail-on nothing fails.
    changes(capsys, folder, f"--git={clone}")
    write(folder, [run_of(4, launched(TEST, SIX), sha=shas[4], ancestors=tuple(shas[:4][::-1]), **BY_GITHUB)])
    write(folder, [run_of(5, launched(TEST, SIX), sha=shas[5], ancestors=tuple(shas[:5][::-1]), **BY_GITHUB)])
    assert changes(capsys, folder, f"--git={clone}", GATE, status=1)["ahead"] == []


def test_of_commits_that_were_pushed_together_the_last_one_is_enough(clone, shas, tmp_path, capsys, monkeypatch):
    in_ci(monkeypatch)
    folder = measured(tmp_path, shas, 0, 5)
    assert changes(capsys, folder, f"--git={clone}", GATE, status=0)["ahead"] == []


@pytest.mark.parametrize(
    ("variables", "facts"),
    [
        ({"GITHUB_EVENT_NAME": "workflow_run"}, {}),
        ({"GITHUB_EVENT_NAME": "schedule"}, {}),
        ({}, {"event": Event.SCHEDULE}),
        ({}, {"ci": CiJob(provider="jenkins")}),
        ({}, {"event": Event.LOCAL, "ci": None}),
    ],
    ids=["gate of another workflow", "nightly gate", "nightly measurements", "another service", "people alone"],
)
def test_whoever_did_not_have_to_measure_the_newest_commit_gets_a_notice(
    clone, shas, tmp_path, capsys, monkeypatch, variables, facts
):
    in_ci(monkeypatch, **variables)
    told = changes(capsys, measured(tmp_path, shas, 0, 1, 2, **facts), f"--git={clone}", GATE, status=0)
    assert (told["ahead"], told["newest_was_due"]) == (shas[3:], False)


def test_a_job_of_ci_on_an_older_commit_waits_for_no_newer_one(clone, shas, tmp_path, capsys, monkeypatch):
    in_ci(monkeypatch)
    git(clone, "checkout", "-q", shas[3])
    told = changes(capsys, measured(tmp_path, shas, 0, 1, 2, 3), f"--git={clone}", GATE, status=0)
    assert told["ahead"] == shas[4:]


def test_where_no_commit_of_a_branch_was_measured_nothing_can_be_told_of_it(clone, shas, tmp_path, capsys):
    folder = measured(tmp_path, shas, 0, 1, branch="side", dirty=True)
    write(folder, [run_of(0, launched(TEST, FIVE), branch="side", **BY_GITHUB)])
    told = changes(capsys, folder, f"--git={clone}", "--branch=main", GATE, status=3)
    assert (told["runs"], told["ahead"]) == (0, shas)
    assert main(["history", "changes", str(folder), f"--git={clone}", "--branch=main"]) == 0
    assert "no commit of main was measured" in capsys.readouterr().out


def test_projects_of_one_repository_that_the_newest_runs_left_out_are_named(tmp_path, capsys):
    both = [run_of(at, launched(TEST, FIVE), folder=folder, all_tests=EVERYWHERE) for at in range(3) for folder in "ab"]
    alone = [run_of(at, launched(TEST, FIVE), folder="a", all_tests=EVERYWHERE) for at in range(3, 8)]
    kept = write(tmp_path, both)
    assert changes(capsys, kept)["behind"] == []
    told = changes(capsys, write(kept, alone), GATE, status=0)
    last = both[-1].commit.sha
    assert told["behind"] == [{"folder": "b", "last": last}]
    main(["history", "changes", str(kept)])
    assert f"b, last at {last[:7]}" in " ".join(capsys.readouterr().out.split())


def in_two_jobs(at, *parts):
    """Return the runs of jobs that share out the tests of a commit."""
    return [run_of(at, launched(part, FIVE)) for part in parts]


def test_jobs_that_share_out_the_tests_measure_a_commit_together(tmp_path, capsys):
    parts = ["tests/a/test_a.py::test_a", "tests/b/test_b.py::test_b"]
    runs = [run for at in range(4) for run in in_two_jobs(at, *parts)]
    told = changes(capsys, write(tmp_path / "whole", runs), GATE, status=0)
    assert [series["missing"] for series in told["series"]] == [0, 0]
    # What one of them no longer brings is missing, whichever it was.
    for lost, there in (parts, parts[::-1]):
        kept = write(tmp_path / there[6], [*runs, *in_two_jobs(4, there)])
        told = changes(capsys, kept, GATE, status=3)
        assert [own["test"] for own in told["lacking"]] == [lost]
        assert {series["test"]: series["missing"] for series in told["series"]} == {lost: 1, there: 0}


def test_a_test_that_one_job_of_a_commit_has_is_not_removed_by_another_job(tmp_path, capsys):
    other = launched("test_model.py::test_other", FIVE)
    runs = [
        run_of(at, *own, all_tests=EVERYWHERE) for at in range(3) for own in ([other, launched(TEST, FIVE)], [other])
    ]
    for at in (-1, -2):
        later = runs[-1].began + timedelta(hours=5)
        last = replace(runs[at], began=later, ended=later)
        kept = write(tmp_path / str(at), [*(run for run in runs if run != runs[at]), last])
        assert {series["removed_at"] for series in changes(capsys, kept, GATE, status=0)["series"]} == {None}


@pytest.mark.parametrize("all_tests", [None, replace(EVERYWHERE, unmeasured=(TEST,))], ids=["a part", "all tests"])
def test_a_run_in_which_nothing_could_be_recorded_lacks_what_the_run_before_it_had(tmp_path, capsys, all_tests):
    runs = [run_of(at, launched(TEST, FIVE)) for at in range(3)]
    nothing = replace(run_of(3), environments=(), machine=replace(run_of(3).machine, gpu=None), all_tests=all_tests)
    told = changes(capsys, write(tmp_path, [*runs, nothing]), GATE, status=3)
    assert [(own["test"], own["last"]) for own in told["lacking"]] == [(TEST, runs[-1].commit.sha)]
    # As of a job that another event starts, which never measured anything.
    other = write(tmp_path / "other", [*runs, replace(nothing, event=Event.SCHEDULE)])
    assert changes(capsys, other, GATE, status=0)["lacking"] == []
