"""A file of a run as a row of a table, and what files are grouped by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pytest_torchprof.fleet.names import MODEL, model_of
from pytest_torchprof.limits import MISSED
from pytest_torchprof.reasons.codes import Code

if TYPE_CHECKING:
    from pytest_torchprof.fleet.judging import FileRecord
    from pytest_torchprof.report.result import Result

GPU: Final = "gpu"
TORCH: Final = "torch"
RULE: Final = "rule"
USUAL: Final = (MODEL, GPU, TORCH)
"""What files are grouped by if nothing else is asked for."""
NUMBERS: Final = (
    *("kernels", "launches", "memcpys", "syncs"),
    *("gpu_busy_us", "cpu_time_us", "gpu_utilization", "peak_memory_bytes"),
)
"""The numbers whose quantiles are told."""


class FleetRow(Struct, frozen=True, kw_only=True):
    """A file as a row for tools that read tables: no field depends on what others hold."""

    name: str
    url: str
    member: str | None
    model: str | None
    gpu: str | None
    torch: str | None
    rule: str | None
    outcome: str
    code: str | None
    """Why it is not measured or quarantined."""
    structure: str | None
    rank: int | None
    kernels: float | None
    launches: float | None
    memcpys: float | None
    syncs: float | None
    gpu_busy_us: float | None
    cpu_time_us: float | None
    gpu_utilization: float | None
    peak_memory_bytes: int | None
    limits_missed: tuple[str, ...]
    findings: tuple[str, ...]
    metadata: dict[str, str]
    """The further entries of a manifest about it."""


def row_of(record: FileRecord, name: str) -> FleetRow:
    """Return a file as a row."""
    result = record.result
    reason = record.quarantined if result is None else result.reason
    summary = None if result is None else result.summary
    values: dict[str, Any] = {key: value_of(record, name, key) for key in (*USUAL, RULE)}
    values |= {number: None if summary is None else getattr(summary, number) for number in NUMBERS}
    return FleetRow(
        name=name,
        url=record.url,
        member=record.member,
        **values,
        outcome="quarantined" if result is None else str(result.outcome),
        code=None if reason is None else str(reason.code or Code.NOT_MEASURED),
        structure=None if result is None else result.structure,
        rank=None if result is None else result.rank,
        limits_missed=() if result is None else missed_limits(result),
        findings=() if result is None else tuple(dict.fromkeys(finding.code for finding in result.findings)),
        metadata=record.metadata,
    )


def value_of(record: FileRecord, name: str, key: str) -> str | None:
    """Return a file's value for ``key``: model, gpu, torch, rule, or a key of a manifest; None if it is not known."""
    if key == MODEL:
        return model_of(record.metadata, name)
    if key == RULE:
        return record.rule
    if key in record.metadata:
        return record.metadata[key]
    environment = None if record.result is None else record.result.environment
    return None if environment is None or key not in (GPU, TORCH) else getattr(environment, key)


def missed_limits(result: Result) -> tuple[str, ...]:
    """Return the names of the limits that a file misses."""
    return tuple(verdict.name for verdict in result.limits if verdict.status == MISSED)
