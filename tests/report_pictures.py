"""The documentation's pictures of the report: ``python tests/report_pictures.py RECORDING SLOWER FASTER JOB HISTORY FLEET`` makes them anew."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from browser import Browser

from pytest_torchprof.cli import main

PICTURES = Path(__file__).parents[1] / "docs" / "static"


def make(recording: str, slower: str, faster: str, job: str, history: str, fleet: str) -> None:
    """Write the pictures: a recording's top, a selection, its flames, changes, the ranks of a job, a history, a fleet."""
    with tempfile.TemporaryDirectory() as scratch, Browser() as browser:
        one, pair, ranks, kept, judged = (Path(scratch) / f"{number}.html" for number in range(5))
        main(["report", recording, "-o", str(one)])
        main(["report", slower, "--against", faster, "-o", str(pair)])
        main(["report", job, "-o", str(ranks)])
        main(["history", "page", history, "-o", str(kept)])
        main(["fleet", "report", fleet, "-o", str(judged)])
        drawn = "document.querySelector('.timeline').dataset.slices > 0"
        browser.open(one, width=1120, height=1180)
        browser.wait(drawn)
        browser.screenshot(PICTURES / "report.png")
        for section, height in (("timeline", 1240), ("flame", 380)):
            browser.open(one, width=1120, height=height, fragment=f"#0/{section}")
            browser.wait(drawn)
            if section == "timeline":
                browser.run("document.querySelector('.timeline canvas').focus({preventScroll: true})")
                browser.press("x")
            browser.screenshot(PICTURES / f"report-{section}.png")
        browser.open(pair, width=1120, height=760, dark=True)
        browser.screenshot(PICTURES / "report-changes.png")
        browser.open(ranks, width=1120, height=640, fragment="#0/ranks")
        browser.screenshot(PICTURES / "report-ranks.png")
        browser.open(kept, width=1120, height=560)
        browser.screenshot(PICTURES / "history-page.png")
        browser.open(judged, width=1440, height=560)
        browser.screenshot(PICTURES / "fleet-page.png")


if __name__ == "__main__":
    make(*sys.argv[1:])
