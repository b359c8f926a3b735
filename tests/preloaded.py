"""What fresh processes (`fresh`) have imported already: torch, pytest with its plugins, and ours."""

from __future__ import annotations

import atexit
import gc
import importlib
import inspect
import os
import pkgutil
import sys
import tempfile
import weakref
from contextlib import redirect_stdout
from io import StringIO
from unittest import mock

import huge_pages
import installed
import kept
import msgspec
import pytest
import quick_runs

TORCH = (
    "torch",
    "torch.profiler",
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "torch.distributed.run",
    "torch.distributed.tensor.experimental",
    "torch.distributed.elastic.rendezvous.c10d_rendezvous_backend",
)
OURS = ("against", "analysis", "capture", "kernels", "limits", "reasons", "report", "testing")
# The last one is for addresses of ranks.
OTHERS = ("pytest_torchprof.history", "tabulate", "multiprocessing.popen_forkserver", "encodings.idna")
# What forks begin with.
BEGINNINGS = ("fresh", "forking", "judges")

# What is imported stays, and most of what a fork makes goes with it.
gc.set_threshold(200_000, 10, 10)
for name in TORCH:
    importlib.import_module(name)
quick_runs.ask_once(forever := pytest.MonkeyPatch())
quick_runs.leave_guards_unmeasured(forever)
forever.setattr("importlib.metadata.distributions", installed.distributions)
# At the end of a run pytest looks for garbage; that of a fork goes away with it.
forever.setattr("_pytest.unraisableexception.gc_collect_harder", lambda _rounds: None, raising=False)
# pytest imports its plugins itself, since it rewrites their assertions, and asks them what they bring as it looks for tests, of
# which there are none here: without ours, which would ask for a device too.
with (
    redirect_stdout(StringIO()),
    mock.patch.dict(os.environ, {"PYTEST_ADDOPTS": ""}),
    tempfile.TemporaryDirectory() as empty,
):
    for words in (
        ["--help", "-p", "hypothesis"],
        ["--collect-only", "-p", "no:torchprof", f"--rootdir={empty}", empty],
    ):
        pytest.main([*words, "--noconftest", "-c", os.devnull])
tempfile.tempdir = None
for name in OURS:
    package = importlib.import_module(f"pytest_torchprof.{name}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
for name in (*OTHERS, *BEGINNINGS):
    importlib.import_module(name)
# Each process finds out for itself, once, in which file each module lies and of which fields each kind of reason is.
inspect.getmodule(pytest.main.__code__)
importlib.import_module("pytest_torchprof.against.imports").loaded_files()
# Inductor, where its caches begin: a hash of all of torch's own files.
importlib.import_module("torch._inductor.codecache").torch_key()
msgspec.json.Decoder(importlib.import_module("pytest_torchprof.report.result").Result)
# When it is imported it asks whether its process is a side of a comparison, which a fork may be.
sys.modules.pop("pytest_torchprof.plugin", None)
# At its end a process takes back all operators that torch has registered, and adds up what was compiled for a log: much memory is
# touched for that, and so copied, by forks that go away anyway.
for registered in weakref.finalize._registry:
    registered.atexit = False
atexit.unregister(importlib.import_module("torch._dynamo.utils").dump_compile_times)
# What looks for garbage in a fork need not go through all of it.
kept.keep()
huge_pages.collapse()
