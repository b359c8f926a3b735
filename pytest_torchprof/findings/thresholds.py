"""The rules' thresholds as people write them: ``hotspot.share = 0.6``."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.errors import UnknownLimit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.findings.finding import Rule, Threshold


def with_thresholds(rules: Iterable[Rule], given: Iterable[str]) -> tuple[Rule, ...]:
    """Return the rules with thresholds set as ``code.name = value``; UnknownLimit with the names there are."""
    rules = tuple(rules)
    known = {f"{rule.code}.{one.name}": (rule.code, one) for rule in rules for one in rule.thresholds}
    changed: dict[str, dict[Threshold, float]] = defaultdict(dict)
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value:
            raise UnknownLimit(f"{text!r}: expected NAME = VALUE, e.g. hotspot.share = 0.6")
        if name not in known:
            raise UnknownLimit(f"there is no threshold {name!r}; known are: {', '.join(sorted(known))}")
        code, threshold = known[name]
        if threshold in changed[code]:
            raise UnknownLimit(f"{name} is given twice")
        changed[code][threshold] = _number(name, value, threshold)
    return tuple(replace(rule, changed=changed[rule.code]) if rule.code in changed else rule for rule in rules)


def _number(name: str, text: str, threshold: Threshold) -> float:
    whole = isinstance(threshold.value, int)
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        kind = "a whole number" if whole else "a number"
        raise UnknownLimit(f"{name} = {text}: expected {kind} from 0 on, as {threshold.value:g}, which it is by itself")
    return value
