"""The markers of a test, merged: for each keyword the value nearest to the test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.testing.fixture_users import asks_for_fixture
from pytest_torchprof.testing.rule_key import RULE
from pytest_torchprof.testing.torch_tests import written_function

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _pytest.nodes import Node


def merged_marker(item: pytest.Item) -> dict[str, object] | None:
    """Return the item's ``torchprof`` markers merged keyword by keyword, the nearest winning; None if it has none.

    Behind all of them stands what the rules of the suite ask of the test.
    """
    own, rule = own_marker(item), item.stash.get(RULE, None)
    return own if rule is None else rule.beside(own, alone=own is None and not asks_for_fixture(item))


def measured_by_rule_alone(item: pytest.Item) -> bool:
    """Whether nothing but a rule of the suite measures a test."""
    return RULE in item.stash and own_marker(item) is None and not asks_for_fixture(item)


def own_marker(item: pytest.Item) -> dict[str, object] | None:
    """Return the test's merged marker without the rules of the suite; UnknownLimit for a positional value."""
    merged: dict[str, object] | None = None
    for marker in (marker for node in reversed(item.listchain()) for marker in _nearest_first(node)):
        if marker.args:
            from pytest_torchprof.reasons.asked_wrongly import PositionalValue  # noqa: PLC0415 - for what is refused alone

            raise UnknownLimit.because(PositionalValue(repr(marker.args[0])))
        merged = {**marker.kwargs, **(merged or {})}
    return merged


def marked_since(item: pytest.Item, planned: Mapping[str, object] | None) -> bool:
    """Return whether a test has got a marker since it was planned with this one, or with none."""
    return merged_marker(item) != planned


def _nearest_first(node: Node) -> list[pytest.Mark]:
    """Return the markers of a test, class or module: a parameter's before its function's, a class's before its bases'.

    Of several above one function or class the lower is nearer, as it is for pytest, which has parameters and bases the
    other way round. Those that hooks and fixtures put before and after stay there.
    """
    own = [marker for marker in node.own_markers if marker.name == "torchprof"]
    nearest_first = _written(node) if own else []
    # By what they are: those with the same keywords are equal.
    mine, written = set(map(id, own)), set(map(id, nearest_first))
    begin = next((at for at, marker in enumerate(own) if id(marker) in written), len(own))
    return [
        *own[:begin],
        *(marker for marker in nearest_first if id(marker) in mine),
        *(marker for marker in own[begin:] if id(marker) not in written),
    ]


def _written_above(item: pytest.Item) -> list[pytest.Mark]:
    """Return the markers of a test's function, the nearest first.

    Those that torch's ``parametrize`` puts around the function for one parameter are as near as those of
    ``pytest.param``.
    """
    function = getattr(item, "obj", None)
    markers = list(getattr(function, "pytestmark", ()))
    if not callable(function) or (written := written_function(function)) is function:
        return markers
    of_the_written = list(getattr(written, "pytestmark", ()))
    copied = set(map(id, of_the_written))
    return [*(marker for marker in markers if id(marker) not in copied), *of_the_written]


def _written(node: Node) -> list[pytest.Mark]:
    """Return the markers that stand in the source at a test or a class, the nearest first."""
    if isinstance(node, pytest.Item):
        of_parameters = getattr(getattr(node, "callspec", None), "marks", ())
        return [*of_parameters, *_written_above(node)]
    if not isinstance(node, pytest.Class):
        return []
    # A class may have one that is no list, and not yet bound to a mark.
    lists = (vars(base).get("pytestmark", ()) for base in node.obj.__mro__)
    markers = (marker for marks in lists for marker in (marks if isinstance(marks, list | tuple) else (marks,)))
    return [getattr(marker, "mark", marker) for marker in markers]
