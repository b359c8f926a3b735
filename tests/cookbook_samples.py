"""The cookbook's failures, made from its examples with a regression put in: ``python tests/cookbook_samples.py`` writes them anew."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import fresh

if TYPE_CHECKING:
    import subprocess

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "cookbook.md"
EXAMPLES = ROOT / "examples" / "cookbook"
WIDTH = 110
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
"""The page's tests for a GPU."""


@dataclass(frozen=True)
class Mutant:
    """A regression in the code under test: a line that another takes the place of."""

    file: str
    right: str
    wrong: str
    test: str = ""
    """The file of the test, where it is not the one that has the line."""

    @property
    def tested_by(self) -> str:
        return self.test or self.file

    def diff(self) -> str:
        """Return the regression as the page shows it."""
        lines = [*(f"-{line}" for line in self.right.splitlines()), *(f"+{line}" for line in self.wrong.splitlines())]
        return "\n".join([f"--- {self.file}", *lines])


MUTANTS = {
    "quantization": Mutant(
        "test_quantization.py",
        "    scale = x.abs().amax(-1, keepdim=True) / 127",
        "    scale = x.abs().amax(-1, keepdim=True) / 127\n    if (scale == 0).any():\n        scale = scale + 1e-8",
    ),
    "attention": Mutant(
        "test_attention.py",
        "        mixed = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.0, is_causal=True)",
        "        mixed = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True)",
    ),
    "own": Mutant(
        "tabular.py",
        "    return scores.softmax(-1)",
        "    if scores.isnan().any():\n        scores = scores.nan_to_num()\n    return scores.softmax(-1)",
        test="test_own_breaks.py",
    ),
    "blocks": Mutant("test_blocks.py", "UPCAST: tuple[int, ...] = ()", "UPCAST: tuple[int, ...] = (2,)"),
    "serving": Mutant(
        "engine.py",
        "        normed = functional.layer_norm(x, [self.width])",
        "        normed = (x - x.mean(-1, keepdim=True)) * x.var(-1, keepdim=True).add(1e-5).rsqrt()",
        test="test_serving.py",
    ),
    "training": Mutant(
        "trainer.py",
        "    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)",
        "    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)",
        test="test_training.py",
    ),
}


def copy(folder: Path) -> Path:
    """Copy the examples, and return the folder of the cookbook's."""
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__", ".torchprof"))
    (folder / "pytest.ini").touch()  # The root directory, below which the examples' conftest.py is found.
    return folder / "examples" / "cookbook"


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on a copy of the examples."""
    words = ["-m", "pytest", "-p", "no:cacheprovider", "--disable-warnings", "--show-capture=no", *words]
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | {"COLUMNS": str(WIDTH)}
    return fresh.run_python(*words, folder=folder, environment=environment)


def fail(mutant: Mutant, folder: Path) -> str:
    """Return what pytest says of the first failure of an example with the regression in it."""
    cookbook = copy(folder)
    path = cookbook / mutant.file
    assert path.read_text().count(mutant.right) == 1, mutant.right
    path.write_text(path.read_text().replace(mutant.right, mutant.wrong))
    ran = run(folder, "-x", f"examples/cookbook/{mutant.tested_by}")
    assert ran.returncode == 1, ran.stdout
    failure = re.search(r"^_+ \S.*? _+\n(.*?)(?=^-+ torchprof: |^=+ |^_+ )", ran.stdout, re.DOTALL | re.MULTILINE)
    assert failure is not None, ran.stdout
    return "\n".join(line.rstrip() for line in said_by_us(failure[1])).strip("\n") + "\n"


def said_by_us(text: str) -> list[str]:
    """Return the lines of a failure that are the plugin's own: where a test's line raised it, those marked E.

    Those that name the recordings are left out, whose folder is gone.
    """
    lines = [line for line in text.splitlines() if not re.match(r"(E +)?  (recording|with source lines): ", line)]
    marked = [line[1:] for line in lines if line.startswith("E ")]
    return textwrap.dedent("\n".join(marked or lines)).splitlines()


def section(name: str) -> str:
    """Return what the page shows of a mutant."""
    return PAGE.read_text().partition(f"<!-- mutant: {name} -->\n")[2].partition("<!-- end -->")[0]


def make(name: str, folder: Path) -> str:
    """Return what the page is to show of a mutant: the regression, and what the test says of it."""
    mutant = MUTANTS[name]
    return f"```diff\n{mutant.diff()}\n```\n\n```\n{fail(mutant, folder)}```\n"


if __name__ == "__main__":
    for chosen in sys.argv[1:] or MUTANTS:
        with tempfile.TemporaryDirectory() as scratch:
            before = f"<!-- mutant: {chosen} -->\n{section(chosen)}<!-- end -->"
            after = f"<!-- mutant: {chosen} -->\n{make(chosen, Path(scratch))}<!-- end -->"
        PAGE.write_text(PAGE.read_text().replace(before, after))
