"""Baseline files: read with one clear error, merged and replaced so that nothing is lost or torn."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

import filelock
import msgspec
from msgspec.structs import replace

from pytest_torchprof.baseline.entry import Count, Entry, KernelRecord, Times
from pytest_torchprof.errors import TorchprofError, UnreadableBaseline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

# A field that is added has a default. One that changes its meaning raises the number, and `loads` turns what older
# numbers mean into the present form before it is checked. `tests/baselines_before` holds a file of each form.
SCHEMA: Final = 1

# The lock lies beside the files: a lock in the temporary folder would not hold between processes with different
# TMPDIRs, users or hosts. It is never removed (removing a lock file lets two processes hold it), so the folder gets a
# .gitignore that hides it, what a killed update leaves, and itself.
LOCK: Final = ".torchprof.lock"
TEMPORARY: Final = ".torchprof."
TEMPORARY_END: Final = ".tmp"
IGNORED: Final = f".gitignore\n{LOCK}\n{TEMPORARY}*{TEMPORARY_END}\n"
LOCK_SECONDS: Final = 120

_ORDER_PER_LINE: Final = 25
_MARKERS: Final = ("<<<<<<<", "|||||||", "=======", ">>>>>>>")
_REMEDY: Final = "restore it from version control, or delete it and record it again with --torchprof-baseline=update"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineFile:
    """What one baseline file holds: entries by key."""

    path: Path
    entries: Mapping[str, Entry]


class KernelLine(KernelRecord, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kernel as one line of the file has it."""

    count: Count
    """How often the step that launches it most does so."""


class _Lines(msgspec.Struct):
    kernels: tuple[KernelLine, ...]


# msgspec looks a type's annotations up in sys.modules when it is first used. In a test run of test runs (pytester) this
# module may have left there by then; so they are resolved here.
msgspec.json.Decoder(Entry)
msgspec.json.Decoder(_Lines)


class _NotKeptError(ValueError):
    """What JSON allows and a baseline does not."""


def read(path: Path) -> BaselineFile:
    """Read a baseline file; UnreadableBaseline where it is missing, damaged or of a newer schema."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableBaseline(f"{path}: cannot read this baseline: {error.strerror or error}") from None
    return BaselineFile(path=path, entries=loads(data, path))


def read_or_empty(path: Path) -> BaselineFile:
    """Read a baseline file as `read` does; a missing one has no entries."""
    return read(path) if path.exists() else BaselineFile(path=path, entries={})


def update(path: Path, changes: Mapping[str, Entry | None], *, time_tolerance: float = 0.10) -> None:
    """Write ``changes`` into a baseline file, None removing an entry; all other entries stay as they are.

    Several processes may do so at once. A varying number is rewritten only where it moved by more than a third of
    ``time_tolerance``. A kill at any moment leaves the old or the new file. An unreadable file is left as it is
    (UnreadableBaseline); where the folder cannot be written, TorchprofError.
    """
    if not path.exists() and not any(changes.values()):
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _only_writer(path.parent):
            _merge(path, changes, time_tolerance)
    except filelock.Timeout:
        raise TorchprofError(
            f"{path}: not written: another process has held {path.parent / LOCK} for {LOCK_SECONDS} s; "
            "end it, then update again"
        ) from None
    except OSError as error:
        raise TorchprofError(
            f"{path}: the baseline was not written ({error.strerror or error}); what was there is unchanged: "
            "make the folder writable, or choose another with --torchprof-baseline-dir"
        ) from None


def settle_times(old: Times | None, new: Times | None, share: float) -> Times | None:
    """Return the old times where the new ones moved by no more than a third of their tolerance, else the new ones."""
    if old is None or new is None or old.conditions != new.conditions:
        return new
    return old if abs(new.median_us - old.median_us) <= old.median_us * share / 3 else new


def plain(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON values, for a file or another process."""
    lines = zip(entry.kernels, entry.counts(), strict=True)
    made = {**msgspec.to_builtins(entry), "kernels": [_plain_kernel(kernel, count) for kernel, count in lines]}
    if entry.time is None:
        del made["time"]
        return made
    left_out = {"confirmed"} if entry.time.disturbed else {"confirmed", "disturbed"}
    return {**made, "time": {name: value for name, value in made["time"].items() if name not in left_out}}


def from_plain(value: object) -> Entry:
    """Return the entry that `plain` made JSON values of; ValueError where it is none."""
    lines = msgspec.convert(value, _Lines).kernels
    fields = msgspec.convert(value, dict[str, Any])
    kernels = [{name: field for name, field in line.items() if name != "count"} for line in fields["kernels"]]
    entry = msgspec.convert({**fields, "kernels": kernels}, Entry)
    if not entry.steps:
        raise ValueError('"steps" is empty: there is no step to compare with')
    if any(index >= len(lines) for order in entry.steps for index in order):
        raise ValueError('"steps" names a kernel that "kernels" does not have (merged by hand?)')
    if entry.counts() != tuple(line.count for line in lines):
        raise ValueError('the counts of "kernels" and the orders of "steps" differ (merged by hand?)')
    return entry


def dumps(entries: Mapping[str, Entry]) -> bytes:
    """Return a baseline file's text: sorted, one kernel per line."""
    texts = {key: _entry_text(plain(entries[key])) for key in sorted(entries)}
    fields = {"schema": str(SCHEMA), "entries": _object(texts, indent=2)}
    return f"{_object(fields, indent=0)}\n".encode()


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
    entries = value.get("entries")
    if not isinstance(entries, dict) or value.keys() != {"schema", "entries"}:
        _refuse(path, 'it does not have a baseline\'s form: an object with "schema" and "entries"')
    made = {}
    for key, entry in entries.items():
        try:
            made[key] = from_plain(entry)
        except ValueError as error:  # msgspec's ValidationError is one
            _refuse(path, f"it does not have a baseline's form: {_string(key)}: {error}")
    return made


def _merge(path: Path, changes: Mapping[str, Entry | None], time_tolerance: float) -> None:
    before = read_or_empty(path).entries
    after = dict(before)
    for key, entry in changes.items():
        if entry is None:
            after.pop(key, None)
        else:
            after[key] = _settled_numbers(before.get(key), entry, time_tolerance / 3)
    text = dumps(after)
    if not after:
        path.unlink(missing_ok=True)
    elif not before or path.read_bytes() != text:
        _replace(path, text)


def _settled_numbers(old: Entry | None, new: Entry, share: float) -> Entry:
    """Return ``new`` with the old entry's varying numbers where they moved by no more than ``share``."""
    if old is None:
        return new
    kept = {
        name: was
        for name, was in old.varying.items()
        # A tiny allowance for the rounding of the product itself.
        if name in new.varying and abs(new.varying[name] - was) <= abs(was) * share * (1 + 1e-9)
    }
    return replace(new, varying={**new.varying, **kept})


@contextlib.contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    with filelock.FileLock(folder / LOCK, timeout=LOCK_SECONDS):
        ignored = folder / ".gitignore"
        if not ignored.exists() or not ignored.stat().st_size:
            ignored.write_text(IGNORED, encoding="utf-8")
        # Whoever wrote these was killed: the lock is ours.
        for left in folder.glob(f"{TEMPORARY}*{TEMPORARY_END}"):
            left.unlink(missing_ok=True)
        yield


def _replace(path: Path, text: bytes) -> None:
    """Replace a file by another in one step; the folder's lock must be held."""
    temporary = path.parent / f"{TEMPORARY}{os.getpid()}{TEMPORARY_END}"
    try:
        with temporary.open("xb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            temporary.chmod(path.stat().st_mode & 0o777)
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    # Not every file system lets a folder be synced; the rename itself is whole without it.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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


def _plain_kernel(kernel: KernelRecord, count: int) -> dict[str, Any]:
    # The name comes last: it may be thousands of characters long, and the rest should be seen beside it.
    fields = {name: getattr(kernel, name) for name in ("family", "dtype", "layout", "helper", "op", "name")}
    return {"count": count, **{name: value for name, value in fields.items() if value is not None}}


def _entry_text(value: Mapping[str, Any]) -> str:
    fields = {
        "source": _value(value["source"]),
        "environment": _line(dict(sorted(value["environment"].items()))),
        "kernels": _block((_line(kernel) for kernel in value["kernels"]), "[]"),
        "steps": _block(map(_order, value["steps"]), "[]"),
        "numbers": _object({name: _value(number) for name, number in sorted(value["numbers"].items())}),
        "varying": _object({name: _value(number) for name, number in sorted(value["varying"].items())}),
    }
    if "time" in value:
        texts = {name: json.dumps(field) for name, field in value["time"].items()}
        conditions = dict(sorted(value["time"]["conditions"].items()))
        fields["time"] = _object({**texts, "conditions": _line(conditions)})
    return _object(fields, indent=4)


def _object(fields: Mapping[str, str], *, indent: int = 6) -> str:
    return _block((f"{_string(name)}: {text}" for name, text in fields.items()), "{}", indent=indent)


def _block(lines: Iterable[str], brackets: str, *, indent: int = 6) -> str:
    """Return the lines between brackets that begin a line of ``indent``."""
    inside = ",\n".join(f"{' ' * indent}  {line}" for line in lines)
    return f"{brackets[0]}\n{inside}\n{' ' * indent}{brackets[1]}" if inside else brackets


def _order(order: Sequence[int]) -> str:
    if len(order) <= _ORDER_PER_LINE:
        return str([*order])
    rows = (order[at : at + _ORDER_PER_LINE] for at in range(0, len(order), _ORDER_PER_LINE))
    return _block((", ".join(map(str, row)) for row in rows), "[]", indent=8)


def _line(value: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{_string(name)}: {_value(field)}" for name, field in value.items()) + "}"


def _value(value: object) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # read back and written again, 3 and 3.0 must not differ
    return json.dumps(value, allow_nan=False)


def _string(text: str) -> str:
    # Readable where it is safe to print; else escaped (control and bidirectional characters, lone surrogates).
    return json.dumps(text, ensure_ascii=not text.isprintable())
