"""Fresh processes that need not import torch and pytest again: forks of one that has imported them and done nothing else.

To import them takes longer than most of what a test runs in a process of its own. What torch or the loader reads from the
environment at that time (`TORCH_TRACE`, `LD_PRELOAD`) has no effect here; tests of that start Python themselves.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import importlib
import multiprocessing
import os
import signal
import site
import subprocess
import sys
import sysconfig
import tempfile
from multiprocessing import forkserver
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple
from unittest import mock

import pytest
from simulated import gpu_is_simulated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerContext

ROOT = Path(__file__).parents[1]
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["preloaded"])


class Fresh:
    """Something that runs in a fresh process."""

    def __init__(
        self,
        task: Callable[..., None],
        *told: str,
        environment: Mapping[str, str],
        folder: Path | str | None = None,
        outputs: Sequence[Path | Connection] = (),
        told_by: Connection | None = None,
        leads_group: bool = False,
    ) -> None:
        """Start it in a folder, the current one if there is none given, with files to add to what it writes, or pipes.

        ``told_by``: what it reads; ``leads_group``: in a group of processes of its own.
        """
        self.kept = tempfile.TemporaryDirectory() if not outputs else None
        self.outputs = outputs or [Path(self.kept.name, name) for name in ("stdout", "stderr")]
        where = _Where(dict(environment), str(folder or Path.cwd()), self.outputs, told_by, leads_group)
        self.process = forks().Process(target=_run, args=(where, task, *told))
        self.process.start()

    def done(self, limit_s: float = 300) -> subprocess.CompletedProcess[str]:
        """Wait until it ends, or end it."""
        self.process.join(limit_s)
        self.process.kill()
        self.process.join()
        status = self.process.exitcode
        # Tests are kept from the garbage collector, and a run has more of them than a process may have files.
        self.process.close()
        out, err = (path.read_text() if path.exists() else "" for path in self.outputs)
        if self.kept is not None:
            self.kept.cleanup()
        return subprocess.CompletedProcess([], status, out, err)


def forks() -> ForkServerContext:
    """Return what starts forks, whose server runs: it takes the longest by far."""
    # Python tells its server of forks no path before it imports what is asked for.
    with mock.patch.dict(os.environ, {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests")))}):
        forkserver._forkserver.ensure_running()
    return _FORKS


def start_pytest(*words: str, **environment: str) -> Fresh:
    """Start pytest, as its command does, with these variables besides the current ones."""
    return Fresh(_pytest, *words, environment=os.environ | environment)


def run_pytest(*words: str, **environment: str) -> pytest.RunResult:
    """Run pytest, as its command does."""
    done = start_pytest(*words, **environment).done()
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    status = pytest.ExitCode(done.returncode) if done.returncode in set(pytest.ExitCode) else done.returncode
    return pytest.RunResult(status, done.stdout.splitlines(), done.stderr.splitlines(), 0)


def run_code(code: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program, as `python -c` does."""
    return start_code(code, *words, **environment).done()


def start_code(code: str, *words: str, **environment: str) -> Fresh:
    """Start a program, as `python -c` does, with these variables besides the current ones."""
    return Fresh(_code, code, *words, environment=os.environ | environment)


def run_from_start(code: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own from its start on; on the simulated device, which is reloaded, in a fork."""
    if gpu_is_simulated():
        return run_code(code, *words, **environment)
    command = [sys.executable, "-X", "faulthandler", "-c", code, *words]
    own = os.environ | {"PYTHONPATH": _places_of_ours()} | environment
    return subprocess.run(command, env=own, capture_output=True, text=True, timeout=500, check=False)


def _places_of_ours() -> str:
    """Return where the package and what tests share are found, ahead of what is there already."""
    return os.pathsep.join(filter(None, (str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH"))))


def start_python(*words: str, folder: Path, environment: Mapping[str, str]) -> Fresh:
    """Start what Python does with these words: `-m pytest ...`, `-c CODE ...` or `SCRIPT ...`."""
    return Fresh(as_python, sys.executable, *words, environment=environment, folder=folder)


def run_python(
    *words: str, folder: Path, environment: Mapping[str, str], limit_s: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run what Python does with these words; what it writes to stderr stands behind what it writes to stdout."""
    done = start_python(*words, folder=folder, environment=environment).done(limit_s)
    return subprocess.CompletedProcess([], done.returncode, done.stdout + done.stderr)


# ------------------------------------------------------------------------------------------------- in the fresh process


class _Where(NamedTuple):
    """Where something runs."""

    environment: dict[str, str]
    folder: str
    outputs: Sequence[Path | Connection]
    told_by: Connection | None
    leads_group: bool


def _settle(where: _Where) -> None:
    """Make this process one of its own: what it was told, and all that is written, goes where its owner says."""
    if where.leads_group:
        os.setsid()
    if where.told_by is not None:
        os.dup2(where.told_by.fileno(), 0)
        sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
    # Python would start another server for the forks of a fork.
    forkserver._forkserver.ensure_running = lambda: None
    for stream, output in enumerate(where.outputs, 1):
        is_file = isinstance(output, Path)
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if is_file else output.fileno(), stream)
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__ = [
        os.fdopen(stream, "w", buffering, closefd=False) for stream, buffering in ((1, -1), (2, 1))
    ]
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(where.environment)
    tempfile.tempdir = None
    if gpu_is_simulated():
        ctypes.CDLL(None).fakegpu_reload()
    if "CXX" in os.environ:
        # Inductor, which is imported already, has read this of another environment.
        importlib.import_module("torch._inductor.config").cpp.cxx = (None, os.environ["CXX"])
    os.chdir(where.folder)
    # A test's module that is written twice in a second would be taken for the same.
    sys.dont_write_bytecode = True
    importlib.import_module("forking").start_forks()  # By what stands here.


def _run(where: _Where, task: Callable[..., None], *told: object) -> None:
    _settle(where)
    try:
        task(*told)
    finally:
        # As Python does at its end, and multiprocessing does not.
        atexit._run_exitfuncs()


def _pytest(*words: str) -> None:
    sys.argv[:] = ["pytest", *words]
    sys.path.insert(0, str(Path.cwd()))
    sys.exit(pytest.main(list(words)))


def _code(code: str, *words: str) -> None:
    sys.argv[:] = ["-c", *words]
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})


def can_be(python: str) -> bool:
    """Whether a fork can be this Python: the one that runs the tests, or that of an environment that shares its packages."""
    return python == sys.executable or (os.sep in python and Path(_library(python), "shared.pth").is_file())


def _library(python: str) -> str:
    prefix = str(Path(python).parent.parent)
    return sysconfig.get_path("purelib", vars={"base": prefix, "platbase": prefix})


def as_python(python: str, *words: str, plugins: Sequence[object] = ()) -> None:
    """Do what this Python does with these words, on a path of its own; pytest has further plugins."""
    own = (sys.prefix, sys.base_prefix, *_shared_places())
    installed = [place for place in sys.path if place.startswith(own)]
    told = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = [*told, *installed]
    if python != sys.executable:
        _be(python)
    # The last one is for what its own forks are to do.
    sys.path += [str(ROOT), str(ROOT / "tests")]
    is_safe = words[0] == "-P"
    option, what, *rest = words[1:] if is_safe else words if words[0].startswith("-") else (None, *words)
    if not is_safe and "PYTHONSAFEPATH" not in os.environ:
        sys.path.insert(0, str(Path(what).resolve().parent if option is None else Path.cwd()))
    sys.argv[:] = [option if option == "-c" else what, *rest]
    if option == "-c":
        exec(what, {"__name__": "__main__"})
    elif option is None:
        script = Path(what).absolute()
        sys.modules["__main__"] = main = ModuleType("__main__")
        main.__file__ = str(script)
        exec(compile(script.read_bytes(), main.__file__, "exec"), vars(main))
    elif what == "pytest":
        sys.exit(pytest.main(rest, plugins=plugins))
    else:
        sys.exit(importlib.import_module(what).main())


def _shared_places() -> list[str]:
    """Return the folders of other environments whose packages this one has, by files that name them."""
    files = Path(sysconfig.get_path("purelib")).glob("*.pth")
    return [line for file in files for line in file.read_text().splitlines() if line.endswith("-packages")]


def _be(python: str) -> None:
    """Be the Python of an environment, as its start makes it that."""
    library, shared = _library(python), sysconfig.get_path("purelib")
    sys.executable, sys.prefix = python, str(Path(python).parent.parent)
    sys.exec_prefix = sys.prefix
    site.PREFIXES[:] = [sys.prefix]
    names = ("prefix", "exec_prefix", "base", "platbase")
    sysconfig.get_config_vars().update(dict.fromkeys(names, sys.prefix))
    # What is shared comes after what the environment has of its own, by a file there.
    sys.path[:] = [place for place in sys.path if place != shared]
    site.addsitedir(library)
