"""Expressions that are compiled where a text has one of their words: no match goes without."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pytest_torchprof
from pytest_torchprof.devices.kinds import device_kinds
from pytest_torchprof.text.expressions import Expression, contains

pytestmark = pytest.mark.any_torch

PACKAGE = Path(pytest_torchprof.__file__).parent
HOLDERS = [file for file in PACKAGE.rglob("*.py") if "Expression(" in file.read_text(encoding="utf-8")]
NAMES = [".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__") for file in HOLDERS]
OF_MODULES = [value for name in NAMES for value in vars(import_module(name)).values()]
OF_CALLS = [expression for kind in device_kinds() for _, expression in kind.calls]
WITH_WORDS = [value for value in (*OF_MODULES, *OF_CALLS) if isinstance(value, Expression) and value.words]


def test_the_expressions_of_all_calls_have_words():
    assert OF_CALLS
    assert all(expression.words for expression in OF_CALLS)


@pytest.mark.parametrize("expression", WITH_WORDS, ids=lambda expression: expression.words[0])
def test_each_match_has_one_of_the_words(expression):
    compiled = expression.compiled()

    # Each alternative is to be drawn, and a plain name has none.
    @settings(max_examples=20 + 2 * expression.text.count("|"))
    @given(st.from_regex(compiled))
    def has_one(text):
        assert contains(compiled.search(text)[0], expression.words)

    has_one()


def test_a_text_without_the_words_compiles_nothing():
    expression = Expression("ab+", words="ab")
    assert expression.match("b") is expression.search("ba") is expression.fullmatch("a") is None
    assert expression._compiled is None
    assert all(matched("ab") for matched in (expression.match, expression.search, expression.fullmatch))
    assert expression.fullmatch("abc") is None
