"""The history of runs: a record of each, and at which commit what a test launches has changed."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import shlex
import subprocess
import textwrap
import time
import zipfile
from contextlib import chdir
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fresh
import judges
import msgspec
import pytest
import rank_jobs
from full_pipes import kill_children_at_full_pipes
from histories import DAY, H100, UPGRADED, launched, run_of, sha, write
from msgspec.structs import replace
from repository import Repository
from schema_checks import errors

from pytest_torchprof.cli import main
from pytest_torchprof.history.commit_record import commit_record
from pytest_torchprof.history.reading import RunReader
from pytest_torchprof.history.reading_beside import read_many
from pytest_torchprof.history.record import SUFFIX, AllTests, Event, encode, read
from pytest_torchprof.history.runs import newest_first
from pytest_torchprof.report.result import Outcome

pytestmark = pytest.mark.any_torch

TEST = "test_model.py::test_block"
FIVE = {"gemm bf16 tn": 4, "softmax": 1}
EVERYWHERE = AllTests(below=("",))
SIX = {**FIVE, "pointwise sigmoid": 1}
SEVEN = {**SIX, "copy": 1}
MEASURED = "import torch\n@cpu\ndef test_it(): torch.mm(torch.ones(4, 4), torch.ones(4, 4))"


def changes(capsys, folder, *words, status=0):
    """Return what ``torchprof history changes --json`` prints, which its schema allows."""
    assert main(["history", "changes", str(folder), "--json", *words]) == status
    told = json.loads(capsys.readouterr().out)
    assert errors("history", told) == []
    return told


def event(capsys, folder, *words):
    (only,) = changes(capsys, folder, *words)["events"]
    return only


def git(folder, *words):
    settings = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *settings, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def records(folder):
    return [read(file) for file in sorted(Path(folder).glob(f"*{SUFFIX}"))]


# ----------------------------------------------------------------------------------------------- what a run leaves behind


def test_a_run_leaves_a_record_of_its_commit_its_machine_and_what_was_launched(run_tests, pytester):
    pytester.path.joinpath(".gitignore").write_text("__pycache__\ntest_it.py\n")
    git(pytester.path, "init")
    git(pytester.path, "remote", "add", "origin", "https://me:secret@example.org/team/model.git")
    git(pytester.path, "add", "-A")
    git(pytester.path, "commit", "-m", "one", "--allow-empty")
    git(pytester.path, "commit", "-m", "two", "--allow-empty")
    run_tests(MEASURED, "--torchprof-history=kept").assert_outcomes(passed=1)
    run_tests(MEASURED, "--torchprof-history=kept").assert_outcomes(passed=1)
    first, second = records(pytester.path / "kept")
    assert first.uuid != second.uuid
    assert first.commit == second.commit
    assert first.commit.project == "example.org/team/model"
    assert first.commit.sha == git(pytester.path, "rev-parse", "HEAD")
    assert first.commit.parents == first.commit.ancestors == (git(pytester.path, "rev-parse", "HEAD~"),)
    assert (first.commit.branch, first.commit.dirty, first.commit.folder) == ("main", False, "")
    assert (first.event, first.ci, first.complete) == (Event.LOCAL, None, True)
    (measured,) = first.measurements
    assert (measured.test, measured.device, measured.outcome) == ("test_it.py::test_it", "cpu", Outcome.PASSED)
    (structure,) = first.structures
    assert structure.name == measured.structure
    assert measured.counts["kernels"] == sum(kernel.count for kernel in structure.kernels)
    assert first.varying[0].numbers["gpu_busy_us"] > 0
    assert first.environments[measured.environment].cpu == first.machine.cpu
    content = gzip.decompress(next(Path("kept").glob(f"*{SUFFIX}")).read_bytes()).decode()
    assert "secret" not in content
    assert str(pytester.path) not in content


def test_changes_that_are_not_committed_make_a_run_dirty(run_tests, pytester):
    git(pytester.path, "init")
    git(pytester.path, "commit", "-m", "one", "--allow-empty")
    run_tests(MEASURED, "--torchprof-history=kept").assert_outcomes(passed=1)
    (record,) = records("kept")
    assert record.commit.dirty


def test_new_files_make_a_run_dirty_also_where_git_is_told_not_to_show_them(run_tests, pytester):
    git(pytester.path, "init")
    git(pytester.path, "commit", "-m", "one", "--allow-empty")
    git(pytester.path, "config", "status.showUntrackedFiles", "no")
    run_tests(MEASURED, "--torchprof-history=kept")
    (record,) = records(pytester.path / "kept")
    assert record.commit.dirty


@pytest.mark.parametrize("what", ["edited", "new file", "another commit"])
def test_a_changed_submodule_makes_a_run_dirty_also_where_git_is_told_to_pass_over_it(tmp_path, what):
    library, top = tmp_path / "library", tmp_path / "top"
    for made in (library, top):
        made.mkdir()
        git(made, "init", "-q")
        (made / "code.py").write_text("x = 1\n")
        git(made, "add", "-A")
        git(made, "commit", "-q", "-m", "one")
    git(top, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "library")
    git(top, "config", "-f", ".gitmodules", "submodule.library.ignore", "all")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "with a submodule")
    git(top, "config", "diff.ignoreSubmodules", "all")
    assert not commit_record(top, {}).dirty
    if what == "edited":
        (top / "library" / "code.py").write_text("x = 2\n")
    elif what == "new file":
        (top / "library" / "more.py").write_text("x = 2\n")
    else:
        git(top / "library", "commit", "-q", "--allow-empty", "-m", "two")
    assert commit_record(top, {}).dirty


def test_a_run_outside_a_repository_leaves_a_record_without_a_commit(run_tests, monkeypatch, pytester):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(pytester.path.parent))
    run_tests(MEASURED, "--torchprof-history=kept").assert_outcomes(passed=1)
    (record,) = records("kept")
    assert record.commit is None


@pytest.mark.parametrize(
    ("variables", "event", "ci"),
    [
        ({"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": "push", "GITHUB_RUN_ID": "7"}, "push", ("github", "7")),
        ({"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": "merge_group"}, "pr", ("github", None)),
        ({"GITLAB_CI": "true", "CI_PIPELINE_SOURCE": "schedule", "CI_PIPELINE_ID": "8"}, "schedule", ("gitlab", "8")),
        (
            {"BUILDKITE": "true", "BUILDKITE_SOURCE": "webhook", "BUILDKITE_PULL_REQUEST": "12"},
            "pr",
            ("buildkite", None),
        ),
        ({"BUILDKITE": "true", "BUILDKITE_SOURCE": "webhook", "BUILDKITE_PULL_REQUEST": "false"}, "push", None),
        ({"TF_BUILD": "True", "BUILD_REASON": "PullRequest"}, "pr", ("azure", None)),
        ({"JENKINS_URL": "http://ci", "BUILD_ID": "9"}, "other", ("jenkins", "9")),
        ({"CI": "true"}, "other", ("unknown", None)),
        ({}, "local", None),
    ],
)
def test_the_event_and_the_job_are_the_ci_services(variables, event, ci):
    from pytest_torchprof.history.ci_job import ci_job

    told, job = ci_job(variables)
    assert told == event
    assert ci is None or (job.provider, job.run) == ci


AZURE = {"TF_BUILD": "True", "BUILD_SOURCEBRANCHNAME": "fast"}
JENKINS = {"JENKINS_URL": "http://ci"}


@pytest.mark.parametrize(
    ("variables", "branch"),
    [
        ({"GITHUB_REF_NAME": "main", "GITHUB_REF_TYPE": "branch", "GITHUB_HEAD_REF": ""}, "main"),
        ({"GITHUB_REF_NAME": "7/merge", "GITHUB_HEAD_REF": "topic/fast"}, "topic/fast"),
        ({"GITHUB_REF_NAME": "v1.0", "GITHUB_REF_TYPE": "tag"}, None),
        ({"CI_COMMIT_REF_NAME": "main"}, "main"),
        ({"CI_COMMIT_REF_NAME": "v1.0", "CI_COMMIT_TAG": "v1.0"}, None),
        ({"BUILDKITE_BRANCH": "main", "BUILDKITE_TAG": ""}, "main"),
        ({"BUILDKITE_BRANCH": "v1.0", "BUILDKITE_TAG": "v1.0"}, None),
        ({**AZURE, "BUILD_SOURCEBRANCH": "refs/heads/topic/fast"}, "topic/fast"),
        ({**AZURE, "BUILD_SOURCEBRANCH": "refs/tags/fast"}, None),
        ({**AZURE, "BUILD_SOURCEBRANCH": "refs/pull/7/merge"}, None),
        (AZURE, "fast"),
        ({"CIRCLECI": "true", "CIRCLE_BRANCH": "main"}, "main"),
        ({"CIRCLECI": "true", "CIRCLE_TAG": "v1.0"}, None),
        ({**JENKINS, "BRANCH_NAME": "main", "GIT_BRANCH": "origin/main"}, "main"),
        ({**JENKINS, "GIT_BRANCH": "origin/topic/fast"}, "topic/fast"),
        ({**JENKINS, "GIT_BRANCH": "detached"}, None),
        ({**JENKINS, "BRANCH_NAME": "v1.0", "TAG_NAME": "v1.0"}, None),
        ({"BRANCH_NAME": "main", "GIT_BRANCH": "main"}, None),
        ({}, None),
    ],
)
def test_of_a_commit_that_is_checked_out_alone_the_ci_service_tells_the_branch(tmp_path, variables, branch):
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "-m", "one", "--allow-empty")
    assert commit_record(tmp_path, variables).branch == "main"
    git(tmp_path, "checkout", "-q", "--detach")
    assert commit_record(tmp_path, variables).branch == branch


def test_a_branch_whose_name_is_no_text_leaves_a_record_all_the_same(run_tests, pytester, monkeypatch):
    pytester.path.joinpath(".gitignore").write_text("__pycache__\ntest_it.py\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"], ["checkout", "-q", "--detach"]):
        git(pytester.path, *words)
    monkeypatch.setenv("GITHUB_HEAD_REF", os.fsdecode(b"feature-\xff"))
    run_tests(MEASURED, "--torchprof-history=history").assert_outcomes(passed=1)
    (record,) = records(pytester.path / "history")
    assert record.commit.branch == "feature-\\udcff"


def test_workers_of_xdist_and_reruns_leave_one_record(run_tests):
    pytest.importorskip("xdist")
    twice = "import torch\n" + "\n".join(
        f"@cpu\ndef test_{name}(): torch.mm(torch.ones(4, 4), torch.ones(4, 4))" for name in "ab"
    )
    run_tests(twice, "--torchprof-history=kept", "-n2", in_process=False).assert_outcomes(passed=2)
    (record,) = records("kept")
    assert sorted(measured.test for measured in record.measurements) == ["test_it.py::test_a", "test_it.py::test_b"]


CRASHING = """
import os, torch
x = torch.ones(4, 4)
@cpu
def test_a(): torch.mm(x, x)
@cpu(max_kernels=0)
def test_b(): torch.mm(x, x)
@cpu
def test_c(): os._exit(3)
@cpu
def test_d(): torch.mm(x, x)
"""


def test_a_worker_that_crashes_takes_no_finished_measurement_with_it(run_tests):
    pytest.importorskip("xdist")
    # One worker has all tests: those before the crash, and after it those that the next one takes over.
    words = ("--torchprof-history=kept", "-n1", "--torchprof-baseline=add")
    run_tests(CRASHING, *words, in_process=False).assert_outcomes(passed=2, failed=2)
    (record,) = records("kept")
    measured = {own.test.partition("::")[2]: str(own.outcome) for own in record.measurements}
    assert measured == {"test_a": "passed", "test_b": "failed", "test_d": "passed"}
    kept = {own.test: varying.baseline for own, varying in zip(record.measurements, record.varying, strict=True)}
    # The crashed worker wrote no entry for what it had measured.
    assert kept["test_it.py::test_a"] != "written"
    assert record.all_tests is None or record.all_tests.unmeasured == ("test_it.py::test_c",)


def test_a_run_that_was_stopped_is_not_complete(run_tests):
    source = "import torch\n@cpu(max_kernels=0)\ndef test_a(): torch.mm(torch.ones(4, 4), torch.ones(4, 4))\n"
    run_tests(source + "def test_b(): pass", "--torchprof-history=kept", "-x").assert_outcomes(failed=1)
    (record,) = records("kept")
    assert not record.complete
    assert record.measurements[0].outcome == "failed"


def test_what_was_not_measured_keeps_its_code(run_tests):
    run_tests("@cpu\ndef test_it(): pass", "--torchprof-history=kept").assert_outcomes(failed=1)
    (record,) = records("kept")
    assert record.measurements[0].code == "nothing-ran"
    assert record.measurements[0].counts == {}


def test_an_unreachable_history_fails_nothing_and_its_record_is_sent_later(run_tests, pytester, capsys):
    pytester.path.joinpath("file").touch()
    result = run_tests(MEASURED, "--torchprof-history=file/kept")
    result.assert_outcomes(passed=1)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*--torchprof-history=*file/kept*.torchprof/outbox*torchprof history push*"])
    capsys.readouterr()
    assert main(["history", "push", "kept"]) == 0
    (record,) = records("kept")
    assert record.measurements[0].test == "test_it.py::test_it"
    assert not list(Path(".torchprof/outbox").glob("*.gz"))


@pytest.mark.parametrize("where", ["mysql://host/db", "file.txt", "sqlite://"])
def test_what_is_no_store_is_refused_at_once(run_tests, pytester, where):
    pytester.path.joinpath("file.txt").touch()
    result = run_tests(MEASURED, f"--torchprof-history={where}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "bad-option" in f"{result.outlines}{result.errlines}"


def test_processes_that_are_killed_while_they_write_leave_whole_records_alone(tmp_path):
    """Whoever reads meanwhile, or afterwards, sees whole records or none."""
    code = (
        "import sys; from pathlib import Path; from histories import *\n"
        "for at in range(10_000): write(Path(sys.argv[1]), [run_of(at, launched('t', {'k': at}), version=sys.argv[2])])"
    )
    writers = [fresh.start_code(code, str(tmp_path), str(at)) for at in range(4)]
    while len(list(tmp_path.glob(f"*{SUFFIX}"))) < 40:
        assert all(writer.process.is_alive() for writer in writers)
        time.sleep(0.001)
    for writer in writers:
        writer.process.kill()
        writer.done()
    kept = records(tmp_path)
    assert len(kept) >= 40
    for version in "0123":
        own = sorted(record.measurements[0].counts["kernels"] for record in kept if record.version == version)
        assert own == list(range(len(own)))


# ------------------------------------------------------------------------------------------------------- what has changed


def test_a_change_is_named_at_its_commit_with_the_kernels_that_came(tmp_path, capsys):
    runs = [run_of(at, launched(TEST, FIVE if at < 4 else SIX)) for at in range(8)]
    told = event(capsys, write(tmp_path, runs))
    assert (told["cause"], told["before"], told["after"]) == ("commit", sha(3), sha(4))
    assert told["came"] == {"pointwise sigmoid": 1}
    assert told["went"] == {}
    assert told["tests"][0]["numbers"]["kernels"] == [5, 6]
    assert told["tests"][0]["state"] == "confirmed"


def test_one_kernel_more_of_forty_is_a_change_and_so_is_one_fewer(tmp_path, capsys):
    counts = [40, 40, 41, 41, 40, 40, 39]
    runs = [run_of(at, launched(TEST, {"k": count})) for at, count in enumerate(counts)]
    told = changes(capsys, write(tmp_path, runs))["events"]
    assert [event["after"] for event in told] == [sha(2), sha(4), sha(6)]
    assert [event["tests"][0]["state"] for event in told] == ["undone", "confirmed", "latest"]
    assert told[0]["tests"][0]["undone_at"] == sha(4)


def test_another_kernel_in_the_place_of_one_is_a_change_though_the_counts_are_the_same(tmp_path, capsys):
    runs = [run_of(at, launched(TEST, {"flash": 1} if at < 2 else {"math": 1})) for at in range(4)]
    told = event(capsys, write(tmp_path, runs))
    assert (told["came"], told["went"], told["tests"][0]["numbers"]) == ({"math": 1}, {"flash": 1}, {})


def test_the_same_change_in_many_tests_is_one_event(tmp_path, capsys):
    tests = [f"test_model.py::test_{name}" for name in "abcde"]
    runs = [run_of(at, *(launched(test, FIVE if at < 2 else SIX) for test in tests)) for at in range(4)]
    told = event(capsys, write(tmp_path, runs))
    assert [one["test"] for one in told["tests"]] == tests
    assert told["came"] == {"pointwise sigmoid": 5}


def test_different_changes_of_one_commit_are_as_many_events(tmp_path, capsys):
    """The same kernels in two tests, others in a third, one more of known ones in a fourth."""
    copied = {**FIVE, "copy": 2}
    changed = {"a": SIX, "b": copied, "c": SIX, "d": {**FIVE, "softmax": 2}}
    runs = [
        run_of(at, *(launched(f"test_model.py::test_{name}", FIVE if at < 2 else now) for name, now in changed.items()))
        for at in range(4)
    ]
    folder = str(write(tmp_path, runs))
    assert main(["history", "changes", folder, "--json"]) == 0
    events = json.loads(capsys.readouterr().out)["events"]
    assert {(own["before"], own["after"]) for own in events} == {(sha(1), sha(2))}
    assert [[test["test"][-1] for test in own["tests"]] for own in events] == [["a", "c"], ["b"], ["d"]]
    assert [own["came"] for own in events] == [{"pointwise sigmoid": 2}, {"copy": 2}, {"softmax": 1}]
    assert len({own["id"] for own in events}) == 3
    for at, own in enumerate(events):
        assert main(["history", "changes", folder, "--fail-on", "counts"]) == 1
        shown = capsys.readouterr().out
        assert shown.count("known: meant") == at
        assert main(["history", "accept", folder, own["id"][:8], "meant"]) == 0
    assert main(["history", "changes", folder, "--fail-on", "counts"]) == 0


SECOND = "test_model.py::test_second"


@pytest.mark.parametrize("gap", [4, 5])
def test_a_test_that_lacks_a_run_beside_the_change_of_another_is_of_the_same_event(tmp_path, capsys, gap):
    runs = [
        run_of(at, *(launched(test, FIVE if at < 5 else SIX) for test in (SECOND, TEST) if (test, at) != (SECOND, gap)))
        for at in range(9)
    ]
    told = event(capsys, write(tmp_path, runs))
    assert (told["cause"], told["commits"]) == ("commit", [sha(5)])
    known = {own["test"]: (own["before"], own["after"]) for own in told["tests"]}
    assert known == {TEST: (sha(4), sha(5)), SECOND: (sha(3), sha(5)) if gap == 4 else (sha(4), sha(6))}
    main(["history", "changes", str(tmp_path)])
    text = " ".join(capsys.readouterr().out.split())
    assert text.count("; measured at ") == 1
    assert "; measured at {} and {}".format(*(own[:7] for own in known[SECOND])) in text


def test_a_gpu_that_measures_few_commits_tells_of_the_same_event_as_one_that_measures_all(tmp_path, capsys):
    b200 = replace(H100, gpu="NVIDIA B200")
    runs = [run_of(at, launched(TEST, FIVE if at < 5 else SIX)) for at in range(8)]
    runs += [run_of(at, launched(TEST, FIVE if at < 5 else SIX), environment=b200) for at in (0, 3, 6, 7)]
    told = event(capsys, write(tmp_path, runs))
    assert (told["cause"], told["commits"]) == ("commit", [sha(5)])
    assert {own["hardware"] for own in told["tests"]} == {"NVIDIA B200", "NVIDIA H100 80GB HBM3"}


def test_ranges_leave_the_commits_that_they_have_in_common(tmp_path, capsys):
    measured = {TEST: (0, 2, 6), SECOND: (0, 3, 7)}
    runs = [
        run_of(at, *(launched(test, FIVE if at < 5 else SIX) for test, own in measured.items() if at in own))
        for at in range(8)
    ]
    told = event(capsys, write(tmp_path, runs))
    assert (told["cause"], told["commits"]) == ("range", [sha(4), sha(5), sha(6)])


def test_a_range_with_other_kernels_or_with_two_changes_in_it_is_blamed_on_none_of_them(tmp_path, capsys):
    other = {**FIVE, "relu": 1}
    runs = [
        run_of(at, launched(TEST, FIVE if at < 4 else SIX), *([launched(SECOND, other if at else FIVE)] * (at != 4)))
        for at in (*range(1), *range(4, 7))
    ]
    told = changes(capsys, write(tmp_path / "other", runs))["events"]
    assert [(own["before"], own["after"], len(own["tests"])) for own in told] == [
        (sha(0), sha(4), 1),
        (sha(0), sha(5), 1),
    ]
    third = "test_model.py::test_third"
    runs = [
        run_of(
            at,
            launched(TEST, FIVE if at < 2 else SIX),
            launched(SECOND, FIVE if at < 4 else SIX),
            *([launched(third, FIVE if at < 3 else SIX)] if at in {0, 6} else []),
        )
        for at in range(7)
    ]
    told = changes(capsys, write(tmp_path / "two", runs))["events"]
    assert [(own["commits"][0], len(own["commits"]), own["tests"][0]["test"]) for own in told] == [
        (sha(2), 1, TEST),
        (sha(4), 1, SECOND),
        (sha(1), 6, third),
    ]


def test_times_are_no_change(tmp_path, capsys):
    runs = [run_of(at, launched(TEST, FIVE)) for at in range(5)]
    assert len({run.varying[0].numbers["gpu_busy_us"] for run in runs}) == 5
    assert changes(capsys, write(tmp_path, runs))["events"] == []


def test_commits_between_two_runs_are_a_range_with_the_line_that_bisects_it(tmp_path, capsys):
    runs = [run_of(at, launched(TEST, FIVE if at < 5 else SIX)) for at in (0, 1, 6, 7)]
    told = event(capsys, write(tmp_path, runs))
    assert told["cause"] == "range"
    assert told["commits"] == [sha(at) for at in range(2, 7)]
    main(["history", "changes", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert f"    torchprof bisect --changed {TEST} --good {sha(1)[:12]} --bad {sha(6)[:12]}" in lines


def test_an_upgrade_at_one_commit_is_the_environments_change(tmp_path, capsys):
    runs = [
        run_of(0, launched(TEST, FIVE)),
        run_of(1, launched(TEST, FIVE)),
        run_of(1, launched(TEST, SIX), environment=UPGRADED),
        run_of(2, launched(TEST, SIX), environment=UPGRADED),
    ]
    told = event(capsys, write(tmp_path, runs))
    assert told["cause"] == "environment"
    assert told["moved"] == {"torch": ["2.14.0", "2.15.0"]}


def test_a_commit_and_an_upgrade_together_cannot_be_told_apart(tmp_path, capsys):
    runs = [run_of(0, launched(TEST, FIVE)), run_of(1, launched(TEST, SIX), environment=UPGRADED)]
    assert event(capsys, write(tmp_path, runs))["cause"] == "undecidable"


def test_an_upgrade_that_changes_nothing_is_no_event(tmp_path, capsys):
    runs = [run_of(0, launched(TEST, FIVE)), run_of(1, launched(TEST, FIVE), environment=UPGRADED)]
    assert changes(capsys, write(tmp_path, runs))["events"] == []


def test_a_job_of_more_ranks_is_another_series(tmp_path, capsys):
    runs = [run_of(at, launched(TEST, FIVE if at < 2 else SIX, rank=0, ranks=2 if at < 2 else 4)) for at in range(4)]
    told = changes(capsys, write(tmp_path, runs))
    assert told["events"] == []
    assert [(series["rank"], series["ranks"], series["points"]) for series in told["series"]] == [(0, 2, 2), (0, 4, 2)]


def test_two_versions_that_run_side_by_side_are_not_compared_with_each_other(tmp_path, capsys):
    runs = [
        run for at in range(4)
        for run in (run_of(at, launched(TEST, FIVE)), run_of(at, launched(TEST, SIX), environment=UPGRADED))
    ]  # fmt: skip
    assert changes(capsys, write(tmp_path, runs))["events"] == []


def test_what_became_of_a_test_alike_with_both_versions_is_listed_once(tmp_path, capsys):
    runs = [
        run for at in range(4)
        for run in (
            run_of(at, launched(TEST, FIVE if at < 2 else SIX)),
            run_of(at, launched(TEST, FIVE if at < 2 else SIX), environment=UPGRADED),
        )
    ]  # fmt: skip
    assert main(["history", "changes", str(write(tmp_path, runs))]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.count(f"{TEST} (") == 1
    assert "kernels 5 -> 6, launches 5 -> 6; alike with 2 versions" in text


def test_a_test_that_was_edited_is_its_own_cause(tmp_path, capsys):
    runs = [run_of(0, launched(TEST, FIVE)), run_of(1, launched(TEST, SIX, source="edited"))]
    assert event(capsys, write(tmp_path, runs))["cause"] == "test"


def test_runs_of_one_commit_that_disagree_make_it_unsteady_and_no_change(tmp_path, capsys):
    runs = [
        *(run_of(at, launched(TEST, FIVE)) for at in (0, 1, 2, 3)),
        run_of(2, launched(TEST, SIX), branch="main"),
    ]
    told = event(capsys, write(tmp_path, runs))
    assert (told["cause"], told["after"], told["tests"][0]["state"]) == ("none", sha(2), "unsteady")


EPYC = replace(H100, cpu="AMD EPYC", driver="570.2")
XEON = replace(H100, cpu="Intel Xeon", driver="580.1")


def test_machines_that_take_turns_tell_of_one_gpu_model_together(tmp_path, capsys):
    runs = [run_of(at, launched(TEST, FIVE if at < 5 else SIX), environment=(EPYC, XEON)[at % 2]) for at in range(10)]
    told = event(capsys, write(tmp_path, runs))
    assert (told["cause"], told["commits"], told["moved"]) == ("commit", [sha(5)], {})


def test_runs_of_one_commit_that_disagree_on_two_machines_make_it_unsteady(tmp_path, capsys):
    runs = [
        *(run_of(at, launched(TEST, FIVE), environment=EPYC) for at in range(4)),
        run_of(2, launched(TEST, SIX), environment=XEON),
    ]
    folder = write(tmp_path, runs)
    told = event(capsys, folder)
    assert (told["cause"], told["after"], told["tests"][0]["state"]) == ("none", sha(2), "unsteady")
    assert set(told["moved"]) == {"cpu", "driver"}
    assert main(["history", "when", str(folder), TEST, "kernels >= 6"]) == 3


def test_a_machine_that_moved_with_the_commit_and_no_run_tells_them_apart_is_named(tmp_path, capsys):
    runs = [run_of(at, launched(TEST, FIVE if at < 2 else SIX), environment=(EPYC, XEON)[at // 2]) for at in range(4)]
    told = event(capsys, write(tmp_path, runs))
    assert told["cause"] == "undecidable"
    assert told["moved"] == {"cpu": ["AMD EPYC", "Intel Xeon"], "driver": ["570.2", "580.1"]}
    earlier = run_of(0, launched(TEST, FIVE), environment=XEON)
    told = event(capsys, write(tmp_path, [earlier]))
    assert (told["cause"], told["moved"]) == ("commit", {})


def test_gpus_and_labels_and_devices_are_series_of_their_own(tmp_path, capsys):
    other = replace(UPGRADED, gpu="NVIDIA B200", torch="2.14.0")
    runs = [
        run_of(0, launched(TEST, FIVE), launched(TEST, SIX, label="decode"), launched(TEST, FIVE, device="cuda:1")),
        run_of(1, launched(TEST, SIX), environment=other),
    ]
    told = changes(capsys, write(tmp_path, runs))
    assert told["events"] == []
    assert len(told["series"]) == 4


def test_what_was_not_measured_is_a_gap_and_never_a_change(tmp_path, capsys):
    runs = [run_of(at, launched(TEST, None if at == 2 else FIVE)) for at in range(5)]
    told = changes(capsys, write(tmp_path, [*runs, run_of(5)]))
    assert told["events"] == []
    (series,) = told["series"]
    assert (series["points"], series["gaps"], series["missing"]) == (4, {"lost-kernels": 1}, 1)


SKIPPED = """
import os
import torch

@cpu
def test_it(torchprof):
    torchprof(torch.sin, x)
    if "WITHOUT" in os.environ: pytest.skip("not today")

@cpu
def test_body():
    if "WITHOUT" in os.environ: pytest.skip("not today")
    torch.sin(x)

@pytest.mark.skipif("WITHOUT" in os.environ, reason="not today")
@cpu
def test_marked(): torch.sin(x)
"""


def test_a_run_that_skips_a_test_leaves_a_gap_that_is_listed_as_skipped(run_tests, pytester, capsys, monkeypatch):
    pytester.path.joinpath(".gitignore").write_text("__pycache__\n")
    git(pytester.path, "init", "-q")
    for number in range(3):
        with monkeypatch.context() as patched:
            if number == 1:
                patched.setenv("WITHOUT", "1")
            pytester.path.joinpath(".gitignore").write_text(f"__pycache__\ntest_it.py\n.torchprof\n# {number}\n")
            git(pytester.path, "add", ".gitignore")
            git(pytester.path, "commit", "-q", "-m", str(number))
            run_tests(SKIPPED, "--torchprof-history=kept")
    capsys.readouterr()
    series = {own["test"]: own for own in changes(capsys, "kept")["series"]}
    listed = {name.partition("::")[2]: (own["points"], own["gaps"], own["missing"]) for name, own in series.items()}
    assert listed == {
        "test_it": (2, {"skipped": 1}, 0),
        "test_body": (2, {"not-run-to-end": 1}, 0),
        "test_marked": (2, {}, 1),
    }
    assert main(["history", "changes", "kept"]) == 0
    assert "gaps: 1 not-run-to-end, 1 skipped, 1 missing" in capsys.readouterr().out
    assert main(["history", "log", "kept", "test_it.py::test_it"]) == 0
    assert "gaps: 1 skipped" in capsys.readouterr().out


def test_a_test_that_a_run_of_all_tests_no_longer_has_was_removed_and_is_no_gap(tmp_path, capsys):
    other = launched("test_m.py::test_other", FIVE)
    part = [run_of(at, *([launched(TEST, FIVE), other] if at < 2 else [other])) for at in range(4)]
    (gone, _) = sorted(changes(capsys, write(tmp_path / "part", part))["series"], key=lambda series: series["points"])
    assert (gone["missing"], gone["open_end"], gone["removed_at"]) == (2, True, None)
    folder = write(tmp_path / "whole", [*part, run_of(4, other, all_tests=EVERYWHERE), run_of(5, other)])
    (gone, stays) = sorted(changes(capsys, folder, "--fail-on=counts")["series"], key=lambda series: series["points"])
    assert (gone["missing"], gone["open_end"], gone["removed_at"]) == (2, False, sha(4))
    assert (stays["missing"], stays["removed_at"]) == (0, None)
    main(["history", "changes", str(folder)])
    assert f"removed: {TEST} (not in {sha(4)[:7]})" in capsys.readouterr().out
    main(["history", "log", str(folder), TEST])
    assert f"removed: {sha(4)[:7]}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(run_of(4, launched("t", FIVE), all_tests=EVERYWHERE, complete=False), id="stopped"),
        pytest.param(run_of(4, launched(TEST, None), all_tests=EVERYWHERE), id="not measured"),
        pytest.param(
            run_of(4, launched(TEST, FIVE, rank=0, ranks=2), all_tests=EVERYWHERE), id="another rank is there"
        ),
        pytest.param(run_of(4, launched("t", FIVE), all_tests=EVERYWHERE, folder="other"), id="of another folder"),
        pytest.param(run_of(4, launched("t", FIVE)), id="of a part"),
        pytest.param(run_of(4, launched("t", FIVE), all_tests=AllTests(below=("",), unmeasured=(TEST,))), id="skipped"),
        pytest.param(
            run_of(4, launched("t", FIVE), all_tests=AllTests(below=("test_m", "test"))), id="of other folders"
        ),
    ],
)
def test_what_may_still_be_there_is_not_called_removed(tmp_path, capsys, run):
    facts = {"rank": 1, "ranks": 2} if run.measurements[0].rank == 0 else {}
    folder = write(tmp_path, [*(run_of(at, launched(TEST, FIVE, **facts)) for at in range(3)), run])
    assert {series["removed_at"] for series in changes(capsys, folder)["series"]} == {None}


def test_a_run_without_the_rules_of_a_suite_misses_no_test_that_these_have_measured(tmp_path, capsys):
    runs = [run_of(at, launched(TEST, FIVE), suite=True) for at in range(3)]
    without = run_of(3, launched("t", FIVE), all_tests=EVERYWHERE)
    told = changes(capsys, write(tmp_path, [*runs, without]))
    assert {series["removed_at"] for series in told["series"]} == {None}
    told = changes(capsys, write(tmp_path, [run_of(4, launched("t", FIVE), all_tests=EVERYWHERE, suite=True)]))
    assert {series["removed_at"] for series in told["series"]} == {None, sha(4)}


def test_the_projects_of_one_repository_do_not_miss_each_others_tests(tmp_path, capsys):
    runs = [run_of(at, launched(TEST, FIVE), folder=folder) for at in range(4) for folder in ("a", "b")]
    assert {series["missing"] for series in changes(capsys, write(tmp_path, runs))["series"]} == {0}


@pytest.mark.parametrize(
    ("words", "below"),
    [
        ([], ("",)),
        (["."], ("",)),
        (["-n2"], ("",)),
        (["-k", "it"], None),
        (["-m", "torchprof"], None),
        (["test_it.py"], None),
        (["--ignore=test_other.py"], None),
        (["-n2", "-k", "it"], None),
        (["--deselect=test_it.py::test_plain"], None),
        (["-o", "testpaths=test_it.py"], ("test_it.py",)),
    ],
)
def test_a_record_says_where_all_tests_of_the_project_were_selected(run_tests, pytester, words, below):
    pytester.makepyfile(test_other="def test_another(): pass")
    run_tests(MEASURED + "\ndef test_plain(): pass", "--torchprof-history=history", *words)
    (record,) = records("history")
    assert record.all_tests == (None if below is None else AllTests(below=below))


@pytest.mark.parametrize("words", [[], ["-n2"]])
def test_a_test_that_left_no_measurement_is_named_so_that_nobody_takes_it_for_gone(run_tests, words):
    tests = """
        import os, pytest, torch

        def measured(): torch.mm(torch.ones(4, 4), torch.ones(4, 4))

        @pytest.fixture
        def broken(): raise RuntimeError

        @cpu
        def test_measured(): measured()

        @pytest.mark.skip
        @cpu
        def test_skipped(): measured()

        @pytest.mark.xfail(run=False)
        @cpu
        def test_not_run(): measured()

        @cpu
        def test_without_its_fixture(broken): measured()

        def test_that_fails_first(torchprof): assert False

        @cpu
        def test_that_ends_its_worker(pytestconfig):
            if hasattr(pytestconfig, "workerinput"): os._exit(1)
            measured()

        def test_plain(): pass
    """
    run_tests(textwrap.dedent(tests), "--torchprof-history=history", *words)
    (record,) = records("history")
    nothing = {"test_skipped", "test_not_run", "test_that_fails_first"}
    measured = {row.test.partition("::")[2]: row for row in record.measurements}
    assert measured["test_without_its_fixture"].outcome == "error", "a marked test whose code raised has a row"
    assert {test.partition("::")[2] for test in record.all_tests.unmeasured} == {
        *nothing,
        *({"test_measured", "test_that_ends_its_worker"} - measured.keys()),
    }
    assert ("test_that_ends_its_worker" in measured) is (words == [])


@pytest.mark.parametrize(
    "conftest",
    [
        "collect_ignore = ['test_other.py']",
        "collect_ignore = ['folder']",
        "def pytest_ignore_collect(collection_path): return True if collection_path.name == 'test_other.py' else None",
        "def pytest_collection_modifyitems(items): items[:] = [item for item in items if item.name == 'test_it']",
    ],
)
def test_what_a_conftest_leaves_out_may_still_be_there(run_tests, pytester, conftest):
    pytester.makepyfile(**{"test_other": "def test_another(): pass", "folder/test_more": "def test_more(): pass"})
    pytester.makeconftest(conftest)
    run_tests(MEASURED, "--torchprof-history=history")
    (record,) = records("history")
    assert record.all_tests is None


def test_what_no_test_is_expected_in_is_ignored_and_leaves_none_out(run_tests, pytester):
    pytester.makepyfile(**{"setup": "", ".hidden/test_no": "", "venv/test_no": "", "build/test_no": ""})
    pytester.makeconftest("collect_ignore = ['setup.py']")
    run_tests(MEASURED, "--torchprof-history=history")
    (record,) = records("history")
    assert record.all_tests == EVERYWHERE


def test_where_a_file_is_skipped_or_cannot_be_collected_nobody_knows_all_tests(run_tests, pytester):
    pytester.makepyfile(test_other="import pytest\npytest.importorskip('no_such_module')")
    run_tests(MEASURED, "--torchprof-history=history")
    pytester.makepyfile(test_other="raise RuntimeError")
    run_tests(MEASURED, "--torchprof-history=history", "--continue-on-collection-errors")
    assert [record.all_tests for record in records("history")] == [None, None]


@pytest.fixture
def forked_readers(monkeypatch):
    """Let the processes that read a long history be forks: test_history_times reads one by processes as they are."""
    monkeypatch.setattr("pytest_torchprof.system.spawned_pool.ProcessPoolExecutor", judges.forked)


@pytest.mark.usefixtures("forked_readers")
def test_a_long_history_is_read_to_its_end_where_the_processes_that_read_it_are_ended():
    def until_killed(packed):
        for number, own in enumerate(packed):
            if number == 300:
                for process in multiprocessing.active_children():
                    process.kill()
            yield own

    packed = [(str(number), encode(run_of(number, launched(TEST, FIVE)))) for number in range(1000)]
    alone = [run.uuid for run in RunReader().read(packed)]
    assert [run.uuid for run in read_many(RunReader(), until_killed(packed))] == alone


@pytest.mark.usefixtures("forked_readers")
def test_so_it_is_where_they_are_ended_while_they_hand_over_what_they_have_read():
    """A part is larger than what a pipe holds: nobody empties it meanwhile, as on a machine that has much to do."""

    def until_killed(packed):
        for number, own in enumerate(packed):
            if number == 300:
                kill_children_at_full_pipes(0.5)
            yield own

    packed = [
        (str(number), encode(run_of(number, *(launched(f"{TEST}{at}", {f"{number}_{at}": 1}) for at in range(40)))))
        for number in range(400)
    ]
    alone = [run.uuid for run in RunReader().read(packed)]
    assert [run.uuid for run in read_many(RunReader(), until_killed(packed))] == alone


def test_dirty_runs_and_pull_requests_are_never_points(tmp_path, capsys):
    odd = [
        run_of(2, launched(TEST, SIX), dirty=True),
        run_of(2, launched(TEST, SIX), event=Event.PR),
        run_of(2, launched(TEST, SIX), sha=sha("side"), ancestors=(sha(1), sha(0)), branch="side"),
        replace(run_of(2, launched(TEST, SIX)), commit=None, uuid="0" * 32),
    ]
    runs = [run_of(at, launched(TEST, FIVE)) for at in range(4)]
    told = changes(capsys, write(tmp_path, [*runs, *odd]))
    assert told["events"] == []
    assert told["left_out"] == {"no commit": 1, "uncommitted changes": 1, "pull requests": 1, "other branches": 1}


def test_a_commit_that_was_checked_out_by_its_hash_belongs_to_the_branch_whose_ancestor_it_is(tmp_path, capsys):
    runs = [run_of(at, launched(TEST, FIVE if at < 2 else SIX), branch=None if at < 3 else "main") for at in range(4)]
    told = changes(capsys, write(tmp_path, runs))
    assert told["runs"] == 4
    assert told["events"][0]["after"] == sha(2)


def test_where_no_ancestry_connects_the_runs_dates_order_them_and_no_commit_is_accused(tmp_path, capsys):
    runs = [run_of(at, launched(TEST, FIVE if at < 300 else SIX)) for at in (0, 299, 600)]
    folder = write(tmp_path, runs)
    told = changes(capsys, folder)
    assert told["ordered_by"] == "dates"
    assert (told["events"][0]["cause"], told["events"][0]["commits"]) == ("range", None)
    changes(
        capsys, write(tmp_path / "steady", [runs[0], run_of(600, launched(TEST, FIVE))]), "--fail-on=counts", status=3
    )


@pytest.mark.parametrize(
    "days", [pytest.param((0, 1, 2, 1), id="a clock was late"), pytest.param((0, 0, 0, 0), id="all of one date")]
)
@pytest.mark.parametrize("measured", [(0, 1, 2, 3), (3, 2, 1, 0)], ids=["in their order", "backwards"])
def test_what_the_records_know_of_ancestors_orders_the_commits_whatever_their_dates_are(
    tmp_path, capsys, days, measured
):
    runs = [
        run_of(
            at,
            launched(TEST, FIVE if at < 2 else SIX),
            date=DAY + timedelta(days=days[at]),
            began=DAY + timedelta(days=10 + measured[at]),
        )
        for at in range(4)
    ]
    told = changes(capsys, write(tmp_path, runs))
    assert told["ordered_by"] == "ancestry"
    assert [(own["cause"], own["after"], own["came"]) for own in told["events"]] == [
        ("commit", sha(2), {"pointwise sigmoid": 1})
    ]


def test_where_dates_join_two_lines_of_commits_each_of_them_keeps_its_own_order(tmp_path, capsys):
    lines = [(0, 1, 2), (600, 601, 602)]
    runs = [
        run_of(
            at,
            launched(TEST, {"k": at}),
            date=DAY + timedelta(days=line[0]),
            began=DAY + timedelta(days=2000 - at),
        )
        for line in lines for at in line
    ]  # fmt: skip
    told = changes(capsys, write(tmp_path, runs))
    assert told["ordered_by"] == "dates"
    assert [own["after"] for own in told["events"]] == [sha(at) for at in (1, 2, 600, 601, 602)]


def test_every_answer_by_dates_says_so_and_what_tells_the_order(tmp_path, capsys):
    folder = str(write(tmp_path, [run_of(at, launched(TEST, FIVE if at < 300 else SIX)) for at in (0, 299, 600)]))
    for words, status in (("changes", 0), ("log", 0), ("when", 3)):
        more = {"changes": [], "log": [TEST], "when": [TEST, "kernels >= 6"]}[words]
        assert main(["history", words, folder, *more]) == status
        heading = " ".join(capsys.readouterr().out.split())
        assert heading.startswith("main: 3 runs of 3 commits, in the order of their dates")
        assert "--git DIR" in heading


def test_a_clone_tells_the_order_that_the_records_do_not(tmp_path, capsys):
    clone = tmp_path / "clone"
    clone.mkdir()
    git(clone, "init")
    shas = []
    for at in range(4):
        git(clone, "commit", "-m", str(at), "--allow-empty")
        shas.append(git(clone, "rev-parse", "HEAD"))
    # All of the same date, as commits of a rebase are, and without ancestors, as in a shallow clone.
    runs = [
        run_of(0, launched(TEST, FIVE if at < 2 else SIX), sha=shas[at], ancestors=(), shallow=True, branch="main")
        for at in range(4)
    ]
    told = changes(capsys, write(tmp_path / "kept", runs), f"--git={clone}")
    assert told["ordered_by"] == "git"
    assert (told["events"][0]["cause"], told["events"][0]["after"]) == ("commit", shas[2])


@pytest.fixture
def stale(tmp_path):
    """A clone that was made before the last commits, the repository it is of, and a history with a run of each."""
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    origin.mkdir()
    git(origin, "init")
    shas = []
    for at in range(5):
        git(origin, "commit", "-m", str(at), "--allow-empty")
        shas.append(git(origin, "rev-parse", "HEAD"))
        if at == 1:
            git(tmp_path, "clone", "-q", str(origin), str(clone))
    runs = [
        run_of(at, launched(TEST, FIVE if at < 3 else SIX), sha=own, ancestors=tuple(shas[:at][::-1]))
        for at, own in enumerate(shas)
    ]
    return clone, shas, write(tmp_path / "kept", runs)


def test_commits_that_a_clone_lacks_are_named_and_what_they_could_change_cannot_be_told(stale, capsys):
    clone, shas, folder = stale
    told = changes(capsys, folder, f"--git={clone}", "--fail-on=counts", status=3)
    assert (told["runs"], told["left_out"], told["not_in_git"]) == (2, {"not in git's order": 3}, shas[2:])
    assert main(["history", "when", str(folder), TEST, "kernels >= 6", f"--git={clone}"]) == 3
    heading = " ".join(capsys.readouterr().out.split())
    assert f"{shas[2][:7]}, {shas[3][:7]}, {shas[4][:7]}; git fetch" in heading


def test_of_a_branch_and_what_was_fetched_of_it_the_newer_one_orders_the_commits(stale, capsys):
    clone, shas, folder = stale
    git(clone, "fetch", "-q")
    for at, checked_out in enumerate((shas[1], shas[4])):
        git(clone, "reset", "-q", "--hard", checked_out)
        if at:
            git(clone, "update-ref", "refs/remotes/origin/main", shas[1])
        told = changes(capsys, folder, f"--git={clone}", "--fail-on=counts", status=1)
        assert (told["events"][0]["cause"], told["events"][0]["after"], told["not_in_git"]) == ("commit", shas[3], [])


def test_before_the_first_commit_of_a_shallow_clone_the_records_tell_the_order(stale, tmp_path, capsys):
    _, shas, folder = stale
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{tmp_path / 'origin'}", str(shallow))
    told = changes(capsys, folder, f"--git={shallow}", "--fail-on=counts", status=1)
    assert (told["runs"], told["ordered_by"], told["not_in_git"]) == (5, "git", [])
    assert (told["events"][0]["cause"], told["events"][0]["after"]) == ("commit", shas[3])
    unknown = [run_of(at, launched(TEST, FIVE), sha=shas[at], ancestors=()) for at in (0, 4)]
    told = changes(capsys, write(tmp_path / "unknown", unknown), f"--git={shallow}", "--fail-on=counts", status=3)
    assert told["not_in_git"] == [shas[0]]


def test_a_run_of_a_commit_that_was_merged_into_the_branch_leaves_nothing_open(stale, tmp_path, capsys):
    clone, shas, folder = stale
    git(clone, "fetch", "-q")
    git(clone, "checkout", "-q", "-b", "side")
    git(clone, "commit", "-m", "by the side", "--allow-empty")
    aside = git(clone, "rev-parse", "HEAD")
    git(clone, "checkout", "-q", "main")
    git(clone, "reset", "-q", "--hard", "origin/main")
    git(clone, "merge", "-q", "--no-ff", "-m", "merged", "side")
    write(folder, [run_of(9, launched(TEST, SIX), sha=aside, ancestors=tuple(shas[:2][::-1]))])
    told = changes(capsys, folder, f"--git={clone}", "--fail-on=counts", "--since=2026-02-01")
    assert (told["left_out"], told["not_in_git"]) == ({"other branches": 1}, [])


def test_a_commit_that_the_clone_holds_aside_from_the_branch_is_named_and_leaves_nothing_open(stale, capsys):
    clone, shas, folder = stale
    git(clone, "fetch", "-q")
    git(clone, "checkout", "-q", "-b", "aside", shas[1])
    git(clone, "commit", "-m", "taken back", "--allow-empty")
    aside = git(clone, "rev-parse", "HEAD")
    git(clone, "checkout", "-q", "main")
    write(folder, [run_of(9, launched(TEST, FIVE), sha=aside, ancestors=tuple(shas[:2][::-1]))])
    told = changes(capsys, folder, f"--git={clone}", "--fail-on=counts", status=1)
    assert (told["left_out"], told["diverged"], told["not_in_git"]) == (
        {"commits that left the branch": 1},
        [aside],
        [],
    )
    assert main(["history", "when", str(folder), TEST, "kernels >= 6", f"--git={clone}"]) == 0
    assert f"aside from it in the clone: {aside[:7]}" in " ".join(capsys.readouterr().out.split())


def test_runs_that_are_no_points_are_each_counted_once_by_their_reason(stale, capsys):
    """Two of another branch, one that left the branch, one that nobody pushed, and all that are the branch's."""
    clone, shas, folder = stale
    git(clone, "fetch", "-q")
    git(clone, "checkout", "-q", "-b", "aside", shas[1])
    git(clone, "commit", "-m", "taken back", "--allow-empty")
    aside = git(clone, "rev-parse", "HEAD")
    git(clone, "checkout", "-q", "main")
    line = tuple(shas[:2][::-1])
    odd = [run_of(9, launched(TEST, FIVE), sha=sha(name), ancestors=line, branch="side") for name in "ab"]
    odd += [run_of(9, launched(TEST, FIVE), sha=aside, ancestors=line), given_up(9, ancestors=line)]
    told = changes(capsys, write(folder, odd), f"--git={clone}")
    assert told["runs"] == 5
    assert told["left_out"] == {
        "other branches": 2,
        "commits that left the branch": 1,
        "local commits that CI does not know": 1,
    }


def given_up(own_line, **facts):
    """A run of somebody's commit on main that was never pushed."""
    facts = {"sha": sha("mine"), "ancestors": tuple(map(sha, range(4, -1, -1))), **facts}
    return run_of(own_line, launched(TEST, SEVEN), event=Event.LOCAL, **facts)


def test_a_local_commit_that_ci_does_not_know_is_named_and_no_point_of_the_branch(tmp_path, capsys):
    runs = [run_of(at, launched(TEST, FIVE if at < 12 else SIX)) for at in range(20)]
    folder = write(tmp_path, [*runs, given_up(5)])
    told = changes(capsys, folder, "--fail-on=counts", status=1)
    assert (told["ordered_by"], told["runs"], told["not_pushed"]) == ("ancestry", 20, [sha("mine")])
    assert [(own["cause"], own["after"]) for own in told["events"]] == [("commit", sha(12))]
    assert main(["history", "when", str(folder), TEST, "kernels >= 6"]) == 0
    assert f"known to no run of CI: {sha('mine')[:7]}" in " ".join(capsys.readouterr().out.split())


def test_a_local_run_of_a_commit_that_ci_has_passed_is_a_point(tmp_path, capsys):
    runs = [run_of(at, launched(TEST, FIVE if at < 3 else SIX)) for at in (0, 1, 2, 4)]
    told = changes(capsys, write(tmp_path, [*runs, run_of(3, launched(TEST, SIX), event=Event.LOCAL)]))
    assert (told["runs"], told["not_pushed"], told["events"][0]["after"]) == (5, [], sha(3))


def test_where_no_run_is_one_of_ci_local_commits_are_the_branch(tmp_path, capsys):
    runs = [run_of(at, launched(TEST, FIVE if at < 3 else SIX), event=Event.LOCAL) for at in range(5)]
    told = changes(capsys, write(tmp_path, runs))
    assert (told["runs"], told["not_pushed"], told["events"][0]["after"]) == (5, [], sha(3))


def test_a_local_commit_that_ci_does_not_know_is_not_the_branchs_newest_run(tmp_path):
    runs = [run_of(at, launched(TEST, FIVE)) for at in range(20)]
    assert [run.commit.sha for run in newest_first([*runs, given_up(20)], "main")] == list(map(sha, range(19, -1, -1)))


def test_a_planted_change_of_each_test_is_found_at_its_commit_and_nothing_else(tmp_path, capsys):
    import random

    chosen = random.Random(7)
    planted = {f"test_m.py::test_{at}": sorted(chosen.sample(range(1, 60), chosen.randrange(4))) for at in range(30)}
    runs = []
    for commit in range(60):
        rows = []
        for test, steps in planted.items():
            count = 40 + sum((-1) ** at for at, step in enumerate(steps) if step <= commit)
            rows.append(launched(test, {"k": count, test: 1}))
        runs.append(run_of(commit, *rows))
    found: dict[str, list[str]] = {test: [] for test in planted}
    for told in changes(capsys, write(tmp_path, runs))["events"]:
        for one in told["tests"]:
            found[one["test"]].append(told["after"])
    assert found == {test: [sha(step) for step in steps] for test, steps in planted.items()}


# ------------------------------------------------------------------------------------------------ one test, and exit codes


def test_a_condition_is_answered_with_the_commit_since_which_it_holds(tmp_path, capsys):
    counts = [5, 6, 6, 5, 5, 7, 8]
    folder = write(tmp_path, [run_of(at, launched(TEST, {"k": count})) for at, count in enumerate(counts)])
    assert main(["history", "when", str(folder), TEST, "kernels >= 6"]) == 0
    out = capsys.readouterr().out
    assert f"since {sha(1)[:7]} (2026-01-02); {sha(0)[:7]} before it had 5, until {sha(3)[:7]}" in out
    assert f"since {sha(5)[:7]} (2026-01-06); {sha(4)[:7]} before it had 5\n" in out
    assert main(["history", "when", str(folder), TEST, "kernels > 100"]) == 0
    assert "never, in 7 runs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("counts", "status", "told"),
    [
        ([5, 5, 6, 6], 0, "before it had 5"),
        ([5, None, 6, 6], 3, "had 5 (1 run in between did not measure it)"),
        ([5, None, 5, 6], 0, "before it had 5"),
        ([6, 6, None, 5], 3, "(1 run in between did not measure it)"),
        ([5, 6, 6, None], 3, "not known of the newest commit"),
        ([5, 5, 5, None], 3, "not known of the newest commit"),
        ([5, 5, None, 5], 0, "never, in 3 runs"),
        ([None, None], 3, "not known: no run has measured it"),
        ([None, 6, 6, 6], 3, "(1 run in between did not measure it)"),
    ],
)
def test_a_condition_whose_answer_hangs_on_a_gap_is_one_that_cannot_be_told(tmp_path, capsys, counts, status, told):
    runs = [run_of(at, launched(TEST, count and {"k": count})) for at, count in enumerate(counts)]
    assert main(["history", "when", str(write(tmp_path, runs)), TEST, "kernels >= 6"]) == status
    assert told in " ".join(capsys.readouterr().out.split())


def test_a_number_that_is_not_known_is_never_called_too_small(tmp_path, capsys):
    folder = str(write(tmp_path, [run_of(at, launched(TEST, FIVE)) for at in range(3)]))
    assert main(["history", "when", folder, TEST, "graph_breaks >= 1"]) == 3
    assert "not known: no run has measured it" in capsys.readouterr().out


def test_runs_of_one_commit_that_disagree_a_damaged_record_or_no_order_leave_a_condition_open(tmp_path, capsys):
    steady = [run_of(at, launched(TEST, FIVE)) for at in range(3)]
    unsteady = write(tmp_path / "unsteady", [*steady, run_of(2, launched(TEST, SIX), version="1.0", complete=False)])
    damaged = write(tmp_path / "damaged", steady)
    (damaged / f"bad{SUFFIX}").write_bytes(encode(steady[0])[:-9])
    for folder in (unsteady, damaged):
        assert main(["history", "when", str(folder), TEST, "kernels >= 6"]) == 3
    assert "runs of one commit disagree" in capsys.readouterr().out


def test_an_upgrade_between_two_runs_of_a_commit_is_an_answer(tmp_path, capsys):
    runs = [run_of(0, launched(TEST, FIVE)), run_of(0, launched(TEST, SIX), environment=UPGRADED)]
    assert main(["history", "when", str(write(tmp_path, runs)), TEST, "kernels >= 6"]) == 0
    assert "before it had 5\n" in capsys.readouterr().out


def test_the_log_draws_the_number_that_is_asked_for_and_puts_it_first(tmp_path, capsys):
    counts = [(5, 9), (5, 9), (5, 7), (5, 7)]
    runs = []
    for at, (kernels, launches) in enumerate(counts):
        measured, structure = launched(TEST, {"k": kernels})
        runs.append(run_of(at, (replace(measured, counts={"kernels": kernels, "launches": launches}), structure)))
    folder = str(write(tmp_path, runs))
    drawn = {}
    for number in ("kernels", "launches"):
        assert main(["history", "log", folder, TEST, "--number", number]) == 0
        lines = capsys.readouterr().out.splitlines()
        at = next(at for at, line in enumerate(lines) if line.startswith("commits "))
        drawn[number] = (lines[at - 1].split()[0:2], lines[at].split()[3], lines[at + 2].split()[3])
    assert drawn == {
        "kernels": (["kernels", "▁▁▁▁"], "kernels", "5"),
        "launches": (["launches", "██▁▁"], "launches", "9"),
    }
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main(["history", "log", folder, TEST, "--number", "gpu_busy_us"]))
    assert ended.value.code == 2


def test_the_log_has_a_row_for_each_stretch_without_a_change(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    folder = write(tmp_path, [run_of(at, launched(TEST, FIVE if at < 4 else SIX)) for at in range(8)])
    assert main(["history", "log", str(folder), TEST]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("▁▁▁▁████" in line and "5 to 6" in line for line in lines)
    rows = [line.split()[:4] for line in lines if ".." in line]
    # Then come the times, in a table of their own.
    assert rows[:2] == [
        [f"{sha(0)[:7]}..{sha(3)[:7]}", "2026-01-01", "4", "5"],
        [f"{sha(4)[:7]}..{sha(7)[:7]}", "2026-01-05", "4", "6"],
    ]
    assert all(len(line) <= 100 for line in lines)


def test_bars_of_a_long_log_stand_as_high_as_the_numbers_beside_them_say(tmp_path, capsys):
    folder = write(tmp_path, [run_of(at, launched(TEST, FIVE if at < 10 else SIX)) for at in range(100)])
    assert main(["history", "log", str(folder), TEST]) == 0
    (drawn,) = [line for line in capsys.readouterr().out.splitlines() if "5 to 6" in line]
    # More than fit: what is left is from when there were six.
    assert set(drawn.split()[1]) == {"█"}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["when", ".", "t", "kernels"], "[bad-usage]"),
        (["when", ".", "t", "kernel >= 5"], "[bad-usage]"),
        (["log", ".", "test_model.py::test_blok"], "[no-history]"),
        (["log", ".", TEST, "--branch=side"], "[no-history]"),
        (["changes", "nowhere"], "[no-history]"),
        (["changes", ".", "--since=yesterday"], "[bad-usage]"),
    ],
)
def test_what_cannot_be_answered_ends_in_exit_status_2(tmp_path, capsys, words, code):
    write(tmp_path, [run_of(0, launched(TEST, FIVE))])
    with chdir(tmp_path):
        assert main(["history", *words]) == 2
    assert code in capsys.readouterr().err


def test_fail_on_counts_tells_changes_that_hold_from_none_and_from_what_cannot_be_told(tmp_path, capsys):
    steady = [run_of(at, launched(TEST, FIVE)) for at in range(3)]
    changes(capsys, write(tmp_path / "a", steady), "--fail-on=counts", status=0)
    changes(capsys, write(tmp_path / "b", [*steady, run_of(3, launched(TEST, SIX))]), "--fail-on=counts", status=1)
    changes(capsys, write(tmp_path / "c", [*steady, run_of(3, launched(TEST, None))]), "--fail-on=counts", status=3)
    never = launched("test_m.py::test_never_judged", None)
    changes(capsys, write(tmp_path / "never", [run_of(0, never)]), "--fail-on=counts", status=3)
    new = [*steady, run_of(3, launched(TEST, FIVE), never)]
    changes(capsys, write(tmp_path / "new", new), "--fail-on=counts", status=3)
    without = run_of(4, launched(TEST, FIVE), all_tests=AllTests(below=("",), unmeasured=()))
    changes(capsys, write(tmp_path / "removed", [*new, without]), "--fail-on=counts", status=0)
    skipped = launched("test_m.py::test_skipped", None, outcome=Outcome.SKIPPED, code=None)
    changes(
        capsys, write(tmp_path / "skipped", [*steady, run_of(3, skipped, launched(TEST, FIVE))]), "--fail-on=counts"
    )
    damaged, changed = write(tmp_path / "damaged", steady), run_of(3, launched(TEST, SIX))
    (damaged / f"{changed.uuid}{SUFFIX}").write_bytes(encode(changed)[:-9])
    changes(capsys, damaged, "--fail-on=counts", status=3)
    back = [run_of(3, launched(TEST, SIX)), run_of(4, launched(TEST, FIVE)), run_of(5, launched(TEST, FIVE))]
    late = "--since=2026-01-04"
    changes(capsys, write(tmp_path / "d", [*steady, back[0]]), "--fail-on=counts", late, status=1)
    changes(capsys, write(tmp_path / "e", [*steady, back[0]]), "--fail-on=counts", "--since=2026-02-01", status=0)


# ---------------------------------------------------------------------------------------------- what others have recorded


def test_records_of_files_folders_and_archives_are_taken_once(tmp_path, capsys):
    runs = [run_of(at, launched(TEST, FIVE)) for at in range(3)]
    below = write(tmp_path / "artifact" / "job", runs[:2])
    lone = tmp_path / f"lone{SUFFIX}"
    lone.write_bytes(encode(runs[2]))
    with zipfile.ZipFile(tmp_path / "artifact.zip", "w") as archive:
        for file in below.iterdir():
            archive.write(file, f"deep/{file.name}")
        archive.writestr("other.txt", "no record")
    sources = [str(tmp_path / "artifact"), str(lone), str(tmp_path / "artifact.zip")]
    assert main(["history", "import", str(tmp_path / "store"), *sources]) == 0
    assert capsys.readouterr().out == "3 records added, 2 known, 0 refused\n"
    assert main(["history", "import", str(tmp_path / "store"), *sources]) == 0
    assert capsys.readouterr().out == "0 records added, 5 known, 0 refused\n"
    assert main(["history", "verify", str(tmp_path / "store")]) == 0


GOOD = run_of(1, launched(TEST, FIVE))
PLAIN = json.loads(msgspec.json.encode(GOOD, enc_hook=str))


def spoilt(**changed):
    return gzip.compress(json.dumps({**PLAIN, **changed}).encode())


MEASUREMENT = PLAIN["measurements"][0]
TIMES = {"conditions": {"cpu": "EPYC"}, "samples": 3, "median_us": 2.0, "quantiles_us": [1.0, 2.0, 3.0]}
BAD = {
    "cut": encode(GOOD)[:-20],
    "no archive": b"not packed",
    "no JSON": gzip.compress(b"{"),
    "too large": gzip.compress(b" " * (65 << 20), compresslevel=1),
    "too many": spoilt(measurements=[MEASUREMENT] * 20_001, varying=[{}] * 20_001),
    "without times": spoilt(varying=[]),
    "goes on": encode(GOOD) + encode(GOOD),
    "NaN": spoilt(measurements=[{**MEASUREMENT, "counts": {"kernels": float("nan")}}]),
    "infinite": gzip.compress(json.dumps(PLAIN).encode().replace(b'"kernels": 5', b'"kernels": 1e999')),
    "a surrogate": spoilt(version="\udc80"),
    "newer": spoilt(schema=2),
    "no id": spoilt(uuid="../../etc/passwd"),
    "no hash": spoilt(commit={**PLAIN["commit"], "sha": "--output=x"}),
    "no such environment": spoilt(measurements=[{**MEASUREMENT, "environment": 7}]),
    "no such structure": spoilt(measurements=[{**MEASUREMENT, "structure": "x"}]),
    "fewer than none": spoilt(measurements=[{**MEASUREMENT, "counts": {"kernels": -5}}]),
    "half a kernel": spoilt(measurements=[{**MEASUREMENT, "counts": {"kernels": 5.5}}]),
    "a negative kernel": spoilt(structures=[["s", [["gemm", -1]]]]),
    "a test without a name": spoilt(measurements=[{**MEASUREMENT, "test": ""}]),
    "a branch without a name": spoilt(commit={**PLAIN["commit"], "branch": ""}),
    "a structure twice": spoilt(structures=[*PLAIN["structures"], [PLAIN["structures"][0][0], [["gemm", 9]]]]),
    "a measurement twice": spoilt(
        measurements=[MEASUREMENT, {**MEASUREMENT, "counts": {"kernels": 6}}], varying=[{}, {}]
    ),
    "ended before it began": spoilt(ended="2026-01-02T00:59:59Z"),
    "of a clock that was not set": spoilt(began="1970-01-01T00:00:07Z"),
    "before the commit": spoilt(commit={**PLAIN["commit"], "date": "2026-01-04T00:00:00Z"}),
    "a local run of CI": spoilt(event="local", ci={"provider": "github"}),
    "its own parent": spoilt(commit={**PLAIN["commit"], "parents": [sha(1)], "ancestors": []}),
    "its own ancestor": spoilt(commit={**PLAIN["commit"], "ancestors": [sha(0), sha(1)]}),
    "two first parents": spoilt(commit={**PLAIN["commit"], "ancestors": [sha(7)]}),
    "ancestors without a parent": spoilt(commit={**PLAIN["commit"], "parents": []}),
    "ancestors in a circle": spoilt(commit={**PLAIN["commit"], "ancestors": [sha(0), sha(7), sha(0)]}),
    "rank 2 of 2": spoilt(measurements=[{**MEASUREMENT, "rank": 2, "ranks": 2}]),
    "rank -1": spoilt(measurements=[{**MEASUREMENT, "rank": -1, "ranks": 2}]),
    "a rank of none": spoilt(measurements=[{**MEASUREMENT, "rank": 0}]),
    "ranks without a rank": spoilt(measurements=[{**MEASUREMENT, "ranks": 2}]),
    "numbers of what was not measured": spoilt(measurements=[{**MEASUREMENT, "outcome": "not measured"}]),
    "numbers without an environment": spoilt(measurements=[{**MEASUREMENT, "environment": None}]),
    "a machine with another GPU": spoilt(machine={**PLAIN["machine"], "gpu": "NVIDIA B200"}),
    "a machine with another CPU": spoilt(machine={**PLAIN["machine"], "cpu": "AMD EPYC"}),
    "a structure of what was skipped": spoilt(measurements=[{**MEASUREMENT, "outcome": "skipped", "counts": {}}]),
    "more kernels than it lists": spoilt(measurements=[{**MEASUREMENT, "counts": {"kernels": 6}}]),
    "fewer kernels than it lists": spoilt(
        structures=[[PLAIN["structures"][0][0], [*PLAIN["structures"][0][1], ["copy", 1]]]]
    ),
    "a kernel twice": spoilt(structures=[[PLAIN["structures"][0][0], [["gemm", 4], ["gemm", 1]]]]),
    "a time of no sample": spoilt(varying=[{"time": {**TIMES, "samples": 0}}]),
    "quartiles out of order": spoilt(varying=[{"time": {**TIMES, "quantiles_us": [1.0, 3.0, 2.0]}}]),
    "a median above its quartiles": spoilt(varying=[{"time": {**TIMES, "median_us": 4.0}}]),
    "a median below its quartiles": spoilt(varying=[{"time": {**TIMES, "median_us": 0.5}}]),
    "measured and not": spoilt(all_tests={"below": [""], "unmeasured": [TEST]}),
    "another project": encode(run_of(2, launched(TEST, FIVE), project="example.org/other")),
    "the same id": encode(replace(run_of(2, launched(TEST, SIX)), uuid=GOOD.uuid)),
}


def test_a_run_that_is_still_to_come_is_not_taken(tmp_path, capsys):
    now = datetime.now(UTC)
    soon, later = (
        replace(
            run_of(at, launched(TEST, FIVE)), began=now + timedelta(hours=hours), ended=now + timedelta(hours=hours)
        )
        for at, hours in ((3, 23), (4, 25))
    )
    store, incoming = write(tmp_path / "store", [GOOD]), write(tmp_path / "in", [soon, later])
    assert main(["history", "import", str(store), str(incoming)]) == 2
    told = capsys.readouterr()
    assert told.out == "1 record added, 0 known, 1 refused\n"
    assert later.uuid in told.err


@pytest.mark.parametrize("name", BAD)
def test_a_record_that_may_not_be_believed_is_refused_by_name_and_the_others_are_taken(tmp_path, capsys, name):
    store = write(tmp_path / "store", [GOOD])
    incoming = write(tmp_path / "in", [run_of(3, launched(TEST, FIVE))])
    (incoming / f"bad{SUFFIX}").write_bytes(BAD[name])
    assert main(["history", "import", str(store), str(incoming)]) == 2
    told = capsys.readouterr()
    assert told.out == "1 record added, 0 known, 1 refused\n"
    assert "[bad-record]" in told.err
    assert len(records(store)) == 2


@pytest.mark.parametrize("name", sorted({*BAD} - {"another project", "the same id", "too large"}))
def test_a_record_in_the_folder_that_may_not_be_believed_is_named_and_left_out(tmp_path, capsys, name):
    store = write(tmp_path, [run_of(3, launched(TEST, FIVE))])
    bad = store / f"{'e' * 32}{SUFFIX}"
    bad.write_bytes(BAD[name])
    assert main(["history", "changes", str(store), "--fail-on=counts"]) == 3
    told = capsys.readouterr()
    assert bad.name in told.err
    assert "main: 1 run of 1 commit" in told.out


def test_a_damaged_file_in_the_way_of_its_good_copy_is_named_as_the_one_to_remove(tmp_path, capsys):
    store, incoming = write(tmp_path / "store", [GOOD]), write(tmp_path / "in", [GOOD])
    (file,) = store.glob(f"*{SUFFIX}")
    file.write_bytes(file.read_bytes()[:-20])
    assert main(["history", "import", str(store), str(incoming)]) == 2
    assert f"remove {file}, and import" in " ".join(capsys.readouterr().err.split())
    file.unlink()
    assert main(["history", "import", str(store), str(incoming)]) == 0
    assert records(store) == [GOOD]


def test_a_record_of_a_newer_version_is_never_called_damaged(tmp_path, capsys):
    store, incoming = tmp_path / "store", write(tmp_path / "in", [GOOD])
    store.mkdir()
    (store / f"{GOOD.uuid}{SUFFIX}").write_bytes(spoilt(schema=2))
    main(["history", "import", str(store), str(incoming)])
    told = capsys.readouterr().err
    assert "update it" in told
    assert "remove" not in told


def test_a_file_that_is_larger_than_any_memory_is_refused_by_name_unread(tmp_path, capsys):
    incoming = write(tmp_path / "in", [GOOD])
    with (incoming / f"bad{SUFFIX}").open("wb") as file:
        file.truncate(1 << 41)
    assert main(["history", "import", str(tmp_path / "store"), str(incoming)]) == 2
    told = capsys.readouterr()
    assert told.out == "1 record added, 0 known, 1 refused\n"
    assert f"bad{SUFFIX}" in told.err


def test_an_archive_that_is_damaged_anywhere_is_refused_by_name_or_read(tmp_path, capsys):
    path = tmp_path / "artifact.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"a{SUFFIX}", encode(GOOD))
        (entry,) = archive.infolist()
    content = path.read_bytes()
    begins = len(entry.FileHeader())
    ends = begins + entry.compress_size
    # Each byte of the record itself is covered by one checksum.
    for at in (*range(begins), *range(begins, ends, 10), *range(ends, len(content))):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        ended = main(["history", "import", str(tmp_path / "store" / str(at)), str(path)])
        told = capsys.readouterr()
        # Without its name, or with another one, it holds no record at all.
        assert ended == (2 if "refused" in told.out and "0 refused" not in told.out else 0)
        assert (ended == 2) == ("[bad-record]" in told.err)


def test_what_became_bad_in_the_folder_is_named_and_left_out(tmp_path, capsys):
    folder = write(tmp_path, [run_of(at, launched(TEST, FIVE)) for at in range(3)])
    (folder / f"bad{SUFFIX}").write_bytes(BAD["cut"])
    assert main(["history", "verify", str(folder)]) == 2
    assert "bad.run.json.gz" in capsys.readouterr().err
    assert main(["history", "changes", str(folder), "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["runs"] == 3
    assert "bad.run.json.gz" in told.err


def test_only_runs_of_an_event_keep_forks_out_that_call_their_branch_main(tmp_path, capsys):
    forged = run_of(3, launched(TEST, SIX), event=Event.PR)
    incoming = write(tmp_path / "in", [run_of(2, launched(TEST, FIVE)), forged])
    assert main(["history", "import", str(tmp_path / "store"), str(incoming), "--only-event=push"]) == 0
    assert "1 record added, 0 known, 1 of another event left out, 0 refused" in capsys.readouterr().out


def test_names_from_records_are_data_and_never_commands_of_the_terminal(tmp_path, capsys):
    evil = "test_\x1b[31m.py::test\x07"
    runs = [run_of(at, launched(evil, FIVE if at < 1 else {"\x1b]0;title\x07": 1})) for at in (0, 2)]
    main(["history", "changes", str(write(tmp_path, runs))])
    assert "\x1b" not in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------------- several ranks

JOB = """
@pytest.mark.torchprof(device="cpu", ranks=2, warmup=1, steps=2)
def test_job(torchprof):
    def step():
        for _ in range(1 + torchprof.ranks.rank):
            torch.mm(x, x)
    torchprof(step)
    LEAVE
"""


def by_rank(record):
    return {own.rank: (own.ranks, own.outcome, own.counts.get("kernels")) for own in record.measurements}


def test_a_job_leaves_a_measurement_of_each_rank(run_tests):
    run_tests(JOB.replace("LEAVE", ""), "--torchprof-history=kept", in_process=False).assert_outcomes(passed=1)
    (record,) = records("kept")
    assert by_rank(record) == {0: (2, Outcome.PASSED, 1), 1: (2, Outcome.PASSED, 2)}


def test_a_rank_that_is_lost_is_a_gap_of_its_own(run_tests):
    leave = "import os\n    if torchprof.ranks.rank: os._exit(9)"
    run_tests(JOB.replace("LEAVE", leave), "--torchprof-history=kept", in_process=False).assert_outcomes(failed=1)
    (record,) = records("kept")
    lost = {own.rank: own for own in record.measurements}
    assert (lost[1].outcome, lost[1].code, lost[1].counts) == (Outcome.NOT_MEASURED, "rank-lost", {})
    assert lost[0].ranks == 2


def test_ranks_that_the_user_has_started_leave_one_record_together(pytester):
    test = """
    @pytest.mark.torchprof(device="cpu", warmup=1, steps=2)
    def test_it():
        step()
        for _ in range(RANK):
            torch.sin(x)
    """
    # As under torchrun, the store at which they meet is there until the end.
    kept = rank_jobs.TOGETHER.replace("    distributed.destroy_process_group()\n", "")
    pytester.makepyfile(test_job=kept + textwrap.dedent(test))
    ranks = rank_jobs.run(2, "--torchprof-history=kept")
    assert [rank.outcome("test_it") for rank in ranks] == ["passed", "passed"]
    (record,) = records("kept")
    (world, _, first), (other_world, _, second) = (by_rank(record)[rank] for rank in (0, 1))
    assert (world, other_world) == (2, 2)
    assert second == first + 1


def test_each_rank_has_a_series_of_its_own(tmp_path, capsys):
    runs = [
        run_of(at, launched(TEST, FIVE, rank=0, ranks=2), launched(TEST, FIVE if at < 4 else SIX, rank=1, ranks=2))
        for at in range(8)
    ]
    (change,) = event(capsys, write(tmp_path, runs))["tests"]
    assert (change["rank"], change["ranks"]) == (1, 2)


# ------------------------------------------------------------------------------------- what is printed can be pasted

PACKAGE = {
    "model.py": "import torch\n\ndef block(x):\n    return torch.sin(x)\n",
    "test_model.py": (
        "import pytest, torch\nimport model\n\n@pytest.mark.torchprof(device='cpu', warmup=1, steps=1)\n"
        "@pytest.mark.parametrize('size', [4])\ndef test_block(size): model.block(torch.ones(size))\n"
    ),
}


def test_the_line_that_bisects_a_range_finds_the_commit_when_it_is_pasted(tmp_path, capsys):
    made = Repository(tmp_path / "made", PACKAGE)
    shas = [made.git("rev-parse", "HEAD").strip()]
    for subject, change in (("notes", ""), ("a cosine", ".cos()"), ("a remark", "  # as before")):
        made.write({"model.py": f"{(made.path / 'model.py').read_text().rstrip()}{change}\n", "notes": subject})
        shas.append(made.commit(subject))
    test = "test_model.py::test_block[4]"
    runs = [
        run_of(at, launched(test, FIVE if at < 2 else SIX), sha=shas[at], ancestors=tuple(shas[:at][::-1]))
        for at in (0, 3)
    ]
    assert main(["history", "changes", str(write(tmp_path / "kept", runs))]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "torchprof bisect" in line]
    program, *words = shlex.split(line)
    assert program == "torchprof"
    run = made.torchprof(*words)
    assert run.status == 0, run.out
    assert f"first bad commit: {shas[2]}" in run.out
