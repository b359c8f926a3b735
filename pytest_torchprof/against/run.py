"""``pytest --torchprof-against REF``: starts a pytest for each side, the other commit's and the working tree's."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from pytest_torchprof.against import environment
from pytest_torchprof.against.base import cache_arguments, measured_base
from pytest_torchprof.against.folders import HERE, run_folders
from pytest_torchprof.against.reads import reads_of
from pytest_torchprof.against.request import read_request
from pytest_torchprof.against.start import SideStart, ended_in_order, write_starts
from pytest_torchprof.system.processes import running
from pytest_torchprof.text import counted, first_of, printable_line

if TYPE_CHECKING:
    import pytest

    from pytest_torchprof.against.request import Request
    from pytest_torchprof.system.processes import Process

INTERRUPTED = 2


def run_both(config: pytest.Config) -> int:
    """Run both sides and return the exit status of the working tree's; TorchprofError if that is not possible."""
    with ended_in_order(), run_folders(config.rootpath) as folders:
        request = read_request(config, folders)
        changed = "with uncommitted changes" if request.reference.dirty else "without uncommitted changes"
        request.write_line(f"torchprof: the working tree, {changed}, against {request.reference.shown}")
        with ExitStack() as held:
            try:
                base = held.enter_context(measured_base(request))
            except KeyboardInterrupt:
                request.write_line(f"torchprof: interrupted while {request.reference.shown} was measured", always=True)
                return INTERRUPTED
            return _run_here(request, base)


def _run_here(request: Request, base: SideStart | None) -> int:
    """Run the tests in the working tree, as the user has called pytest, and return its exit status.

    ``base``: how they are started at the other commit, if times are compared.
    """
    environ = request.variables_of(is_base=False, is_reported=True)
    python = sys.executable
    if request.install is not None:
        tree = request.repository.top / request.rootdir
        python = environment.install(request.folder / HERE, request.install, tree, environ)
    if base is not None:
        here = SideStart(
            python=python,
            arguments=request.arguments,
            folder=os.fspath(request.config.invocation_params.dir),
            environment=request.variables_of(is_base=False),
        ).with_arguments(cache_arguments(request))
        alone = _undisturbed_arguments(request.config)
        write_starts(request.results, base.with_arguments(alone), here.with_arguments(alone))
    with running([python, "-P", "-m", "pytest", *request.arguments], env=environ, stdin=None) as process:
        status = _wait(process)
    _report_what_ran(request)
    return status if status >= 0 else 128 - status


def _wait(process: Process) -> int:
    while True:
        # The terminal interrupts both processes, and the tests decide how to end.
        with suppress(KeyboardInterrupt):
            return process.wait()


def _report_what_ran(request: Request) -> None:
    """Report how many of the files that each side has differ, and one that neither side has read."""
    code = request.differences.code
    read = {name for is_base in (True, False) for name in reads_of(request.results, is_base=is_base)["own"]}
    unread = [name for name in code if name not in read]
    line = f"torchprof: {counted(len(code), 'code file')} {'differs' if len(code) == 1 else 'differ'}"
    if unread:
        line += f"; neither side has read {printable_line(first_of(unread))}"
    # If no file that differs was read, "same" says nothing about the change.
    request.write_line(f"{line} (from {request.reference.shown})", always=len(unread) == len(code))


def _undisturbed_arguments(config: pytest.Config) -> list[str]:
    """Return arguments for a process with meaningful times: without other workers, or tracing of lines."""
    plugins = config.pluginmanager
    arguments = ["-n0", "--dist=no"] if plugins.hasplugin("xdist") else []
    return [*arguments, "--no-cov"] if plugins.hasplugin("pytest_cov") else arguments
