"""What a serving engine's worker runs for each token, in a process of its own (vLLM and TensorRT-LLM in miniature)."""

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_torchprof import Torchprof

ENGINE = Path(__file__).with_name("engine.py")
LAYERS = 2


def generate(folder: Path) -> None:
    subprocess.run([sys.executable, ENGINE, "4", folder], check=True)  # noqa: S603


@pytest.mark.torchprof(device="cpu")
def test_each_token_takes_a_norm_and_two_products_a_layer(torchprof: Torchprof) -> None:
    profile = torchprof.adopt(
        generate,
        "decode",
        step="model_runner: forward",
        ops={"aten::native_layer_norm": LAYERS, "aten::addmm": 2 * LAYERS},
        max_kernels=5 * LAYERS,
    )
    assert len(profile.steps) == 4
