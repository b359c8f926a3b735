"""What a test's measurements are held against: the place of their baseline, and whether their times are judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_torchprof.baseline import Entry
    from pytest_torchprof.compare import Comparison
    from pytest_torchprof.profile import Profile
    from pytest_torchprof.testing.measure import TestRun
    from pytest_torchprof.testing.measured import Measured
    from pytest_torchprof.testing.settings import MeasureOptions, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing:
    """How the measurements of one test are compared."""

    settings: Settings
    options: MeasureOptions
    nodeid: str
    path: Path
    source: str
    """The text of the test function."""

    @property
    def wanted(self) -> bool:
        """Whether there is a comparison at all."""
        return self.settings.baseline != "off" and self.options.compared

    @property
    def of_times(self) -> bool:
        """Whether times are compared too."""
        return self.wanted and "time" in self.options.tolerance.allowed

    @property
    def times_are_to_be_had(self) -> bool:
        """Whether a live measurement can take times that mean something."""
        return self.of_times and self.settings.workers == 1

    def place(self, label: str | None, profile: Profile) -> tuple[Path, str]:
        """Return the file and the key of a measurement's baseline."""
        from pytest_torchprof import baseline  # noqa: PLC0415  (only runs that compare pay for it)

        slug = baseline.device_slug(environment_of(profile))
        file = baseline.place(self.path, self.settings.rootdir, slug, self.settings.baseline_dir)
        return file, baseline.key_of(self.nodeid, label)

    def only_elsewhere(self, label: str | None, profile: Profile) -> bool:
        """Whether this measurement has a baseline, and only those of other devices."""
        if not self.wanted:
            return False
        from pytest_torchprof import baseline  # noqa: PLC0415

        file, key = self.place(label, profile)
        files = baseline.files_of(self.path, self.settings.rootdir, self.settings.baseline_dir).values()
        known = {path for path in files if key in baseline.read_or_empty(path).entries}
        return bool(known) and file not in known

    def entries(self, label: str | None, profile: Profile) -> tuple[Entry | None, Entry]:
        """Return the baseline's entry, None where there is none, and what this measurement would leave as one."""
        from pytest_torchprof import baseline  # noqa: PLC0415

        file, key = self.place(label, profile)
        new = baseline.entry_of(profile, source_hash=baseline.source_hash(self.source))
        return baseline.read_or_empty(file).entries.get(key), new

    def unsure(self, label: str | None, profile: Profile) -> bool:
        """Whether times are to be taken once more: they look slower, or what will be compared with them is written."""
        from pytest_torchprof import compare  # noqa: PLC0415

        old, new = self.entries(label, profile)
        if self.settings.baseline == "update" or (self.settings.baseline == "add" and old is None):
            return True
        return old is not None and compare.unsure(old.time, new.time, self.options.tolerance.allowed["time"])

    def why_no_times(self, profile: Profile) -> str | None:
        """Return why times cannot be judged though they are asked for, None where they can."""
        metadata = profile.trace.metadata
        if metadata is not None and metadata.timing is not None:
            if setting := profile.trace.environment.launches_wait:
                return f"{setting} makes every launch wait, so that times mean nothing"
            return metadata.timing.why_not
        if self.settings.replay is None and not self.times_are_to_be_had:
            return (
                f"{self.settings.workers} workers of pytest-xdist share the device, and times taken beside other "
                "tests mean nothing: run the tests with a time tolerance by themselves, with -n 0"
            )
        return "the recording has no samples of times: record it again with this tolerance"


def compared(run: TestRun, measured: Measured, profile: Profile) -> tuple[Entry | None, Entry, Comparison] | None:
    """Return the baseline's entry, what would be one now, and how they compare; computed once.

    None where that is not asked for or cannot be told.
    """
    if not run.comparing.wanted or profile.why_not is not None or profile.kernels_unknown is not None:
        return None
    if measured.compared is None:
        from pytest_torchprof import compare  # noqa: PLC0415

        old, new = run.comparing.entries(measured.label, profile)
        allowed = run.options.tolerance.allowed
        measured.compared = old, new, compare.compare(old, new, names=run.options.names, tolerance=allowed)
    return measured.compared


def environment_of(profile: Profile) -> Mapping[str, Any]:
    """Return where a recording was made; empty where it does not tell."""
    return asdict(profile.trace.environment)
