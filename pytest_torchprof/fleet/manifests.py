"""Manifests: files that list recordings, a JSON object in each line, with what is known of them besides."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from pytest_torchprof.fleet.listed import Listed, file_at_path, from_root
from pytest_torchprof.fleet.remote import refuse_unreachable
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.fleet_sources import LineWithoutUrl, ManifestNotRead, UrlNoPlace
from pytest_torchprof.system.remote.addresses import is_remote, without_local_protocol
from pytest_torchprof.system.remote.files import bare_version
from pytest_torchprof.text import without_passwords

if TYPE_CHECKING:
    from collections.abc import Iterator

MANIFEST: Final = ".jsonl"


class _ManifestLine(Struct, frozen=True):
    url: str
    size: int | None = None
    etag: str | None = None


def files_of_manifest(path: Path) -> Iterator[Listed]:
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise TorchprofError.because(ManifestNotRead(str(path), str(problem.strerror))) from None
    yield from files_of_lines(content, str(path), str(path.parent))


def files_of_lines(content: bytes, manifest: str, folder: str) -> Iterator[Listed]:
    # A spreadsheet, or PowerShell, begins a file of UTF-8 with a mark.
    for number, line in enumerate(content.removeprefix(codecs.BOM_UTF8).splitlines(), 1):
        if line.strip():
            yield _file_of_line(without_passwords(manifest), number, folder, line)


def _file_of_line(manifest: str, number: int, folder: str, line: bytes) -> Listed:
    try:
        own = msgspec.json.decode(line, type=_ManifestLine)
        metadata = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise TorchprofError.because(LineWithoutUrl(manifest, number, str(problem))) from None
    others = {name: value for name, value in metadata.items() if name not in _ManifestLine.__struct_fields__}
    texts = ((name, _text_of(value)) for name, value in others.items())
    known: dict[str, Any] = {"metadata": {name: text for name, text in texts if text is not None}}
    if own.size is not None:
        known["size"] = own.size
    if own.etag is not None:
        known["etag"] = bare_version(own.etag)
    url = without_local_protocol(own.url)
    if "\0" in url or not url:
        raise TorchprofError.because(UrlNoPlace(manifest, number, own.url))
    if is_remote(url):
        refuse_unreachable(url)
        return Listed(url=url, **known)
    if is_remote(folder) and not url.startswith("/"):
        return Listed(url=f"{folder}/{url}", **known)
    return file_at_path(str(from_root(Path(folder, url))), known)


def _text_of(value: msgspec.Raw) -> str | None:
    """Return a manifest's value as text: numbers, lists and the like as JSON; None for null."""
    own = msgspec.json.decode(value)
    return own if own is None or isinstance(own, str) else bytes(value).decode()
