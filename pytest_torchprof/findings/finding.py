"""What a finding is, and what makes one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_torchprof.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something a person reading the trace would point at."""

    code: str
    title: str
    message: str
    evidence: Mapping[str, object] = field(default_factory=dict)
    """Plain data: counts, times in microseconds (``_us``), kernel and operator names, steps."""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A finding's code with the function that looks for it."""

    code: str
    find: Callable[[Profile], Iterable[Finding]]
