"""A baseline out of a history: read once by the process that the user started, for all that run its tests."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import json
from msgspec.structs import replace

from pytest_torchprof import baseline
from pytest_torchprof.against.git import Repository
from pytest_torchprof.baseline.path import baseline_path
from pytest_torchprof.history.branch_baseline import branch_baseline
from pytest_torchprof.history.commit_record import folder_below
from pytest_torchprof.history.runs import LeftOut
from pytest_torchprof.history.store import StoreUnusable
from pytest_torchprof.history.stores import store_at
from pytest_torchprof.reasons.branch import (
    HistoryUnread,
    LaunchOrderUnknown,
    NoRunOfBranch,
    UnmeasuredOnBranch,
)
from pytest_torchprof.reasons.decoding import portable
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.stores import StoreSilent
from pytest_torchprof.system.waiting import within
from pytest_torchprof.testing.history import PATIENCE_S
from pytest_torchprof.testing.known_branch import KnownBranch, key_in_file
from pytest_torchprof.testing.workers import HISTORY, HISTORY_KEY, is_of_xdist

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.history.branch_baseline import BranchBaseline, RunOfBranch
    from pytest_torchprof.reasons import decoding
    from pytest_torchprof.testing.options import HistoryBranch, RunOptions

_FACTS: Final = "known.json"


def history_baseline(config: pytest.Config, options: RunOptions) -> KnownBranch | None:
    """Return the branch that the run's tests are compared with; None where no history is the baseline.

    The process that the user started reads the history, when it is asked first.
    """
    asked = options.history_branch
    if asked is None or not options.enabled:
        return None
    if HISTORY not in config.stash:
        given: Mapping[str, Any] = getattr(config, "workerinput", {})
        config.stash[HISTORY] = given[HISTORY_KEY] if is_of_xdist(config) else _read_into_folder(config, asked, options)
    return json.decode(Path(config.stash[HISTORY], _FACTS).read_bytes(), type=KnownBranch)


def _read_into_folder(config: pytest.Config, asked: HistoryBranch, options: RunOptions) -> str:
    temporary = tempfile.TemporaryDirectory(prefix="torchprof-history-", ignore_cleanup_errors=True)
    config.add_cleanup(temporary.cleanup)
    folder = Path(temporary.name)
    facts = _read(asked, options, folder)
    (folder / _FACTS).write_bytes(json.encode(facts, enc_hook=str))
    return temporary.name


def _read(asked: HistoryBranch, options: RunOptions, folder: Path) -> KnownBranch:
    nothing = KnownBranch(branch=asked.branch, history=asked.history, folder=str(folder))
    below = ""
    with suppress(TorchprofError):
        below = folder_below(Repository.around(options.rootdir), options.rootdir)
    try:
        own = within(PATIENCE_S, lambda: branch_baseline(store_at(asked.where), asked.branch, below))
        nothing = replace(nothing, refused=tuple(portable(problem.reason) for problem in (*own.refused, *own.damaged)))
        if not own.devices:
            return replace(nothing, reason=_no_run(asked, own))
        return _with_entries(nothing, own, options.rootdir)
    except TimeoutError:
        return replace(nothing, reason=HistoryUnread(nothing.history, StoreSilent(PATIENCE_S)))
    except StoreUnusable as problem:
        return replace(nothing, reason=HistoryUnread(nothing.history, problem.cause))
    except TorchprofError as problem:
        return replace(nothing, reason=HistoryUnread(nothing.history, problem.reason))


def _no_run(asked: HistoryBranch, own: BranchBaseline) -> NoRunOfBranch:
    left_out = own.left_out
    return NoRunOfBranch(
        history=asked.history,
        branch=asked.branch,
        dirty=left_out.get(LeftOut.DIRTY, 0),
        stopped=left_out.get(None, 0),
        of_pull_requests=left_out.get(LeftOut.PR, 0),
        others=tuple(name for name in own.branches if name != asked.branch),
    )


def _with_entries(nothing: KnownBranch, own: BranchBaseline, rootdir: Path) -> KnownBranch:
    files: defaultdict[Path, dict[str, Entry]] = defaultdict(dict)
    runs: dict[str, RunOfBranch] = {}
    reasons: dict[str, decoding.AnyReason] = {}
    for (device, test, label), known in own.known.items():
        key, run = key_in_file((device, test, label)), known.run
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
        damaged=portable(own.damaged[0].reason) if own.damaged else None,
    )
