"""The pages of the reference that are made from the code say what the code says."""

from __future__ import annotations

import pytest
import reference_pages

pytestmark = pytest.mark.any_torch


@pytest.mark.parametrize("name", reference_pages.PAGES)
def test_a_page_that_is_made_from_the_code_is_up_to_date(name):
    made = reference_pages.PAGES[name]().rstrip() + "\n"
    assert (reference_pages.DOCS / name).read_text() == made, "python tests/reference_pages.py writes it anew"
