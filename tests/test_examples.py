"""The examples run, live and from their recordings."""

from __future__ import annotations

import json
import os
import shutil
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import fresh
import pytest

if TYPE_CHECKING:
    import subprocess

ROOT = Path(__file__).parents[1]
RECORDINGS = ROOT / "tests" / "recordings"
NOT_RECORDED = ("--ignore=examples/cookbook", "--ignore=examples/test_ranks.py", "--ignore=examples/test_ranks_gpu.py")


def run_examples(tmp_path: Path, *args: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """Run a copy of the examples as a user does, and return what came out and the outcome of each measurement."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", dirs_exist_ok=True)
    shutil.copytree(RECORDINGS, tmp_path / "tests" / "recordings", dirs_exist_ok=True)
    words = ["-m", "pytest", "examples", "--torchprof-report=report.json"]
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    options = [word for filters in ours["filterwarnings"] for word in ("-W", filters)]
    done = fresh.run_python(*words, *options, *args, folder=tmp_path, environment=os.environ)
    report = json.loads((tmp_path / "report.json").read_text())
    return done, {f"{entry['nodeid']} {entry['label']}": entry["outcome"] for entry in report["results"]}


def test_the_examples_pass_and_measure(tmp_path):
    done, outcomes = run_examples(tmp_path)
    assert done.returncode == 0, done.stdout
    assert set(outcomes.values()) == {"passed"}
    assert len(outcomes) >= 18
    if shutil.which("g++"):  # Without a compiler those of the cookbook are skipped.
        measured = {test.partition("::")[0] for test in outcomes}
        cookbook = (ROOT / "examples" / "cookbook").glob("test_*.py")
        assert {f"examples/cookbook/{path.name}" for path in cookbook} <= measured


@pytest.mark.any_torch
def test_the_recordings_of_the_examples_are_judged_without_running_them(tmp_path):
    done, outcomes = run_examples(tmp_path, f"--torchprof-replay={RECORDINGS}", *NOT_RECORDED)
    assert done.returncode == 0, done.stdout
    assert set(outcomes.values()) == {"passed"}
    assert len(outcomes) >= 18


WRONG = [
    ("test_geglu_mlp.py::test_eager_is_exactly_five_kernels", 'kernels={"re:.": 5}', 'kernels={"re:.": 4}'),
    ("test_geglu_mlp.py::test_compiled_the_two_pointwise_kernels_are_one", '["gelu", "mul"]', '["gelu", "sin"]'),
    ("test_batched_matmul.py::test_a_batch_of_products_is_one_kernel", '"aten::bmm": 1', '"aten::bmm": 2'),
    ("test_linear.py::test_eager_is_one_gemm", 'ops="aten::addmm"', 'ops="aten::mm"'),
    ("test_matmul_add.py::test_eager_is_two_kernels[64]", "max_kernels=2", "max_kernels=1"),
    ("test_multiply_add.py::test_eager_is_two_kernels", "max_kernels=2, min_kernels=2", "min_kernels=3"),
    ("test_transformer_step.py::test_before_attention_is_written_out", '"aten::softmax": 2', '"aten::softmax": 1'),
]


@pytest.mark.any_torch
def test_examples_whose_expectation_is_wrong_fail(tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for test, right, wrong in WRONG:
        path = tmp_path / "examples" / test.partition("::")[0]
        assert right in path.read_text()
        path.write_text(path.read_text().replace(right, wrong))
    words = ("-m", "pytest", "examples", *NOT_RECORDED, f"--torchprof-replay={RECORDINGS}", "--torchprof-report=r.json")
    fresh.run_python(*words, folder=tmp_path, environment=os.environ)
    report = json.loads((tmp_path / "r.json").read_text())
    failed = {entry["nodeid"] for entry in report["results"] if entry["outcome"] == "failed"}
    assert {f"examples/{test}" for test, _, _ in WRONG} <= failed
