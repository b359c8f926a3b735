"""Words and numbers as people read them; text from traces and test ids is data, which is made safe to print."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_torchprof.text.cutting import around_gap, cut_inside

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST = 200
"""The most characters of a line; real names reach 5,000."""
LONGEST_REASON = 1000
"""The most characters of a reason, which may name two files and a folder by their full paths."""

# The patterns here are texts, which `re` compiles when they are first used: few commands use any of them.

# Text that a CI service takes for a command: GitHub at the beginning of a line, Azure anywhere in it.
_COMMAND = r"^\s*:(?=:)|#(?=#(?:vso)?\[)"


def printable(text: str) -> str:
    """Return ``text`` with everything escaped that a terminal or a CI service would obey or hide."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)
    return without_commands(text) if "::" in text or "##" in text else text


def without_commands(line: str) -> str:
    """Return a line changed so that no CI service takes it for a command."""
    return re.sub(_COMMAND, lambda match: f"{match[0][:-1]}\\x{ord(match[0][-1]):x}", line)


SHOWN_IN_URLS = ("host", "port", "dbname", "sslmode", "connect_timeout")
"""The parameters of a URL that are shown; any other may be secret."""
_IN_ADDRESS = r"(?s)(://[^/@:?\s]*):.*@"


_IN_URL = rf"([?&](?!(?:{'|'.join(SHOWN_IN_URLS)})=)[^=&\s]+)=[^&\s'\"]+"


def without_passwords(text: str) -> str:
    """Return text with asterisks in place of the parts of URLs that may be secret."""
    if "://" not in text:
        return text
    return re.sub(_IN_URL, r"\1=***", re.sub(_IN_ADDRESS, r"\1:***@", text))


def json_text(value: object) -> str:
    """Return JSON in plain ASCII, in which neither a terminal nor a CI service sees a command."""
    from json import dumps  # noqa: PLC0415 - tables and sentences do not need it

    return dumps(value, indent=2, allow_nan=False).replace("##", "\\u0023#") + "\n"


def printable_line(text: str, longest: int = LONGEST) -> str:
    """Return ``text`` as one printable line of at most ``longest`` characters."""
    line = printable(text)
    return line if len(line) <= longest else around_gap(line[: longest - 3], "")


def reason_line(text: str) -> str:
    """Return a reason as one printable line; a long reason loses its middle, not the remedy and code at its end."""
    return cut_inside(printable(text), LONGEST_REASON)


_ALIKE = frozenset({"pointwise"})
"""Nouns whose singular and plural are the same."""
# Characters that a shell replaces inside double quotes, by history expansion too.
_SPECIAL_IN_QUOTES = r'["$`\\!]'
_HISSING = ("s", "x", "ch", "sh")


def quoted(word: str) -> str:
    """Return a word of a command quoted for a shell, in double quotes if these keep it unchanged."""
    from shlex import quote  # noqa: PLC0415 - few commands are printed

    return quote(word) if re.search(_SPECIAL_IN_QUOTES, word) else f'"{word}"'


def path_from_here(file: str) -> str:
    """Return a path relative to the current directory if the file is below it, any other path unchanged."""
    from pathlib import Path  # noqa: PLC0415 - slow to import; few commands name files of the user's

    here = Path.cwd()
    return str(Path(file).relative_to(here)) if Path(file).is_relative_to(here) else file


def counted(count: int, noun: str) -> str:
    """Return ``1 copy``, ``3 copies``, ``2,500 kernels``."""
    return f"{count:,} {numbered(count, noun)}"


def numbered(count: float, noun: str) -> str:
    """Return the noun for a count that is printed elsewhere."""
    return noun if count == 1 else plural(noun)


def plural(noun: str) -> str:
    """Return the plural of a noun; its last word is the one that changes."""
    if noun in _ALIKE:
        return noun
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(_HISSING) else f"{noun}s"


def enumerated(words: Sequence[str]) -> str:
    """Return ``a, b or c``."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def all_of(names: Sequence[str], most: int) -> str:
    """Return ``a, b and c``; of many, the first few and the number of the others."""
    if 1 < len(names) <= most:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return first_of(names, most)


def first_of(names: Sequence[str], most: int = 5, noun: str = "", between: str = ", ") -> str:
    """Return the names in a line; of many, the first few and the number of the others."""
    return between.join(names[:most]) + and_more(len(names) - most, noun)


def and_more(left_out: int, noun: str = "") -> str:
    """Return " and 3 more" or " and 3 more kernels" for so many that are left out; empty if none are."""
    return f" {more}" if (more := more_text(left_out, noun)) else ""


def more_text(left_out: int, noun: str = "") -> str:
    """Return "and 3 more" or "and 3 more kernels" for so many that are left out; empty if none are."""
    if left_out <= 0:
        return ""
    return f"and {counted(left_out, f'more {noun}')}" if noun else f"and {left_out:,} more"


def first_line(text: str) -> str:
    """Return the first line of a text that is not blank; empty if all are blank."""
    return next(filter(None, map(str.strip, text.splitlines())), "")


def last_line(text: str) -> str:
    """Return the last line of a text that is not blank; empty if all are blank."""
    return first_line("\n".join(reversed(text.splitlines())))


def last_lines(text: str, most: int) -> list[str]:
    """Return the last lines of a text, at most ``most``."""
    return text.strip().splitlines()[-most:]


def raised_line(traceback: str) -> str:
    """Return the exception in a traceback as pytest shows it: its last line begins with an E."""
    return last_line(traceback).removeprefix("E ").strip()


def number_alike(labels: Sequence[str]) -> list[str]:
    """Return the labels, with equal ones numbered: ``pointwise add [2]``.

    Such kernels differ only in their raw names.
    """
    several = {label for label, count in Counter(labels).items() if count > 1}
    seen: Counter[str] = Counter()
    numbered = []
    for label in labels:
        seen[label] += 1
        numbered.append(f"{label} [{seen[label]}]" if label in several else label)
    return numbered


def is_huge(value: object) -> bool:
    """Return whether a value is or contains an integer beyond 64 bits, which Python may not even print."""
    if isinstance(value, int):
        return abs(value) >= 2**63
    if isinstance(value, Mapping):
        return any(map(is_huge, value)) or any(map(is_huge, value.values()))
    return isinstance(value, list | tuple | set | frozenset) and any(map(is_huge, value))


MOST_DIGITS = 18
"""The most digits of an integer in a text: those with more are beyond 64 bits, or nearly so."""
