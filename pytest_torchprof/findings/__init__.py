"""Findings: what a person reading the trace would point at, one function each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.findings.finding import Finding, Rule
from pytest_torchprof.findings.gpu_work import IN_FLIGHT_KERNELS, LOST_KERNELS, NO_GPU_WORK
from pytest_torchprof.findings.host import IMPLICIT_SYNC, OVERHEAD_BOUND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.profile import Profile

__all__ = ["RULES", "Finding", "Rule", "find"]

RULES: tuple[Rule, ...] = (NO_GPU_WORK, LOST_KERNELS, IN_FLIGHT_KERNELS, IMPLICIT_SYNC, OVERHEAD_BOUND)


def find(profile: Profile, rules: Iterable[Rule] = RULES) -> tuple[Finding, ...]:
    """Return what the rules find, in the order of the rules."""
    return tuple(finding for rule in rules for finding in rule.find(profile))
