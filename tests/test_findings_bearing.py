"""A missed limit is explained by the findings that bear on it, and by no others."""

from __future__ import annotations

import pytest

from pytest_torchprof.findings import RULES, OtherFinding, explaining
from pytest_torchprof.limits import LIMITS

pytestmark = pytest.mark.any_torch


def finding(code, source=None):
    return OtherFinding(code=code, title="", message=f"what {code} says", source=source)


def told(limit, given):
    return [one.in_one_line for one in explaining(limit, given)]


def test_only_what_bears_on_the_limit_is_told():
    given = [finding("fp32-gemm"), finding("implicit-sync", source="train.py:12"), finding("hotspot")]
    assert told("max_syncs", given) == ["implicit-sync: what implicit-sync says (train.py:12)"]
    assert told("max_gpu_time", given) == ["fp32-gemm: what fp32-gemm says", "hotspot: what hotspot says"]
    assert told("forbid", given) == []


def test_what_is_explained_are_limits():
    explained = {limit for rule in RULES for limit in rule.explains}
    assert explained <= {limit.name for limit in LIMITS}
    assert {"max_kernels", "max_gpu_time", "kernels", "max_graph_breaks"} <= explained
