"""The results of the day so far, and its files."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import sysconfig
import tarfile
import threading
import time
import venv
from typing import TYPE_CHECKING, Any

import outcomes
from apart import surroundings
from claims import rows_by_question
from plan import LEAST_S
from processes import run
from steps import HERE
from summary import DONE, LATER, page, said_by_question

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from steps import Step

FOLDERS = ("logs", "recordings")
CUPTI = "nvidia_cuda_cupti"
NEEDED = ("pytest-torchprof", "hypothesis", "pytest-xdist")
"""What tests and examples import beside torch; wheels.txt has what these need in turn."""
OF_MODELS = ("transformers", "torchvision", "torch_geometric")
"""What models.py imports, as far as it was brought along or is there anyway."""
MOST_LINES = 400
"""So many of a step's output are in the summary."""
COUNT_S = 60
"""For counting the recordings of a step, which takes no GPU."""


class Day:
    """What is done, and written down after each step."""

    def __init__(self, out: Path, work: Path, *, quick: bool) -> None:
        """Go on where an earlier call has stopped."""
        self._out, self._work, self._quick = out, work, quick
        self._python = sys.executable
        self._cupti: Path | None = None
        self._writing = threading.Lock()
        out.mkdir(parents=True, exist_ok=True)
        for folder in FOLDERS:
            (work / folder).mkdir()
            if (packed := out / f"{folder}.tar.gz").exists():
                with tarfile.open(packed) as archive:
                    # Python 3.11 has it from 3.11.4 on.
                    archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
                    archive.extractall(work)
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

    def expect(self, steps: Iterable[Step]) -> None:
        """Note the steps that are to be done, in their order."""
        for step in steps:
            self._results[step.name] = _result(step)

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
        for package in OF_MODELS:
            if any(wheels.glob(f"{package}-*.whl")):
                self._pip("--python", self._python, *install, package)
        for of_cupti in sorted(wheels.glob(f"{CUPTI}*.whl")):
            self._pip(*install, "--no-deps", "--target", str(apart), str(of_cupti))
        self._cupti = next(iter(sorted(apart.rglob("libcupti.so.*"))), None)

    def _pip(self, *words: str) -> None:
        """Run pip; questions need nothing but torch, so they are asked even where it fails."""
        log = self._work / "logs" / "wheels"
        status = run(("-m", "pip", *words), limit_s=120, log=log, environment={})
        if status != 0:
            failed = {"step": "wheels", "asks": "", "outcome": f"status {status}", "took_s": 0.0, "said": []}
            self._results["wheels"] = failed | {"error": _last_line(log)}

    def do(self, step: Step, left_s: float, behind: tuple[str, ...] | None = None) -> None:
        """Do one step and note what came of it; one beside others gets its lock behind this command."""
        result = _result(step)
        own = dict(step.environment)
        if step.needs_cupti:
            if self._cupti is None:
                result |= {"outcome": "not possible", "error": f"no wheel of {CUPTI} was brought along"}
                self._results[step.name] = result
                return
            own["LD_PRELOAD"] = ":".join(filter(None, (os.environ.get("LD_PRELOAD"), str(self._cupti))))
        if left_s < LEAST_S:
            return
        log, began = self._work / "logs" / step.log, time.monotonic()
        given = self._given(step)
        if behind is not None:
            given |= surroundings(self._work, step.log)
        limit_s = min(step.limit_s, left_s)
        lock = (behind or ()) if step.measures else ()
        # What must be in the environment when a process starts comes too late for a fork.
        fork = self._quick and not own and not lock
        environment, words = given | own, self._placed(step.python)
        status = run(
            words, limit_s=limit_s, log=log, environment=environment, fork=fork, python=self._python, behind=lock
        )
        result["took_s"] = round(time.monotonic() - began, 1)
        result["outcome"] = f"ended after {limit_s:.0f} s" if status is None else f"status {status}" if status else DONE
        result |= self._said(step, log)
        if step.keeps:
            result["said"] += self._counted(step, left_s - result["took_s"])
        if status != 0:
            result["error"] = _last_line(log)
        self._results[step.name] = result
        sys.stdout.write(f"{step.name}: {result['outcome']}\n")
        sys.stdout.flush()

    def _given(self, step: Step) -> dict[str, str]:
        given = {"PYTHONUNBUFFERED": "1", "DAY_FILES": str(self._work / "recordings")}
        if self._quick:
            given["DAY_QUICK"] = "1"
        if step.tells:
            given["DAY_TOLD"] = str(self._told(step))
            searched = filter(None, (str(HERE / "plugin"), os.environ.get("PYTHONPATH")))
            given["PYTHONPATH"] = os.pathsep.join(searched)
        return given

    def _told(self, step: Step) -> Path:
        return self._work / "logs" / f"{step.log}.told.jsonl"

    def _placed(self, python: tuple[str, ...]) -> list[str]:
        """Return the words with the places of the files that they name."""
        places = {
            "--torchprof-save=": f"--torchprof-save={self._work}/",
            "--torchprof-report=": f"--torchprof-report={self._out}/",
        }
        for word, place in places.items():
            python = tuple(place + one.removeprefix(word) if one.startswith(word) else one for one in python)
        return [*python]

    def _said(self, step: Step, log: Path) -> dict[str, Any]:
        output = log.with_name(f"{log.name}.out")
        if step.asks:
            return {"said": said_by_question(output)}
        if step.tells:
            tests = outcomes.heard(self._told(step))
            return {"said": outcomes.said(tests), "tests": outcomes.noted(tests)} if tests else {"said": []}
        lines = output.read_text(errors="replace").splitlines()[:MOST_LINES]
        return {"said": [{"says": line, "figures": None} for line in lines]}

    def _counted(self, step: Step, left_s: float) -> list[dict[str, Any]]:
        """Return what a count by hand says of the recordings that the step has kept."""
        folder, log = self._work / "recordings" / step.keeps, self._work / "logs" / f"{step.log}-counts"
        if not folder.exists():
            return [{"says": "no recording was kept", "figures": None}]
        if left_s < LEAST_S:
            return [
                {
                    "says": "no time was left to count its recordings, which tests/gpu/day/counts.py FOLDER does",
                    "figures": None,
                }
            ]
        words = (str(HERE / "counts.py"), str(folder))
        status = run(words, limit_s=min(COUNT_S, left_s), log=log, environment={}, python=self._python)
        said = said_by_question(log.with_name(f"{log.name}.out"))
        if status != 0:
            said.append({"says": f"the count of its recordings has failed: {_last_line(log)}", "figures": None})
        return said

    def write(self) -> None:
        """Write the few files of the day after each step: whoever ends this script loses the current steps alone."""
        with self._writing:
            results = list(self._results.values())
            self._noted.write_text("".join(json.dumps(one) + "\n" for one in results))
            (self._out / "summary.md").write_text(page(results, rows_by_question()))
            for folder in FOLDERS:
                # Most of what is in them is packed already.
                with tarfile.open(self._out / f"{folder}.tar.gz", "w:gz", compresslevel=1) as archive:
                    archive.add(self._work / folder, folder, recursive=False)
                    for path in sorted((self._work / folder).rglob("*")):
                        # Another step may be about to give it its name.
                        with contextlib.suppress(FileNotFoundError):
                            archive.add(path, path.relative_to(self._work), recursive=False)


def _result(step: Step) -> dict[str, Any]:
    return {"step": step.name, "asks": step.asks, "outcome": LATER, "took_s": 0.0, "said": [], "error": ""}


def _last_line(log: Path) -> str:
    """Return the last line of what a process has said of errors."""
    text = log.with_name(f"{log.name}.err").read_text(errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it has said nothing"
