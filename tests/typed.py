"""What mypy, strictly, says of a piece of code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# To read torch takes minutes, and what others lack is not ours.
_SETTINGS = """
[mypy]
strict = True
disallow_subclassing_any = False
disallow_untyped_decorators = False
ignore_missing_imports = True
[mypy-torch.*]
follow_imports = skip
"""


def check(folder: Path, *sources: str) -> str:
    """Return what mypy says of these modules; torch and packages that are not installed are anything to it."""
    pytest.importorskip("mypy")
    files = [folder / f"checked_{number}.py" for number in range(len(sources))]
    for file, source in zip(files, sources, strict=True):
        file.write_text(source)
    (folder / "mypy.ini").write_text(_SETTINGS)
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", *(file.name for file in files)]
    environment = os.environ | {"MYPYPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return ran.stdout + ran.stderr
