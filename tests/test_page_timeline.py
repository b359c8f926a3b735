"""The drawings of the report: all that a recording holds is in the page, and is found by pointer, keyboard and reader."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from base64 import b64encode
from collections import Counter
from itertools import accumulate, pairwise
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from browser import CHROMIUM, Browser
from builder import TraceBuilder
from conftest import SHARED_TRACES
from facts import LARGEST, LEFT_OUT

from pytest_torchprof import load
from pytest_torchprof.analysis.lanes import rows_of
from pytest_torchprof.cli import main
from pytest_torchprof.report.page.measured import with_lines
from pytest_torchprof.report.page.packing import pack

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.any_torch

OWN = sorted((Path(__file__).parent / "recordings").glob("*.json.gz"))[:3]
SHARED = sorted(SHARED_TRACES.glob("*.json.gz"))
HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m\u202egnihton\x00" + "x" * 100_000
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not here (apt-get install chromium)")


class Packed:
    """A recording as the page has it."""

    def __init__(self, content: bytes) -> None:
        self.size = 4 + int.from_bytes(content[:4], "little")
        self.header = json.loads(content[4 : self.size])
        self.lanes = []
        for lane in self.header["lanes"]:
            columns = {name: self._column(content, width, lane["slices"]) for name, width in lane["columns"]}
            self.lanes.append(lane | columns)

    def _column(self, content: bytes, width: int, count: int) -> list[int]:
        values = [0] * count
        for plane in range(width):
            part = content[self.size : self.size + count]
            values = [value + (byte << 8 * plane) for value, byte in zip(values, part, strict=True)]
            self.size += count
        return values

    def times(self, lane: dict[str, Any]) -> Iterator[tuple[int, int, int]]:
        unit = self.header["unit_ns"]
        starts = [start * unit for start in accumulate(lane["start"])]
        ends = [start + one * unit for start, one in zip(starts, lane["duration"], strict=True)]
        return zip(starts, ends, lane["row"], strict=True)


def parts_of(trace: Any) -> list[Any]:
    return [trace.annotations, trace.frames, trace.ops, trace.calls, trace.overheads, trace.gpu_annotations, trace.gpu]


def recorded(trace: Any) -> tuple[int, int, int]:
    """Return how many slices a recording has, their time, and that of those on a GPU, in ns."""
    times = [[end - start for start, end in zip(part.start, part.end, strict=True)] for part in parts_of(trace)]
    return sum(map(len, times)), sum(map(sum, times)), sum(times[-1])


def categories(path: Path) -> Counter[str]:
    """Return how many complete events of each category are in a file."""
    text = gzip.decompress(path.read_bytes())
    if text.lstrip().startswith(b"["):
        listed = msgspec.json.decode(text, type=list[Kind])
    else:
        listed = msgspec.json.decode(text, type=Document).traceEvents
    return Counter(str(event.cat) for event in listed if event.ph == "X")


class Kind(msgspec.Struct):
    """What is asked of an event."""

    ph: str | None = None
    cat: str | None = None


class Document(msgspec.Struct):
    """What is asked of a file."""

    traceEvents: list[Kind]  # noqa: N815 - as it stands in the file


LARGE = [path for path in SHARED if path.name.startswith(LARGEST)]


@pytest.fixture(
    scope="module",
    params=[*OWN, *(path for path in SHARED if not path.name.startswith(LEFT_OUT))],
    ids=lambda path: path.name,
)
def written(request):
    """Return path, profile and the page's bytes of each recording, which is read once for all tests of it."""
    profile = load(request.param)
    return request.param, profile, pack(profile)


def test_each_slice_of_a_recording_is_in_the_page_and_none_is_hidden_by_another(written):
    path, profile, content = written
    packed = Packed(content)
    count, time_ns, gpu_ns = recorded(profile.trace)
    assert sum(lane["slices"] for lane in packed.lanes) == count
    spans = {lane["title"] + lane["subtitle"]: list(packed.times(lane)) for lane in packed.lanes}
    assert sum(end - start for lane in spans.values() for start, end, _ in lane) == time_ns
    on_gpu = [list(packed.times(lane)) for lane in packed.lanes if lane["kind"] in ("stream", "communication")]
    assert sum(end - start for lane in on_gpu for start, end, _ in lane) == gpu_ns
    for lane in spans.values():
        rows: dict[int, list[tuple[int, int]]] = {}
        for start, end, row in lane:
            rows.setdefault(row, []).append((start, end))
        assert all(end <= start for row in rows.values() for (_, end), (start, _) in pairwise(row))
    starts = [min(part.start) for part in parts_of(profile.trace) if len(part)]
    assert packed.header["origin_ns"] == min(starts)
    assert packed.header["left_out"] == ""
    # Ranges around work of the GPU, which repeat those of the CPU, are drawn above the streams on which it ran.
    annotated = [lane for lane in packed.lanes if lane["kind"] == "GPU ranges"]
    assert sum(lane["slices"] for lane in annotated) == categories(path)["gpu_user_annotation"]
    streams = {lane["title"] + lane["subtitle"] for lane in packed.lanes if lane["kind"] == "stream"}
    assert {lane["title"] + lane["subtitle"].removesuffix(", ranges") for lane in annotated} <= streams


@pytest.mark.parametrize(
    "written", [path for path in LARGE if "large" in path.name], indirect=True, ids=lambda path: path.name
)
def test_a_recording_of_255000_events_takes_less_than_2_mb(written):
    _, _, content = written
    assert len(b64encode(zlib.compress(content, 6))) < 2_000_000


def test_the_bytes_of_a_recording_are_always_the_same():
    assert pack(load(OWN[0])) == pack(load(OWN[0]))


@pytest.mark.parametrize(
    ("ranges", "rows"),
    [
        ([(0, 10), (2, 5), (3, 4), (6, 8), (10, 12)], [0, 1, 2, 1, 0]),
        ([(0, 10), (5, 15), (12, 20), (14, 16)], [0, 1, 0, 2]),
        ([(0, 5), (0, 0), (5, 5), (5, 5), (6, 7)], [0, 1, 0, 1, 0]),
        ([], []),
    ],
    ids=["nested", "side by side", "without length", "none"],
)
def test_a_slice_is_in_the_first_row_that_is_free(ranges, rows):
    assert rows_of(*([one[place] for one in ranges] for place in (0, 1))) == rows


def test_kernels_without_a_usable_time_are_there_and_told(tmp_path):
    builder = TraceBuilder(begin=10**10)
    builder.kernel("usual", 20, 5, builder.launch(5))
    builder.events.append(builder.events[-1] | {"ts": 0, "name": "untimed"})
    packed = Packed(pack(load(builder.write(tmp_path / "t.json"))))
    assert sum(lane["slices"] for lane in packed.lanes) == 3
    assert re.fullmatch(r"1 GPU operation .*: drawn where the recording begins", packed.header["left_out"])
    assert packed.header["origin_ns"] == (10**10 + 5) * 1000


def of_kernels() -> TraceBuilder:
    """Return a recording of two steps: kernels that overlap, shapes, modules, memory, and a name that wants to harm."""
    builder = TraceBuilder()
    for step in range(2):
        begin = 1000 * step
        builder.step(step, begin, 900)
        builder.module("Net_0", begin + 1, 800)
        builder.event("python_function", "train.py(3): train", begin + 2, 790)
        builder.op("aten::mm", begin + 10, 50, inputs=[((8, 16), (16, 1), "float"), ((16, 4), (4, 1), "float")])
        graph = builder.launch(begin + 20)
        builder.kernel("ampere_sgemm_128x64_tn", begin + 100, 200 + 100 * step, graph)
        builder.kernel("ampere_sgemm_128x64_nn", begin + 150, 50, graph)
        builder.op(HOSTILE, begin + 600, 20)
    builder.events.append(
        {
            "ph": "i",
            "name": "[memory]",
            "cat": "cpu_instant_event",
            "s": "t",
            "pid": 1000,
            "tid": 1000,
            "ts": builder.begin + 30,
            "args": {"Bytes": 4096, "Device Type": 1, "Device Id": 0},
        }
    )
    return builder


@pytest.fixture(scope="module")
def drawn(browser, tmp_path_factory) -> Browser:
    """Return the browser with the report of a recording in it; tests leave what they choose and search."""
    folder = tmp_path_factory.mktemp("report")
    assert main(["report", str(of_kernels().write(folder / "t.json")), "-o", str(folder / "t.html")]) == 0
    browser.open(folder / "t.html", width=1000)
    browser.run("document.querySelector('.timeline').scrollIntoView()")
    browser.wait("document.querySelector('.timeline').dataset.frames > 0")
    return browser


def settled(browser: Browser) -> None:
    browser.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def keys(browser: Browser, *pressed: str) -> None:
    browser.run("document.querySelector('.timeline canvas').focus({preventScroll: true})")
    for key in pressed:
        browser.press(key)
    settled(browser)


def text(browser: Browser, selector: str) -> str:
    return browser.run(f"document.querySelector('{selector}').innerText")


def in_view_us(browser: Browser) -> float:
    number, unit = re.match(r"([\d.]+) (ns|us|ms|s) in view", text(browser, ".timeline .tl-status")).groups()
    return float(number) * {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}[unit]


@needs_chromium
def test_a_slice_tells_what_is_known_of_it_by_keyboard_alone(drawn):
    keys(drawn, "Escape", "0", "]", "Enter")
    told = text(drawn, ".timeline .tl-pane")
    for fact in (
        "gemm fp32 ampere_sgemm_128x64",
        "300 us",
        "ProfilerStep#1",
        "aten::mm",
        "float[8,16], float[16,4]",
        "stream 7",
        "Net_0",
    ):
        assert fact in told
    keys(drawn, "g")
    assert "cudaLaunchKernel" in text(drawn, ".timeline .tl-pane strong")
    assert "launched 2, first" in text(drawn, ".timeline .tl-pane")
    keys(drawn, "Escape")
    assert "Click a slice" in text(drawn, ".timeline .tl-pane")


@needs_chromium
def test_keys_zoom_pan_and_go_from_step_to_step(drawn):
    keys(drawn, "Escape", "0")
    whole = in_view_us(drawn)
    keys(drawn, "+", "+")
    assert in_view_us(drawn) == pytest.approx(whole / 4, rel=0.01)
    keys(drawn, "-", "ArrowRight", "d")
    assert in_view_us(drawn) == pytest.approx(whole / 2, rel=0.01)
    keys(drawn, "[")
    assert drawn.run("document.querySelector('.timeline select').value") == "0"
    keys(drawn, "]")
    assert drawn.run("document.querySelector('.timeline select').value") == "1"


@needs_chromium
def test_search_finds_all_of_a_name_and_goes_through_them(drawn):
    keys(drawn, "Escape", "0", "/", *"SGEMM")
    settled(drawn)
    assert text(drawn, ".timeline .tl-found") == "4 found, 600 us"
    drawn.press("Enter")
    settled(drawn)
    first = text(drawn, ".timeline .tl-pane")
    keys(drawn, "n")
    assert "ampere_sgemm_128x64" in first
    assert text(drawn, ".timeline .tl-pane") != first
    drawn.run("document.querySelector('.timeline input').focus()")
    drawn.press("Escape")
    settled(drawn)
    assert text(drawn, ".timeline .tl-found") == ""


@needs_chromium
def test_what_the_pointer_is_over_is_told_beside_it_and_a_click_keeps_it(drawn):
    keys(drawn, "Escape", "Escape", "0")
    place = drawn.run(
        "(() => { const box = document.querySelector('.timeline canvas').getBoundingClientRect(); return [box.x + 60, box.y + 50]; })()"
    )
    drawn._call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
    settled(drawn)
    assert "ProfilerStep#1" in text(drawn, ".timeline .tl-tip")
    for kind in ("mousePressed", "mouseReleased"):
        drawn._call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)
    settled(drawn)
    assert "ProfilerStep#1" in text(drawn, ".timeline .tl-pane strong")


@needs_chromium
def test_the_step_is_there_as_text_for_those_who_do_not_see_it(drawn):
    drawn.run("document.querySelector('.timeline .tl-text').open = true")
    drawn.wait("document.querySelector('.timeline .tl-text table')")
    told = text(drawn, ".timeline .tl-text")
    assert "its 2 GPU operations took 350 us together" in told
    assert "gemm fp32 ampere_sgemm_128x64" in told
    assert drawn.run("document.querySelectorAll('.timeline .tl-text th[scope=row]').length") == 4
    drawn.run("document.querySelector('.timeline .tl-text').open = false")


@needs_chromium
def test_the_flames_show_modules_and_follow_the_keys(drawn):
    drawn.run("document.querySelector('.flame').scrollIntoView()")
    drawn.wait("document.querySelector('.flame').dataset.boxes > 0")
    assert drawn.run("[...document.querySelectorAll('.flame select option')].map((one) => one.value)") == [
        *("module", "stack", "operator"),
        *("gpu", "cpu"),
    ]
    drawn.run("document.querySelector('.flame canvas').focus()")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown"):
        drawn.press(key)
    assert "sgemm" in text(drawn, ".flame .tl-pane strong")
    assert re.search("Net_0 . aten::mm", text(drawn, ".flame .tl-pane"))


@needs_chromium
def test_names_that_want_to_harm_stay_text_and_leave_the_page_as_wide_as_it_is(drawn):
    drawn.run("document.querySelector('.timeline').scrollIntoView()")
    keys(drawn, "Escape", "Escape", "0", "/", *"onerror")
    drawn.press("Enter")
    settled(drawn)
    told = text(drawn, ".timeline .tl-pane")
    assert "<img src=x onerror=alert(1)>" in told
    assert not {"\x1b", "\u202e", "\x00"} & set(told)
    for width in (360, 1000):
        drawn.look(width)
        settled(drawn)
        assert drawn.run("document.documentElement.scrollWidth <= innerWidth")
    assert drawn.run("document.querySelectorAll('img').length") == 0
    assert (drawn.complaints, drawn.requests) == ([], [])


@needs_chromium
def test_two_recordings_stand_one_above_the_other_on_one_scale(browser, tmp_path):
    before, after = of_kernels().write(tmp_path / "a.json"), of_kernels().write(tmp_path / "b.json")
    assert main(["report", str(after), "--against", str(before), "-o", str(tmp_path / "t.html")]) == 0
    browser.open(tmp_path / "t.html", width=1000)
    browser.run("document.querySelector('.timeline').scrollIntoView()")
    browser.wait("document.querySelector('.timeline').dataset.frames > 0")
    assert (
        browser.run("Number(document.querySelector('.timeline').dataset.slices)") == 2 * recorded(load(after).trace)[0]
    )
    keys(browser, "/", *"sgemm")
    assert text(browser, ".timeline .tl-found").startswith("8 found")
    assert (browser.complaints, browser.requests) == ([], [])


def test_a_repeat_that_lies_beside_a_recording_gives_its_kernels_their_lines(run_tests, pytester):
    source = """
    @pytest.mark.torchprof(device="cpu", max_kernels=0)
    def test_it():
        torch.nn.Linear(8, 8)(x)
    """
    run_tests(dedent(source), "--torchprof-save=kept").assert_outcomes(failed=1)
    (recording,) = [path for path in (pytester.path / "kept").iterdir() if ".stacks" not in path.name]
    packed = Packed(pack(with_lines(load(recording))))
    (operators,) = [lane for lane in packed.lanes if lane["kind"] == "operators"]
    lines = {
        packed.header["origins"][origin - 1]
        for origin, variant in zip(operators["origin"], operators["variant"], strict=True)
        if variant
    }
    assert any(re.fullmatch(r"test_\S+\.py:\d+ in test_it(, Linear_0)?", line) for line in lines)
    assert "origin" not in dict(Packed(pack(load(recording))).lanes[-1]["columns"])
