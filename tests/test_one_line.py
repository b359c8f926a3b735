"""Where there is room for one line, it says what fails: pytest's short summary, JUnit's message, an annotation."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import fresh
import pytest
from facts import WORSE

from pytest_torchprof.reasons.misuse import CallWithout, Takes

pytestmark = pytest.mark.any_torch
MODEL = """
import torch

w = torch.ones(64, 64)


def block(x):
    return torch.relu(x @ w)
"""
CHANGED = MODEL.replace("torch.relu(x @ w)", "torch.relu(x @ w) * torch.sigmoid(x)")
TESTS = """
import model

cpu = pytest.mark.torchprof(device="cpu")
x = torch.ones(64, 64)


@pytest.mark.torchprof(device="cpu", max_kernels=2)
def test_limit(torchprof):
    torchprof(model.block, x)


@cpu
def test_baseline(torchprof):
    torchprof(model.block, x)


@pytest.mark.torchprof(device="cpu", max_kernels=2, forbid_ops="sigmoid")
def test_two(torchprof):
    torchprof(model.block, x)


@cpu
def test_body(torchprof):
    torchprof(model.block, x).expect(max_kernels=1)


@cpu
def test_raises(torchprof):
    torchprof(model.block, None)


@cpu
def test_misuse(torchprof):
    torchprof.measure(3)


@cpu
def test_no_function(torchprof):
    torchprof("block")


@pytest.mark.torchprof(device="cpu", max_syncs=0)
def test_not_measured(torchprof):
    torchprof(model.block, x)
"""
SAID = {
    "test_limit": "max_kernels=2: 4 kernels; new: pointwise sigmoid and pointwise mul, model.py:7",
    "test_baseline": f"{WORSE}: new: pointwise sigmoid and pointwise mul, model.py:7",
    "test_two": "max_kernels=2: 4 kernels; new: pointwise sigmoid and pointwise mul, model.py:7; also: forbid_ops",
    "test_body": "max_kernels=1: 4 kernels; earliest: gemm fp32 nn mm, model.py:7",
    "test_raises": "TypeError: unsupported operand type(s) for @: 'NoneType' and 'Tensor'",
    "test_misuse": str(CallWithout("torchprof.measure()", Takes.LABEL, "3")),
    "test_no_function": str(CallWithout("torchprof()", Takes.FUNCTION, "'block'")),
    "test_not_measured": "max_syncs=0: not measured: [needs-gpu]",
}


def without_reason(line):
    """Return a line with the code alone of what is not measured; the catalogue's own test has the sentences."""
    return re.sub(r"(not measured: ).*(\[[a-z-]+\])$", r"\1\2", line)


@pytest.fixture(scope="module")
def baselines():
    """The baselines of the model before it changed, by the name of their file: the same for all tests here."""
    return {}


@pytest.fixture
def run_changed(run_tests, pytester, monkeypatch, baselines):
    """Run the tests with a baseline of the model before it changed, and return the output in lines."""
    pytester.syspathinsert()

    def run(*words, columns=200):
        monkeypatch.setenv("COLUMNS", "200")
        # That of an earlier test stays imported otherwise.
        sys.modules.pop("model", None)
        if not baselines:
            pytester.makepyfile(model=MODEL)
            chosen = ("-k", "limit or baseline or two")
            assert run_tests(TESTS, "--torchprof-baseline=update", *chosen).ret == 0
            baselines.update({path.name: path.read_bytes() for path in Path("__torchprof__").iterdir()})
        Path("__torchprof__").mkdir(exist_ok=True)
        for name, written in baselines.items():
            Path("__torchprof__", name).write_bytes(written)
        pytester.makepyfile(model=CHANGED)
        monkeypatch.setenv("COLUMNS", str(columns))
        sys.modules.pop("model", None)
        return run_tests(TESTS, *words, "--junitxml=run.xml", in_process="-n" not in words).outlines

    return run


@pytest.fixture
def failed(run_changed):
    """Run the tests and return the lines of the short summary by test."""

    def run(*words):
        lines = run_changed(*words)
        said = (line.removeprefix("FAILED test_it.py::").split(" - ", 1) for line in lines if line.startswith("FAILED"))
        return {test: without_reason(line) for test, line in said}

    return run


@pytest.mark.parametrize("words", [(), ("-q",), ("-vv",), ("-n", "2")], ids=["plain", "quiet", "verbose", "xdist"])
def test_the_short_summary_says_what_fails_without_the_name_of_a_class(failed, words):
    found = failed(*words)
    assert found == SAID


def test_junits_message_is_that_line_and_its_text_is_whole(failed, pytester):
    failed()
    problems = ET.parse(pytester.path / "run.xml").iter("testcase")
    messages = {case.get("name"): case.find("failure") for case in problems if case.find("failure") is not None}
    assert {name: without_reason(problem.get("message")) for name, problem in messages.items()} == SAID
    assert "1 x pointwise sigmoid" in messages["test_limit"].text
    assert "--torchprof-baseline=update" in messages["test_baseline"].text


def test_an_annotation_begins_with_it(failed, monkeypatch):
    failed()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    lines = fresh.run_pytest("-p", "no:cacheprovider").outlines
    begins = [line.partition("::")[2].partition("::")[2].partition("%0A")[0] for line in lines if "::error " in line]
    measured = ("test_limit", "test_baseline", "test_two", "test_body", "test_not_measured")
    assert [line for line in map(without_reason, begins) if line in SAID.values()] == [SAID[name] for name in measured]


def test_an_annotation_is_at_a_kernel_only_where_that_is_known_to_be_too_many(run_tests, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    source = """
@pytest.mark.torchprof(device="cpu", {limit})
def test_it():
    a = torch.ones(8)
    torch.sin(a)
    torch.cos(a)
"""
    begins = {}
    for limit in ("max_kernels=1", "forbid_ops='cos'"):
        lines = run_tests(source.format(limit=limit)).outlines
        (begins[limit],) = [line.partition(",title")[0] for line in lines if "::error " in line]
    source_lines = Path("test_it.py").read_text().splitlines()
    lines = [source_lines[int(begin.rpartition("line=")[2]) - 1].strip() for begin in begins.values()]
    assert lines == ["@pytest.mark.torchprof(device=\"cpu\", forbid_ops='cos')", "torch.cos(a)"]


def test_what_usually_is_the_cause_is_no_part_of_it_and_kernels_have_their_lines(run_tests, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    source = """
@pytest.mark.torchprof(device="cpu", fused=["mm", "relu"])
def test_it(torchprof):
    torchprof(lambda: torch.relu(torch.ones(8, 8) @ torch.ones(8, 8)))
"""
    lines = run_tests(source).outlines
    (said,) = [line for line in lines if line.startswith("FAILED")]
    assert said.endswith(" carries mm and relu together")
    assert any("usual causes: " in line for line in lines)
    (row,) = [line for line in lines if "1 x gemm fp32 nn mm" in line]
    assert "test_it.py:" in row


SEVERAL = """
def broken(x):
    x = torch.sin(x)
    torch._dynamo.graph_break()
    return torch.cos(x) + torch.exp(x)

@pytest.mark.torchprof(device="cpu", min_kernels=50, max_compile_time=1e-6, fused=["sin", "cos"], max_graph_breaks=0)
def test_it(torchprof):
    torchprof(torch.compile(broken, backend="eager"), torch.ones(8))
"""


def test_of_several_limits_the_one_whose_cause_is_known_comes_first(run_tests, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = run_tests(SEVERAL).outlines
    (said,) = in_full(lines).values()
    assert said.startswith("max_graph_breaks=0: 1 graph break; test_it.py:")
    assert said.endswith("; also: min_kernels, max_compile_time, fused")
    remedies = [line.split(":")[1].strip() for line in lines if line.startswith("  do: ")]
    assert remedies[0] == "for max_graph_breaks"
    assert "      and 2 more: pytest -vv" in lines


def test_a_limit_of_one_measurement_is_not_said_of_another(run_tests, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    source = """
@pytest.mark.torchprof(device="cpu")
def test_two(torchprof):
    missed, kept = torchprof(torch.sin, torch.ones(8)), torchprof(torch.cos, torch.ones(8))
    kept.expect(max_kernels=1)
    missed.expect(max_kernels=0)
"""
    errors = [line for line in run_tests(source).outlines if "::error " in line]
    assert ["max_kernels=0: 1 kernel; pointwise sin" in line for line in errors] == [True, False]


@pytest.mark.parametrize("words", [(), ("-q",)], ids=["plain", "quiet"])
def test_of_several_ranks_the_first_that_failed_says_it(run_tests, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "200")
    source = """
@pytest.mark.torchprof(device="cpu", ranks=2, max_kernels=0)
def test_ranks(torchprof):
    assert torchprof.ranks
    torchprof(torch.relu, torch.ones(8))
"""
    lines = run_tests(source, *words).outlines
    (said,) = [line for line in lines if line.startswith("FAILED")]
    assert "test_ranks - " in said
    assert "max_kernels=0: 1 kernel; pointwise clamp_min" in said
    assert "LimitsMissed" not in said


PLAIN = """
import pytest_torchprof
import torch


def test_recording():
    pytest_torchprof.load("t.json").expect(max_kernels=3)


def test_function():
    pytest_torchprof.profile(torch.sin, torch.ones(8), device="cpu", max_kernels=0)
"""


@pytest.mark.parametrize("words", [(), ("-q",), ("-vv",), ("-n", "2")], ids=["plain", "quiet", "verbose", "xdist"])
def test_a_test_that_is_not_measured_says_it_as_one_that_is(pytester, monkeypatch, words):
    from builder import own_recording

    own_recording({"a_kernel_with_a_name": 40}, steps=1).write(pytester.path / "t.json")
    pytester.makepyfile(test_it=PLAIN)
    for columns in (200, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = fresh.run_pytest("-p", "no:cacheprovider", "--junitxml=run.xml", *words).outlines
        whole = " ".join(" ".join(lines).split())
        assert "test_recording - max_kernels=3: 40 kernels; " in whole
        assert "test_function - max_kernels=0: 1 kernel; pointwise sin" in whole
        if "-vv" not in words:
            failures = lines[next(number for number, line in enumerate(lines) if "= FAILURES =" in line) :]
            assert [line for line in failures if len(line) > max(columns, 87) and "run.xml" not in line] == []
    messages = {case.get("name"): case[0].get("message") for case in ET.parse("run.xml").iter("testcase")}
    assert messages["test_recording"].startswith("max_kernels=3: 40 kernels; ")


IN_FULL = "too long for a line above, in full:"


def in_full(lines):
    """Return what stands below the short summary by test, each with its lines joined again."""
    if IN_FULL not in lines:
        return {}
    entries = []
    for line in lines[lines.index(IN_FULL) + 1 :]:
        if not line.startswith("  "):
            break
        if line.startswith("    "):
            entries[-1] += f" {line.strip()}"
        else:
            entries.append(line.strip())
    return {test: without_reason(text) for test, text in (entry.split(": ", 1) for entry in entries)}


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("words", [(), ("-q",), ("--tb=no",), ("-n", "2")], ids=["plain", "quiet", "no text", "xdist"])
def test_what_pytest_cuts_stands_below_its_summary_in_full(run_changed, columns, words):
    lines = run_changed(*words, columns=columns)
    summary = [line for line in lines if line.startswith("FAILED")]
    ours = {test: text for test, text in SAID.items() if not text.startswith("TypeError")}
    whole = {test for test, text in ours.items() if any(line.endswith(text) for line in summary)}
    found = in_full(lines)
    assert found == {test: text for test, text in ours.items() if test not in whole}
    assert lines.index(IN_FULL) > max(number for number, line in enumerate(lines) if line.startswith("FAILED"))
    assert max(len(line) for line in lines[lines.index(IN_FULL) :][: len(found) * 4]) <= columns


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_in_colour_the_summary_is_no_wider_than_the_screen(run_changed, columns):
    def ours(*words):
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in run_changed(*words, columns=columns)]
        begin = next(at for at, line in enumerate(lines) if "short test summary" in line)
        tests = [test for test, said in SAID.items() if not said.startswith("TypeError")]
        # Without colours pytest cuts by itself.
        return [without_reason(line) for line in lines[begin:-1] if any(test in line for test in tests)]

    lines = ours("--color=yes")
    assert lines == ours("--color=no")
    assert any(line.endswith("...") for line in lines)
    assert max(len(line) for line in lines if line.startswith("FAILED")) <= columns


def test_who_reads_reports_after_the_summary_has_them_whole(run_changed, pytester):
    pytester.makeconftest(
        """
def pytest_unconfigure(config):
    reporter = config.pluginmanager.getplugin("terminalreporter")
    for report in reporter.stats.get("failed", ()):
        print("after:", report.longrepr.reprcrash.message)
"""
    )
    after = [line for line in run_changed("--color=yes", columns=40) if line.startswith("after:")]
    for said in SAID.values():
        assert any(without_reason(line).endswith(said) for line in after), said


@pytest.mark.parametrize("words", [("-vv",), ("-rN",), ("-rs",), ("--no-summary",)])
def test_nothing_stands_there_where_nothing_is_cut(run_changed, words):
    assert IN_FULL not in run_changed(*words, columns=60)


def test_nothing_stands_there_in_the_log_of_a_ci_service_which_is_not_cut(run_changed, monkeypatch):
    monkeypatch.setenv("CI", "true")
    lines = run_changed(columns=60)
    assert IN_FULL not in lines
    assert any(line.endswith(SAID["test_limit"]) for line in lines)


def test_a_name_that_is_wider_than_the_terminal_is_whole_there_in_two_lines(pytester, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    name = "test_of_a_model_with_a_name_that_is_wider_than_the_terminal"
    _, source = PLAIN.split("def test_recording():")
    pytester.makepyfile(**{name: f"import pytest_torchprof\nimport torch\n\n{source[source.index('def ') :]}"})
    lines = fresh.run_pytest("-p", "no:cacheprovider").outlines
    below = [line for line in lines[lines.index(IN_FULL) + 1 :] if line.startswith("  ")]
    assert f"{name}.py:" in "".join(line.strip() for line in below)
    assert max(map(len, below)) <= 40


def test_a_limit_of_the_marker_lies_at_the_test_where_pytest_prints_places_alone(run_tests, pytester):
    lines = run_tests(
        "@cpu\n@pytest.mark.torchprof(max_kernels=0)\ndef test_it():\n    torch.sin(x)\n", "--tb=line"
    ).outlines
    (line,) = [line for line in lines if ": max_kernels=0: " in line and not line.startswith("FAILED")]
    assert line.startswith(f"{pytester.path / 'test_it.py'}:")


@pytest.mark.parametrize("style", ["line", "native", "short", "long"])
@pytest.mark.parametrize("columns", [40, 80])
def test_what_a_body_misses_fits_the_terminal_in_each_style_of_tracebacks(run_tests, monkeypatch, style, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    source = """
@cpu
def test_it(torchprof):
    seen = torchprof(torch.sin, x)
    seen.expect(max_kernels=0, forbid_ops="sin", fused=["sin", "cos"])
"""
    lines = run_tests(source, f"--tb={style}", "-W", "ignore").outlines
    begin = next(at for at, line in enumerate(lines) if "LimitsMissed:" in line)
    end = next(at for at, line in enumerate(lines) if "- torchprof" in line)
    ours = lines[begin:end]
    assert any(line.endswith(" max_kernels=0") or " max_kernels=0 " in line for line in ours)
    # pytest writes the place of an error in one line, however long: editors read it.
    assert [
        line for line in ours if len(line) > columns and "test_it.py:9: max_kernels=0: 1 kernel; " not in line
    ] == []


def test_many_cut_lines_are_counted(run_tests, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    source = """
@pytest.mark.torchprof(device="cpu", max_kernels=0)
@pytest.mark.parametrize("number", range(12))
def test_of_many(torchprof, number):
    torchprof(torch.relu, torch.ones(8))
"""
    lines = run_tests(source, "--tb=no").outlines
    *shown, more = in_full(lines).items()
    assert len(shown) == 10
    assert more == ("and 2 more lines", "pytest -vv")


ALIKE = """
@pytest.mark.torchprof(device="cpu", max_kernels=0)
def test_it(torchprof):
    torchprof(torch.relu, torch.ones(8))
"""


def test_tests_of_one_name_stand_there_with_their_files(run_tests, pytester, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    pytester.makepyfile(test_other=f"import pytest\nimport torch\n{ALIKE}")
    lines = run_tests(ALIKE, "test_it.py", "test_other.py", "--tb=no").outlines
    files = [line.split("::")[0] for line in lines[lines.index(IN_FULL) + 1 :] if "::" in line]
    assert files == ["  test_it.py", "  test_other.py"]


def test_a_test_whose_name_is_wider_than_the_terminal_has_it_in_two_lines(run_tests, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines = run_tests(ALIKE.replace("test_it", f"test_{'x' * 80}"), "--tb=no").outlines
    below = [line for line in lines[lines.index(IN_FULL) + 1 :] if line.startswith("  ")]
    assert "".join(line.strip() for line in below).startswith(f"test_{'x' * 80}:")
    assert max(map(len, below)) <= 60


def test_a_subtest_is_named_as_the_summary_names_it(run_tests, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    source = """
import unittest

@pytest.mark.usefixtures("torchprof")
class TestIt(unittest.TestCase):
    @pytest.mark.torchprof(device="cpu")
    def test_it(self):
        for size in (1, 2):
            with self.subTest(size=size):
                self.torchprof(torch.relu, torch.ones(size)).expect(max_kernels=0)
"""
    lines = run_tests(source, "--tb=no").outlines
    words = [line.split()[0] for line in lines if line.startswith("SUBFAILED")]
    below = lines[lines.index(IN_FULL) + 1 :]
    assert [line.split()[0] for line in below if line.startswith("  SUBFAILED")] == words


@pytest.mark.parametrize("room", [0, 1])
def test_an_error_whose_line_just_fits_does_not_stand_there(run_tests, monkeypatch, room):
    source = """
@pytest.fixture
def measured(torchprof):
    torchprof(torch.relu, torch.ones(8)).expect(max_kernels=0)

@pytest.mark.torchprof(device="cpu")
def test_it(measured):
    pass
"""
    monkeypatch.setenv("COLUMNS", "200")
    (line,) = (line for line in run_tests(source, "--tb=no").outlines if line.startswith("ERROR"))
    monkeypatch.setenv("COLUMNS", str(len(line) - room))
    assert (IN_FULL in run_tests(source, "--tb=no").outlines) is bool(room)


XFAIL = """
@pytest.mark.xfail(reason="known")
@pytest.mark.torchprof(device="cpu")
def test_it(torchprof):
    torchprof(torch.sin, x).expect(max_syncs=0, max_kernels=0)
"""


@pytest.mark.parametrize("words", [(), ("-q",), ("-n1",), ("-n1", "-q")], ids=" ".join)
def test_what_no_xfail_hides_has_the_line_of_any_other_failure(run_tests, pytester, monkeypatch, words):
    if "-n1" in words:
        pytest.importorskip("xdist")
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("CI", "true")

    def summary(source):
        result = run_tests(source, "-W", "ignore", "--junitxml=junit.xml", *words, in_process="-n1" not in words)
        (line,) = [line for line in result.outlines if line.startswith("FAILED ")]
        (failure,) = ET.parse(pytester.path / "junit.xml").iter("failure")
        return line.partition(" - ")[2], failure.get("message")

    line, message = summary(XFAIL)
    assert line.startswith("max_kernels=")
    assert line.endswith("; not measured: max_syncs")
    assert summary(XFAIL.replace("@pytest.mark.xfail", "# ")) == (line, message)
    assert message == line
