"""`torchprof bisect`: which commit was the first that missed a limit, or changed the kernels of a test."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from facts import came
from kills_at_random import below
from msgspec.structs import replace
from repository import PACKAGE, SLOWER, TESTS, TORCHPROF, Repository
from schema_checks import errors

from pytest_torchprof.against.search_facts import (
    AnswerChanged,
    CommitAnswer,
    GoodEndIsBad,
    LimitJudged,
    OnlySkippedLeft,
)
from pytest_torchprof.cli import main
from pytest_torchprof.limits import HOLDS, MISSED, Verdict
from pytest_torchprof.limits.seen import NumberSeen
from pytest_torchprof.reasons.commit_gaps import TestFailed, TestSkipped
from pytest_torchprof.reasons.commits_measured import BisectWithTimes, Kinship, PytestNotStarted, SameEnds
from pytest_torchprof.reasons.git_refusals import BisectStopped
from pytest_torchprof.reasons.step_title import StepTitle

pytestmark = pytest.mark.any_torch

TEST = "tests/test_waves.py::test_wave"
LIMIT = ("--limit", "max_kernels=1")
FOUND, NOT_THERE, REFUSED, NOT_MEASURED = 0, 1, 2, 3
BROKEN = "raise ValueError('no such wave')\n"
SLOWEST = SLOWER.replace(".cos()", ".cos().tan()")
HISTORY = {
    "the first": PACKAGE,
    "another docstring": '"""Waves."""\n' + PACKAGE,
    "does not work": BROKEN,
    "the same by another name": PACKAGE.replace("sin", "special.expit") + "\n",
    "works again": PACKAGE,
    "a cosine too": SLOWER,
    "a tangent too": SLOWEST,
    "notes": SLOWEST + "\n",
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    made = Repository(tmp_path_factory.mktemp("bisect") / "a folder", {"waves.py": PACKAGE, "notes.txt": "first"})
    for subject, code in HISTORY.items():
        made.write({"waves.py": code, "notes.txt": subject})
        made.git("tag", subject.replace(" ", "-"), made.commit(subject))
    # Not committed yet, and its tests are run at every commit.
    made.write({"tests/test_waves.py": TESTS, "waves.py": BROKEN})
    made.git("bisect", "start")  # The user's own, which is not ended by it.
    return made


@pytest.fixture(scope="module")
def before(repository):
    return repository.state()


@pytest.fixture(scope="module")
def by_limit(repository, before):
    return repository.torchprof("bisect", *LIMIT, TEST, "--good", "the-first")


def answers(repository, out: str) -> dict[str, str]:
    """Return what was said of each commit that was measured, by its subject."""
    lines = (line.split(maxsplit=2) for line in out.splitlines())
    known = {repository.git("rev-parse", "--short=7", name.replace(" ", "-")).strip(): name for name in HISTORY}
    return {known[words[0]]: words[1] for words in lines if len(words) > 1 and words[0] in known}


def test_the_first_commit_that_misses_a_limit_is_named_with_what_it_changed(repository, by_limit):
    assert by_limit.status == FOUND
    sha = repository.git("rev-parse", "a-cosine-too").strip()
    parent = repository.git("rev-parse", "--short=7", "works-again").strip()
    date = repository.git("log", "-1", "--format=%aI", sha).strip()
    told = by_limit.out.partition("first bad commit: ")[2]
    assert told.splitlines() == [
        sha,
        "  author   someone <someone>",
        f"  date     {date}",
        "  subject  a cosine too",
        f"  because  max_kernels=1: {NumberSeen('kernels', 2)} in {StepTitle(step=1, steps=5)}",
        f"against its parent {parent}, {TEST}: worse (+1 kernel)",
        f"  {came('aten::cos')}",
        "  kernels 1 -> 2",
    ]


def test_each_commit_that_was_measured_is_told(repository, by_limit):
    said = answers(repository, by_limit.out)
    assert (said["notes"], said["the first"], said["works again"], said["a cosine too"]) == (
        "bad",
        "good",
        "good",
        "bad",
    )
    assert len(said) < len(HISTORY)  # Git halves what is left.


def test_the_users_repository_is_as_it_was(repository, before, by_limit):
    assert repository.state() == before
    assert not list((repository.path / ".torchprof/against/runs").iterdir())


def test_a_commit_that_cannot_be_measured_is_skipped_and_says_why(repository):
    """Also the first commit that changed the kernels, whatever they are; as data."""
    run = repository.torchprof("bisect", "--changed", TEST, "--good=the-first", "--bad=works-again~1", "--json")
    assert run.status == NOT_MEASURED
    data = json.loads(run.out[run.out.index("{") :])
    assert errors("bisect", data) == []
    shas = {repository.git("rev-parse", name.replace(" ", "-")).strip(): name for name in HISTORY}
    skipped = {shas[one["sha"]]: one["why"] for one in data["commits"] if one["answer"] == "skipped"}
    assert [*skipped] == ["does not work"]
    why = skipped["does not work"]
    assert (why["reason"], why["gap"]["gap"]) == ("measurement-missing", "not-collectable")
    assert why["gap"]["file"] == "tests/test_waves.py"
    assert why["text"].endswith("ValueError: no such wave")
    # The one that cannot be measured, or the one after it.
    assert {one["subject"] for one in data["candidates"]} == {"does not work", "the same by another name"}
    assert data["why"] == {**OnlySkippedLeft(2).to_plain(), "text": str(OnlySkippedLeft(2))}


FLAKY = """
import os
from pathlib import Path
import torch

told = Path(os.environ["TOLD"])
runs = int(told.read_text()) if told.is_file() else 0
told.write_text(str(runs + 1))

def wave(x):
    return torch.sin(x) if runs else torch.sin(x).cos()
"""


def test_a_commit_is_not_named_before_it_was_measured_once_more(tmp_path):
    made = Repository(tmp_path / "made", {"waves.py": PACKAGE, "test_waves.py": TESTS})
    good = made.git("rev-parse", "HEAD").strip()
    made.write({"waves.py": FLAKY})
    bad = made.commit("another each time")
    run = made.torchprof("bisect", *LIMIT, "test_waves.py", "--good", good, TOLD=str(tmp_path / "told"))
    assert run.status == NOT_MEASURED
    kept = LimitJudged(
        verdict=Verdict(limit="max_kernels", expected="1", status=HOLDS, seen=(NumberSeen("kernels", 1),))
    )
    changed = AnswerChanged(bad[:7], before=CommitAnswer.BAD, after=CommitAnswer.GOOD, why=kept)
    assert f"not measured: {changed}" in run.out
    assert "first bad commit" not in run.out


def test_where_the_kernels_changed_first(repository, before):
    run = repository.torchprof("bisect", "--changed", TEST, "--good", "works-again", "--json")
    assert run.status == FOUND
    data = json.loads(run.out[run.out.index("{") :])
    assert errors("bisect", data) == []
    assert [one["subject"] for one in data["candidates"]] == ["a cosine too"]
    assert data["tests"][TEST]["summary"] == "worse (+1 kernel)"
    assert repository.state() == before


def test_an_end_that_contradicts_what_is_asked(repository):
    run = repository.torchprof("bisect", *LIMIT, TEST, "--good", "a-cosine-too")
    assert run.status == NOT_THERE
    sha = repository.git("rev-parse", "--short=7", "a-cosine-too").strip()
    kept = Verdict(limit="max_kernels", expected="1", status=MISSED, seen=(NumberSeen("kernels", 2),))
    judged = LimitJudged(replace(kept, in_step=StepTitle(step=1, steps=5)))
    assert f"not there: {GoodEndIsBad(f'a-cosine-too ({sha})', judged)}" in run.out


def test_one_of_several_tests_that_the_bad_commit_cannot_measure_is_told(repository):
    """Of processes of its own, since what is asked for is another selection; the commits are neighbours."""
    fails = TESTS.replace("test_wave", "test_other") + "    assert False, 'not yet'\n"
    skips = TESTS.replace("test_wave", "test_skipped").replace("    waves.wave(x)", "    pytest.skip('no such device')")
    repository.write({"tests/test_others.py": skips + fails.partition("x = torch.ones(8, 8)")[2]})
    try:
        words = ("a-cosine-too", "--good", "works-again", "--json")
        run = repository.torchprof("bisect", *LIMIT, "tests", "--bad", *words)
    finally:
        (repository.path / "tests/test_others.py").unlink()
    assert run.status == FOUND
    why = {"test_skipped": TestSkipped("no such device"), "test_other": TestFailed("AssertionError: not yet")}
    for test, gap in why.items():
        line = rf"torchprof: tests/test_others\.py::{test} takes no part, .* at the bad commit: {gap}"
        assert re.search(rf"(?m)^{line}$", run.out)
    data = json.loads(run.out[run.out.index("\n{") :])
    assert data["left_out"] == {
        f"tests/test_others.py::{test}": {**gap.to_plain(), "text": str(gap)} for test, gap in why.items()
    }
    assert data["why"]["reason"] == "limit-judged"
    assert (data["why"]["verdict"]["limit"], data["why"]["verdict"]["status"]) == ("max_kernels", "missed")


def test_a_test_that_pytest_does_not_find(repository):
    run = repository.torchprof("bisect", *LIMIT, f"{TEST}s", "--good", "works-again")
    assert run.status == REFUSED
    assert f"{TEST}s at HEAD (" in run.out
    assert "  | ERROR: not found:" in run.out
    assert "[no-test]" in run.out


@pytest.fixture
def other(repository):
    """Return a commit on a branch of its own."""
    sha = repository.git("commit-tree", "main^{tree}", "-p", "works-again", "-m", "on another branch").strip()
    repository.git("update-ref", "refs/heads/other", sha)
    yield
    repository.git("update-ref", "-d", "refs/heads/other")


@pytest.mark.usefixtures("other")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((TEST, "--good", "works-agian"), "--good=works-agian: "),
        (
            (TEST, "--good", "notes", "--bad", "the-first"),
            Kinship.EXCHANGED.text,
        ),
        ((TEST, "--good", "notes"), str(SameEnds("NOTES"))),
        ((TEST, "--good", "other"), Kinship.PARTED.text.format(parted_at="PARTED")),
        ((TEST,), "expected --good REF"),
        ((TEST, "--good", "notes~1", "--changed"), "not allowed with argument --limit"),
        ((TEST, "--good", "notes~1", "--", "--torchprof-baseline=update"), "torchprof bisect and --torchprof-baseline"),
        ((TEST, "--good", "notes~1", "--", "--torchprof-against-time=5%"), str(BisectWithTimes())),
        ((TEST, "--good", "notes~1", "--limit", "max_kernel=1"), "did you mean 'max_kernels'?"),
        ((TEST, "--good", "notes~1", "--", "--no-such-option"), str(PytestNotStarted())),
    ],
)
def test_what_cannot_begin_is_refused(repository, words, said, monkeypatch, capfd):
    monkeypatch.chdir(repository.path)
    assert main(["bisect", *LIMIT, *words]) == REFUSED
    parted, notes = (repository.git("rev-parse", "--short=7", name).strip() for name in ("works-again", "notes"))
    assert said.replace("PARTED", parted).replace("NOTES", notes) in " ".join(capfd.readouterr().err.split())


def test_a_shallow_clone_that_lacks_the_commits_between(repository, tmp_path):
    clone = Repository.__new__(Repository)
    clone.path = tmp_path / "clone"
    repository.git("clone", "--quiet", "--depth=2", "--no-tags", f"file://{repository.path}", str(clone.path))
    clone.git("fetch", "--quiet", "--depth=1", "origin", "tag", "the-first", "--no-tags")
    run = clone.torchprof("bisect", *LIMIT, TEST, "--good", "the-first")
    assert run.status == REFUSED
    assert f"{Kinship.CUT_OFF} [no-ancestor]" in run.out


@pytest.mark.parametrize(("sent", "by_fork"), [(signal.SIGINT, True), (signal.SIGTERM, True), (signal.SIGKILL, False)])
def test_an_end_at_any_moment_leaves_nothing_that_lasts(repository, by_limit, sent, by_fork):
    """Also where a process forks for each commit, which nobody ends who is killed."""
    before = repository.state()
    # Other words for pytest: nothing is kept of them.
    words = ("bisect", *LIMIT, TEST, "--good", "the-first", "--", f"--torchprof-warmup={int(sent)}")
    with repository.start(*words, program=TORCHPROF, by_fork=by_fork) as process:
        assert "7 commits from the-first" in process.stdout.readline()
        time.sleep(1)
        process.send_signal(sent)
    assert process.returncode == {signal.SIGKILL: -signal.SIGKILL}.get(sent, 128 + sent)
    assert repository.state() == before
    again = repository.torchprof("bisect", *LIMIT, TEST, "--good", "the-first")
    assert (again.status, again.out) == (by_limit.status, by_limit.out)
    assert not list((repository.path / ".torchprof/against/runs").iterdir())


def test_where_somebody_ends_git_the_search_says_so(repository):
    before = repository.state()
    words = ("bisect", *LIMIT, TEST, "--good", "the-first", "--", "--torchprof-warmup=2")
    with repository.start(*words, program=TORCHPROF, by_fork=True) as process:
        while not (asking := [pid for pid in below(process.pid) if _is_of_git(pid)]):
            assert process.poll() is None
            time.sleep(0.02)
        # With all that it has started: what goes on would find an end.
        os.killpg(os.getpgid(asking[0]), signal.SIGKILL)
        said = process.communicate()[0]
    assert process.returncode == REFUSED
    assert said.splitlines()[-1] == f"torchprof bisect: {BisectStopped('', None)}"
    assert repository.state() == before


def test_where_gits_question_alone_is_ended_no_other_commit_is_judged(repository, tmp_path, monkeypatch):
    git = shutil.which("git")
    killed = tmp_path / "git"
    killed.write_text(f'#!/bin/sh\ncase "$*" in "rev-parse --verify BISECT_HEAD") kill -9 $$;; esac\nexec {git} "$@"\n')
    killed.chmod(0o755)
    # git puts the folder of its own commands before PATH for what it starts.
    theirs = Path(subprocess.check_output([git, "--exec-path"], text=True).strip())
    own = tmp_path / "own"
    own.mkdir()
    for command in theirs.iterdir():
        (own / command.name).symlink_to(killed if command.name == "git" else command)
    monkeypatch.setenv("GIT_EXEC_PATH", str(own))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    run = repository.torchprof("bisect", *LIMIT, TEST, "--good", "the-first", "--", "--torchprof-warmup=3")
    assert run.status == REFUSED
    last = run.out[run.out.rindex("torchprof bisect:") :].rstrip()
    before, _, behind = str(BisectStopped("<error>", None)).partition("<error>")
    assert last.startswith(f"torchprof bisect: {before}")
    assert last.endswith(behind)


def _is_of_git(pid):
    with suppress(OSError):
        return b"BISECT_HEAD" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
