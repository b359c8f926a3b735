"""Pictures of terminals on the documentation's pages, made from what the pages show as text.

``python tests/docs_pictures.py`` writes them anew.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from terminal_picture import picture

from pytest_torchprof.report.baseline_failure import WorseThanBaseline

DOCS = Path(__file__).parents[1] / "docs"
_BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MOST_LINES = 32
_LEAST_COLUMNS = 100


class Shown(NamedTuple):
    """What a picture shows: the first block of a page that begins so, or its first lines."""

    page: str
    begins: str
    title: str

    @property
    def file(self) -> Path:
        """The picture, which has the name of its page."""
        return DOCS / "static" / f"terminal-{self.page}.svg"

    @property
    def text(self) -> str:
        """The text that it shows."""
        page = (DOCS / f"{self.page}.md").read_text()
        block = next(block for block in _BLOCK.findall(page) if block.startswith(self.begins))
        # Where the last line of these is blank, a picture shows none.
        return "\n".join(block.splitlines()[:_MOST_LINES]).rstrip() + "\n"


PICTURES = (
    Shown("adopt", "$ pytest test_server.py\n", "A limit missed by the recording of a server, in a terminal"),
    Shown("against", "$ pytest --torchprof-against main\n", "A failure against another commit in a terminal"),
    Shown("analyze", "$ torchprof analyze ", "What torchprof analyze prints of a recording"),
    Shown("baselines", WorseThanBaseline.GIST, "A failure against a baseline in a terminal"),
    Shown("ci", "$ pytest -q tests/cpu", "A job without a GPU that fails by a lost fusion, in a terminal"),
    Shown("compile", "$ pytest -q test_model.py\n", "A graph break in a terminal"),
    Shown("cookbook", "pytest_torchprof.errors.LimitsMissed", "A fusion and a graph break missed, in a terminal"),
    Shown("doctor", "ok  ", "What torchprof doctor says of a machine"),
    Shown("export", "$ torchprof export ", "A recording as folded stacks in a terminal"),
    Shown("fleet", "$ torchprof fleet run", "Recordings of a night judged in a terminal"),
    Shown("history", "$ torchprof history changes history\nmain", "The changes of a history in a terminal"),
    Shown("not-measured", "$ torchprof explain needs-gpu", "A code explained in a terminal"),
    Shown("suite", "$ pytest --torchprof-suite", "A suite under a rule in a terminal"),
    Shown("tutorial", "$ pytest test_model.py\ntest_model.py F", "A missed limit in a terminal"),
)


def draw(shown: Shown) -> str:
    """Return a picture."""
    columns = max(_LEAST_COLUMNS, *map(len, shown.text.splitlines()))
    return picture(shown.text, columns, shown.title)


if __name__ == "__main__":
    for each in PICTURES:
        each.file.write_text(draw(each))
