"""The question about the tools of others: what becomes of a measurement while one of them has the GPU's counters or calls."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import leaving_out
from outcomes import PASSED, heard

if TYPE_CHECKING:
    from questions import Said

HERE = Path(__file__).resolve().parent
LIMIT_S = 75
"""Less than the question has, so that what was seen until then is said."""

# Clocks are everybody's; of one kernel ncu has enough, each of which it runs ten times.
_NCU = ("--clock-control", "none", "--target-processes", "all", "--launch-count", "1")
_OPTIONS = {"ncu": _NCU, "nsys": ("profile", "--output"), "compute-sanitizer": ()}
_BESIDE_NCU = "opt/nvidia/nsight-compute/*/host/target-linux-x64"

_TEST = """
import pytest, torch

@pytest.mark.torchprof(max_kernels=3, min_kernels=3)
def test_three_kernels(torchprof):
    x = torch.ones(8, device="cuda")
    torchprof(lambda: x.add_(1).mul_(2).sin_())
"""


def tools(name: str, *, quick: bool) -> Said:
    """Measure three kernels in a process that the tool has started."""
    tool = shutil.which(name) or next(map(str, sorted(Path("/").glob(f"{_BESIDE_NCU}/{name}"), reverse=True)), None)
    if tool is None:
        yield f"there is no {name} on this machine", None
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        test, told, output = (Path(folder, one) for one in ("test_it.py", "told", "output"))
        test.write_text(_TEST)
        own = (str(Path(folder, "report")),) if name == "nsys" else ()
        python = (sys.executable, "-m", "pytest", str(test), "-q", "-c", os.devnull, "--rootdir", folder)
        began = time.monotonic()
        ended = _run((tool, *_OPTIONS[name], *own, *python, *leaving_out.words()), told, output)
        took = f"{time.monotonic() - began:.0f} s{'' if ended else ', and was ended'}"
        lines = output.read_text(errors="replace").splitlines()
        # In the order of the words that follow: the test's own, else the tool's.
        why = _judged(told) or f"nothing was seen: {next(filter(None, reversed(lines)), 'it has said nothing')[:200]}"
        yield f"under {name}: {why} ({took})", lines[-60:]


def _run(words: tuple[str, ...], told: Path, output: Path) -> bool:
    """Return whether it ended by itself."""
    searched = os.pathsep.join(filter(None, (str(HERE / "plugin"), os.environ.get("PYTHONPATH"))))
    with output.open("wb") as file:
        try:
            subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=LIMIT_S,
                check=False,
                env=os.environ | {"DAY_TOLD": str(told), "PYTHONPATH": searched},
            )
        except subprocess.TimeoutExpired:
            return False
    return True


def _judged(told: Path) -> str:
    for test in heard(told):
        if test.outcome == PASSED:
            return "measured right"
        if test.report:
            return test.why if "not measured" in test.why else f"it fails: {test.why}"
    return ""
