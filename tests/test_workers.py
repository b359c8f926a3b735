"""Workers of pytest-xdist hand each result over once, with the last report of its test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_torch

TESTS = """
import torch
@cpu
def test_a(): torch.mm(torch.ones(4, 4), torch.ones(4, 4))
@cpu(max_kernels=0)
def test_b(): torch.mm(torch.ones(4, 4), torch.ones(4, 4))
"""
# All that comes from a worker is text: JSON in a report, or in what it leaves at its end.
COUNTING = """
def pytest_configure(config):
    config.travelled = []
def pytest_runtest_logreport(report):
    if hasattr(report, "node"):
        report.node.config.travelled.append(str(vars(report)))
def pytest_testnodedown(node):
    node.config.travelled.append(str(node.workeroutput))
def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        with open("travelled.txt", "w") as file:
            file.write("".join(config.travelled))
"""
# The second run of a test, as of plugins that run a failed one again, measures nothing.
AGAIN = """
import pytest
from _pytest.runner import runtestprotocol
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    for item.again in (False, True):
        runtestprotocol(item, nextitem=nextitem)
    return True
@pytest.fixture
def first_alone(request):
    if request.node.again:
        pytest.skip("the second run")
"""


@pytest.fixture(autouse=True)
def _xdist():
    pytest.importorskip("xdist")


def measured(run_tests, source, *words):
    """Return the outcome of each measurement, in the order of the JSON report."""
    run_tests(source, "--torchprof-report=results.json", *words, in_process=False)
    results = json.loads(Path("results.json").read_text())["results"]
    return {row["nodeid"].partition("::")[2]: row["outcome"] for row in results}


def test_a_result_travels_once(run_tests, pytester):
    pytester.makeconftest(COUNTING)
    assert measured(run_tests, TESTS, "-n1") == {"test_a": "passed", "test_b": "failed"}
    travelled = (pytester.path / "travelled.txt").read_text()
    assert [travelled.count(f'"nodeid": "test_it.py::{name}"') for name in ("test_a", "test_b")] == [1, 1]


def test_a_run_of_a_test_that_measures_nothing_takes_the_results_of_an_earlier_one_away(run_tests, pytester):
    pytester.makeconftest(AGAIN)
    source = TESTS.replace("test_a()", "test_a(first_alone)")
    assert measured(run_tests, source, "-n1") == measured(run_tests, source) == {"test_b": "failed"}
