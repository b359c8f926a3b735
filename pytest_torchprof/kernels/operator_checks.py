"""Whether there is an operator that a pattern asks for: a pattern that nothing can match forbids nothing."""

from __future__ import annotations

import re
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pytest_torchprof.devices.cpu import operator_work
from pytest_torchprof.devices.kinds import OperatorWork
from pytest_torchprof.kernels.operator_names import is_registered, nearest_operator, of_torch, registered
from pytest_torchprof.reasons.names_asked import NoSuchOperator, OnlyNamespace, PartOfOperators
from pytest_torchprof.reasons.wrong_patterns import NoSuchOperatorInTorch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_torchprof.kernels.selectors import Operator
    from pytest_torchprof.reasons.reason import Reason

# Events among a recording's operators that are not operators: ranges that only enclose some, and Inductor's kernels.
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


def unmatched_operator(pattern: Operator, recorded: Iterable[str] = ()) -> Reason | None:
    """Return the reason if no operator matches a pattern, with the nearest name; None if one matches.

    ``recorded`` are the names in a recording.
    """
    recorded = frozenset(recorded)
    if any(map(pattern.matches_op, recorded)):
        return None
    if problem := _namespace(pattern, recorded) or _partial_name(pattern, recorded):
        return problem
    if _is_range(pattern.written) or _is_autograd_function(pattern):
        return None
    if any(_is_one_of(pattern, names()) for names in (of_torch, registered)):
        return None
    if pattern.is_expression and any(map(pattern.matches_op, _range_names())):
        return None
    near = nearest_operator(pattern.written, of_torch() | registered())
    return NoSuchOperator(pattern.written, near, "torch" in sys.modules)


def why_unregistered(pattern: Operator) -> Reason | None:
    """Return why the loaded torch has no operator that the pattern asks for; None if one may still be registered.

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
    of_torch_itself = any(operator.startswith(f"{space}::") for operator in of_torch())
    return NoSuchOperatorInTorch(name, space, nearest_operator(pattern.written, known), of_torch_itself)


def _is_one_of(pattern: Operator, names: frozenset[str]) -> bool:
    if pattern.written in names:
        return True
    return any(map(pattern.matches_op, names))


def _namespace(pattern: Operator, recorded: frozenset[str]) -> OnlyNamespace | None:
    """Return the reason if a word is only a library's namespace; None if it is none, or matches a name too."""
    begin = f"{pattern.written}::"
    named = any(_is_one_of(pattern, names()) for names in (of_torch, registered))
    if any(operator.startswith(begin) for operator in (recorded if named else recorded | registered())):
        return OnlyNamespace(pattern.written)
    return None


def _partial_name(pattern: Operator, recorded: frozenset[str]) -> PartOfOperators | None:
    """Return the reason if a text is only a part of words in recorded names; None if it is an operator's name.

    ``mm`` is an operator, and ``aten::addmm`` is another; ``conv`` is none, and means ``aten::conv2d`` too.
    """
    text = pattern.written
    if pattern.is_expression or "::" in text or any(f"aten::{text}" in names() for names in (of_torch, registered)):
        return None
    within = sorted(
        operator
        for operator in recorded
        if "::" in operator and " " not in operator and text in operator.rpartition("::")[2]
    )
    return PartOfOperators(text, tuple(within[:_SHOWN])) if within else None


_SHOWN: Final = 4


def _is_range(text: str) -> bool:
    """Return whether a text is the name of a range that encloses operators, or of a kernel of Inductor's."""
    if text.startswith("prim::"):
        return False
    return operator_work(text) in (OperatorWork.NOTHING, OperatorWork.FUSED) or _TRITON.fullmatch(text) is not None


@cache
def _range_names() -> tuple[str, ...]:
    """Return examples of the names of ranges, for globs and expressions to match."""
    nodes = [
        "".join(map(str.capitalize, name.removeprefix("aten::").split("_")))
        for name in of_torch()
        if name.startswith("aten::")
    ]
    backward = [f"autograd::engine::evaluate_function: {node}Backward0" for node in nodes]
    return (*_RANGES, *backward, *(f"{node}Backward0" for node in nodes))


def _is_autograd_function(pattern: Operator) -> bool:
    """Return whether an autograd function written in Python has this name, which its range has too."""
    function = getattr(sys.modules.get("torch.autograd"), "Function", None)
    return function is not None and any(pattern.matches_op(node.__name__) for node in _subclasses(function))


def _subclasses(kind: Any) -> Iterator[type]:
    for subclass in type.__subclasses__(kind):
        yield subclass
        yield from _subclasses(subclass)
