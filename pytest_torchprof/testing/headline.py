"""The header lines of a run: only what is not the default."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_torchprof.devices.cuda import launches_wait
from pytest_torchprof.testing.settings import Settings

if TYPE_CHECKING:
    import pytest


def lines(config: pytest.Config) -> list[str]:
    """Return what a reader of the log must know before the results."""
    settings = Settings.from_pytest(config)
    if not settings.enabled:
        return ["torchprof: off (--torchprof=off): marked tests run plainly, nothing is measured or checked"]
    said = []
    if settings.replay is not None:
        said.append(f"judging recordings in {settings.replay}, the measured code is not run")
    if settings.save is not None:
        said.append(f"keeping recordings in {settings.save}")
    if settings.baseline in ("update", "add"):
        where = " in CI (the CI variable is set)" if os.environ.get("CI") else ""
        said.append(f"writing baselines{where} (--torchprof-baseline={settings.baseline})")
    elif settings.baseline != "compare":
        said.append(f"--torchprof-baseline={settings.baseline}")
    if setting := launches_wait():
        said.append(f"{setting}: counts are judged; ratios, utilization and times are not measured")
    if os.environ.get("TEARDOWN_CUPTI") == "1":
        said.append(
            "TEARDOWN_CUPTI=1: the GPU's tracing is set up anew for each recording; before CUDA 12.6 CUDA graphs may "
            "crash with it"
        )
    return [f"torchprof: {'; '.join(said)}"] if said else []
