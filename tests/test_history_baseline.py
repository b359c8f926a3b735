"""A branch in a history as the baseline: its newest run on the same device is what tests are judged against."""

from __future__ import annotations

import hashlib
import json
import subprocess
import textwrap
from pathlib import Path

import pytest
from facts import WORSE
from msgspec import UNSET
from msgspec.structs import replace

from pytest_torchprof import baseline, load
from pytest_torchprof.cli import main
from pytest_torchprof.history.entries import entry_in
from pytest_torchprof.history.machines import machine_of
from pytest_torchprof.history.record import SUFFIX, Event, RunRecord, decode, encode, read
from pytest_torchprof.history.run_record import environments_of, measurements_of, structures_of, varying_of
from pytest_torchprof.history.store import records_of
from pytest_torchprof.history.stores import store_at
from pytest_torchprof.history.where import where_of
from pytest_torchprof.report.result import Outcome, Result, with_numbers

pytestmark = pytest.mark.any_torch

ONE = """
@pytest.mark.torchprof(device="cpu", warmup=1, steps=2)
def test_block():
    torch.mm(x, x)
"""
TWO = ONE.replace("torch.mm(x, x)", "torch.add(torch.mm(x, x), x)")
OTHER = ONE.replace("test_block", "test_other")
RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.json.gz"))


@pytest.fixture
def branch(pytester, monkeypatch):
    """A clean commit of the branch main, whose tests and histories git does not see."""
    for name in ("GITHUB_HEAD_REF", "GITHUB_REF_NAME"):
        monkeypatch.delenv(name, raising=False)
    pytester.path.joinpath(".gitignore").write_text("__pycache__\ntest_it.py\nhist\n*.db*\n*.json\n*.ini\n.torchprof\n")
    git(pytester.path, "init", "-q")
    git(pytester.path, "add", "-A")
    commit(pytester.path)
    return pytester.path


def git(folder, *words):
    settings = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *settings, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder):
    git(folder, "commit", "-q", "--allow-empty", "-m", "a commit")
    return git(folder, "rev-parse", "--short=7", "HEAD")


def kept(where):
    return list(records_of(store_at(where_of(where, Path()))))


def rewritten(folder, **facts):
    """Give the only record of a folder other facts, as another run would have had them."""
    (file,) = folder.glob(f"*{SUFFIX}")
    record = replace(read(file), uuid="f" * 32, **facts)
    file.unlink()
    (folder / f"{record.uuid}{SUFFIX}").write_bytes(encode(record))
    return record


def judged(run_tests, source, *words, against="history:hist@main", status=None):
    """Run tests against a branch, and return each result as the report has it, by the test's name."""
    result = run_tests(source, f"--torchprof-baseline={against}", "--torchprof-report=told.json", *words)
    if status is not None:
        assert result.ret == status
    results = json.loads(Path("told.json").read_text())["results"]
    return {own["nodeid"].partition("::")[2]: own for own in results}


def reason_of(run_tests, source, **more):
    """Return why the only test of a source was not measured: the reason with its facts."""
    (own,) = judged(run_tests, source, status=1, **more).values()
    assert (own["outcome"], own["baseline_state"]) == ("not measured", "unknown")
    return own["reason"]


# ------------------------------------------------------------------------------------------------- what a record holds


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name[:60])
def test_a_record_holds_of_a_measurement_what_a_baseline_holds_of_it(path):
    profile = load(path)
    entry = baseline.entry_of(profile, source_hash="0123")
    outcome, environment = Outcome.PASSED, profile.trace.environment
    result = Result(nodeid="test_a.py::test", outcome=outcome, environment=environment, source="0123")
    results = (replace(with_numbers(result, profile), entry=baseline.fields_of(entry)),)
    environments = environments_of(results)
    varying, launched = varying_of(results)
    own = read_again(environments, measurements_of(results, environments), structures_of(results), varying, launched)
    (measured,), (row,) = own.measurements, own.varying
    assert entry_in(own.launched, measured, row, own.environments[measured.environment]) == entry


def read_again(environments, measurements, structures, varying, launched):
    """Return a record of these parts as it is read from its file."""
    from datetime import UTC, datetime

    now = datetime.now(UTC)
    record = RunRecord(
        uuid="0" * 32,
        version="1",
        began=now,
        ended=now,
        complete=True,
        event=Event.LOCAL,
        machine=machine_of(environments),
        environments=environments,
        measurements=measurements,
        structures=structures,
        varying=varying,
        launched=launched,
    )
    return decode(encode(record), "a record")


def test_tests_that_launch_the_same_share_one_list_of_kernels(run_tests, branch):
    run_tests(ONE + OTHER + TWO.replace("test_block", "test_third"), "--torchprof-history=hist")
    (record,) = kept("hist")
    numbers = {
        own.test.partition("::")[2]: row.launched for own, row in zip(record.measurements, record.varying, strict=True)
    }
    assert numbers["test_block"] == numbers["test_other"] != numbers["test_third"]
    assert len(record.launched.orders) == 2
    assert len(record.launched.kernels) == len(set(record.launched.kernels))


# ---------------------------------------------------------------------------------------------------------- the judging


@pytest.mark.parametrize("store", ["hist", "runs.db"])
def test_a_kernel_more_than_the_newest_run_of_the_branch_has_fails_and_names_its_commit(run_tests, branch, store):
    if store != "hist":
        pytest.importorskip("sqlalchemy")
    run_tests(TWO, f"--torchprof-history={store}").assert_outcomes(passed=1)
    newest = commit(branch)
    run_tests(ONE, f"--torchprof-history={store}").assert_outcomes(passed=1)
    result = run_tests(TWO, f"--torchprof-baseline=history:{store}@main")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*history:{store}@main*{newest}*", "*aten::add*", '*tolerance={"kernels": 1}*'])
    assert "--torchprof-baseline=update" not in result.stdout.str()
    assert len(kept(store)) == 2
    assert not list(branch.rglob("__torchprof__"))


def test_the_newest_commit_of_a_branch_is_the_one_that_no_other_comes_after_whatever_its_date_is(
    run_tests, branch, monkeypatch
):
    run_tests(ONE, "--torchprof-history=hist")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2001-01-01T00:00:00Z")
    commit(branch)
    run_tests(TWO, "--torchprof-history=hist")
    run_tests(TWO, "--torchprof-baseline=history:hist@main").assert_outcomes(passed=1)


def test_what_is_the_same_or_better_passes_and_is_told(run_tests, branch):
    run_tests(TWO + OTHER, "--torchprof-history=hist")
    told = judged(run_tests, ONE + OTHER, status=0)
    assert told["test_other"]["baseline_state"] == "same"
    assert told["test_block"]["baseline_state"] == "better"
    assert told["test_block"]["comparison"]["changes"]


def test_a_test_that_the_branch_does_not_have_is_new_and_fails_where_strict_is_asked(run_tests, branch):
    run_tests(ONE, "--torchprof-history=hist")
    assert judged(run_tests, ONE + OTHER, status=0)["test_other"]["baseline_state"] == "new"
    result = run_tests(ONE + OTHER, "--torchprof-baseline=strict,history:hist@main")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*FAILED*test_other*strict*"])


def test_a_run_of_a_part_of_the_tests_does_not_hide_what_the_branch_knows_of_the_others(run_tests, branch):
    first = git(branch, "rev-parse", "--short=7", "HEAD")
    run_tests(ONE + OTHER, "--torchprof-history=hist")
    commit(branch)
    run_tests(ONE + OTHER, "--torchprof-history=hist", "-k", "other")
    result = run_tests(TWO + OTHER, "--torchprof-baseline=history:hist@main")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines([f"*{first}*"])


def test_the_ini_file_names_a_branch_and_the_command_line_wins(run_tests, branch):
    run_tests(ONE, "--torchprof-history=hist")
    Path("pytest.ini").write_text("[pytest]\ntorchprof_baseline = history:hist@main\n")
    run_tests(TWO).assert_outcomes(failed=1)
    run_tests(TWO, "--torchprof-baseline=off").assert_outcomes(passed=1)


def test_a_renamed_test_is_judged_by_what_it_launched_under_its_earlier_name(run_tests, branch):
    run_tests(OTHER, "--torchprof-history=hist")
    assert main(["history", "alias", "hist", "test_it.py::test_other", "test_it.py::test_block"]) == 0
    assert judged(run_tests, TWO, status=1)["test_block"]["baseline_state"] == "worse"


def test_workers_of_xdist_are_told_of_the_branch(run_tests, branch):
    pytest.importorskip("xdist")
    run_tests(ONE + OTHER, "--torchprof-history=hist")
    result = run_tests(TWO + OTHER, "--torchprof-baseline=history:hist@main", "-n2", in_process=False)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines([f"*FAILED*test_block*{WORSE}*"])


def test_each_rank_is_judged_by_what_it_launched_itself(run_tests, branch):
    pytest.importorskip("torch.distributed")
    two = """
    @pytest.mark.torchprof(device="cpu", ranks=2, warmup=1, steps=2)
    def test_job(torchprof):
        def step():
            for _ in range(1 + torchprof.ranks.rank * MORE):
                torch.mm(x, x)
        torchprof(step)
    """
    two = textwrap.dedent(two)
    run_tests(two.replace("MORE", "1"), "--torchprof-history=hist", in_process=False).assert_outcomes(passed=1)
    same = "--torchprof-baseline=history:hist@main"
    run_tests(two.replace("MORE", "1"), same, in_process=False).assert_outcomes(passed=1)
    result = run_tests(two.replace("MORE", "2"), same, in_process=False)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*rank 1*", "*2 -> 3 per step*"])


# ------------------------------------------------------------------------------------- where there is nothing to judge by


def test_a_history_that_is_not_there_measures_nothing(run_tests, branch):
    assert reason_of(run_tests, ONE) == {
        "reason": "no-run-of-branch", "history": "hist", "branch": "main", "dirty": 0, "stopped": 0, "of_pull_requests": 0,
        "others": [],
    }  # fmt: skip


def test_another_branch_measures_nothing(run_tests, branch):
    run_tests(ONE, "--torchprof-history=hist")
    reason = reason_of(run_tests, ONE, against="history:hist@release/1@x")
    assert (reason["reason"], reason["branch"]) == ("no-run-of-branch", "x")


def test_of_a_mistyped_branch_those_that_there_are_are_told(run_tests, branch, capsys):
    run_tests(ONE, "--torchprof-history=hist")
    reason = reason_of(run_tests, ONE, against="history:hist@mian")
    assert (reason["reason"], reason["branch"], reason["others"]) == ("no-run-of-branch", "mian", ["main"])
    assert main(["history", "changes", str(branch / "hist"), "--branch=mian"]) == 2
    assert "runs of main" in capsys.readouterr().err


def test_an_annotation_names_the_branch_that_is_the_baseline(run_tests, branch, pytester, monkeypatch):
    run_tests(ONE, "--torchprof-history=hist")
    run_tests(TWO, "--collect-only")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--torchprof-baseline=history:hist@main")
    result.stdout.fnmatch_lines([f"::error *{WORSE} history:hist@main, *aten::add*"])


def test_a_head_that_is_longer_than_most_is_read_all_the_same(run_tests, branch):
    run_tests(ONE, "--torchprof-history=hist")
    (record,) = kept("hist")
    texts = (hashlib.sha512(str(number).encode()).hexdigest() for number in range(2000))
    environments = (*record.environments, *(replace(record.environments[0], python=text) for text in texts))
    rewritten(branch / "hist", environments=environments)
    assert judged(run_tests, TWO)["test_block"]["baseline_state"] == "worse"


@pytest.mark.parametrize(
    ("facts", "counted"),
    [
        ({"complete": False}, "stopped"),
        ({"event": Event.PR}, "of_pull_requests"),
        ({"dirty": True}, "dirty"),
    ],
)
def test_runs_that_are_none_of_the_branch_are_counted_by_what_they_are(run_tests, branch, facts, counted):
    run_tests(ONE, "--torchprof-history=hist")
    (record,) = kept("hist")
    if "dirty" in facts:
        facts = {"commit": replace(record.commit, dirty=True)}
    rewritten(branch / "hist", **facts)
    reason = reason_of(run_tests, ONE)
    assert reason["reason"] == "no-run-of-branch"
    assert {name for name in ("dirty", "stopped", "of_pull_requests") if reason[name]} == {counted}
    assert reason[counted] == 1


def test_runs_on_other_devices_are_named(run_tests, branch):
    run_tests(ONE, "--torchprof-history=hist")
    (record,) = kept("hist")
    (environment,) = record.environments
    on_gpu = replace(environment, gpu="NVIDIA H100 80GB HBM3", compute_capability="9.0")
    rewritten(branch / "hist", environments=(on_gpu,))
    reason = reason_of(run_tests, ONE)
    assert (reason["reason"], reason["devices"]) == ("other-devices", ["NVIDIA H100 80GB HBM3"])
    assert reason["device"] == environment.cpu


def test_a_store_that_cannot_be_read_is_named(run_tests, branch):
    pytest.importorskip("sqlalchemy")
    Path("runs.db").write_text("this is no database, and longer than the head of one" * 40)
    reason = reason_of(run_tests, ONE, against="history:runs.db@main")
    assert (reason["reason"], reason["history"]) == ("history-unread", "runs.db")


def test_a_record_of_an_earlier_version_has_no_launch_order(run_tests, branch):
    run_tests(ONE, "--torchprof-history=hist")
    (record,) = kept("hist")
    plain = tuple(replace(row, launched=None, also={}) for row in record.varying)
    rewritten(branch / "hist", launched=UNSET, varying=plain, version="0.1")
    reason = reason_of(run_tests, ONE)
    assert (reason["reason"], reason["version"]) == ("launch-order-unknown", "0.1")
    assert main(["history", "verify", "hist"]) == 0


def test_a_test_that_the_branch_has_skipped_is_not_measured(run_tests, branch):
    skipped = ONE.replace("    torch.mm(x, x)", "    pytest.skip('not today')") + OTHER
    run_tests(skipped, "--torchprof-history=hist").assert_outcomes(passed=1, skipped=1)
    told = judged(run_tests, ONE + OTHER, status=1)
    assert told["test_other"]["outcome"] == "passed"
    reason = told["test_block"]["reason"]
    assert (reason["reason"], reason["outcome"]) == ("unmeasured-on-branch", "skipped")


def test_a_damaged_record_is_named_and_an_older_run_judges(run_tests, branch):
    run_tests(ONE, "--torchprof-history=hist")
    (first,) = (branch / "hist").iterdir()
    commit(branch)
    run_tests(TWO, "--torchprof-history=hist")
    (newest,) = {*(branch / "hist").iterdir()} - {first}
    newest.write_bytes(newest.read_bytes()[:-100])
    result = run_tests(TWO, "--torchprof-baseline=history:hist@main")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{newest.name}*"])


def test_launches_that_are_none_are_refused_by_name(run_tests, branch):
    run_tests(ONE, "--torchprof-history=hist")
    (record,) = kept("hist")
    wrong = replace(record.launched, orders=(((10**6, "end"),),))
    own = rewritten(branch / "hist", launched=wrong)
    assert reason_of(run_tests, ONE)["reason"] == "record-damaged"
    result = run_tests(ONE, "--torchprof-baseline=history:hist@main")
    result.stdout.fnmatch_lines([f"*{own.uuid}*", "*torchprof: left out*"])


# ------------------------------------------------------------------------------------------------------------ bad usage


@pytest.mark.parametrize(
    "value",
    ["update,history:hist@main", "history:hist@main,update", "add,history:hist@main", "off,history:hist@main"],
)
def test_a_history_is_only_read(run_tests, branch, value):
    result = run_tests(ONE, f"--torchprof-baseline={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*only read*bad-option*"])


@pytest.mark.parametrize(
    "value", ["history:hist", "history:@main", "history:hist@", "history:ftp://a@main", "sometimes,history:hist@main"]
)
def test_what_names_no_branch_of_a_store_is_refused(run_tests, branch, value):
    result = run_tests(ONE, f"--torchprof-baseline={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*bad-option*"])


@pytest.mark.parametrize(
    "value", ["update,history:postgresql://me:hush@localhost/db@main", "history:postgresql://me:hush@localhost/db"]
)
def test_no_message_shows_a_password(run_tests, branch, value):
    result = run_tests(ONE, f"--torchprof-baseline={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "hush" not in result.stderr.str() + result.stdout.str()


def test_a_folder_of_baselines_and_a_history_exclude_each_other(run_tests, branch):
    result = run_tests(ONE, "--torchprof-baseline=history:hist@main", "--torchprof-baseline-dir=kept")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
