"""Between two tests of a job: the next one starts as in a job of its own, or the rank says why it cannot."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.capture.session import another_profiler_runs
from pytest_torchprof.capture.torch_store import collectives_of_groups, new_store
from pytest_torchprof.system.replacing import replacing
from pytest_torchprof.testing.ranks.task import LeftBehind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_torchprof.testing.session import RunState

_LOOK_S: Final = 0.01


def process_group() -> object:
    """Return the default process group; None if there is none."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.group.WORLD


class Between:
    """The state that a rank keeps from one of its tests to the next."""

    def __init__(self, state: RunState | None) -> None:
        self._state = state
        torch: Any = sys.modules.get("torch")
        self._random = None if torch is None else torch.get_rng_state()
        self._store: object = None
        self._kept = process_group()
        """The process group of a fixture that several tests share."""

    def keep_group(self) -> None:
        """Take note that the process group belongs to a fixture that several tests share, or that theirs is gone."""
        group = process_group()
        self._kept = None if self._state is not None and group is self._state.own_group else group

    @property
    def left(self) -> LeftBehind | None:
        """The state that a test left behind and no job of its own would have; None if another test may follow."""
        group = process_group()
        own = group is not None and self._state is not None and group is self._state.own_group
        if not own and group is not self._kept:
            return LeftBehind.PROCESS_GROUP if group is not None else LeftBehind.NO_PROCESS_GROUP
        if own and self._kept is not None:
            return LeftBehind.OTHER_PROCESS_GROUP
        torch: Any = sys.modules.get("torch")
        if torch is None:
            return None
        if another_profiler_runs() is not None:
            return LeftBehind.PROFILER
        try:
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                torch.cuda.current_stream().query()
        except RuntimeError:
            return LeftBehind.BROKEN_DEVICE
        return None

    @property
    def groups(self) -> Mapping[str, int]:
        """How many collectives this rank has taken part in, by process group that stays; -1 where that is not known."""
        return {} if self._kept is None else collectives_of_groups()

    def begin_anew(self, at: Path, *, meets_anew: bool) -> None:
        """Begin a test as in a new job: random numbers, no process group but a fixture's, a store that nobody has used.

        ``at`` is the file in which rank 0 tells the others where the store is.
        """
        if self._state is not None:
            self._state.leave_group()
        torch: Any = sys.modules.get("torch")
        if torch is not None and self._random is not None:
            torch.set_rng_state(self._random)
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                torch.cuda.manual_seed_all(torch.initial_seed())
        # The next process group would take for its own what one that is gone has left in torchrun's store.
        if meets_anew and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            self._meet(at)

    def _meet(self, at: Path) -> None:
        if os.environ["RANK"] == "0":
            store = new_store(os.environ["MASTER_ADDR"])
            self._store = store  # It replaces the last one, which nobody uses any more.
            with replacing(at) as unfinished:
                unfinished.write_text(str(store.port))
        while not at.exists():  # The process that waits for the job does not wait for ever.
            time.sleep(_LOOK_S)
        os.environ["MASTER_PORT"] = at.read_text()
