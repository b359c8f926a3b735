"""A missed limit is explained by the findings that bear on it, and by no others."""

from __future__ import annotations

from pytest_torchprof.findings import RULES
from pytest_torchprof.findings.finding import Finding
from pytest_torchprof.limits import LIMITS
from pytest_torchprof.limits.bearing import BEARING, MOST, bearing_on


def finding(code, **evidence):
    return Finding(code=code, title="", message=f"what {code} says", evidence=evidence)


def test_only_what_bears_on_the_limit_is_told():
    given = [finding("fp32-gemm"), finding("implicit-sync", source="train.py:12"), finding("hotspot")]
    assert bearing_on("max_syncs", given) == ("implicit-sync: what implicit-sync says (train.py:12)",)
    assert bearing_on("max_gpu_time", given) == ("fp32-gemm: what fp32-gemm says", "hotspot: what hotspot says")
    assert bearing_on("forbid", given) == ()


def test_a_screen_holds_what_is_told():
    assert len(bearing_on("max_kernels", [finding(code) for code in BEARING["max_kernels"]])) == MOST


def test_limits_and_codes_are_real_ones():
    assert set(BEARING) <= {limit.name for limit in LIMITS}
    assert {code for codes in BEARING.values() for code in codes} <= {rule.code for rule in RULES}
