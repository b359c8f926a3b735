"""How the sentences of the catalogue are written: fields in braces, with a word for how each is shown."""

from __future__ import annotations

from string import Formatter
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.text import counted, enumerated, printable_line
from pytest_torchprof.text.units import show_bytes, show_ratio, show_share, show_us

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LONGEST_NAME: Final = 80
_SHOWN: Final[Mapping[str, Callable[[Any], str]]] = {
    "us": show_us,
    "bytes": show_bytes,
    "share": show_share,
    "percent": "{:.0%}".format,
    "ratio": show_ratio,
    "grouped": "{:,}".format,
    "line": printable_line,
    "name": lambda name: repr(printable_line(name, _LONGEST_NAME)),
    "or": enumerated,
    "list": ", ".join,
}


class _Sentences(Formatter):
    def format_field(self, value: Any, format_spec: str) -> Any:
        if (show := _SHOWN.get(format_spec)) is not None:
            return show(value)
        if format_spec.startswith("."):
            return format(value, format_spec)
        singular, bar, plural = format_spec.partition("|")
        if bar:
            return singular if value == 1 else plural
        return counted(value, format_spec) if format_spec else str(value)


_SENTENCES: Final = _Sentences()


def worded(sentence: str, fields: Mapping[str, Any]) -> str:
    """Return a sentence with its fields put in.

    ``{lost:launch}`` is a number of things ("1 launch", "2,500 launches"), ``{lost:has|have}`` the word that fits the
    number, ``{calls:grouped}`` the bare number, ``{took_us:us}``, ``{size:bytes}``, ``{part:share}``, in whole percent
    ``{part:percent}``, and ``{part:ratio}`` quantities (``{part:.2f}`` as Python shows them), ``{name:name}`` a name of
    somebody else's between quotes, ``{name:line}`` a text as one printable line, ``{names:or}`` and ``{names:list}``
    several.
    """
    return _SENTENCES.vformat(sentence, (), fields)


def worded_of(facts: object, sentence: str) -> str:
    """Return a sentence with the attributes of an object put in: its fields, and what it makes of them."""
    named = [name for _, name, _, _ in Formatter().parse(sentence) if name]
    return worded(sentence, {name: getattr(facts, name) for name in named})
