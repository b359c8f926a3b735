"""The header of a run: settings that are not the default, which a reader of the log must know beforehand."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_torchprof.devices import launches_wait
from pytest_torchprof.testing.declared import is_anything_given

if TYPE_CHECKING:
    import pytest


def header_lines(config: pytest.Config) -> list[str]:
    """Return the line, if there is any such setting."""
    notes = []
    if is_anything_given(config):
        from pytest_torchprof.testing.options import BaselineMode, run_options

        options = run_options(config)
        if not options.enabled:
            return ["torchprof: off (--torchprof=off): marked tests run plainly, nothing is measured or checked"]
        if options.replay is not None:
            notes.append(f"judging recordings in {options.replay}, the measured code is not run")
        notes += [options.suite.shown] if options.suite is not None else []
        notes += [f"keeping recordings in {options.save}"] if options.save is not None else []
        if options.against is not None:
            notes.append(f"against {options.against.reference.shown}")
        elif options.history_branch is not None:
            strict = "strict, " if options.baseline is BaselineMode.STRICT else ""
            notes.append(f"baseline: {strict}{options.history_branch.shown}")
        elif options.baseline.writes:
            where = " in CI (the CI variable is set)" if os.environ.get("CI") else ""
            notes.append(f"writing baselines{where} (--torchprof-baseline={options.baseline})")
        elif options.baseline is not BaselineMode.COMPARE:
            notes.append(f"--torchprof-baseline={options.baseline}")
    if setting := launches_wait():
        notes.append(f"{setting}: counts are judged; ratios, utilization and times are not measured")
    if os.environ.get("TEARDOWN_CUPTI") == "1":
        notes.append(
            "TEARDOWN_CUPTI=1: the GPU's tracing is set up anew for each recording; before CUDA 12.6 CUDA graphs may "
            "crash with it"
        )
    return [f"torchprof: {'; '.join(notes)}"] if notes else []
