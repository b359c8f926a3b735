"""What torch.compile writes for its own tools does not bury a failing test; whoever asks for it gets it."""

from __future__ import annotations

import pytest

COMPILES = """
def compiled():
    return torch.compile(lambda x: x * 2, backend="eager")(x)

@pytest.fixture
def around():
    compiled()
    yield
    compiled()
    assert not "the fixture's own"
"""

FAILING = """
@pytest.mark.torchprof(device="cpu")
def test_it(around, caplog):
    compiled()
    assert [record.name for record in caplog.get_records("setup") + caplog.records] == []
    assert not "the user's own"
"""


@pytest.mark.parametrize("how", [(), ("--log-level=DEBUG",), ("-o", "log_cli=true", "--log-file=log.txt")])
def test_a_failing_test_that_compiles_shows_its_own_failure_alone(run_tests, pytester, how):
    result = run_tests(COMPILES + FAILING, *how)
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(["*the fixture's own*", "*the user's own*"])
    result.stdout.no_fnmatch_line("*torch.__trace*")
    assert not any("torch.__trace" in path.read_text() for path in pytester.path.glob("log.txt"))


def test_a_test_that_logs_itself_shows_it_all_the_same(run_tests):
    source = """
import logging
@cpu
def test_it(torchprof):
    logging.getLogger("mine").warning("about to fail")
    compiled()
    assert not "the user's own"
"""
    result = run_tests(COMPILES + source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Captured log call*", "WARNING *mine:test_it.py:* about to fail"])


def test_the_trace_that_a_user_asks_for_is_written(pytester, monkeypatch):
    monkeypatch.setenv("TORCH_TRACE", str(pytester.path / "trace"))
    # torch reads this when it is imported.
    pytester.makepyfile(test_it="import pytest, torch\nx = torch.ones(8)\n" + COMPILES + FAILING)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.no_fnmatch_line("*torch.__trace*")
    (written,) = (pytester.path / "trace").glob("*.log")
    assert "dynamo_start" in written.read_text()


def test_tests_that_are_not_measured_are_left_as_pytest_has_them(run_tests):
    source = """
import logging
def handlers():
    return [type(handler).__name__ for handler in logging.getLogger("torch.__trace").handlers]
def test_before():
    before.extend(handlers())
before = []
@cpu
def test_measured(torchprof):
    torchprof(torch.sin, x)
def test_after():
    assert handlers() == before
"""
    run_tests(source).assert_outcomes(passed=3)
