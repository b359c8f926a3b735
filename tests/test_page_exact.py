"""The page points exactly: what it marks, sums up and finds is what the recording holds, and its first words say so."""

from __future__ import annotations

import json
import random
import re
import zlib
from base64 import b64encode
from collections import Counter
from itertools import combinations, pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any

import kept
import pytest
from browser import CHROMIUM, Browser
from builder import TraceBuilder
from colours import BLINDNESS, ciede2000, distance
from conftest import SHARED_TRACES
from facts import LEFT_OUT
from finding_numbers import OWN_NUMBER, WITHOUT_EVENTS
from findings_on_recordings import LIKE_ANOTHER
from pages import Page, result, write
from test_page_timeline import recorded

import pytest_torchprof
from pytest_torchprof import load
from pytest_torchprof.analysis.waits import waiting_copies
from pytest_torchprof.cli import main
from pytest_torchprof.report.page.details import details_of
from pytest_torchprof.report.page.document import SCRIPTS, STYLES, as_json
from pytest_torchprof.report.page.marks import marks_of
from pytest_torchprof.report.page.measured import of_recording
from pytest_torchprof.report.page.packing import pack
from pytest_torchprof.report.result import Outcome
from pytest_torchprof.text.units import show_us
from pytest_torchprof.trace.columns import KERNEL

pytestmark = pytest.mark.any_torch

RECORDINGS = Path(__file__).parent / "recordings"
# Some of the CPU and some of a GPU.
OWN = [path for folder in (RECORDINGS, RECORDINGS / "h200") for path in sorted(folder.glob("*.json.gz"))[:4]]
EXPERTS = "a100_moe_no_steps.json.gz"
# How a recording is drawn does not hang on its size.
SHARED = [
    path for path in sorted(SHARED_TRACES.glob("*.json.gz")) if not path.name.startswith((LIKE_ANOTHER, *LEFT_OUT))
]
FOLDER = Path(pytest_torchprof.__file__).parent / "report" / "page"
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")


ON_CPU = "gloo.json"


def reducing_on_the_cpu(path):
    """Write a recording of the CPU in which gloo works on two threads, at one time on both."""
    builder = TraceBuilder()
    builder.own(device="cpu", steps=2)
    for at in (0, 1000):
        builder.step(at // 1000, at, 900)
        builder.op("aten::add", at + 10, 5)
        for start, thread in ((100, 31), (200, 32)):
            sent = {"Input Dims": [[[[250]]]], "Input type": ["TensorList"]}
            builder.event("cpu_op", "c10d::allreduce_", at + start, 5, **sent)
            builder.annotation("gloo:all_reduce", at + start + 10, 300, tid=thread)
    return builder.write(path)


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    on_cpu = reducing_on_the_cpu(tmp_path_factory.mktemp("on_cpu") / ON_CPU)
    loaded = {path.name: load(path) for path in [*OWN, *SHARED, on_cpu]}
    # They stay to the end of these tests: nobody need look through their millions of objects for garbage meanwhile.
    kept.keep()
    return loaded


@pytest.fixture(scope="module")
def drawings(browser, profiles, tmp_path_factory):
    """All recordings in one page with the page's own scripts, none of them drawn yet; findings and marks by name."""
    payloads, found = [], {}
    for name, profile in profiles.items():
        measured = of_recording(profile, name)
        marks = marks_of(profile, measured.result.findings)
        found[name] = measured.result.findings, marks
        content = b64encode(zlib.compress(pack(profile, marks.events), 1)).decode()
        told = as_json(details_of(measured, marks).findings).decode().replace("<", "\\u003c")
        payloads.append(f'<script type="text/plain" id="{name}" data-recording>{content}</script>')
        payloads.append(f'<script type="application/json" id="findings of {name}">{told}</script>')
    scripts = "".join((FOLDER / name).read_text() for name in SCRIPTS if name not in ("tests.js", "page.js"))
    # Painted at once, so that nobody waits for frames.
    ready = "requestAnimationFrame = (paint) => paint(); document.documentElement.dataset.ready = 'true';"
    style = "".join((FOLDER / name).read_text() for name in STYLES)
    page = tmp_path_factory.mktemp("all") / "all.html"
    page.write_text(
        f"<!doctype html><meta charset=utf-8><style>{style}</style><div id=t class=timeline></div>"
        f"{''.join(payloads)}<script>{scripts}{ready}</script>"
    )
    browser.open(page)
    return found


def origin_of(trace):
    """Return when the first event of a recording began."""
    parts = (trace.annotations, trace.frames, trace.ops, trace.calls, trace.overheads, trace.gpu)
    return min(min(part.start) for part in parts if len(part))


def times_of(trace, events):
    """Return when marked events, and gaps, began and ended, in ns since the recording began."""
    kinds = ((trace.gpu, events.gpu_ops), (trace.calls, events.calls), (trace.ops, events.ops))
    more = ((trace.annotations, events.annotations), (trace.overheads, events.overheads))
    times = [(part.start[i], part.end[i]) for part, members in (*kinds, *more) for i in members]
    times += [gap[:2] for gap in events.gaps]
    origin = origin_of(trace)
    return sorted((start - origin, end - origin) for start, end in times)


# Shows each mark of each recording, and says where it is painted: what is not marked is faint, so that a column of pixels is
# "painted" if anything strong is in it. `missing` are marks without paint, `stray` is paint without a mark.
SHOWN = """async (wanted) => {
  const shown = {}, element = document.getElementById("t"), pen = CanvasRenderingContext2D.prototype, fill = pen.fillRect;
  let painted = new Set();
  pen.fillRect = function (x, y, wide, tall) {
    const isSlice = this.globalAlpha >= 0.9 && (tall === 17 || tall === 13), isGap = Math.abs(this.globalAlpha - 0.85) < 0.01;
    if (isSlice || isGap) for (let at = Math.floor(x); at < x + wide; at += 1) painted.add(at);
    return fill.call(this, x, y, wide, tall);
  };
  for (const script of document.querySelectorAll("[data-recording]")) {
    const findings = JSON.parse(document.getElementById(`findings of ${script.id}`).textContent);
    const recording = Timeline.read(await unpack(script.id)), view = Timeline.draw(element, [recording], {findings});
    const scroll = element.querySelector(".tl-scroll"), room = element.querySelector(".tl-room");
    const {slices, timeNs, gpuTimeNs} = element.dataset;
    shown[script.id] = {counted: [slices, timeNs, gpuTimeNs].map(Number)};
    for (const mark of Object.keys(wanted[script.id])) {
      view.highlight(findings.find((finding) => finding.mark === Number(mark)) || {mark: 0});
      const {marked, markedNs, fromNs, toNs} = element.dataset, from = Number(fromNs), to = Number(toNs);
      const pane = element.querySelector(".tl-pane").innerText;
      painted = new Set();
      for (let top = 0; top < room.offsetHeight; top += scroll.clientHeight - 60) {
        scroll.scrollTop = top;
        scroll.dispatchEvent(new Event("scroll"));
      }
      const width = scroll.clientWidth, x = (ns) => (ns - from) * width / (to - from), allowed = new Set();
      let missing = 0;
      for (const [start, end] of wanted[script.id][mark]) {
        const first = Math.floor(x(start) + 1e-6), last = Math.max(Math.floor(x(end) - 1.01), first);
        for (let at = first - 1; at <= Math.ceil(x(end)); at += 1) allowed.add(at);
        for (let at = first; at <= last; at += 1) if (!painted.has(at) && !painted.has(at - 1)) { missing += 1; break; }
      }
      const stray = [...painted].filter((at) => at >= 0 && at < width && !allowed.has(at)).length;
      shown[script.id][mark] = {marked: Number(marked), ns: Number(markedNs), from, to, missing, stray, pane};
    }
    view.destroy();
  }
  pen.fillRect = fill;
  return shown;
}"""


@pytest.fixture(scope="module")
def seen(browser, profiles, drawings):
    """What the page shows of each recording, and of each mark when it is asked for, beside when its events were."""
    browser.complaints.clear()
    wanted = {
        name: {
            number: times_of(profiles[name].trace, events)
            for number, events in enumerate(marks.events)
            if events is not None
        }
        for name, (_, marks) in drawings.items()
    }
    told = browser.run(f"({SHOWN})({json.dumps(wanted)})")
    assert browser.complaints == []
    return wanted, told


@pytest.fixture(scope="module")
def shown(seen):
    """By recording and mark, when its events were and what is shown of them; 0 is the headline's."""
    wanted, told = seen
    return {
        name: {number: (times, told[name][str(number)]) for number, times in of.items()} for name, of in wanted.items()
    }


@needs_chromium
def test_the_page_counts_what_the_recordings_hold(profiles, seen):
    _, told = seen
    assert {name: of["counted"] for name, of in told.items()} == {
        name: [*recorded(profile.trace)] for name, profile in profiles.items()
    }


@needs_chromium
def test_each_mark_is_drawn_where_its_events_were_recorded_and_nothing_else_is(shown):
    for name, marks in shown.items():
        for number, (times, drawn) in marks.items():
            what = name, number
            assert drawn["marked"] == len(times), what
            assert drawn["ns"] == sum(end - start for start, end in times), what
            first, last = times[0][0], max(end for _, end in times)
            assert drawn["from"] < first <= last < drawn["to"], what
            assert drawn["to"] - drawn["from"] <= max(1.81 * (last - first), 200), what
            assert (drawn["missing"], drawn["stray"]) == (0, 0), what


@needs_chromium
def test_the_headline_leads_to_exactly_what_it_names(drawings, shown):
    for name, (_, marks) in drawings.items():
        headline = marks.headline
        if headline.events is None:
            assert headline.where == "" or not headline.longest_us, name
            continue
        ((start, end),), drawn = shown[name][0]
        assert (end - start) / 1000 == headline.longest_us, name
        # It fills most of the view.
        assert (end - start) / (drawn["to"] - drawn["from"]) > 0.5 or end - start < 100, name
        is_gap, pane = len(headline.events.gaps) == 1, drawn["pane"]
        assert pane.startswith("The GPU idles\n") == is_gap, name
        assert f"\n{'lasts' if is_gap else 'took'}\n{show_us(headline.longest_us)}\n" in pane, name
        # A collective is named with its kernel in brackets.
        for named in headline.name.removesuffix(")").split(" (")[:2]:
            assert named in pane, (name, named)
        if getattr(headline, "source", None) is not None:
            assert re.search(rf"\nfrom\n.*{re.escape(headline.source)}", pane), name


@needs_chromium
def test_each_finding_marks_as_many_events_as_it_says(profiles, drawings, shown):
    for name, profile in profiles.items():
        for number, finding in enumerate(drawings[name][0], 1):
            if finding.code in WITHOUT_EVENTS:
                assert number not in shown[name], (name, finding.code)
                continue
            (_, drawn), facts = shown[name][number], finding.evidence
            assert f"{finding.title}: {finding.message}"[:200] in drawn["pane"], (name, finding.code)
            if finding.code in OWN_NUMBER:
                assert drawn["marked"] == OWN_NUMBER[finding.code](facts), (name, finding.code)
            if finding.code == "launch-gaps":
                devices = len(profile.gpu_work.by_device)
                assert drawn["ns"] / 1000 / devices == pytest.approx(facts["time_us"], rel=1e-6)
            if finding.code == "nothing-recorded":
                assert drawn["ns"] / 1000 == pytest.approx(facts["time_us"], rel=1e-6)
                assert drawn["pane"].startswith("Nothing is recorded\n"), name
    (reduced,) = [at for at, one in enumerate(drawings[ON_CPU][0], 1) if one.code == "exposed-communication"]
    assert [shown[ON_CPU][reduced][1][fact] for fact in ("marked", "ns")] == [4, 4 * 300_000]
    if SHARED:
        (sync,) = [at for at, one in enumerate(drawings[EXPERTS][0], 1) if one.code == "implicit-sync"]
        assert shown[EXPERTS][sync][1]["marked"] == 20


class BruteForce:
    """What is between two instants of a recording, in ns since it began, looked at event by event."""

    def __init__(self, profile: Any, origin: int, begin: int, until: int) -> None:
        self.profile, self.trace, self.origin, self.begin, self.until = profile, profile.trace, origin, begin, until
        self.rows: dict[str, list[float]] = {}
        """How many there are of each and their time in it."""
        self._spans: dict[int, list[tuple[int, int]]] = {}
        self._gpu()
        self._cpu()

    def _add(self, kind: str, name: str, part: Any, i: int) -> tuple[int, int] | None:
        start, end = part.start[i] - self.origin, part.end[i] - self.origin
        low, high = max(start, self.begin), min(end, self.until)
        if not (high > low or (start == end and self.begin <= start < self.until)):
            return None
        row = self.rows.setdefault(f"{kind} {name}", [0, 0])
        row[0] += 1
        row[1] += high - low
        return low, high

    def _gpu(self) -> None:
        gpu, trace = self.trace.gpu, self.trace
        for i in range(len(gpu)):
            spans = self._spans.setdefault(trace.device_of[gpu.process[i]], [])
            if gpu.kind[i] == KERNEL:
                inside = self._add("kernels", self.profile.launching.decoded(i).family_shown, gpu, i)
            else:
                inside = self._add("copies", trace.names[gpu.name[i]], gpu, i)
            spans += [] if inside is None else [inside]

    def _cpu(self) -> None:
        trace, launching = self.trace, self.profile.launching
        computing = {op for part in launching.parts for op in part.operators}
        for op in range(len(trace.ops)):
            self._add("operators", trace.names[trace.ops.name[op]], trace.ops, op)
            if op in computing:
                self._add("kernels", launching.decoded_operator(op).family_shown, trace.ops, op)
        copies = waiting_copies(trace, range(len(trace.gpu)))
        for call in {*trace.blocking, *(trace.links.call_of[i] for i in copies)} - {trace.flush}:
            self._add("waits", trace.names[trace.calls.name[call]], trace.calls, call)

    @property
    def busy(self) -> float | None:
        """The share in which a GPU ran something, the mean over GPUs; None without any."""
        covered = 0
        for spans in self._spans.values():
            edges = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
            running = 0
            for (instant, change), (following, _) in pairwise([*edges, (0, 0)]):
                running += change
                covered += following - instant if running else 0
        return covered / len(self._spans) / (self.until - self.begin) if self._spans else None


@needs_chromium
def test_a_selection_sums_up_what_is_in_it(browser, profiles, drawings):
    assert drawings
    for name, profile in profiles.items():
        length = int(
            browser.run(
                f"(async () => {{ window.chosen = Timeline.read(await unpack({json.dumps(name)})); return chosen.endNs; }})()"
            )
        )
        trace = profile.trace
        parts = (trace.annotations, trace.frames, trace.ops, trace.calls, trace.overheads, trace.gpu)
        origin = min(min(part.start) for part in parts if len(part))
        draw = random.Random(name)
        for _ in range(3):
            begin, until = sorted(draw.sample(range(max(length, 10)), 2))
            shown = browser.run(
                f"(() => {{ const found = Selection.sum(chosen, {begin}, {until}); return [found.busy, "
                "found.rows.map(({kind, name, count, ns}) => [`${kind} ${name}`, count, ns])]; })()"
            )
            forced = BruteForce(profile, origin, begin, until)
            assert {row: [count, ns] for row, count, ns in shown[1]} == forced.rows, (name, begin, until)
            assert shown[0] == (None if forced.busy is None else pytest.approx(forced.busy, abs=1e-9))


def words_of(profile):
    """Return what is searched: what is drawn in many recordings, the operator of most kernels, a module and a line.

    And a label that no name has in it, as it stands in the drawing.
    """
    origins, launching = profile.launching.origins, profile.launching
    names, name_of = profile.trace.names, profile.trace.ops.name
    operators = Counter(names[name_of[op]] for op in launching.op_of if op >= 0)
    kernels = [i for i, kind in enumerate(profile.trace.gpu.kind) if kind == KERNEL]
    raw = "\n".join(names).lower()
    labels = Counter(short for i in kernels if (short := launching.decoded(i).short).lower() not in raw)
    words = ["pointwise", "copy", *(name for known in (labels, operators) for name, _ in known.most_common(2))]
    if not origins.recorded:
        return [*words, "gemm", "AddMM"]
    calls = zip(profile.trace.links.call_of, launching.op_of, strict=True)
    known = [origin for call, op in calls if (origin := origins.of_call(call, op)) is not None]
    modules = Counter(origin.module.rpartition(".")[2] for origin in known if origin.module)
    lines = Counter(origin.file_line for origin in known if origin.file_line)
    return [*words, *(word for known in (modules, lines) for word, _ in known.most_common(1))]


def texts_of(profile):
    """Return what is told of slices of a recording, and of how many each."""
    trace, launching = profile.trace, profile.launching
    origins, computing = launching.origins, {op for part in launching.parts for op in part.operators}
    waits = {*trace.blocking, *(trace.links.call_of[i] for i in waiting_copies(trace, range(len(trace.gpu))))} - {
        trace.flush
    }
    counted = Counter(
        name for part in (trace.annotations, trace.frames, trace.overheads, trace.gpu_annotations) for name in part.name
    )
    told = Counter({(name, None, None, None, ""): count for name, count in counted.items()})
    for i, name in enumerate(trace.calls.name):
        told[name, None, None, None, "waits" if i in waits else ""] += 1
    for i, name in enumerate(trace.ops.name):
        decoded = launching.decoded_operator(i) if i in computing else None
        told[name, None, decoded, origins.of_operator(i) if origins.recorded else None, ""] += 1
    for i, name in enumerate(trace.gpu.name):
        decoded = launching.decoded(i) if trace.gpu.kind[i] == KERNEL else None
        origin = origins.of_call(trace.links.call_of[i], launching.op_of[i]) if origins.recorded else None
        operator = trace.ops.name[launching.op_of[i]] if launching.op_of[i] >= 0 else None
        told[name, operator, decoded, origin, "" if decoded else "copy"] += 1
    texts = Counter()
    for (name, operator, decoded, origin, word), count in told.items():
        variant = decoded and [decoded.family_shown, decoded.library, decoded.dtype, decoded.layout, decoded.short]
        each = [
            trace.names[name],
            "" if operator is None else trace.names[operator],
            word,
            str(origin or ""),
            *filter(None, variant or ()),
        ]
        texts["\n".join(each).lower()] += count
    return texts


SEARCHED = """async (words) => {
  const counted = {}, element = document.getElementById("t");
  for (const name of Object.keys(words)) {
    const view = Timeline.draw(element, [Timeline.read(await unpack(name))]), search = element.querySelector("input");
    counted[name] = {};
    for (const word of words[name]) {
      search.value = word;
      search.dispatchEvent(new Event("input"));
      counted[name][word] = Number(element.dataset.marked);
    }
    view.destroy();
  }
  return counted;
}"""


@needs_chromium
def test_search_finds_families_labels_modules_lines_and_what_else_is_told_of_a_slice(browser, profiles, drawings):
    assert drawings
    # A repeat, where a test has made one, tells more than its recording does.
    words = {name: words_of(profile) for name, profile in profiles.items() if profile.repeat is None}
    counted = browser.run(f"({SEARCHED})({json.dumps(words)})")
    for name, typed in words.items():
        texts = texts_of(profiles[name])
        for word in typed:
            expected = sum(count for text, count in texts.items() if word.lower() in text)
            assert counted[name][word] == expected, (name, word)
    assert any(" " in word and count for typed in counted.values() for word, count in typed.items()), "a label"
    if SHARED:
        *_, module, line = words["h100_bert_small.json.gz"][-3:]
        assert counted["h100_bert_small.json.gz"]["aten::addmm"] == 2 * 26
        assert (module, line) == ("BertModel_0", "transformers/models/bert/modeling_bert.py:364")
        assert min(counted["h100_bert_small.json.gz"].values()) > 0


# A page of a recording, used as a reader does.


def waiting() -> TraceBuilder:
    """Return a recording of three steps, the second one the longest, in which the GPU waits and the CPU once."""
    builder = TraceBuilder()
    begin = 0.0
    for step, gap in enumerate((100, 160, 120)):
        at = begin + 10
        for number in range(8):
            builder.launched(
                "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)",
                at,
                op="aten::add",
                dur=20,
                grid=[number + 1, 2, 1],
                block=[128, 1, 1],
                **{"registers per thread": 32, "shared memory": 2048},
            )
            at += gap
        builder.op("aten::item", at, 60)
        builder.sync(at + 5, 50, what="stream sync")
        builder.step(step, begin, at + 80 - begin)
        begin = at + 200
    builder.event("gpu_user_annotation", "forward", 20, 50, pid=0, tid=7)
    return builder


@pytest.fixture(scope="module")
def opened(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    path = waiting().write(folder / "t.json")
    assert main(["report", str(path), "-o", str(folder / "t.html")]) == 0

    def open_(**look: Any) -> Browser:
        browser.requests.clear()
        browser.complaints.clear()
        browser.open(folder / "t.html", **{"width": 1200, **look})
        browser.run("document.querySelector('.timeline').scrollIntoView()")
        browser.wait("document.querySelector('.timeline').dataset.frames > 0")
        return browser

    return open_


def data(browser: Browser, name: str) -> float:
    return float(browser.run(f"document.querySelector('.timeline').dataset.{name}"))


def text(browser: Browser, selector: str) -> str:
    return browser.run(f"document.querySelector({json.dumps(selector)}).innerText")


def settled(browser: Browser) -> None:
    browser.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def keys(browser: Browser, *pressed: str) -> None:
    browser.run("document.querySelector('.timeline canvas').focus({preventScroll: true})")
    for key in pressed:
        browser.press(key)
    settled(browser)


def drag(browser: Browser, begin: float, until: float, *, y: float = 60, shift: bool = False) -> None:
    """Drag over the drawing between two shares of its width."""
    left, top, width = browser.run(
        "(() => { const b = document.querySelector('.timeline canvas').getBoundingClientRect(); return [b.x, b.y, b.width]; })()"
    )
    modifiers = 8 if shift else 0
    for kind, share in (
        ("mousePressed", begin),
        ("mouseMoved", (begin + until) / 2),
        ("mouseMoved", until),
        ("mouseReleased", until),
    ):
        browser._call(
            "Input.dispatchMouseEvent", type=kind, x=left + share * width, y=top + y, button="left", buttons=1,
            clickCount=1, modifiers=modifiers,
        )  # fmt: skip
    settled(browser)


@needs_chromium
def test_the_headline_stands_first_and_leads_to_exactly_its_event(opened):
    page = opened()
    assert page.run(
        "document.querySelector('.lead').getBoundingClientRect().top < document.querySelector('nav.sections').getBoundingClientRect().top"
    )
    assert text(page, ".lead").startswith("The GPU idled ")
    assert page.run("[...document.querySelectorAll('nav.sections a')].slice(0, 3).map((a) => a.textContent)") == [
        "Findings",
        "Numbers",
        "Timeline",
    ]
    page.click(".lead a")
    page.wait("document.querySelector('.timeline').dataset.marked === '1'")
    settled(page)
    told = text(page, ".timeline .tl-pane")
    assert told.startswith("The GPU idles")
    longest = re.search(r"The longest (?:gap|of [\d,]+ gaps), ([\d.]+ \w+)", text(page, ".lead"))[1]
    assert f"lasts\n{longest}" in told
    length = float(longest.split()[0]) * {"us": 1e3, "ms": 1e6}[longest.split()[1]]
    assert data(page, "markedNs") == pytest.approx(length, rel=0.01)
    # It fills most of the view, and the view is on the screen.
    assert 0.4 < length / (data(page, "toNs") - data(page, "fromNs")) < 1
    assert 0 <= page.run("document.querySelector('.timeline canvas').getBoundingClientRect().top") < 900
    assert (page.complaints, page.requests) == ([], [])


@needs_chromium
def test_an_address_leads_to_the_events_of_a_finding(opened):
    page = opened(fragment="#0/show-1")
    page.wait("document.querySelector('.timeline').dataset.marked > 0")
    first = text(page, ".findings li h4")
    assert re.search(r" could save up to [\d.]+ .?s", first), first
    assert first.split(" could save")[0] in text(page, ".timeline .tl-pane")


@needs_chromium
def test_what_is_marked_of_a_finding_is_counted_and_its_time_stands_in_its_sentence_alone(opened):
    page = opened()
    codes = page.run("[...document.querySelectorAll('.findings li')].map((li) => li.querySelector('code').textContent)")
    page.run(
        f"document.querySelectorAll('.findings li')[{codes.index('implicit-sync')}].querySelector('button').click()"
    )
    page.wait("document.querySelector('.timeline')?.dataset.marked > 0")
    assert text(page, ".tl-found") == "3 found"


@needs_chromium
def test_three_findings_are_shown_and_the_others_are_a_click_away(browser, tmp_path):
    words = ("code", "title", "message")
    findings = [{"finding": "other", **dict.fromkeys(words, f"finding-{number}")} for number in range(5)]
    browser.open(write(tmp_path / "run.html", result(findings=findings)))
    shown = "[...document.querySelectorAll('.findings li')].filter((e) => e.checkVisibility()).length"
    assert browser.run(shown) == 3
    browser.click(".more-findings summary")
    assert browser.run(shown) == 5


@needs_chromium
def test_a_drag_selects_and_sums_and_with_shift_it_pans(opened):
    page = opened()
    keys(page, "0")
    begin, width = data(page, "fromNs"), data(page, "toNs") - data(page, "fromNs")
    drag(page, 0.25, 0.75)
    assert data(page, "fromNs") == begin
    length = page.run(f"Recording.timeText({width / 2})")
    assert text(page, ".tl-sums strong").startswith(f"{length} selected, the GPU busy")
    kinds = page.run("[...document.querySelectorAll('.tl-sums tbody tr')].map((row) => row.cells[0].textContent)")
    assert kinds[0] == "kernels"
    assert "operators" in kinds
    copied = page.run(
        """new Promise((done) => {
          navigator.clipboard.writeText = (text) => { done(text); return Promise.resolve(); };
          document.querySelector('.tl-sums .data .quiet').click();
        })"""
    )
    assert copied.splitlines()[0].split("\t") == ["what", "name", "how many", "time in it", "of the selection"]
    assert copied.splitlines()[1].startswith("kernels\tpointwise\t")
    keys(page, "Escape")
    assert page.run("document.querySelector('.tl-sums').hidden")
    drag(page, 0.5, 0.25, shift=True)
    assert data(page, "fromNs") == pytest.approx(begin + width / 4, rel=0.05)
    keys(page, "0", "x")
    assert "selected" in text(page, ".tl-sums strong")
    keys(page, "Escape")


@needs_chromium
def test_gaps_and_waits_tell_their_findings_where_they_are_drawn(opened):
    page = opened()
    keys(page, "0")
    legend = text(page, ".tl-legend")
    assert "the CPU waits for the GPU" in legend
    assert "the GPU idles" in legend
    rows = page.run(
        "[document.querySelector('.timeline canvas').getBoundingClientRect()].map((b) => [b.x, b.y, b.width, b.height])[0]"
    )
    # The lane of the GPU is the lowest one; between two kernels it idles.
    said = set()
    for share in range(20, 60):
        page._call(
            "Input.dispatchMouseEvent", type="mouseMoved", x=rows[0] + rows[2] * share / 100, y=rows[1] + rows[3] - 14
        )
        settled(page)
        if not page.run("document.querySelector('.tl-tip').hidden"):
            said.add(text(page, ".tl-tip").splitlines()[0])
    assert "The GPU idles" in said
    assert any("pointwise" in one for one in said)


@needs_chromium
def test_the_step_shown_first_is_the_longest_by_the_number_beside_it(opened):
    page = opened()
    options = page.run("[...document.querySelectorAll('.timeline select option')].map((one) => one.textContent)")
    first, *steps = options

    def length(option):
        number, unit = option.rpartition(", ")[2].split()
        return float(number) * {"us": 1, "ms": 1e3}[unit]

    assert first.startswith("the longest step: ")
    assert length(first) == max(map(length, steps))
    assert "ProfilerStep#1" in first
    assert steps[1].startswith(f"step 2 of {len(steps)}, ProfilerStep#1, "), (
        "as failures number it, and as it is recorded"
    )


@needs_chromium
def test_a_kernel_tells_how_it_was_launched(opened):
    page = opened()
    keys(page, "0", "/", *"pointwise")
    page.press("Enter")
    settled(page)
    told = text(page, ".timeline .tl-pane")
    assert re.search(r"grid\n\d x 2 x 1", told)
    for fact in ("block\n128 x 1 x 1", "registers\n32 per thread", "shared memory\n2.00 KiB", "occupancy\n50.0 %"):
        assert fact in told


@needs_chromium
def test_an_operator_is_found_with_the_kernels_that_it_launched(opened):
    page = opened()
    keys(page, "0", "/", *"aten::add")
    assert data(page, "marked") == 24 + 24


@needs_chromium
def test_times_without_any_event_are_shown_in_all_lanes(browser, tmp_path):
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    for at, dur in ((0, 10), (600, 380)):
        builder.launched("kernel", at, dur=dur)
    path = builder.write(tmp_path / "silent.json")
    assert main(["report", str(path), "-o", str(tmp_path / "silent.html")]) == 0
    browser.complaints.clear()
    browser.open(tmp_path / "silent.html", width=1200)
    browser.wait("document.querySelector('.timeline').dataset.frames > 0")
    browser.run(
        "[...document.querySelectorAll('.findings li')].find((one) => one.innerText.includes('nothing-recorded')).querySelector('a, button').click()"
    )
    browser.wait("document.querySelector('.timeline').dataset.marked === '2'")
    settled(browser)
    # From the end of the first kernel to the next operator, and behind the last kernel.
    assert data(browser, "markedNs") == 582_000 + 12_000
    assert text(browser, ".timeline .tl-pane").startswith("Nothing is recorded")
    assert "582 us" in text(browser, ".timeline .tl-pane")
    told = browser.run(
        """(() => {
          const canvas = document.querySelector(".timeline canvas"), box = canvas.getBoundingClientRect(), heads = new Set();
          const {fromNs, toNs} = canvas.closest(".timeline").dataset, x = box.x + (300000 - fromNs) / (toNs - fromNs) * box.width;
          for (let y = 30; y < box.height; y += 4) {
            canvas.dispatchEvent(new PointerEvent("pointermove", {clientX: x, clientY: box.y + y}));
            const tip = document.querySelector(".tl-tip");
            if (!tip.hidden) heads.add(tip.innerText.split("\\n")[0]);
          }
          return [...heads];
        })()"""
    )
    assert told == ["ProfilerStep#0", "Nothing is recorded"]
    assert browser.complaints == []


@needs_chromium
def test_ranges_around_work_of_the_gpu_are_drawn(opened):
    page = opened()
    keys(page, "0", "/", *"forward")
    assert data(page, "marked") == 1
    page.press("Enter")
    settled(page)
    assert "stream 7, ranges" in text(page, ".timeline .tl-pane")
    keys(page, "0")
    assert text(page, ".tl-status").endswith("No slice is left out.")


@needs_chromium
@pytest.mark.parametrize(("width", "gap"), [(1280, " " * 13), (600, " "), (360, " ")])
def test_on_a_phone_columns_of_a_failure_leave_no_holes(browser, tmp_path, width, gap):
    line = f"  max_kernels=3{' ' * 13}4 kernels in step 1 of 5"
    browser.open(write(tmp_path / "run.html", result(outcome=Outcome.FAILED, message=line)), width=width, height=800)
    assert f"max_kernels=3{gap}4 kernels" in text(browser, ".message pre")
    # What is copied, and that the line is indented, is as before.
    assert browser.run("document.querySelector('.message pre').textContent") == f"{line}\n"
    indent = """((line, range) => (range.setStart(line.firstChild, 2), range.setEnd(line.firstChild, 3),
      range.getBoundingClientRect().left - line.getBoundingClientRect().left))"""
    assert browser.run(f"{indent}(document.querySelector('.line'), document.createRange())") > 10


@needs_chromium
def test_on_a_phone_nothing_is_cut(browser, opened, tmp_path):
    opened()
    failed = result(outcome=Outcome.FAILED, message="max_kernels=4: 5 kernels, " + "a long line " * 30)
    page = write(tmp_path / "run.html", failed, result(1))
    for width in (360, 390):
        opened(width=width, height=800)
        assert (browser.cut(), browser.sideways()) == ([], [])
        browser.open(page, width=width, height=800)
        assert (browser.cut(), browser.sideways()) == ([], [])


@needs_chromium
def test_a_failure_is_there_to_its_end_without_scrolling(browser, tmp_path):
    rows = [f"    + pointwise add_{number}: 1 per step" for number in range(24)]
    lines = ["worse than the baseline", *rows, "  do: see what changed, " + "or accept it " * 20]
    failed = result(outcome=Outcome.FAILED, message="\n".join(lines))
    browser.open(write(tmp_path / "run.html", failed), width=1280)
    beyond = "(({scrollWidth, clientWidth, scrollHeight, clientHeight}) => [scrollWidth - clientWidth, scrollHeight - clientHeight])"
    assert browser.run(f"{beyond}(document.querySelector('.message pre'))") == [0, 0]
    assert browser.run("document.querySelector('.message pre').textContent") == "\n".join([*lines, ""])
    # What is wrapped goes on to the right of where its line begins.
    wrapped = "document.querySelector('.message pre').lastElementChild"
    pieces = f"((piece) => (piece.selectNodeContents({wrapped}), [...piece.getClientRects()].map(({{left}}) => left)))"
    first, second, *_ = browser.run(f"{pieces}(document.createRange())")
    assert second > first


@needs_chromium
def test_the_first_tab_leads_past_the_list(browser, tmp_path):
    page = write(tmp_path / "run.html", *(result(i) for i in range(30)))
    browser.open(page)
    browser.press("Tab")
    assert browser.run("document.activeElement.className") == "skip"
    assert browser.run("document.activeElement.getBoundingClientRect().left") >= 0
    browser.press("Enter")
    browser.wait("document.activeElement.id === 'details'")
    assert browser.run("document.querySelector('#details h2').textContent") == "passedtests/test_model.py::test_0"


@needs_chromium
def test_a_difference_of_one_percent_has_no_colour(browser, tmp_path):
    times = {"before": 10000, "more": 10100, "less": 9900, "slow": 20000, "fast": 5000}
    for name, dur in times.items():
        builder = TraceBuilder()
        builder.launched("ampere_sgemm_128x64_tn", 0, dur=dur)
        builder.launched("ampere_sgemm_128x64_nn", 50, dur=dur, wait=dur)
        builder.write(tmp_path / f"{name}.json")
    for name, colours in (("more", set()), ("less", set()), ("slow", {"bad"}), ("fast", {"good"})):
        page = tmp_path / f"{name}.html"
        arguments = [
            "report",
            str(tmp_path / f"{name}.json"),
            "--against",
            str(tmp_path / "before.json"),
            "-o",
            str(page),
        ]
        assert main(arguments) == 0
        browser.open(page)
        classes = browser.run(
            "[...document.querySelectorAll('.ratio, td.bad, td.good')].flatMap((e) => [...e.classList])"
        )
        assert {"bad", "good"}.intersection(classes) == colours, (name, classes)


def test_what_is_not_measured_is_no_zero(tmp_path):
    builder = TraceBuilder()
    builder.launched("kernel", 0)
    builder.launch(100)
    assert main(["report", str(builder.write(tmp_path / "t.json")), "-o", str(tmp_path / "t.html")]) == 0
    (told,) = Page((tmp_path / "t.html").read_text()).details
    assert told["outcome"] == "not measured"
    assert told["headline"]["what"].startswith("Not measured: 1 of 2 launches")
    assert told["numbers"]
    assert all(values == [None, None, None] for *_, values in [(row[:3], row[3:6]) for row in told["numbers"]])


def test_a_test_whose_code_raised_is_an_error(run_tests, pytester):
    source = """
    @pytest.mark.torchprof(device="cpu", max_kernels=9)
    def test_raises():
        x.sin()
        raise ValueError("mine")

    @pytest.mark.torchprof(device="cpu", max_kernels=0)
    def test_misses():
        x.sin()

    @pytest.mark.torchprof(device="cpu")
    def test_raises_later(torchprof):
        with torchprof.measure("sin") as m:
            for _ in m.steps():
                x.sin()
        raise ValueError("mine")

    @pytest.mark.torchprof(device="cpu")
    def test_expects(torchprof):
        torchprof(torch.sin, x).expect(max_kernels=0)
    """
    run = run_tests(dedent(source), "--torchprof-report=out.html")
    run.assert_outcomes(failed=4)
    run.stdout.fnmatch_lines(["4 failed (2 with an error of their own)"])
    page = Page((pytester.path / "out.html").read_text())
    verdicts = {told["name"].rpartition("::")[2].partition(" ")[0]: told["outcome"] for told in page.details}
    assert verdicts["test_misses"] == verdicts["test_expects"] == "failed"
    assert verdicts["test_raises"] == verdicts["test_raises_later"] == "error"
    assert [attrs["data-outcome"] for tag, attrs in page.elements if tag == "tr" and "data-outcome" in attrs] == [
        "failed",
        "failed",
        "error",
        "error",
    ]


@needs_chromium
def test_a_run_without_a_measured_test_has_a_page_that_says_so(browser, run_tests, pytester):
    run_tests("def test_plain(): pass", "--torchprof-report=out.html").assert_outcomes(passed=1)
    browser.complaints.clear()
    browser.open(pytester.path / "out.html")
    assert text(browser, ".lead") == "No test was measured."
    assert "@pytest.mark.torchprof" in text(browser, "main")
    assert browser.complaints == []


# Colours.


KINDS = {
    "attention": "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4> >(Flash_fwd_params)",
    "communication": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "conv": "sm80_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x64x32",
    "gemm": "ampere_sgemm_128x64_tn",
    "index": "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>(int)",
    "normalization": "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)",
    "not known": "my_kernel",
    "optimizer": "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float, 4> >(int)",
    "pointwise": "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)",
    "reduction": "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::sum_functor<float, float, float> > >(int)",
    "rng": "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>(int)",
    "softmax": "void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, false, false>(float*)",
    "sort": "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<float> >(int)",
}
"""A kernel of each kind; copies and waits are kinds, too, and have no kernel."""
# What is filled while a drawing is painted, as [colour, the pattern over it or null], each once.
FILLED = """(async () => {
  const element = document.querySelector(".timeline"), recording = Timeline.read(await unpack("recording-0"));
  const pen = CanvasRenderingContext2D.prototype, {createPattern, fillRect} = pen, tiles = new Map(), filled = [];
  pen.createPattern = function (tile, ...rest) {
    const pattern = createPattern.call(this, tile, ...rest), at = tile.getContext("2d").getImageData(0, 0, tile.width, tile.height).data;
    // Where the tile has ink, whichever ink it is.
    tiles.set(pattern, Array.from(at).filter((_, i) => i % 4 === 3).map((alpha) => (alpha > 20 ? "#" : ".")).join(""));
    return pattern;
  };
  pen.fillRect = function (x, y, wide, tall) {
    const box = [x, y, wide, tall].join(), last = filled[filled.length - 1];
    if (typeof this.fillStyle === "string") filled.push({box, kind: [this.fillStyle, null]});
    else if (last && last.box === box) last.kind[1] = tiles.get(this.fillStyle);
    return fillRect.call(this, x, y, wide, tall);
  };
  const wait = requestAnimationFrame;
  requestAnimationFrame = (paint) => paint();
  DRAW;
  requestAnimationFrame = wait;
  Object.assign(pen, {createPattern, fillRect});
  return [...new Set(filled.map(({kind}) => JSON.stringify(kind)))].map((kind) => JSON.parse(kind));
})()"""
DRAWN = {
    "Timeline": ("Timeline.draw(element, [recording])", {"copy", "wait"}),
    "Flame": ("Flame.draw(element, recording)", {"copy"}),
}
"""How a drawing is made, and the kinds in it that have no kernel."""


@needs_chromium
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("drawing", DRAWN)
def test_kinds_are_painted_with_a_pattern_where_their_colours_are_close(browser, tmp_path, drawing, dark):
    builder = TraceBuilder()
    for number, name in enumerate(KINDS.values()):
        builder.launched(name, 100 * number, op=f"mine::op{number}", dur=80)
    builder.op("aten::copy_", 2000, 20)
    builder.memcpy("HtoD", 2010, 80, builder.call("copy", 2005))
    builder.sync(2020, 90, what="stream sync")
    page = tmp_path / "kinds.html"
    assert main(["report", str(builder.write(tmp_path / "kinds.json")), "-o", str(page)]) == 0
    browser.open(page, width=1600, dark=dark)
    browser.wait("document.querySelector('.timeline').dataset.frames > 0")
    how, others = DRAWN[drawing]
    filled = browser.run(FILLED.replace("DRAW", how))
    style = "(name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()"
    kinds = {*KINDS, *others}
    colours = {kind: browser.run(f"({style})('--f-{'other' if kind == 'not known' else kind}')") for kind in kinds}
    painted = {tuple(kind) for kind in filled if kind[0] in colours.values()}
    assert len(painted) == len(kinds)
    for (one, pattern), (other, another) in combinations(sorted(painted, key=str), 2):
        apart = min(distance(one, other, kind) for kind in BLINDNESS)
        assert apart >= 10 or pattern != another, (one, other, apart)


@needs_chromium
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_parts_of_a_step_are_told_by_a_pattern_where_their_colours_are_close(browser, tmp_path, dark):
    builder = TraceBuilder()
    builder.step(0, 0, 2000)
    builder.op("aten::randn", 0, 100)
    builder.launched(KINDS["gemm"], 200, dur=100)
    builder.launched(KINDS["communication"], 400, dur=100)
    builder.memcpy("HtoD", 610, 100, builder.call("copy", 605))
    builder.memset(810, 100, builder.call("fill", 805))
    builder.sync(1000, 100, what="stream sync")
    builder.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1200, 100)
    page = tmp_path / "parts.html"
    assert main(["report", str(builder.write(tmp_path / "parts.json")), "-o", str(page)]) == 0
    browser.open(page, dark=dark)
    parts = browser.fills(".strip > *")
    assert len(parts) == 8
    for (one, pattern), (other, another) in combinations(parts, 2):
        apart = min(distance(one, other, kind) for kind in BLINDNESS)
        assert apart >= 10 or pattern != another, (one, other, apart)


def test_the_distance_of_colours_is_that_of_the_standard():
    """Pairs from the data of Sharma, Wu and Dalal."""
    for one, other, apart in (
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ):
        assert ciede2000(one, other) == pytest.approx(apart, abs=1e-4)
