"""What a run leaves for CI: annotations, a step summary, JUnit properties, exports, recordings; read back as CI does."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import fresh
import pytest
import yaml
from facts import WORSE, came, of_no_use
from job_picture import summary_in_picture
from jsonschema import validate

from pytest_torchprof.limits.seen import MatchesSeen, NumberSeen
from pytest_torchprof.reasons.whole_runs import StepSummaryNotWritten
from pytest_torchprof.report import Disuse
from pytest_torchprof.text.wrapping import WIDTH

pytestmark = pytest.mark.any_torch

WORKFLOWS = sorted((Path(__file__).parents[1] / "examples" / "ci").glob("*.yml"))

MIXED = """
@pytest.mark.torchprof(device="cpu", max_kernels=1)
def test_kept():
    torch.sin(x)

@pytest.mark.torchprof(device="cpu", max_kernels=1)
@pytest.mark.parametrize("n", [pytest.param(2, id="50%,a::b\\x1b[31m")])
def test_missed(n):
    torch.sin(torch.cos(x))

@pytest.mark.torchprof(device="cpu", max_syncs=0)
def test_unmeasured():
    torch.sin(x)
"""
KEPT = MIXED.partition('@pytest.mark.torchprof(device="cpu", max_kernels=1)\n@pytest')[0]
NAMED = ("-c", "user.name=me", "-c", "user.email=me@example.com")

_MAP = {"type": "object", "additionalProperties": {"type": "string"}}


def _tuple(*texts, required=(), **more):
    properties = {**{name: {"type": "string"} for name in texts}, "extra_info": _MAP, **more}
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


# The columns of oss_ci_benchmark_v3 in pytorch/test-infra that a benchmark fills by itself.
PYTORCH = {
    "type": "array",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "required": ["benchmark", "model", "metric"],
        "properties": {
            "benchmark": _tuple("name", "mode", "dtype", required=["name"]),
            "model": _tuple(
                *("name", "type", "backend"),
                required=["name"],
                origins={"type": "array", "items": {"type": "string"}},
            ),
            "inputs": {"type": "object", "additionalProperties": _tuple("dtype")},
            "dependencies": {"type": "object", "additionalProperties": _tuple("repo", "branch", "sha", "version")},
            "metric": _tuple(
                "name",
                required=["name", "benchmark_values"],
                benchmark_values={"type": "array", "items": {"type": "number"}},
                target_value={"type": "number"},
            ),
        },
    },
}
COMMAND = re.compile(r"::(?P<kind>error|warning) (?P<properties>.*?)::(?P<data>.*)")


@pytest.fixture
def on_github(run_tests, pytester, monkeypatch):
    """Run tests as a GitHub Actions job whose checkout is the folder of the tests."""

    def run(source, *args, workspace=pytester.path):
        run_tests(source, "--collect-only")  # writes the files, and takes CI's variables away
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
        monkeypatch.setenv("GITHUB_WORKSPACE", str(workspace))
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "summary.md"))
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *args)

    return run


def commands(result):
    """Return the workflow commands as GitHub's runner reads them: kind, properties, message."""
    found = []
    for line in result.stdout.lines:
        if match := COMMAND.fullmatch(line):
            pairs = [pair.partition("=") for pair in match["properties"].split(",")]
            properties = {name: unescaped(value).replace("%3A", ":").replace("%2C", ",") for name, _, value in pairs}
            found.append((match["kind"], properties, unescaped(match["data"]).replace("%25", "%")))
    return found


def unescaped(text):
    return text.replace("%0A", "\n").replace("%0D", "\r")


def test_each_failed_measurement_is_annotated_in_its_test(on_github, pytester):
    found = commands(on_github(MIXED))
    lines = (pytester.path / "test_it.py").read_text().splitlines()
    assert [kind for kind, _, _ in found] == ["error", "error"]
    # A test begins at its first decorator.
    begins = ["    torch.sin(torch.cos(x))", '@pytest.mark.torchprof(device="cpu", max_syncs=0)']
    for (_, place, _), name, line in zip(found, ["test_missed", "test_unmeasured"], begins, strict=True):
        assert place["file"] == "test_it.py"
        assert lines[int(place["line"]) - 1] == line
        assert name in place["title"]


def test_an_annotation_carries_the_whole_message_and_nothing_a_runner_obeys(on_github):
    (_, place, message), _ = commands(on_github(MIXED))
    assert "max_kernels=1" in message
    assert "\n" in message
    assert str(NumberSeen("kernels", 2)) in message
    assert "50%25,a::b" in place["title"]
    assert "\x1b" not in place["title"] + message


def test_paths_of_annotations_begin_at_the_checkout(on_github, pytester):
    (_, place, _), *_ = commands(on_github(MIXED, workspace=pytester.path.parent))
    assert place["file"] == f"{pytester.path.name}/test_it.py"


def test_elsewhere_nothing_is_annotated(run_tests):
    assert not commands(run_tests(MIXED))


def test_an_expected_failure_is_no_annotation(on_github, pytester):
    result = on_github(
        KEPT.replace("max_kernels=1)", "max_kernels=0)\n@pytest.mark.xfail"), "--torchprof-report=report.json"
    )
    result.assert_outcomes(xfailed=1)
    assert not commands(result)
    assert "####" not in (pytester.path / "summary.md").read_text()
    (entry,) = json.loads((pytester.path / "report.json").read_text())["results"]
    assert entry["outcome"] == "xfailed"


def test_annotations_hold_under_xdist(on_github):
    assert sorted(place["title"] for _, place, _ in commands(on_github(MIXED, "-n", "2")))[1].endswith("unmeasured")


def test_the_step_summary_of_a_green_run_is_one_line(on_github, pytester):
    (pytester.path / "summary.md").write_text("from another step\n")
    on_github(KEPT).assert_outcomes(passed=1)
    lines = [line for line in (pytester.path / "summary.md").read_text().splitlines() if line]
    assert lines[0] == "from another step"
    assert len(lines) == 2
    assert lines[1].startswith("**torchprof**: 1 passed on ")


def test_the_step_summary_says_what_failed_the_kernels_and_how_to_accept(on_github, run_tests, pytester):
    run_tests(KEPT, "--torchprof-baseline=update")
    on_github(KEPT.replace("torch.sin(x)", "torch.sin(torch.cos(x))").replace("1)", "2)"))
    text = (pytester.path / "summary.md").read_text()
    assert "#### test\\_it.py::test\\_kept: failed" in text
    assert came("aten::cos") in text
    assert 'pytest "test_it.py::test_kept" --torchprof-baseline=update' in text
    assert len(text.splitlines()) < 25


def test_the_step_summary_of_many_failures_stays_short(on_github, pytester):
    many = MIXED.partition("@pytest")[0] + KEPT.replace(
        "max_kernels=1)", "max_kernels=0)\n@pytest.mark.parametrize('n', range(22))"
    )
    on_github(many.replace("def test_kept()", "def test_kept(n)"), "--torchprof-steps=1", "--torchprof-warmup=0")
    text = (pytester.path / "summary.md").read_text()
    assert text.count("####") == 20
    assert "and 2 more: see the report" in text


def test_a_step_summary_that_cannot_be_written_is_said(on_github, pytester):
    (pytester.path / "summary.md").mkdir()
    result = on_github(KEPT)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert str(StepSummaryNotWritten(str(pytester.path / "summary.md"), "Is a directory")) in result.stdout.str()


def junit(path):
    return {
        case.get("name").partition("[")[0]: {prop.get("name"): prop.get("value") for prop in case.iter("property")}
        for case in ET.parse(path).getroot().iter("testcase")
    }


def test_junit_has_the_numbers_as_properties(run_tests, pytester):
    labelled = """
@cpu
def test_two(torchprof):
    torchprof(torch.sin, x)
    with torchprof.measure("second") as m:
        for _ in m.steps():
            torch.sin(torch.cos(x))
"""
    run_tests(MIXED + labelled, "--junitxml=junit.xml")
    cases = junit(pytester.path / "junit.xml")
    assert cases["test_kept"]["torchprof.outcome"] == "passed"
    assert cases["test_kept"]["torchprof.kernels"] == "1"
    assert cases["test_kept"]["torchprof.baseline"] == "new"
    assert cases["test_missed"]["torchprof.outcome"] == "failed"
    assert cases["test_missed"]["torchprof.recording"].endswith(".json.gz")
    assert cases["test_two"]["torchprof.kernels"] == "1"
    assert cases["test_two"]["torchprof[second].kernels"] == "2"


def test_in_junit_the_last_rerun_has_the_last_word(run_tests, pytester):
    flaky = """
tries = []
@pytest.mark.flaky(reruns=1)
@pytest.mark.torchprof(device="cpu", max_kernels=1, warmup=0, steps=1)
def test_second_time():
    tries.append(1)
    torch.sin(x)
    if len(tries) == 1:
        torch.sin(x)
"""
    run_tests(flaky, "--junitxml=junit.xml", "-p", "rerunfailures")
    assert junit(pytester.path / "junit.xml")["test_second_time"]["torchprof.outcome"] == "passed"


def test_the_recordings_of_what_failed_lie_next_to_the_report(run_tests, pytester):
    run_tests(MIXED, "--torchprof-report=out/report.json")
    kept = sorted(
        path.name.partition(".json")[0][:16] + path.name[-15:-8] * (".stacks." in path.name)
        for path in (pytester.path / "out/torchprof-recordings").glob("*.gz")
    )
    assert kept == ["test_it.test_mis", "test_it.test_mis.stacks", "test_it.test_unm"]
    run_tests(KEPT, "--torchprof-report=out/report.json")
    assert not list((pytester.path / "out/torchprof-recordings").glob("*.gz"))


def test_what_was_not_measured_three_times_is_in_the_report_too(run_tests, pytester):
    source = """
from torch.profiler import profile
@pytest.mark.torchprof(device="cpu", max_kernels=1)
def test_nested():
    with profile():
        torch.sin(x)
"""
    run_tests(source, "--torchprof-report=report.json").assert_outcomes(failed=1)
    (entry,) = json.loads((pytester.path / "report.json").read_text())["results"]
    assert entry["outcome"] == "not measured"


def test_the_export_for_github_action_benchmark(run_tests, pytester):
    run_tests(MIXED, "--torchprof-report=kernels.benchmark.json", "--torchprof-report=report.json")
    rows = json.loads((pytester.path / "kernels.benchmark.json").read_text())
    values = {row["name"]: row["value"] for row in rows}
    assert all(set(row) <= {"name", "unit", "value", "range"} and isinstance(row["value"], int | float) for row in rows)
    assert len(values) == len(rows)
    assert values["test_it.py::test_kept: kernels"] == 1
    assert any(name.startswith("test_it.py::test_missed") and value == 2 for name, value in values.items())
    assert not any("test_unmeasured" in name for name in values)
    assert "results" in json.loads((pytester.path / "report.json").read_text())


def test_the_export_for_bencher(run_tests, pytester):
    timed = KEPT.replace("max_kernels=1", 'tolerance={"time": 0.1}') + KEPT.replace("test_kept", "test_" + "l" * 1100)
    run_tests(timed, "--torchprof-report=kernels.bmf.json").assert_outcomes(passed=2)
    found = json.loads((pytester.path / "kernels.bmf.json").read_text())
    assert len(found) == 2
    assert all(len(name) <= 1024 for name in found)
    measures = found["test_it.py::test_kept"]
    assert measures["kernels"] == {"value": 1}
    assert measures["latency"]["lower_value"] <= measures["latency"]["value"] <= measures["latency"]["upper_value"]


def test_what_stood_in_for_a_gpu_is_not_exported(run_tests, pytester):
    if __import__("torch").cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    run_tests(KEPT.replace('device="cpu", ', ""), "--torchprof-report=kernels.benchmark.json").assert_outcomes(
        skipped=1
    )
    assert json.loads((pytester.path / "kernels.benchmark.json").read_text()) == []


def test_workflows_with_and_without_a_gpu_of_the_split_and_without_baselines_are_there():
    assert [path.name for path in WORKFLOWS] == [
        "against-base.yml",
        "cpu-runner.yml",
        "gpu-runner.yml",
        "record-then-judge.yml",
    ]


def without_times(summary):
    """Return the lines of a summary in any order, since kernels come by their time, and without what differs by machine."""
    lines = re.sub(
        r"failed on .*|for information, not gated: .*|[\d.]+ [mun]?s\b|(?<=stays_fused\.)\w+|(?<=cpu-)\w+", "", summary
    )
    return sorted(" ".join(line.split()) for line in lines.splitlines())


@pytest.mark.skipif(shutil.which("g++") is None, reason="compiled code on the CPU needs a C++ compiler")
def test_the_workflow_without_a_gpu_gates_the_test_on_its_page_which_shows_what_it_leaves(pytester, monkeypatch):
    page = (Path(__file__).parents[1] / "docs" / "ci.md").read_text(encoding="utf-8")
    source = re.search(r"<!-- example: cpu -->\n```python\n(.*?)```", page, re.DOTALL)[1]
    workflow = yaml.safe_load(next(path for path in WORKFLOWS if path.name == "cpu-runner.yml").read_text())
    command = next(
        step["run"] for step in workflow["jobs"]["kernels"]["steps"] if "pytest tests" in step.get("run", "")
    )
    folder = pytester.mkdir("tests") / "cpu"
    folder.mkdir()
    (folder / "test_block.py").write_text(source)
    pytester.runpytest("tests/cpu", "--torchprof-baseline=update").assert_outcomes(passed=1)
    pytester.runpytest(*command.split()[1:]).assert_outcomes(passed=1)
    (folder / "test_block.py").write_text(source.replace("@torch.compile\n", ""))
    summary = pytester.path / "summary.md"
    for name, value in {"GITHUB_ACTIONS": "true", "CI": "true", "GITHUB_STEP_SUMMARY": str(summary)}.items():
        monkeypatch.setenv(name, value)
    result = pytester.runpytest(*command.split()[1:])
    result.assert_outcomes(failed=1)
    assert (pytester.path / "torchprof" / "report.html").is_file()
    (annotation,) = (line for line in result.outlines if line.startswith("::error"))
    assert annotation.partition("%0A")[0] == re.search(r"<!-- annotation -->\n```text\n(.*)\n```", page)[1]
    assert without_times(summary.read_text()) == without_times(summary_in_picture())
    assert max(map(len, summary.read_text().splitlines())) <= WIDTH


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_the_options_in_the_workflows_exist(path, pytestconfig):
    options = set(re.findall(r"--torchprof-[a-z-]+", path.read_text()))
    assert options
    for option in options:
        assert pytestconfig._parser.parse_known_args([option, "x"]), option
        assert option in {
            name for group in pytestconfig._parser._groups for one in group.options for name in one.names()
        }


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_the_workflows_are_yaml(path):
    jobs = yaml.safe_load(path.read_text())["jobs"]
    assert all(job["steps"] and job["runs-on"] for job in jobs.values())


# Tests that are gone

BOTH = KEPT + KEPT.replace("test_kept", "test_gone")


def test_an_entry_whose_test_is_gone_is_shown_and_kept(run_tests, pytester):
    run_tests(BOTH, "--torchprof-baseline=update")
    (path,) = pytester.path.rglob("__torchprof__/*.json")
    for mode in ("compare", "update"):
        result = run_tests(KEPT, f"--torchprof-baseline={mode}", "--torchprof-report=report.json")
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines([f"__torchprof__/*.json: {of_no_use(Disuse.GONE, 'test_gone')}", "*baseline prune"])
        assert sorted(json.loads(path.read_text())["entries"]) == ["test_gone", "test_kept"]
        assert list(json.loads((pytester.path / "report.json").read_text())["gone"].values()) == [["test_gone"]]


def test_of_many_entries_whose_tests_are_gone_the_first_are_named(run_tests):
    """A test file that was renamed leaves all of its entries."""
    many = KEPT + "".join(KEPT.replace("test_kept", f"test_gone{number}") for number in range(9))
    run_tests(many, "--torchprof-baseline=update")
    names = ", ".join(f"test_gone{number}" for number in range(5))
    run_tests(KEPT).stdout.fnmatch_lines([f"*: {of_no_use(Disuse.GONE, names)} and 4 more"])


def test_in_ci_an_entry_whose_test_is_gone_is_announced(on_github, run_tests, pytester):
    run_tests(BOTH, "--torchprof-baseline=update")
    ((kind, place, message),) = commands(on_github(KEPT))
    assert kind == "warning"
    assert place["file"].startswith("__torchprof__/test_it.cpu-")
    assert "test_gone" in message
    gone = of_no_use(Disuse.GONE, "test\\_gone")
    assert f"{gone} (`torchprof baseline prune`)" in (pytester.path / "summary.md").read_text()


def test_what_was_only_not_selected_is_not_gone(run_tests):
    run_tests(BOTH, "--torchprof-baseline=update")
    for args in (
        ["-k", "kept"],
        ["--deselect", "test_it.py::test_gone"],
        ["test_it.py::test_kept"],
        ["-m", "torchprof"],
    ):
        run_tests(BOTH, *args).stdout.no_fnmatch_line(f"*{of_no_use(Disuse.GONE)}*")


def test_a_file_of_which_only_a_part_was_asked_for_tells_nothing(run_tests):
    run_tests(BOTH, "--torchprof-baseline=update")
    run_tests(KEPT, "test_it.py::test_kept").stdout.no_fnmatch_line(f"*{of_no_use(Disuse.GONE)}*")


def test_what_last_failed_left_out_is_not_gone(run_tests, pytester):
    run_tests(BOTH, "--torchprof-baseline=update")
    pytester.makepyfile(test_it=(pytester.path / "test_it.py").read_text().replace("max_kernels=1", "max_kernels=0", 1))
    pytester.runpytest_inprocess().assert_outcomes(passed=1, failed=1)
    again = pytester.runpytest_inprocess("--last-failed")
    again.assert_outcomes(failed=1)
    again.stdout.no_fnmatch_line(f"*{of_no_use(Disuse.GONE)}*")


def test_with_workers_gone_is_seen_and_junit_has_the_properties_too(run_tests, pytester):
    run_tests(BOTH, "--torchprof-baseline=update")
    result = run_tests(KEPT, "-n", "2", "--junitxml=junit.xml")
    result.stdout.fnmatch_lines([f"*{of_no_use(Disuse.GONE, 'test_gone')}"])
    assert junit(pytester.path / "junit.xml")["test_kept"]["torchprof.kernels"] == "1"


LABELS = """
@cpu
def test_labels(torchprof):
    for label in LABELS:
        with torchprof.measure(label) as m:
            for _ in m.steps():
                torch.add(x, x)
    assert not FAILS
"""


def labels(*names, fails=False):
    return f"LABELS, FAILS = {names!r}, {fails}" + LABELS


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_an_entry_that_its_test_measures_no_more_is_shown_and_an_update_removes_it(run_tests, pytester, workers):
    run_tests(labels("a", "b"), "--torchprof-baseline=update")
    (path,) = pytester.path.rglob("__torchprof__/*.json")
    result = run_tests(labels("b"), "--torchprof-report=report.json", "--torchprof-report=report.md", *workers)
    result.stdout.fnmatch_lines(
        [f"__torchprof__/*.json: {of_no_use(Disuse.UNMEASURED, 'test_labels (a)')}", "*-baseline=update"]
    )
    report = json.loads((pytester.path / "report.json").read_text())
    assert (list(report["unmeasured"].values()), report["gone"]) == ([["test_labels (a)"]], {})
    assert of_no_use(Disuse.UNMEASURED, "test\\_labels \\(a\\)") in (pytester.path / "report.md").read_text()
    assert set(json.loads(path.read_text())["entries"]) == {"test_labels (a)", "test_labels (b)"}
    result = run_tests(labels("b"), "--torchprof-baseline=update", *workers)
    result.stdout.fnmatch_lines([f"*{of_no_use(Disuse.REMOVED, 'test_labels (a)')}"])
    assert set(json.loads(path.read_text())["entries"]) == {"test_labels (b)"}
    run_tests(labels("b")).stdout.no_fnmatch_line(f"*{of_no_use(Disuse.UNMEASURED)}*")


def test_what_a_test_that_failed_did_not_measure_stays(run_tests, pytester):
    run_tests(labels("a", "b"), "--torchprof-baseline=update")
    result = run_tests(labels("b", fails=True), "--torchprof-baseline=update")
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line(f"*{of_no_use(Disuse.UNMEASURED)}*")
    (path,) = pytester.path.rglob("__torchprof__/*.json")
    assert set(json.loads(path.read_text())["entries"]) == {"test_labels (a)", "test_labels (b)"}


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_test_that_lost_its_marker_is_told_though_nothing_else_of_its_file_is_measured(run_tests, pytester, workers):
    run_tests(KEPT, "--torchprof-baseline=update")
    (path,) = pytester.path.rglob("__torchprof__/*.json")
    pytester.makepyfile(test_other=(pytester.path / "test_it.py").read_text())
    plain = "def test_kept(): pass\n"
    run_tests(plain, *workers).stdout.fnmatch_lines([f"*test_it.*: {of_no_use(Disuse.UNMEASURED, 'test_kept')}"])
    run_tests(plain, "--torchprof-baseline=update", *workers)
    assert not path.exists()


CULPRITS = """
from outside_model import deep

@torch.compile(backend="eager")
def broken(x):
    torch._dynamo.graph_break()  # break
    return torch.sin(x)

@pytest.mark.torchprof(device="cpu", max_graph_breaks=0)
def test_break(torchprof):
    torchprof(broken, x)

@pytest.mark.torchprof(device="cpu", forbid_kernels="cos")
def test_model(torchprof):
    torchprof(deep, x)

@pytest.mark.torchprof(device="cpu", kernels={"cos": 2})
def test_count(torchprof):
    torchprof(lambda: [deep(x), *map(torch.sin, [x] * 9)])

@pytest.mark.torchprof(device="cpu", max_syncs=0)
def test_unmeasured():
    torch.sin(x)
"""
MODEL = "import torch\ndef deep(x):\n    y = torch.sin(x)\n    return torch.cos(y)  # culprit\n"


@pytest.mark.parametrize("args", [(), ("-q",), ("-qq",)])
def test_an_annotation_stands_on_the_line_that_failed_or_on_the_test(on_github, pytester, args):
    pytester.makepyfile(outside_model=MODEL)
    pytester.syspathinsert()
    found = commands(on_github(CULPRITS, *args))
    lines = [
        f"{place['file']}: {(pytester.path / place['file']).read_text().splitlines()[int(place['line']) - 1].strip()}"
        for _, place, _ in found
    ]
    assert lines == [
        "test_it.py: torch._dynamo.graph_break()  # break",
        "outside_model.py: return torch.cos(y)  # culprit",
        "outside_model.py: return torch.cos(y)  # culprit",
        'test_it.py: @pytest.mark.torchprof(device="cpu", max_syncs=0)',
    ]
    assert "\n" in found[0][2]


@pytest.mark.parametrize("args", [(), ("-q",), ("-n", "1")])
def test_the_annotation_of_a_baseline_stands_on_the_line_that_launched_what_it_lacks(
    on_github, run_tests, pytester, args
):
    pytester.makepyfile(outside_model=MODEL.replace("    return torch.cos(y)  # culprit", "    return y"))
    pytester.syspathinsert()
    test = "from outside_model import deep\n@cpu\ndef test_model(torchprof):\n    torchprof(deep, x)\n"
    run_tests(test, "--torchprof-baseline=update", in_process=False).assert_outcomes(passed=1)
    pytester.makepyfile(outside_model=MODEL)
    result = on_github(test, *args, "-p", "no:cacheprovider")
    ((kind, place, message),) = commands(result)
    assert (kind, place["file"], place["line"]) == ("error", "outside_model.py", "4")
    first, _, _, second, *_ = message.splitlines()
    assert first == f"{WORSE}: new: pointwise cos, outside_model.py:4"
    assert second.strip().startswith("+ pointwise cos")


def test_the_annotation_of_a_graph_break_that_came_stands_on_it(on_github, run_tests, pytester):
    source = """
@torch.compile(backend="eager")
def code(x):
    BREAK
    return torch.sin(x)

@cpu
def test_code(torchprof):
    torchprof(code, x)
"""
    run_tests(source.replace("BREAK", "x = x + 1"), "--torchprof-baseline=update").assert_outcomes(passed=1)
    ((_, place, message),) = commands(on_github(source.replace("BREAK", "x = x + 1; torch._dynamo.graph_break()")))
    line = (pytester.path / "test_it.py").read_text().splitlines()[int(place["line"]) - 1]
    assert "graph_break()" in line
    told = [one.strip() for one in message.splitlines()]
    at = next(number for number, one in enumerate(told) if one.startswith("graph break at: "))
    assert told[at].startswith(f"graph break at: test_it.py:{place['line']} in code")
    assert told[at + 1] == "graph_breaks 0 -> 1"


def junit_failures(path):
    return {
        case.get("name"): failure.text
        for case in ET.parse(path).getroot().iter("testcase")
        for failure in case.iter("failure")
    }


def test_junit_holds_the_whole_text_also_when_the_terminal_is_quiet(run_tests, pytester):
    source = MIXED + "\n@cpu\ndef test_expects(torchprof):\n    torchprof(torch.sin, x).expect(max_kernels=0)\n"
    quiet = run_tests(source, "-q", "--junitxml=quiet.xml")
    run_tests(source, "--junitxml=loud.xml")
    told, whole = junit_failures(pytester.path / "quiet.xml"), junit_failures(pytester.path / "loud.xml")
    assert len(told) == len(whole) == 3
    # A time and the room that a longer one would have taken; shares of times; addresses.
    without_times = re.compile(r" *[\d.]+ (?:[um]?s|%) *|0x\w+")

    def lines(texts):
        """Which of two kernels takes longer, and so comes first, differs from run to run."""
        return {name: sorted(without_times.sub("T", text).split("\n")) for name, text in texts.items()}

    assert lines(told) == lines(whole)
    assert "1 limit missed: max_kernels" not in quiet.stdout.str()
    quiet.stdout.fnmatch_lines(["FAILED *test_expects - max_kernels=0: 1 kernel; pointwise sin, test_it.py:21"])
    quiet.stdout.fnmatch_lines(
        ["max_kernels=1: 2 kernels; earliest: *", "E  *max_kernels=0: 1 kernel; pointwise sin, *"]
    )


NARROW = """
@pytest.mark.torchprof(device="cpu", max_kernels=0)
def test_marker(torchprof):
    torchprof(torch.nn.functional.layer_norm, torch.ones(8, 8), (8,))

@cpu
def test_body(torchprof):
    torchprof(torch.nn.functional.layer_norm, torch.ones(8, 8), (8,)).expect(max_kernels=0)

@pytest.mark.xfail(reason="known")
@pytest.mark.torchprof(device="cpu", max_kernels=0, max_syncs=0)
def test_expected(torchprof):
    torchprof(torch.sin, x)

def test_own():
    assert False
"""


@pytest.mark.parametrize("words", [(), ("-q",), ("-n1",)], ids=["plain", "quiet", "xdist"])
def test_however_narrow_the_terminal_junit_holds_the_text_as_a_wide_one_shows_it(
    run_tests, pytester, monkeypatch, words
):
    if "-n1" in words:
        pytest.importorskip("xdist")
    told = {}
    for columns in (40, 1000):
        monkeypatch.setenv("COLUMNS", str(columns))
        result = run_tests(NARROW, f"--junitxml={columns}.xml", "-p", "no:cacheprovider", *words, in_process=False)
        told[columns] = junit_failures(pytester.path / f"{columns}.xml")
        rows = [line for line in result.outlines if "1 x normalization" in line]
        assert all(len(line) <= columns for line in rows), "the terminal has what it has room for"
    narrow, wide = (
        {name: re.sub(r" *[\d.]+ (?:[um]?s|%) *|0x\w+", "T", text) for name, text in told[columns].items()}
        for columns in (40, 1000)
    )
    assert narrow.keys() == wide.keys() == {"test_marker", "test_body", "test_expected", "test_own"}
    assert {name: narrow[name] for name in ("test_marker", "test_body")} == {
        name: wide[name] for name in ("test_marker", "test_body")
    }
    assert "aten::native_layer_norm" in narrow["test_marker"]


def test_quietly_the_line_of_a_graph_break_and_the_kernels_that_are_too_many_are_named(run_tests, pytester):
    pytester.makepyfile(outside_model=MODEL)
    pytester.syspathinsert()
    result = run_tests(CULPRITS, "-q")
    result.stdout.fnmatch_lines(
        [
            "max_graph_breaks=0: 1 graph break; *test_it.py:10 in broken: *",
            f"kernels={{'cos': 2}}: {MatchesSeen(1, 'kernel', 'cos', 2, 2)}*; pointwise cos, outside_model.py:4",
        ]
    )


def test_a_line_per_measurement_with_its_commit_for_whoever_keeps_them(run_tests, pytester):
    run_tests(MIXED, "--collect-only")
    for words in (["init", "-q", "-b", "trunk"], ["add", "."], [*NAMED, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], cwd=pytester.path, check=True)
    said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=pytester.path, check=True, capture_output=True, text=True)
    lines = history(run_tests, pytester, MIXED)
    assert [line["verdict"] for line in lines] == ["passed", "failed", "not measured"]
    assert {(line["commit"], line["branch"]) for line in lines} == {(said.stdout.strip(), "trunk")}
    assert {line["dirty"] for line in lines} == {False}
    kept, missed, unmeasured = lines
    assert (kept["test"], kept["numbers"]["kernels"], missed["numbers"]["kernels"]) == ("test_it.py::test_kept", 1, 2)
    assert kept["structure"] != missed["structure"]
    assert unmeasured["structure"] == kept["structure"]  # its limit could not be judged, its kernels are known
    with (pytester.path / "r.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["test"], row["kernels"], row["commit"]) for row in rows] == [
        (line["test"], str(line["numbers"].get("kernels", "")), line["commit"]) for line in lines
    ]


def test_the_hash_of_the_kernels_changes_with_them_and_with_nothing_else(run_tests, pytester):
    def hashes(body):
        lines = history(run_tests, pytester, KEPT.replace("torch.sin(x)", body))
        return {line["structure"] for line in lines}

    sine = hashes("torch.sin(x)")
    assert len(sine) == 1
    assert hashes("torch.sin(input=x.clone() if False else x)") == sine
    assert not hashes("torch.cos(x)") & sine
    assert not hashes("torch.sin(x.double())") & sine


def test_outside_a_repository_there_is_no_commit(run_tests, pytester):
    (line,) = history(run_tests, pytester, KEPT)
    assert (line["commit"], line["branch"], line["dirty"]) == (None, None, None)


def test_a_label_that_a_spreadsheet_would_compute_stays_text(run_tests, pytester):
    source = """
def test_labelled(torchprof):
    with torchprof.measure("=1+1", device="cpu"):
        torch.sin(x)
"""
    history(run_tests, pytester, source)
    with (pytester.path / "r.csv").open(newline="") as file:
        assert [row["label"] for row in csv.DictReader(file)] == ["'=1+1"]


def test_pytorchs_benchmark_format(run_tests, pytester):
    timed = KEPT.replace("max_kernels=1", 'tolerance={"time": 0.1}')
    run_tests(timed, "--torchprof-report=r.pytorch.json")
    records = json.loads((pytester.path / "r.pytorch.json").read_text())
    validate(records, PYTORCH)
    values = {(one["model"]["name"], one["metric"]["name"]): one["metric"]["benchmark_values"] for one in records}
    assert values["test_it.py::test_kept", "kernels"] == [1.0]
    assert values["test_it.py::test_kept", "time_us"][0] > 0
    assert len(values) == len(records)


def history(run_tests, pytester, source):
    """Run tests and return the lines that they leave."""
    run_tests(source, "--torchprof-report=r.jsonl", "--torchprof-report=r.csv")
    return [json.loads(line) for line in (pytester.path / "r.jsonl").read_text().splitlines()]


REQUIRED = re.search(
    r"<!-- example: required -->\n```ini\n(.*?)```",
    (Path(__file__).parents[1] / "docs" / "ci.md").read_text(),
    re.DOTALL,
)[1]
MARKED = "import pytest\n\n@pytest.mark.torchprof(max_kernels=0)\ndef test_it(): pass\n"
WITHOUT = {
    "switched off": (["-p", "no:torchprof"], {}),
    "not loaded": ([], {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}),
}


@pytest.mark.parametrize("how", WITHOUT)
def test_a_run_without_the_plugin_ends_where_the_plugin_is_required(pytester, monkeypatch, how):
    words, variables = WITHOUT[how]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    pytester.makepyfile(test_it=MARKED)
    fresh.run_pytest(*words).assert_outcomes(passed=1)
    pytester.makefile(".ini", pytest=REQUIRED)
    ended = fresh.run_pytest(*words)
    assert ended.ret == 4
    ended.stderr.fnmatch_lines(["*Missing required plugins: pytest-torchprof*"])


def test_the_first_baseline_says_how_to_require_the_plugin(run_tests, pytester):
    source = "@cpu\ndef test_it():\n    x.sin()\n"
    told = "  required_plugins = pytest-torchprof"
    result = run_tests(source, "--torchprof-baseline=update")
    result.stdout.fnmatch_lines(
        ["torchprof: where the plugin is missing or switched off, marked tests pass unmeasured*", told]
    )
    assert told not in run_tests(source, "--torchprof-baseline=update").outlines
    assert told not in run_tests(source).outlines
    for file in pytester.path.glob("__torchprof__/*.json"):
        file.unlink()
    assert told in run_tests(source, "--torchprof-baseline=add", "-q").outlines
    for file in pytester.path.glob("__torchprof__/*.json"):
        file.unlink()
    pytester.makefile(".ini", pytest=REQUIRED)
    assert told not in run_tests(source, "--torchprof-baseline=update").outlines
