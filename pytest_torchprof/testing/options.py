"""The options of the command line and the ini file: read once, at the border, into a frozen value."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

import pytest
from msgspec import Struct
from msgspec.structs import replace

from pytest_torchprof.against import is_side
from pytest_torchprof.measuring.keyword_values import device_name
from pytest_torchprof.reasons.errors import TorchprofError, UnknownLimit
from pytest_torchprof.testing.declared import key_of, option_of
from pytest_torchprof.testing.option_values import one_of, read_share, whole_text, yes_or_no
from pytest_torchprof.testing.tolerance import Tolerance, tolerance_in
from pytest_torchprof.text import without_passwords

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pytest_torchprof.against.side import Side
    from pytest_torchprof.history.where import Where
    from pytest_torchprof.kernels.own_kernels import OwnKernels
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.testing.known_branch import KnownBranch
    from pytest_torchprof.testing.suite_file import Suite

Value = TypeVar("Value")


class Keep(StrEnum):
    """Which recordings of a run stay in the folder of ``--torchprof-save``, beside the record of its figures."""

    FIGURES = "figures"
    CHANGED = "changed"
    ALL = "all"


class BaselineMode(StrEnum):
    """The ways in which a run treats baselines."""

    COMPARE = "compare"
    UPDATE = "update"
    ADD = "add"
    STRICT = "strict"
    OFF = "off"
    UPDATE_TIMES = "update,times"
    """As ``update``, also the times of entries that are the same."""

    @property
    def updates(self) -> bool:
        """Whether every test that passes writes its entry."""
        return self in (BaselineMode.UPDATE, BaselineMode.UPDATE_TIMES)

    @property
    def writes(self) -> bool:
        """Whether baselines are written, all or the missing ones."""
        return self.updates or self is BaselineMode.ADD


class HistoryBranch(Struct, frozen=True, kw_only=True):
    """A branch in a history, with whose newest run the tests are compared."""

    where: Where
    history: str
    """The store as it was asked for, without a password."""
    branch: str

    @property
    def shown(self) -> str:
        """The name in messages."""
        return f"history:{self.history}@{self.branch}"


class RunOptions(Struct, frozen=True, kw_only=True):
    """The options of a run; ``None`` where neither command line nor ini file says anything."""

    enabled: bool
    baseline: BaselineMode
    history_branch: HistoryBranch | None
    """Where the baseline comes from in place of files."""
    baseline_dir: Path | None
    device: str | None
    warmup: int | None
    steps: int | None
    forced: frozenset[str]
    """Which of the last three were on the command line and win over the marker."""
    require_gpu: bool
    save: Path | None
    replay: Path | None
    reports: tuple[Path, ...]
    history: Where | None
    """The store to which the run adds a record of itself."""
    rootdir: Path
    tolerance: Tolerance | None
    settings: Mapping[str, object]
    """Settings of limits, for limits that are given without their own."""
    own_kernels: OwnKernels | None
    """The ini file's declaration of kernels that no table knows; None where it has none."""
    gpus: str
    """Whether workers of pytest-xdist see all GPUs or each its own."""
    workers: int
    """How many processes of pytest-xdist run tests at once; 1 without it."""
    rank_timeout_s: float = 60.0
    """How long ranks wait for one of which nothing is heard."""
    ranks_scope: str = "file"
    """Which tests of several ranks share a job: those of a file, or each has its own."""
    against: Side | None = None
    """Which side of a comparison with a commit this process is; None where nothing is compared."""
    suite: Suite | None = None
    """The rules for tests that ask for nothing themselves; None where nobody asks for them."""
    history_baseline: KnownBranch | None = None
    """The facts of a history about its branch, once a process has looked."""
    keep: Keep | None = None
    """Of which measurements the recording is kept with ``save``, beside a record of the run; None: of all, without."""

    @property
    def keeps_results(self) -> bool:
        """Whether results outlive the run, with what only their readers ask for."""
        return bool(self.reports) or self.history is not None or self.keep is not None

    def shown(self, path: Path) -> str:
        """Return a path as messages name it: relative to the root directory if it lies below it."""
        return str(path.relative_to(self.rootdir)) if path.is_relative_to(self.rootdir) else str(path)


_HISTORY: Final = "history:"
_ENDS_IN_PASSWORD: Final = re.compile(r"://[^/@]*:[^/@]*$")
_READING: Final = frozenset({BaselineMode.COMPARE, BaselineMode.STRICT})
"""The modes in which baselines are only read."""
_RUN_OPTIONS: pytest.StashKey[RunOptions] = pytest.StashKey()


def run_options(config: pytest.Config) -> RunOptions:
    """Return the options of a run, read at the first call; pytest.UsageError names one that cannot be used."""
    if _RUN_OPTIONS not in config.stash:
        config.stash[_RUN_OPTIONS] = _read_run_options(config)
    return config.stash[_RUN_OPTIONS]


def _read_run_options(config: pytest.Config) -> RunOptions:
    source = _Source(config)
    folder, save, replay = (next(iter(source.paths(name)), None) for name in ("baseline-dir", "save", "replay"))
    if save and replay:
        from pytest_torchprof.reasons.run_options import SaveAndReplay  # noqa: PLC0415  (for what is refused alone)

        raise _bad_option(SaveAndReplay())
    if save and (existing := next((place for place in (save, *save.parents) if place.exists()), save)).is_file():
        from pytest_torchprof.reasons.run_options import SaveIsFile  # noqa: PLC0415  (for what is refused alone)

        raise _bad_option(SaveIsFile(str(existing)))
    if replay and not replay.is_dir():
        from pytest_torchprof.reasons.run_options import ReplayNoFolder  # noqa: PLC0415  (for what is refused alone)

        raise _bad_option(ReplayNoFolder(str(replay)))
    keep = source.read("keep", one_of(Keep))
    if keep and not save:
        from pytest_torchprof.reasons.run_options import KeepWithoutSave  # noqa: PLC0415  (for what is refused alone)

        raise _bad_option(KeepWithoutSave(keep))
    mode, history_branch = source.baseline()
    if history_branch is not None and source.on_command_line("baseline-dir"):
        from pytest_torchprof.reasons.run_options import FolderAndHistory  # noqa: PLC0415  (for what is refused alone)

        raise _bad_option(FolderAndHistory())
    options = RunOptions(
        enabled=source.read("", one_of(("on", "off"))) != "off",
        baseline=mode,
        history_branch=history_branch,
        baseline_dir=folder,
        device=source.read("device", device_name),
        warmup=source.read("warmup", whole_text(0)),
        steps=source.read("steps", whole_text(1)),
        forced=frozenset(filter(source.on_command_line, ("device", "warmup", "steps"))),
        require_gpu=source.read("require-gpu", yes_or_no) or False,
        save=save,
        replay=replay,
        reports=source.paths("report"),
        history=source.history(),
        keep=Keep(keep) if keep else None,
        rootdir=config.rootpath,
        tolerance=source.tolerance(),
        settings=source.settings(),
        own_kernels=source.own_kernels(),
        rank_timeout_s=source.rank_timeout_s(),
        ranks_scope=source.ranks_scope(),
        gpus=source.read("gpus", one_of(("all", "each"))) or "all",
        workers=getattr(config, "workerinput", {}).get("workercount", 1),
        suite=source.suite(),
    )
    return _side_options(options) if is_side(config) else options


def _side_options(options: RunOptions) -> RunOptions:
    """Return the options of one side: the commit's run leaves baselines, with which the working tree is compared."""
    from pytest_torchprof.against.side import this_side  # noqa: PLC0415  (this module loads in every pytest run)

    side, options = this_side(), replace(options, suite=None)
    if side.is_judged:
        return replace(
            options, baseline=BaselineMode.COMPARE, history_branch=None, baseline_dir=side.entries, against=side
        )
    return replace(
        options,
        baseline=BaselineMode.UPDATE if side.timed is None else BaselineMode.OFF,
        history_branch=None,
        baseline_dir=side.entries,
        against=side,
        save=side.recordings,
        reports=(),
        history=None,
        keep=None,
        require_gpu=False,
    )


class _Source:
    """Where one option is read from: the command line wins over the ini key."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def on_command_line(self, name: str) -> bool:
        return self._config.getoption(key_of(name)) is not None

    def read(self, name: str, reader: Callable[[object], Value]) -> Value | None:
        """Return an option as the reader returns it, None where neither gives it; pytest.UsageError."""
        if (value := self._config.getoption(key_of(name))) is None:
            value = self._config.getini(key_of(name)) or None
        try:
            return None if value is None else reader(value)
        except UnknownLimit as problem:
            from pytest_torchprof.reasons.run_options import OfOption  # noqa: PLC0415  (for what is refused alone)

            in_ini_file = not self.on_command_line(name)
            option = key_of(name) if in_ini_file else option_of(name)
            raise _bad_option(OfOption(option, in_ini_file, problem.reason, repr(value))) from None

    def paths(self, name: str) -> tuple[Path, ...]:
        """Return paths: relative to where pytest was called, or, from the ini file, to that file's folder."""
        given, folder = self._given_below(name)
        return tuple(folder / path for path in given)

    def history(self) -> Where | None:
        """Return where the history is kept."""
        given, folder = self._given_below("history")
        return _store_in("history", given[0], folder) if given else None

    def baseline(self) -> tuple[BaselineMode, HistoryBranch | None]:
        """Return the mode for baselines, and the branch of a history that is the baseline in place of files."""
        given, folder = self._given_below("baseline")
        value = given[0] if given else ""
        mode, is_history, address = value.partition(_HISTORY)
        if not is_history:
            return BaselineMode(self.read("baseline", one_of(BaselineMode)) or "compare"), None
        store, _, branch = address.rpartition("@")
        modes = {word for word in (mode.removesuffix(","), branch.rpartition(",")[2]) if word in set(BaselineMode)}
        if modes - _READING:
            from pytest_torchprof.reasons.run_options import HistoryOnlyRead  # noqa: PLC0415  (for what is refused alone)

            raise _bad_option(HistoryOnlyRead(without_passwords(value)))
        # Where no branch is named, the sign stands between a password and its machine.
        is_cut = _ENDS_IN_PASSWORD.search(store) is not None
        if not store or not branch or is_cut or mode not in ("", *(f"{known}," for known in _READING)):
            from pytest_torchprof.reasons.run_options import NoBranchOfHistory  # noqa: PLC0415  (for what is refused alone)

            raise _bad_option(NoBranchOfHistory(without_passwords(value)))
        where = _store_in("baseline", store, folder)
        return BaselineMode(mode.removesuffix(",") or "compare"), HistoryBranch(
            where=where, history=without_passwords(store), branch=branch
        )

    def _given_below(self, name: str) -> tuple[Sequence[str], Path]:
        """Return the values of an option, and the folder to which paths in them are relative."""
        given, folder = self._config.getoption(key_of(name)), self._config.invocation_params.dir
        if given is None:
            given, folder = self._config.getini(key_of(name)) or (), self._config.rootpath
        return [given] if isinstance(given, str) else given, folder

    def suite(self) -> Suite | None:
        """Return the rules for the suite, if the run asks for them."""
        if (share := self.read("suite", read_share)) is None:
            return None
        from pytest_torchprof.testing.suite_file import read_suite  # noqa: PLC0415  (this module loads in every pytest run)

        try:
            return read_suite(self._config, share)
        except TorchprofError as problem:
            from pytest_torchprof.reasons.run_options import OfSuite  # noqa: PLC0415  (for what is refused alone)

            raise _bad_option(OfSuite(problem.reason)) from None

    def settings(self) -> dict[str, object]:
        """Return the settings of limits that the ini file has."""
        if not (names := self._config.getini("torchprof_own")):
            return {}
        from pytest_torchprof.limits.own_code import read_own  # noqa: PLC0415  (this module loads in every pytest run)

        try:
            return {"own": read_own(names)}
        except UnknownLimit as problem:
            from pytest_torchprof.reasons.run_options import OfSetting  # noqa: PLC0415  (for what is refused alone)

            raise _bad_option(OfSetting("torchprof_own", problem.reason)) from None

    def own_kernels(self) -> OwnKernels | None:
        """Return the kernels that the ini file declares."""
        if not (lines := self._config.getini("torchprof_kernels")):
            return None
        from pytest_torchprof.kernels.own_kernels import read_own_lines  # noqa: PLC0415  (as above)

        try:
            return read_own_lines(lines)
        except UnknownLimit as problem:
            from pytest_torchprof.reasons.run_options import OfSetting  # noqa: PLC0415  (for what is refused alone)

            raise _bad_option(OfSetting("torchprof_kernels", problem.reason)) from None

    def rank_timeout_s(self) -> float:
        """Return how long ranks wait for each other."""
        text = self._config.getini("torchprof_rank_timeout")
        with suppress(ValueError):
            if 0 < (seconds := float(text)) < math.inf:
                return seconds
        from pytest_torchprof.reasons.run_options import NoRankTimeout  # noqa: PLC0415  (for what is refused alone)

        raise _bad_option(NoRankTimeout(text))

    def ranks_scope(self) -> str:
        """Return which tests of several ranks share a job."""
        text = str(self._config.getini("torchprof_ranks_scope"))
        if text in ("file", "test"):
            return text
        from pytest_torchprof.reasons.run_options import NoRanksScope  # noqa: PLC0415  (for what is refused alone)

        raise _bad_option(NoRanksScope(text))

    def tolerance(self) -> Tolerance | None:
        """Return the tolerance in the ini file's form, "time=0.10 kernels=1"."""
        text = self._config.getini("torchprof_tolerance")
        try:
            return tolerance_in(text)
        except UnknownLimit as problem:
            from pytest_torchprof.reasons.run_options import OfTolerance  # noqa: PLC0415  (for what is refused alone)

            raise _bad_option(OfTolerance(text, problem.reason)) from None


def _store_in(option: str, address: str, folder: Path) -> Where:
    """Return the store that an option names."""
    # This module loads in every pytest run.
    from pytest_torchprof.history.store import StoreUnusable  # noqa: PLC0415
    from pytest_torchprof.history.stores import store_at  # noqa: PLC0415
    from pytest_torchprof.history.where import where_of  # noqa: PLC0415

    try:
        where = where_of(address, folder)
        store_at(where)  # That a library cannot be loaded should be known now rather than at the end of the run.
    except StoreUnusable as problem:
        from pytest_torchprof.reasons.run_options import OfSetting  # noqa: PLC0415  (for what is refused alone)

        raise _bad_option(OfSetting(option_of(option), problem.reason)) from None
    return where


def _bad_option(why: Reason) -> pytest.UsageError:
    return pytest.UsageError(str(why))
