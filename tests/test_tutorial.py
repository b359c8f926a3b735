"""The tutorial's commands print what the page shows."""

from __future__ import annotations

import re

import pytest
import tutorial_samples

pytestmark = pytest.mark.any_torch

# Times, rates and what they are laid out by, the machine, the versions, the names of recordings.
_VARIES = re.compile(
    r"[\d.,]+ ?(?:ns|us|ms|s|%)(?=\W|$)|torchprof: [^=]*|\.[0-9a-f]{8}\.|#\d+|\d+\.\d+(?:e-\d+)?|[- =]{2,}|, 1 warning"
)


# Times that changed are told where they differ enough, and their line is broken where they end.
_TIMES = re.compile(r"^  for information, not gated: .*\n(?: {4}.*\n)*", re.MULTILINE)


def _kept(text):
    """Return the lines without what differs from run to run; which kernel took longest, and stands first, differs too."""
    return sorted(" ".join(_VARIES.sub(" ", line).split()) for line in _TIMES.sub("", text).splitlines())


def test_each_command_of_the_tutorial_prints_what_the_page_shows(tmp_path):
    commands = list(tutorial_samples.commands(tmp_path))
    assert len(commands) == 5
    for block, printed in commands:
        assert _kept(printed) == _kept(block["printed"])
