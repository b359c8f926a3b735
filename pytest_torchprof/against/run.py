"""``pytest --torchprof-against REF``: starts a pytest for each side, the other commit's and the working tree's."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof.against import environment
from pytest_torchprof.against.base import cache_words, measured_base
from pytest_torchprof.against.launch import SideLaunch, write_launches
from pytest_torchprof.against.request import read_request
from pytest_torchprof.recording.folder import HIDDEN, hide

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from pytest_torchprof.against.request import Request

INTERRUPTED = 2


def run_both(config: pytest.Config) -> int:
    """Run both sides and return the exit status of the working tree's; TorchprofError where that cannot be."""
    prefix = "torchprof-against-"
    with _kept_folder(config.rootpath) as folder, tempfile.TemporaryDirectory(prefix=prefix) as results:
        request = read_request(config, folder, Path(results))
        changed = "with uncommitted changes" if request.reference.dirty else "without uncommitted changes"
        request.say(f"torchprof: the working tree, {changed}, against {request.reference.shown}")
        with ExitStack() as held:
            try:
                base = held.enter_context(measured_base(request))
            except KeyboardInterrupt:
                request.say(f"torchprof: interrupted while {request.reference.shown} was measured", always=True)
                return INTERRUPTED
            return _run_here(request, base)


@contextmanager
def _kept_folder(rootdir: Path) -> Iterator[Path]:
    """Yield the folder below the root directory that is kept from run to run, or one for this run alone.

    The latter where the working tree cannot be written, or what stands in the folder's place is a link.
    """
    folder = rootdir / HIDDEN / "against"
    if _is_writable(folder):
        yield folder
    else:
        with tempfile.TemporaryDirectory(prefix="torchprof-against-") as alone:
            yield Path(alone)


def _is_writable(folder: Path) -> bool:
    if folder.parent.is_symlink() or folder.is_symlink():
        return False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        hide(folder.parent)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _run_here(request: Request, base: SideLaunch | None) -> int:
    """Run the tests in the working tree, as the user has called pytest, and return its exit status.

    ``base``: how they are started at the other commit, where times are compared.
    """
    top, caches = request.repository.top, request.folder / "here"
    told = request.variables_of(is_base=False, caches=caches, is_told=True)
    python = sys.executable
    if request.install is not None:
        python = environment.install(caches, request.install, top / request.rootdir, told)
    if base is not None:
        here = SideLaunch(
            python=python,
            words=tuple(request.words),
            folder=os.fspath(request.config.invocation_params.dir),
            environment=request.variables_of(is_base=False, caches=caches),
        ).with_words(cache_words(request))
        alone = _alone_words(request.config)
        write_launches(request.results, base.with_words(alone), here.with_words(alone))
    process = subprocess.Popen([python, "-P", "-m", "pytest", *request.words], env=told)  # noqa: S603 - as above
    while True:
        try:
            status = process.wait()
        except KeyboardInterrupt:  # The terminal tells both of us, and how to end is for the tests to say.
            continue
        return status if status >= 0 else 128 - status


def _alone_words(config: pytest.Config) -> list[str]:
    """Return words for a process whose times mean something: without workers beside it, or tracing of lines."""
    plugins = config.pluginmanager
    words = ["-n0", "--dist=no"] if plugins.hasplugin("xdist") else []
    return [*words, "--no-cov"] if plugins.hasplugin("pytest_cov") else words
