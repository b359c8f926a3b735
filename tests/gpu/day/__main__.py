"""Ask a GPU all that only a GPU can tell, in half an hour: python tests/gpu/day --out FOLDER [PART ...]."""

from __future__ import annotations

import argparse
import json
import os
import sys
import sysconfig
import tarfile
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

from processes import import_once, run
from steps import ROOT, Step, steps
from summary import DONE, page, rows_by_question, said_by_pytest, said_by_question

_EPILOG = "A PART is a step's name or what it begins with: questions, questions/head, tests/capture."
LATER = "no time left"
FOLDERS = ("logs", "recordings")
CUPTI = "nvidia_cuda_cupti"
NEEDED = ("pytest-torchprof", "hypothesis", "pytest-xdist")
"""What tests and examples import beside torch; wheels.txt has what these need in turn."""
MOST_LINES = 400
"""So many of a step's output are in the summary."""
LEAST_S = 15
"""A step that has less begins in vain."""


def main() -> None:
    """Do the steps that are asked for and were not yet done, and say after each what was found so far."""
    asked = _arguments()
    planned = [step for step in steps(quick=asked.quick) if step.is_asked_for(asked.parts)]
    if not planned:
        sys.exit(f"no step is called {' or '.join(asked.parts)}; --list shows all")
    if asked.list:
        sys.stdout.writelines(f"{step.name:<40} {step.limit_s:>4} s  {step.asks}\n" for step in planned)
        return
    began, out = time.monotonic(), asked.out.resolve()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        day = Day(out, Path(work), quick=asked.quick)
        if asked.wheels:
            day.install(asked.wheels.resolve())
        if asked.quick:
            import_once(day.python)
        os.chdir(ROOT)
        for step in planned:
            if not day.has_ended(step):
                day.do(step, asked.limit_s - (time.monotonic() - began))
                day.write()
    sys.stdout.write(f"{time.monotonic() - began:.0f} s; {out / 'summary.md'}\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python tests/gpu/day", description=__doc__, epilog=_EPILOG)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--out", type=Path, help="where results are written; what ended there is not done again")
    parser.add_argument("--limit-s", type=float, default=1800, help="end after so many seconds (1800)")
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
    return asked


class Day:
    """The results so far, and their files."""

    def __init__(self, out: Path, work: Path, *, quick: bool) -> None:
        """Go on where an earlier call has stopped."""
        self._out, self._work, self._quick = out, work, quick
        self._python = sys.executable
        self._cupti: Path | None = None
        out.mkdir(parents=True, exist_ok=True)
        for folder in FOLDERS:
            (work / folder).mkdir()
            if (packed := out / f"{folder}.tar.gz").exists():
                with tarfile.open(packed) as archive:
                    archive.extractall(work, filter="data")
        self._noted = out / "steps.jsonl"
        lines = self._noted.read_text().splitlines() if self._noted.exists() else []
        self._results: dict[str, dict[str, Any]] = {one["step"]: one for one in map(json.loads, lines)}

    @property
    def python(self) -> str:
        """The interpreter of the steps."""
        return self._python

    def has_ended(self, step: Step) -> bool:
        """Whether it was done, in whatever way it ended."""
        return self._results.get(step.name, {"outcome": LATER})["outcome"] != LATER

    def install(self, wheels: Path) -> None:
        """Install what the steps need and this Python lacks, without a network, into an environment of their own.

        A CUPTI among the wheels stays apart: it takes the place of torch's only where that is asked.
        """
        home, apart = self._work / "environment", self._work / "cupti"
        venv.create(home, system_site_packages=True, symlinks=True)
        (packages,) = (home / "lib").glob("python*/site-packages")
        # Where this Python is of an environment itself, the system's packages are not its own.
        own = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
        (packages / "of_this_python.pth").write_text("".join(f"{path}\n" for path in sorted(own)))
        self._python = str(home / "bin" / "python")
        install = ("install", "--quiet", "--no-index", "--find-links", str(wheels))
        self._pip("--python", self._python, *install, "--upgrade", *NEEDED)
        for of_cupti in sorted(wheels.glob(f"{CUPTI}*.whl")):
            self._pip(*install, "--no-deps", "--target", str(apart), str(of_cupti))
        self._cupti = next(iter(sorted(apart.rglob("libcupti.so.*"))), None)

    def _pip(self, *words: str) -> None:
        """Run pip; questions need nothing but torch, so they are asked even where it fails."""
        log = self._work / "logs" / "wheels"
        status = run(("-m", "pip", *words), limit_s=120, log=log, environment={}, fork=False)
        if status != 0:
            error = _last_line(log.with_name("wheels.err"))
            failed = {"step": "wheels", "asks": "", "outcome": f"status {status}", "took_s": 0.0, "said": []}
            self._results["wheels"] = failed | {"error": error}

    def do(self, step: Step, left_s: float) -> None:
        """Do one step and note what came of it."""
        result = {"step": step.name, "asks": step.asks, "outcome": LATER, "took_s": 0.0, "said": [], "error": ""}
        self._results[step.name] = result
        own = dict(step.environment)
        if step.needs_cupti:
            if self._cupti is None:
                result |= {"outcome": "not possible", "error": f"no wheel of {CUPTI} was brought along"}
                return
            own["LD_PRELOAD"] = ":".join(filter(None, (os.environ.get("LD_PRELOAD"), str(self._cupti))))
        if left_s < LEAST_S:
            return
        log, began = self._work / "logs" / step.log, time.monotonic()
        given = {"PYTHONUNBUFFERED": "1", "DAY_FILES": str(self._work / "recordings")}
        limit_s = min(step.limit_s, left_s)
        # What must be in the environment when a process starts comes too late for a fork.
        fork = self._quick and not own
        environment, words = given | own, self._placed(step.python)
        status = run(words, limit_s=limit_s, log=log, environment=environment, fork=fork, python=self._python)
        result["took_s"] = round(time.monotonic() - began, 1)
        result["outcome"] = f"ended after {limit_s:.0f} s" if status is None else f"status {status}" if status else DONE
        result["said"] = self._said(step, log)
        if status != 0:
            result["error"] = _last_line(log.with_name(f"{log.name}.err"))
        sys.stdout.write(f"{step.name}: {result['outcome']}\n")
        sys.stdout.flush()

    def _placed(self, python: tuple[str, ...]) -> list[str]:
        """Return the words with the places of the files that they name."""
        places = {
            "--junitxml=logs/": f"--junitxml={self._work}/logs/",
            "--torchprof-save=": f"--torchprof-save={self._work}/",
            "--torchprof-report=": f"--torchprof-report={self._out}/",
        }
        for word, place in places.items():
            python = tuple(place + one.removeprefix(word) if one.startswith(word) else one for one in python)
        return [*python]

    def _said(self, step: Step, log: Path) -> list[dict[str, Any]]:
        output = log.with_name(f"{log.name}.out")
        if step.asks:
            return said_by_question(output)
        if (report := log.with_name(f"{log.name}.xml")).exists():
            return said_by_pytest(report)
        return [
            {"says": line, "figures": None} for line in output.read_text(errors="replace").splitlines()[:MOST_LINES]
        ]

    def write(self) -> None:
        """Write the few files of the day after each step: whoever ends this script loses the current step alone."""
        results = list(self._results.values())
        self._noted.write_text("".join(json.dumps(one) + "\n" for one in results))
        rows = rows_by_question(ROOT / "docs/gpu-checks.md")
        (self._out / "summary.md").write_text(page(results, rows))
        for folder in FOLDERS:
            with tarfile.open(self._out / f"{folder}.tar.gz", "w:gz") as archive:
                archive.add(self._work / folder, folder)


def _last_line(path: Path) -> str:
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it has said nothing"


if __name__ == "__main__":
    main()
