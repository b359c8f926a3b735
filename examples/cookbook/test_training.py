"""A training script, started as its users start it, and what its optimizer runs (torchtitan in miniature)."""

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_torchprof import Torchprof

TRAINER = Path(__file__).with_name("trainer.py")


def train(folder: Path) -> None:
    subprocess.run([sys.executable, TRAINER, folder], check=True)  # noqa: S603


@pytest.mark.torchprof(device="cpu", kernels={"_fused_adamw_": 1}, max_kernels=5)
def test_the_optimizer_is_one_kernel_and_four_counters(torchprof: Torchprof) -> None:
    profile = torchprof.adopt(train, "optimizer", step="optimizer")
    assert len(profile.steps) == 3
