"""No graph break in the project's own code, whatever the packages do that it calls (TabPFN in miniature)."""

import pytest
import torch
from tabular import predict

from pytest_torchprof import Torchprof


@pytest.mark.torchprof(own="tabular", max_graph_breaks=0, device="cpu")
def test_our_code_breaks_no_graph(torchprof: Torchprof) -> None:
    torchprof(torch.compile(predict, backend="eager"), torch.randn(8, 4), torch.randn(4, 2))
