"""The markers of a test, merged: for each keyword the value nearest to the test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.testing.rule_key import RULE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _pytest.nodes import Node


def merged_marker(item: pytest.Item) -> dict[str, object] | None:
    """Return the item's ``torchprof`` markers merged keyword by keyword, the nearest winning; None without one.

    Behind all of them stands what the rules of the suite ask of the test.
    """
    own, rule = own_marker(item), item.stash.get(RULE, None)
    return own if rule is None else rule.beside(own, alone=own is None and not _asks_for_fixture(item))


def measured_by_rule_alone(item: pytest.Item) -> bool:
    """Whether nothing but a rule of the suite measures a test."""
    return RULE in item.stash and own_marker(item) is None and not _asks_for_fixture(item)


def _asks_for_fixture(item: pytest.Item) -> bool:
    return "torchprof" in getattr(item, "fixturenames", ())


def own_marker(item: pytest.Item) -> dict[str, object] | None:
    """Return what ``merged_marker`` does without the rules of the suite."""
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

    pytest keeps those in the source in the opposite order, between those that hooks and fixtures put before and after.
    """
    own = [marker for marker in node.own_markers if marker.name == "torchprof"]
    if not own or not isinstance(node, pytest.Item):
        return own[::-1]
    of_function = getattr(getattr(node, "obj", None), "pytestmark", ())
    written = [*of_function, *getattr(getattr(node, "callspec", None), "marks", ())]
    begin = next((at for at, marker in enumerate(own) if marker in written), len(own))
    nearest = [marker for marker in own[begin:] if marker in written]
    return [*own[:begin], *nearest[::-1], *(marker for marker in own[begin:] if marker not in written)]
