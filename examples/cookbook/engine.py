"""A serving engine in miniature: its worker is another process, and records itself where it is told to."""

import multiprocessing
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, record_function

LAYERS = 2


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = functional.layer_norm(x, [self.width])
        y: torch.Tensor = x + self.down(functional.silu(self.up(normed)))
        return y


def work(tokens: int, trace: str) -> None:
    model = nn.Sequential(*(Layer(32) for _ in range(LAYERS)))
    x = torch.ones(1, 32)
    model(x)
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(tokens):
            with record_function("model_runner: forward"):
                x = model(x)
    profiler.export_chrome_trace(trace)


def generate(tokens: int, profile_to: Path) -> None:
    """Let a worker process run the model for each token."""
    worker = multiprocessing.get_context("spawn").Process(
        target=work, args=(tokens, str(profile_to / "worker.json.gz"))
    )
    worker.start()
    worker.join()


if __name__ == "__main__":
    import sys

    generate(int(sys.argv[1]), Path(sys.argv[2]))
