"""The file system of an address, by fsspec, which is optional."""

from __future__ import annotations

from typing import Any, Final

from fsspec import url_to_fs
from fsspec.config import conf

from pytest_torchprof.remote.addresses import protocol_of

_S3: Final = "s3"
# s3fs itself tries again whatever is worth it; botocore's tries in each of its own would make minutes of seconds.
_ONE_TRY: Final = {"retries": {"total_max_attempts": 1}}


def opened(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path there; what others have written meanwhile counts.

    Raises ImportError for a library that is not installed, and ValueError for a protocol that nobody knows.
    """
    files, path = url_to_fs(address, **_settings(address))
    files.invalidate_cache()
    return files, path


def _settings(address: str) -> dict[str, Any]:
    """Return what differs from the user's own settings of fsspec."""
    if protocol_of(address) != _S3:
        return {}
    return {
        "config_kwargs": {**_ONE_TRY, **conf.get(_S3, {}).get("config_kwargs", {})},
        # Several parts of a file at once are as many buffers of 50 MB.
        "max_concurrency": conf.get(_S3, {}).get("max_concurrency", 1),
    }
