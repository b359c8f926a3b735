"""The other commit's side: its files, its run, and the results that are kept for the next run."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import filelock
from msgspec.structs import replace

from pytest_torchprof import baseline
from pytest_torchprof.against import environment, overlay
from pytest_torchprof.against.folders import COMPILED
from pytest_torchprof.against.git import export, tracked_files
from pytest_torchprof.against.outcomes import BaseOutcomes, TestNames, read_outcomes, write_outcomes
from pytest_torchprof.against.own_files import free_path, own_folder, remove
from pytest_torchprof.against.pairs import TIMED
from pytest_torchprof.against.request import within
from pytest_torchprof.against.start import SideStart
from pytest_torchprof.reasons.commit_gaps import NoOutcomes, NotStarted
from pytest_torchprof.reasons.error_texts import unmeasured_text
from pytest_torchprof.reasons.errors import TorchprofError, UnreadableBaseline
from pytest_torchprof.reasons.starting import as_why_not_started
from pytest_torchprof.text import counted, last_lines, printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pytest_torchprof.against.request import Request

MOST_KEPT: Final = 10
"""The number of commits whose results are kept."""
LAST_LINES: Final = 30
"""The number of output lines that are shown of a run that did not reach its tests."""
_OWN_SETTINGS: Final = "torchprof-against"
_KEPT: Final = "kept from an earlier run"
_FORM: Final = "facts of outcomes"
"""The form in which results are kept: those of another form are ignored."""
_COMMIT: Final = re.compile(r"[0-9a-f]{40,64}")


@contextmanager
def measured_base(request: Request) -> Iterator[SideStart | None]:
    """Measure the tests at the other commit, with their results in the folder of results, and report it.

    Yield how to start them there again while the block lasts, if times are compared; otherwise None. Raises
    TorchprofError if the commit's files are not available.
    """
    with ExitStack() as held:
        origin = _obtain(request, held)
        _report(request, origin)
        if not (request.results / TIMED).is_file():
            held.close()
            yield None
            return
        if origin == _KEPT:
            held.enter_context(_files(request))
        yield _start_at_commit(request)


def obtain_results(request: Request) -> str:
    """Put the results of the tests at a commit into the folder of results; return their origin, or the time taken.

    Raises TorchprofError if the commit's files are not available.
    """
    with ExitStack() as held:
        return _obtain(request, held)


def _obtain(request: Request, held: ExitStack) -> str:
    """Do the work of ``obtain_results``; ``held`` keeps the lock, and the files that are measured now."""
    held.enter_context(_only_run(request))
    _clear(request)
    kept = request.of_commit / _key(request)
    if (kept / "complete").is_file() and not request.is_fresh:
        shutil.copytree(kept, request.results, dirs_exist_ok=True)
        os.utime(request.of_commit)
        return _KEPT
    request.write_line(f"base {request.reference.shown}: measuring")
    began = time.monotonic()
    outcomes = _measure(request, held.enter_context(_files(request)))
    write_outcomes(request.results, outcomes)
    if outcomes.status == 0:
        _keep(request, kept)
    return f"in {time.monotonic() - began:.0f} s"


@contextmanager
def _only_run(request: Request) -> Iterator[None]:
    """Hold the lock of the folder: two runs in one working tree share the folder of the other commit's files."""
    lock = filelock.FileLock(request.folder / "lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        request.write_line("torchprof: waits for another run of --torchprof-against in this working tree", always=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _key(request: Request) -> str:
    """Return a hash of everything that decides what is measured at the commit."""
    top, settings = request.repository.top, request.config.inipath
    parts = {
        "words": [argument for argument in request.arguments if argument != "--torchprof-against-fresh"],
        "started in": str(request.started_in),
        "tests": "own" if request.own_tests else overlay.digest(top, _own_test_files(request)),
        "settings": "" if settings is None else settings.read_text(encoding="utf-8", errors="surrogateescape"),
        "recordings": str(request.keeps_recordings),
        "roots": [str(root) for root in request.roots],
        "form": _FORM,
        **environment.described(request.python),
    }
    return _hash_of(parts)


def _hash_of(parts: Mapping[str, object]) -> str:
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _own_test_files(request: Request) -> list[str]:
    if request.own_tests:
        return []
    return request.rule.of(request.repository.top, request.repository.files())


def _clear(request: Request) -> None:
    """Remove the remains of earlier runs: files of commits after a kill, and the results longest unused."""
    folders = [folder for folder in request.folder.iterdir() if folder.is_dir() and _COMMIT.fullmatch(folder.name)]
    for folder in folders:
        if not (folder / "installed").is_file():
            shutil.rmtree(folder / "tree", ignore_errors=True)
        shutil.rmtree(folder / "caches", ignore_errors=True)
    others = sorted(
        (folder for folder in folders if folder != request.of_commit), key=lambda folder: -folder.stat().st_mtime
    )
    for folder in others[MOST_KEPT - 1 :]:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _files(request: Request) -> Iterator[TestNames]:
    """Keep the other commit's files in place while the block lasts; yield the names of its tests, and ours."""
    installed, tree, own_tests = _installed(request), request.tree, request.of_commit / "tests"
    if not (installed.is_file() and installed.read_text(encoding="utf-8") == _environment(request)):
        installed.unlink(missing_ok=True)
        remove(tree)
        export(request.repository, request.reference.sha, tree)
        remove(own_tests)
        if request.install is not None:
            own_tests.mkdir()
            overlay.copy_files(tree, request.rule.of(tree, tracked_files(tree)), own_tests)
    else:
        # An earlier run put its tests over those of the commit.
        kept = (path for path in own_tests.rglob("*") if path.is_symlink() or not path.is_dir())
        names = sorted(path.relative_to(own_tests).as_posix() for path in kept)
        overlay.overlay(own_tests, names, tree, request.rule)
    try:
        yield _test_names(request)
    finally:
        if not installed.is_file():
            shutil.rmtree(tree, ignore_errors=True)
            shutil.rmtree(own_tests, ignore_errors=True)
        shutil.rmtree(request.caches_of(is_base=True), ignore_errors=True)


def _test_names(request: Request) -> TestNames:
    """Return the names of tests by file, as in test ids: below the root directory of pytest."""

    def by_file(folder: Path, files: Collection[str]) -> dict[str, tuple[str, ...]]:
        named = overlay.names_in(folder, files, request.rule)
        return {Path(os.path.relpath(file, request.rootdir)).as_posix(): names for file, names in named.items()}

    here = by_file(request.repository.top, list(request.repository.files()))
    own = by_file(request.tree, tracked_files(request.tree))
    return TestNames(own=own, here=here, gone=overlay.names_gone(own, here))


def _measure(request: Request, names: TestNames) -> BaseOutcomes:
    """Run the tests at the other commit and return their outcomes."""
    try:
        status = request.run(_start_at_commit(request), request.results / "log")
    except TorchprofError as problem:
        return not_started(problem, names)
    outcomes = read_outcomes(request.results)
    broken = outcomes.broken and NoOutcomes(status)
    return replace(outcomes, status=status, names=names, broken=broken)


def not_started(problem: TorchprofError, names: TestNames | None = None) -> BaseOutcomes:
    """Return the outcomes of a commit at which the tests could not be run at all."""
    return BaseOutcomes(status=-1, names=names or TestNames(), broken=NotStarted(as_why_not_started(problem.reason)))


def _installed(request: Request) -> Path:
    """Return the file that names the environment in which the commit was installed."""
    return request.of_commit / "installed"


def _environment(request: Request) -> str:
    return _hash_of({"command": request.install, **environment.described(request.python)})


def _start_at_commit(request: Request) -> SideStart:
    """Return the start of pytest in the other commit's files, with the tests to run in them.

    Raises TorchprofError if the commit cannot be installed.
    """
    top, tree = request.repository.top, request.tree
    if not request.own_tests:
        overlay.overlay(top, _own_test_files(request), tree, request.rule)
    # Not behind a link: files that are built, written and collected there would be elsewhere.
    own_folder(tree, request.rootdir)
    folder = own_folder(tree, request.started_in)
    python, variables = request.python, request.variables_of(is_base=True)
    if request.install is not None:
        if (installed := _installed(request)).is_file():
            python = environment.python_of(request.of_commit)
        else:
            python = environment.install(request.of_commit, request.install, tree / request.rootdir, variables)
            installed.write_text(_environment(request), encoding="utf-8")
    ours = [f"--rootdir={tree / request.rootdir}", "-c", str(_settings(request))]
    arguments = tuple(within(tree, argument, top) for argument in request.arguments)
    start = SideStart(python=python, arguments=arguments, folder=str(folder), environment=variables)
    return start.with_arguments([*ours, *cache_arguments(request)])


def _settings(request: Request) -> Path:
    """Return the file with pytest's settings for the other commit: the working tree's, where its tests run."""
    given, tree = request.config.inipath, request.tree
    if given is None:
        empty = free_path(tree, request.rootdir / f"{_OWN_SETTINGS}.ini")
        empty.write_text("[pytest]\n", encoding="utf-8")
        return empty
    if not given.resolve().is_relative_to(request.repository.top):
        return given
    name = given.resolve().relative_to(request.repository.top)
    same = tree / name
    if same.is_file() and (request.own_tests or same.name in overlay.SETTINGS):
        return same
    # Files such as pyproject.toml have more than pytest's settings, about code that is the commit's.
    beside = free_path(tree, name.with_name(f"{_OWN_SETTINGS}{given.suffix}"))
    shutil.copyfile(given, beside)
    return beside


def cache_arguments(request: Request) -> list[str]:
    """Return arguments that give pytest a cache for this run, with the user's knowledge of the last runs."""
    if not request.config.pluginmanager.hasplugin("cacheprovider"):
        return []
    cache = request.results / "cache"
    given = request.config.rootpath / os.path.expandvars(request.config.getini("cache_dir"))
    with suppress(OSError):
        shutil.copytree(given / "v", cache / "v", dirs_exist_ok=True)
    return ["-o", f"cache_dir={cache}"]


def _keep(request: Request, kept: Path) -> None:
    """Keep the results of a run without a failure."""
    (request.results / "complete").touch()
    shutil.rmtree(kept, ignore_errors=True)
    part = kept.with_name(f"{kept.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    with suppress(OSError):
        shutil.copytree(request.results, part, ignore=lambda _folder, _names: [COMPILED])
        part.rename(kept)


def _report(request: Request, origin: str) -> None:
    """Report the outcome of the base, with its output if its tests did not run."""
    outcomes = read_outcomes(request.results)
    if outcomes.broken is None:
        measured = sum(len(_entries(file)) for file in sorted((request.results / "entries").rglob("*.json")))
        ran = counted(outcomes.tests, "test")
        request.write_line(
            f"base {request.reference.shown}: {ran}, {counted(measured, 'measurement')}, {origin}", always=True
        )
        files = {place: why for place, why in outcomes.troubles.items() if "::" not in place}
        for file, why in files.items():
            _quote(request, f"base {request.reference.shown}: {file or 'a folder'}:", why.whole.splitlines())
        return
    request.write_line(f"base {request.reference.shown}: {unmeasured_text(outcomes.broken)}", always=True)
    if output := log_end(request.results):
        _quote(request, "it said:", output)


def log_end(results: Path) -> list[str]:
    """Return the last lines of the output of a side's run; empty if it left no output."""
    try:
        output = (results / "log").read_text(encoding="utf-8", errors="backslashreplace")
    except OSError:
        return []
    return last_lines(output, LAST_LINES)


def _quote(request: Request, first: str, lines: list[str]) -> None:
    request.write_line("\n".join([first, *(f"  | {printable(line)}" for line in lines)]), always=True)


def _entries(file: Path) -> Mapping[str, object]:
    try:
        return baseline.read(file).entries
    except UnreadableBaseline:
        return {}
