"""Marks of lines beside torch.compile: what our own code does in Python while compiled code runs is not compiled.

The table holds what people write: modules, whole or with breaks allowed, in each mode. On a GPU it makes CUDA graphs.
"""

from __future__ import annotations

import itertools
import json

import fresh
import pytest
import torch
from conftest import PREAMBLE

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MODULES = {
    "own": "BlockN()",
    "sequential": "nn.Sequential(BlockN(), nn.ReLU())",
    "function": "calling(BlockN())",
}
GRAPHS = {"fullgraph": "fullgraph=True", "breaks allowed": "fullgraph=False"}
MODES = {"eager": "backend='eager'", "inductor": "mode='default'", "reduce-overhead": "mode='reduce-overhead'"}
TABLE = [
    (module, graphs, mode)
    for module, graphs, mode in itertools.product(MODULES, GRAPHS, MODES)
    # Without CUDA graphs it is what Inductor makes by default: one of the modules shows it.
    if DEVICE == "cuda" or mode != "reduce-overhead" or module == "own"
]

SHARED = f"""
from torch import nn

x = torch.ones(8, 8, device={DEVICE!r})
torchprof = pytest.mark.torchprof
CALL = dict(device={DEVICE!r}, max_graph_breaks=0)

def calling(block):
    block.to({DEVICE!r})
    def function(a):
        return block(a) * 2
    return function

def made(model):
    return model.to({DEVICE!r}) if isinstance(model, nn.Module) else model
"""
# Each row has a class of its own: Dynamo keeps what it has compiled with the code of `forward`.
ROW = """
class BlockN(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
    def forward(self, a):
        return torch.sigmoid(self.linear(a)) + 1  # row N

modelN = torch.compile(made(MODULE), GRAPHS, MODE)

@torchprof(**CALL, max_kernels=0)
def test_missedN():
    with torch.no_grad():
        modelN(x)

@torchprof(**CALL, record="stacks")
def test_stacksN():
    with torch.no_grad():
        modelN(x)
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Run the whole table in one process; return the outcome and the failure of each of its tests."""
    rows = [
        ROW.replace("MODULE", MODULES[module]).replace("GRAPHS", GRAPHS[graphs]).replace("MODE", MODES[mode])
        for module, graphs, mode in TABLE
    ]
    folder = tmp_path_factory.mktemp("table")
    test, report = folder / "test_it.py", folder / "results.json"
    test.write_text(PREAMBLE + SHARED + "".join(row.replace("N", str(at)) for at, row in enumerate(rows)))
    fresh.run_pytest("-p", "no:cacheprovider", str(test), f"--torchprof-report={report}", f"--rootdir={folder}")
    results = json.loads(report.read_text())["results"]
    return {result["nodeid"].rpartition("::")[2]: result for result in results}


@pytest.mark.parametrize("row", TABLE, ids="-".join)
def test_a_missed_limit_names_its_line(outcomes, row):
    missed = outcomes[f"test_missed{TABLE.index(row)}"]
    assert missed["outcome"] == "failed"
    assert "test_it.py:" in missed["message"]
    assert "not known" not in missed["message"]
    assert [limit["name"] for limit in missed["limits"] if limit["status"] != "holds"] == ["max_kernels"]


@pytest.mark.parametrize("row", TABLE, ids="-".join)
def test_stacks_neither_crash_the_code_nor_break_its_graph(outcomes, row):
    assert outcomes[f"test_stacks{TABLE.index(row)}"]["outcome"] == "passed"


def test_a_debugger_beside_it_is_not_compiled_either(run_tests):
    source = """
import sys
from torch import nn

class Debugged(nn.Module):
    def forward(self, a):
        return torch.sigmoid(a) + 1

model = torch.compile(Debugged(), fullgraph=True, backend="eager")
lines = []

def tracer(frame, event, argument):
    if event == "line" and frame.f_code.co_name == "forward":
        lines.append(bytes(str(frame.f_lineno), "ascii").rstrip(b"x"))
    return tracer

@cpu
def test_it(torchprof):
    model(x)
    sys.settrace(tracer)
    with pytest.raises(pytest_torchprof.LimitsMissed, match="test_it.py:.* in forward, OptimizedModule_0.Debugged_0"):
        torchprof(model, x).expect(max_kernels=0)
    sys.settrace(None)
"""
    run_tests(source).assert_outcomes(passed=1)
