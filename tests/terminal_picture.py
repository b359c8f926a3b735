"""What a terminal shows, as a picture for the documentation: an SVG of the text itself, which a test reads back."""

from __future__ import annotations

import re
from html import escape, unescape

_WIDTH, _HEIGHT, _MARGIN = 8.4, 19, 14
_COLOURS = (
    (re.compile(r"\$ "), "#79c0ff"),
    (re.compile(r"(?:\S+: )?\d+ limits? missed|(?:worse|slower) than |FAILED |wrong  |.* failed$"), "#ff7b72"),
    (re.compile(r"  do: "), "#7ee787"),
    (re.compile(r"-{10,}"), "#8b949e"),
    (re.compile(r"  \w+="), "#ffa657"),
)
_LINE = re.compile(r"<text [^>]*>(.*?)</text>")


def picture(text: str, columns: int, title: str = "A failure as a terminal shows it") -> str:
    """Return the SVG; every character has the width of a column, whichever font there is."""
    lines = text.rstrip("\n").split("\n")
    width, height = columns * _WIDTH + 2 * _MARGIN, len(lines) * _HEIGHT + 2 * _MARGIN
    drawn = [_drawn(line, _MARGIN + (number + 0.75) * _HEIGHT) for number, line in enumerate(lines)]
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#0d1117"/>',
            '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14">',
            *drawn,
            "</g>",
            "</svg>",
            "",
        )
    )


def text_in(svg: str) -> str:
    """Return the text that a picture shows."""
    return "".join(f"{unescape(line)}\n" for line in _LINE.findall(svg))


def _drawn(line: str, y: float) -> str:
    colour = next((colour for pattern, colour in _COLOURS if pattern.match(line)), "#e6edf3")
    length = f' textLength="{len(line) * _WIDTH:g}"' if line else ""
    return f'<text x="{_MARGIN}" y="{y:g}"{length} fill="{colour}" xml:space="preserve">{escape(line)}</text>'
