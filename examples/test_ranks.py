"""Two ranks on one machine: what a training step sends, and how often.

`pytest` itself starts both, with gloo on the CPU, so this runs anywhere.
"""

from typing import Any

import pytest
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from pytest_torchprof import MarkerKeywords, Torchprof

ON_TWO_RANKS: MarkerKeywords = {"ranks": 2, "device": "cpu", "warmup": 2, "steps": 2}
pytestmark = [
    pytest.mark.torchprof(**ON_TWO_RANKS),
    pytest.mark.skipif(not distributed.is_gloo_available(), reason="needs torch.distributed with gloo"),
]
WIDTH = 64


def make_model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(2)))


def train_step(model: Any, x: torch.Tensor) -> None:
    model(x).sum().backward()


def test_the_gradients_of_a_step_are_reduced_together(torchprof: Torchprof) -> None:
    ranks = torchprof.ranks  # It initializes the process group, too.
    model = DistributedDataParallel(make_model())
    profile = torchprof(train_step, model, torch.full((8, WIDTH), float(ranks.rank)))
    # One bucket holds the gradients of the whole model: four bytes for each.
    gradients = 4 * sum(parameter.numel() for parameter in model.parameters())
    profile.expect(collectives={"all_reduce": 1}, max_comm_bytes=gradients)


def test_a_sharded_model_gathers_each_layer_twice(torchprof: Torchprof) -> None:
    mesh = init_device_mesh(torchprof.device.type, (torchprof.ranks.world_size,))
    model = make_model()
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    profile = torchprof(train_step, model, torch.ones(8, WIDTH))
    # Forward and backward: what was gathered is given back between them.
    profile.expect(collectives={"all_gather": 2 * len(model), "reduce_scatter": len(model)})
