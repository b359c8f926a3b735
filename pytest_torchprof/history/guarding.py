"""Errors of the stores' libraries become our own: no verdict depends on a history."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, quote_plus, unquote

from pytest_torchprof.history.store import StoreUnusable
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.text import SHOWN_IN_URLS, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_torchprof.history.where import Where


@contextmanager
def guarding(where: Where, failed: str) -> Iterator[None]:
    """Raise StoreUnusable for any error of a store's library: that it "cannot be written", say, and why.

    Neither the text nor a traceback has a password of the address.
    """
    try:
        yield
    except TorchprofError:
        raise
    except Exception as error:  # noqa: BLE001 - libraries raise what they like
        raise StoreUnusable(where.shown, f"{failed}: {reason_without_secrets(error, where)}") from None


def reason_without_secrets(error: Exception, where: Where) -> str:
    """Return the first line of an error's text, without the secrets of an address."""
    # SQLAlchemy's own text holds the statement and its parameters.
    cause = getattr(error, "orig", None) or error
    text = first_line(str(cause)) or type(cause).__name__
    for secret in sorted(_secrets(where.address), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _secrets(address: str) -> set[str]:
    """Return what may be secret in a URL, in each way in which it may be written."""
    user = re.match(r"[^:]*://[^/@:?]*:(.*)@", address, re.DOTALL)
    query = address[user.end() if user else 0 :].partition("?")[2]
    values = [value for name, value in parse_qsl(query) if name not in SHOWN_IN_URLS]
    plain = {unquote(secret) for secret in ([user[1]] if user else [])} | set(values)
    return {form for secret in plain for form in (secret, quote(secret, safe=""), quote_plus(secret)) if form}
