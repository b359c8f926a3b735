"""Files that differ from JSON, or from events as torch writes them: repaired, or read with care."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.reasons.unreadable import NoEvent, OddEvent, Oddity
from pytest_torchprof.recording.bounds import LATEST_US, RefusedError
from pytest_torchprof.recording.event_args import AllArgs, quantity
from pytest_torchprof.recording.kinds import GPU, ROLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.recording.kinds import Kinds


_NUMBER = rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?"
_END = rb"(?=\s*[,}\]])"
# kineto's "blocks per SM" for an unknown device: by far the most frequent case, and quick to find.
_INFINITE = re.compile(rb'(?<=[^\\]":)\s*[-+]?(?:inf|nan|infinity)' + _END, re.IGNORECASE)
# A string, which is kept, closed or not, so that nothing in it is looked at twice; a word or number that JSON does not
# know, which becomes null; a comma before a bracket.
_TOKENS = re.compile(
    rb'("[^"\\]*+(?:\\.[^"\\]*+)*+"?)|(?<=[:,\[\s])(?!(?:'
    + _NUMBER
    + rb"|true|false|null)"
    + _END
    + rb')[^\s",:{}\[\]]++|,(?=\s*+[}\]])',
    re.DOTALL,
)
# A range's name as kineto writes it, which leaves the quotation marks in it as they are. What looks like a key is no
# part of a name: nothing of the event may become one.
_NAME = re.compile(rb'("name": ")((?:(?!":)[^\n])*?)(?="\s*,\s*"(?:pid|tid|ph|cat|ts)":)')
_QUOTE = re.compile(rb'(?<!\\)"')


def repairs(text: bytes) -> Iterator[bytes]:
    """Yield ever more thorough repairs of the text, the cheapest first; 30 us per event for the thorough ones."""
    yield _INFINITE.sub(b" null", text)
    yield _thorough(text)
    quoted = _NAME.sub(lambda name: name[1] + _QUOTE.sub(rb"\"", name[2]), text)
    if quoted != text:
        yield quoted
        yield _thorough(quoted)


def _thorough(text: bytes) -> bytes:
    # Not by re.sub, which keeps every piece until the end, in thirty times the memory of the text.
    repaired, kept = bytearray(), 0
    for token in _TOKENS.finditer(text):
        if token[1] is None:
            repaired += text[kept : token.start()]
            repaired += b"" if token[0] == b"," else b"null"
            kept = token.end()
    return bytes(repaired + text[kept:])


_LIST = msgspec.json.Decoder(list[msgspec.Raw])
# Time stamps may have more digits than a double holds.
_ANYTHING = msgspec.json.Decoder(float_hook=Decimal)
_LOWER = {"input dims": "Input Dims"}


def events_of(text: bytes | msgspec.Raw, types: Kinds, before: int) -> list[Any]:
    """Return the listed events as these types; ``before`` is the number of events earlier in the file.

    A range, call or GPU operation without a usable name or time is an error; everything else that is odd is left out.
    """
    events = []
    for number, item in enumerate(_LIST.decode(text), before):
        try:
            events.append(types.single.decode(item))
        except msgspec.ValidationError:
            events.append(_event(item, types, number))
    return events


class _ArgsAsWritten(msgspec.Struct):
    """An event's arguments as they are written in the file."""

    args: dict[str, msgspec.Raw]


_WRITTEN = msgspec.json.Decoder(_ArgsAsWritten)


def _event(text: msgspec.Raw, types: Kinds, number: int) -> Any:
    item = _ANYTHING.decode(text)
    if not isinstance(item, dict):
        raise RefusedError(NoEvent(number, _shown(item)))
    category = str(item.get("cat"))
    if category.lower() not in ROLES or item.get("ph", "X") != "X":
        return types.other()
    kind: Any = types.event
    name, args = item.get("name"), item.get("args")
    return kind(
        cat=category,
        name=_name(name, number),
        ts=_number(item.get("ts"), "ts", number),
        # A GPU operation without a duration was not measured; a range on the CPU was only marked.
        dur=_number(item.get("dur", -1 if ROLES[category.lower()] in GPU else 0), "dur", number),
        tid=_identity(item.get("tid"), "tid", number),
        pid=_identity(item.get("pid"), "pid", number),
        args=_args(args, _WRITTEN.decode(text).args) if args and isinstance(args, dict) else _NO_ARGS,
    )


def _args(given: Mapping[str, Any], written: Mapping[str, msgspec.Raw]) -> AllArgs:
    fields = _fields()
    known = ((fields[name], key, value) for key, value in given.items() if (name := _LOWER.get(key, key)) in fields)
    values: dict[str, Any] = {}
    for field, key, value in known:
        if field.name in ("dims", "types", "strides"):
            if isinstance(value, list):
                values[field.name] = written[key]
        elif field.type is msgspec.Raw:
            values[field.name] = written[key]
        elif field.name in ("stream", "ran_on"):
            if isinstance(value, str) or (isinstance(value, int) and quantity(value) is not None):
                values[field.name] = value
        elif field.name in _TEXTS:
            if isinstance(value, str):
                values[field.name] = value
        elif (read := quantity(value)) is not None:
            values[field.name] = float(read) if field.type is float else int(read)
    return AllArgs(**values)


_NO_ARGS = AllArgs()
_TEXTS = frozenset({"collective", "collective_dtype", "group", "group_description", "group_ranks", "comms_id"})


@cache
def _fields() -> Mapping[str, msgspec.structs.FieldInfo]:
    return {field.encode_name: field for field in msgspec.structs.fields(AllArgs)}


def _number(value: Any, key: str, number: int) -> int | Decimal:
    read = quantity(value, LATEST_US)
    if read is None:
        is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        oddity = Oddity.TOO_LATE if is_number else Oddity.NO_TIME
        raise RefusedError(OddEvent(key, number, oddity, _shown(value)))
    return read


def _name(value: Any, number: int) -> str:
    if not isinstance(value, str):
        raise RefusedError(OddEvent("name", number, Oddity.NO_TEXT, _shown(value)))
    return value


def _identity(value: Any, key: str, number: int) -> int | str:
    if value is None:
        return ""
    whole = quantity(value)
    if not isinstance(value, str) and whole is not None and whole == int(whole):
        return int(whole)
    if not isinstance(value, str):
        raise RefusedError(OddEvent(key, number, Oddity.NO_IDENTITY, _shown(value)))
    return value


def _shown(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value)[:40]
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 40 else text[:40] + "..."
