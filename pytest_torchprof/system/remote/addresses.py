"""The parts of an address: its protocol, the libraries it needs, and what in it is secret. Nothing is loaded."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, quote_plus, unquote

from pytest_torchprof.text import SHOWN_IN_URLS, first_line

if TYPE_CHECKING:
    from collections.abc import Iterable

MODULES: Final = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "hf": "huggingface_hub",
    "http": "aiohttp",
    "https": "aiohttp",
    "memory": "fsspec",
}
"""The module that fsspec needs for a protocol, of those that people use most."""
_OF_EXTRAS: Final = frozenset({"alembic", "fsspec", "psycopg", "sqlalchemy"})
"""What the extras of this package bring."""
_LOCAL: Final = ("file://", "local://")


def is_remote(text: str) -> bool:
    """Whether a text is an address, and no path of this machine."""
    return "://" in text and not text.startswith(_LOCAL)


def without_local_protocol(text: str) -> str:
    """Return a path where it is written as an address of this machine, ``file:///data``; else the text as it is."""
    return text.partition("://")[2] if text.startswith(_LOCAL) else text


def protocol_of(address: str) -> str:
    """Return ``s3`` of ``s3://bucket/prefix``."""
    return address.partition("://")[0]


def not_installed(modules: Iterable[str]) -> tuple[str, ...]:
    """Return which of the modules are missing."""
    return tuple(module for module in modules if find_spec(module) is None)


def install_command(missing: Iterable[str], extra: str) -> str:
    """Return the command that installs modules: those that an extra of this package brings by its name."""
    modules = [*missing]
    needed = [f"'pytest-torchprof[{extra}]'"] if _OF_EXTRAS & {*modules} else []
    return " ".join(["pip install", *needed, *(module for module in modules if module not in _OF_EXTRAS)])


def reason_without_secrets(error: Exception, address: str) -> str:
    """Return the first line of an error's text, without the secrets of an address."""
    # SQLAlchemy's own text holds the statement and its parameters.
    cause = getattr(error, "orig", None) or error
    if isinstance(error, FileNotFoundError) and error.__cause__ is not None:
        # fsspec says no more than the address of whatever a web server refuses.
        cause = error.__cause__
    text = first_line(str(cause)) or type(cause).__name__
    for secret in sorted(_secrets(address), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _secrets(address: str) -> set[str]:
    """Return the texts that may be secret in a URL, in each way in which they may be written."""
    user = re.match(r"[^:]*://[^/@:?]*:(.*)@", address, re.DOTALL)
    query = address[user.end() if user else 0 :].partition("?")[2]
    values = [value for name, value in parse_qsl(query) if name not in SHOWN_IN_URLS]
    plain = {unquote(secret) for secret in ([user[1]] if user else [])} | set(values)
    return {form for secret in plain for form in (secret, quote(secret, safe=""), quote_plus(secret)) if form}
