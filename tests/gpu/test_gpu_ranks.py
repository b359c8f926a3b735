"""Several ranks of one job, on one GPU and on one each; workers with a GPU each."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import fresh
import pytest
import torch
from simulated import gpu_is_simulated

from pytest_torchprof.capture import gpu_lock
from pytest_torchprof.capture.devices.cuda import gpu_uuid
from pytest_torchprof.capture.processes import only_measurement
from pytest_torchprof.reasons.ranks_started import GroupNotStarted
from pytest_torchprof.reasons.refused_tests import TooFewGpus

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
APART = """
import os, pytest, torch
from torch import distributed

def test_worker(worker_id):
    assert torch.cuda.device_count() == 1
    print("sees", os.environ["CUDA_VISIBLE_DEVICES"])

@pytest.mark.torchprof(ranks=2, device="cuda", warmup=1, steps=2)
def test_ranks(torchprof):
    distributed.init_process_group("gloo")
    ranks = torchprof.ranks
    assert (torch.cuda.device_count(), ranks.device, torch.cuda.current_device()) == (2, torchprof.device, ranks.rank)
    x = torch.ones(8, device="cuda")
    torchprof(x.add_, 1).expect(max_kernels=1)
    print("rank", ranks.rank, "measured", ranks.device)

@pytest.mark.torchprof(ranks=3, device="cuda")
def test_of_too_many(): pass

test_other_worker = test_worker
"""
TRY = """
import sys
from pathlib import Path
from pytest_torchprof.capture import gpu_lock
from pytest_torchprof.reasons.errors import NotMeasured
gpu_lock._EVERYBODYS = Path("no folder for the locks of all")
try:
    with gpu_lock.holding(sys.argv[1], lambda _: None, wait_s=0):
        print("free")
except NotMeasured:
    print("held")
"""


@pytest.mark.skipif(not gpu_is_simulated(), reason="NCCL runs on a real GPU")
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_without_nccl_the_ranks_say_what_to_do(run_tests):
    result = run_tests("@pytest.mark.torchprof(ranks=2)\ndef test_it(torchprof):\n    torchprof.ranks\n")
    result.assert_outcomes(failed=1)
    said = " ".join(result.stdout.str().replace("\nE", "\n").split())
    before, _, behind = str(GroupNotStarted("cpu:gloo,cuda:nccl", "rank 0 of 2", "<error>")).partition("<error>")
    assert before in said
    assert behind in said


def test_ranks_on_one_gpu_measure_together_and_do_not_wait_for_each_others_lock(pytester):
    pytester.makepyfile(test_it=TOGETHER)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    environment = {**os.environ, **job, "PYTHONPATH": str(ROOT), "TMPDIR": str(pytester.path)}
    words = ("-m", "pytest", "-p", "no:cacheprovider", "--torchprof-save=kept")
    started = [
        fresh.start_python(*words, folder=pytester.path, environment={**environment, "RANK": str(rank)})
        for rank in range(2)
    ]
    first, second = (process.done().stdout for process in started)
    assert "limit missed: max_kernels" in first, first
    assert "rank 1: 2 kernels" in first, first
    assert "limit missed: max_kernels" in second, second
    names = [path.name.partition(".rank")[2] for path in (pytester.path / "kept").iterdir()]
    assert sorted(names) == ["0of2.json.gz", "0of2.stacks.json.gz", "1of2.json.gz", "1of2.stacks.json.gz"]


@pytest.mark.parametrize(("rank", "said"), [("0", "held"), ("1", "free")])
def test_the_first_rank_holds_the_lock_for_all(rank, said, monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    # Tests beside this one may hold the lock of all accounts.
    monkeypatch.setattr(gpu_lock, "_EVERYBODYS", tmp_path / "no folder for the locks of all")
    with only_measurement("cuda:0"):
        other = subprocess.run(
            [sys.executable, "-c", TRY, gpu_uuid("cuda:0")], cwd=ROOT, capture_output=True, text=True, check=True
        )
    assert other.stdout.strip() == said


def test_workers_see_a_gpu_each_and_the_ranks_of_a_job_share_them_out(pytester, monkeypatch):
    if gpu_is_simulated():
        monkeypatch.setenv("FAKEGPU_COUNT", "2")
    elif torch.cuda.device_count() != 2:
        pytest.skip("needs two GPUs")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(test_it=APART)
    # The first two tests are the first worker's, the others the second one's.
    words = ("-m", "pytest", "-p", "no:cacheprovider", "-n2", "--torchprof-gpus=each", "-rA")
    done = fresh.run_python(*words, folder=pytester.path, environment=os.environ)
    assert done.returncode == 0, done.stdout
    for said in ("sees 0", "sees 1", "rank 0 measured cuda:0", "rank 1 measured cuda:1"):
        assert said in done.stdout
    assert TooFewGpus(3, 2).text in done.stdout
