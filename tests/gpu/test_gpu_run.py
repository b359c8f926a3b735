"""``torchprof run`` of a program that uses the GPU."""

from __future__ import annotations

import fresh
import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
]

PROGRAM = """
import torch
x = torch.ones(64, 64, device="cuda")
(x + 1).mul(2)
"""
COMMAND = "import sys; from pytest_torchprof.cli import main; sys.argv[1:1] = ['run']; sys.exit(main())"


@pytest.mark.parametrize(("limit", "status"), [("max_kernels=3", 0), ("max_kernels=2", 1), ("max_graph_breaks=0", 1)])
def test_all_that_a_program_launches_is_judged(tmp_path, limit, status):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = fresh.run_code(
        COMMAND, "--limit", limit, "--save", str(tmp_path / "kept.json.gz"), str(tmp_path / "program.py")
    )
    assert (done.returncode, done.stderr.count("itself ended")) == (status, 0), done.stdout + done.stderr
    assert (tmp_path / "kept.json.gz").is_file()


def test_a_thread_that_outlives_the_programs_last_line_belongs_to_it(tmp_path):
    late = "\nimport threading, time\nthreading.Thread(target=lambda: [time.sleep(0.5), x.mul(3)]).start()\n"
    (tmp_path / "program.py").write_text(PROGRAM + late)
    done = fresh.run_code(COMMAND, "--limit", "max_kernels=3", str(tmp_path / "program.py"))
    assert done.returncode == 1, done.stdout + done.stderr
