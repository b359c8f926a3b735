"""What compiled code ran, compiled anew or left uncompiled, is never passed over."""

from __future__ import annotations

import os
import re
import shutil
from functools import partial, wraps

import pytest
import torch
import torch._dynamo
import torch._inductor.config as inductor
from facts import misses, says, why_not
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from pytest_torchprof import LimitsMissed, NotMeasured, capture, load
from pytest_torchprof.capture.torch_compile import compiled_codes
from pytest_torchprof.limits.seen import NothingWasCompiled
from pytest_torchprof.reasons.compiling import NoFittingCode
from pytest_torchprof.reasons.recordings import CompiledBefore
from pytest_torchprof.reasons.uncompiled import MarkedSkip, UnderMode

needs_cpp = pytest.mark.skipif(not shutil.which(os.environ.get("CXX", "g++")), reason="needs a C++ compiler")
X, W = torch.ones(8, 8), torch.ones(8, 8)
IN_CPP = {"cpp_wrapper": True, "cpp_cache_precompile_headers": False}
"""Inductor's wrapper in C++, for which it compiles no headers ahead: only many of these would save what it spends on them."""


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def measure(tmp_path):
    """Measure code on the CPU and return its Profile."""

    def run(code, *, warmup=2, steps=2):
        path = tmp_path / "recording.json"
        plan = capture.Plan(
            device="cpu", warmup=warmup, steps=steps, record=frozenset(), nodeid="test_it.py::test_it", label=None
        )
        for _ in capture.iterations(plan, path, lambda _path: None):
            code()
        return load(path)

    return run


# -------------------------------------------------------------------------------------- recompiles within a test


BATCHES = """
f = torch.compile(lambda a: a.sin() + 1, backend="eager", dynamic=False)

@pytest.mark.torchprof(device="cpu", max_recompiles={bound}, warmup=1, steps=1)
def test_batches(torchprof):
    for batch in (2, 3, 5, 8):
        with torchprof.measure(f"batch {{batch}}") as m:
            for _ in m.steps():
                f(torch.ones(batch))
"""


@pytest.mark.parametrize(("bound", "missed"), [(0, 3), (2, 1), (3, 0)])
def test_a_recompile_between_blocks_counts_within_the_test(run_tests, bound, missed):
    result = run_tests(BATCHES.format(bound=bound), "--torchprof-save=kept")
    result.assert_outcomes(**({"failed": 1} if missed else {"passed": 1}))
    told = [line for line in result.outlines if line.startswith("  max_recompiles=")]
    assert len(told) == missed
    replayed = run_tests(BATCHES.format(bound=bound), "--torchprof-replay=kept")
    replayed.assert_outcomes(**({"failed": 1} if missed else {"passed": 1}))


def test_it_counts_whatever_was_compiled_before_the_test(run_tests):
    """The first block runs what an earlier test compiled; the second compiles that anew."""
    result = run_tests(
        """
f = torch.compile(lambda a: a.sin() + 1, backend="eager", dynamic=False)
limited = pytest.mark.torchprof(device="cpu", max_recompiles=0, warmup=1, steps=1)

@limited
def test_first(torchprof): torchprof(f, torch.ones(2))

@limited
def test_two_sizes(torchprof):
    torchprof(f, torch.ones(2))
    torchprof(f, torch.ones(3))

@limited
def test_another_size_first(torchprof):
    torchprof(torch.compile(lambda a: a.cos(), backend="eager"), torch.ones(2))
    torchprof(f, torch.ones(5))
"""
    )
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["FAILED *test_two_sizes*"])


def test_a_call_between_two_blocks_compiles_too(run_tests):
    result = run_tests("""
f = torch.compile(lambda a: a.sin() + 1, backend="eager", dynamic=False)

@pytest.mark.torchprof(device="cpu", max_recompiles=0, warmup=1, steps=1)
def test_it(torchprof):
    torchprof(f, torch.ones(2))
    f(torch.ones(3))
    torchprof(f, torch.ones(3))
""")
    result.assert_outcomes(failed=1)


def test_a_module_that_is_compiled_for_the_first_time_is_no_recompile(run_tests):
    result = run_tests("""
class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = torch.nn.Linear(n, 1)
    def forward(self, a): return self.linear(a)

@pytest.mark.torchprof(device="cpu", max_recompiles=0, warmup=1, steps=1)
def test_modules(torchprof):
    for n in (2, 3, 5):
        model = torch.compile(Model(n), backend="eager")
        torchprof(model, torch.ones(n))

@pytest.mark.torchprof(device="cpu", max_recompiles=0, warmup=1, steps=1)
@pytest.mark.parametrize("n", [2, 3])
def test_sizes(torchprof, n):
    torchprof(f, torch.ones(n))

f = torch.compile(lambda a: a.sin() + 1, backend="eager", dynamic=False)
""")
    result.assert_outcomes(passed=3)


class Callable:
    def __call__(self, a):
        return a.sin()


UNDER_THE_WRAPPER = {
    "no_grad": lambda: torch.no_grad()(lambda a: a.sin()),
    "inference_mode": lambda: torch.inference_mode()(lambda a: a.sin()),
    "autocast": lambda: torch.autocast("cpu")(lambda a: a.sin()),
    "partial": lambda: partial(torch.add, other=1),
    "callable": Callable,
    "of torch": lambda: torch.sin,
    "method": lambda: torch.Tensor.sin,
    "gelu": lambda: torch.nn.functional.gelu,
}
"""What torch.compile encloses in a wrapper of its own, whose code all of these share."""


@pytest.mark.parametrize("kind", UNDER_THE_WRAPPER)
def test_what_torch_wraps_is_compiled_anew_like_any_function(measure, kind):
    one, sizes = torch.compile(UNDER_THE_WRAPPER[kind](), backend="eager", dynamic=False), iter(range(2, 99))
    profile = measure(lambda: one(torch.ones(next(sizes))))
    profile.expect(max_recompiles=3)
    misses(profile, max_recompiles=2)


@pytest.mark.parametrize("watched", [True, False])
def test_a_size_that_is_new_to_what_was_wrapped_and_compiled_before_is_a_recompile(measure, watched):
    one = torch.compile(torch.no_grad()(lambda a: a.sin()), backend="eager", dynamic=False)
    if watched:
        measure(lambda: one(torch.ones(2)))
    else:
        one(torch.ones(2))
    sizes = iter((2, 2, 3, 3))
    misses(measure(lambda: one(torch.ones(next(sizes)))), max_recompiles=0)


def test_what_torch_wraps_is_compiled_for_the_first_time_each(measure):
    before = torch.compile(torch.cos, backend="eager")
    before(X)
    several = [torch.compile(make(), backend="eager", dynamic=False) for make in UNDER_THE_WRAPPER.values()]
    calls = iter(range(1, 99))

    def code():
        for one in several[: next(calls)]:
            one(torch.ones(2))

    measure(code, warmup=7).expect(max_recompiles=0)


def test_what_is_compiled_between_two_measurements_is_no_recompile_of_the_measured_code(run_tests):
    result = run_tests("""
limited = pytest.mark.torchprof(device="cpu", max_recompiles=0, warmup=1, steps=2)

@limited
def test_each_is_called_before_it_is_measured(torchprof):
    for n in (2, 3):
        layer = torch.compile(torch.nn.Linear(n, 1), backend="eager")
        layer(torch.ones(n))
        torchprof(layer, torch.ones(n))

@limited
def test_compiled_for_another_backend(torchprof):
    def code(a): return a.sin()
    torchprof(torch.compile(code, backend="eager"), torch.ones(2))
    torch._dynamo.reset()
    other = torch.compile(code, backend="aot_eager")
    other(torch.ones(2))
    torchprof(other, torch.ones(2))
""")
    result.assert_outcomes(passed=2)


def test_two_methods_of_one_module_are_compiled_for_the_first_time_each(measure):
    class Model(torch.nn.Module):
        @torch.no_grad()
        def encode(self, a):
            return a.sin()

        @torch.no_grad()
        def decode(self, a):
            return a.cos()

    model = Model()
    encode, decode = (torch.compile(method, backend="eager") for method in (model.encode, model.decode))
    calls = iter(range(99))
    measure(lambda: (encode(X), next(calls) and decode(X))).expect(max_recompiles=0)


def test_code_that_drops_what_was_compiled_compiles_it_anew(measure):
    one = torch.compile(lambda a: a.sin(), backend="eager", dynamic=False)

    def code():
        reset(one)
        one(X)

    profile = measure(code)
    profile.expect(max_recompiles=3)
    misses(profile, max_recompiles=2)


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("limit", ["max_graph_breaks", "max_recompiles"])
@pytest.mark.parametrize("mode", [partial(FlopCounterMode, display=False), Mode])
def test_what_was_compiled_and_runs_uncompiled_under_a_mode_is_not_measured(measure, mode, limit):
    """Beside a region that runs compiled; without the mode both do."""
    one, other = (torch.compile(make, backend="eager") for make in (lambda a: a.sin(), lambda a: a.cos()))
    one(X)

    def under_the_mode():
        other(X)
        with mode():
            one(X)

    reason = why_not(lambda: measure(under_the_mode).expect(**{limit: 0}))
    assert reason.code == "ran-uncompiled"
    # torch enters one of its own for FlopCounterMode, whose name begins with an underscore.
    assert reason.under in [UnderMode(f"{prefix}{mode().__class__.__name__}") for prefix in ("", "_")]


def test_what_only_runs_and_fits_no_compiled_code_is_not_measured(measure):
    one = torch.compile(lambda a: a.sin(), backend="eager", dynamic=False)
    other = torch.compile(lambda a: a.cos(), backend="eager")
    one(X)
    run = torch._dynamo.run(one)
    assert says(why_not(lambda: measure(lambda: (other(X), run(W[:2]))).expect(max_graph_breaks=0)), NoFittingCode)
    measure(lambda: (other(X), run(X))).expect(max_graph_breaks=0)


# ------------------------------------------------------------------------------------- kernels of compiled CPU code


@needs_cpp
def test_library_calls_of_the_cpp_wrapper_are_kernels(measure):
    with inductor.patch(IN_CPP):
        compiled = torch.compile(lambda a, b: torch.sort(a @ b)[0] + 1)
        profile = measure(lambda: compiled(X, W))
    assert [kernel.name for kernel in profile.kernels][:2] == ["aten::mm", "aten::sort"]
    assert profile.kernels.count == 3
    for limits in (
        {"max_kernels": 2},
        {"forbid_ops": "aten::mm"},
        {"forbid_kernels": "aten::mm"},
        {"max_fallbacks": 1},
    ):
        with pytest.raises(LimitsMissed):
            profile.expect(**limits)
    profile.expect(max_kernels=3, max_fallbacks=2, ops={"aten::mm": 1})


@needs_cpp
def test_library_calls_that_were_compiled_before_are_not_measured(measure):
    with inductor.patch(IN_CPP):
        compiled = torch.compile(lambda a, b: a @ b)
        compiled(X, W)
        profile = measure(lambda: compiled(X, W))
    assert says(why_not(lambda: profile.expect(max_kernels=5)), CompiledBefore)


@needs_cpp
def test_templates_of_inductor_are_kernels(measure):
    """A compiled layer is one, where Inductor may take nothing else: of all templates it is the soonest compiled."""
    settings = {"freezing": True, "max_autotune": True, "max_autotune_gemm_backends": "CPP"}
    with torch.no_grad(), inductor.patch(settings):
        layer = torch.compile(torch.nn.Linear(16, 16))
        profile = measure(lambda: layer(torch.ones(16, 16)), warmup=1, steps=1)
    assert profile.kernels.matching(r"re:graph_\d+_gemm_\w+_kernel").count == 1
    with pytest.raises(LimitsMissed):
        profile.expect(forbid_kernels=r"re:graph_\d+_gemm_\w+_kernel")
    profile.expect(max_graph_breaks=0, max_recompiles=0)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Return the path of a package of AOTInductor that takes two matrices."""

    class Model(torch.nn.Module):
        def forward(self, a, b):
            return a @ b

    program = torch.export.export(Model(), (X, W))
    path = str(tmp_path_factory.mktemp("package") / "model.pt2")
    # As with a wrapper in C++; what takes the longest to compile runs once.
    with inductor.patch({"aot_inductor.precompile_headers": False, "aot_inductor.compile_wrapper_opt_level": "O0"}):
        return torch._inductor.aoti_compile_and_package(program, package_path=path)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@needs_cpp
@pytest.mark.parametrize("bound", ["loaded", "call", "run", "boxed_run"])
def test_a_package_of_aotinductor_is_not_measured_however_it_is_called(measure, package, bound):
    loaded = torch._inductor.aoti_load_package(package)
    measure(lambda: X.sin()).expect(max_kernels=1)
    loader = loaded.loader
    run = {
        "loaded": lambda: loaded,
        "call": lambda: loaded.__call__,
        "run": lambda: partial(_given_a_list, loader.run),
        "boxed_run": lambda: partial(_given_a_list, loader.boxed_run),
    }[bound]()
    profile = measure(lambda: (X.sin(), run(X, W)))
    for limits in ({"max_kernels": 5}, {"forbid_ops": "aten::mm"}, {"min_kernels": 1}):
        with pytest.raises(NotMeasured, match="AOTInductor"):
            profile.expect(**limits)
    with pytest.raises(NotMeasured, match="AOTInductor"):
        len(profile.kernels)


def _given_a_list(call, *tensors):
    return call([*tensors])


FROZEN = """
import gc, kept
gc.get_freeze_count = kept.count
compiled = torch.compile(lambda a: (a.sin() + 1).cos())
compiled(x)
# As servers do when they have loaded a model; the collector then says nothing of it.
gc.freeze()

@pytest.mark.torchprof(device="cpu", max_kernels=5)
@pytest.mark.parametrize("time", range(2))
def test_compiled(torchprof, time):
    torchprof(compiled, x)

@pytest.mark.torchprof(device="cpu", max_kernels=5)
def test_frozen_since_then(torchprof):
    later = torch.compile(lambda a: a.exp() * 2)
    later(x)
    gc.freeze()
    torchprof(later, x)

@pytest.mark.torchprof(device="cpu", max_kernels=5)
def test_package(torchprof):
    run = torch._inductor.aoti_load_package({package!r}).loader.run
    gc.freeze()
    torchprof(lambda: run([x, x]))
"""


@needs_cpp
def test_what_was_compiled_before_is_known_though_the_garbage_collector_does_not_show_it(
    run_tests, package, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "600")
    result = run_tests(FROZEN.format(package=package), in_process=False)
    result.assert_outcomes(failed=4)
    codes = re.findall(r"FAILED .*\[([a-z-]+)\]$", "\n".join(result.outlines), re.MULTILINE)
    assert codes == ["compiled-before"] * 3 + ["aotinductor"]


@needs_cpp
def test_a_package_that_is_loaded_and_not_bound_changes_nothing(measure, package):
    loaded = torch._inductor.aoti_load_package(package)
    loaded(X, W)
    measure(lambda: X.sin()).expect(max_kernels=1)


@pytest.mark.parametrize("namespace", ["autograd", "profiler", "torchprof", "mine"])
def test_operators_of_any_namespace_are_kernels(measure, namespace):
    library = torch.library.Library(namespace, "FRAGMENT")
    library.define("silent_pass(Tensor a) -> Tensor")
    library.impl("silent_pass", lambda a: torch.empty_like(a), "CPU")
    operator = getattr(torch.ops, namespace).silent_pass
    try:
        profile = measure(lambda: operator(X))
        assert profile.kernels.names == [f"{namespace}::silent_pass"]
        with pytest.raises(LimitsMissed):
            profile.expect(forbid_ops=f"{namespace}::silent_pass")
    finally:
        library._destroy()


def test_ranges_that_only_hold_operators_are_no_kernels(measure):
    a = torch.ones(4, requires_grad=True)

    class Reversed(torch.autograd.Function):
        @staticmethod
        def forward(_ctx, a):
            return a.view_as(a)

        @staticmethod
        def backward(_ctx, gradient):
            return gradient.neg()

    optimizer = torch.optim.SGD([a], lr=0.1)

    def step():
        with torch.profiler.record_function("range"):
            pass
        (Reversed.apply(a) + a.view(2, 2).view(4)).sum().backward()
        optimizer.zero_grad()

    names = {kernel.name for kernel in measure(step).kernels}
    assert names <= {
        "aten::add",
        "aten::sum",
        "aten::neg",
        "aten::ones_like",
        "aten::fill_",
        "aten::add_",
        "aten::copy_",
    }


# ----------------------------------------------------------------------------- compiled code that was left uncompiled


def judged(profile, **limits):
    try:
        profile.expect(**limits)
    except LimitsMissed:
        return "missed"
    except NotMeasured:
        return "not measured"
    return "holds"


def under(stance, code):
    with torch.compiler.set_stance(stance):
        return code()


def disabled(code):
    with torch._dynamo.config.patch(disable=True):
        return code()


def beside(leave):
    """Return code of which one part runs compiled in each call, and another in a way that leaves it uncompiled."""
    one = torch.compile(lambda a: a.sin(), backend="eager", dynamic=False)
    two = torch.compile(lambda a: a.cos(), backend="eager", dynamic=False)
    two(X)
    return lambda: (one(X), leave(lambda: two(torch.ones(3))))


PARTS = {
    "eager on recompile": lambda: beside(lambda code: under("eager_on_recompile", code)),
    "force eager": lambda: beside(lambda code: under("force_eager", code)),
    "disabled": lambda: beside(disabled),
}


@pytest.mark.parametrize("limit", ["max_graph_breaks", "max_recompiles"])
@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_ran_uncompiled_keeps_no_limit(measure, part, limit):
    assert judged(measure(PARTS[part]()), **{limit: 0}) in ("missed", "not measured")


@pytest.mark.parametrize("limit", ["max_graph_breaks", "max_recompiles"])
def test_a_stance_over_the_whole_test_keeps_no_limit(measure, limit):
    one = torch.compile(lambda a: a.sin(), backend="eager", dynamic=False)
    one(X)
    with torch.compiler.set_stance("eager_on_recompile"):
        profile = measure(lambda: (one(X), one(torch.ones(3))))
    assert judged(profile, **{limit: 0}) in ("missed", "not measured")


@pytest.mark.parametrize("stance", ["fail_on_recompile", "default"])
def test_a_stance_that_leaves_nothing_uncompiled_changes_nothing(measure, stance):
    one = torch.compile(lambda a: a.sin(), backend="eager", dynamic=False)
    one(X)
    profile = measure(lambda: under(stance, lambda: one(X)))
    profile.expect(max_graph_breaks=0, max_recompiles=0)


def counted(code):
    with FlopCounterMode(display=False):
        return code()


@pytest.mark.parametrize("limit", ["max_graph_breaks", "max_recompiles"])
@pytest.mark.parametrize("when", ["before", "meanwhile"])
@pytest.mark.parametrize("leave", [disabled, counted])
def test_code_that_dynamo_never_tried_to_compile_keeps_no_limit(measure, leave, when, limit):
    """What it first meets while it is disabled, or in a dispatch mode, it leaves alone, without a record."""

    def left(a):
        return a.cos()

    one, two = (torch.compile(code, backend="eager") for code in (lambda a: a.sin(), left))
    if when == "before":
        leave(lambda: two(X))
        verdict = judged(measure(lambda: (one(X), two(X))), **{limit: 0})
    else:
        verdict = judged(measure(lambda: (one(X), leave(lambda: two(X)))), **{limit: 0})
    # torch 2.15 tries again once the mode is over.
    assert verdict == ("holds" if compiled_codes(left.__code__) else "not measured")


def half(a):
    return a.cos() + 1


@pytest.mark.parametrize("limit", ["max_graph_breaks", "max_recompiles"])
def test_a_compiled_function_that_dynamo_skips_keeps_no_limit(measure, limit):
    """What it calls is compiled, each for itself."""

    @torch._dynamo.decorators.skip
    def skipped(a):
        return half(half(a))

    one = torch.compile(skipped, backend="eager")
    profile = measure(lambda: one(X))
    assert judged(profile, **{limit: 0}) == "not measured"
    marked = why_not(lambda: profile.expect(**{limit: 0})).under
    assert (type(marked), marked.function, marked.file) == (MarkedSkip, "skipped", __file__)


def test_a_disabled_function_that_is_compiled_all_the_same_keeps_its_limits(measure):
    """torch.compile looks through the mark of the function that it is given, and functools.wraps copies marks."""

    @torch.compiler.disable(recursive=False)
    def disabled(a):
        return half(half(a))

    @wraps(torch._dynamo.decorators.skip(lambda a: a))
    def around(a):
        return a.sin()

    one, two = (torch.compile(code, backend="eager") for code in (disabled, around))
    measure(lambda: (one(X), two(X))).expect(max_graph_breaks=0, max_recompiles=0)


def test_a_module_of_torch_that_dynamo_never_tried_to_compile_keeps_no_limit(measure):
    class Model(torch.nn.Module):
        def forward(self, a):
            return a

    one, two, empty = (
        torch.compile(code, backend="eager") for code in (lambda a: a.sin(), torch.nn.Linear(8, 8), Model())
    )
    # All compiled modules share one code object, which has no graph here.
    measure(lambda: (one(X), empty(X))).expect(max_graph_breaks=0)
    torch._dynamo.reset()
    disabled(lambda: two(X))
    assert judged(measure(lambda: (one(X), two(X))), max_graph_breaks=0) == "not measured"


def test_code_that_dynamo_never_tried_and_that_does_not_run_changes_nothing(measure):
    one, two = (torch.compile(code, backend="eager") for code in (lambda a: a.sin(), lambda a: a.cos()))
    disabled(lambda: two(X))
    measure(lambda: one(X)).expect(max_graph_breaks=0, max_recompiles=0)


def test_code_without_a_graph_changes_nothing(measure):
    """A function without an operator has no region, whether it is compiled or not."""
    one = torch.compile(lambda a: a.sin(), backend="eager")
    add = torch.compile(lambda found: found.append(1), backend="eager")

    class Model(torch.nn.Module):
        def forward(self, a):
            return a

    same = torch.compile(Model(), backend="eager")
    for _ in range(2):
        measure(lambda: (one(X), add([]), same(X))).expect(max_graph_breaks=0, max_recompiles=0)


def test_a_function_of_torchs_that_the_user_compiles_is_the_users(measure):
    similarity = torch.compile(torch.nn.functional.cosine_similarity, backend="eager")
    measure(lambda: similarity(X, W)).expect(max_graph_breaks=0, max_recompiles=0)
    softmax = torch.compile(torch.nn.functional.gumbel_softmax, backend="eager")
    measure(lambda: softmax(X)).expect(max_graph_breaks=0, max_recompiles=0)


WRAPPERS = {
    "cond": lambda a: torch.cond(a.sum() > 0, torch.sin, torch.cos, (a,)),
    "while_loop": lambda a: torch._higher_order_ops.while_loop(
        lambda i, _a: i < 2, lambda i, a: (i + 1, a.sin()), (torch.tensor(0), a)
    ),
}


@pytest.mark.parametrize("limit", ["max_graph_breaks", "max_recompiles"])
@pytest.mark.parametrize("operator", WRAPPERS)
def test_what_torch_compiles_for_itself_is_no_compiled_code_of_the_users(measure, operator, limit):
    profile = measure(lambda: WRAPPERS[operator](X))
    assert misses(profile, **{limit: 0}).seen == (NothingWasCompiled(),)


def test_what_torch_compiles_for_itself_beside_compiled_code_changes_nothing(measure):
    one = torch.compile(lambda a: a.sin(), backend="eager")
    measure(lambda: (one(X), WRAPPERS["cond"](X))).expect(max_graph_breaks=0, max_recompiles=0)


def reset(_f):
    torch._dynamo.reset()


def clear(_f):
    torch._dynamo.utils.clear_compilation_metrics()


def clear_all(_f):
    torch._dynamo.utils.clear_compilation_metrics()
    torch._dynamo.utils.counters.clear()


@pytest.mark.parametrize("limit", ["max_graph_breaks", "max_recompiles"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("cleared", [clear, clear_all])
def test_records_that_the_measured_code_clears_are_not_measured(measure, cleared, when, limit):
    one = torch.compile(lambda a: a.sin(), backend="eager", dynamic=False)
    sizes = iter(range(2, 99))

    def code():
        if when == "before":
            cleared(one)
        one(torch.ones(next(sizes)))
        if when == "after":
            cleared(one)

    assert judged(measure(code), **{limit: 0}) in ("missed", "not measured")


# -------------------------------------------------------------------------------------------------------- threads


THREADED = """
import threading

def broken(a):
    a = a.sin()
    torch._dynamo.graph_break()
    return a.cos()

f = torch.compile(broken, backend="eager")
g = torch.compile(lambda a: a.sin(), backend="eager")

def on_a_thread(code):
    thread = threading.Thread(target=code)
    thread.start()
    thread.join()

@pytest.mark.torchprof(device="cpu", {limit}=0)
def test_threaded():
    g(x)
    on_a_thread(lambda: f(x))
"""


@pytest.mark.parametrize("limit", ["max_graph_breaks", "max_recompiles"])
@pytest.mark.parametrize("earlier", ["", "def test_before(): f(x)\n"])
def test_compiled_code_on_another_thread_is_not_measured_whatever_ran_before(run_tests, limit, earlier):
    test = THREADED.format(limit=limit)
    head, mark, body = test.partition("@pytest.mark")
    result = run_tests(head + earlier + mark + body)
    result.assert_outcomes(failed=1, passed=1 if earlier else 0)
    result.stdout.fnmatch_lines(["*not measured*", "*another thread*"])


def test_a_thread_that_runs_no_compiled_code_hides_no_break(run_tests):
    result = run_tests(THREADED.format(limit="max_graph_breaks").replace("lambda: f(x)", "lambda: x.sin()"))
    result.assert_outcomes(passed=1)
