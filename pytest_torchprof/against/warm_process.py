"""A Python that has imported torch and forks: each fork runs pytest as a Python that was started for it alone would.

It is started by its path, and loads neither this package nor any code of the repository. A module that it has imported
is hidden from a fork until the fork imports it. If the environment, which torch reads at its import, has changed by
then, the fork gives up, and a fresh process takes its place.
"""

from __future__ import annotations

import copy
import gc
import importlib
import json
import multiprocessing.process
import os
import runpy
import select
import signal
import socket
import sys
import time
import warnings
from contextlib import suppress
from importlib.abc import Loader
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

STAGES: Final[Mapping[str, Sequence[str]]] = {"numpy": (), "torch": ("numpy",), "sympy": ()}
"""The modules that are imported, in this order, each with the earlier modules that its own import brings too."""
GIVEN_UP: Final = 113
"""The status of a fork that cannot stand for a fresh process."""
_ENDINGS: Final = (*SOURCE_SUFFIXES, *BYTECODE_SUFFIXES, *EXTENSION_SUFFIXES)
_NOT_READ: Final = ("PYTEST_", "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE")
"""The beginnings of variables that pytest and measurements set; the latter's are for Inductor, which is no stage."""
_OF_PYTHON: Final = ("__mp_main__", "_sysconfigdata")
"""Modules of the standard library that its own list lacks."""
_LOOK_S: Final = 0.05
_PATIENCE_S: Final = 10.0
_DEVICES: Final = Path("/dev")
_NO_DEVICES: Final = {"null", "zero", "random", "urandom", "tty", "pts", "shm"}


def names_in(folders: Iterable[str]) -> set[str]:
    """Return the top-level names that modules in these folders may have."""
    names_there: set[str] = set()
    for folder in folders:
        with suppress(OSError):
            names = os.listdir(folder)  # noqa: PTH208
            names_there.update(name.partition(".")[0] for name in names if name.endswith(_ENDINGS) or "." not in name)
    return names_there


class AskedNames:
    """A finder that has no module, and notes the top-level names that are looked for."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        self.names.add(name.partition(".")[0])
        return None


class Hidden:
    """A finder of modules that were imported before: none of them is seen until somebody imports it."""

    def __init__(self) -> None:
        asked = AskedNames()
        self._stages: dict[str, dict[str, ModuleType]] = {}
        self._warnings: dict[str, list[warnings.WarningMessage]] = {}
        sys.meta_path.insert(0, asked)
        importlib.import_module("pytest")  # It is never hidden: a fresh process begins with it.
        for stage in STAGES:
            before = set(sys.modules)
            with suppress(ModuleNotFoundError), warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                importlib.import_module(stage)
            self._warnings[stage] = warned
            new = {name for name in set(sys.modules) - before if _top_level_name(name) not in sys.stdlib_module_names}
            self._stages[stage] = {name: sys.modules[name] for name in new if not name.startswith(_OF_PYTHON)}
        sys.meta_path.remove(asked)
        self.asked = asked.names - sys.stdlib_module_names
        """The names that no folder before these modules on the path may have."""
        self._modules = {name: module for modules in self._stages.values() for name, module in modules.items()}
        self._surroundings: object = None
        self._path: frozenset[str] = frozenset()

    def hide(self) -> None:
        """Make the modules look as if they were not imported, from now on."""
        for name in self._modules:
            del sys.modules[name]
        self._surroundings, self._path = _surroundings(), frozenset(sys.path)
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        module = self._modules.get(name)
        if module is None or module.__spec__ is None:
            return None
        spec = copy.copy(module.__spec__)
        spec.loader = _Shown(self, module.__spec__)
        return spec

    def show(self, name: str) -> ModuleType:
        """Return a module that is imported now, after showing it together with those that its import brings."""
        if _surroundings() != self._surroundings or not self.asked.isdisjoint(names_in(set(sys.path) - self._path)):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(GIVEN_UP)
        top = _top_level_name(name)
        stages = (top, *STAGES[top]) if top in STAGES else ()
        for warned in (warning for stage in stages for warning in self._warnings.pop(stage, ())):
            # The filters of this process apply, which may turn the warning into an error.
            warnings.warn_explicit(warned.message, warned.category, warned.filename, warned.lineno)
        brought = {module_name for stage in stages for module_name in self._stages[stage]}
        for other, module in self._modules.items():
            if other in brought or _top_level_name(other) == top:
                sys.modules.setdefault(other, module)
        if top == "torch":  # It imports multiprocessing, which gives the program this second name.
            sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
        return self._modules[name]


class _Shown(Loader):
    """A loader of a module that is loaded already."""

    def __init__(self, hidden: Hidden, spec: ModuleSpec) -> None:
        self._hidden, self._spec = hidden, spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._hidden.show(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


def _top_level_name(name: str) -> str:
    return name.partition(".")[0]


def _surroundings() -> object:
    """Return the facts that libraries read when they are loaded: variables, and the processors of this process."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_READ)}
    return variables, os.sched_getaffinity(0)


def forks_as_fresh() -> bool:
    """Return whether a fork of this process is like a fresh one: no library has started threads or opened a device."""
    # Libraries that look after their threads, such as OpenBLAS, end them at a fork.
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208
        return False
    files = (Path(os.readlink(file.path)) for file in os.scandir("/proc/self/fd") if os.path.lexists(file.path))  # noqa: PTH115
    return not any(file.is_relative_to(_DEVICES) and file.parts[2] not in _NO_DEVICES for file in files)


def serve(channel: socket.socket) -> Mapping[str, Any] | None:
    """Fork for each request; return the request in the fork, and None after the last one.

    A request is a line: ``arguments``, ``folder``, ``log``, and the changed ``environment`` (null: no such variable).
    """
    # The terminal interrupts all of us, and we end with our owner.
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    hidden = Hidden()
    lines = channel.makefile("rw")
    gc.freeze()  # A fork that looks for garbage would look through, and so copy, what torch has made.
    _send(lines, {"forks_as_fresh": forks_as_fresh(), "asked": sorted(hidden.asked), "modules": _files()})
    for line in lines:
        request = json.loads(line)
        if (pid := os.fork()) == 0:
            signal.signal(signal.SIGINT, interrupt)
            lines.close()
            channel.close()
            become(request, hidden)
            return dict(request)
        _send(lines, {"pid": pid})
        _send(lines, {"status": _status(pid, channel)})
    return None


def _send(lines: Any, message: Mapping[str, object]) -> None:
    with suppress(BrokenPipeError):
        lines.write(f"{json.dumps(message)}\n")
        lines.flush()


def _files() -> list[str]:
    """Return the files of all modules; some entries of torch's are not modules of files, and have names instead."""
    files = (getattr(module, "__file__", None) for module in tuple(sys.modules.values()))
    return sorted({os.path.realpath(file) for file in files if isinstance(file, str) and file.startswith(os.sep)})


def _status(pid: int, channel: socket.socket) -> int:
    """Wait until a fork ends, end it if our owner does, and return its status."""
    asked_to_end: float | None = None
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if asked_to_end is None:
            # While a fork runs, there are no requests: the channel can only be read because it was closed.
            if select.select([channel], [], [], _LOOK_S)[0]:
                os.kill(pid, signal.SIGTERM)
                asked_to_end = time.monotonic()
        else:
            time.sleep(_LOOK_S)
            if time.monotonic() - asked_to_end > _PATIENCE_S:
                os.kill(pid, signal.SIGKILL)


def become(request: Mapping[str, Any], hidden: Hidden) -> None:
    """Turn this fork into the likeness of a Python that was started with these arguments."""
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    os.chdir(request["folder"])
    multiprocessing.process.ORIGINAL_DIR = request["folder"]  # type: ignore[attr-defined]
    sys.modules.pop("__mp_main__", None)
    for name, value in request["environment"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    sys.path[:0] = [
        folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder not in ("", *sys.path)
    ]
    # A new list, by which those who look for frozen objects see that none of this process's own is frozen.
    sys.orig_argv = [sys.executable, "-P", "-m", "pytest", *request["arguments"]]
    sys.argv[1:] = request["arguments"]
    importlib.invalidate_caches()
    hidden.hide()


if __name__ == "__main__" and serve(socket.socket(fileno=int(sys.argv[1]))) is not None:
    runpy.run_module("pytest", run_name="__main__", alter_sys=True)
