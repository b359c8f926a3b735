"""The report as one HTML file: what it holds, what it refuses to load, how large it gets. No browser is needed."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import unicodedata
from pathlib import Path

import pytest
from builder import TraceBuilder
from facts import came
from msgspec import to_builtins
from pages import HOSTILE, Page, launching, result, write

from pytest_torchprof import load
from pytest_torchprof.baseline import entry_of
from pytest_torchprof.cli import main
from pytest_torchprof.cli.report_file import read_report
from pytest_torchprof.compare import compare
from pytest_torchprof.compare.notes import EditedTest
from pytest_torchprof.report import Reference, RunResults, html_report, json_report
from pytest_torchprof.report.page import document
from pytest_torchprof.report.page.measured import MOST_DRAWN
from pytest_torchprof.report.result import BaselineState, Outcome

pytestmark = pytest.mark.any_torch

RUN = """
@pytest.mark.torchprof(device="cpu", max_kernels=1)
def test_kept():
    torch.sin(x)

@pytest.mark.torchprof(device="cpu", max_kernels=1)
def test_missed():
    torch.sin(torch.cos(x))
"""


def first_row(table):
    return dict(zip((column["key"] for column in table["columns"]), table["rows"][0], strict=True))


def small(path: Path, *, kernels: int = 3, slow: float = 1) -> Path:
    builder = TraceBuilder()
    for number in range(kernels):
        builder.launched(f"void add_{number}(float*)", 100.0 * number, dur=10 * slow)
    builder.step(0, 0, 100 * kernels)
    return builder.write(path)


@pytest.fixture
def report(capsys):
    """Run the command; return its exit status, the page, and what it said on stderr."""

    def run(*words: object, output: Path) -> tuple[int, Page | None, str]:
        status = main(["report", *map(str, words), "-o", str(output)])
        page = Page(output.read_text(encoding="utf-8")) if output.is_file() else None
        return status, page, capsys.readouterr().err

    return run


def test_a_run_leaves_a_page_with_the_verdicts_and_the_recordings_of_what_failed(run_tests, pytester):
    run_tests(RUN, "--torchprof-report=out/run.html").assert_outcomes(passed=1, failed=1)
    page = Page((pytester.path / "out" / "run.html").read_text())
    assert "1 passed, 1 failed" in page.words
    # What failed stands first, for a reader without scripts too.
    assert page.words.index("test_missed") < page.words.index("test_kept")
    kept, missed = page.details
    assert (kept["outcome"], missed["outcome"]) == ("passed", "failed")
    assert "max_kernels=1" in missed["message"]
    assert missed["limits"][0]["status"] == "missed"
    assert missed["drawn"] == ["recording-1"]
    assert page.unpacked("recording-1")
    assert missed["tables"]["kernel"]["rows"]
    assert "--torchprof-save" in kept["missing"]
    # No GPU is busy where the CPU is the device, with the recording and without.
    for told in (kept, missed):
        assert {"busy", "span"} <= {number[0] for number in told["numbers"]}
    # What a run knows of a measurement without its recording: the kernels of a step.
    assert kept["tables"]["kernel"]["of_step"]


@pytest.mark.any_torch
def test_the_page_allows_its_own_script_and_style_and_nothing_else(tmp_path):
    page = Page(write(tmp_path / "run.html", result()).read_text())
    policy = page.policy
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["img-src"] == "data:"
    for directive, content in (("script-src", page.scripts[None]), ("style-src", page.style)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert policy[directive] == f"'sha256-{digest}'"
    assert page.elements[3][1].get("http-equiv") == "Content-Security-Policy", "before anything that it is about"
    for tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
        for name in ("src", "href"):
            assert str(attributes.get(name, "#")).startswith(("#", "data:,")), (tag, attributes)
    assert not re.search(r"https?://|innerHTML|\beval\(|document\.write|fetch\(", page.scripts[None] + page.style)


@pytest.mark.any_torch
@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_names_are_text_wherever_they_stand(tmp_path, hostile):
    calm = Page(write(tmp_path / "calm.html", result(name="calm")).read_text())
    strange = result(
        name=hostile, label=hostile, outcome=Outcome.FAILED, message=hostile,
        baseline_state=BaselineState.CHANGED, comparison=launching(hostile), recording=hostile, environment={"gpu": hostile},
        findings=[{"finding": "other", "code": hostile, "title": hostile, "message": hostile, "facts": {"kernels": [hostile]}}],
    )  # fmt: skip
    text = write(tmp_path / "hostile.html", strange).read_text(encoding="utf-8")
    page = Page(text)
    assert page.tags == calm.tags
    assert page.scripts[None] == calm.scripts[None]
    assert page.policy == calm.policy
    visible = {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert visible == {"\n"}
    assert len(page.words) < 5000, "long names are cut"
    (told,) = page.details
    assert told["message"] == hostile


@pytest.mark.any_torch
def test_what_is_no_number_is_unknown(tmp_path):
    summary = {"kernels": math.nan, "gpu_busy_us": math.inf, "launches": 1e300, "worst": {"kernels": math.nan}}
    page = Page(write(tmp_path / "run.html", result(summary=summary)).read_text())
    (told,) = page.details
    known = [(title, median) for title, _, _, median, *_ in told["numbers"] if median is not None]
    assert known == [("launches", 1e300)]
    assert "nan" not in page.words.lower()


@pytest.mark.any_torch
@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_report_with_what_is_no_number_is_refused(tmp_path, report, number):
    run = RunResults(results=(result(1, time_share=0.125),))
    (tmp_path / "run.json").write_text(json_report.render(run).replace("0.125", number))
    status, _, said = report(tmp_path / "run.json", output=tmp_path / "out.html")
    assert status == 2
    assert "[recording-damaged]" in said


@pytest.mark.any_torch
def test_two_thousand_tests_fit_into_ten_megabytes(tmp_path):
    recording = small(tmp_path / "a.json.gz")
    results = [
        result(i, recording=recording.name, outcome=Outcome.FAILED if i > 1900 else Outcome.PASSED) for i in range(2000)
    ]
    path = write(tmp_path / "run.html", *results, rootdir=tmp_path)
    assert path.stat().st_size < 10_000_000
    details = Page(path.read_text()).details
    assert len(details) == 2000
    drawn = [number for number, told in enumerate(details) if "drawn" in told]
    assert drawn == list(range(1901, 1901 + MOST_DRAWN)), "failures come first"
    assert f"the first {MOST_DRAWN} recordings" in details[0]["missing"]


@pytest.mark.any_torch
def test_a_recording_that_cannot_be_read_leaves_the_rest_of_the_page(tmp_path):
    (tmp_path / "cut.json").write_text('{"traceEvents": [')
    one = result(1, outcome=Outcome.FAILED, message="missed", recording="cut.json")
    (told,) = Page(write(tmp_path / "run.html", one, rootdir=tmp_path).read_text()).details
    assert told["message"] == "missed"
    assert "recording-cut-off" in told["missing"]


@pytest.mark.any_torch
def test_the_page_is_written_the_same_twice(tmp_path, report):
    recording = small(tmp_path / "a.json")
    report(recording, output=tmp_path / "1.html")
    report(recording, output=tmp_path / "2.html")
    assert (tmp_path / "1.html").read_bytes() == (tmp_path / "2.html").read_bytes()


@pytest.mark.any_torch
def test_a_single_recording_has_no_verdict(tmp_path, report):
    status, page, _ = report(small(tmp_path / "a.json"), output=tmp_path / "deep" / "out.html")
    assert status == 0
    assert "Verdicts" not in page.words
    (told,) = page.details
    assert told["outcome"] == "recorded"
    assert told["drawn"] == ["recording-0"]
    names = first_row(told["tables"]["kernel"])
    assert names["count"] > 0
    assert names["time_us"] > 0
    assert sum(told["time"]["parts"].values()) == pytest.approx(told["time"]["total_us"])


@pytest.mark.any_torch
def test_of_a_recording_without_the_gpus_side_the_cpus_numbers_are_there_and_none_of_a_gpu(tmp_path, report):
    (tmp_path / "both").mkdir()
    for name in ("a", "b"):
        builder = TraceBuilder()
        for number in range(3):
            builder.step(number, 1000 * number, 900)
            builder.op("aten::mm", 1000 * number + 10, 500)
        builder.write(tmp_path / "both" / f"{name}.json")
    _, page, _ = report(tmp_path / "both", output=tmp_path / "out.html")
    for told in page.details:
        known = {title: median for title, _, _, median, *_ in told["numbers"] if median is not None}
        assert set(known) & {"CPU time", "kernels", "launches", "GPU busy"} == {"CPU time"}
    rows = re.findall(r'<tr id="row-.*?</tr>', page.text)
    assert len(rows) == 2
    assert [row for row in rows if re.search(r'data-v="[^"]', row)] == []


@pytest.mark.any_torch
def test_findings_have_their_events_in_the_recording(tmp_path, report):
    builder = TraceBuilder()
    for step in range(2):
        for number in range(40):
            builder.launched("ampere_sgemm_128x64_tn", 1000.0 * step + 20 * number, op="aten::mm", dur=15)
        builder.step(step, 1000.0 * step, 1000)
    _, page, _ = report(builder.write(tmp_path / "a.json"), output=tmp_path / "out.html")
    (told,) = page.details
    size = 4 + int.from_bytes((packed := page.unpacked("recording-0"))[:4], "little")
    marks = json.loads(packed[4:size])["marks"]
    of = {finding["code"]: marks[finding["mark"]] for finding in told["findings"] if "mark" in finding}
    assert (of["fp32-gemm"]["slices"], of["fp32-gemm"]["gaps"]) == (80, 0)
    # Within a step each kernel is launched before the one before has ended; the first one of each has none before it.
    assert (of["launch-gaps"]["slices"], of["launch-gaps"]["gaps"]) == (0, 2)
    assert (marks[told["headline"]["mark"]]["slices"], marks[told["headline"]["mark"]]["gaps"]) == (0, 1)
    assert not any("evidence" in finding for finding in told["findings"])


@pytest.mark.any_torch
def test_two_recordings_are_told_by_what_costs(tmp_path, report):
    before, after = small(tmp_path / "before.json"), small(tmp_path / "after.json", slow=5)
    status, page, _ = report(after, "--against", before, output=tmp_path / "out.html")
    assert status == 0
    (told,) = page.details
    number, *_ = told["compared"]["numbers"]
    assert (number["words"], number["ratio"]) == ("GPU time 30.0 us -> 150 us", "5.0x")
    (why,) = told["compared"]["why"]
    assert why.startswith("of the 120 us more, ")
    assert told["compared"]["time_us"] == [30, 150]
    assert sum(row["time_us"] - row["before_us"] for row in told["compared"]["kernels"]) == 120
    assert told["drawn"] == ["recording-0", "recording-0-before"]
    row = first_row(told["tables"]["kernel"])
    assert (row["before_time_us"], row["time_us"]) == (10, 50)
    assert json.loads(page.unpacked("index"))["sides"] == ["before.json", "after.json"]


@pytest.mark.any_torch
@pytest.mark.parametrize("sampled", [False, True])
def test_what_is_said_of_one_side_of_two_calls_it_by_its_name(tmp_path, report, sampled):
    """On a page that is called "after against before", nobody knows which one is the first."""
    for name in ("before", "after"):
        builder = TraceBuilder()
        builder.launched("void add(float*)", 100.0)
        builder.metadata["deviceProperties"][0]["name"] = f"the GPU of {name}"
        if sampled and name == "before":
            counted = {"ph": "C", "name": "SM Active (%)", "pid": "GPU 0 Counters", "ts": 1_000_100, "args": {"": 9}}
            builder.events.append(counted)
        builder.write(tmp_path / f"{name}.json")
    _, page, _ = report(tmp_path / "after.json", "--against", tmp_path / "before.json", output=tmp_path / "out.html")
    (told,) = page.details
    devices, *clocks = told["compared"]["notes"]
    assert devices.index("before.json") < devices.index("the GPU of before")
    assert devices.index("the GPU of before") < devices.index("after.json") < devices.index("the GPU of after")
    assert ["before.json" in note for note in clocks] == [True] * sampled


@pytest.mark.any_torch
@pytest.mark.parametrize(("slow", "most"), [((1, 1), None), ((1, 3), "b/t.json"), ((4, 1), "a/t.json")])
def test_several_pairs_begin_with_the_one_that_changed_most(tmp_path, report, slow, most):
    for side in ("before", "after"):
        for name, factor in zip("ab", slow, strict=True):
            (tmp_path / side / name).mkdir(parents=True)
            small(tmp_path / side / name / "t.json", slow=factor if side == "after" else 1)
    _, page, _ = report(tmp_path / "after", "--against", tmp_path / "before", output=tmp_path / "out.html")
    lead = page.words.partition("Recordings")[0].rpartition("2 recording")[2]
    assert ("changed most" in lead, "as much GPU time as before" in lead) == (most is not None, most is None)
    if most is not None:
        changed = next(one for one in page.details if one["name"] == most)
        assert f"{most} changed most: {changed['compared']['headline']}." in lead


FEWER = {
    "verdict": "better",
    "changes": [{"kind": "number", "what": "kernels", "old": 3, "new": 2, "direction": "better", "gated": True}],
}


@pytest.mark.any_torch
def test_a_run_against_a_commit_lists_how_each_test_compares(tmp_path):
    file = write(
        tmp_path / "run.html",
        result(baseline_state=BaselineState.BETTER, comparison=FEWER),
        against=Reference(ref="main", sha="abc1234", dirty=False),
    )
    page = Page(file.read_text())
    assert "against main" in page.words
    assert "better (-1 kernel)" in page.words


@pytest.mark.any_torch
def test_what_a_baseline_says_has_the_form_of_two_recordings(tmp_path, report):
    """In the page of a run, and in the one that is made later of its JSON report."""
    before, after = load(small(tmp_path / "before.json")), load(small(tmp_path / "after.json", kernels=4, slow=4))
    found = compare(entry_of(before, source_hash="a"), entry_of(after, source_hash="b"))
    told = {"baseline_state": found.verdict, "comparison": to_builtins(found)}
    run = RunResults(results=(result(**told), result(1, baseline_state=BaselineState.NEW)))
    (tmp_path / "report.json").write_text(json_report.render(run))
    status, later, said = report(tmp_path / "report.json", output=tmp_path / "later.html")
    assert (status, said) == (0, "")
    for page in (Page(html_report.render(run)), later):
        changed, new = page.details
        compared = changed["compared"]
        assert compared["verdict"] == "worse (+1 kernel, stale)"
        assert compared["notes"] == [str(EditedTest())]
        assert [(one["words"], one["ratio"], one["note"]) for one in compared["numbers"]][:4] == [
            ("kernels 3 -> 4", "", ""),
            ("launches 3 -> 4", "", ""),
            ("busy 30.0 us -> 160 us", "", "fails no test"),
            ("CPU time 300 us -> 400 us", "", "fails no test"),
        ]
        assert compared["why"] == ["of the 130 us more, 100% is in 3 -> 4 kernels, on average 4.0x as long"]
        (pointwise,) = compared["families"]
        assert (pointwise["before_us"], pointwise["time_us"]) == (30, 160)
        assert compared["single"] == [came("aten::mul", family=None, name="add_3")]
        # Without an entry nothing has changed.
        assert "compared" not in new
        assert "changes" not in new
        assert not compared["lacks_lines"]


@pytest.mark.any_torch
@pytest.mark.parametrize("kernels", [3, 4])
def test_that_a_kernel_which_went_has_no_line_is_said_below_it(tmp_path, kernels):
    entries = [
        entry_of(load(small(tmp_path / f"{count}.json", kernels=count)), source_hash="a") for count in (4, kernels)
    ]
    found = compare(*entries)
    page = Page(
        html_report.render(
            RunResults(results=(result(baseline_state=found.verdict, comparison=to_builtins(found)),)),
        )
    )
    (told,) = page.details
    assert told.get("compared", {}).get("lacks_lines", False) == (kernels == 3)


BEFORE = Path(__file__).parent / "reports_before" / "schema_1.json"


@pytest.mark.any_torch
def test_a_report_that_an_earlier_version_wrote_says_what_it_said(tmp_path, report):
    """There the comparison was kept in words too, and why there are no times in words alone."""
    status, page, said = report(BEFORE, output=tmp_path / "out.html")
    assert (status, said) == (0, "")
    written = json.loads(BEFORE.read_text())["results"]
    results, _ = read_report(BEFORE)
    assert [one.baseline for one in results] == [one["baseline"] for one in written]
    assert [one.against_time and one.against_time.words for one in results] == [
        one["against_time"] and one["against_time"]["words"] for one in written
    ]
    for told, then in zip(page.details, written, strict=True):
        assert told["message"] if then["message"] else "message" not in told
        assert told.get("compared", {}).get("verdict", then["baseline"]) == then["baseline"]


@pytest.mark.any_torch
def test_folders_are_compared_file_by_file(tmp_path, report):
    for folder, names in (("before", "ab"), ("after", "bc")):
        (tmp_path / folder).mkdir()
        for name in names:
            small(tmp_path / folder / f"{name}.json", kernels=3 if folder == "before" else 4)
    status, page, _ = report(tmp_path / "after", "--against", tmp_path / "before", output=tmp_path / "out.html")
    assert status == 0
    told = {one["name"]: one for one in page.details}
    assert list(told) == ["b.json", "c.json", "a.json"]
    assert "Of 1 recording compared, b.json changed most: " in page.words
    assert "1 recording only before; 1 recording only now" in page.words
    assert told["b.json"]["compared"]["time_us"] == [30, 40]
    assert told["b.json"]["compared"]["exchange"] == "3 -> 4 kernels"
    assert "compared" not in told["c.json"]
    assert told["a.json"]["outcome"] == "gone"
    assert "only before" in page.words


def test_a_json_report_becomes_a_page_with_the_recordings_beside_it(run_tests, pytester, report, tmp_path):
    run_tests(RUN, "--torchprof-report=run.json")
    status, page, _ = report(pytester.path / "run.json", output=tmp_path / "out.html")
    assert status == 0
    kept, missed = page.details
    assert missed["drawn"] == ["recording-1"]
    assert "did not keep" in kept["missing"]
    assert "torch 2" in page.words
    _, page, _ = report(
        pytester.path / "run.json", "--against", pytester.path / "run.json", output=tmp_path / "same.html"
    )
    assert [one["name"] for one in page.details] == [kept["name"], missed["name"]]
    assert page.details[1]["compared"]["time_us"][0] == page.details[1]["compared"]["time_us"][1]


NUMBER_OF_LATER = """{"schema": 1, "results": [{"nodeid": "t", "outcome": "passed", "limits": [
    {"limit": "l", "status": "holds", "seen": [{"seen": "number-seen", "number": "of-a-later-version", "value": 1}]}
]}]}"""


@pytest.mark.any_torch
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"schema": 9, "results": []}', "recording-newer"),
        ('{"schema": 1, "results": [3]}', "recording-damaged"),
        ('{"schema": 1, "results": [', "recording-damaged"),
        ('["schema", "results"]', "recording-damaged"),
        ('{"schema": 1, "results": [], "environment": {"gpu": 5}}', "recording-damaged"),
        ('{"schema": 1, "results": [{"nodeid": "t", "outcome": "passed", "findings": [1]}]}', "recording-damaged"),
        ('{"schema": 1, "results": [{"nodeid": "t", "outcome": "\\udc80"}]}', "recording-damaged"),
        (NUMBER_OF_LATER, "recording-damaged"),
        ('{"traceEvents": [', "recording-cut-off"),
        (None, "recording-missing"),
    ],
)
def test_what_cannot_be_read_is_refused_and_nothing_is_written(tmp_path, report, content, said):
    path = tmp_path / "in.json"
    if content is not None:
        path.write_text(content)
    status, page, err = report(path, output=tmp_path / "out.html")
    assert (status, page) == (2, None)
    assert f"[{said}]" in err


@pytest.mark.any_torch
@pytest.mark.parametrize("words", [["report"], ["report", "a.json"], ["report", "a.json", "b.json", "-o", "x.html"]])
def test_bad_usage_is_refused(words, capsys):
    assert main(words) == 2
    assert "[bad-usage]" in capsys.readouterr().err


@pytest.mark.any_torch
def test_a_page_that_cannot_be_written_is_an_error(tmp_path, report):
    (tmp_path / "file").write_text("")
    status, _, err = report(small(tmp_path / "a.json"), output=tmp_path / "file" / "out.html")
    assert status == 2
    assert "[report-not-written]" in err


@pytest.mark.any_torch
def test_a_large_recording_is_a_small_page(tmp_path, report, shared_trace):
    status, page, _ = report(shared_trace("a100_sam_fast_large"), output=tmp_path / "out.html")
    assert status == 0
    assert page.details[0]["events"] == 255_170
    assert len(page.text) < 2_000_000


@pytest.mark.any_torch
def test_all_that_the_page_is_made_of_is_in_its_folder():
    """Whatever lies in the package's folder goes into a wheel."""
    folder = Path(document.__file__).parent
    there = {path.name for path in folder.iterdir() if path.suffix in (".html", ".css", ".js")}
    of_others = {"history.css", "history.js", "fleet.css", "fleet.js"}
    assert there == {"page.html", *document.SCRIPTS, *document.STYLES, *of_others}
    assert not re.search(r"</script|<!--", "".join((folder / name).read_text() for name in document.SCRIPTS))
