"""The search of `torchprof bisect` among the commits of a repository, with measurements that are said beforehand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from msgspec import convert
from repository import Repository

from pytest_torchprof.against.bisect import Search, SearchOutcome
from pytest_torchprof.against.git import Repository as GitRepository
from pytest_torchprof.against.measured import CommitMeasurements
from pytest_torchprof.against.outcomes import BaseOutcomes
from pytest_torchprof.against.search_facts import (
    AnswerChanged,
    CommitAnswer,
    EndNotMeasured,
    KernelsDiffer,
    NothingChanged,
    OnlySkippedLeft,
)
from pytest_torchprof.baseline import EntryFields, entry_from
from pytest_torchprof.reasons.commit_gaps import NotCollectable, TestSkipped
from pytest_torchprof.report import Reference

pytestmark = pytest.mark.any_torch

TEST = "test_waves.py::test_wave"
OTHER = "test_waves.py::test_other"
BROKEN = BaseOutcomes(status=2, broken=NotCollectable("test_waves.py", "E   ValueError: no such wave"))


def measured(*kernels, outcomes=None, of=TEST):
    """Return what a commit measures whose test launches these kernels; nothing without any."""
    steps = [[*({"family": "pointwise", "name": name} for name in kernels), "end"]]
    fields = {"source": "", "environment": {}, "steps": steps, "numbers": {}, "varying": {}}
    entries = {of: entry_from(convert(fields, EntryFields))} if kernels else {}
    return CommitMeasurements(entries=entries, outcomes=outcomes or BaseOutcomes(status=0), recordings=Path())


class Said:
    """Stands for the runs at commits: each has the measurements that are said for it, one after the other."""

    def __init__(self, of_commits):
        self.of_commits, self.asked = of_commits, Counter()

    def measure(self, sha, *, again=False):
        assert again == (self.asked[sha] > 0)
        runs = self.of_commits[sha]
        self.asked[sha] += 1
        return runs[min(self.asked[sha], len(runs)) - 1]

    def output(self, sha):
        return [f"what pytest wrote at {sha[:7]}"]


@pytest.fixture
def search(tmp_path):
    """Return a function that searches a row of commits, each with the measurements of its runs."""
    made = Repository(tmp_path / "made", {"waves.py": ""})

    def searched(*runs):
        shas = [made.commit(f"number {number}") for number in range(len(runs))]
        said = Said({sha: own if isinstance(own, tuple) else (own,) for sha, own in zip(shas, runs, strict=True)})
        (tmp_path / "results").mkdir()
        found = Search(
            limits=(),
            commits=said,
            asked=(TEST,),
            repository=GitRepository.around(made.path),
            folder=tmp_path / "results/search",
            good=Reference(ref="good", sha=shas[0], dirty=False),
            bad=Reference(ref="bad", sha=shas[-1], dirty=False),
            write_line=lambda _: None,
        ).run()
        return found, [said.asked[sha] for sha in shas], [named.subject for named in found.candidates]

    return searched


SIN, COS = measured("sin"), measured("sin", "cos")


def test_git_halves_the_commits_and_the_first_bad_one_and_its_parent_are_measured_twice(search):
    found, asked, candidates = search(SIN, SIN, SIN, SIN, SIN, COS, COS, COS)
    assert (found.outcome, candidates) == (SearchOutcome.FOUND, ["number 5"])
    assert asked[4:6] == [2, 2]
    assert asked.count(0) > 1
    assert found.differences[TEST].summary == "worse (+1 kernel)"
    assert isinstance(found.why, KernelsDiffer)
    assert (found.why.name, found.why.comparison) == (None, found.differences[TEST])


@pytest.mark.parametrize("flaky", [(COS, SIN), (COS, measured(outcomes=BROKEN))], ids=["good", "not measured"])
def test_a_commit_is_not_named_that_answers_otherwise_once_more(search, flaky):
    found, _, candidates = search(SIN, SIN, flaky, COS)
    assert (found.outcome, candidates) == (SearchOutcome.NOT_MEASURED, ["number 2"])
    assert isinstance(found.why, AnswerChanged)
    assert found.why.before is CommitAnswer.BAD


def test_a_commit_is_not_named_whose_parent_answers_otherwise_once_more(search):
    found, _, candidates = search(SIN, (SIN, COS), COS)
    assert (found.outcome, candidates) == (SearchOutcome.NOT_MEASURED, ["number 2"])
    assert isinstance(found.why, AnswerChanged)
    assert (found.why.before, found.why.after) == (CommitAnswer.GOOD, CommitAnswer.BAD)


def test_where_commits_that_cannot_be_measured_are_left_each_is_a_candidate(search):
    found, _, candidates = search(SIN, measured(outcomes=BROKEN), COS)
    assert (found.outcome, {*candidates}) == (SearchOutcome.NOT_MEASURED, {"number 1", "number 2"})
    assert found.why == OnlySkippedLeft(2)
    answers = {one.answer for one in found.commits}
    assert answers == {CommitAnswer.GOOD, CommitAnswer.BAD, CommitAnswer.SKIPPED}


@pytest.mark.parametrize("runs", [(measured(outcomes=BROKEN), SIN, COS), (SIN, SIN, measured(outcomes=BROKEN))])
def test_nothing_between_is_measured_where_an_end_cannot_be(search, runs):
    found, asked, _ = search(*runs)
    assert (found.outcome, asked[1]) == (SearchOutcome.NOT_MEASURED, 0)
    assert isinstance(found.why, EndNotMeasured)
    assert found.why.why.gap == BROKEN.broken


def test_nothing_between_is_measured_where_the_ends_are_alike(search):
    found, asked, _ = search(SIN, COS, SIN)
    assert (found.outcome, asked) == (SearchOutcome.NOT_THERE, [1, 0, 1])
    assert isinstance(found.why, NothingChanged)


def test_a_test_that_the_bad_commit_has_not_measured_takes_no_part(search):
    skipped = BaseOutcomes(status=0, troubles={OTHER: TestSkipped("no such device")})
    found, _, candidates = search(SIN, SIN, measured("sin", "cos", outcomes=skipped))
    assert (found.outcome, candidates) == (SearchOutcome.FOUND, ["number 2"])
    assert found.left_out == {OTHER: TestSkipped("no such device")}
