"""A baseline out of a history: read once by the process that the user started, for all that run its tests."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, json
from msgspec.structs import replace

from pytest_torchprof import baseline
from pytest_torchprof.against.git import Repository
from pytest_torchprof.baseline.path import baseline_path
from pytest_torchprof.history.branch_baseline import BranchBaseline, RunOfBranch, branch_baseline
from pytest_torchprof.history.commit_record import folder_below
from pytest_torchprof.history.runs import LeftOut
from pytest_torchprof.history.store import StoreUnusable
from pytest_torchprof.history.stores import store_at
from pytest_torchprof.reasons.branch import (
    HistoryUnread,
    LaunchOrderUnknown,
    NoRunOfBranch,
    OtherDevices,
    RecordDamaged,
    UnmeasuredOnBranch,
)
from pytest_torchprof.reasons.catalogue import AnyReason  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.system.waiting import within
from pytest_torchprof.testing.history import PATIENCE_S
from pytest_torchprof.testing.workers import HISTORY, HISTORY_KEY, is_of_xdist

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.history.branch_baseline import Key
    from pytest_torchprof.testing.options import HistoryBranch, RunOptions
    from pytest_torchprof.trace.metadata import Environment

_FACTS: Final = "known.json"


class HistoryBaseline(Struct, frozen=True, kw_only=True):
    """What the tests of a run are compared with: files of entries, and why some have none."""

    branch: str
    history: str
    """What messages call it."""
    folder: str
    """The folder of the entries, as ``--torchprof-baseline-dir`` has them."""
    reason: AnyReason | None = None
    """Why there is nothing to be compared with, for any test."""
    devices: dict[str, str] = {}
    """The GPUs, or CPUs, on which the branch was measured, by their names in files."""
    runs: dict[str, RunOfBranch] = {}
    """By device, test and label, the run whose entry it is."""
    reasons: dict[str, AnyReason] = {}
    """In the same way, why there is no entry; without device: on none."""
    damaged: str = ""
    """What is wrong with a record of the branch in which tests are looked for; empty if all can be believed."""
    refused: tuple[str, ...] = ()
    """What is wrong with records that were left out, for the end of the run."""

    def run_of(self, environment: Environment, test: str, label: str | None) -> RunOfBranch | None:
        """Return the run that a measurement is compared with; None if there is none."""
        return self.runs.get(_key((baseline.device_slug(environment), test, label)))

    def why_not(self, environment: Environment, test: str, label: str | None) -> AnyReason | None:
        """Return why a measurement has nothing to be compared with; None if it has, or if its test is a new one."""
        device = baseline.device_slug(environment)
        key = _key((device, test, label))
        if self.reason is not None or key in self.runs:
            return self.reason
        if (reason := self.reasons.get(key) or self.reasons.get(_key((None, test, label)))) is not None:
            return reason
        if self.damaged:
            return RecordDamaged(self.branch, self.damaged)
        if device in self.devices:
            return None
        named = tuple(dict.fromkeys(sorted(self.devices.values())))
        return OtherDevices(self.history, self.branch, named, environment.gpu or environment.cpu or device)


def history_baseline(config: pytest.Config, options: RunOptions) -> HistoryBaseline | None:
    """Return what the run's tests are compared with; None where that is not asked of a history.

    The process that the user started reads the history, when it is asked first.
    """
    asked = options.history_branch
    if asked is None or not options.enabled:
        return None
    if HISTORY not in config.stash:
        given: Mapping[str, Any] = getattr(config, "workerinput", {})
        config.stash[HISTORY] = given[HISTORY_KEY] if is_of_xdist(config) else _read_into_folder(config, asked, options)
    return json.decode(Path(config.stash[HISTORY], _FACTS).read_bytes(), type=HistoryBaseline)


def _read_into_folder(config: pytest.Config, asked: HistoryBranch, options: RunOptions) -> str:
    temporary = tempfile.TemporaryDirectory(prefix="torchprof-history-", ignore_cleanup_errors=True)
    config.add_cleanup(temporary.cleanup)
    folder = Path(temporary.name)
    facts = _read(asked, options, folder)
    (folder / _FACTS).write_bytes(json.encode(facts, enc_hook=str))
    return temporary.name


def _read(asked: HistoryBranch, options: RunOptions, folder: Path) -> HistoryBaseline:
    nothing = HistoryBaseline(branch=asked.branch, history=asked.history, folder=str(folder))
    below = ""
    with suppress(TorchprofError):
        below = folder_below(Repository.around(options.rootdir), options.rootdir)
    try:
        own = within(PATIENCE_S, lambda: branch_baseline(store_at(asked.where), asked.branch, below))
        nothing = replace(nothing, refused=tuple(map(str, (*own.refused, *own.damaged))))
        if not own.devices:
            return replace(nothing, reason=_no_run(asked, own))
        return _with_entries(nothing, own, options.rootdir)
    except TimeoutError as error:
        return replace(nothing, reason=HistoryUnread(nothing.history, str(error)))
    except StoreUnusable as problem:
        return replace(nothing, reason=HistoryUnread(nothing.history, problem.why))
    except TorchprofError as problem:
        return replace(nothing, reason=HistoryUnread(nothing.history, problem.text))


def _no_run(asked: HistoryBranch, own: BranchBaseline) -> NoRunOfBranch:
    left_out = own.left_out
    return NoRunOfBranch(
        history=asked.history,
        branch=asked.branch,
        dirty=left_out.get(LeftOut.DIRTY, 0),
        stopped=left_out.get(None, 0),
        of_pull_requests=left_out.get(LeftOut.PR, 0),
    )


def _with_entries(nothing: HistoryBaseline, own: BranchBaseline, rootdir: Path) -> HistoryBaseline:
    files: defaultdict[Path, dict[str, Entry]] = defaultdict(dict)
    runs: dict[str, RunOfBranch] = {}
    reasons: dict[str, AnyReason] = {}
    for (device, test, label), known in own.known.items():
        key, run = _key((device, test, label)), known.run
        if device is None:
            reasons[key] = UnmeasuredOnBranch(nothing.history, run.shown, str(known.outcome), known.code)
        elif known.entry is None:
            reasons[key] = LaunchOrderUnknown(nothing.history, run.shown, run.version)
        else:
            file = baseline_path(rootdir / test.partition("::")[0], rootdir, device, Path(nothing.folder))
            files[file][baseline.key_of(test, label)] = known.entry
            runs[key] = run
    for file, entries in files.items():
        baseline.update(file, entries)
    return replace(
        nothing,
        devices=dict(own.devices),
        runs=runs,
        reasons=reasons,
        damaged=str(own.damaged[0]) if own.damaged else "",
    )


def _key(key: Key) -> str:
    return json.encode(key).decode()
