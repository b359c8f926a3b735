"""On which machine each measurement was made, whatever else its run has measured.

A host may have GPUs of two models, and a test on its CPU has none: times are those of the hardware that took them.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pytest_torchprof.history.record import MachineRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.history.reading import HistoryRun
    from pytest_torchprof.trace.metadata import Environment


def machine_of(environments: Sequence[Environment]) -> MachineRecord:
    """Return the machine of these environments; of several models the first by name, whichever test ran first."""
    gpu, cpu, driver = (
        min((value for environment in environments if (value := getattr(environment, name)) is not None), default=None)
        for name in ("gpu", "cpu", "driver")
    )
    digest = hashlib.sha256("\n".join((gpu or "", cpu or "", driver or "")).encode()).hexdigest()[:16]
    return MachineRecord(digest=digest, gpu=gpu, cpu=cpu, driver=driver)


class Machines(dict["int | None", "list[str]"]):
    """The machines of runs, in their order, by which of a run's environments a measurement had."""

    def __init__(self, runs: Sequence[HistoryRun]) -> None:
        """Take runs, of which nothing is asked yet."""
        super().__init__()
        self._runs = runs
        self._of_kinds: dict[tuple[Environment, ...], tuple[str, ...] | None] = {}

    def __missing__(self, environment: int | None) -> list[str]:
        own = self[environment] = [self._machine(run, environment) for run in self._runs]
        return own

    def all_of(self, run: HistoryRun) -> Iterable[str]:
        """Return all machines that a run measured on: several where its measurements were on several GPUs or CPUs."""
        return self._several(run.environments) or (run.machine.digest,)

    def _machine(self, run: HistoryRun, environment: int | None) -> str:
        several = self._several(run.environments)
        if several is None or environment is None or environment >= len(several):
            return run.machine.digest
        return several[environment]

    def _several(self, environments: tuple[Environment, ...]) -> tuple[str, ...] | None:
        """Return the machine of each environment; None where all have the same hardware, which is the run's."""
        if environments not in self._of_kinds:
            kinds = {(environment.gpu, environment.cpu, environment.driver) for environment in environments}
            own = tuple(machine_of((environment,)).digest for environment in environments)
            self._of_kinds[environments] = own if len(kinds) > 1 else None
        return self._of_kinds[environments]
