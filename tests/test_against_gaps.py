"""What one side cannot measure is told, and is no pass where the other commit has the test."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from repository import PACKAGE, TESTS, Repository

from pytest_torchprof.against.environment import variables
from pytest_torchprof.against.outcomes import OutcomeKeeper, read_outcomes
from pytest_torchprof.reasons.commit_gaps import (
    Deselected,
    EndedEarlier,
    LeftUncollected,
    NoOutcomes,
    NotTheWorkingTrees,
    TestFailed,
    TestSkipped,
)
from pytest_torchprof.reasons.limits import NothingRan
from pytest_torchprof.reasons.step_title import StepTitle
from pytest_torchprof.reasons.whole_runs import NothingCompared
from pytest_torchprof.report import MeasuredOnlyThere

pytestmark = pytest.mark.any_torch

CASES = """
import os
import pytest, torch
import waves
from cases import *
from cases import test_imported_and_fails_there

x = torch.ones(8, 8)
cpu = pytest.mark.torchprof(device="cpu")
there = not hasattr(waves, "added")

@cpu
def test_measured():
    waves.wave(x)

@cpu
def test_fails_there():
    waves.wave(x)
    assert not there

@cpu
def test_skips_there():
    if there:
        pytest.skip("not before the change")
    waves.wave(x)

@cpu
def test_runs_nothing_there():
    if not there:
        waves.wave(x)

@cpu
def test_fails_here(torchprof):
    torchprof(waves.wave, x)
    assert there

@pytest.mark.xfail
@cpu
def test_expected_to_fail_and_not_there():
    waves.wave(x)
    assert not there

class TestClass:
    @cpu
    def test_measured(self):
        waves.wave(x)
"""
NEW_HERE = """
@cpu
def test_new():
    waves.added(x)
"""
NEW_IN_CLASS = """
    @cpu
    def test_new(self):
        waves.added(x)
"""
SHARED = """
import pytest, torch
import waves

def case(condition):
    @pytest.mark.torchprof(device="cpu")
    def test():
        waves.wave(torch.ones(8))
        assert condition
    return test

test_shared_and_fails_there = case(hasattr(waves, "added"))
test_imported_and_fails_there = case(hasattr(waves, "added"))
"""
IMPORTS = """
import pytest, torch
from waves import added

@pytest.mark.torchprof(device="cpu")
def test_imported():
    added(torch.ones(8))
"""

MADE = """
import waves
from cases import case

for name in ("test_made_in_a_loop_and_fails_there",):
    globals()[name] = case(hasattr(waves, "added"))
"""
LEFT_OUT = """
import pytest, torch
import waves

@pytest.mark.torchprof(device="cpu")
@pytest.mark.parametrize("case", ["kept", "left_out_there"])
def test_case(case):
    waves.wave(torch.ones(8))

@pytest.mark.torchprof(device="cpu")
@pytest.mark.parametrize("case", ["old", *(["new"] if hasattr(waves, "added") else [])])
def test_by_code(case):
    waves.wave(torch.ones(8))

if hasattr(waves, "added"):
    @pytest.mark.torchprof(device="cpu")
    def test_guarded():
        waves.wave(torch.ones(8))
"""
CONFTEST = """
import waves

def pytest_collection_modifyitems(config, items):
    out = [] if hasattr(waves, "added") else [item for item in items if "left_out_there" in item.nodeid]
    items[:] = [item for item in items if item not in out]
    config.hook.pytest_deselected(items=out)
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    made = Repository(
        tmp_path_factory.mktemp("gaps") / "repository",
        {
            "waves.py": PACKAGE,
            "tests/test_waves.py": CASES,
            "tests/cases.py": SHARED,
            "tests/test_imports.py": TESTS.replace("wave()", "imported()"),
            "tests/test_made.py": MADE,
            "tests/test_left_out.py": LEFT_OUT,
            "tests/conftest.py": CONFTEST,
            "tests/.gitignore": "test_ignored.py",
            "tests/test_moved_from.py": TESTS.replace("test_wave()", "test_moves()"),
            "tests/test_moved_to.py": "",
        },
    )
    made.write(
        {
            "waves.py": PACKAGE + "\nadded = wave\n",
            "tests/test_waves.py": CASES + NEW_IN_CLASS + NEW_HERE,
            "tests/test_imports.py": IMPORTS,
            "tests/test_ignored.py": TESTS.replace("test_wave", "test_ignored"),
            "tests/test_moved_from.py": "",
            "tests/test_moved_to.py": IMPORTS.replace("test_imported", "test_moves"),
            "tests/test_new_file.py": IMPORTS.replace("test_imported", "test_of_new_file"),
        }
    )
    return made


@pytest.fixture(scope="module")
def gaps(repository):
    return repository.against("main", "-rA", "-x", "--maxfail=99", "-n0")


def test_what_the_other_commit_has_and_cannot_measure_fails(gaps):
    assert gaps.status == 1
    assert gaps.rows == {
        "test_measured": ("same", "passed"),
        "test_fails_there": ("unknown", "not measured"),
        "test_skips_there": ("unknown", "not measured"),
        "test_runs_nothing_there": ("unknown", "not measured"),
        "test_fails_here": ("same", "failed"),
        "test_expected_to_fail_and_not_there": ("unknown", "not measured"),
        "test_shared_and_fails_there": ("unknown", "not measured"),
        "test_imported_and_fails_there": ("unknown", "not measured"),
        "TestClass::test_measured": ("same", "passed"),
        "TestClass::test_new": ("new", "passed"),
        "test_new": ("new", "passed"),
        "test_imported": ("unknown", "not measured"),
        "test_of_new_file": ("new", "passed"),
        "test_made_in_a_loop_and_fails_there": ("unknown", "not measured"),
        "test_case[kept]": ("same", "passed"),
        "test_case[left_out_there]": ("unknown", "not measured"),
        "test_by_code[old]": ("same", "passed"),
        "test_by_code[new]": ("new", "passed"),
        "test_guarded": ("unknown", "not measured"),
        "test_ignored": ("unknown", "not measured"),
        "test_moves": ("unknown", "not measured"),
    }


def test_it_says_why(repository, gaps):
    for said in (
        f"at main (SHA) {TestFailed('assert not True')}; --torchprof-against-tests=own",
        str(TestSkipped("not before the change")),
        str(TestFailed(f"baseline=update: not measured: {NothingRan(StepTitle(step=1, steps=5)).sentence}")),
        "tests/test_imports.py cannot be collected: ImportError: cannot import name 'added' from 'waves'",
        str(Deselected()),
        str(LeftUncollected()),
        str(NotTheWorkingTrees("tests/test_ignored.py")),
        "[base-not-measured]",
    ):
        assert said.replace("SHA", repository.git("rev-parse", "main")[:7]) in " ".join(gaps.out.split())


def test_each_line_on_what_fails_there_is_kept_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    for_file, for_terminal = (variables((), tmp_path, tmp_path, is_reported=shown) for shown in (False, True))
    assert ("COLUMNS" in for_file, for_terminal["COLUMNS"]) == (False, "40")
    keeper = OutcomeKeeper(SimpleNamespace(results=tmp_path))
    failed = {"nodeid": "test_it", "when": "call", "passed": False, "skipped": False, "longrepr": ""}
    keeper.pytest_runtest_logreport(SimpleNamespace(**failed, torchprof_brief=["on a screen", "one\nand two"]))
    keeper.pytest_sessionfinish(SimpleNamespace(config=SimpleNamespace()), 1)
    why = read_outcomes(tmp_path).troubles["test_it"]
    assert why == TestFailed("one\nand two")
    assert str(why) == str(TestFailed("one and two"))


def test_the_traceback_of_what_cannot_be_collected_there_is_shown(gaps):
    assert "tests/test_imports.py:\n" in gaps.out
    assert "  | tests/test_imports.py:3: in <module>" in gaps.out


def test_with_its_own_tests_each_side_runs_what_it_has(tmp_path):
    own = Repository(
        tmp_path / "own", {"waves.py": PACKAGE, "test_waves.py": TESTS + TESTS.replace("test_wave", "test_former")}
    )
    own.write({"test_waves.py": TESTS + TESTS.replace("test_wave", "test_latter")})
    run = own.against("main", "--torchprof-against-tests=own")
    assert run.rows == {"test_wave": ("same", "passed"), "test_latter": ("new", "passed")}
    assert run.status == 0
    commit = f"main ({own.git('rev-parse', 'main')[:7]})"
    assert f"{MeasuredOnlyThere(commit, ('test_waves.py::test_former',)).sentence}\n" in run.out


def test_a_test_that_moved_to_another_file_is_not_new(tmp_path):
    """Nor is one below a root directory that is not the repository's."""
    made = Repository(
        tmp_path / "made", {"part/pytest.ini": "[pytest]\n", "part/waves.py": PACKAGE, "part/test_waves.py": TESTS}
    )
    fails = TESTS.replace("waves.wave(x)", "waves.added(x)")
    (made.path / "part/test_waves.py").unlink()
    new = TESTS.replace("test_wave()", "test_new()").replace("waves.wave(x)", "waves.added(x)")
    made.write({"part/waves.py": PACKAGE + "\nadded = wave\n", "part/test_moved.py": fails, "part/test_more.py": new})
    run = made.against("main", cwd=made.path / "part")
    assert run.rows == {"test_wave": ("unknown", "not measured"), "test_new": ("new", "passed")}
    assert "it failed: AttributeError: module 'waves' has no attribute 'added'" in " ".join(run.out.split())


def test_what_did_not_run_there_before_it_ended_is_not_measured(tmp_path):
    ends = "\n\ndef test_ends():\n    if not hasattr(waves, 'added'): pytest.exit('enough')\n"
    cases = TESTS + ends + TESTS.replace("test_wave", "test_after")
    made = Repository(tmp_path / "made", {"waves.py": PACKAGE, "test_waves.py": cases})
    made.write({"waves.py": PACKAGE + "\nadded = wave\n"})
    run = made.against("main")
    assert run.rows == {"test_wave": ("same", "passed"), "test_after": ("unknown", "not measured")}
    assert str(EndedEarlier(2)) in " ".join(run.out.split())


def test_a_commit_that_pytest_cannot_start_at_is_not_measured(repository, tmp_path):
    other = Repository(
        tmp_path / "other",
        {"waves.py": "raise ValueError('no such wave')", "test_waves.py": TESTS, "conftest.py": "import waves"},
    )
    other.write({"waves.py": PACKAGE})
    run = other.against("main")
    assert run.status == 1
    assert "base main (" in run.out
    assert f"not measured: {NoOutcomes(4)}" in run.out
    assert "  | E   ValueError: no such wave" in run.out
    assert run.rows == {"test_wave": ("unknown", "not measured")}
    commit = re.search(r"base (main \(\w+\))", run.out)[1]
    assert str(NothingCompared(commit, measured_there=False, measured_here=True)) in run.out
    assert other.git("status", "--porcelain").split() == ["M", "waves.py"]


def test_a_run_without_any_test_to_measure_is_no_pass(repository):
    run = repository.against("main", "-k", "nothing_of_this_name")
    assert run.status == pytest.ExitCode.NO_TESTS_COLLECTED
    assert f"[{NothingCompared.CODE}]" in run.out


def test_looking_at_the_tests_measures_nothing(repository):
    run = repository.against("main", "--collect-only", "-q")
    assert run.status == 0
    assert "base main" not in run.out
