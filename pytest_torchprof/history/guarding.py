"""Errors of the stores' libraries become our own: no verdict depends on a history."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pytest_torchprof.history.store import StoreUnusable
from pytest_torchprof.reasons.stores import StoreFails
from pytest_torchprof.system.remote.guarding import guarded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.history.where import Where
    from pytest_torchprof.reasons.stores import StoreUse


@contextmanager
def guarding(where: Where, use: StoreUse) -> Iterator[None]:
    """Raise StoreUnusable for any error of a store's library: what cannot be done with the store, and why.

    Neither the text nor a traceback has a password of the address.
    """
    with guarded(where.address, lambda why, _: StoreUnusable.of(where.shown, StoreFails(use, why))):
        yield
