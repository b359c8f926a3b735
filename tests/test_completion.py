"""What a shell completes on the command line, with argcomplete."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.any_torch

COMMAND = "import sys; from pytest_torchprof.cli import main; sys.exit(main())"


def completed(line, tmp_path, code=COMMAND):
    """Return what a shell is offered at the end of a line, as its hook of argcomplete asks."""
    answer = tmp_path / "answer"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **asked}, check=False, capture_output=True)
    return done.returncode, {word.strip() for word in answer.read_text().split("\n")} if answer.exists() else set()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("torchprof ana", {"analyze"}),
        ("torchprof analyze --t", {"--top", "--threshold"}),
        ("torchprof analyze --by fam", {"family"}),
        ("torchprof baseline re", {"rename", "resolve"}),
        ("torchprof baseline prune --ro", {"--rootdir"}),
    ],
)
def test_commands_options_and_choices_are_completed(tmp_path, line, words):
    pytest.importorskip("argcomplete")
    assert completed(line, tmp_path) == (0, words)


def test_without_argcomplete_a_shell_that_asks_starts_no_command(tmp_path):
    line = f"torchprof check {tmp_path / 'nothing.json'} "
    status, words = completed(line, tmp_path, f"import sys; sys.modules['argcomplete'] = None; {COMMAND}")
    assert (status, words) == (2, set())
