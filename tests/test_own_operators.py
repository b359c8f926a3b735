"""Operators that a project registers itself: counted, forbidden, and fused where the compiler sees through them."""

from __future__ import annotations

import re
import shutil

import pytest
from cookbook_samples import PAGE

SECTION = PAGE.read_text().partition("## Operators of your own")[2]
MARKERS = re.findall(r"`(@pytest\.mark\.torchprof\(.*\))` \|", SECTION)

OPERATORS = """
@torch.library.custom_op("mylib::heavy", mutates_args=())
def heavy(x: torch.Tensor) -> torch.Tensor:
    return x @ x

@heavy.register_fake
def _(x):
    return torch.empty_like(x)

mylib = torch.library.Library("mylib", "FRAGMENT")
mylib.define("scaled_gelu(Tensor x) -> Tensor")
mylib.impl("scaled_gelu", lambda x: torch.nn.functional.gelu(x) * 2, "CompositeImplicitAutograd")

def compiled(function):
    return torch.compile(function)

floats = torch.randn(64, 64)
"""

CASES = {
    'ops={"mylib::heavy": 2}': ("lambda x: heavy(heavy(x))", "lambda x: heavy(x)"),
    'forbid_ops="mylib::heavy"': ("lambda x: x + 1", "lambda x: heavy(x)"),
    'fused=["gelu", "mul", "add"]': (
        "lambda x: torch.ops.mylib.scaled_gelu(x) + 1",
        "lambda x: heavy(torch.ops.mylib.scaled_gelu(x)) + 1",
    ),
    'forbid_kernels="fp64"': ("lambda x: (x * 2 + 1).sum()", "lambda x: (x.double() * 2 + 1).float()"),
}


def test_each_marker_of_the_cookbook_has_its_case():
    assert [marker.removeprefix("@pytest.mark.torchprof(")[:-1] for marker in MARKERS] == list(CASES)


@pytest.mark.skipif(shutil.which("g++") is None, reason="compiled code on the CPU needs a C++ compiler")
def test_each_marker_holds_and_is_missed(run_tests):
    """In one run, which imports what compiles once."""
    cases = [
        f"""
@pytest.mark.torchprof(device="cpu", {limit})
def test_{name}_{number}(torchprof):
    torchprof(compiled({function}), floats)
"""
        for number, (limit, functions) in enumerate(CASES.items())
        for name, function in zip(("right", "wrong"), functions, strict=True)
    ]
    result = run_tests(OPERATORS + "".join(cases), in_process=False)
    result.assert_outcomes(passed=len(CASES), failed=len(CASES))
    result.stdout.fnmatch_lines([f"FAILED *::test_wrong_{number} *" for number in range(len(CASES))])


def test_an_eager_operator_is_counted_as_a_compiled_one_is(run_tests):
    result = run_tests(
        OPERATORS
        + """
@pytest.mark.torchprof(device="cpu", ops={"mylib::heavy": 2})
def test_twice():
    heavy(heavy(floats))

@pytest.mark.torchprof(device="cpu", ops={"mylib::heavy": 2})
def test_once():
    heavy(floats)
""",
        in_process=False,
    )
    result.assert_outcomes(passed=1, failed=1)
