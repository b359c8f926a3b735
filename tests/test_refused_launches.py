"""A launch that the driver refused has no kernel, and the profiler has lost nothing."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from pytest_torchprof import NotMeasured, load
from pytest_torchprof.reasons.lost_work import LostKernels

pytestmark = pytest.mark.any_torch


@pytest.fixture
def profile(tmp_path):
    """Return a function that writes steps whose second launch has no kernel, and reads them."""

    def write(then=(), *, steps=2, refused_in=(0, 1)):
        builder = TraceBuilder()
        builder.own(steps=steps)
        for number in range(steps):
            at = number * 1000
            builder.step(number, at, 900)
            builder.launched("first", at + 10)
            if number in refused_in:
                builder.launch(at + 100)
                for place, name in enumerate(then):
                    builder.call(name, at + 110 + 5 * place)
            builder.launched("fallback", at + 200)
        builder.sync(steps * 1000 + 100, 50)
        return load(builder.write(tmp_path / "t.json"))

    return write


@pytest.mark.parametrize("asked", ["cudaGetErrorString", "cudaGetErrorName"])
def test_where_the_errors_text_was_asked_for_the_driver_had_refused_it(profile, asked):
    found = profile([asked])
    assert found.why_not is None
    assert [(step.kernels.names, step.launches) for step in found.steps] == [(["first", "fallback"], 3)] * 2
    assert found.trace.lost_kernels == 0
    found.expect(kernels={"first": 1, "fallback": 1}, max_launches=3)


def test_an_error_of_another_call_says_nothing_of_the_launch_before(profile):
    with pytest.raises(NotMeasured) as raised:
        profile(["cudaMalloc", "cudaGetErrorString"]).expect(max_kernels=2)
    assert raised.value.reason == LostKernels(lost=2, launches=6, in_each_step=True)


def test_where_nobody_asked_it_may_be_a_loss_or_a_refusal(profile):
    assert profile().doubt == LostKernels(lost=2, launches=6, in_each_step=True)


def test_a_launch_that_has_its_kernel_in_other_steps_was_not_refused(profile):
    assert profile(refused_in=(1,)).doubt == LostKernels(lost=1, launches=5, in_each_step=False)
