"""The tutorial, carried out: ``python tests/tutorial_samples.py`` writes what its commands print into the page anew.

The page holds files (``python`` below a comment with the file's name) and commands (``console``). Both are taken in
their order, in one empty folder.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import fresh

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"
WIDTH = 100
_BLOCK = re.compile(
    r"<!-- file: (?P<file>\S+) -->\n```python\n(?P<text>.*?)```|```console\n\$ (?P<command>[^\n]+)\n(?P<printed>.*?)```",
    re.DOTALL,
)
# What pytest says before and after: not of this plugin.
_FRAME = re.compile(
    r"^(platform|rootdir:|plugins:|cachedir:|collected) .*\n|^={3,} test session starts =+\n", re.MULTILINE
)


def commands(folder: Path) -> Iterator[tuple[re.Match[str], str]]:
    """Yield each command of the page and what it prints, after what stands before it was done in a folder."""
    for block in _BLOCK.finditer(PAGE.read_text()):
        if block["file"]:
            (folder / block["file"]).write_text(block["text"])
        else:
            yield block, _run(block["command"], folder)


def _run(command: str, folder: Path) -> str:
    """Return what a command prints; pytest and torchprof are those of this environment."""
    program, *words = command.split()
    module = {"pytest": ["-m", "pytest", "-p", "no:cacheprovider", "--disable-warnings"]}.get(program)
    start = module or ["-c", "from pytest_torchprof.cli import main; raise SystemExit(main())"]
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | {"COLUMNS": str(WIDTH)}
    ran = fresh.run_python(*start, *words, folder=folder, environment=environment)
    return re.sub(r"\n{3,}", "\n\n", _FRAME.sub("", ran.stdout)).strip("\n") + "\n"


if __name__ == "__main__":
    page = PAGE.read_text()
    with tempfile.TemporaryDirectory() as scratch:
        for block, printed in commands(Path(scratch)):
            page = page.replace(block[0], f"```console\n$ {block['command']}\n{printed}```", 1)
    PAGE.write_text(page)
