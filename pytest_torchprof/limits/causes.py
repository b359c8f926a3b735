"""Which findings explain a missed limit: those about what it saw, where it asks for kernels or operators by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.findings.catalogue.syncs import ImplicitSync
from pytest_torchprof.findings.finding import WHICH_KERNELS, WHICH_OPERATORS
from pytest_torchprof.kernels.fields import bare
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.limits.seen import CarriedByNone

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_torchprof.findings import Finding
    from pytest_torchprof.limits.limit import Verdict

_BY_NAME: Final = frozenset((*WHICH_KERNELS, *WHICH_OPERATORS))


def causes_of(verdict: Verdict, why: Callable[[str], Sequence[Finding]]) -> list[Finding]:
    """Return the findings among those that ``why`` returns for the limit which are about what it saw.

    A finding that names neither kernels nor operators, such as a graph break, may be about any. Where a limit saw none,
    each finding stays.
    """
    findings = why(verdict.limit)
    if verdict.limit == "max_syncs" and verdict.rows:
        waited = {op for row in verdict.rows if not row.also_ran for op in row.ops}
        return [own for own in findings if not isinstance(own, ImplicitSync) or not waited.isdisjoint(own.ops)]
    if verdict.limit not in _BY_NAME:
        return [*findings]
    asked = {bare(op) for fact in verdict.seen if isinstance(fact, CarriedByNone) for op in fact.operators}
    seen = _seen(verdict)
    return [
        finding
        for finding in findings
        if not finding.subjects
        or not (asked or seen)
        or not seen.isdisjoint(finding.subjects)
        or not asked.isdisjoint(map(bare, finding.subjects))
    ]


def _seen(verdict: Verdict) -> frozenset[str]:
    """Return the names of the kernels and operators that missed a limit, or of those that ran in place of others."""
    rows = [row for row in verdict.rows if not row.also_ran] or verdict.rows
    return frozenset(name for row in rows for name in (row.name, decode(row.full).short, *row.ops))
