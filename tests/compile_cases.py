"""What people compile, case by case, with what a measurement must say; run as a script it measures them.

Each case runs in a process of its own, and all of them in one process in a random order; CASES_SEEDS=1,2,3 asks for
three orders. The processes are forked from one that has imported torch, which takes longer than a case.
"""

# ruff: noqa: T201
from __future__ import annotations

import importlib
import inspect
import json
import os
import random
import sys
import tempfile
import traceback
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch._dynamo
from torch import nn
from torch._dynamo import funcname_cache

from pytest_torchprof.capture import Plan, iterations
from pytest_torchprof.limits.compile_limits import COMPILE_LIMITS
from pytest_torchprof.limits.evidence import InsteadOfCompiling
from pytest_torchprof.limits.seen import NothingWasCompiled
from pytest_torchprof.profiles import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_torchprof.limits.evidence import Evidence

SEEDS = tuple(map(int, os.environ.get("CASES_SEEDS", "1").split(",")))
X = torch.ones(4, 4)
graph_break = torch._dynamo.graph_break
BACKEND = os.environ.get("CASES_BACKEND", "eager")


@dataclass(frozen=True, kw_only=True)
class Case:
    """Code to measure, and what must be said of it."""

    make: Callable[[], Callable[[], object]]
    breaks: str = "holds"
    """Status of max_graph_breaks=0."""
    at: tuple[str, ...] = ()
    """The lines that must be named, each by the comment that marks it, and nothing else."""
    nothing: bool = False
    """Whether it is said that nothing was compiled."""
    told: dict[str, object] = field(default_factory=dict)
    """Facts of the first line of details; of Dynamo's words a part is enough."""
    recompiles: str = "holds"
    """Status of max_recompiles=0."""
    guard: str = ""
    """What the recompile's reason must contain."""
    trace_alone: str = "not measured"
    """Status of max_graph_breaks=0 without the recording's own evidence."""
    warmup: int = 3
    raises: str = ""


CASES: dict[str, Case] = {}


def case(**expected: object) -> Callable[[Callable[[], Callable[[], object]]], object]:
    def add(make: Callable[[], Callable[[], object]]) -> object:
        CASES[make.__name__] = Case(make=make, **expected)  # type: ignore[arg-type]
        return make

    return add


def compiled(function: Callable[..., object], **options: object) -> Callable[..., object]:
    return torch.compile(function, backend=BACKEND, **options)  # type: ignore[call-overload]


# ---------------------------------------------------------------------------------------------------------------- clean


@case()
def a_clean_function():
    f = compiled(lambda a: (a + 1).relu())
    return lambda: f(X)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, a):
        return self.linear(a).relu()


@case()
def forward_and_backward():
    model = compiled(Block())
    return lambda: model(X).sum().backward()


@case()
def two_independent_functions():
    f, g = compiled(lambda a: a + 1), compiled(lambda a: a * 2)
    return lambda: g(f(X))


@case()
def one_function_called_twice():
    f = compiled(lambda a: a + 1)
    return lambda: f(f(X))


@case()
def two_blocks_of_one_class():
    blocks = [Block(), Block()]
    for block in blocks:
        block.compile(backend=BACKEND)
    return lambda: blocks[1](blocks[0](X))


@case()
def two_modules_under_the_wrapper_of_torch():
    blocks = [compiled(nn.Linear(4, 4)), compiled(nn.Linear(4, 4))]
    return lambda: blocks[1](blocks[0](X))


@case()
def a_compiled_function_that_calls_a_compiled_one():
    inner = compiled(lambda a: a + 1)
    outer = compiled(lambda a: inner(a) * 2)
    return lambda: outer(X)


@case(warmup=0)
def a_warm_up_that_is_too_short():
    f = compiled(lambda a: a - 3)
    return lambda: f(X)


# --------------------------------------------------------------------------------------------------------------- breaks


@case(
    breaks="missed",
    at=("mid",),
    told={"why": "Call to `torch._dynamo.graph_break()`", "graphs": 2},
    trace_alone="missed",
)
def a_break_in_the_middle():
    def f(a):
        b = a + 1
        graph_break()  # break: mid
        return b * 2

    g = compiled(f)
    return lambda: g(X)


def callee(a):
    b = a + 1
    graph_break()  # break: callee
    return b * 3


@case(breaks="missed", at=("callee",), told={"function": "callee", "why": "Call to"}, trace_alone="missed")
def a_break_in_an_inlined_callee():
    f = compiled(lambda a: callee(a) * 2)
    return lambda: f(X)


@case(breaks="missed", at=("three 1", "three 2", "three 3"), trace_alone="missed")
def three_breaks():
    def f(a):
        a = a + 1
        graph_break()  # break: three 1
        a = a * 2
        print(end="")  # break: three 2
        a = a * 3
        graph_break()  # break: three 3
        return a + 1

    g = compiled(f)
    return lambda: g(X)


@case(breaks="missed", at=("loop",), told={"graphs": None}, recompiles="missed")
def a_break_in_a_for_loop():
    def f(a):
        for _ in range(3):
            a = a + 1
            graph_break()  # break: loop
        return a

    g = compiled(f)
    return lambda: g(X)


@case(breaks="missed", at=("try",), told={"graphs": None}, recompiles="missed")
def a_break_in_try_finally():
    def f(a):
        try:
            a = a + 1
            graph_break()  # break: try
        finally:
            a = a * 1
        return a

    g = compiled(f)
    return lambda: g(X)


@case(breaks="missed", at=("before",), trace_alone="missed")
def a_break_before_any_operation():
    def f(a):
        graph_break()  # break: before
        return a + 1

    g = compiled(f)
    return lambda: g(X)


@case(breaks="missed", at=("after",))
def a_break_after_the_last_operation():
    def f(a):
        b = a + 1
        graph_break()  # break: after
        return b

    g = compiled(f)
    return lambda: g(X)


@case(breaks="missed", at=("branch",), told={"why": "data-dependent-jump"}, trace_alone="missed")
def a_branch_on_data():
    def f(a):
        if a.sum() > 0:  # break: branch
            return a + 1
        return a - 1

    g = compiled(f)
    return lambda: g(X)


@case(breaks="missed", at=("item",), told={"why": "Tensor.item()"}, trace_alone="missed")
def an_item():
    def f(a):
        n = a.sum().item()  # break: item
        return a + n

    g = compiled(f)
    return lambda: g(X)


@case(breaks="missed", at=("print",), trace_alone="missed")
def a_print():
    def f(a):
        b = a + 1
        print(end="")  # break: print
        return b * 2

    g = compiled(f)
    return lambda: g(X)


@torch.compiler.disable
def disabled(a):
    return a + 1


@case(breaks="missed", at=("disabled",), told={"why": "torch.compiler.disable"}, trace_alone="missed")
def a_disabled_callee():
    def f(a):
        b = disabled(a * 2)  # break: disabled
        return b * 3

    g = compiled(f)
    return lambda: g(X)


@case(breaks="missed", at=("disabled around",), trace_alone="missed")
def a_compiled_function_under_a_disabled_one():
    inner = compiled(lambda a: a + 1)
    between = torch.compiler.disable(lambda a: inner(a) * 2)

    def f(a):
        b = between(a * 2)  # break: disabled around
        return b * 3

    g = compiled(f)
    return lambda: g(X)


class Printing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, a):
        b = self.linear(a)
        print(end="")  # break: module
        return b.relu()


@case(breaks="missed", at=("module",), told={"function": "forward"}, trace_alone="missed")
def a_module_that_breaks_in_a_sequential_twice():
    model = compiled(nn.Sequential(Printing(), Printing()))
    return lambda: model(X)


@case(breaks="missed", at=("step",), trace_alone="missed")
def a_compiled_optimizer():
    model = Block()
    step = compiled(torch.optim.SGD(model.parameters()).step)

    def run():
        model(X).sum().backward()
        step()  # break: step

    return run


@case(breaks="missed", at=("raise",), told={"graphs": None}, recompiles="missed")
def an_exception_inside():
    def f(a):
        if a.shape[0] == 4:
            raise ValueError(a + 1)  # break: raise
        return a

    g = compiled(f)

    def run():
        with suppress(ValueError):
            g(X)

    return run


# ----------------------------------------------------------------------------------------------------- from earlier on


def broken_before(a):
    b = a - 1
    graph_break()  # break: earlier
    return b / 2


@case(breaks="missed", at=("earlier",), trace_alone="missed")
def compiled_by_an_earlier_test_and_only_called_here():
    f = compiled(broken_before)
    f(X)
    return lambda: f(X)


def given_up_before(a):
    for _ in range(2):
        a = a - 1
        graph_break()  # break: given up earlier
    return a


@case(breaks="missed", at=("given up earlier",), told={"function": "given_up_before", "graphs": None})
def a_frame_given_up_earlier_beside_a_clean_function():
    broken, clean = compiled(given_up_before), compiled(lambda a: a * 5)
    broken(X)
    return lambda: (clean(X), broken(X))


@case(breaks="missed", at=("given up earlier",), warmup=0)
def a_frame_given_up_earlier_without_warm_up():
    broken, clean = compiled(given_up_before), compiled(lambda a: a * 5)
    broken(X)
    clean(X)
    return lambda: (clean(X), broken(X))


@case()
def a_clean_function_after_a_broken_one():
    broken, clean = compiled(given_up_before), compiled(lambda a: a * 7)
    broken(X)
    return lambda: clean(X)


@case()
def code_given_up_earlier_that_is_called_without_torch_compile():
    compiled(given_up_before)(X)
    clean = compiled(lambda a: a * 8)
    return lambda: (clean(X), given_up_before(X))


@case(breaks="missed", at=("shared 1",), trace_alone="missed")
def only_the_branch_that_runs_counts():
    def f(a, first):
        a = a + 1
        if first:
            graph_break()  # break: shared 1
        else:
            graph_break()  # break: shared 2
        return a * 2

    g = compiled(f)
    g(X, False)
    return lambda: g(X, True)


# ----------------------------------------------------------------------------------------------------------- recompiles


@case(recompiles="missed", guard="size mismatch at index 0")
def a_shape_that_changes_between_steps():
    f, rows = compiled(lambda a: a * 2), [2]

    def run():
        rows[0] += 1
        f(torch.ones(rows[0], 4))

    return run


class Scaled(nn.Module):
    def __init__(self, scale: str) -> None:
        super().__init__()
        self.scale = scale


# A class for each case: the code of `forward` holds eight compilations, whatever test they come from.
class Replaced(Scaled):
    def forward(self, a):
        return a * len(self.scale)


class BesideOthers(Scaled):
    def forward(self, a):
        return a * len(self.scale)


class ForOneCall(Scaled):
    def forward(self, a):
        return a * len(self.scale)


@case(recompiles="missed", guard="self.scale")
def a_model_built_anew_for_each_call_with_another_attribute():
    made = [0]

    def run():
        made[0] += 1
        compiled(Replaced("x" * made[0]))(X)

    return run


@case()
def models_side_by_side_with_other_attributes():
    models = [compiled(BesideOthers("y" * n)) for n in range(3)]
    return lambda: [model(X) for model in models]


@case()
def models_side_by_side_that_live_for_one_call_only():
    def run():
        for model in [compiled(ForOneCall("z" * n)) for n in (7, 8)]:
            model(X)

    return run


@case(breaks="missed", told={"why": "recompile limit"}, recompiles="missed", guard="size mismatch")
def the_recompile_limit():
    f, rows = compiled(lambda a: a * 4, dynamic=False), [1]

    def run():
        rows[0] += 1
        with torch._dynamo.config.patch(recompile_limit=2):
            f(torch.ones(rows[0]))

    return run


# ------------------------------------------------------------------------------------------------- nothing is compiled


# Up to torch 2.13 Dynamo skips the forward of torch's own modules where it is compiled by itself.
OWN_MODULES = {} if torch.__version__ >= (2, 14) else {"breaks": "missed", "nothing": True, "recompiles": "missed"}


@case(**OWN_MODULES)
def a_module_of_torch_that_compiles_itself():
    linear = nn.Linear(4, 4)
    linear.compile(backend=BACKEND)
    return lambda: linear(X)


@case(breaks="missed", nothing=True, recompiles="missed")
def no_torch_compile_at_all():
    return lambda: X + 1


@case(
    breaks="missed",
    nothing=True,
    told={"setting": {"setting": "stance-set", "stance": "force_eager"}},
    recompiles="missed",
)
def a_stance():
    f = compiled(lambda a: a + 2)

    def run():
        with torch.compiler.set_stance("force_eager"):
            f(X)

    return run


@case(raises="Unsupported")
def fullgraph_raises():
    def f(a):
        graph_break()
        return a + 1

    g = compiled(f, fullgraph=True)
    return lambda: g(X)


# ------------------------------------------------------------------------------------------------------------ measuring


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a measurement said; statuses, what was measured, lines named."""

    breaks: str = ""
    nothing: bool = False
    told: dict[str, object] = field(default_factory=dict)
    lines: list[int] = field(default_factory=list)
    recompiles: str = ""
    recompiles_text: str = ""
    trace_alone: str = ""
    window: bool = False
    raised: str = ""


def measure(name: str) -> dict[str, object]:
    """Measure one case and return its Outcome as a dict."""
    checks = {limit.name: limit.check for limit in COMPILE_LIMITS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording.json"
        plan = Plan(device="cpu", warmup=CASES[name].warmup, steps=2, record=frozenset(), nodeid=name, label=None)
        try:
            run = CASES[name].make()
            with closing(iterations(plan, path, lambda _: None)) as calls:
                for _ in calls:
                    run()
        except Exception as error:  # noqa: BLE001 - some cases are there to raise
            return vars(Outcome(raised=f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))
        profile = load(path)
        found, again = checks["max_graph_breaks"](profile, 0), checks["max_recompiles"](profile, 0)
        recording = json.loads(path.read_text())
        del recording["torchprof"]
        path.write_text(json.dumps(recording))
        foreign = checks["max_graph_breaks"](load(path), 0)
    return vars(
        Outcome(
            breaks=found.status,
            nothing=found.seen == (NothingWasCompiled(),),
            told=_facts(found.evidence[0]) if found.evidence else {},
            lines=sorted({one.line for one in profile.compile.graph_breaks or () if one.file == __file__ and one.line}),
            recompiles=again.status,
            recompiles_text="\n".join((again.text, *(one.text for one in again.evidence))),
            trace_alone=foreign.status,
            window=profile.compile.compiled_in_window,
        )
    )


def _facts(line: Evidence) -> dict[str, object]:
    """Return the facts of a line of details; of what was seen instead of compiled code, the facts of this."""
    plain = line.to_plain()
    if isinstance(line, InsteadOfCompiling):
        return plain["what"]
    # What is known where torch gives no reason has a kind.
    return {**plain, "why": why["cause"]} if isinstance(why := plain.get("why"), dict) else plain


def _measure_all(names: list[str]) -> tuple[dict[str, object], list[str]]:
    """Return the outcomes, and what has been imported by then."""
    return {name: measure(name) for name in names}, list(sys.modules)


def _forked(task: Callable[[], object]) -> Any:
    """Do something in a process of its own and return what came of it."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(write, "w") as pipe:
            json.dump(task(), pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text)


def main(names: list[str]) -> None:
    """Print the outcomes by mode ("alone", "seed 1"...) and case."""
    # What each process would find out anew: on which lines the functions of this file are, and in which file each module lies.
    funcname_cache.get_funcname(__file__, 1)
    names, outcomes = names or list(CASES), {}
    for seed in SEEDS:
        order = random.Random(seed).sample(names, len(names))
        outcomes[f"seed {seed}"], imported = _forked(partial(_measure_all, order))
    # What each case alone would import by itself takes longer than most of them.
    for module in imported:
        with suppress(ImportError):
            importlib.import_module(module)
    inspect.getmodule(main.__code__)
    outcomes["alone"] = {name: _forked(partial(measure, name)) for name in names}
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
