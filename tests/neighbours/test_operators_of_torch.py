"""torch's own tests of all its operators, under the profiler: none may keep its time for itself and be no kernel.

They need ``expecttest``, as all of torch.testing's private modules do, and take some minutes.
"""

from __future__ import annotations

import importlib.util

import operator_shares
import pytest
import torch

# Of operators that are new, or old, and of samples that are meant to be odd.
pytestmark = pytest.mark.filterwarnings("ignore")

_PARTS = 16


@pytest.fixture(autouse=True)
def _one_thread():
    """Threads that wait for each other on a busy machine would be an operator's own time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.skipif(importlib.util.find_spec("expecttest") is None, reason="expecttest is not installed")
@pytest.mark.parametrize("part", range(_PARTS))
def test_what_works_for_itself_is_a_kernel(part):
    cases = [case for place, case in enumerate(operator_shares.cases().items()) if place % _PARTS == part]
    few = operator_shares.FEW
    found = {name: operator_shares.worst([operator_shares.kept_by(make(), name, few)]) for name, make in cases}
    # Where the machine was busy in all runs of a case, it is not in all of many more.
    again = [operator_shares.kept_by(make(), name) for name, make in cases if found[name]]
    assert operator_shares.worst(again) == {}, "add them to ALONE: python tests/operator_table.py --measure"


def test_an_operator_that_is_counted_by_its_helpers_is_found(monkeypatch):
    """Were the table not to know it, a transposed convolution in fp64 would be its fill and its sum."""
    from pytest_torchprof.devices import cpu
    from pytest_torchprof.devices.kinds import OperatorWork

    calls = operator_shares.cases()["conv_transpose2d torch.float64"]
    assert operator_shares.worst([operator_shares.kept_by(calls(), "it")]) == {}
    monkeypatch.setitem(cpu._ATEN, "convolution_backward", OperatorWork.COMPUTES)
    cpu.operator_work.cache_clear()
    try:
        found = operator_shares.worst([operator_shares.kept_by(calls(), "it")])
    finally:
        cpu.operator_work.cache_clear()
    assert set(found) == {"aten::convolution_backward"}
