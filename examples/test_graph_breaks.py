"""What breaks a graph, how a failure names the line, and what a recompile is. None of this needs a GPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_torchprof import LimitsMissed, Torchprof

# backend="eager" shows every break without generating code, so these run in a moment and without a C++ compiler.
pytestmark = pytest.mark.torchprof(device="cpu")


def clean(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() + 1).cos()


def with_print(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    print("between two graphs")  # noqa: T201
    return y.cos()


def with_break_in_loop(x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        x = x.sin()
        torch._dynamo.graph_break()  # noqa: SLF001
    return x


@pytest.mark.torchprof(max_graph_breaks=0, max_recompiles=0)
def test_a_clean_function_is_one_graph(torchprof: Torchprof) -> None:
    torchprof(torch.compile(clean, backend="eager"), torch.ones(8))


@pytest.mark.parametrize("function", [with_print, with_break_in_loop])
def test_a_break_is_found_with_its_line(torchprof: Torchprof, function: Callable[..., Any]) -> None:
    profile = torchprof(torch.compile(function, backend="eager"), torch.ones(8))
    files = [str(found.file) for found in profile.compile.graph_breaks or ()]
    assert [Path(file).name for file in files] == ["test_graph_breaks.py"]
    with pytest.raises(LimitsMissed, match=r"test_graph_breaks\.py:"):
        profile.expect(max_graph_breaks=0)


def test_a_new_shape_compiles_anew(torchprof: Torchprof) -> None:
    # A function of its own: Dynamo counts the compiles of a function over the process and gives up on it after eight.
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2

    function = torch.compile(scaled, backend="eager", dynamic=False)
    sizes = iter(range(4, 100))
    profile = torchprof(lambda: function(torch.ones(next(sizes))))
    with pytest.raises(LimitsMissed, match="max_recompiles"):
        profile.expect(max_recompiles=0)
