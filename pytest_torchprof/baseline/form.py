"""The form of a baseline file: entries as JSON that people review and version control merges."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import msgspec
from msgspec import Meta, Struct, field

from pytest_torchprof.baseline.entry import Entry, RankEntry, Times
from pytest_torchprof.baseline.launch_order import launches
from pytest_torchprof.baseline.step_form import FlawedStepsError, orders_of, plain_steps, read_steps, refuse_too_many
from pytest_torchprof.reasons.errors import UnreadableBaseline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_torchprof.baseline.launch_order import Order
    from pytest_torchprof.reasons.reason import Reason

# A new field has a default. A field that changes its meaning raises the number, and so does a new gated number.
# `tests/baselines_before` holds files that earlier commits wrote.
SCHEMA: Final = 2

MOST_BYTES: Final = 16 * 1024**2
MOST_ENTRIES: Final = 10_000
MOST_LAUNCHES_IN_FILE: Final = 4_000_000

OURS: Final = "<<<<<<<"
BASE: Final = "|||||||"
THEIRS: Final = "======="
THEIRS_END: Final = ">>>>>>>"
"""The beginnings of the lines that version control puts around the sides of a conflict."""


class WrittenEntry(Struct, frozen=True, kw_only=True):
    """An entry, and the written form of the launch order of each of its steps."""

    entry: Entry
    orders: tuple[Order, ...]
    orders_of_ranks: Mapping[str, tuple[Order, ...]] = field(default_factory=dict)


class RankFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The differences of a rank from rank 0, as the file has them."""

    steps: Annotated[tuple[tuple[Any, ...], ...], Meta(min_length=1)] | None = None
    numbers: dict[str, Annotated[int, Meta(ge=0, le=2**63 - 1)] | None] = {}


class EntryFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry as the file has it."""

    source: str
    environment: dict[str, str | bool]
    steps: Annotated[tuple[tuple[Any, ...], ...], Meta(min_length=1)]
    """The distinct launch orders: each item a `KernelLine` or, with ``"repeat"``, `RepeatedLines`, and ``"end"``."""
    numbers: dict[str, Annotated[int, Meta(ge=0, le=2**63 - 1)] | None]
    """All but ``kernels``, which follow from the steps."""
    varying: dict[str, Annotated[float, Meta(ge=0)]]
    time: Times | None = None
    samples_hardware: bool = False
    """Left out of the file if it is false."""
    ranks: dict[Annotated[str, Meta(pattern=r"\A[1-9]\d{0,5}\Z")], RankFields] = {}
    """By rank, from 1 on, if a job has several."""


# msgspec looks a type's annotations up in sys.modules when it is first used. When a test runs pytest itself (pytester),
# this module may no longer be there by then; so they are resolved here.
msgspec.json.Decoder(EntryFields)


class _NotKeptError(ValueError):
    """A value that JSON allows and a baseline does not; ``key`` is one that stands twice."""

    def __init__(self, value: str = "", *, key: str = "") -> None:
        super().__init__(value or key)
        self.value, self.key = value, key

    def why(self, file: str) -> Reason:
        """Return the reason for a file with that value."""
        from pytest_torchprof.reasons import baselines as why  # noqa: PLC0415 - for what is refused alone

        return why.KeyTwice(file, self.key) if self.key else why.NoNumberThere(file, self.value)


def write_entry(entry: Entry, before: WrittenEntry | None) -> WrittenEntry:
    """Return an entry with its launch orders, written so that few lines differ from those ``before``."""
    if before is not None and before.entry == entry:
        return before
    of_ranks = before.orders_of_ranks if before else {}
    return WrittenEntry(
        entry=entry,
        orders=orders_of(entry.steps, before.orders if before else ()),
        orders_of_ranks={
            rank: orders_of(rank_entry.steps, of_ranks.get(rank, ()))
            for rank, rank_entry in entry.ranks.items()
            if rank_entry.steps
        },
    )


def fields_of(entry: Entry) -> EntryFields:
    """Return the fields of an entry as in a file, for another process: repeated launches are written once."""
    return msgspec.convert(_plain(write_entry(entry, None)), EntryFields)


def entry_from(fields: EntryFields) -> Entry:
    """Return the entry of which `fields_of` made these fields; ValueError if they are no entry's."""
    return _entry_of(fields).entry


def dumps(entries: Mapping[str, WrittenEntry]) -> bytes:
    """Return a baseline file's text: sorted by key, one line per kernel."""
    texts = {key: _entry_text(_plain(entries[key])) for key in sorted(entries)}
    fields = {"schema": str(SCHEMA), "entries": _object(texts, indent=2)}
    return f"{_object(fields, indent=0)}\n".encode()


def loads(data: bytes, path: Path) -> dict[str, WrittenEntry]:
    """Return the entries of a baseline file's text; UnreadableBaseline has its problem and the remedy."""
    from pytest_torchprof.reasons import baselines as why  # noqa: PLC0415 - only who reads a baseline pays

    file = str(path)
    if len(data) > MOST_BYTES:
        raise UnreadableBaseline.because(why.BaselineTooLarge(file, MOST_BYTES // 1024**2))
    value = _json(data, file)
    schema = value.get("schema") if isinstance(value, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise UnreadableBaseline.because(why.NoBaselineSchema(file))
    if schema < SCHEMA:
        raise UnreadableBaseline.because(why.OldBaselineSchema(file, schema, SCHEMA))
    if schema > SCHEMA:
        raise UnreadableBaseline.because(why.NewerBaseline(file, schema, SCHEMA))
    entries = value.get("entries")
    if not isinstance(entries, dict) or value.keys() != {"schema", "entries"}:
        raise UnreadableBaseline.because(why.NoBaselineForm(file))
    if len(entries) > MOST_ENTRIES:
        raise UnreadableBaseline.because(why.TooManyEntries(file, MOST_ENTRIES))
    made, unfolded = {}, 0
    for key, entry in entries.items():
        try:
            made[key] = _entry_of(msgspec.convert(entry, EntryFields))
        except ValueError as error:  # msgspec's ValidationError is one
            raise UnreadableBaseline.because(_why_no_entry(error, file, _string(key))) from None
        entry_made = made[key].entry
        of_ranks = chain.from_iterable(rank_entry.steps or () for rank_entry in entry_made.ranks.values())
        unfolded += sum(map(len, chain(entry_made.steps, of_ranks)))
        if unfolded > MOST_LAUNCHES_IN_FILE:
            raise UnreadableBaseline.because(why.TooManyLaunches(file, MOST_LAUNCHES_IN_FILE))
    return made


def _why_no_entry(error: ValueError, file: str, name: str) -> Reason:
    """Return why an entry cannot be read, by the error that reading it has raised."""
    from pytest_torchprof.reasons import baselines as why  # noqa: PLC0415 - as above

    if isinstance(error, FlawedStepsError):
        return why.StepsFlawed(file, name, error.flaw, error.most, error.written)
    return why.NoEntryForm(file, name, str(error))


def has_conflict(text: str) -> bool:
    """Return whether a text contains the markers of a merge."""
    return any(line.startswith((OURS, BASE, THEIRS, THEIRS_END)) for line in text.splitlines())


def _entry_of(fields: EntryFields) -> WrittenEntry:
    refuse_too_many(
        [*fields.steps, *chain.from_iterable(rank_fields.steps or () for rank_fields in fields.ranks.values())]
    )
    orders = read_steps(fields.steps)
    of_ranks = {rank: read_steps(rank_fields.steps) for rank, rank_fields in fields.ranks.items() if rank_fields.steps}
    steps = tuple(map(launches, orders))
    entry = Entry(
        source=fields.source,
        environment=fields.environment,
        steps=steps,
        numbers={**fields.numbers, "kernels": max(map(len, steps))},
        varying=fields.varying,
        time=fields.time,
        samples_hardware=fields.samples_hardware,
        ranks={rank: _read_rank(rank_fields, of_ranks.get(rank)) for rank, rank_fields in fields.ranks.items()},
    )
    return WrittenEntry(entry=entry, orders=orders, orders_of_ranks=of_ranks)


def _read_rank(fields: RankFields, orders: tuple[Order, ...] | None) -> RankEntry:
    if orders is None:
        return RankEntry(numbers=fields.numbers)
    steps = tuple(map(launches, orders))
    return RankEntry(steps=steps, numbers={**fields.numbers, "kernels": max(map(len, steps))})


def _plain(written: WrittenEntry) -> dict[str, Any]:
    entry = written.entry
    made: dict[str, Any] = {
        "source": entry.source,
        "environment": dict(sorted(entry.environment.items())),
        "steps": plain_steps(written.orders),
        "numbers": _plain_numbers(entry.numbers),
        "varying": dict(sorted(entry.varying.items())),
    }
    if entry.samples_hardware:
        made["samples_hardware"] = True
    if entry.ranks:
        made["ranks"] = {
            rank: {
                **({"steps": plain_steps(written.orders_of_ranks[rank])} if rank_entry.steps else {}),
                "numbers": _plain_numbers(rank_entry.numbers),
            }
            for rank, rank_entry in sorted(entry.ranks.items(), key=lambda item: int(item[0]))
        }
    if entry.time is None:
        return made
    left_out = {"confirmed"} if entry.time.disturbed else {"confirmed", "disturbed"}
    time = msgspec.to_builtins(entry.time)
    time["conditions"] = dict(sorted(time["conditions"].items()))
    return {**made, "time": {name: value for name, value in time.items() if name not in left_out}}


def _plain_numbers(numbers: Mapping[str, int | None]) -> dict[str, int | None]:
    """Return all but ``kernels``, which follow from the steps."""
    return {name: number for name, number in sorted(numbers.items()) if name != "kernels"}


def _json(data: bytes, file: str) -> Any:
    try:
        text = data.decode("utf-8")
        return json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise UnreadableBaseline.because(_why_no_json(error, file)) from None


def _why_no_json(error: Exception, file: str) -> Reason:
    """Return why a file is not the JSON of a baseline, by the error that reading it has raised."""
    from pytest_torchprof.reasons import baselines as why  # noqa: PLC0415 - as above

    match error:
        case _NotKeptError():
            return error.why(file)
        case UnicodeDecodeError():
            return why.BaselineNotUtf8(file)
        case json.JSONDecodeError():
            return _why_invalid(error, file)
        case _:  # a number with thousands of digits, or a thousand nested brackets
            return why.JsonTooOdd(file)


def _why_invalid(error: json.JSONDecodeError, file: str) -> Reason:
    from pytest_torchprof.reasons import baselines as why  # noqa: PLC0415 - as above

    text = error.doc
    if has_conflict(text):
        return why.MergeMarkersLeft(file)
    if not text.strip():
        return why.BaselineEmpty(file)
    if not text[error.pos :].strip() or error.msg.startswith("Unterminated"):
        return why.BaselineCutOff(file)
    return why.BaselineNotJson(file, error.lineno, error.colno, error.msg)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise _NotKeptError(key=_string(twice))
    return made


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        _no_constant(text)
    return number


def _no_constant(name: str) -> NoReturn:
    raise _NotKeptError(name)


def _entry_text(value: Mapping[str, Any]) -> str:
    """Return an entry as text: a line for each kernel and each number that fails a test, one line for all that vary."""
    fields = {
        "source": _value(value["source"]),
        "environment": _line(value["environment"]),
        "steps": _steps_text(value["steps"]),
        "numbers": _numbers_text(value["numbers"]),
        "varying": _line(value["varying"]),
    }
    if "samples_hardware" in value:
        fields["samples_hardware"] = _value(value["samples_hardware"])
    if "time" in value:
        texts = {name: json.dumps(field) for name, field in value["time"].items()}
        fields["time"] = _object({**texts, "conditions": _line(value["time"]["conditions"])})
    if "ranks" in value:
        fields["ranks"] = _object({rank: _rank_text(rank_value) for rank, rank_value in value["ranks"].items()})
    return _object(fields, indent=4)


def _rank_text(value: Mapping[str, Any]) -> str:
    steps = {"steps": _steps_text(value["steps"], indent=10)} if "steps" in value else {}
    return _object({**steps, "numbers": _numbers_text(value["numbers"], indent=10)}, indent=8)


def _steps_text(steps: Iterable[Any], *, indent: int = 6) -> str:
    return _block(
        (_block((_item_text(item, indent + 4) for item in step), "[]", indent=indent + 2) for step in steps),
        "[]",
        indent=indent,
    )


def _numbers_text(numbers: Mapping[str, object], *, indent: int = 6) -> str:
    return _object({name: _value(number) for name, number in numbers.items()}, indent=indent)


def _item_text(item: Mapping[str, Any] | str, indent: int) -> str:
    if isinstance(item, str):
        return _string(item)
    if "repeat" not in item:
        return _line(item)
    kernels = _block((_item_text(kernel, indent + 2) for kernel in item["kernels"]), "[]", indent=indent)
    return f'{{"repeat": {item["repeat"]}, "kernels": {kernels}}}'


def _object(fields: Mapping[str, str], *, indent: int = 6) -> str:
    return _block((f"{_string(name)}: {text}" for name, text in fields.items()), "{}", indent=indent)


def _block(lines: Iterable[str], brackets: str, *, indent: int = 6) -> str:
    """Return the lines between brackets that begin a line of ``indent``."""
    inside = ",\n".join(f"{' ' * indent}  {line}" for line in lines)
    return f"{brackets[0]}\n{inside}\n{' ' * indent}{brackets[1]}" if inside else brackets


def _line(value: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{_string(name)}: {_value(field)}" for name, field in value.items()) + "}"


def _value(value: object) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # read back and written again, 3 and 3.0 must not differ
    return json.dumps(value, allow_nan=False)


def _string(text: str) -> str:
    # Readable if it is safe to print; otherwise escaped (control and bidirectional characters, lone surrogates).
    return json.dumps(text, ensure_ascii=not text.isprintable())
