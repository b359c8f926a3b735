"""The recordings of a job's ranks together: a measurement becomes that of one of the ranks of its job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from pytest_torchprof.analysis.joining import joined
from pytest_torchprof.analysis.rank_parts import named_part, part_of, rank_and_size
from pytest_torchprof.analysis.ranks import InJob, RankPart
from pytest_torchprof.reasons.adopting import RanksNotAdopted
from pytest_torchprof.reasons.errors import NotMeasured, TorchprofError
from pytest_torchprof.reasons.testing import RankUntold
from pytest_torchprof.recording.reader import read

if TYPE_CHECKING:
    from pytest_torchprof.profiles import Profile
    from pytest_torchprof.testing.measured_test import MeasuredTest
    from pytest_torchprof.testing.measurement import Measurement


def with_other_recordings(test: MeasuredTest, measurement: Measurement) -> Measurement:
    """Return the measurement as that of one of the ranks that have made it, or with the reason why it cannot be."""
    plan, profile = measurement.explanation.plan, measurement.profile
    profiles = [] if profile is None else _profiles_here(test, measurement, profile)
    in_step = plan is not None and plan.coordination.in_step
    if profile is None or (len(profiles) < 2 and not in_step):
        return measurement
    rank, parts = rank_and_size(profile.trace), [named_part(own) for own in profiles]
    if plan is not None and in_step:
        try:
            parts = plan.coordination.exchange("the recordings", parts[0], RankPart | None)
        except NotMeasured as problem:
            return replace(measurement.doubted(problem.reason), profile=None)
    if len(parts) < 2:
        return measurement
    known = [part for part in parts if part is not None]
    if rank is None or len(known) < len(parts):
        return replace(measurement, profile=profile.without_ranks(RankUntold()))
    try:
        return replace(measurement, profile=profile.with_ranks(InJob(job=joined(known), rank=rank[0])))
    except TorchprofError as problem:
        return replace(measurement, profile=profile.without_ranks(problem.reason))


def _profiles_here(test: MeasuredTest, measurement: Measurement, profile: Profile) -> list[Profile]:
    """Return the profile; in a replay, with those of the other ranks beside it."""
    options = test.state.options
    replays = options.enabled and options.replay is not None
    paths = test.state.recordings.of_all_ranks(test.nodeid, measurement.label) if replays else []
    others = [profile if path == measurement.recording else test.profile_of(read(path)) for path in paths]
    return others or [profile]


def of_one_job(profiles: dict[str | None, Profile], *, with_all: bool) -> dict[str | None, Profile]:
    """Return the profiles as those of a job's ranks, if there are several and each says its rank.

    NotMeasured where they are not of one job, or where ranks are missing and all are required (``with_all``).
    """
    named = [rank_and_size(profile.trace) for profile in profiles.values()]
    places = [place for place in named if place is not None]
    if len(places) < len(named):
        return profiles
    missing = set(range(places[0][1])) - {rank for rank, _ in places}
    if with_all and missing:
        raise NotMeasured(RanksNotAdopted(tuple(sorted(missing)), len(places)))
    if len(places) < 2:
        return profiles
    parts = {label: part_of(profile) for label, profile in profiles.items()}
    try:
        job = joined(parts.values())
    except TorchprofError as problem:
        raise NotMeasured(problem.reason) from None
    return {label: profile.with_ranks(InJob(job=job, rank=parts[label].rank)) for label, profile in profiles.items()}
