"""Another project's code: it breaks the graph, and this project cannot change that."""

import torch


def encode(x: torch.Tensor) -> torch.Tensor:
    mean = float(x.mean())
    return x - mean
