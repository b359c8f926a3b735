"""The package's layers run one way, and what loads in every pytest run stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "pytest_torchprof"

# From the bottom to the top. A part imports only from parts above it in this list; parts of one line never meet.
LAYERS = (
    ("errors", "units"),
    ("names",),
    ("columns",),
    ("trace",),
    ("recording",),
    ("compiled",),
    ("cpukernels", "evidence"),
    ("validity",),
    ("numbers",),
    ("kernels",),
    ("patterns",),
    ("profile",),
    ("findings",),
    ("limits",),
    ("rename",),
    ("baseline", "diff"),
    ("report",),
    ("torch_private",),
    ("compilewatch",),
    ("capture",),
)
