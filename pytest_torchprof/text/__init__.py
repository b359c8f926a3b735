"""Words and numbers as people read them; text from traces and test ids is data, which is made safe to print."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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
_SHELL_WORD = r"""(?:'[^']*'|"[^"]*"|[^\s'"])+"""
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


def near(word: str, valid: Iterable[str]) -> str | None:
    """Return the valid word that is nearest; None if none is near."""
    from difflib import get_close_matches  # noqa: PLC0415 - only what is refused needs it

    # Below this it is another word: "kernel_limit" is a typo of nothing.
    return next(iter(get_close_matches(word, sorted(valid), n=1, cutoff=0.7)), None)


def nearest(word: str, valid: Iterable[str]) -> str:
    """Return "did you mean 'max_kernels'?" if a valid word is near, else the valid words."""
    return choice_advice(*choices_like(word, valid))


def choices_like(word: str, valid: Iterable[str]) -> tuple[str | None, tuple[str, ...]]:
    """Return the valid word that is nearest; None if none is near, and all valid words then."""
    names = sorted(valid)
    meant = near(word, names)
    return meant, tuple(names) if meant is None else ()


def choice_advice(meant: str | None, names: Sequence[str]) -> str:
    """Return what to write for a word that is none of the valid ones, by what `choices_like` returns for it."""
    return f"expected one of {', '.join(names)}" if meant is None else f"did you mean {meant!r}?"


def keywords_like(word: str, valid: Iterable[str]) -> tuple[str | None, tuple[str, ...]]:
    """Return the keyword that a word may mean, None if no keyword is near, and a few that are like it then."""
    from difflib import get_close_matches  # noqa: PLC0415 - only what is refused needs it

    names = sorted(valid)
    meant = near(word, names)
    return meant, tuple(get_close_matches(word, names, n=3, cutoff=0.55)) if meant is None else ()


def keyword_advice(meant: str | None, alike: Sequence[str]) -> str:
    """Return what to write for a keyword that is none, by what `keywords_like` it there is."""
    if meant is not None:
        return f"did you mean {meant!r}?"
    such_as = f", such as {enumerated(alike)}" if alike else ""
    return f"expected a keyword that `pytest --markers` lists{such_as}; `torchprof explain KEYWORD` says what it means"


def show_us(us: float | None) -> str:
    """Return a duration with three significant digits and its unit, "-" for None."""
    if us is None:
        return "-"
    for limit, divisor, unit in ((1e3, 1.0, "us"), (1e6, 1e3, "ms"), (math.inf, 1e6, "s")):
        # 999.96 us would be printed as "1000 us": it belongs to the next unit.
        if abs(us) < limit * 0.9995:
            return f"{_three_digits(us / divisor)} {unit}"
    raise AssertionError(us)


def show_bytes(size: int | None) -> str:
    """Return a size in binary units with three significant digits, "-" for None."""
    if size is None:
        return "-"
    if abs(size) < 1024:
        return f"{size} B"
    for exponent, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), 1):
        scaled = size / 1024**exponent
        if abs(scaled) < 1023.5 or unit == "TiB":
            return f"{_three_digits(scaled)} {unit}"
    raise AssertionError(size)


def show_ratio(ratio: float | None) -> str:
    """Return a ratio with two decimals below ten, "-" for None; a positive ratio never prints as zero."""
    if ratio is None:
        return "-"
    if 0 < ratio < 0.005:
        return "<0.01"
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:.3g}" if ratio < 1000 else f"{ratio:.0f}"


def show_rate(rate: float | None) -> str:
    """Return a rate per second with three significant digits, "-" for None."""
    if rate is None:
        return "-"
    return "<0.000001" if 0 < rate < 1e-6 else _three_digits(rate, most_decimals=8)


def _three_digits(number: float, *, most_decimals: int = 3) -> str:
    """Return a number with three significant digits; durations are not known beyond the nanosecond."""
    if number == 0:
        return "0"
    magnitude = math.floor(math.log10(float(f"{abs(number):.3g}")))
    return f"{number:.{max(0, min(2 - magnitude, most_decimals))}f}"


WIDTH = 100
"""The most columns that prose takes."""


def _in_lines(text: str, columns: int, first: str, indent: str, *, breaks_words: bool = True) -> list[str]:
    from pytest_torchprof.text.lines import in_lines  # noqa: PLC0415 - JSON needs no textwrap

    return in_lines(text, columns, first, indent, breaks_words=breaks_words)


def wrapped(words: str, indent: str, *, first: str = "", width: int = WIDTH) -> list[str]:
    """Return the text as lines of at most ``width`` columns."""
    return [without_commands(line) for line in _in_lines(words, min(width, WIDTH), first, indent)]


def broken(text: str, columns: int | None, *, command: str = "", hanging: int = 0) -> str:
    """Return prose with its lines broken where the columns end; the command, or path, at its end has lines of its own.

    The rest of a line is indented a little more than its beginning, or to the column ``hanging``. If ``columns`` is
    None, they are not known, as in a file, and lines stay whole. A command that is wider can be copied as it is: a
    shell goes on with its next line.
    """
    if columns is None:
        return text + command
    *above, last = text.split("\n")
    lines = [part for line in above for part in _broken_line(line, columns, hanging)]
    if not command or width_of(last + command) <= columns:
        return "\n".join([*lines, *_broken_line(last + command, columns, hanging)])
    begin = _hanging_at(last, hanging)
    below = command_lines(begin + command, columns) if " " in command else _in_lines(command, columns, begin, begin)
    return "\n".join([*lines, *_broken_line(last.rstrip(), columns, hanging), *below])


def _broken_line(line: str, columns: int, hanging: int) -> list[str]:
    if width_of(line) <= columns:
        return [line]
    words = line.lstrip()
    # Without its indent a first word that is wider than the line would stand at the beginning.
    return _in_lines(words, columns, line[: len(line) - len(words)], _hanging_at(line, hanging), breaks_words=False)


def _hanging_at(line: str, hanging: int) -> str:
    return " " * (hanging or len(line) - len(line.lstrip()) + 2)


def command_lines(command: str, columns: int) -> list[str]:
    """Return a shell's command in lines that fit, each but the last one continued; quoted words stay whole."""
    indent = command[: len(command) - len(command.lstrip())]
    lines: list[str] = []
    line = indent
    for word in re.findall(_SHELL_WORD, command):
        longer = f"{line}{word}" if line.isspace() or not line else f"{line} {word}"
        # A line that is continued ends in a backslash.
        if width_of(longer) > columns - len(" \\") and line.strip():
            lines.append(f"{line} \\")
            longer = f"{indent}  {word}"
        line = longer
    return [*lines, line] if width_of(command) > columns else [command]


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


def width_of(text: str) -> int:
    """Return the columns of a terminal that a line takes: two for each wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth  # noqa: PLC0415 - few lines have anything but ASCII

    return wcswidth(text)


def cut(words: str, width: int) -> str:
    """Return the text, cut to at most ``width`` columns."""
    return words if width_of(words) <= width else around_gap(_beginning(words, width - 3), "")


def cut_inside(words: str, width: int) -> str:
    """Return the text, without its middle if it is too wide: names often differ only at their ends."""
    if width_of(words) <= width:
        return words
    behind = (width - 3) * 2 // 5
    return around_gap(_beginning(words, width - 3 - behind), ending(words, behind))


def around_gap(before: str, behind: str) -> str:
    """Return a text without its middle; a name may have lost its own before, or be cut at one of its dots."""
    return f"{before.rstrip('.')}...{behind.lstrip('.')}"


_WORD = r"\S+"
_PATH = r"[^/\s]*/"
_FILE_LINE = r"\S+:\d+\b"
_LONGEST_WORD = 30
"""Longer ones are names of kernels, of which the beginning and the end say something."""
_GAP = " ... "


def without_middle(line: str, width: int) -> str:
    """Return a sentence that is too wide without words in its middle; a file with its line is never among those.

    It is wider than ``width`` only where the files take more.
    """
    if width_of(line) <= width:
        return line
    indent = len(line) - len(line.lstrip())
    room = max(width - indent - len(_GAP), 0)
    behind = room * 2 // 5
    begin, end = indent + len(_beginning(line[indent:], room - behind)), len(line) - len(ending(line, behind))
    words = [(word.start(), word.end(), re.match(_FILE_LINE, word[0]) is not None) for word in re.finditer(_WORD, line)]
    for first, behind, is_place in words:
        if is_place or behind - first <= _LONGEST_WORD:
            # Of the first word at least the beginning stays.
            begin = first if indent < first < begin < behind else begin
            end = behind if first < end < behind else end
    places = [(first, behind) for first, behind, is_place in words if is_place and begin <= first and behind <= end]
    shown = line[:begin]
    for (_, left), (first, behind) in pairwise([(0, begin), *places, (end, len(line))]):
        gap = line[left:first]
        if gap.strip():
            before, after = " " * gap[0].isspace(), " " * gap[-1].isspace()
            shown, gap = (shown if before else shown.rstrip(".")), f"{before}...{after}"
        shown += gap + line[first:behind]
    return shown


def with_ends_of_words(line: str, width: int) -> str:
    """Return a line in which only the ends are left of words that are too wide; a file with its line stays whole."""
    return re.sub(
        _WORD,
        lambda word: (
            word[0]
            if width_of(word[0]) <= width or re.match(_FILE_LINE, word[0])
            else around_gap("", ending(word[0], width - 3))
        ),
        line,
    )


def with_middles_of_words(line: str, width: int) -> str:
    """Return a line in which words that are too wide have lost their middles; paths, which are copied, stay whole."""
    return re.sub(_WORD, lambda word: word[0] if re.match(_PATH, word[0]) else cut_inside(word[0], width), line)


def cut_apart(names: Sequence[str], width: int) -> list[str]:
    """Return names that have to remain different, each cut to a width: of those that begin alike, the ends remain."""
    beginnings = {name: _half_of(name, width) for name in names}
    alike = Counter(beginnings.values())
    return [_without_beginning(name, width) if alike[beginnings[name]] > 1 else cut(name, width) for name in names]


def _half_of(name: str, width: int) -> tuple[str, str]:
    """Return the word for the name's kind, and half of what fits beside it: alike are names that share both."""
    # A name of one word has none for its kind.
    kind, _, own = name.partition(" ") if " " in name else ("", "", name)
    return kind, own[: max(width - len(kind), 0) // 2]


def _without_beginning(name: str, width: int) -> str:
    """Return a name cut to a width after its first word, which names its kind."""
    if width_of(name) <= width:
        return name
    kind, blank, _ = name.partition(" ")
    kept = f"{kind}{blank}" if blank and width_of(kind) < width // 2 else ""
    return kept + around_gap("", ending(name, width - width_of(kept) - 3))


def _beginning(words: str, width: int) -> str:
    if words.isascii():
        return words[:width]
    fitting = (until for until in range(min(width, len(words)), 0, -1) if width_of(words[:until]) <= width)
    return words[: next(fitting, 0)]


def ending(words: str, width: int) -> str:
    """Return the last ``width`` columns of the text."""
    begin = max(len(words) - width, 0)
    while width_of(words[begin:]) > width:
        begin += 1
    return words[begin:]


def show_share(value: float) -> str:
    """Return a share as percent."""
    return f"{100 * value:.1f}%"


def is_huge(value: object) -> bool:
    """Return whether a value is or contains an integer beyond 64 bits, which Python may not even print."""
    if isinstance(value, int):
        return abs(value) >= 2**63
    if isinstance(value, Mapping):
        return any(map(is_huge, value)) or any(map(is_huge, value.values()))
    return isinstance(value, list | tuple | set | frozenset) and any(map(is_huge, value))


MOST_DIGITS = 18
"""The most digits of an integer in a text: those with more are beyond 64 bits, or nearly so."""
