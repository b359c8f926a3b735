"""The text of a baseline file: sorted, one kernel per line; checked field by field when it is read."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import msgspec

from pytest_torchprof.baseline.model import Entry, Row
from pytest_torchprof.baseline.timing import Times
from pytest_torchprof.errors import UnreadableBaseline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

SCHEMA: Final = 1

_ORDER_PER_LINE: Final = 25
_MARKERS: Final = ("<<<<<<<", "|||||||", "=======", ">>>>>>>")
_REMEDY: Final = "restore it from version control, or delete it and record it again with --torchprof-baseline=update"

Count = Annotated[int, msgspec.Meta(ge=1)]
Index = Annotated[int, msgspec.Meta(ge=0)]


class RowForm(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One line of "kernels"."""

    name: str
    family: str = "other"
    dtype: str | None = None
    layout: str | None = None
    helper: str | None = None
    op: str | None = None
    count: Count


class TimeForm(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """The value of "time"."""

    conditions: dict[str, str | int]
    samples: Count
    median_us: float
    quantiles_us: Annotated[list[float], msgspec.Meta(min_length=1)]
    disturbed: list[str] = []


class EntryForm(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One value of "entries"."""

    source: str
    environment: dict[str, str | bool]
    kernels: list[RowForm]
    steps: list[list[Index]]
    numbers: dict[str, Index]
    varying: dict[str, Annotated[float, msgspec.Meta(ge=0)]]
    time: TimeForm | None = None


class FileForm(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The whole file."""

    schema: int
    entries: dict[str, EntryForm]


# msgspec looks a type's annotations up in sys.modules when it is first used. In a test run of test runs (pytester) this
# module may have left there by then; so they are resolved here.
msgspec.json.Decoder(FileForm)


class _NotKeptError(ValueError):
    """What JSON allows and a baseline does not."""


def plain(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON values, for a file or another process."""
    return {
        "source": entry.source,
        "environment": dict(entry.environment),
        "kernels": [_plain_row(row, count) for row, count in zip(entry.kernels, entry.counts(), strict=True)],
        "steps": [list(order) for order in entry.steps],
        "numbers": dict(entry.numbers),
        "varying": dict(entry.varying),
        **({"time": _plain_time(entry.time)} if entry.time else {}),
    }


def from_plain(value: object) -> Entry:
    """Return the entry that `plain` made JSON values of; ValueError where it is none."""
    return _entry(msgspec.convert(value, EntryForm))


def dumps(entries: Mapping[str, Entry]) -> bytes:
    """Return a baseline file's text."""
    blocks = [f"    {_string(key)}: {_entry_text(entries[key])}" for key in sorted(entries)]
    inside = "{\n" + ",\n".join(blocks) + "\n  }" if blocks else "{}"
    return f'{{\n  "schema": {SCHEMA},\n  "entries": {inside}\n}}\n'.encode()


def loads(data: bytes, path: Path) -> dict[str, Entry]:
    """Return the entries of a baseline file's text; UnreadableBaseline says what is wrong with it and what to do."""
    value = _json(data, path)
    schema = value.get("schema") if isinstance(value, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        _refuse(path, 'it is JSON, but no baseline (there is no top-level integer "schema")')
    if schema > SCHEMA:
        raise UnreadableBaseline(
            f"{path}: this baseline has schema {schema}, and this pytest-torchprof knows up to {SCHEMA}: "
            "install a newer pytest-torchprof; the file is left as it is"
        )
    try:
        return {key: _entry(form) for key, form in msgspec.convert(value, FileForm).entries.items()}
    except ValueError as error:  # msgspec's ValidationError is one
        _refuse(path, f"it does not have a baseline's form: {error}")


def _json(data: bytes, path: Path) -> Any:
    try:
        text = data.decode("utf-8")
        return json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_constant)
    except UnicodeDecodeError:
        _refuse(path, "it is not text in UTF-8")
    except json.JSONDecodeError as error:
        if any(line.startswith(_MARKERS) for line in text.splitlines()):
            _refuse(path, "a merge left its markers (<<<<<<<, >>>>>>>) in it", "resolve the merge: keep one side, then")
        if not text.strip():
            _refuse(path, "it is empty")
        if not text[error.pos :].strip() or error.msg.startswith("Unterminated"):
            _refuse(path, "its end is missing (cut off)")
        _refuse(path, f"it is not JSON (line {error.lineno}, column {error.colno}: {error.msg})")
    except _NotKeptError as error:
        _refuse(path, str(error))
    except (ValueError, RecursionError):  # a number of thousands of digits, brackets a thousand deep
        _refuse(path, "it is not the JSON of a baseline")


def _refuse(path: Path, what: str, first: str = "") -> NoReturn:
    remedy = f"{first} {_REMEDY}" if first else _REMEDY
    raise UnreadableBaseline(
        f"{path}: cannot read this baseline: {what}; {remedy}. The file is left as it is."
    ) from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise _NotKeptError(f"it has {_string(twice)} twice (a merge kept both sides)")
    return made


def _no_constant(name: str) -> NoReturn:
    raise _NotKeptError(f"it has {name} where a number belongs")


def _entry(form: EntryForm) -> Entry:
    kernels = tuple(
        Row(name=row.name, family=row.family, dtype=row.dtype, layout=row.layout, helper=row.helper, op=row.op)
        for row in form.kernels
    )
    steps = tuple(tuple(order) for order in form.steps)
    if not steps:
        raise ValueError('"steps" is empty: there is no step to compare with')
    if any(index >= len(kernels) for order in steps for index in order):
        raise ValueError('"steps" names a kernel that "kernels" does not have (merged by hand?)')
    entry = Entry(
        source=form.source,
        environment=form.environment,
        kernels=kernels,
        steps=steps,
        numbers=form.numbers,
        varying=form.varying,
        time=_time(form.time) if form.time else None,
    )
    if list(entry.counts()) != [row.count for row in form.kernels]:
        raise ValueError('the counts of "kernels" and the orders of "steps" differ (merged by hand?)')
    return entry


def _time(form: TimeForm) -> Times:
    return Times(
        conditions=form.conditions,
        samples=form.samples,
        median_us=form.median_us,
        quantiles_us=tuple(form.quantiles_us),
        disturbed=tuple(form.disturbed),
    )


def _plain_time(times: Times) -> dict[str, Any]:
    told = {
        "conditions": dict(sorted(times.conditions.items())),
        "samples": times.samples,
        "median_us": times.median_us,
        "quantiles_us": list(times.quantiles_us),
    }
    return {**told, "disturbed": list(times.disturbed)} if times.disturbed else told


def _plain_row(row: Row, count: int) -> dict[str, Any]:
    # The name comes last: it may be thousands of characters long, and the rest should be seen beside it.
    told = {name: getattr(row, name) for name in ("family", "dtype", "layout", "helper", "op", "name")}
    return {"count": count, **{name: value for name, value in told.items() if value is not None}}


def _entry_text(entry: Entry) -> str:
    value = plain(entry)
    fields = [
        f'"source": {_string(value["source"])}',
        f'"environment": {_line(value["environment"], sort=True)}',
        f'"kernels": {_list(_line(row) for row in value["kernels"])}',
        f'"steps": {_list(_order(order) for order in value["steps"])}',
        f'"numbers": {_block(value["numbers"])}',
        f'"varying": {_block(value["varying"])}',
        *([f'"time": {_time_text(value["time"])}'] if "time" in value else []),
    ]
    return "{\n" + ",\n".join(f"      {field}" for field in fields) + "\n    }"


def _list(lines: Iterable[str]) -> str:
    made = ",\n".join(f"        {line}" for line in lines)
    return f"[\n{made}\n      ]" if made else "[]"


def _block(numbers: Mapping[str, float]) -> str:
    made = ",\n".join(f"        {_string(name)}: {_value(numbers[name])}" for name in sorted(numbers))
    return f"{{\n{made}\n      }}" if made else "{}"


def _time_text(value: Mapping[str, Any]) -> str:
    lines = [
        f"        {_string(name)}: {_line(told) if isinstance(told, dict) else json.dumps(told)}"
        for name, told in value.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n      }"


def _order(order: list[int]) -> str:
    if len(order) <= _ORDER_PER_LINE:
        return str(order)
    lines = [", ".join(map(str, order[at : at + _ORDER_PER_LINE])) for at in range(0, len(order), _ORDER_PER_LINE)]
    return "[\n" + ",\n".join(f"          {line}" for line in lines) + "\n        ]"


def _line(value: Mapping[str, Any], *, sort: bool = False) -> str:
    names = sorted(value) if sort else list(value)
    return "{" + ", ".join(f"{_string(name)}: {_value(value[name])}" for name in names) + "}"


def _value(value: object) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # read back and written again, 3 and 3.0 must not differ
    return json.dumps(value, allow_nan=False)


def _string(text: str) -> str:
    # Readable where it is safe to print; else escaped (control and bidirectional characters, lone surrogates).
    return json.dumps(text, ensure_ascii=not text.isprintable())
