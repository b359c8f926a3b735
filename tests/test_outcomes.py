"""The outcome of a test in the plugin's own reports is the one that pytest counts, wherever a limit of ``expect()`` is missed."""

from __future__ import annotations

import gzip
import json
import re
import xml.etree.ElementTree as ET

import pytest

from pytest_torchprof.cli import main

pytestmark = pytest.mark.any_torch
SOURCE = """
import _thread
import asyncio
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool


@pytest.fixture
def profile(torchprof):
    return torchprof(torch.sin, x)


def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


{fixtures}


@cpu
def test_it({arguments}):
    {body}
"""


def of_test(body, arguments="profile", fixtures=""):
    return SOURCE.format(body=body, arguments=arguments, fixtures=fixtures)


def in_teardown(body):
    return of_test("pass", "late", f"@pytest.fixture\ndef late(profile):\n    yield\n    {body}")


def of_unittest(before="pass", body="pass", after="pass"):
    return (
        SOURCE.partition("@cpu")[0].format(fixtures="")
        + f"""
@pytest.mark.usefixtures("torchprof")
class Test(unittest.TestCase):
    def measure(self):
        return self.torchprof(torch.sin, x)

    def setUp(self):
        {before}

    def test_it(self):
        {body}

    def tearDown(self):
        {after}
"""
    )


def in_loop(body):
    """Return a test that runs a body in a loop of asyncio, where ``missing()`` is a coroutine that misses."""
    lines = f"async def missing():\n        {MISSED}\n    async def run():\n        {body}\n    asyncio.run(run())"
    return of_test(lines)


FINALIZED = "class Final:\n        def __del__(self): {body}\n    Final()"
MISSED, UNMEASURED = "profile.expect(max_kernels=0)", "profile.expect(max_syncs=0)"
FORBIDDEN = "profile.expect(forbid_ops='sin')"
OUTCOMES = {
    "a limit is missed": (of_test(MISSED), "failed"),
    "a limit cannot be measured": (of_test(UNMEASURED), "not measured"),
    "a limit is missed and another cannot be measured": (
        of_test("profile.expect(max_kernels=0, max_syncs=0)"),
        "failed",
    ),
    "the marker's limit is missed and another cannot be measured": (
        of_test("torchprof(torch.sin, x)", "torchprof").replace(
            "@cpu", "@pytest.mark.torchprof(device='cpu', max_kernels=0, max_syncs=0)"
        ),
        "failed",
    ),
    "the marker's limit is missed and one of the body cannot be measured": (
        of_test("torchprof(torch.sin, x).expect(max_syncs=0)", "torchprof").replace(
            "@cpu", "@pytest.mark.torchprof(device='cpu', max_kernels=0)"
        ),
        "failed",
    ),
    "the test expects what the measured code raises": (
        of_test("with pytest.raises(TypeError):\n        torchprof(torch.sin, None)", "torchprof"),
        "error",
    ),
    "the word is no limit": (of_test("profile.expect(max_kernls=0)"), "error"),
    "the value fits no limit": (of_test("profile.expect(max_kernels='many')"), "error"),
    "the value is no pattern": (of_test("profile.expect(forbid_kernels=torch.conv2d)"), "error"),
    "no function is given": (of_test("torchprof('sin')", "torchprof"), "error"),
    "a block has no label": (of_test("torchprof.measure('')", "torchprof"), "error"),
    "the word of a block is no limit": (
        of_test("with torchprof.measure('a', max_kernls=0): pass", "torchprof"),
        "error",
    ),
    "limits are set without any": (of_test("torchprof.limits()", "torchprof"), "error"),
    "a wrong call is caught": (
        of_test("with pytest.raises(Exception):\n        torchprof('sin')", "torchprof"),
        "error",
    ),
    "a wrong call, where the test is marked xfail": (
        of_test("torchprof('sin')", "torchprof").replace("@cpu", "@pytest.mark.xfail\n@cpu"),
        "error",
    ),
    "nothing is given, where the test is marked xfail": (
        of_test("torchprof()", "torchprof").replace("@cpu", "@pytest.mark.xfail\n@cpu"),
        "error",
    ),
    "nothing can be adopted": (
        of_test("with pytest.raises(Exception):\n        torchprof.adopt(3)", "torchprof"),
        "error",
    ),
    "the word is no limit, where the test is marked xfail": (
        of_test("profile.expect(max_kernls=0)").replace("@cpu", "@pytest.mark.xfail\n@cpu"),
        "error",
    ),
    "a limit is missed and another cannot be measured, where the test is marked xfail": (
        of_test("profile.expect(max_kernels=0, max_syncs=0)").replace("@cpu", "@pytest.mark.xfail\n@cpu"),
        "failed",
    ),
    "an assertion fails": (of_test("assert profile.kernels.count == 0"), "failed"),
    "the code raises": (of_test("raise ValueError('mine')"), "error"),
    "the measured code raises": (of_test("torchprof(torch.sin, None)", "torchprof"), "error"),
    "a limit is missed in a setup": (
        of_test("pass", "early", f"@pytest.fixture\ndef early(profile):\n    {MISSED}"),
        "error",
    ),
    "a limit cannot be measured in a setup": (
        of_test("pass", "early", f"@pytest.fixture\ndef early(profile):\n    {UNMEASURED}"),
        "not measured",
    ),
    "a limit is missed and another cannot be measured in a setup": (
        of_test(
            "pass",
            "early",
            "@pytest.fixture\ndef early(profile):\n    profile.expect(max_kernels=0, max_syncs=0)",
        ),
        "error",
    ),
    "a limit is missed in a teardown": (in_teardown(MISSED), "error"),
    "a teardown measures and misses": (
        of_test(
            "pass",
            "late",
            f"@pytest.fixture\ndef late(torchprof):\n    yield\n    torchprof(torch.sin, x).{MISSED[8:]}",
        ).replace("@cpu\n", ""),
        "error",
    ),
    "a teardown raises": (in_teardown("raise ValueError('mine')"), "error"),
    "a limit is missed in unittest's setUp": (of_unittest(before=f"self.measure().{MISSED[8:]}"), "failed"),
    "a limit is missed in unittest's tearDown": (of_unittest(after=f"self.measure().{MISSED[8:]}"), "failed"),
    "a limit is missed in a thread": (of_test(f"in_thread(lambda: {MISSED})"), "failed"),
    "a limit cannot be measured in a thread": (of_test(f"in_thread(lambda: {UNMEASURED})"), "not measured"),
    "a thread measures and misses": (
        of_test(f"in_thread(lambda: torchprof(torch.sin, x).{MISSED[8:]})", "torchprof"),
        "failed",
    ),
    "a thread misses after another could not be measured": (
        of_test(f"in_thread(lambda: {UNMEASURED})\n    in_thread(lambda: {MISSED})"),
        "failed",
    ),
    "a finalizer misses after a thread could not be measured, where the test is marked xfail": (
        of_test(f"in_thread(lambda: {UNMEASURED})\n    {FINALIZED.format(body=MISSED)}").replace(
            "@cpu", "@pytest.mark.xfail\n@cpu"
        ),
        "failed",
    ),
    "nobody asks an executor": (
        of_test("with ThreadPoolExecutor() as pool:\n        pool.submit(profile.expect, max_kernels=0)"),
        "failed",
    ),
    "nobody asks a pool": (
        of_test(f"with ThreadPool(1) as pool:\n        pool.apply_async(lambda: {MISSED}).wait()"),
        "failed",
    ),
    "a thread misses while the test is torn down": (
        of_test("pass", "late", f"@pytest.fixture\ndef late(profile):\n    yield\n    in_thread(lambda: {MISSED})"),
        "error",
    ),
    "a task misses that nobody awaits": (
        in_loop("asyncio.create_task(missing()); await asyncio.sleep(0.01)"),
        "failed",
    ),
    "a callback of a loop misses": (
        in_loop(f"asyncio.get_running_loop().call_soon(lambda: {MISSED}); await asyncio.sleep(0.01)"),
        "failed",
    ),
    "a task misses in a cycle of references": (
        in_loop(
            "task = asyncio.create_task(missing()); task.add_done_callback([task].append); await asyncio.sleep(0.01)"
        ),
        "failed",
    ),
    "a bare thread misses": (
        of_test(
            "begun, running = threading.Event(), _thread._count()\n"
            f"    _thread.start_new_thread(lambda: begun.set() or {MISSED}, ())\n"
            "    begun.wait()\n    while _thread._count() > running:\n        time.sleep(0.001)"
        ),
        "failed",
    ),
    "a finalizer misses": (of_test(FINALIZED.format(body=MISSED)), "failed"),
    "a finalizer misses while the test is torn down": (in_teardown(FINALIZED.format(body=MISSED)), "error"),
    "a finalizer expects the miss": (
        of_test(FINALIZED.format(body=f"\n            with pytest.raises(AssertionError):\n                {MISSED}")),
        "passed",
    ),
    "the test expects a task's miss": (
        in_loop("with pytest.raises(AssertionError): await asyncio.create_task(missing())"),
        "passed",
    ),
    "the test collects what its tasks raise": (
        in_loop("await asyncio.gather(missing(), return_exceptions=True)"),
        "passed",
    ),
    "the test expects the miss": (of_test(f"with pytest.raises(AssertionError):\n        {MISSED}"), "passed"),
    "the thread expects the miss": (
        of_test(
            f"def caught():\n        with pytest.raises(AssertionError):\n            {MISSED}\n    in_thread(caught)"
        ),
        "passed",
    ),
    "the test expects an executor's miss": (
        of_test(
            "with ThreadPoolExecutor() as pool, pytest.raises(AssertionError):\n"
            "        pool.submit(profile.expect, max_kernels=0).result()"
        ),
        "passed",
    ),
    "a miss of a thread, where the test is marked xfail": (
        of_test(f"in_thread(lambda: {MISSED})").replace("@cpu", "@pytest.mark.xfail\n@cpu"),
        "xfailed",
    ),
    "the code raises after a thread has missed": (
        of_test(f"in_thread(lambda: {MISSED})\n    raise ValueError('mine')"),
        "error",
    ),
    "a test marked xfail raises after a thread has missed": (
        of_test(f"in_thread(lambda: {MISSED})\n    raise ValueError('mine')").replace(
            "@cpu", "@pytest.mark.xfail\n@cpu"
        ),
        "xfailed",
    ),
    "a test skips itself after a thread has missed": (
        of_test(f"in_thread(lambda: {MISSED})\n    pytest.skip('mine')"),
        "failed",
    ),
    "a test marked xfail, strictly, passes": (
        of_test("pass").replace("@cpu", "@pytest.mark.xfail(strict=True)\n@cpu"),
        "failed",
    ),
    "a test fails itself": (of_test("pytest.fail('mine')"), "failed"),
    "a test marked xfail, whose code raises": (
        of_test("raise ValueError('mine')").replace("@cpu", "@pytest.mark.xfail\n@cpu"),
        "xfailed",
    ),
}
SUBTESTS = {
    "a subtest misses": (
        of_test(f"with subtests.test('a'):\n        {MISSED}", "profile, subtests"),
        "failed",
    ),
    "a subtest cannot be measured": (
        of_test(f"with subtests.test('a'):\n        {UNMEASURED}", "profile, subtests"),
        "not measured",
    ),
    "a subtest cannot be measured, and the next one misses": (
        of_test(
            f"with subtests.test('a'):\n        {UNMEASURED}\n    with subtests.test('b'):\n        {MISSED}",
            "profile, subtests",
        ),
        "failed",
    ),
    "a subtest raises": (
        of_test("with subtests.test('a'):\n        raise ValueError('mine')", "profile, subtests"),
        "error",
    ),
    "a subtest of unittest misses": (
        of_unittest(body=f"profile = self.measure()\n        with self.subTest(a=1):\n            {MISSED}"),
        "failed",
    ),
}
COUNTED = {"failed": {"failed"}, "error": {"errors", "failed"}, "not measured": {"errors", "failed"}}
REPORTS = ("--torchprof-device=cpu", "--torchprof-report=out.json", "--junitxml=junit.xml", "--torchprof-history=past")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(("source", "outcome"), OUTCOMES.values(), ids=OUTCOMES)
def test_each_report_has_the_outcome_that_pytest_counts(run_tests, pytester, capsys, source, outcome):
    _check(run_tests(source, *REPORTS, "-W", "ignore"), pytester.path, capsys, outcome)


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="the fixture subtests is of pytest 9")
@pytest.mark.parametrize(("source", "outcome"), SUBTESTS.values(), ids=SUBTESTS)
def test_so_it_has_where_a_subtest_fails(run_tests, pytester, capsys, source, outcome):
    _check(run_tests(source, *REPORTS), pytester.path, capsys, outcome)


def test_an_error_of_the_tests_own_after_a_miss_that_was_lost_is_reported_once(run_tests):
    result = run_tests(of_test(f"in_thread(lambda: {MISSED})\n    raise ValueError('mine')"), "-W", "ignore")
    result.assert_outcomes(failed=1)


@pytest.mark.parametrize("later", ["in_thread(lambda: {})", FINALIZED.format(body="{}")], ids=["thread", "finalizer"])
def test_all_that_was_lost_is_named_first_what_is_missed(run_tests, pytester, later):
    body = f"in_thread(lambda: {UNMEASURED})\n    {later.format(MISSED)}\n    in_thread(lambda: {FORBIDDEN})"
    run_tests(of_test(body), "-W", "ignore", "--junitxml=junit.xml")
    (failure,) = ET.parse(pytester.path / "junit.xml").iter("failure")
    named = re.findall(r"(max_kernels|max_syncs|forbid_ops)=", failure.get("message"))
    assert named[-1] == "max_syncs"
    assert sorted(named) == ["forbid_ops", "max_kernels", "max_syncs"]
    assert all(f"  {limit}=" in failure.text for limit in named)


def _check(result, folder, capsys, outcome):
    counts = result.parseoutcomes()
    assert counts.keys() & COUNTED.get(outcome, {outcome}), counts
    assert outcome in ("passed", "xfailed") or not counts.get("xfailed")
    (table,) = [line for line in result.outlines if line.startswith("test_it.py::") and re.search(r" {2}\S", line)]
    assert table.endswith(f"  {outcome}")
    (told,) = json.loads((folder / "out.json").read_text())["results"]
    assert told["outcome"] == outcome
    (record,) = (folder / "past").glob("*.json.gz")
    (kept,) = json.loads(gzip.decompress(record.read_bytes()))["measurements"]
    assert kept["outcome"] == outcome
    names = [
        entry.get("value")
        for entry in ET.parse(folder / "junit.xml").iter("property")
        if re.search(r"torchprof(\[.+\])?\.outcome$", entry.get("name"))
    ]
    assert names == [outcome]
    capsys.readouterr()
    assert main(["report", str(folder / "out.json"), "-o", str(folder / "page.html")]) == 0
    assert f'data-outcome="{outcome}"' in (folder / "page.html").read_text()
    capsys.readouterr()


TWO = """
def expects(profile):
    profile.expect(max_kernels=0)


@pytest.mark.torchprof(device="cpu", forbid_ops="sin")
def test_it(torchprof):
    profile = torchprof(torch.sin, x)
    expects(profile)
"""


def test_where_the_markers_limits_and_a_body_miss_each_report_says_what_the_summary_says(
    run_tests, pytester, monkeypatch
):
    result = run_tests(TWO, "--junitxml=junit.xml", "--torchprof-report=out.json")
    (summary,) = [line.partition(" - ")[2] for line in result.outlines if line.startswith("FAILED ")]
    assert summary.startswith("max_kernels=0: ")
    (failure,) = ET.parse(pytester.path / "junit.xml").iter("failure")
    assert failure.get("message") == summary
    (told,) = json.loads((pytester.path / "out.json").read_text())["results"]
    assert told["message"].splitlines()[0] == summary
    assert "forbid_ops=sin" in told["message"], "what else is missed stands below"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    (annotation,) = [line for line in run_tests(TWO).outlines if line.startswith("::error")]
    assert f"::{summary}%0A" in annotation


def test_an_annotation_lies_at_the_line_that_expects(run_tests, pytester, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    (annotation,) = [line for line in run_tests(TWO).outlines if line.startswith("::error")]
    lines = (pytester.path / "test_it.py").read_text().splitlines()
    assert f"line={lines.index('    profile.expect(max_kernels=0)') + 1}," in annotation


NEVER_MEASURED = """
import pytest, torch

@pytest.fixture
def broken():
    raise RuntimeError("no data")

@pytest.fixture
def skips():
    pytest.skip("no data")

@pytest.mark.torchprof(device="cpu")
def test_setup(broken):
    pass

@pytest.mark.torchprof(device="cpu")
def test_before(torchprof):
    raise ValueError("mine")

@pytest.mark.torchprof(device="cpu")
def test_assert(torchprof):
    assert False, "mine"

@pytest.mark.torchprof(device="cpu")
def test_skips(skips):
    pass

def test_unmarked(torchprof):
    raise ValueError("mine")
"""


def test_a_marked_test_that_raised_before_it_measured_has_a_row_as_pytest_counts_it(pytester):
    pytester.makepyfile(test_it=NEVER_MEASURED)
    result = pytester.runpytest("--torchprof-report=r.json")
    result.assert_outcomes(failed=3, errors=1, skipped=1)
    results = json.loads((pytester.path / "r.json").read_text())["results"]
    assert {own["nodeid"].partition("::")[2]: own["outcome"] for own in results} == {
        "test_setup": "error",
        "test_before": "error",
        "test_assert": "failed",
    }


EXPECTED_TO_FAIL = """
import pytest

@pytest.mark.torchprof(device="cpu")
def test_says_so(torchprof):
    pytest.xfail("known")

@pytest.mark.xfail
@pytest.mark.torchprof(device="cpu")
def test_is_marked(torchprof):
    raise ValueError("mine")
"""


def test_a_marked_test_that_fails_as_expected_before_it_measured_has_a_row_as_pytest_counts_it(pytester):
    pytester.makepyfile(test_it=EXPECTED_TO_FAIL)
    result = pytester.runpytest("--torchprof-report=r.json", "--torchprof-report=r.html")
    result.assert_outcomes(xfailed=2)
    results = json.loads((pytester.path / "r.json").read_text())["results"]
    assert {own["nodeid"].partition("::")[2]: own["outcome"] for own in results} == {
        "test_says_so": "xfailed",
        "test_is_marked": "xfailed",
    }
    page = (pytester.path / "r.html").read_text()
    assert all(name in page for name in ("test_says_so", "test_is_marked", "xfailed"))
