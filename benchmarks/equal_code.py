"""How often equal code is told to differ: a mixed suite against its own commit, measured on both sides in every run.

Each run starts two fresh processes, so whatever differs from process to process (hash seeds, order of compilation, cold
caches of compilers) has its chance. Without a GPU the CPU is the device.

    python benchmarks/equal_code.py [--runs 100]

What it found is in docs/against.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

CODE = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 64), nn.Linear(64, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

def pointwise(x):
    return torch.sin(x).mul(2).add(1).relu()

def reduced(x):
    return x.softmax(-1).sum(0)

def indexed(x):
    return x[torch.randperm(len(x), device=x.device)].cumsum(0).sort(dim=0).values

def by_name(x):
    return [x * number for number in {"a": 1, "b": 2, "c": 3}.values()]

def joined(x):
    return torch.cat([x, x.t().contiguous()]).to(torch.float64).to(torch.bfloat16)
"""
TESTS = """
import pytest, torch
from torch import nn
import blocks

pytestmark = pytest.mark.torchprof
torch.manual_seed(0)

@pytest.fixture
def x(torchprof):
    return torch.randn(32, 32, device=torchprof.device)

@pytest.mark.parametrize("name", ["pointwise", "reduced", "indexed", "by_name", "joined"])
def test_eager(name, x, torchprof):
    torchprof(getattr(blocks, name), x)

def test_compiled(x, torchprof):
    torchprof(torch.compile(blocks.reduced), x)

def test_layer(x, torchprof):
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).to(x.device)
    torchprof(layer, x[None])

def test_training(x, torchprof):
    model = nn.Sequential(blocks.Block(), nn.Dropout(), blocks.Block()).to(x.device)
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    torchprof(step)

def test_compiled_block(x, torchprof):
    torchprof(torch.compile(blocks.Block().to(x.device), backend="aot_eager"), x)

def test_parts(x, torchprof):
    model = blocks.Block().to(x.device)
    with torchprof.measure("forward") as m:
        for _ in m.steps():
            y = model(x)
    with torchprof.measure("sizes") as m:
        sizes = iter([8, 16] * 50)
        compiled = torch.compile(blocks.pointwise, backend="aot_eager")
        for _ in m.steps():
            compiled(x[: next(sizes)])
"""


def main() -> None:
    """Run the suite against itself so many times, and print what was told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100)
    runs = parser.parse_args().runs
    verdicts: Counter[str] = Counter()
    differing, began = 0, time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_repository(folder)
        for number in range(runs):
            told = one_run(folder)
            differing += any(verdict != "same" for verdict in told.values())
            verdicts.update(told.values())
            others = {test: verdict for test, verdict in told.items() if verdict != "same"}
            sys.stdout.write(f"{number + 1}/{runs}: {len(told)} measurements, {others or 'all the same'}\n")
            sys.stdout.flush()
    took = time.monotonic() - began
    sys.stdout.write(f"{differing} of {runs} runs differ; verdicts: {dict(verdicts)}; {took / runs:.0f} s per run\n")


def make_repository(folder: Path) -> None:
    """Make a repository of git whose only commit is the code and its tests."""
    (folder / "blocks.py").write_text(CODE, encoding="utf-8")
    (folder / "test_blocks.py").write_text(TESTS, encoding="utf-8")
    (folder / ".gitignore").write_text("__pycache__\n.pytest_cache\nrun.json\n", encoding="utf-8")
    someone = ("-c", "user.name=someone", "-c", "user.email=someone@example.com")
    for words in (("init", "--quiet"), ("add", "--all"), (*someone, "commit", "--quiet", "--message", "a state")):
        subprocess.run(["git", *words], cwd=folder, check=True)


def one_run(folder: Path) -> dict[str, str]:
    """Return the verdict on each measurement of a run; its outcome where it was not compared."""
    report = folder / "run.json"
    report.unlink(missing_ok=True)
    words = ["--torchprof-against=HEAD", "--torchprof-against-fresh", f"--torchprof-report={report}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *(() if has_gpu() else ("--torchprof-device=cpu",))],
        cwd=folder,
        env={**os.environ, "CI": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    if not report.is_file():
        sys.exit(done.stdout + done.stderr)
    results = json.loads(report.read_text(encoding="utf-8"))["results"]
    return {f"{one['nodeid']} {one['label'] or ''}".strip(): one["baseline"] or one["outcome"] for one in results}


def has_gpu() -> bool:
    """Whether torch sees one; asked in a process of its own, so that this one holds none."""
    asked = [sys.executable, "-c", "import torch; print(torch.cuda.is_available())"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip() == "True"


if __name__ == "__main__":
    main()
