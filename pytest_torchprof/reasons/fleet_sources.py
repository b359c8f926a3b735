"""Reasons why what a fleet is to judge cannot be listed: sources, archives and manifests."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason


class AllInOwnFolder(Reason, frozen=True):
    """All files of a source lie where the run writes to."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = (
        "--into {into}: all that {source} has lies in it, and what a run writes is not judged. Name another folder."
    )
    ADVICE = "name another folder"

    into: str
    source: str


class NoSuchSource(Reason, frozen=True):
    """Nothing has the name of a source."""

    CODE = Code.RECORDING_MISSING
    FOR_THE_DOCTOR = False
    SENTENCE = "{source}: there is no such file or folder."
    ADVICE = "check the path"

    source: str


class NothingFits(Reason, frozen=True):
    """No file has a name that a pattern fits."""

    CODE = Code.RECORDING_MISSING
    FOR_THE_DOCTOR = False
    SENTENCE = "{source}: no file fits this pattern."
    ADVICE = "check the pattern; quote it, so that the shell leaves it as it is"

    source: str


class NothingThere(Reason, frozen=True):
    """A store has nothing at the address of a source."""

    CODE = Code.RECORDING_MISSING
    FOR_THE_DOCTOR = False
    SENTENCE = "{address}: there is nothing at this address."
    ADVICE = "check the address"

    address: str


class NoRecordingsInSource(Reason, frozen=True):
    """A source is there, and none of its files may be a recording by its name."""

    CODE = Code.RECORDING_MISSING
    FOR_THE_DOCTOR = False
    ADVICE = "name what holds recordings"

    source: str
    endings: tuple[str, ...]
    """How the names of recordings end."""
    is_archive: bool = False

    @property
    def sentence(self) -> str:
        where = " in the archive" if self.is_archive else ""
        return self.words(f"{{source}}: there are no recordings{where}: expected files that end in {{endings:or}}.")


class TarArchive(Reason, frozen=True):
    """A source is a tar archive."""

    CODE = Code.RECORDING_UNREADABLE
    FOR_THE_DOCTOR = False
    SENTENCE = (
        "{path}: tar archives are not read: a recording in one is found only by unpacking all before it. Unpack it and "
        "name the folder, or pack a ZIP archive."
    )
    ADVICE = "unpack it and name the folder, or pack a ZIP archive"

    path: str


class NamesakesInArchive(Reason, frozen=True):
    """Several recordings of an archive have one name, by which only the last of them can be read."""

    CODE = Code.RECORDING_UNREADABLE
    FOR_THE_DOCTOR = False
    SENTENCE = (
        "{path}: {count:recording} in the archive {count:is|are} called {name}. Pack each under a name of its own."
    )
    ADVICE = "pack each under a name of its own"

    path: str
    count: int
    name: str


class SourceNotRead(Reason, frozen=True):
    """The system does not let a folder be looked through."""

    CODE = Code.RECORDING_UNREADABLE
    FOR_THE_DOCTOR = False
    SENTENCE = "{folder}: the folder cannot be read: {error}"
    ADVICE = "make it readable, or name what lies in it without this folder"

    folder: str
    error: str


class ManifestNotRead(Reason, frozen=True):
    """The system does not let a manifest be read."""

    CODE = Code.RECORDING_UNREADABLE
    FOR_THE_DOCTOR = False
    SENTENCE = "{manifest}: the manifest cannot be read: {error}"
    ADVICE = "make it readable"

    manifest: str
    error: str


class ManifestWithoutFiles(Reason, frozen=True):
    """A manifest has no line."""

    CODE = Code.RECORDING_MISSING
    FOR_THE_DOCTOR = False
    SENTENCE = '{manifest}: the manifest names no file: expected an object with "url" in each line.'
    ADVICE = "write a line for each recording"

    manifest: str


class LineWithoutUrl(Reason, frozen=True):
    """A line of a manifest is no object that says where a recording lies."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    ADVICE = "correct the line"
    SENTENCE = '{manifest}:{line}: expected an object with "url", and perhaps "size" and "etag": {error}'

    manifest: str
    line: int
    error: str


class UrlNoPlace(Reason, frozen=True):
    """A line of a manifest names a place that is none."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    ADVICE = "correct the line"
    SENTENCE = "{manifest}:{line}: expected a path or an address as url, got {got!r}"

    manifest: str
    line: int
    got: str


class LinesDisagree(Reason, frozen=True):
    """Manifests state a file twice, and not the same of it."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = "{manifest}: two lines say different things of {file}"
    REMEDY = "keep one of them"

    manifest: str
    file: str
