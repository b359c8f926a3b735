"""How much of its time each of torch's operators keeps for itself: torch's own operator tests under the profiler.

An operator keeps time for itself if it works beside calling other operators. One that is no kernel of the CPU as device,
and lies in none, must keep little: what it keeps, no limit sees.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import operator_calls
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from pytest_torchprof import load
from pytest_torchprof.analysis.parts import operator_kernels
from pytest_torchprof.devices.kinds import OperatorWork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pytest_torchprof.trace import Trace

TOO_MUCH = 1 / 3
"""The share of its own time from which on an operator does not merely hold others."""
LEAST_US = 50.0
"""Calling another operator from C++ takes 1 to 5 us under the profiler: what is kept beyond this is no such call."""
FEW, MANY = 3, 7
"""What an operator kept is the least of so many runs: whatever else the machine does makes a run longer, none shorter."""
_LARGER = 5
"""How many times as large as in torch's tests the samples are, in each dimension that they leave to a constant."""
_SAMPLES = 6
_NAMESPACES = ("aten::", "mkldnn::", "mkldnn_prepacked::", "onednn::", "quantized::", "sparse::")


class Kept(NamedTuple):
    """What an operator kept for itself: the least of several runs, which nothing else on the machine can raise."""

    us: float
    share: float
    where: str


def cases() -> dict[str, Callable[[], Iterable[Callable[[], object]]]]:
    """Return by name what makes calls: each operator's test, forward and backward; and what torch has no tests of."""
    from torch.testing._internal import common_methods_invocations as invocations

    modules = [module for name, module in sys.modules.items() if name.startswith("torch.testing._internal.opinfo")]
    for module in (invocations, *modules):
        for name, size in (("S", 5), ("M", 10), ("L", 20)):
            if getattr(module, name, None) == size:
                setattr(module, name, _LARGER * size)
    of_torch = {f"{one.name} {one.variant_test_name}".strip(): _calls_of(one) for one in invocations.op_db}
    return {**of_torch, **{name: partial(iter, (call,)) for name, call in operator_calls.calls()}}


def _calls_of(operator: Any) -> Callable[[], Iterator[Callable[[], object]]]:
    def calls() -> Iterator[Callable[[], object]]:
        types = operator.supported_dtypes("cpu")
        dtype = next((one for one in (torch.float32, torch.complex64, torch.int64) if one in types), None)
        if dtype is None:
            return
        grad = operator.supports_autograd and dtype in operator.supported_backward_dtypes("cpu")
        torch.manual_seed(0)
        # Around it torch finds out by the whole stack which test asks, for each operator and each seed: two thirds of the time.
        samples = list(operator.sample_inputs_func(operator, "cpu", dtype, grad))
        for sample in sorted(samples, key=_elements, reverse=True)[:_SAMPLES]:
            yield lambda sample=sample: _forward_and_backward(operator, sample)

    return calls


def _elements(sample: Any) -> int:
    return sum(one.numel() for one in _tensors((sample.input, sample.args, tuple(sample.kwargs.values()))))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _tensors(one)


def _forward_and_backward(operator: Any, sample: Any) -> None:
    result = next((one for one in _tensors(operator(sample.input, *sample.args, **sample.kwargs))), None)
    leaves = [one for one in _tensors((sample.input, sample.args)) if one.requires_grad]
    if result is not None and result.requires_grad and leaves:
        whole = result.abs().sum() if result.is_complex() else result.sum()
        torch.autograd.grad(whole, leaves, allow_unused=True)


def kept_by(calls: Iterable[Callable[[], object]], where: str, repeats: int = MANY) -> dict[str, Kept]:
    """Return what each operator that is no kernel kept at most in one of its calls, as the least of several runs."""
    working = list(_that_work(calls))
    if not working:
        return {}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            for number in range(repeats):
                with record_function(f"ProfilerStep#{number}"):
                    for call in working:
                        call()
        profiler.export_chrome_trace(str(path))
        return _kept(load(path, device="cpu").trace, where)


def _that_work(calls: Iterable[Callable[[], object]]) -> Iterator[Callable[[], object]]:
    made = iter(calls)
    while True:
        try:
            call = next(made, None)
            if call is None:
                return
            call()
            call()
        except Exception:  # noqa: BLE001 - a sample that its own function refuses, at once or when it was changed, tells nothing
            continue
        yield call


def _kept(trace: Trace, where: str) -> dict[str, Kept]:
    ops, parent = trace.ops, trace.nesting.parent
    kernels = set(operator_kernels(trace, trace.device_kind.operator_work))
    own = [end - start for start, end in zip(ops.start, ops.end, strict=True)]
    inside = list(kernels)
    seen = set(kernels)
    children = defaultdict(list)
    for i, holder in enumerate(parent):
        if holder >= 0:
            own[holder] -= ops.end[i] - ops.start[i]
            children[holder].append(i)
    while inside:
        for child in children.get(inside.pop(), ()):
            if child not in seen:
                seen.add(child)
                inside.append(child)
    by_step: dict[int, list[int]] = defaultdict(list)
    for i in sorted(range(len(own)), key=ops.start.__getitem__):
        name = trace.names[ops.name[i]]
        # What moves data inside of an operator that computes belongs to that one.
        counted = i in seen or trace.device_kind.operator_work(name) is OperatorWork.MOVES
        if not counted and name.startswith(_NAMESPACES) and trace.step_at(ops.start[i]) >= 0:
            by_step[trace.step_at(ops.start[i])].append(i)
    found: dict[str, Kept] = {}
    alike = len({tuple(ops.name[i] for i in members) for members in by_step.values()}) == 1
    for same in zip(*by_step.values(), strict=True) if alike else ():
        best = min(same, key=lambda i: own[i])
        kept = Kept(own[best] / 1000, own[best] / max(ops.end[best] - ops.start[best], 1), where)
        name = trace.names[ops.name[best]]
        if kept.share > TOO_MUCH and kept.us > found.get(name, Kept(0, 0, "")).us:
            found[name] = kept
    return found


def worst(found: Iterable[Mapping[str, Kept]]) -> dict[str, Kept]:
    """Return the most that each operator kept, of those that kept too much."""
    most: dict[str, Kept] = {}
    for one in found:
        for name, kept in one.items():
            if kept.us > most.get(name, kept).us or name not in most:
                most[name] = kept
    return {name: kept for name, kept in most.items() if kept.us >= LEAST_US}
