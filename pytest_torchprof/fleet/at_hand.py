"""Files of a list where they can be read: fetched from elsewhere, and unpacked from archives."""

from __future__ import annotations

import zipfile
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.fleet.listed import Listed, is_as_listed
from pytest_torchprof.reasons.errors import UnreadableRecording
from pytest_torchprof.reasons.unreadable import (
    ArchiveDamaged,
    GoneSinceListed,
    MemberTooLarge,
    NothingAtAddress,
    NotOpened,
    NotUnpacked,
    StoreRefuses,
)
from pytest_torchprof.recording.bounds import UNPACKED
from pytest_torchprof.system.archives import DAMAGED, is_archive
from pytest_torchprof.system.remote.addresses import reason_without_secrets
from pytest_torchprof.system.remote.files import fetch, reading
from pytest_torchprof.system.remote.patience import is_final, is_missing, patiently

if TYPE_CHECKING:
    from collections.abc import Iterator

_AGAIN: Final = 3
"""How often a store is asked again about a file that is here by then."""


class NotFetched(UnreadableRecording):
    """A file that its store did not give this time."""


def is_same(file: Listed) -> bool:
    """Whether a file is the one that was listed; of one that is gone reading says so.

    Raises UnreadableRecording if that cannot be decided.
    """
    try:
        return patiently(lambda: is_as_listed(file), _AGAIN) if file.is_remote else is_as_listed(file)
    except Exception as problem:
        if file.is_remote:
            if is_missing(problem):
                return False
            raise _not_given(file, problem) from None
        if isinstance(problem, FileNotFoundError):
            return True
        if not isinstance(problem, OSError):
            raise
        cause = NotOpened(file.url, str(problem.strerror))
        raise UnreadableRecording.of(cause, file.name)  # noqa: B904 - the context says which error it was


@contextmanager
def at_hand(file: Listed, copy: str | None) -> Iterator[str]:
    """Yield the path of a file that can be read; ``copy`` is where there is one already.

    Raises UnreadableRecording where there is none, NotFetched where another try may come to more.
    """
    if file.member is None and (copy is not None or not file.is_remote):
        _refuse_damaged(file, copy or file.path)
        yield copy or file.path
        return
    with TemporaryDirectory(prefix="torchprof-") as folder:
        path = Path(folder, _name(file))
        if file.member is None:
            fetch_to(file, path)
            _refuse_damaged(file, path)
        else:
            _unpack(file, copy, path)
        yield str(path)


def _refuse_damaged(file: Listed, path: str | Path) -> None:
    """Raise UnreadableRecording for an archive in which nothing could be listed."""
    if is_archive(file.shown) and Path(path).is_file():  # Opening a pipe may never end.
        try:
            with zipfile.ZipFile(path):
                pass
        except _BROKEN as problem:
            raise UnreadableRecording.of(ArchiveDamaged(file.name, str(problem)), file.name) from None
        except OSError as problem:
            raise UnreadableRecording.of(NotOpened(file.name, str(problem.strerror)), file.name) from None


def fetch_to(file: Listed, path: Path) -> None:
    """Copy a file from its store to this machine; errors as in ``at_hand``."""
    try:
        fetch(file.url, path)
    except Exception as problem:  # noqa: BLE001 - libraries raise what they like
        raise _not_given(file, problem) from None


def _name(file: Listed) -> str:
    """Return a name whose ending says which kind of file it is."""
    return Path(file.url.partition("?")[0] if file.member is None else file.member).name or "recording"


def _not_given(file: Listed, problem: Exception) -> UnreadableRecording:
    """Return the error for a file that its store does not give."""
    if is_missing(problem):
        was_there = file.size is not None or file.etag is not None
        return UnreadableRecording.of((GoneSinceListed if was_there else NothingAtAddress)(file.shown), file.name)
    cause = StoreRefuses(file.name, reason_without_secrets(problem, file.url))
    return (UnreadableRecording if is_final(problem) else NotFetched).of(cause, file.name)


@contextmanager
def _archive(file: Listed, copy: str | None) -> Iterator[Any]:
    """Yield the archive as zipfile takes it; of an archive that lies elsewhere, only what is read is fetched."""
    if copy is not None or not file.is_remote:
        yield copy or file.path
        return
    with reading(file.url) as content:
        yield content


def _unpack(file: Listed, copy: str | None, path: Path) -> None:
    if (file.size or 0) > UNPACKED:
        raise UnreadableRecording.of(MemberTooLarge(file.name, UNPACKED >> 20), file.name)
    try:
        with (
            _archive(file, copy) as content,
            zipfile.ZipFile(content) as archive,
            archive.open(file.member or "") as packed,
            path.open("wb") as plain,
        ):
            copyfileobj(packed, plain)
    except RuntimeError as problem:  # It is encrypted, or packed in a way that Python does not know: it is not damaged.
        raise UnreadableRecording.of(NotUnpacked(file.name, str(problem)), file.name) from None
    except _BROKEN as problem:
        raise UnreadableRecording.of(ArchiveDamaged(file.name, str(problem)), file.name) from None
    except Exception as problem:
        if file.is_remote:
            raise _not_given(file, problem) from None
        if isinstance(problem, FileNotFoundError):
            raise UnreadableRecording.of(GoneSinceListed(file.shown), file.name) from None
        if not isinstance(problem, OSError):
            raise
        cause = NotUnpacked(file.name, str(problem.strerror or problem))
        raise UnreadableRecording.of(cause, file.name)  # noqa: B904 - as above


_BROKEN: Final = tuple(kind for kind in DAMAGED if kind is not OSError)
"""The errors that zipfile raises for an archive that is damaged itself."""
