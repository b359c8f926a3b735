"""The knowledge that each process of a run has of the branch that its tests are compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, json

from pytest_torchprof import baseline
from pytest_torchprof.history.branch_baseline import RunOfBranch  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons import decoding  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.reasons.branch import OtherDevices, RecordDamaged

if TYPE_CHECKING:
    from pytest_torchprof.history.branch_baseline import Key
    from pytest_torchprof.trace.metadata import Environment


class KnownBranch(Struct, frozen=True, kw_only=True):
    """The entries that the tests of a run are compared with, in files, and why some have none."""

    branch: str
    history: str
    """The history's name in messages."""
    folder: str
    """The folder of the entries, as ``--torchprof-baseline-dir`` has them."""
    reason: decoding.AnyReason | None = None
    """Why there is nothing to be compared with, for any test."""
    devices: dict[str, str] = {}
    """The GPUs, or CPUs, on which the branch was measured, by their names in files."""
    runs: dict[str, RunOfBranch] = {}
    """By device, test and label, the run whose entry it is."""
    reasons: dict[str, decoding.AnyReason] = {}
    """In the same way, why there is no entry; without device: on none."""
    damaged: decoding.AnyReason | None = None
    """The fault of a record of the branch in which tests are looked for; None if all can be believed."""
    refused: tuple[decoding.AnyReason, ...] = ()
    """The faults of records that were left out, for the end of the run."""

    def run_of(self, environment: Environment, test: str, label: str | None) -> RunOfBranch | None:
        """Return the run that a measurement is compared with; None if there is none."""
        return self.runs.get(key_in_file((baseline.device_slug(environment), test, label)))

    def why_not(self, environment: Environment, test: str, label: str | None) -> decoding.AnyReason | None:
        """Return why a measurement has nothing to be compared with; None if it has, or if its test is a new one."""
        device = baseline.device_slug(environment)
        key = key_in_file((device, test, label))
        if self.reason is not None or key in self.runs:
            return self.reason
        if (reason := self.reasons.get(key) or self.reasons.get(key_in_file((None, test, label)))) is not None:
            return reason
        if self.damaged is not None:
            return RecordDamaged(self.branch, self.damaged)
        if device in self.devices:
            return None
        named = tuple(dict.fromkeys(sorted(self.devices.values())))
        return OtherDevices(self.history, self.branch, named, environment.gpu or environment.cpu or device)


def key_in_file(key: Key) -> str:
    """Return the key of a measurement in the mappings of a ``KnownBranch``."""
    return json.encode(key).decode()
