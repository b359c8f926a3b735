"""A program that acts on verdicts, such as one that writes kernels, gets them as data."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from schema_checks import errors

from pytest_torchprof import UnknownLimit, Verdicts, judge

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.any_torch

x = torch.ones(8, 8)


def three(value):
    return (value @ value).relu().sin()


def test_limits_that_hold_are_true():
    verdicts = judge(three, x, limits={"max_kernels": 3, "ops": {"aten::mm": 1}}, device="cpu")
    assert verdicts
    assert verdicts.status == "holds"
    assert [(one.limit, one.status, one.number) for one in verdicts] == [
        ("max_kernels", "holds", 3),
        ("ops", "holds", None),
    ]
    assert [kernel.name for kernel in verdicts.profile.kernels] == ["aten::mm", "aten::clamp_min", "aten::sin"]


def test_a_missed_limit_raises_nothing_and_is_false():
    verdicts = judge(
        three, x, limits={"max_kernels": 2, "max_graph_breaks": 0, "forbid_ops": "aten::cos"}, device="cpu"
    )
    assert not verdicts
    assert verdicts.status == "missed"
    assert {one.limit: one.status for one in verdicts} == {
        "max_kernels": "missed",
        "max_graph_breaks": "missed",
        "forbid_ops": "holds",
    }
    # As a test would fail.
    assert "max_kernels=2" in str(verdicts)
    assert "test_judge.py" in str(verdicts)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu_its_limits_are_not_measured_and_false():
    verdicts = judge(three, x, limits={"max_kernels": 3})
    assert not verdicts
    assert (verdicts.status, verdicts.reason.code, verdicts.profile) == ("not measured", "needs-gpu", None)
    assert [*verdicts] == []


@pytest.mark.parametrize("function", [lambda _: None, lambda value: value])
def test_what_does_nothing_is_not_measured_and_false(function):
    verdicts = judge(function, x, limits={"max_kernels": 3}, device="cpu")
    assert not verdicts
    assert verdicts.status == "not measured"
    assert [one.reason.code for one in verdicts] == ["nothing-ran"]


def test_work_that_is_not_done_yet_is_not_measured():
    verdicts = judge(
        lambda value: map(three, [value]), x, limits={"forbid_ops": "aten::mm", "min_kernels": 0}, device="cpu"
    )
    assert not verdicts
    assert verdicts.reason.code == "nothing-measured"


def test_verdicts_of_nothing_are_not_true():
    assert not Verdicts()
    assert Verdicts().status == "not measured"
    assert "hold" not in str(Verdicts())
    assert Verdicts().as_json()["status"] == "not measured"


@pytest.mark.parametrize("limits", [{"max_kernels": 3}, {"max_kernels": 2}, {"min_gpu_utilization": 0.5}])
def test_json_is_that_of_check(limits):
    verdicts = judge(three, x, limits=limits, device="cpu")
    told = json.loads(json.dumps(verdicts.as_json()))
    assert errors("check", told) == []
    assert told["status"] == verdicts.status


@pytest.mark.parametrize("limits", [{}, ["max_kernels"], {"max_kernel": 3}, {"max_kernels": -1}])
def test_limits_that_cannot_be_meant_are_refused(limits):
    with pytest.raises(UnknownLimit) as refused:
        judge(three, x, limits=limits, device="cpu")
    # That is for those who pass limits as keywords.
    assert "functools" not in str(refused.value)


def test_what_the_function_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        judge(lambda _: 1 / 0, x, limits={"max_kernels": 3}, device="cpu")


def test_an_operator_of_ones_own_and_no_other():
    """My operator ran, and the library's did not."""
    library = torch.library.Library("judged", "DEF")
    library.define("mine(Tensor x) -> Tensor")
    library.impl("mine", lambda value: value.clone(), "CPU")
    mine = torch.ops.judged.mine
    assert judge(mine, x, limits={"ops": {"judged::mine": 1}, "forbid_ops": "aten::mm"}, device="cpu")
    cheat = judge(
        lambda value: value @ value, x, limits={"ops": {"judged::mine": 1}, "forbid_ops": "aten::mm"}, device="cpu"
    )
    assert {one.limit: one.status for one in cheat} == {"ops": "missed", "forbid_ops": "missed"}


def test_the_documentations_example_says_what_does_not_hold(capsys):
    page = (Path(__file__).parents[1] / "docs" / "limits.md").read_text()
    example = re.search(r"<!-- example: judge -->\n```python\n(.*?)```", page, re.DOTALL)[1]
    exec(example, {"model": three, "x": x})
    assert capsys.readouterr().out == "missed ['max_kernels', 'forbid_ops']\n"
