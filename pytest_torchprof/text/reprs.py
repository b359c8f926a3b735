"""The line that shows a part of a profile in a console: what it is and what tells it from others."""

from __future__ import annotations

import reprlib

from msgspec import Struct

from pytest_torchprof.text import printable, printable_line
from pytest_torchprof.text.cutting import cut_inside

LONGEST_REPR = 150
"""The most characters; real names reach 5,000, and all fields of a graph break's text a screen."""
_LONGEST_NAME = 100


def bracketed(thing: object, *facts: str | None, kind: str | None = None) -> str:
    """Return ``<Collective all_reduce, fp32, 64 MiB>``: its kind, or ``kind``, and those facts that are known."""
    kind = type(thing).__name__ if kind is None else kind
    text = ", ".join(fact for fact in facts if fact)
    return f"<{kind}{f' {printable_line(text, LONGEST_REPR - len(kind) - 3)}' if text else ''}>"


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring, self.maxother = _LONGEST_NAME, LONGEST_REPR


class ShownFields(Struct, frozen=True):
    """A part that shows the fields that hold something, as many as fit: ``<Environment torch='2.13.0', ...>``."""

    def __repr__(self) -> str:
        short = _Short()
        fields = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return bracketed(self, *(f"{name}={short.repr(value)}" for name, value in fields if _holds_something(value)))


def _holds_something(value: object) -> bool:
    return value is not None and value is not False and not (hasattr(value, "__len__") and not len(value))


def short_name(name: str) -> str:
    """Return a name or path with its beginning and its end, where it is long."""
    return cut_inside(printable(name), _LONGEST_NAME)


def at_line(file: str | None, line: int | None) -> str | None:
    """Return ``model.py:12`` without the folder, which may be longer than all else; None without a file."""
    return None if file is None else file.replace("\\", "/").rpartition("/")[2] + (f":{line}" if line else "")
