"""A comparison with another commit, of what runs on a GPU."""

from __future__ import annotations

import pytest
import torch
from repository import Repository

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
]

BEFORE = """
import torch

def copied(x):
    return torch.sin(x)

def waiting(x):
    return x * 2
"""
AFTER = """
import torch

def copied(x):
    return torch.sin(x.cpu().to(x.device))

def waiting(x):
    torch.cuda.synchronize()
    return x * 2
"""
CASES = """
import pytest, torch
import waves

@pytest.mark.torchprof
@pytest.mark.parametrize("name", ["copied", "waiting"])
def test_each(name, torchprof):
    torchprof(getattr(waves, name), torch.ones(64, device=torchprof.device))
"""


def test_copies_and_waits_that_came_are_told(tmp_path):
    made = Repository(tmp_path / "repository", {"waves.py": BEFORE, "test_waves.py": CASES})
    made.write({"waves.py": AFTER})
    run = made.against("main", "--torchprof-require-gpu")
    assert run.rows == {
        "test_each[copied]": ("worse (+2 copies, +2 syncs)", "failed"),
        "test_each[waiting]": ("worse (+1 sync)", "failed"),
    }
    assert "memcpys_d2h 0 -> 1" in run.out
    assert made.git("status", "--porcelain").split() == ["M", "waves.py"]
