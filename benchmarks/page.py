"""How fast the report's page is: its first paint, the drawing of a large recording, panning, and its size.

    python benchmarks/page.py RECORDING [--tests 2000] [--rounds 5]

Needs Chromium. Prints medians over rounds, each with a page that was not loaded before:

- of a page with so many tests, the time to its first paint and until its script is done, and what that takes of the
  main thread;
- of the recording's page, the same, then the time of the main thread (of a core, as the browser counts it) until the
  whole page is there and until the timeline is drawn, and the time between two frames while the view pans, with what a
  frame takes of the main thread. A browser without a screen draws 60 frames a second: 16.7 ms is as fast as it gets.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from browser import CHROMIUM, Browser  # type: ignore[import-not-found]
from pages import result, write  # type: ignore[import-not-found]

from pytest_torchprof.cli import main as torchprof

FIRST_PAINT = "performance.getEntriesByType('paint').map((entry) => entry.startTime)[0] ?? null"
READY = "document.documentElement.dataset.ready === 'true'"
DRAWN = "document.querySelector('.timeline').dataset.frames > 0"
PAN = """(async () => {
  const canvas = document.querySelector('.timeline canvas'), frames = [];
  const press = (key) => canvas.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
  for (let i = 0; i < 6; i += 1) press('+');
  let last = await new Promise(requestAnimationFrame), direction = 'd';
  for (let i = 0; i < 120; i += 1) {
    if (i % 30 === 0) direction = direction === 'd' ? 'a' : 'd';
    press(direction);
    const now = await new Promise(requestAnimationFrame);
    frames.push(now - last);
    last = now;
  }
  return frames;
})()"""


def main_thread_s(browser: Browser) -> float:
    """Return for how long the page's main thread had a core."""
    metrics = browser.call("Performance.getMetrics")["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


def loaded(browser: Browser, page: Path) -> tuple[float, float]:
    """Load a page; return the ms until its first paint and until its script is done."""
    browser.look(1280, 900)
    browser.call("Page.navigate", url="about:blank")
    browser.call("Page.navigate", url=page.resolve().as_uri())
    browser.wait(READY)
    done = browser.run("performance.now()")
    browser.wait(f"({FIRST_PAINT}) !== null")
    return browser.run(FIRST_PAINT), done


def of_many(page: Path, rounds: int) -> None:
    """Print how fast the page of a run is there."""
    paints, dones, works = [], [], []
    for _ in range(rounds):
        with Browser() as browser:
            browser.call("Performance.enable", timeDomain="threadTicks")
            before = main_thread_s(browser)
            paint, done = loaded(browser, page)
            works.append(main_thread_s(browser) - before)
        paints.append(paint)
        dones.append(done)
    print(f"  first paint {median(paints):.0f} ms, script done {median(dones):.0f} ms")
    print(f"  main thread: {median(works):.2f} s until the page is there")


def of_one(page: Path, rounds: int) -> None:
    """Print how fast a recording's page is there, drawn, and panned."""
    paints, whole, drawn, frames, works = [], [], [], [], []
    for _ in range(rounds):
        with Browser() as browser:
            browser.call("Performance.enable", timeDomain="threadTicks")
            before = main_thread_s(browser)
            paint, _ = loaded(browser, page)
            paints.append(paint)
            whole.append(main_thread_s(browser) - before)
            browser.run("document.querySelector('.timeline').scrollIntoView()")
            browser.wait(DRAWN)
            drawn.append(main_thread_s(browser) - before)
            before = main_thread_s(browser)
            times = browser.run(PAN)
            works.append(1000 * (main_thread_s(browser) - before) / len(times))
            frames += times
    print(f"  first paint {median(paints):.0f} ms")
    print(f"  main thread: {median(whole):.2f} s until the page is there, {median(drawn):.2f} s until the timeline is")
    late = sum(frame > 20 for frame in frames) / len(frames)
    print(f"  panning: {median(frames):.1f} ms a frame in the median, {late:.1%} late, {median(works):.1f} ms of work")


def main() -> None:
    """Measure both pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--tests", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if CHROMIUM is None:
        raise SystemExit("needs Chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        many = write(Path(folder, "many.html"), *(result(number) for number in range(arguments.tests)))
        print(f"{arguments.tests:,} tests, {many.stat().st_size / 1e6:.2f} MB")
        of_many(many, arguments.rounds)
        large = Path(folder, "large.html")
        torchprof(["report", str(arguments.recording), "-o", str(large)])
        print(f"{arguments.recording.name}, {large.stat().st_size / 1e6:.2f} MB")
        of_one(large, arguments.rounds)


if __name__ == "__main__":
    main()
