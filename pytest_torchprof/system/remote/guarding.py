"""Errors of the stores' libraries become our own, without what is secret in an address."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.system.remote.addresses import reason_without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def guarded(address: str, refusal: Callable[[str, Exception], TorchprofError]) -> Iterator[None]:
    """Raise what ``refusal`` makes of any error of a library: of why it was, and of the error. Ours go through.

    Neither the reason nor a traceback has a password of the address.
    """
    try:
        yield
    except TorchprofError:
        raise
    except Exception as problem:  # noqa: BLE001 - libraries raise what they like
        raise refusal(reason_without_secrets(problem, address), problem) from None
