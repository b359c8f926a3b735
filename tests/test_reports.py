"""The table at the end of a run, and the files of ``--torchprof-report``."""

from __future__ import annotations

import json

import pytest
from facts import verdicts_in
from wcwidth import wcswidth

from pytest_torchprof.baseline import KernelRecord
from pytest_torchprof.compare import Change, Comparison
from pytest_torchprof.reasons.whole_runs import ReportNotWritten
from pytest_torchprof.report import RunResults, markdown
from pytest_torchprof.report.result import BaselineState, KernelCalls, Outcome, Result, Summary
from pytest_torchprof.report.terminal import describe_environment, heading_lines, render
from pytest_torchprof.trace.metadata import Environment

pytestmark = pytest.mark.any_torch

MIXED = """
@pytest.mark.torchprof(device="cpu", max_kernels=1)
def test_kept():
    torch.sin(x)

@pytest.mark.torchprof(device="cpu", max_kernels=1)
@pytest.mark.parametrize("n", [pytest.param(2, id="a|b\\x1b[31m*")])
def test_missed(n):
    torch.sin(torch.cos(x))

@pytest.mark.torchprof(device="cpu", max_syncs=0)
def test_unmeasured():
    torch.sin(x)
"""


def test_the_json_report_has_a_result_per_measurement_also_when_tests_fail(run_tests, pytester):
    run_tests(MIXED, "--torchprof-report=deep/report.json").assert_outcomes(passed=1, failed=2)
    report = json.loads((pytester.path / "deep" / "report.json").read_text())
    assert report["schema"] == 1
    assert report["environment"]["torch"]
    assert [entry["outcome"] for entry in report["results"]] == ["passed", "failed", "not measured"]
    missed = report["results"][1]
    (limit,) = missed["limits"]
    assert (limit["name"], limit["expected"], limit["measured"]) == ("max_kernels", "1", 2)
    assert (limit["status"], limit["range"]) == ("missed", None)
    assert limit["message"].startswith("2 kernels")
    assert len(limit["details"]) == 2
    assert missed["summary"]["kernels"] == 2
    assert missed["summary"]["worst"]["kernels"] == 2
    assert (pytester.path / missed["recording"]).is_file()
    unmeasured = report["results"][2]["limits"][0]
    assert (unmeasured["status"], unmeasured["measured"]) == ("not measured", None)


UNEVEN = """
import itertools

numbers = itertools.cycle([5, 6, 7, 8, 1])

@pytest.mark.torchprof(device="cpu", max_kernels=2, steps=5, warmup=0)
def test_uneven():
    for _ in range(next(numbers)):
        torch.sin(x)
"""


def test_the_table_and_the_page_say_the_number_of_the_verdict(run_tests, pytester, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    result = run_tests(UNEVEN, "--torchprof-report=run.html", "--torchprof-report=run.json", "--junit-xml=junit.xml")
    (verdict,) = verdicts_in(pytester.path / "run.json")
    titles, row = (
        next(line for line in result.stdout.lines if line.startswith(start)) for start in ("test ", "test_it.py::")
    )
    assert titles.split()[1] == "kernels"
    assert (row.split()[1], verdict.number) == ("8", 8)
    cells = (pytester.path / "run.html").read_text().partition('<tr id="row-0"')[2].partition("</tr>")[0]
    assert '<td data-v="8">8</td>' in cells
    assert 'name="torchprof.kernels" value="8"' in (pytester.path / "junit.xml").read_text()


def test_the_markdown_report_shows_failures_first_and_escapes_names(run_tests, pytester):
    run_tests(MIXED, "--torchprof-report=report.md")
    text = (pytester.path / "report.md").read_text()
    assert text.index("### ") < text.index("| test |")
    assert "\x1b" not in text
    assert "a|b" not in text.replace("\\|", "")
    assert "max_kernels=1" in text


def test_names_reach_the_terminal_without_their_escapes(run_tests):
    result = run_tests(MIXED)
    table = result.stdout.str().partition("- torchprof:")[2].partition("short test summary")[0]
    assert "\x1b" not in table


def test_one_row_per_measurement_then_the_kernels_of_those_that_failed(run_tests, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    result = run_tests(MIXED, "-v")
    result.stdout.fnmatch_lines(
        [
            "*torchprof: *torch *",
            "test *kernels*launches*busy*CPU/GPU*breaks*baseline*verdict*",
            "test_it.py::test_kept *1*passed*",
            "kernel *calls*time*launched by*",
            "pointwise * 1 *aten::*",
            "1 passed, 1 failed, 1 not measured",
        ]
    )


def test_quiet_runs_say_one_line(run_tests):
    result = run_tests(MIXED, "-q")
    result.stdout.fnmatch_lines(["torchprof: 1 passed, 1 failed, 1 not measured"])
    result.stdout.no_fnmatch_line("*CPU/GPU*")


def test_a_report_that_cannot_be_written_is_said_and_fails_the_run(run_tests, pytester):
    (pytester.path / "file").write_text("")
    result = run_tests("@cpu\ndef test_a(): torch.sin(x)\n", "--torchprof-report=file/report.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    said = " ".join(" ".join(result.outlines).split())
    assert str(ReportNotWritten(str(pytester.path / "file" / "report.json"), "File exists")) in said


def test_a_rerun_replaces_the_results_of_the_first_try(run_tests, pytester):
    source = """
tries = []
@pytest.mark.flaky(reruns=1)
@pytest.mark.torchprof(device="cpu", max_kernels=1, warmup=0, steps=1)
def test_second_time():
    tries.append(1)
    torch.sin(x)
    if len(tries) == 1:
        torch.sin(x)
"""
    run_tests(source, "--torchprof-report=report.json", "-p", "rerunfailures").assert_outcomes(passed=1)
    results = json.loads((pytester.path / "report.json").read_text())["results"]
    assert [entry["outcome"] for entry in results] == ["passed"]


def test_junit_counts_a_missed_limit_as_a_failure(run_tests, pytester):
    run_tests(MIXED, "--junitxml=junit.xml")
    text = (pytester.path / "junit.xml").read_text()
    assert 'failures="2"' in text
    assert "1 limit missed" in text


def test_require_gpu_stops_with_a_usage_error_where_there_is_none(run_tests):
    if __import__("torch").cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    result = run_tests("@pytest.mark.torchprof(max_kernels=1)\ndef test_a(): torch.sin(x)\n", "--torchprof-require-gpu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_it.py::test_a *no-gpu]*"])


def test_require_gpu_does_not_concern_runs_without_a_torchprof_test(run_tests):
    run_tests("def test_a(): pass\n", "--torchprof-require-gpu").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (
            {"gpu": "NVIDIA H100", "compute_capability": "9.0", "torch": "2.14.1", "cuda": "13.0"},
            "NVIDIA H100 (sm_90), torch 2.14.1, CUDA 13.0",
        ),
        (
            {
                "gpu": "AMD Instinct MI300X",
                "compute_capability": "9.4",
                "gcn_arch": "gfx942:sramecc+:xnack-",
                "torch": "2.14.1",
                "rocm": "7.2.1",
            },
            "AMD Instinct MI300X (gfx942), torch 2.14.1, ROCm 7.2.1",
        ),
        ({"gpu": "AMD Radeon", "compute_capability": "9.4", "rocm": "7.2"}, "AMD Radeon, ROCm 7.2"),
        ({"cpu": "AMD EPYC", "torch": "2.14.1"}, "AMD EPYC, torch 2.14.1"),
    ],
)
def test_where_a_run_measured_is_said_in_the_words_of_its_maker(environment, said):
    assert describe_environment(Environment(**environment)) == said


FEWER = Comparison(
    verdict="better",
    changes=(
        *(
            Change(
                kind="count", what=f"op_{i}", old=2, new=1, direction="better", gated=True, before=(one,), after=(one,)
            )
            for i in range(9)
            for one in [KernelRecord(name=f"op_{i}", family="pointwise", op=f"aten::op_{i}")]
        ),
        Change(kind="number", what="kernels", old=24, new=12, direction="better", gated=True),
    ),
)
CHANGED = Result(
    nodeid="tests/test_model.py::test_block",
    outcome=Outcome.FAILED,
    baseline_state=BaselineState.BETTER,
    comparison=FEWER,
    kernels=(KernelCalls(name="pointwise op", count=3, time_us=9.0, min_us=1.0, max_us=5.0, ops=("aten::op",)),),
    summary=Summary(kernels=12, launches=12, gpu_busy_us=36.0, cpu_gpu_ratio=4.4, graph_breaks=0),
    environment=Environment(gpu="NVIDIA H100 80GB HBM3", torch="2.15.0", cuda="13.2"),
)


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 120])
def test_the_section_fits_the_terminal(columns):
    run = RunResults(results=(CHANGED,))
    shown = render(run, width=columns, verbosity=1).splitlines() + heading_lines(run, width=columns)
    assert max(map(len, shown)) <= columns
    assert "NVIDIA H100 80GB HBM3, torch 2.15.0" in " ".join(shown)
    assert "pytest --torchprof-baseline=update" in "\n".join(shown), "a command is not broken"


@pytest.mark.parametrize(("columns", "verdict"), [(120, "better (-12 kernels)"), (60, "better"), (40, None)])
def test_a_narrow_terminal_has_the_comparison_in_a_word_before_it_has_none(columns, verdict):
    titles, _, row, *_ = render(RunResults(results=(CHANGED,)), width=columns).splitlines()
    assert ("baseline" in titles) == (verdict is not None)
    assert verdict is None or f"  {verdict}  " in row


def test_of_many_kernels_that_changed_the_first_are_listed_and_with_v_all():
    run = RunResults(results=(CHANGED,))
    shown = render(run, width=100)
    assert [f"op_{i}:" in shown for i in range(9)] == [True] * 4 + [False] * 5
    assert "\n  ... and 5 more changes (-v)\n" in shown
    shown = render(run, width=100, verbosity=1)
    assert all(f"op_{i}:" in shown for i in range(9))
    assert "more change" not in shown


@pytest.mark.parametrize("columns", [48, 60, 80, 120])
@pytest.mark.parametrize("test", ["test_compiled_is_one_kernel_that_carries_both", "test_step[cuda-bf16-4096]"])
def test_a_name_that_is_shortened_keeps_its_file_and_its_end(columns, test):
    name = f"tests/gpu/test_multiply_add.py::{test}"
    run = RunResults(results=(Result(nodeid=name, outcome=Outcome.PASSED, summary=Summary(kernels=3)),))
    row = render(run, width=columns).splitlines()[2]
    file, _, end = row.split()[0].partition("::")
    assert len(row) <= columns
    assert file.startswith("test_multi")
    assert end.endswith(test[-12:])
    assert (file, end) == ("test_multiply_add.py", test) or "..." in row


@pytest.mark.parametrize("columns", [60, 80])
def test_a_label_gives_way_to_the_name_of_its_test(columns):
    name, label = "tests/test_more.py::test_nothing_of_it", "a block that is labelled in a great many words"
    run = RunResults(results=(Result(nodeid=name, label=label, outcome=Outcome.PASSED, summary=Summary(kernels=3)),))
    row = render(run, width=columns).splitlines()[2]
    assert len(row) <= columns
    assert "nothing_of_it (a" in row
    assert columns < 80 or "::test_nothing_of_it (a" in row


NAMES = ("1e5", "True", "test_日本語のモデル[東京]", "test_a")


def test_columns_stand_below_each_other_whatever_names_look_like():
    run = RunResults(
        results=tuple(Result(nodeid=f"t.py::{name}", label=None, outcome=Outcome.PASSED) for name in NAMES)
    )
    titles, _, *rows = render(run, width=100).splitlines()[:6]
    assert [row.split()[0] for row in rows] == [f"t.py::{name}" for name in NAMES]
    assert len({wcswidth(line[: line.rindex("  ")]) for line in (titles, *rows)}) == 1


@pytest.mark.parametrize("columns", [40, 44, 60])
def test_a_name_of_wide_characters_is_shortened_to_the_terminal(columns):
    run = RunResults(results=(Result(nodeid=f"t.py::test_{'日本' * 30}", label=None, outcome=Outcome.PASSED),))
    row = render(run, width=columns).splitlines()[2]
    assert wcswidth(row) <= columns
    assert row.startswith("t::...")
    assert "本  " in row


def test_a_long_name_makes_no_other_row_of_markdown_longer():
    names = ("test_" + 3000 * "a", "test_b|c")
    run = RunResults(results=tuple(Result(nodeid=name, label=None, outcome=Outcome.PASSED) for name in names))
    _, _, titles, rule, *rows = markdown.render(run).splitlines()
    assert len(rows[1]) < 200
    assert "test\\_b\\|c | " in rows[1]
    # Numbers stand to the right.
    assert titles.split("|")[2].strip() == "kernels"
    assert rule.split("|")[2].endswith("-:")
