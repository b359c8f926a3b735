"""Another project's code: it breaks the graph, and nobody here can help that."""

import torch


def encode(x: torch.Tensor) -> torch.Tensor:
    mean = float(x.mean())
    return x - mean
