"""A missed limit is explained by the findings that bear on it, and by no others."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from pytest_torchprof import load
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


CHAIN = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, MulFunctor> >()"
)


@pytest.fixture
def why(tmp_path):
    """Return a function that judges three products in a row and a kernel of its own, and returns what explains it.

    It returns the codes of the findings below each limit.
    """
    builder = TraceBuilder()
    builder.step(0, 0, 2000)
    for at in range(3):
        builder.launched(CHAIN, 100 + 300 * at, dur=50, op="aten::mul", inputs=[((64, 64), (64, 1), "float")])
    builder.launched("void quiet_kernel(float*)", 1900, dur=40, op="mine::quiet")
    profile = load(builder.write(tmp_path / "t.json"))

    def judge(**limits):
        with pytest.raises(AssertionError) as caught:
            profile.expect(**limits)
        below = {}
        for line in str(caught.value).splitlines():
            if line.startswith("  ") and "=" in line.split()[0]:
                below[line.split("=")[0].strip()] = codes = []
            elif line.strip().startswith("why: "):
                codes.append(line.split(": ")[1])
        return below

    return judge


@pytest.mark.parametrize("limit", ["forbid_ops", "forbid_kernels"])
def test_what_a_limit_by_name_did_not_see_does_not_explain_it(why, limit):
    others, concerned = {"forbid_ops": ("mine::quiet", "aten::mul"), "forbid_kernels": ("quiet", "elementwise")}[limit]
    assert why(**{limit: others}) == {limit: []}
    assert why(**{limit: concerned}) == {limit: ["unfused-pointwise"]}


def test_a_finding_stands_below_the_limit_that_it_explains_and_below_no_other(why):
    assert why(forbid_ops="mine::quiet", max_kernels=1) == {"forbid_ops": [], "max_kernels": ["unfused-pointwise"]}
    assert why(fused=["mul", "add"]) == {"fused": ["unfused-pointwise"]}
    assert why(fused=["softmax", "exp"]) == {"fused": []}
