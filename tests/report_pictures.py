"""The documentation's pictures of the report: ``python tests/report_pictures.py RECORDING SLOWER FASTER`` makes them anew."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from browser import Browser

from pytest_torchprof.cli import main

PICTURES = Path(__file__).parents[1] / "docs" / "static"


def make(recording: str, slower: str, faster: str) -> None:
    """Write both pictures: a recording's timeline and kernels, and what changed between two of them."""
    with tempfile.TemporaryDirectory() as scratch, Browser() as browser:
        one, pair = Path(scratch) / "one.html", Path(scratch) / "pair.html"
        main(["report", recording, "-o", str(one)])
        main(["report", slower, "--against", faster, "-o", str(pair)])
        drawn = "document.querySelector('.timeline').dataset.slices > 0"
        browser.open(one, width=1120, height=1180)
        browser.wait(drawn)
        browser.screenshot(PICTURES / "report.png")
        browser.open(pair, width=1120, height=760, dark=True)
        browser.screenshot(PICTURES / "report-changes.png")


if __name__ == "__main__":
    make(*sys.argv[1:])
