"""The ranks of a job together as ``torchprof analyze DIR --ranks --json`` prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pytest_torchprof.analysis.ranks import Kind  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.findings.ranks import find_in_job
from pytest_torchprof.report.analysis_json import FindingJson, findings_json
from pytest_torchprof.report.ranks_report import rank_columns
from pytest_torchprof.report.row_columns import Among, json_values

if TYPE_CHECKING:
    from pytest_torchprof.analysis.ranks import Job, JoinedCollective

SCHEMA: Final = 1


class MemberJson(Struct, frozen=True, kw_only=True):
    """A rank's part in a collective."""

    rank: int
    start_ns: int
    duration_us: float | None
    wait_us: float
    bytes_in: int | None
    bytes_out: int | None
    overlap: float | None


class CollectiveJson(Struct, frozen=True, kw_only=True):
    """A collective in which ranks met."""

    name: str
    group: str | None
    group_size: int | None
    step: int
    dtype: str | None
    message_bytes: int | None
    transfer_us: float
    skew_us: float
    latest: int
    """The rank that came last."""
    algorithm_gb_per_s: float | None
    bus_gb_per_s: float | None
    ranks: tuple[MemberJson, ...]


class JobJson(Struct, frozen=True, kw_only=True):
    """The ranks of a job, with every collective by itself."""

    schema: int = SCHEMA
    world_size: int
    missing: tuple[int, ...]
    one_clock: bool
    residue_us: float
    kind: Kind
    wait_share: float | None
    skew_us: float | None
    straggler: int | None
    unpaired: int
    not_joined: dict[str, int]
    ranks: tuple[dict[str, Any], ...]
    """Their columns."""
    collectives: tuple[CollectiveJson, ...]
    findings: tuple[FindingJson, ...]


def job_json(job: Job) -> JobJson:
    """Return a job as it is printed."""
    return JobJson(
        world_size=job.world_size,
        missing=tuple(job.missing),
        one_clock=job.one_clock,
        residue_us=job.residue_us,
        kind=job.kind,
        wait_share=job.wait_share,
        skew_us=job.skew_us,
        straggler=job.straggler,
        unpaired=sum(job.not_joined.values()),
        not_joined={gap.value: count for gap, count in job.not_joined.items()},
        ranks=tuple(json_values(rank_columns(job), rank, Among()) for rank in job.ranks),
        collectives=tuple(map(_collective_json, job.collectives)),
        findings=findings_json(find_in_job(job)),
    )


def _collective_json(collective: JoinedCollective) -> CollectiveJson:
    return CollectiveJson(
        name=collective.name,
        group=collective.group.name,
        group_size=collective.group.size,
        step=collective.step,
        dtype=collective.dtype,
        message_bytes=collective.message_bytes,
        transfer_us=collective.transfer_us,
        skew_us=collective.skew_us,
        latest=collective.latest,
        algorithm_gb_per_s=collective.algorithm_gb_per_s,
        bus_gb_per_s=collective.bus_gb_per_s,
        ranks=tuple(
            MemberJson(
                rank=rank,
                start_ns=start,
                duration_us=collective.of_rank[rank].duration_us,
                wait_us=collective.wait_us(rank),
                bytes_in=collective.of_rank[rank].bytes_in,
                bytes_out=collective.of_rank[rank].bytes_out,
                overlap=collective.of_rank[rank].overlap,
            )
            for rank, start in collective.starts_ns.items()
        ),
    )
