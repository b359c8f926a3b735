"""What fresh processes (`fresh`) have imported already: torch, pytest with its plugins, and ours."""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import sys
from contextlib import redirect_stdout
from io import StringIO
from unittest import mock

import pytest

TORCH = ("torch", "torch.profiler", "torch._dynamo", "torch._inductor.compile_fx", "torch.distributed.run")
OURS = (
    "testing.collection",
    "testing.fixture",
    "testing.session",
    "report.html_report",
    "against.run",
    "against.inside",
)

for name in TORCH:
    importlib.import_module(name)
# pytest imports its plugins itself, since it rewrites their assertions.
with redirect_stdout(StringIO()), mock.patch.dict(os.environ, {"PYTEST_ADDOPTS": ""}):
    pytest.main(["--help", "--noconftest", "-c", os.devnull, "-p", "hypothesis"])
for name in OURS:
    importlib.import_module(f"pytest_torchprof.{name}")
# When it is imported it asks whether its process is a side of a comparison, which a fork may be.
sys.modules.pop("pytest_torchprof.plugin", None)
# What looks for garbage in a fork need not go through all of it.
gc.collect()
gc.freeze()
atexit.register(gc.unfreeze)
