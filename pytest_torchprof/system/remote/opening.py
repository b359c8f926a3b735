"""The file system of an address, by fsspec, which is optional."""

from __future__ import annotations

from typing import Any, Final

from fsspec import url_to_fs
from fsspec.config import conf

from pytest_torchprof.system.remote.addresses import protocol_of

_S3: Final = "s3"


def opened(address: str, *, tries: int = 1) -> tuple[Any, str]:
    """Return the file system of an address, and the path there; what others have written meanwhile counts.

    ``tries``: how often botocore makes each request of S3, beside s3fs, which itself tries again whatever is worth it.
    Raises ImportError for a library that is not installed, and ValueError for a protocol that nobody knows.
    """
    files, path = url_to_fs(address, **_settings(address, tries))
    files.invalidate_cache()
    return files, path


def _settings(address: str, tries: int) -> dict[str, Any]:
    """Return the settings of ours that differ from the user's own settings of fsspec."""
    if protocol_of(address) != _S3:
        return {}
    own = conf.get(_S3, {})
    return {
        # Many tries of both libraries would make minutes of seconds.
        "config_kwargs": {"retries": {"total_max_attempts": tries}, **own.get("config_kwargs", {})},
        # Several parts of a file at once are as many buffers of 50 MB.
        "max_concurrency": own.get("max_concurrency", 1),
    }
