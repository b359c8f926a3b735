"""The page in a browser: nothing is asked of the network, nothing a name says is carried out, all of it works by keyboard."""

from __future__ import annotations

import json
import os
import re
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, Browser
from builder import TraceBuilder
from msgspec import to_builtins
from pages import HOSTILE, launching, result, write

from pytest_torchprof import load
from pytest_torchprof.baseline import entry_of
from pytest_torchprof.cli import main
from pytest_torchprof.compare import compare
from pytest_torchprof.report.result import Outcome
from pytest_torchprof.text.units import show_rate, show_us

pytestmark = [
    pytest.mark.any_torch,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.usefixtures("quiet_browser"),
]
_AXE_PACKAGE = find_spec("axe_core_python")
_AXE_FILES = (
    os.environ.get("AXE_CORE", ""),
    *([] if _AXE_PACKAGE is None else [Path(str(_AXE_PACKAGE.origin)).parent / "axe.min.js"]),
)
AXE = next((path for path in map(Path, _AXE_FILES) if path.is_file()), None)
NO_AXE = "needs axe-core: pip install axe-core-python, or AXE_CORE is the path of another axe.min.js"
OUTCOMES = [Outcome.PASSED] * 30 + [Outcome.FAILED] * 3 + [Outcome.NOT_MEASURED, Outcome.SKIPPED, Outcome.XFAILED]


@pytest.fixture(scope="module")
def run_page(tmp_path_factory):
    """A run's report: 36 tests, the failures with a recording."""
    folder = tmp_path_factory.mktemp("run")
    recording(folder / "a.json")
    found = {
        "finding": "other",
        "code": "fp32-gemm",
        "title": "Products in fp32",
        "message": "slow",
        "remedy": "bf16",
        "severity": "warning",
        "facts": {"kernels": ["gemm fp32 tn ampere_sgemm_128x64"]},
    }
    failed = {"message": "does not hold", "recording": "a.json", "findings": (found,)}
    results = [result(i, outcome=one, **(failed if one.is_failure else {})) for i, one in enumerate(OUTCOMES)]
    return write(folder / "run.html", *results, rootdir=folder)


@pytest.fixture(scope="module")
def pair_page(tmp_path_factory):
    """Two recordings side by side."""
    folder = tmp_path_factory.mktemp("pair")
    before, after = recording(folder / "before.json"), recording(folder / "after.json", slow=4)
    assert main(["report", str(after), "--against", str(before), "-o", str(folder / "pair.html")]) == 0
    return folder / "pair.html"


def recording(path: Path, *, slow: int = 1, name: str = "ampere_sgemm_128x64_tn") -> Path:
    builder = TraceBuilder()
    for step in range(2):
        for number in range(24):
            # A name that says nothing takes its family from the operator: this one has none.
            kernel, op = (name, "aten::mm") if number % 2 else (f"void kernel_{number}(float*)", "mine::work")
            builder.launched(kernel, 2000.0 * step + 40 * number, op=op, dur=(15 + step) * slow, wait=5)
        builder.step(step, 2000.0 * step, 1900)
    return builder.write(path)


def texts(browser: Browser, selector: str) -> list[str]:
    script = f"[...document.querySelectorAll({json.dumps(selector)})].filter((e) => e.checkVisibility()).map((e) => e.textContent)"
    return browser.run(script)


def test_the_first_failure_is_open_and_tests_are_filtered_searched_and_sorted(browser, run_page):
    browser.open(run_page)
    assert texts(browser, "#details h2") == ["failedtests/test_model.py::test_30"]
    assert len(texts(browser, "#tests tbody tr")) == len(OUTCOMES)
    browser.click(".chip[data-outcome='not measured']")
    assert texts(browser, "#tests tbody bdi:first-child") == ["test_33"]
    assert texts(browser, "#count") == ["1 of 36 tests"]
    browser.click(".chip[data-outcome='not measured']")
    browser.run("search.value = 'model test_3'; search.dispatchEvent(new Event('input'))")
    assert len(texts(browser, "#tests tbody tr")) == 7
    browser.run("search.value = ''; search.dispatchEvent(new Event('input'))")
    browser.click("#tests button[data-sort=kernels]")
    assert browser.run("document.querySelector('#tests [aria-sort]').ariaSort") == "descending"
    counts = [int(text) for text in texts(browser, "#tests td:nth-child(3)")]
    assert counts == sorted(counts, reverse=True)
    browser.click("#tests button[data-sort=kernels]")
    assert [int(text) for text in texts(browser, "#tests td:nth-child(3)")] == sorted(counts)


def test_everything_can_be_reached_by_keyboard(browser, run_page):
    browser.open(run_page, fragment="#2")
    assert texts(browser, "#details h2") == ["passedtests/test_model.py::test_2"]
    browser.press("j")
    browser.wait("document.querySelector('#details h2').textContent.endsWith('test_3')")
    browser.press("k")
    browser.wait("document.querySelector('#details h2').textContent.endsWith('test_2')")
    browser.press("/")
    assert browser.run("document.activeElement.id") == "search"
    for key in "test_34":
        browser.press(key)
    assert texts(browser, "#tests tbody bdi:first-child") == ["test_34"]
    # On from there: the list itself, which scrolls, then its headings, then the test's link.
    browser.press("Tab")
    assert browser.run("document.activeElement.getAttribute('role')") == "region"
    while browser.run("document.activeElement.tagName") != "A":
        browser.press("Tab")
    browser.press("Enter")
    browser.wait("document.querySelector('#details h2').textContent.endsWith('test_34')")


def test_kernels_are_sorted_and_found_and_a_section_has_an_address(browser, run_page):
    browser.open(run_page, fragment="#30/kernels")
    rows = "[id='30/kernels'] .data:first-of-type tbody tr"
    assert len(texts(browser, rows)) == 13
    assert "gemm fp32 tn ampere_sgemm_128x64" in texts(browser, rows)[0]
    browser.click("[id='30/kernels'] thead th:nth-child(2) button")
    assert browser.run("document.querySelector(\"[id='30/kernels'] [aria-sort]\").ariaSort") == "descending"
    browser.click("[id='30/kernels'] summary")
    assert "launched by" not in texts(browser, "[id='30/kernels'] details[open] code")


def test_an_address_leads_to_its_section_or_to_its_test(browser, pair_page):
    browser.open(pair_page, fragment="#0/kernels")
    browser.wait("document.querySelector('.timeline').dataset.slices > 0")
    assert browser.run("document.getElementById('0/kernels').getBoundingClientRect().top") < 100
    browser.open(pair_page, fragment="#0/nowhere")
    assert browser.run("document.getElementById('details').getBoundingClientRect().top") < 100


def test_what_changed_against_a_baseline_stands_in_tables(browser, tmp_path):
    before, after = (
        entry_of(load(recording(tmp_path / f"{slow}.json", slow=slow)), source_hash="a") for slow in (1, 4)
    )
    found = compare(before, after)
    told = {"baseline_state": found.verdict, "comparison": to_builtins(found)}
    page = write(tmp_path / "run.html", result(**told), result(1, baseline_state="new"))
    browser.open(page, fragment="#0/changes")
    changes = "[id='0/changes']"
    assert texts(browser, f"{changes} .headline")[0] == "busy 372 us → 982 us (fails no test)"
    assert texts(browser, f"{changes} .why")[0].startswith("of the 1.12 ms more, ")
    rows = [row.split("+")[0] for row in texts(browser, f"{changes} tbody tr")]
    assert sorted(rows) == ["gemm fp32", "not known"]
    browser.open(page, fragment="#1")
    assert "Changes" not in texts(browser, "nav.sections a")


def test_below_a_kernel_that_went_the_page_says_why_it_has_no_line(browser, tmp_path):
    entries = []
    for name, count in (("before", 3), ("after", 2)):
        builder = TraceBuilder()
        for number in range(count):
            builder.launched(f"void kernel_{number}(float*)", 100.0 * number, op="mine::work")
        builder.step(0, 0, 1000)
        entries.append(entry_of(load(builder.write(tmp_path / f"{name}.json")), source_hash="a"))
    found = compare(*entries)
    told = {"baseline_state": found.verdict, "comparison": to_builtins(found)}
    browser.open(write(tmp_path / "run.html", result(**told)), fragment="#0/changes")
    assert "kernel_2" in texts(browser, "[id='0/changes'] details[open] pre")[0]
    assert "line of code" in texts(browser, "[id='0/changes'] details[open] pre + .hint")[0]


def test_numbers_have_three_significant_digits_as_in_the_terminal(browser, run_page):
    values = [12345.6, 999.5, 99.94, 9.996, 5.0, 0.5, 0.0123, 0.000456, 2e-8, 0.0]
    browser.open(run_page)
    shown = [show_rate(value) for value in values]
    assert shown == ["12346", "1000", "99.9", "10.0", "5.00", "0.500", "0.0123", "0.000456", "<0.000001", "0"]
    assert browser.run(f"{values}.map(show.rate)") == shown
    times = [0.0, 0.25, 0.0123, 9.996, 999.96, 1500.0, 2.5e6]
    assert browser.run(f"{times}.map(show.us)") == [show_us(time) for time in times]


def test_a_finding_shows_its_events_in_the_timeline(browser, run_page):
    browser.open(run_page, fragment="#30/findings")
    browser.click("[id='30/findings'] li button")
    browser.wait("document.querySelector('.timeline').dataset.slices > 0")
    browser.wait("document.querySelector('.timeline').getBoundingClientRect().top < innerHeight")
    # Twelve of them in each step.
    browser.wait("document.querySelector('.tl-found').textContent.includes('24')")


def test_two_recordings_are_drawn_on_one_scale(browser, pair_page):
    browser.open(pair_page, fragment="#0/timeline")
    browser.wait("document.querySelector('.timeline').dataset.gpuTimeNs > 0")
    assert texts(browser, ".headline")[0].startswith("GPU time 372 us → 1.49 ms")
    assert texts(browser, ".headline")[0].endswith(" 4.0x as much")
    assert texts(browser, ".why")[0].startswith("of the 1.12 ms more, ")
    widths = browser.run(
        "[...document.querySelectorAll('.r-kernel:not(.swatch)')].map((e) => e.getBoundingClientRect().width)"
    )
    assert widths[1] > 2 * widths[0]


def test_hostile_names_stay_text(browser, tmp_path):
    results = [
        result(i, name=name, label=name, outcome=Outcome.FAILED, message=name,
            baseline_state="changed", comparison=launching(name), recording="a.json", environment={"gpu": name}, limits=(),
            findings=({"finding": "other", "code": name, "title": name, "message": name, "remedy": name, "source": name},))
        for i, name in enumerate(HOSTILE)
    ]  # fmt: skip
    recording(tmp_path / "a.json", name=HOSTILE[0] + HOSTILE[4].replace("\u2028", "") + "m" * 50_000)
    page = write(tmp_path / "hostile.html", *results, rootdir=tmp_path)
    browser.open(page, width=400)
    for number, name in enumerate(HOSTILE):
        browser.run(f"location.hash = '#{number}/timeline'")
        browser.wait(f"document.getElementById('{number}/timeline').querySelector('.timeline').dataset.slices > 0")
        assert browser.run("window.pwned") is None, name
        assert browser.run("document.documentElement.scrollWidth <= innerWidth"), name
        assert browser.run("document.querySelectorAll('img, style').length") == 1, name
        assert browser.run(r"!/[\u202a-\u202e\u2066-\u2069\u200e\u200f\0\x1b]/.test(document.body.innerText)"), name


def show_all(browser: Browser, page: Path, fragment: str, **look: Any) -> None:
    browser.open(page, fragment=fragment, **look)
    browser.run("document.querySelector('.timeline').scrollIntoView()")
    browser.wait("document.querySelector('.timeline').dataset.slices > 0")


@pytest.mark.parametrize("width", [641, 768, 900])
def test_on_a_narrow_window_tables_fit_and_values_stand_one_below_the_other(browser, run_page, pair_page, width):
    for page, fragment in ((run_page, "#30"), (pair_page, "#0")):
        show_all(browser, page, fragment, width=width, height=800)
        assert browser.cut() == []
        assert browser.sideways() == []
    # From row to row, also where one has no value.
    lefts = browser.run("""[...document.querySelector("[id='0/kernels'] tbody").rows]
      .map((row) => [...row.querySelectorAll("td")].map((cell) => cell.getBoundingClientRect().left))""")
    assert len(lefts) > 1
    assert [row for row in lefts if row != lefts[0]] == []


def test_on_a_phone_nothing_of_a_run_or_of_two_recordings_is_cut(browser, run_page, pair_page):
    for page, fragment in ((run_page, "#30"), (pair_page, "#0")):
        show_all(browser, page, fragment, width=360, height=800)
        assert browser.cut() == []
        assert browser.sideways() == []
    # The values of a row stand below its name, each with its heading.
    kernel = browser.run("document.querySelector(\"[id='0/kernels'] tbody tr\").innerText")
    assert "gemm" in kernel
    heading = "getComputedStyle(document.querySelector(\"[id='0/kernels'] tbody td:last-child\"), '::before').content"
    assert browser.run(heading).startswith('"launched by')


@pytest.mark.parametrize("width", [800, 1280])
def test_numbers_of_two_recordings_stay_in_their_places(browser, pair_page, width):
    show_all(browser, pair_page, "#0", width=width, height=800)
    assert browser.cut() == []


@pytest.mark.skipif(AXE is None, reason=NO_AXE)
@pytest.mark.parametrize(
    ("dark", "asked"),
    # What is dark differs in its colours alone.
    [(False, {}), (True, {"runOnly": ["color-contrast"]})],
    ids=["light", "dark"],
)
def test_the_page_is_accessible(browser, run_page, pair_page, dark, asked):
    for page, fragment in ((run_page, "#30"), (pair_page, "#0")):
        show_all(browser, page, fragment, dark=dark)
        browser.run(AXE.read_text() + ";0")
        how = json.dumps({"resultTypes": ["violations"], **asked})
        found = browser.run(f"axe.run({how}).then((result) => result.violations)")
        assert not [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]


@pytest.fixture(scope="module")
def long_page(tmp_path_factory):
    """The page of a run of 800 tests."""
    return write(tmp_path_factory.mktemp("long") / "page.html", *(result(i) for i in range(800)))


@pytest.fixture
def busy_browser(browser):
    """A browser that never comes to what can wait."""
    added = browser.call("Page.addScriptToEvaluateOnNewDocument", source="requestIdleCallback = () => 0;")
    yield browser
    browser.call("Page.removeScriptToEvaluateOnNewDocument", **added)
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    browser.call("Emulation.setEmulatedMedia", media="")


def test_all_of_eight_hundred_tests_are_listed_when_there_is_time(browser, long_page):
    browser.open(long_page)
    browser.wait("[...document.querySelectorAll('#tests tbody tr')].every((row) => row.checkVisibility())")
    assert len(texts(browser, "#tests tbody tr")) == 800


def test_only_the_first_of_eight_hundred_tests_hold_up_the_first_paint(busy_browser, long_page):
    busy_browser.open(long_page)
    assert len(texts(busy_browser, "#tests tbody tr")) == 200
    busy_browser.wait("performance.getEntriesByType('paint').length > 0")
    assert len(texts(busy_browser, "#tests tbody tr")) == 200


@pytest.mark.parametrize("asked", ["search.value = 'test_799'; search.dispatchEvent(new Event('input'))", ""])
def test_what_is_searched_for_or_linked_to_is_shown_at_once(busy_browser, long_page, asked):
    busy_browser.open(long_page, fragment="" if asked else "#799")
    busy_browser.run(asked)
    assert texts(busy_browser, "#row-799 bdi:first-child") == ["test_799"]
    assert len(texts(busy_browser, "#tests tbody tr")) == (1 if asked else 800)


def test_a_long_list_that_is_sorted_is_whole(busy_browser, long_page):
    busy_browser.open(long_page)
    busy_browser.click("#tests button[data-sort=kernels]")
    counts = [int(text) for text in texts(busy_browser, "#tests td:nth-child(3)")]
    assert len(counts) == 800
    assert counts == sorted(counts, reverse=True)


def test_without_scripts_and_on_paper_a_long_list_is_whole(busy_browser, long_page):
    hidden = "[...document.querySelectorAll('#tests tbody tr')].filter((row) => !row.checkVisibility()).length"
    busy_browser.open(long_page)
    assert busy_browser.run(hidden) == 600
    busy_browser.call("Emulation.setEmulatedMedia", media="print")
    assert busy_browser.run(hidden) == 0
    busy_browser.call("Emulation.setEmulatedMedia", media="")
    busy_browser.call("Emulation.setScriptExecutionDisabled", value=True)
    busy_browser.call("Page.navigate", url=long_page.resolve().as_uri())
    while busy_browser.run("document.readyState") != "complete" or not busy_browser.run(
        "document.querySelector('#row-799')?.id"
    ):
        time.sleep(0.05)
    assert busy_browser.run(hidden) == 0


def test_a_page_of_two_recordings_begins_with_what_the_comparison_begins_with(browser, pair_page, capsys):
    folder = pair_page.parent
    main(["diff", str(folder / "before.json"), str(folder / "after.json")])
    first = capsys.readouterr().out.splitlines()[0].replace("->", "→")
    browser.open(pair_page)
    (lead,) = texts(browser, ".lead")
    assert first.startswith("GPU time ")
    assert lead.startswith(f"{first}; of the ")
    assert browser.run("document.querySelector('.lead a').hash") == "#0/changes"
    (alone,) = texts(browser, ".alone")
    assert alone.startswith("Now by itself: The GPU ")
    assert browser.run("document.querySelector('.alone a').hash") == "#0/show-0"


def test_equal_recordings_are_not_told_apart_row_by_row(browser, tmp_path):
    same = recording(tmp_path / "same.json")
    assert main(["report", str(same), "--against", str(same), "-o", str(tmp_path / "page.html")]) == 0
    browser.open(tmp_path / "page.html")
    assert texts(browser, "[id='0/changes'] summary") == ["as much GPU time as before, in the same places"]
    assert texts(browser, "[id='0/changes'] table") == []
    (lead,) = texts(browser, ".lead")
    assert lead == "same 12 GEMMs and 12 kernels; Changes"


def test_recordings_are_called_so_in_their_list(browser, tmp_path):
    for name in ("one", "two"):
        (tmp_path / "kept").mkdir(exist_ok=True)
        recording(tmp_path / "kept" / f"{name}.json")
    assert main(["report", str(tmp_path / "kept"), "-o", str(tmp_path / "page.html")]) == 0
    browser.open(tmp_path / "page.html")
    assert texts(browser, ".verdicts h2, #tests th:nth-child(2)")[:2] == ["Recordings", "recording"]
    assert browser.run("search.placeholder") == "search recordings ( / )"
    browser.run("search.value = 'two'; search.dispatchEvent(new Event('input'))")
    assert texts(browser, "#count") == ["1 of 2 recordings"]
    assert browser.run("/\\btests?\\b|verdict/i.test(document.querySelector('.verdicts').innerText)") is False


def test_a_list_against_another_side_says_how_much_longer_each_test_took(browser, tmp_path):
    for side, slow in (("before", 1), ("now", 4)):
        (tmp_path / side).mkdir()
        recording(tmp_path / side / "kept.json", slow=slow)
    recording(tmp_path / "now" / "more.json")
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "now"), "--against", str(tmp_path / "before"), "-o", str(page)]) == 0
    browser.open(page)
    assert texts(browser, "#tests th:last-child") == ["against"]
    assert dict(zip(texts(browser, "#tests .name"), texts(browser, "#tests td:last-child"), strict=True)) == {
        "kept.json": "4.0x",
        "more.json": "new",
    }


def test_what_is_out_of_view_is_drawn_for_print_too(browser, pair_page):
    browser.open(pair_page, height=300)
    browser.wait("document.querySelector('.timeline').dataset.slices > 0")


def steps_page(tmp_path, *, steps, graph=False, marked=True):
    builder = TraceBuilder()
    for step in range(steps):
        at = 1000.0 * step
        if marked:
            builder.step(step, at, 900)
        if not graph:  # Of which no operator is known.
            builder.op("mine::all", at, 900)
        builder.launched("ampere_sgemm_128x64_tn", at + 10, op="aten::mm", dur=700 + step)
        if graph:
            builder.kernel("void replayed(float*)", at + 730, 20, builder.graph_launch(at + 60))
    builder.sync(1000.0 * steps + 10, 50)
    assert main(["report", str(builder.write(tmp_path / "t.json")), "-o", str(tmp_path / "t.html")]) == 0
    return tmp_path / "t.html"


def test_the_page_says_what_is_of_one_step_and_what_of_all(browser, tmp_path):
    browser.open(steps_page(tmp_path, steps=3))
    of_all, of_findings, of_step, of_window = texts(browser, ".scope")
    assert "3 steps" in of_all
    assert of_window == of_all
    assert of_all in of_findings
    assert "median of 3 steps" in of_step
    titles = [texts(browser, f".numbers:nth-of-type({place}) dt") for place in (1, 2)]
    assert "kernels" in titles[0]
    assert "GPU utilization" in titles[1]
    assert "kernels" not in titles[1]
    assert texts(browser, "[id='0/kernels'] .data .hint")[0].startswith("1 kernel name over 3 steps, ")
    assert texts(browser, "[id='0/operators'] .data .hint")[0] == "2 operators over 3 steps"
    assert any(" over 3 steps" in caption for caption in texts(browser, "[id='0/kernels'] caption, [id='0/kernels'] p"))


def test_of_one_step_it_says_so_once(browser, tmp_path):
    browser.open(steps_page(tmp_path, steps=1))
    (scope,) = texts(browser, ".scope")
    assert "step" in scope
    assert "steps" not in scope


def test_what_does_not_hold_stands_above_all_else_of_a_test(browser, run_page):
    browser.open(run_page, fragment="#30")
    top = "document.querySelector('{}').getBoundingClientRect().top"
    name, failure, lead, sections = (
        browser.run(top.format(f"#details {selector}")) for selector in ("h2", ".message", ".lead", "nav")
    )
    assert name < failure < lead < sections


def test_where_no_steps_are_marked_it_speaks_of_none(browser, tmp_path):
    browser.open(steps_page(tmp_path, steps=2, marked=False))
    (scope,) = texts(browser, ".scope")
    assert "recording" in scope
    browser.run("window.scrollTo(0, document.body.scrollHeight)")
    browser.wait("document.querySelectorAll('.timeline canvas, .flame canvas').length === 2")
    spoken = browser.run(
        """[...document.querySelectorAll("#details *")].flatMap((e) => [e.ariaLabel, e.title, e.children.length ? "" : e.textContent])
          .flatMap((text) => text?.match(/[^.·]{0,40}\\b[Ss]teps?\\b/g) ?? [])"""
    )
    assert [text.strip() for text in spoken] == ["no steps"]


def test_why_nothing_is_measured_stands_there_once(browser, tmp_path):
    builder = TraceBuilder()
    builder.launched("kernel", 0)
    builder.launch(100)
    assert main(["report", str(builder.write(tmp_path / "t.json")), "-o", str(tmp_path / "t.html")]) == 0
    browser.open(tmp_path / "t.html")
    (lead,) = texts(browser, ".lead")
    assert texts(browser, ".message pre") == []
    assert "1 of 2 launches" in lead


def sizes_of(browser, selector):
    return browser.run(
        f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => parseFloat(getComputedStyle(e).fontSize))"
    )


def test_what_was_counted_is_large_and_what_is_zero_or_unknown_is_small(browser, tmp_path):
    browser.open(steps_page(tmp_path, steps=2))
    (body,) = sizes_of(browser, "body")
    large = sizes_of(browser, "[id='0/numbers'] dd > span:not(.was, .worst, .ratio)")
    assert large
    assert min(large) >= 1.4 * body
    assert max(sizes_of(browser, "[id='0/numbers'] .hint")) < body
    assert not [text for text in texts(browser, "[id='0/numbers'] dd") if re.match(r"0(?![.\d])", text)]


def test_what_was_not_measured_is_called_so_and_is_no_number(browser, tmp_path):
    builder = TraceBuilder()
    builder.launched("kernel", 0)
    builder.launch(100)
    assert main(["report", str(builder.write(tmp_path / "t.json")), "-o", str(tmp_path / "t.html")]) == 0
    browser.open(tmp_path / "t.html")
    assert texts(browser, "[id='0/numbers'] dd") == []
    (line,) = texts(browser, "[id='0/numbers'] p")
    assert line.startswith("not measured: kernels, launches, ")
    # Of a number that one test has and the other has not, the list says so too.
    known, unknown = result(0), result(1, summary=None, outcome=Outcome.NOT_MEASURED)
    browser.open(write(tmp_path / "run.html", known, unknown), fragment="#1")
    assert texts(browser, "#row-1 td")[1:] == ["-"] * 5


def test_numbers_of_zero_are_named_once_and_no_stray_zero_is_drawn(browser, tmp_path):
    browser.open(steps_page(tmp_path, steps=2))
    zero, *_ = [line for line in texts(browser, "[id='0/numbers'] .hint") if "fills" in line]
    assert "0" not in zero
    stray = "[...document.querySelectorAll('section *')].flatMap((e) => [...e.childNodes]).filter((n) => n.nodeType === 3 && n.data === '0' && !n.parentElement.closest('td, dd')).length"
    assert browser.run(stray) == 0


def test_a_graph_s_kernels_are_launched_by_its_replay(browser, tmp_path):
    browser.open(steps_page(tmp_path, steps=2, graph=True))
    cells = {row.split("void")[0]: row for row in texts(browser, "[id='0/kernels'] tbody tr")}
    assert any("aten::mm" in row for row in cells.values())
    (replayed,) = [row for row in cells.values() if "replayed" in row]
    assert replayed.endswith("graph replay")
