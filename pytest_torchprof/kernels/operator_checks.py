"""Whether there is an operator that a pattern asks for: one that nothing can have forbids nothing."""

from __future__ import annotations

import re
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.devices.cpu import operator_work
from pytest_torchprof.devices.kinds import OperatorWork
from pytest_torchprof.kernels.operator_names import is_registered, nearest_operator, of_torch, registered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_torchprof.kernels.selectors import Operator

# What stands among a recording's operators and is none: ranges that only hold some, and kernels of Inductor's.
_RANGES: Final = (
    *("Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad", "CompiledFunction", "CompiledFunctionBackward"),
    *(
        "Torch-Compiled Region: 0/0",
        "TorchDynamo Cache Lookup",
        "## Call CompiledFxGraph f3c1 ##",
        "record_param_comms",
    ),
    *("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "torch::autograd::AccumulateGrad"),
    *(
        "nccl:all_reduce",
        "gloo:all_reduce",
        "triton_poi_fused_add_0",
        "triton_red_fused_sum_0",
        "graph_0_cpp_fused_add_0",
    ),
)
_TRITON: Final = re.compile(r"triton_\w+")


def nothing_is(pattern: Operator, recorded: Iterable[str] = ()) -> str | None:
    """Return that no operator is what a pattern asks for, with the nearest one; None where there is one.

    ``recorded`` are names that a recording holds.
    """
    recorded = frozenset(recorded)
    if any(map(pattern.matches_op, recorded)):
        return None
    if problem := _is_namespace(pattern, recorded) or _is_only_part_of(pattern, recorded):
        return problem
    if _is_range(pattern.written) or _is_autograds(pattern):
        return None
    if any(_is_one_of(pattern, names()) for names in (of_torch, registered)):
        return None
    if pattern.is_expression and any(map(pattern.matches_op, _ranges())):
        return None
    problem = f"there is no operator {pattern.written!r}, neither in the recording nor in torch"
    if "torch" not in sys.modules:
        problem += " (which is not loaded here, so that libraries' own are not known)"
    near = nearest_operator(pattern.written, of_torch() | registered())
    return f"{problem}; did you mean {near!r}?" if near else problem


def refused(pattern: Operator) -> str | None:
    """Return why torch, as it is loaded, has no operator that the pattern asks for; None where it may still come.

    A library's own operators may be registered later, unless it has registered others already.
    """
    space, colons, name = pattern.written.rpartition("::")
    if pattern.is_expression or not colons or not re.fullmatch(r"\w+", space) or _is_range(pattern.written):
        return None
    if is_registered(space, name):
        return None
    known = registered()
    if not any(operator.startswith(f"{space}::") for operator in known):
        return None
    problem = f"torch has no operator {name!r} in {space}"
    if near := nearest_operator(pattern.written, known):
        return f"{problem}: did you mean {near!r}?"
    own = any(operator.startswith(f"{space}::") for operator in of_torch())
    return problem if own else f"{problem}: import what registers it before"


def _is_one_of(pattern: Operator, names: frozenset[str]) -> bool:
    if pattern.written in names:
        return True
    return any(map(pattern.matches_op, names))


def _is_namespace(pattern: Operator, recorded: frozenset[str]) -> str | None:
    """Return that a word is only where a library has its operators; None where it is none, or in a name besides."""
    begin = f"{pattern.written}::"
    named = any(_is_one_of(pattern, names()) for names in (of_torch, registered))
    if any(operator.startswith(begin) for operator in (recorded if named else recorded | registered())):
        return f"{pattern.written!r} is a namespace: all of its operators are '{begin}*'"
    return None


def _is_only_part_of(pattern: Operator, recorded: frozenset[str]) -> str | None:
    """Return that a text is within words of what was recorded, and no operator's name; None where it is one.

    ``mm`` is an operator, and ``aten::addmm`` is another one; ``conv`` is none, and means ``aten::conv2d`` too.
    """
    text = pattern.written
    if pattern.is_expression or "::" in text or any(f"aten::{text}" in names() for names in (of_torch, registered)):
        return None
    within = sorted(
        operator
        for operator in recorded
        if "::" in operator and " " not in operator and text in operator.rpartition("::")[2]
    )
    if not within:
        return None
    return f"no operator is called {text!r}, and it is a part of words of {', '.join(within[:_SHOWN])}: write these"


_SHOWN: Final = 4


def _is_range(text: str) -> bool:
    """Whether a text is the name of a range that holds operators, or of a kernel of Inductor's."""
    if text.startswith("prim::"):
        return False
    return operator_work(text) in (OperatorWork.NOTHING, OperatorWork.FUSED) or _TRITON.fullmatch(text) is not None


@cache
def _ranges() -> tuple[str, ...]:
    """Return names such as a range may have, for globs and expressions to match."""
    nodes = [
        "".join(map(str.capitalize, name.removeprefix("aten::").split("_")))
        for name in of_torch()
        if name.startswith("aten::")
    ]
    backward = [f"autograd::engine::evaluate_function: {node}Backward0" for node in nodes]
    return (*_RANGES, *backward, *(f"{node}Backward0" for node in nodes))


def _is_autograds(pattern: Operator) -> bool:
    """Whether a function of autograd that somebody has written in Python is called so; it has a range of its name."""
    function = getattr(sys.modules.get("torch.autograd"), "Function", None)
    return function is not None and any(pattern.matches_op(node.__name__) for node in _below(function))


def _below(kind: Any) -> Iterator[type]:
    for subclass in type.__subclasses__(kind):
        yield subclass
        yield from _below(subclass)
