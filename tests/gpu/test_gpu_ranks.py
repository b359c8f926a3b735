"""Several ranks of one job on one GPU."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pytest_torchprof.capture.devices.cuda import gpu_uuid
from pytest_torchprof.capture.processes import only_measurement

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
]

ROOT = Path(__file__).parents[2]
TOGETHER = """
import os, pytest, torch
from torch import distributed

@pytest.fixture(scope="session", autouse=True)
def job():
    distributed.init_process_group("gloo")
    yield
    distributed.destroy_process_group()

@pytest.mark.torchprof(device="cuda:0", max_kernels=1, tolerance={"time": 50.0}, warmup=1, steps=2)
def test_it():
    distributed.all_reduce(torch.ones(1))
    x = torch.empty(8, device="cuda:0")
    x.add_(1)
    if os.environ["RANK"] == "1":
        x.add_(1)
"""
TRY = """
import sys
from pytest_torchprof.capture.processes import holding
from pytest_torchprof.errors import NotMeasured
try:
    with holding(sys.argv[1], wait_s=0):
        print("free")
except NotMeasured:
    print("held")
"""


def test_ranks_on_one_gpu_measure_together_and_do_not_wait_for_each_others_lock(pytester):
    pytester.makepyfile(test_it=TOGETHER)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--torchprof-save=kept"],
            cwd=pytester.path,
            env={**os.environ, **job, "RANK": str(rank), "PYTHONPATH": str(ROOT), "TMPDIR": str(pytester.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        first, second = (process.communicate(timeout=300)[0] for process in started)
    finally:
        for process in started:
            process.kill()
    assert "1 passed" in first, first
    assert "limit missed: max_kernels" in second, second
    names = [path.name.partition(".rank")[2] for path in (pytester.path / "kept").iterdir()]
    assert sorted(names) == ["0of2.json.gz", "1of2.json.gz"]


@pytest.mark.parametrize(("rank", "said"), [("0", "held"), ("1", "free")])
def test_the_first_rank_holds_the_lock_for_all(rank, said, monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with only_measurement("cuda:0"):
        other = subprocess.run(
            [sys.executable, "-c", TRY, gpu_uuid("cuda:0")], cwd=ROOT, capture_output=True, text=True, check=True
        )
    assert other.stdout.strip() == said
