"""A training script: ``python trainer.py FOLDER`` trains and leaves a recording of three steps in the folder."""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule


def train(folder: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    x, y = torch.randn(16, 32), torch.randn(16, 1)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=3, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(folder / "rank0_trace.json")),
    ) as profiler:
        for _ in range(5):
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            with record_function("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            profiler.step()


if __name__ == "__main__":
    train(Path(sys.argv[1]))
