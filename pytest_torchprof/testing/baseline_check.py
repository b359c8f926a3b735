"""A measurement against its baseline: where it is kept, how they compare, what fails the test, what is written."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_torchprof import baseline, compare
from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.compare.change_words import change_words
from pytest_torchprof.kernels.operand_types import hides_types
from pytest_torchprof.limits.limit import unmeasured
from pytest_torchprof.reasons.commit_gaps import OnOtherDevice
from pytest_torchprof.reasons.comparing import (
    AdoptedWithoutTimes,
    BaselineElsewhere,
    BaseUnmeasured,
    EntryIncomplete,
    NoSamplesHere,
    NumberLost,
    RecordedWithoutTimes,
    SameKernelsUnknown,
    TimesMeanNothing,
    TypesUnknown,
    WorkersShareDevice,
)
from pytest_torchprof.reasons.decoding import from_stored, portable
from pytest_torchprof.report.baseline_failure import BaselineFailure
from pytest_torchprof.testing.options import BaselineMode
from pytest_torchprof.text import first_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.compare import Blame, Comparison
    from pytest_torchprof.history.branch_baseline import RunOfBranch
    from pytest_torchprof.limits import Verdict
    from pytest_torchprof.profiles import Profile
    from pytest_torchprof.reasons.commit_gaps import CommitGap
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.testing.baseline_files import BaselineFiles
    from pytest_torchprof.testing.marker_options import TestOptions
    from pytest_torchprof.testing.options import RunOptions
    from pytest_torchprof.testing.renames import Gone, GoneEntries


class BaselineJudgement(Struct, frozen=True, kw_only=True):
    """A measurement compared with the entry that its baseline has."""

    file: Path
    key: str
    old: Entry | None
    new: Callable[[], Entry]
    """Returns the entry that this measurement would write: most are never needed, so it is made on demand."""
    comparison: Comparison
    formers: tuple[Gone, ...] = ()
    """The tests that are gone and whose kernels these are, where there is no entry: one of them may be this test."""
    run: RunOfBranch | None = None
    """The run of a branch whose entry it is; None if it is one of a file, or if there is none."""
    why_none: Reason | None = None
    """Why a history has no entry of a test that may be known there."""
    is_due: bool = False
    """Whether this run writes such an entry: it writes all, or those that are missing, as this one is."""
    lacking: tuple[str, ...] = ()
    """What the entry does not have of that which is compared."""
    says_less: bool = False
    """Whether it lacks what some kernels work on, though this measurement knows it."""

    @property
    def writes(self) -> bool:
        """Whether this run writes the entry if the test passes; one that may have another name is not missing."""
        return self.is_due and not self.formers

    @property
    def has_worse_kernels(self) -> bool:
        """Whether kernels are worse, which lines of the user's code launch, and not only a number."""
        return any(change.fails and not change.is_number for change in self.comparison.changes)


class BaselineCheck(Struct, frozen=True, kw_only=True):
    """How the measurements of one test are compared with their baselines."""

    run: RunOptions
    options: TestOptions
    nodeid: str
    path: Path
    source: str
    """The text of the test function."""
    files: BaselineFiles
    gone: GoneEntries

    @property
    def wanted(self) -> bool:
        """Whether there is a comparison at all."""
        return self.run.baseline is not BaselineMode.OFF and self.options.uses_baseline

    @property
    def time_share(self) -> float | None:
        """By how much it may become slower; None where times are not compared."""
        if not self.wanted:
            return None
        of_all = None if self.run.against is None else self.run.against.time_share
        return self.options.tolerance.allowed.get("time", of_all)

    @property
    def of_times(self) -> bool:
        """Whether times are taken: of two commits, by processes that do nothing else."""
        side = self.run.against
        return self.time_share is not None if side is None else side.timed is not None

    @property
    def judges_limits(self) -> bool:
        """Whether limits are judged: they are of the code as it is, and another commit's is only compared with it."""
        return self.run.against is None or self.run.against.is_judged

    @property
    def takes_times(self) -> bool:
        """Whether a live measurement takes times: they are compared, and no other test runs beside it."""
        return self.of_times and self.run.workers == 1

    def file_and_key(self, label: str | None, profile: Profile) -> tuple[Path, str]:
        """Return the file and the key of a measurement's baseline."""
        slug = baseline.device_slug(profile.trace.environment)
        file = baseline.baseline_path(self.path, self.run.rootdir, slug, self.run.baseline_dir)
        return file, baseline.key_of(self.nodeid, label)

    def only_elsewhere(self, label: str | None, profile: Profile) -> bool:
        """Return whether this measurement has baselines, but only for other devices."""
        if not self.wanted:
            return False
        file, key = self.file_and_key(label, profile)
        files = baseline.files_of(self.path, self.run.rootdir, self.run.baseline_dir).values()
        known = {path for path in files if key in self.files.entries(path)}
        return bool(known) and file not in known

    def compare(self, label: str | None, profile: Profile) -> BaselineJudgement | None:
        """Compare a measurement with its baseline's entry; None where that is not asked for or impossible."""
        if not self.wanted or profile.doubt is not None or profile.kernels_unknown is not None:
            return None
        file, key = self.file_and_key(label, profile)
        whole, new = self.files.entries(file).get(key), cache(partial(self._new_entry, profile))
        old = whole and whole.of_rank(this_rank().number)
        allowed = {
            name: share for name, share in self.options.tolerance.allowed.items() if name != "time" or self.of_times
        }
        side = self.run.against
        sides = None if side is None else (side.reference.shown, "the working tree")
        comparison = compare.compare(
            old, new() if old else None, names=self.options.names, tolerance=allowed, sides=sides
        )
        if side is not None:
            # What varies from run to run differs between any two processes.
            comparison = comparison.without_noise()
        formers = self.gone.like(file, label, new) if self._looks_for_formers and old is None else ()
        history, at = self.run.history_baseline, (profile.trace.environment, self.nodeid, label)
        return BaselineJudgement(
            file=file,
            key=key,
            old=old,
            new=new,
            comparison=comparison,
            formers=formers,
            run=None if history is None else history.run_of(*at),
            why_none=None if history is None else history.why_not(*at),
            is_due=self.writes(old),
            lacking=() if old is None else tuple(self._lacking(old, new())),
            says_less=old is not None and any(compare.lacking_kernels(old, new())),
        )

    @property
    def _looks_for_formers(self) -> bool:
        return self.run.against is None and self.run.history_branch is None and not self.run.baseline.updates

    def _new_entry(self, profile: Profile) -> Entry:
        # Both sides of a comparison with a commit have the same tests, or are asked for with those that each has.
        source = self.source if self.run.against is None else ""
        return baseline.entry_of(profile, source_hash=baseline.source_hash(source))

    def needs_more_times(self, label: str | None, profile: Profile) -> bool:
        """Return whether to take times once more: they look slower, or they are written to be compared with."""
        if not self.wanted:
            return False
        file, key = self.file_and_key(label, profile)
        old, new = self.files.entries(file).get(key), self._new_entry(profile)
        if self.writes(old):
            return True
        return old is not None and compare.unsure(old.time, new.time, self.options.tolerance.allowed["time"])

    def writes(self, old: Entry | None) -> bool:
        """Return whether this run writes the entry of a test that passes, where ``old`` is its present entry."""
        return self.run.baseline.updates or (self.run.baseline is BaselineMode.ADD and old is None)

    def unmeasured_times(self, profile: Profile) -> Iterator[Verdict]:
        """Yield a verdict where times were to be compared and cannot be; `compare` says how they compare."""
        if self.of_times and (reason := self._why_no_times(profile)):
            share = self.options.tolerance.allowed.get("time")
            yield unmeasured(reason).on("tolerance", f'{{"time": {share}}}')

    def _why_no_times(self, profile: Profile) -> Reason | None:
        metadata = profile.trace.metadata
        if metadata is not None and metadata.timing is not None:
            if setting := profile.trace.environment.launches_wait:
                return TimesMeanNothing(setting)
            if metadata.timing.why_not is None and baseline.times_of(profile) is None:
                return NoSamplesHere()
            return from_stored(metadata.timing.why_not)
        if self.run.replay is None and not self.takes_times:
            return WorkersShareDevice(self.run.workers)
        if profile.trace.adoption is not None:
            return AdoptedWithoutTimes()
        return RecordedWithoutTimes()

    def not_comparable(
        self, label: str | None, profile: Profile, reason: Reason, *, stands_in: bool
    ) -> Iterator[Verdict]:
        """Yield a verdict where ``reason`` prevents the comparison with a baseline, or the writing of one.

        ``stands_in``: the CPU was measured because there is no GPU, and needs no baseline.
        """
        if not self.wanted:
            return
        file, key = self.file_and_key(label, profile)
        history, at = self.run.history_baseline, (profile.trace.environment, self.nodeid, label)
        required = self.requires_baseline or (history is not None and history.why_not(*at) is not None)
        if (required and not stands_in) or key in self.files.entries(file):
            yield self._not_measured(reason)

    @property
    def requires_baseline(self) -> bool:
        """Whether every measurement must have a baseline, or get one."""
        return self.wanted and (self.run.baseline.writes or self.run.baseline is BaselineMode.STRICT)

    def of_other_root(self, judgement: BaselineJudgement | None) -> Iterator[Verdict]:
        """Yield a verdict where there is no baseline but one that a run with another root directory has kept."""
        if judgement is None or judgement.old is not None or self.run.baseline.updates or self.run.against:
            return
        if self.run.history_baseline is not None:
            return
        for file in baseline.files_of_other_roots(self.path, self.run.rootdir, judgement.file, self.run.baseline_dir):
            if judgement.key in self.files.entries(file):
                here, there = self.run.shown(judgement.file), self.run.shown(file)
                yield self._not_measured(BaselineElsewhere(here, there, str(self.run.rootdir)))
                return

    def unmeasured_there(self, judgement: BaselineJudgement | None) -> Iterator[Verdict]:
        """Yield a verdict where the other commit has the test but did not measure what was to be compared."""
        side = self.run.against
        if judgement is None or judgement.old is not None or side is None or side.is_base:
            return
        from pytest_torchprof.against.outcomes import base_outcomes  # noqa: PLC0415 - for these runs alone

        files = baseline.files_of(self.path, self.run.rootdir, self.run.baseline_dir).values()
        if any(judgement.key in self.files.entries(file) for file in files):
            gap: CommitGap | None = OnOtherDevice()
        else:
            gap = base_outcomes(side.results).why_not(self.nodeid, own_tests=side.own_tests)
        if gap is not None:
            own = side.own_tests or self.nodeid in base_outcomes(side.results).codes
            why = BaseUnmeasured(side.reference.shown, gap, of_working_tree=not own)
            yield unmeasured(why).on("against", side.reference.ref)

    def unmeasured_in_history(self, judgement: BaselineJudgement | None) -> Iterator[Verdict]:
        """Yield a verdict where a history has nothing to compare with, though the test may be no new one."""
        if judgement is not None and judgement.why_none is not None:
            yield self._not_measured(judgement.why_none)

    def lost_numbers(self, judgement: BaselineJudgement | None, profile: Profile) -> Iterator[Verdict]:
        """Yield a verdict on numbers that were to be compared and that this measurement, or the baseline, lacks."""
        if judgement is None:
            return
        old, new = judgement.old, judgement.new
        held = old.numbers if old and not self.run.baseline.updates else {}
        known = [name for name in sorted(compare.GATED) if held.get(name) is not None]
        lost = [name for name in known if new().numbers.get(name) is None]
        tolerance = (self.options.marker or {}).get("tolerance")
        if isinstance(tolerance, Mapping) and "memory" in tolerance and "peak_memory_bytes" not in new().varying:
            lost.append("peak memory")
        if lost:
            yield self._not_measured(NumberLost(tuple(lost)))
        comparison = judgement.comparison
        if not self.run.baseline.updates and comparison.unknown and not comparison.fails():
            yield self._not_measured(SameKernelsUnknown(tuple(map(change_words, comparison.unknown)), self._of_file))
        if (judgement.is_due or not comparison.fails()) and (blank := self._untyped_kernels(judgement, profile)):
            yield self._not_measured(TypesUnknown(tuple(blank)))
        if judgement.lacking and not self.run.baseline.updates:
            yield self._not_measured(EntryIncomplete(judgement.lacking, self._entry_name(judgement), self._of_file))

    @property
    def _of_file(self) -> bool:
        return self.run.history_branch is None

    def _entry_name(self, judgement: BaselineJudgement) -> str:
        branch = self.run.history_branch
        return self.run.shown(judgement.file) if branch is None else branch.shown

    def _untyped_kernels(self, judgement: BaselineJudgement, profile: Profile) -> list[str]:
        """Return the kernels of which no entry would notice another type, where one is compared with or written.

        Beside kernels whose types are known they pass, except under strict: another type shows in what makes or reads
        the tensors.
        """
        old = judgement.old
        if old is None and not judgement.is_due:
            return []
        hidden = dict.fromkeys(kernel.short for step in profile.steps for kernel in step.kernels if hides_types(kernel))
        if not hidden:
            return []
        entries = (judgement.new(),) if old is None else (judgement.new(), old)
        shown = self.run.baseline is not BaselineMode.STRICT and any(map(compare.has_types, entries))
        return [] if shown else [*hidden]

    def _lacking(self, old: Entry, new: Entry) -> list[str]:
        strict = self.run.baseline is BaselineMode.STRICT
        numbers = compare.lacking(old, new, self.options.tolerance.allowed, strict=strict)
        untold = [kernel for kernel in compare.lacking_kernels(old, new) if kernel.dtype is None]
        if strict and untold:
            return [*numbers, f"the types of {first_of([kernel.short for kernel in untold])}"]
        return numbers

    def _not_measured(self, reason: Reason) -> Verdict:
        branch = self.run.history_branch
        return unmeasured(reason).on("baseline", str(self.run.baseline) if branch is None else branch.shown)

    def failure_of(self, judgement: BaselineJudgement, blame: Blame) -> BaselineFailure | None:
        """Return how a comparison fails the test; None where it does not."""
        if not self.is_failed_by(judgement):
            return None
        side = self.run.against
        return BaselineFailure(
            comparison=blame.comparison,
            nodeid=self.nodeid,
            file=self.run.shown(judgement.file),
            commit=None if side is None else side.reference.shown,
            branch=None if (branch := self.run.history_branch) is None else branch.shown,
            run_of_branch=None if judgement.run is None else judgement.run.shown,
            gone=tuple(gone.test for gone in judgement.formers),
            unlocated=tuple(map(portable, blame.unknown)),
            blamed=blame.sure,
        )

    def is_failed_by(self, judgement: BaselineJudgement) -> bool:
        """Return whether a comparison fails the test, as far as the mode of the run lets it."""
        strict = self.run.baseline is BaselineMode.STRICT and judgement.why_none is None
        return not self.run.baseline.updates and judgement.comparison.fails(strict=strict)
