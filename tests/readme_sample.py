"""README's failure and its picture, made from README's code: ``python tests/readme_sample.py`` writes them anew."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import fresh
from terminal_picture import picture

README = Path(__file__).parents[1] / "README.md"
PICTURE = README.parent / "docs" / "static" / "failure.svg"
WIDTH = 100
_CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
_BEGIN, _END = "<!-- sample -->\n```\n", "```\n<!-- end -->"
_ALLOWED, _LESS = "max_kernels=2", "max_kernels=1"


def code() -> str:
    """Return README's first example with one kernel less allowed."""
    found = _CODE.search(README.read_text())
    assert found is not None
    assert found[1].count(_ALLOWED) == 1
    return found[1].replace(_ALLOWED, _LESS)


def shown() -> str:
    """Return the failure that README shows."""
    return README.read_text().partition(_BEGIN)[2].partition(_END)[0]


def make(folder: Path) -> str:
    """Return what pytest prints of the example: the failure, and the plugin's own table."""
    (folder / "test_block.py").write_text(code())
    words = ("-m", "pytest", "-p", "no:cacheprovider", "--disable-warnings", "--show-capture=no", "test_block.py")
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | {
        "COLUMNS": str(WIDTH),
        # Lines are those of the file that was compiled, which Inductor's cache may have from another folder.
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}-inductor",
    }
    ran = fresh.run_python(*words, folder=folder, environment=environment)
    assert ran.returncode == 1, ran.stdout
    begin = ran.stdout.index("\n", ran.stdout.index("_ test_block_stays_fused _")) + 1
    return ran.stdout[begin : ran.stdout.index("\n\n1 failed", begin) + 1]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        README.write_text(README.read_text().replace(_BEGIN + shown(), _BEGIN + make(Path(scratch))))
    PICTURE.write_text(picture(shown(), WIDTH))
