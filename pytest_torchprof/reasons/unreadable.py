"""Why a file cannot be read as a recording: each cause with its facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Union

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.statement import Phrase, Statement

_AGAIN: Final = "Record or copy it again."
_KEY: Final = 'its key "torchprof"'


class InsteadOfFile(Phrase):
    """Something that lies where a file is expected, and will not become one."""

    SPECIAL = (
        "special",
        "it is no file, but a pipe, a socket or a device; write what comes out of it to a file, and name that",
    )
    LOOP = "loop", "it is a link that leads back to itself; let the recording be written to a file"


class WhyUnreadable(Statement, frozen=True, tag_field="cause"):
    """Why a file cannot be read."""

    CODE: ClassVar[Code] = Code.RECORDING_DAMAGED
    OTHER_JSON: ClassVar[bool] = False
    """Whether the file is sound JSON of another kind, such as may lie beside recordings in a folder of them."""
    IS_FINAL: ClassVar[bool] = False
    """Whether the file is whole as it is, and no waiting makes a recording of it."""

    def of_file(self, path: str) -> str:
        """Return the text for somebody who has asked for the file."""
        return f"{path} is not a recording that can be read: {self.sentence}"


class OfPath(WhyUnreadable, frozen=True):
    """A cause whose sentence names the file."""

    path: str

    def of_file(self, path: str) -> str:  # noqa: ARG002 - the sentence has it
        return self.sentence


class NoSuchFile(OfPath, frozen=True):
    """Nothing has this name."""

    CODE = Code.RECORDING_MISSING
    SENTENCE = "There is no recording {path}: no such file. Check the path."


class ZeroByteInPath(OfPath, frozen=True):
    """The path has a zero byte, which no file's path can have."""

    CODE = Code.RECORDING_MISSING
    SENTENCE = "There is no recording {path}: no path holds a zero byte. Check the path."


class SpecialFile(OfPath, frozen=True):
    """A pipe, a socket or a device has this name."""

    CODE = Code.NO_RECORDING

    @property
    def sentence(self) -> str:
        return f"{self.path} is not a recording: {InsteadOfFile.SPECIAL}."


class IsFolder(OfPath, frozen=True):
    """A folder has this name."""

    CODE = Code.NO_RECORDING
    SENTENCE = "{path} is a folder, not a recording. Name one of the trace files in it."


class GzipCutOff(OfPath, frozen=True):
    """The compressed data end too early."""

    CODE = Code.RECORDING_CUT_OFF
    SENTENCE = f"{{path}} ends in the middle of its gzip data: it was cut off when written or copied. {_AGAIN}"


class GzipDamaged(OfPath, frozen=True):
    """The compressed data cannot be unpacked."""

    SENTENCE = f"{{path}} is damaged: its gzip data cannot be unpacked. {_AGAIN}"


class NotOpened(OfPath, frozen=True):
    """The system refuses to open or read the file."""

    CODE = Code.RECORDING_UNREADABLE
    SENTENCE = "{path} cannot be read: {error}."

    error: str


class GoneSinceListed(OfPath, frozen=True):
    """A file or an archive that was listed is not there when it is read."""

    CODE = Code.RECORDING_MISSING
    SENTENCE = "{path} is not there any more."


class NothingAtAddress(OfPath, frozen=True):
    """A manifest names an address at which nothing was when the files were listed, nor when it is read."""

    CODE = Code.RECORDING_MISSING
    SENTENCE = "There is nothing at {path}."


class StoreRefuses(OfPath, frozen=True):
    """A store does not give a file."""

    CODE = Code.RECORDING_UNREADABLE
    SENTENCE = "{path} cannot be fetched: {error}"

    error: str


class MemberTooLarge(OfPath, frozen=True):
    """A member of an archive unpacks to more than any recording."""

    CODE = Code.RECORDING_TOO_LARGE
    SENTENCE = "{path} unpacks to more than {most_mib:grouped} MiB. Record fewer steps."

    most_mib: int


class ArchiveDamaged(OfPath, frozen=True):
    """An archive is damaged where it has the member."""

    SENTENCE = "{path} cannot be unpacked: {error}. Copy the archive again."

    error: str


class NotUnpacked(OfPath, frozen=True):
    """The system refuses to read an archive or to write its member."""

    CODE = Code.RECORDING_UNREADABLE
    SENTENCE = "{path} cannot be unpacked: {error}."

    error: str


class NotUtf8(OfPath, frozen=True):
    """The file is no text."""

    SENTENCE = f"{{path}} is damaged: a text in it is not UTF-8, as all text of JSON is. {_AGAIN}"


class NoObjectsEnd(OfPath, frozen=True):
    """The file does not end as the JSON of a trace does, where our key is to be put into it."""

    SENTENCE = "{path} is not a recording: it does not end as a JSON object does."


class NumberBeyondStamps(OfPath, frozen=True):
    """A number is larger than any that recordings have."""

    SENTENCE = f"{{path}} is not a recording: a number in it is larger than any time stamp. {_AGAIN}"


class NestedBeyondTraces(OfPath, frozen=True):
    """The JSON is deeper than any trace's."""

    CODE = Code.NO_RECORDING
    SENTENCE = "{path} is not a recording: its lists or objects are nested deeper than any trace's."


class RangesOverlap(OfPath, frozen=True):
    """Ranges of one name overlap more than is looked at."""

    CODE = Code.RECORDING_TOO_LARGE
    SENTENCE = (
        '{path} is not a recording that can be judged: its ranges "{range:line}" overlap so much that {held:grouped} '
        "times a call or an operator is inside one of them; up to {most:grouped} are looked at."
    )

    range: str
    held: int
    most: int


class NestedOperators(WhyUnreadable, frozen=True):
    """Operators are inside one another, deeper than any program's."""

    CODE = Code.RECORDING_TOO_LARGE
    SENTENCE = "{depth:grouped} of its operators are inside one another; no program nests more than {most:grouped}."

    depth: int
    most: int


class EmptyFile(WhyUnreadable, frozen=True):
    """Nothing is in the file."""

    CODE = Code.NO_RECORDING
    SENTENCE = f"it is empty. {_AGAIN}"


class InPerfettosFormat(WhyUnreadable, frozen=True):
    """torch has written Perfetto's own format."""

    CODE = Code.NO_RECORDING
    IS_FINAL = True
    SENTENCE = (
        "it is in Perfetto's own format (.pftrace), not JSON. Write it again under a name in which .pftrace does not "
        'occur: profiler.export_chrome_trace("trace.json.gz").'
    )


class BinaryData(WhyUnreadable, frozen=True):
    """The file is no text, and of no format that is known."""

    CODE = Code.NO_RECORDING
    SENTENCE = "it is binary data, not the JSON of a trace."


class ZipArchive(WhyUnreadable, frozen=True):
    """The file is an archive, which may hold recordings."""

    CODE = Code.NO_RECORDING
    SENTENCE = "it is a ZIP archive, not the JSON of a trace. If recordings are in it, unpack them."


class OtherText(WhyUnreadable, frozen=True):
    """The file is a text of which even the first character is not that of a trace."""

    CODE = Code.NO_RECORDING
    SENTENCE = "it is a text, not the JSON of a trace."


class ListOfOthers(WhyUnreadable, frozen=True):
    """The file is a list of something else."""

    CODE = Code.NO_RECORDING
    OTHER_JSON = True
    SENTENCE = "it is a JSON list, but not of trace events."


class WithoutEvents(WhyUnreadable, frozen=True):
    """The file is JSON of something else."""

    CODE = Code.NO_RECORDING
    OTHER_JSON = True
    SENTENCE = 'it is JSON, but no trace: a trace has a list "traceEvents".'


class EventsNoList(WhyUnreadable, frozen=True):
    """The file is JSON, and what should be its list of events is none."""

    CODE = Code.NO_RECORDING
    SENTENCE = WithoutEvents.SENTENCE


class JsonCutOff(WhyUnreadable, frozen=True):
    """The JSON ends too early."""

    CODE = Code.RECORDING_CUT_OFF
    SENTENCE = f"it ends in the middle of the JSON: it was cut off while it was written or copied. {_AGAIN}"


class JsonInvalid(WhyUnreadable, frozen=True):
    """The text is no JSON."""

    SENTENCE = "it is not valid JSON ({error})."

    error: str


class Excess(Phrase):
    """The ways in which a file exceeds any recording; the bound stands in the place of the braces."""

    UNPACKED = "unpacked", "unpacks to more than {} MiB of text"
    UNCUT = "uncut", "holds, without a border between two events, more than {} MiB of text"
    AROUND = "around", "has more than {} MiB of text around its events"
    MEMBERS = "members", "is packed in more than {} parts"
    EVENTS = "events", "has more than {} events"
    DISTINCT = "distinct", "has more than {} MiB of different names and operands"
    GPU_OPERATIONS = "gpu-operations", "has more than {} GPU operations"
    DEVICES = "devices", "has work of more than {} devices"
    NAMES = "names", "has GPU operations of more than {} names"
    STEPS = "steps", "has more than {} steps"


class TooLarge(WhyUnreadable, frozen=True):
    """The file has more than recordings have."""

    CODE = Code.RECORDING_TOO_LARGE

    excess: Excess
    most: int

    @property
    def sentence(self) -> str:
        return f"it {self.excess.text.format(f'{self.most:,}')}. Record fewer steps, or less of each."


class Oddity(Phrase):
    """The oddity in the value of an event's entry."""

    NO_TIME = "no-time", "should be a number of microseconds but is"
    TOO_LATE = "too-late", "is larger than any time stamp in microseconds:"
    NO_TEXT = "no-text", "should be text but is"
    NO_IDENTITY = "no-identity", "should be a number or text but is"


class OddEvent(WhyUnreadable, frozen=True):
    """An entry of an event has a value that it cannot have."""

    SENTENCE = '"{key}" of event {event} {oddity} {value}'

    key: str
    event: int
    oddity: Oddity
    value: str
    """Its beginning, as JSON."""


class NoEvent(WhyUnreadable, frozen=True):
    """Something that is no object stands among the events."""

    SENTENCE = "event {event} is no object but {value}"

    event: int
    value: str
    """Its beginning, as JSON."""


class StampTooLate(WhyUnreadable, frozen=True):
    """A time stamp is later than any clock can show."""

    SENTENCE = "a time stamp is larger than any in microseconds: {value}"

    value: str
    """Its beginning."""


class KeyOfOthers(WhyUnreadable, frozen=True):
    """Another program has written our key."""

    SENTENCE = f'{_KEY} has no whole number "schema", so this project did not write it.'


class NewerSchema(WhyUnreadable, frozen=True):
    """A later version has written the file."""

    CODE = Code.RECORDING_NEWER
    SENTENCE = (
        "it was recorded by a newer pytest-torchprof (schema {schema}, this version reads up to {known}). "
        "Upgrade pytest-torchprof."
    )

    schema: int
    known: int


class Expected(Phrase):
    """The type that an entry of our key must have."""

    INT = "int", "a whole number"
    STR = "str", "a text"
    BOOL = "bool", "true or false"
    OBJECT = "object", "an object"
    ARRAY = "array", "a list"
    TEXTS = "texts", "a list of texts"
    COUNTS = "counts", "a list of whole numbers"
    OBJECTS = "objects", "a list of objects"
    NUMBERS = "numbers", "a list of numbers"
    FLOAT = "float", "a number"


class WrongEntry(WhyUnreadable, frozen=True):
    """An entry of our key is not of its type."""

    SENTENCE = f'"{{name}}" in {_KEY} is not {{expected}}, so it was changed or damaged. Record it again.'

    name: str
    expected: Expected


KINDS: Final[tuple[type[WhyUnreadable], ...]] = (
    *OfPath.__subclasses__(),
    *(kind for kind in WhyUnreadable.__subclasses__() if kind is not OfPath),
)

if TYPE_CHECKING:
    AnyWhyUnreadable = WhyUnreadable
else:
    # A field of this type is decoded to the kind whose tag it has.
    AnyWhyUnreadable = Union[KINDS]  # noqa: UP007 - of as many as there are
