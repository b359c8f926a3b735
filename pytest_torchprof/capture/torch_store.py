"""The store at which the ranks of a job find each other: torchrun's own, else that of the default process group.

Run with torch 2.10.0, 2.13.0 and 2.15.0 on Python 3.11.
"""

from __future__ import annotations

import os
import socket
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch._C._distributed_c10d import TCPStore


_PATIENCE = timedelta(seconds=10)
"""A store that is there answers at once."""


class MeetingPoint(NamedTuple):
    """The address of a store."""

    host: str
    port: int
    of_a_rank: bool
    """Whether the store is in the process of rank 0, and gone with its process group."""


def meeting_point() -> MeetingPoint | None:
    """Return where the ranks of this process's job can meet; None if they have no store that others can reach."""
    # An attribute of torch's launcher: the store in its agent is there before and after any process group.
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return MeetingPoint(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), of_a_rank=False)
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    store = distributed.distributed_c10d._get_default_store()  # Nothing else names it.
    while isinstance(store, distributed.PrefixStore):
        store = store.underlying_store
    return MeetingPoint(store.host, store.port, of_a_rank=True) if isinstance(store, distributed.TCPStore) else None


class Connection(NamedTuple):
    """A connection of our own to a store: waiting at it keeps nobody else waiting.

    It is kept while it lasts: for each new one torch asks the network for the names of the hosts at both ends.
    """

    point: MeetingPoint
    store: TCPStore
    process: int

    def reaches_the_store(self) -> bool:
        """Return whether the store still answers; a fork would take the answers to the process that it comes from."""
        if self.process != os.getpid():
            return False
        try:
            self.store.check(["torchprof"])
        except RuntimeError:
            return False
        return True


def connect(point: MeetingPoint) -> Connection:
    """Return a new connection; RuntimeError if nobody listens."""
    from torch._C._distributed_c10d import TCPStore

    try:
        # torch would go on trying to reach a store that is gone.
        socket.create_connection((point.host, point.port), _PATIENCE.seconds).close()
    except OSError as error:
        raise RuntimeError(f"the store at {point.host}:{point.port} is gone ({error.strerror or error})") from None
    store = TCPStore(point.host, point.port, is_master=False, wait_for_workers=False, timeout=_PATIENCE)
    return Connection(point, store, os.getpid())


def new_store(host: str) -> TCPStore:
    """Return a store in this process, at a free port."""
    from torch._C._distributed_c10d import TCPStore

    return TCPStore(host, 0, is_master=True, wait_for_workers=False)


def collectives_of_groups() -> dict[str, int]:
    """Return how many collectives this rank has taken part in, by process group; -1 if a group does not count them."""
    from torch import distributed

    world: Any = distributed.distributed_c10d._world
    groups = world.pg_names.items()
    # For groups without this rank there is only a name.
    return {name: _collectives_of(group) for group, name in groups if isinstance(group, distributed.ProcessGroup)}


def _collectives_of(group: Any) -> int:
    try:
        return int(group._get_sequence_number_for_group())
    except (AttributeError, RuntimeError):
        return -1
