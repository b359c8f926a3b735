"""The requested comparison: read from pytest's options, and refused if it is not possible."""

from __future__ import annotations

import math
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_torchprof.against.differences import Differences, differences
from pytest_torchprof.against.environment import SEED, environment_in, import_roots, variables
from pytest_torchprof.against.folders import HERE
from pytest_torchprof.against.git import Repository
from pytest_torchprof.against.overlay import TestFiles, test_files
from pytest_torchprof.against.side import BASE, Side
from pytest_torchprof.against.start import SideStart, with_arguments
from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.limits.quantities import duration_us
from pytest_torchprof.reasons.commits_measured import (
    NoBudget,
    NoShareOfTime,
    OneOfSeveral,
    OptionExcluded,
    PythonAndInstall,
)
from pytest_torchprof.reasons.errors import TorchprofError, UnknownLimit
from pytest_torchprof.reasons.git_refusals import TestsOutside
from pytest_torchprof.report import Reference
from pytest_torchprof.text.tables import screen_columns
from pytest_torchprof.text.wrapping import broken

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    import pytest

    from pytest_torchprof.against.folders import RunFolders


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One comparison of two sides."""

    config: pytest.Config
    arguments: tuple[str, ...]
    """The arguments of pytest, of either side."""
    repository: Repository
    reference: Reference
    rule: TestFiles
    own_tests: bool
    """Whether each side runs its own tests."""
    python: str
    """The Python of the environment in which the other commit is measured."""
    install: str | None
    """The command that installs a side's code."""
    is_fresh: bool
    """Whether results that an earlier run kept are ignored."""
    roots: tuple[Path, ...]
    """The folders from which modules are imported, below the root of either side."""
    folder: Path
    """The folder that is kept from run to run."""
    caches: Path
    """The folder of compilers' caches, by side."""
    results: Path
    """The folder of this run's results at the other commit."""
    time_share: float | None
    """The share by which every test may become slower; None if times are not asked for."""
    budget_s: float | None
    """The seconds for which times may be taken."""
    ambiguous_fails: bool
    """Whether a test fails if its pairs leave its times open."""
    keeps_recordings: bool = False
    """Whether measurements are kept as recordings too."""
    run: Callable[[SideStart, Path], int] = SideStart.run
    """Runs the other commit's pytest to its end, with a file for its output; returns its exit status."""

    @property
    def rootdir(self) -> Path:
        """The root directory of pytest, below the repository's."""
        return self.config.rootpath.resolve().relative_to(self.repository.top)

    @property
    def started_in(self) -> Path:
        """The folder in which pytest was started, below the repository's."""
        return self.config.invocation_params.dir.resolve().relative_to(self.repository.top)

    @property
    def tree(self) -> Path:
        """The folder of the other commit's files."""
        return self.of_commit / "tree"

    @property
    def of_commit(self) -> Path:
        """The folder with everything that is kept of the other commit."""
        return self.folder / self.reference.sha

    def caches_of(self, *, is_base: bool) -> Path:
        """Return the folder for compilers' caches of a side."""
        return self.caches / self.reference.sha / "caches" if is_base else self.caches / HERE

    def variables_of(self, *, is_base: bool, is_reported: bool = False) -> dict[str, str]:
        """Return the environment in which a side's processes find its code, its caches and their own role.

        ``is_reported``: CI gets their results.
        """
        here, there = self.repository.top, self.tree
        caches = self.caches_of(is_base=is_base)
        tree, other = (there, here) if is_base else (here, there)
        differ = self.differences
        installed = environment_in(self.of_commit if is_base else self.folder / HERE)
        side = Side(
            is_base=is_base,
            reference=self.reference,
            tree=tree,
            other=other,
            caches=caches,
            roots=self.roots_in(tree),
            own_tests=self.own_tests,
            keeps_recordings=self.keeps_recordings,
            results=self.results,
            starter=os.getpid(),
            installed=installed if self.install is not None else None,
            differing=differ.code,
            doubtful=differ.doubtful,
            ignored=self.repository.ignored(),
            patterns=self.rule.patterns,
            time_share=self.time_share,
            budget_s=self.budget_s,
            ambiguous_fails=self.ambiguous_fails,
        )
        announced = side.announce(self.results / (BASE if is_base else "here.json"))
        if is_base:  # Bytecode beside a source behind a link would be elsewhere.
            announced["PYTHONDONTWRITEBYTECODE"] = "1"
        return {**variables(side.roots, here, caches, is_reported=is_reported), **announced}

    @property
    def differences(self) -> Differences:
        """The files in which the working tree differs from the commit."""
        return differences(self.repository, self.reference.sha, self.rule, own_tests=self.own_tests)

    def roots_in(self, tree: Path) -> tuple[Path, ...]:
        """Return the folders of a side's files that its modules are imported from."""
        usual = (self.rootdir / "src", self.rootdir)
        return tuple(tree / root for root in dict.fromkeys((*usual, *self.roots)) if (tree / root).is_dir())

    def write_line(self, line: str, *, always: bool = False) -> None:
        """Write a line, broken where a terminal ends; with ``-q`` only one that must be seen."""
        if always or self.config.option.verbose >= 0:
            sys.stdout.write(f"{broken(line, screen_columns() if sys.stdout.isatty() else None)}\n")
            sys.stdout.flush()


def read_request(config: pytest.Config, folders: RunFolders) -> Request:
    """Return the comparison that the command line asks for; TorchprofError if it is not possible."""
    reference = config.option.torchprof_against
    refuse_clashes(config)
    repository = repository_of(config)
    sha = repository.commit(reference)
    return request_for(config, repository, Reference(ref=reference, sha=sha, dirty=repository.is_dirty), folders)


def repository_of(config: pytest.Config) -> Repository:
    """Return the repository of the tests; TorchprofError if there is none, or if they are elsewhere."""
    started_in, rootdir = config.invocation_params.dir.resolve(), config.rootpath.resolve()
    repository = Repository.around(started_in)
    named = [started_in / argument.partition("::")[0] for argument in config.args]
    for folder in (rootdir, *(folder.resolve() for folder in named if folder.exists())):
        if not folder.is_relative_to(repository.top):
            raise TorchprofError.because(TestsOutside(str(repository.top), str(folder)))
    return repository


def request_for(config: pytest.Config, repository: Repository, reference: Reference, folders: RunFolders) -> Request:
    """Return the request to measure the tests at a commit."""
    option, rootdir = config.option, config.rootpath.resolve()
    time_share, budget_s = read_times(option)
    looks_back = ("lf", "failedfirst", "newfirst", "stepwise")
    return Request(
        config=config,
        arguments=with_arguments(tuple(map(str, config.invocation_params.args)), seed_arguments(option)),
        repository=repository,
        reference=reference,
        rule=test_files(config.getini("python_files"), config.getini("testpaths"), rootdir, repository),
        own_tests=option.torchprof_against_tests == "own",
        python=_python(option.torchprof_against_python, config.invocation_params.dir),
        install=option.torchprof_against_install,
        is_fresh=option.torchprof_against_fresh or any(getattr(option, name, False) for name in looks_back),
        roots=import_roots(repository.top, rootdir, repository.worktrees),
        folder=folders.kept,
        caches=folders.caches,
        results=folders.results,
        time_share=time_share,
        budget_s=budget_s,
        ambiguous_fails=option.torchprof_against_ambiguous == "fail",
    )


def seed_arguments(option: argparse.Namespace) -> list[str]:
    """Return arguments that give both sides the same seeds, for plugins that would draw one for each process."""
    drawn = {"randomly_seed": "--randomly-seed", "random_order_seed": "--random-order-seed"}
    arguments = {name: f"{option_name}={SEED}" for name, option_name in drawn.items() if hasattr(option, name)}
    if getattr(option, "randomly_seed", "default") != "default":  # The user has chosen one.
        arguments.pop("randomly_seed", None)
    return list(arguments.values())


def _python(given: str | None, folder: Path) -> str:
    """Return the Python that is asked for: a path as seen from a folder, or a command."""
    if given is None:
        return sys.executable
    # A link to it marks its environment, and is not resolved.
    return str(folder / Path(given).expanduser()) if os.sep in given else given


def read_times(option: argparse.Namespace) -> tuple[float | None, float | None]:
    """Return by how much tests may become slower, and for how many seconds times are taken; None if not asked for.

    Raises TorchprofError if the options cannot be read.
    """
    return _time_share(option.torchprof_against_time), _budget_s(option.torchprof_against_budget)


def _time_share(text: str | None) -> float | None:
    """Return a share from "10%" or "0.1"."""
    if text is None:
        return None
    number, percent, rest = text.strip().partition("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = math.nan
    # A plain 3 may mean 3 % or three times as long.
    if rest or not 0 < share < math.inf or (not percent and share >= 1):
        raise TorchprofError.because(NoShareOfTime(text))
    return share


def _budget_s(text: str | None) -> float | None:
    """Return seconds from "120s" or "120"."""
    if text is None:
        return None
    try:
        seconds = duration_us(float(text) if re.fullmatch(r"[\d.]+", text) else text) / 1e6
    except (UnknownLimit, ValueError):
        seconds = 0.0
    if not seconds:
        raise TorchprofError.because(NoBudget(text))
    return seconds


def refuse_clashes(config: pytest.Config, who: str = "--torchprof-against") -> None:
    """Raise TorchprofError if measuring commits is not possible with the other options."""
    option = config.option
    given = {
        "--torchprof-baseline": option.torchprof_baseline,
        "--torchprof-baseline-dir": option.torchprof_baseline_dir,
        "--torchprof-replay": option.torchprof_replay or config.getini("torchprof_replay"),
        "--torchprof=off": (option.torchprof or config.getini("torchprof")) == "off",
    }
    if option.torchprof_against_python and option.torchprof_against_install:
        raise TorchprofError.because(PythonAndInstall())
    if not (rank := this_rank()).alone:
        raise TorchprofError.because(OneOfSeveral(who, str(rank)))
    clash = next((name for name, value in given.items() if value), None)
    if clash is not None:
        raise TorchprofError.because(OptionExcluded(who, clash))


def within(tree: Path, argument: str, top: Path) -> str:
    """Return an argument with the working tree's folder replaced by a side's, if its value begins with it."""
    name, equals, value = argument.partition("=") if argument.startswith("-") else ("", "", argument)
    if value == str(top) or value.startswith(f"{top}{os.sep}"):
        value = f"{tree}{value[len(str(top)) :]}"
    return f"{name}{equals}{value}"
