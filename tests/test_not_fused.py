"""``not_fused``: operators that no kernel may carry together, and that have to be seen apart."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from facts import misses, says, verdicts_in, why_not

from pytest_torchprof import LimitsMissed, UnknownLimit, load
from pytest_torchprof.limits.seen import CarriedTogether
from pytest_torchprof.reasons.composed import InStep
from pytest_torchprof.reasons.operators_untold import CarriedUntold, NothingToFuse
from pytest_torchprof.reasons.step_title import StepTitle

SUM, AMAX = "triton_red_fused_sum_0", "triton_red_fused_amax_1"
BOTH = "triton_red_fused_amax_mul_sum_0"
GROUP = ["sum", "amax"]


@pytest.fixture
def recorded(tmp_path):
    """Return a profile of steps of kernels: names, or names with the operators that launch them."""

    def recorded(*steps):
        builder = TraceBuilder()
        for number, kernels in enumerate(steps):
            builder.step(number, number * 1000, 900)
            for place, kernel in enumerate(kernels):
                name, op = kernel if isinstance(kernel, tuple) else (kernel, kernel)
                builder.launched(name, number * 1000 + 10 + 30 * place, op=op)
        return load(builder.write(tmp_path / "t.json"))

    return recorded


def test_operators_in_kernels_of_their_own_hold(recorded):
    recorded([SUM, AMAX], [AMAX, "triton_poi_fused_add_2", SUM]).expect(not_fused=GROUP)
    recorded([SUM, AMAX]).expect(not_fused=["aten::sum", "aten::amax"])
    recorded(["graph_0_cpp_fused_sum_0", "graph_0_cpp_fused_amax_1"]).expect(not_fused=GROUP)


@pytest.mark.parametrize("kernels", [[BOTH], [SUM, AMAX, BOTH], ["graph_0_cpp_fused_amax_sum_0"]])
def test_a_kernel_that_carries_both_misses(recorded, kernels):
    verdict = misses(recorded(kernels), not_fused=GROUP)
    assert verdict.seen == (CarriedTogether(1, ("sum", "amax")),)
    assert all("amax_" in row.name for row in verdict.rows)
    assert len(verdict.rows) == 1


def test_one_step_is_enough(recorded):
    verdict = misses(recorded([SUM, AMAX], [SUM, AMAX, BOTH]), not_fused=GROUP)
    assert (verdict.in_step.step, verdict.in_step.steps) == (2, 2)


def test_of_three_no_two_may_be_together_and_each_list_stands_for_itself(recorded):
    profile = recorded([SUM, AMAX, "triton_poi_fused_add_mul_2", "triton_poi_fused_exp_3"])
    assert misses(profile, not_fused=["exp", "add", "mul"]).seen == (CarriedTogether(1, ("add", "mul")),)
    profile.expect(not_fused=[["sum", "amax"], ["exp", "mul"]])
    with pytest.raises(LimitsMissed):
        profile.expect(not_fused=[["sum", "amax"], ["add", "mul"]])


@pytest.mark.parametrize(
    ("kernels", "absent"),
    [
        ([SUM], ("amax",)),
        (["triton_poi_fused_add_0"], ("sum", "amax")),
        # Code that nobody compiled: each operator has its kernel, and nothing could have been fused.
        (
            [
                ("void at::native::reduce_kernel<sum>()", "aten::sum"),
                ("void at::native::reduce_kernel<max>()", "aten::amax"),
            ],
            ("sum", "amax"),
        ),
    ],
)
def test_what_is_not_carried_was_not_measured(recorded, kernels, absent):
    reason = why_not(lambda: recorded(kernels).expect(not_fused=GROUP))
    assert says(reason, NothingToFuse, absent=absent)


def test_a_part_of_another_operators_name_is_not_it(recorded):
    profile = recorded([SUM, "triton_poi_fused_adaptive_max_pool2d_0"])
    assert says(why_not(lambda: profile.expect(not_fused=["sum", "max"])), NothingToFuse, absent=("max",))


def test_what_is_carried_in_one_step_alone_was_not_measured_in_the_other(recorded):
    reason = why_not(lambda: recorded([SUM, AMAX], [SUM]).expect(not_fused=GROUP))
    assert says(reason, NothingToFuse, absent=("amax",))
    assert says(reason, InStep, step=StepTitle(step=2, steps=2))


def test_an_operator_that_inductor_leaves_to_aten_is_seen_beside_what_it_makes(recorded):
    product = ("ampere_sgemm_128x64_tn", "aten::mm")
    recorded([product, "triton_poi_fused_relu_0"]).expect(not_fused=["mm", "relu"])
    with pytest.raises(LimitsMissed):
        recorded(["triton_tem_fused_mm_relu_0"]).expect(not_fused=["mm", "relu"])


@pytest.mark.parametrize(
    "hidden", ["triton_", "triton_poi__0", "triton_poi_fused_0", "triton_poi_fused_add_mul_0a1b2c3d_4"]
)
def test_a_kernel_that_does_not_say_what_it_carries_may_carry_both(recorded, hidden):
    why = why_not(lambda: recorded([SUM, AMAX, (hidden, "aten::x")]).expect(not_fused=GROUP))
    assert says(why, CarriedUntold, kernels=1)


@pytest.mark.parametrize(
    "value", ["sum", ["sum"], ["sum", "aten::sum"], [], [["sum", "amax"], ["add"]], [["sum", 1]], 1, True, {"sum": 1}]
)
def test_what_cannot_be_meant_is_refused(recorded, value):
    with pytest.raises(UnknownLimit, match="not_fused="):
        recorded([SUM, AMAX]).expect(not_fused=value)


@pytest.mark.parametrize(
    ("fused", "apart"),
    [(GROUP, GROUP), (["amax", "sum", "mul"], GROUP), ([["add"], ["aten::sum", "amax"]], [["exp", "add"], GROUP])],
)
def test_what_is_to_be_fused_and_not_to_be_is_refused(recorded, fused, apart):
    with pytest.raises(UnknownLimit, match="contradiction"):
        recorded([BOTH]).expect(fused=fused, not_fused=apart)


def test_one_operator_of_two_may_be_fused_with_another(recorded):
    profile = recorded(["triton_red_fused_mul_sum_0", AMAX])
    profile.expect(fused=["mul", "sum"], not_fused=GROUP)


COMPILED = """
import torch._inductor.config

pytestmark = pytest.mark.torchprof(device="cpu", warmup=1, steps=2)

@pytest.fixture(autouse=True)
def named(monkeypatch):
    torch._dynamo.reset()

def two(a):
    return a.sum(1), (a * 2).amax(0)

def one(a):
    return a.exp() + 1

@pytest.mark.torchprof(not_fused=["exp", "add"])
def test_fused(torchprof):
    torchprof(torch.compile(one), x)

@pytest.mark.torchprof(not_fused=["exp", "add"])
def test_apart(torchprof):
    first, second = torch.compile(lambda a: a.exp()), torch.compile(lambda a: a + 1)
    torchprof(lambda: second(first(x)))

@pytest.mark.torchprof(not_fused=["exp", "add"])
def test_eager(torchprof):
    torchprof(one, x)
"""


def test_compiled_code_is_told_by_what_inductor_made(run_tests, pytester):
    pytest.importorskip("torch")
    result = run_tests(COMPILED, "--torchprof-report=r.json")
    result.assert_outcomes(passed=1, failed=2)
    together, _, eager = verdicts_in(pytester.path / "r.json")
    assert together.seen == (CarriedTogether(1, ("exp", "add")),)
    assert says(eager.reason, NothingToFuse, absent=())
