"""What README shows is what its code prints."""

from __future__ import annotations

import re
import shutil

import pytest
import readme_sample
from terminal_picture import text_in

pytestmark = pytest.mark.any_torch

# Times, the machine, the name of a recording's file: what differs from run to run, and the layout with it.
_VARIES = re.compile(r"\S*::|[\d.,]+ (?:us|ms|s)\b|torchprof: .*|\.[0-9a-f]{8}\.|[- ]{2,}")


@pytest.mark.skipif(shutil.which("g++") is None, reason="compiled code on the CPU needs a C++ compiler")
def test_the_failure_that_readme_shows_is_what_its_code_prints(tmp_path):
    # Which of two kernels took longer, and stands first, differs too.
    shown, made = (
        sorted(_VARIES.sub(" ", line).strip() for line in text.splitlines())
        for text in (readme_sample.shown(), readme_sample.make(tmp_path))
    )
    assert made == shown


def test_the_picture_shows_the_failure_that_readme_shows():
    assert text_in(readme_sample.PICTURE.read_text()) == readme_sample.shown()
