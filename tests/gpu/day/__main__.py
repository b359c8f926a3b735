"""Ask a GPU all that only a GPU can tell, in half an hour: python tests/gpu/day --out FOLDER [PART ...]."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import apart
from claims import ROOT
from day import Day
from plan import Plan
from processes import end_all, import_once
from steps import steps

if TYPE_CHECKING:
    from steps import Step

_EPILOG = "A PART is a step's name or what it begins with: questions, questions/head, tests/capture."


def main() -> None:
    """Do the steps that are asked for and were not yet done, and say after each what was found so far."""
    began, asked = time.monotonic(), _arguments()
    # A shell's background jobs ignore SIGINT, and so would all steps, which are asked by it to say what they have found.
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, signal.default_int_handler)
    planned = [step for step in steps(quick=asked.quick) if step.is_asked_for(asked.parts)]
    if not planned:
        sys.exit(f"no step is called {' or '.join(asked.parts)}; --list shows all")
    if asked.list:
        for step in planned:
            sys.stdout.write(f"{step.name:<40} {step.limit_s:>4} s  {'alone' if step.alone else '':<5}  {step.asks}\n")
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        day = Day(asked.out.resolve(), Path(work), quick=asked.quick)
        if asked.wheels:
            day.install(asked.wheels.resolve())
        if asked.quick:
            import_once(day.python)
        os.chdir(ROOT)
        behind = apart.found(day.python, Path(work)) if asked.at_once > 1 else None
        left = [step for step in planned if not day.has_ended(step)]
        _do(Plan.of(left, asked.at_once, locks=behind is not None), day, behind or (), began + asked.limit_s)
    sys.stdout.write(f"{time.monotonic() - began:.0f} s; {asked.out.resolve() / 'summary.md'}\n")


def _do(plan: Plan, day: Day, behind: tuple[str, ...], until: float) -> None:
    """Do the steps side by side, each with a lock of its own behind this command, and then those by themselves."""
    sys.stdout.writelines(f"{line}\n" for line in plan.said(until - time.monotonic()))
    sys.stdout.flush()
    day.expect((*plan.beside, *plan.alone))

    def do(step: Step, behind: tuple[str, ...] | None = None) -> None:
        day.do(step, until - time.monotonic(), behind)
        day.write()

    with ThreadPoolExecutor(plan.at_once) as pool:
        try:
            for one in [pool.submit(do, step, behind) for step in plan.beside]:
                one.result()
            for step in plan.alone:
                pool.submit(do, step).result()
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            end_all()
            raise


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python tests/gpu/day", description=__doc__, epilog=_EPILOG)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--out", type=Path, help="where results are written; what ended there is not done again")
    parser.add_argument("--limit-s", type=float, default=1800, help="end after so many seconds (1800)")
    parser.add_argument(
        "--at-once",
        type=int,
        default=1,
        metavar="N",
        help="do so many steps side by side (1), and behind them by themselves those about times or other processes",
    )
    parser.add_argument(
        "--wheels", type=Path, help="install what is needed of these wheels first, into an environment of their own"
    )
    parser.add_argument(
        "--quick", action="store_true", help="try the script itself: as little as possible of each step"
    )
    parser.add_argument("--list", action="store_true", help="list the steps, and do nothing")
    asked = parser.parse_args()
    if not asked.list and asked.out is None:
        parser.error("--out FOLDER is needed")
    if asked.at_once < 1:
        parser.error("--at-once takes a number from 1")
    return asked


if __name__ == "__main__":
    main()
