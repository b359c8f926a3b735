"""Findings are drawn in the timeline unasked, each event at its time, and tell their sentence under the pointer."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from browser import CHROMIUM, Browser
from builder import TraceBuilder

from pytest_torchprof import load
from pytest_torchprof.cli import main
from pytest_torchprof.findings import find

pytestmark = [
    pytest.mark.any_torch,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.usefixtures("quiet_browser"),
]
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, MulFunctor> >(int)"
CHAIN = [(108.0, 158.0), (408.0, 458.0), (708.0, 758.0)]
WAITS = [(1010.0, 1210.0), (1510.0, 1810.0)]
OTHER = (1908.0, 1948.0)
# From the step's start to the end of each launch, which then takes until the kernel runs to reach the GPU.
GAPS = [(0.0, 105.0), (158.0, 405.0), (458.0, 705.0), (758.0, 1905.0)]
"""When what is drawn was recorded, in us since the recording began."""


def recording() -> TraceBuilder:
    """Return a step with three pointwise kernels on one size, two waits of the CPU, and a kernel that is of no finding."""
    builder = TraceBuilder()
    builder.step(0, 0, 2000)
    for start, end in CHAIN:
        builder.launched(MUL, start - 8, dur=end - start, inputs=[((64, 64), (64, 1), "float")])
    for start, end in WAITS:
        builder.op("aten::item", start - 10, end - start + 20)
        builder.sync(start, end - start, what="stream sync")
    builder.launched("void quiet_kernel(float*)", OTHER[0] - 8, op="mine::quiet", dur=OTHER[1] - OTHER[0])
    return builder


class Rectangle(NamedTuple):
    """What was painted: from when to when, in us since the recording began, and at which height of the canvas."""

    start: float
    end: float
    y: float


class Drawn(NamedTuple):
    """The page of the recording, what is painted on it beside slices, and the findings by code."""

    browser: Browser
    gaps: list[Rectangle]
    lines: list[Rectangle]
    slices: list[Rectangle]
    findings: dict


# Patterns and the colour of findings are nobody else's.
PAINTED = """(() => {
  const element = document.querySelector(".timeline"), canvas = element.querySelector("canvas"), pen = CanvasRenderingContext2D.prototype;
  const bad = getComputedStyle(element).getPropertyValue("--bad").trim(), fill = pen.fillRect, painted = {gaps: [], lines: [], slices: []};
  const wait = requestAnimationFrame;
  requestAnimationFrame = (paint) => paint();
  pen.fillRect = function (x, y, wide, tall) {
    const isPattern = typeof this.fillStyle !== "string", isLine = tall === 2 && this.fillStyle === bad;
    const kind = isLine ? "lines" : isPattern && this.globalAlpha < 0.5 ? "gaps" : !isPattern && tall === 17 ? "slices" : null;
    if (kind) painted[kind].push([x, x + wide, y]);
    return fill.call(this, x, y, wide, tall);
  };
  canvas.focus({preventScroll: true});
  canvas.dispatchEvent(new KeyboardEvent("keydown", {key: "0"}));
  pen.fillRect = fill;
  requestAnimationFrame = wait;
  const {fromNs, toNs} = element.dataset, us = (x) => (Number(fromNs) + x / canvas.clientWidth * (toNs - fromNs)) / 1000;
  for (const kind of Object.keys(painted)) painted[kind] = painted[kind].map(([x, end, y]) => [us(x), us(end), y]).sort((a, b) => a[0] - b[0]);
  return painted;
})()"""


@pytest.fixture(scope="module")
def drawn(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    path = recording().write(folder / "t.json")
    assert main(["report", str(path), "-o", str(folder / "t.html")]) == 0
    browser.open(folder / "t.html", width=1200)
    browser.run("document.querySelector('.timeline').scrollIntoView()")
    browser.wait("document.querySelector('.timeline').dataset.frames > 0")
    painted = {kind: [Rectangle(*each) for each in found] for kind, found in browser.run(PAINTED).items()}
    return Drawn(browser, **painted, findings={finding.code: finding for finding in find(load(path))})


def near(times):
    """Return these times as they are painted: within two pixels, of which each is 2 us here."""
    return [pytest.approx(time, abs=4) for time in times]


def under(drawn, rectangle):
    """Return what is told beside the pointer in the middle of a rectangle: all of it, and what is of findings."""
    return drawn.browser.run(
        f"""(() => {{
          const canvas = document.querySelector(".timeline canvas"), box = canvas.getBoundingClientRect(), {{fromNs, toNs}} = canvas.closest(".timeline").dataset;
          const x = box.x + ({(rectangle.start + rectangle.end) * 500} - fromNs) / (toNs - fromNs) * box.width;
          canvas.dispatchEvent(new PointerEvent("pointermove", {{clientX: x, clientY: box.y + {rectangle.y} - 5}}));
          const tip = document.querySelector(".tl-tip"), found = [...tip.querySelectorAll(".tl-finding")].map((one) => one.innerText);
          return tip.hidden ? ["", []] : [tip.innerText, found];
        }})()"""
    )


def sentence(finding):
    return f"{finding.title}: {finding.message}"


def test_the_finding_s_gaps_are_shaded_from_when_to_when_the_gpu_idled(drawn):
    assert drawn.findings["overhead-bound"].gaps == len(GAPS)
    assert [(gap.start, gap.end) for gap in drawn.gaps] == [tuple(near(gap)) for gap in GAPS]


def test_the_waits_and_the_pieces_of_a_chain_have_a_line_each(drawn):
    assert drawn.findings["implicit-sync"].syncs == len(WAITS)
    assert drawn.findings["unfused-pointwise"].count == len(CHAIN)
    assert len(drawn.lines) == len(WAITS) + len(CHAIN)
    starts = [line.start for line in drawn.lines]
    assert starts == near(start for start, _ in [*CHAIN, *WAITS])


def test_the_line_below_a_piece_reaches_to_the_next_one_of_its_chain(drawn):
    ends = [line.end for line in drawn.lines]
    pieces, (last, _), waits = CHAIN[1:], (CHAIN[-1][1], None), [end for _, end in WAITS]
    assert ends == near([*(start for start, _ in pieces), last, *waits])


def test_each_gap_wait_and_piece_tells_its_finding_under_the_pointer(drawn):
    codes = ["unfused-pointwise"] * len(CHAIN) + ["implicit-sync"] * len(WAITS)
    for line, code, (start, end) in zip(drawn.lines, codes, [*CHAIN, *WAITS], strict=True):
        _, about = under(drawn, line._replace(start=start, end=end))
        assert sentence(drawn.findings[code]) in about, (code, start)
    for gap in drawn.gaps:
        whole, about = under(drawn, gap._replace(y=gap.y + 15))
        assert whole.startswith("The GPU idles\n")
        assert sentence(drawn.findings["overhead-bound"]) in about


def test_what_is_of_no_finding_has_no_line_and_no_sentence(drawn):
    (other,) = [each for each in drawn.slices if each.start == pytest.approx(OTHER[0], abs=4)]
    whole, about = under(drawn, other._replace(y=other.y + 15))
    assert "quiet_kernel" in whole
    assert about == []


def test_the_legend_says_what_shades_and_lines_are(drawn):
    told = json.loads(drawn.browser.run("JSON.stringify(document.querySelector('.timeline .tl-legend').innerText)"))
    for entry in ("the CPU waits for the GPU", "the GPU idles, see Findings", "of a finding"):
        assert entry in told
