"""Kernels of CUDA graphs that are captured in the warm-up have the operators, ranges, modules and lines of the capture.

On torch 2.15, which has hooks for captures.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing

import pytest
import torch
from facts import misses, says, why_not
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import _get_current_dispatch_mode

import pytest_torchprof
from pytest_torchprof import NotMeasured, capture, gemm, mark, triton
from pytest_torchprof.cli import main
from pytest_torchprof.limits.seen import ForbiddenMatches
from pytest_torchprof.reasons.limits import RangeOfGraphUnknown
from pytest_torchprof.reasons.operators_untold import OperatorMatchUntold, OperatorUntold

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
    pytest.mark.skipif(
        not hasattr(torch.cuda.graphs, "register_graph_capture_start_hook"), reason="torch has no hooks for captures"
    ),
]


_TRITON = """
import triton
import triton.language as tl

@triton.jit
def twice(x, count: tl.constexpr):
    at = tl.arange(0, count)
    tl.store(x + at, tl.load(x + at) * 2)
"""

_REPLAYED = """
def test_it(torchprof):
    block = torch.nn.Sequential(torch.nn.Linear(64, 64)).cuda()
    x, graphs = torch.ones(8, 64, device="cuda"), []
    block(x)

    def call():
        if not graphs:
            graphs.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(graphs[0]):
                block(x)
        graphs[0].replay()

    with torch.no_grad():
        torchprof(call).expect(LIMIT)
"""


@pytest.fixture
def measured(tmp_path):
    """Return a function that measures two steps of a function after three warm-up calls, and returns the profile."""

    def measure(step):
        plan = capture.Plan(device="cuda:0", warmup=3, steps=2, record=frozenset(), nodeid="t.py::t", label=None)
        path = tmp_path / "t.json"
        with closing(capture.iterations(plan, path, lambda path: pytest_torchprof.load(path).doubt)) as iterations:
            for _ in iterations:
                step()
        return pytest_torchprof.load(path)

    return measure


def graphed(step):
    """Return a function that captures the step in its first call, and replays it in each."""
    graphs = []

    def call():
        if not graphs:
            graphs.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(graphs[0]):
                step()
        graphs[0].replay()

    step()
    return call


@pytest.fixture
def block():
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).cuda()


@pytest.fixture
def x():
    return torch.ones(2, 8, 64, device="cuda")


@pytest.fixture
def twice(tmp_path, monkeypatch):
    """A kernel of Triton's, which no operator launches; it reads the source of its functions from a file."""
    pytest.importorskip("triton")
    (tmp_path / "of_triton.py").write_text(_TRITON)
    monkeypatch.syspath_prepend(tmp_path)
    import of_triton

    yield lambda x: of_triton.twice[(1,)](x, x.numel())
    del sys.modules["of_triton"]


@torch.no_grad()
def test_operators_are_those_of_the_same_code_without_a_graph(measured, block, x):
    def step():
        block(x).softmax(-1)

    eager, replayed = measured(step), measured(graphed(step))
    assert replayed.kernels[0].in_graph
    assert replayed.kernels.names == eager.kernels.names
    # What relu calls launches its kernel, which nobody sees in a capture.
    inner = {"aten::clamp_min"}
    assert {name: calls for name, calls in eager.ops.items() if name not in inner} == replayed.ops
    products = [[(one.op_chain, one.op_shapes, one.op_dtypes, one.short) for one in found.kernels.matching(gemm())]
                for found in (eager, replayed)]  # fmt: skip
    assert products[0] == products[1]


@torch.no_grad()
def test_limits_on_operators_are_judged(measured, block, x):
    replayed = measured(graphed(lambda: block(x)))
    replayed.expect(ops={"aten::linear": 2}, forbid_ops=["aten::bmm"], kernels={gemm(op="addmm"): 2})
    assert misses(replayed, forbid_ops=["aten::addmm"]).seen == (ForbiddenMatches(2, "operator", "aten::addmm"),)
    assert says(why_not(lambda: replayed.expect(ops={"aten::clamp_min": (1, 3)})), OperatorUntold, kernels=1)


@torch.no_grad()
def test_ranges_and_modules_are_judged_and_shown(measured, block, x):
    def step():
        with record_function("outer"):
            with mark("inner"):
                y = block(x)
            y.softmax(-1)

    replayed = measured(graphed(step))
    assert [replayed.range(name).kernels for name in ("outer", "inner")] == [4, 3]
    shown = {line.split()[0] for line in replayed.table(by="module").split("\n") if line}
    assert {"Sequential_0", "Linear_0", "ReLU_0", "Linear_1"} < shown


def test_ranges_have_what_no_operator_launches(measured, twice, x):
    def step():
        with record_function("first"):
            x.sin()
            twice(x)
        twice(x)
        with record_function("last"):
            twice(x)
            x.cos()
            twice(x)
        twice(x)

    replayed = measured(graphed(step))
    assert [replayed.range(name).kernels for name in ("first", "last")] == [2, 3]


def test_what_a_function_of_the_users_may_have_launched_itself_is_not_known(measured, twice, x):
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            twice(x)
            return x.sin()

        @staticmethod
        def backward(_, grad):
            twice(grad)
            return grad.cos()

    def step():
        Doubled.apply(x.detach().requires_grad_()).sum().backward()

    replayed = measured(graphed(step))
    assert [kernel.op for kernel in replayed.kernels if kernel.name == "twice"] == [None, None]
    for limited in ("Doubled", "DoubledBackward"):
        why = why_not(lambda limited=limited: replayed.expect(kernels={triton(op=limited): 0}))
        assert says(why, OperatorMatchUntold, count=1, named=((1, "twice"),))
    replayed.expect(kernels={triton(op="aten::sin"): 0, triton(op="SumBackward0"): 0})


def test_the_backward_pass_has_its_operators(measured, block, x):
    def step():
        with record_function("train"):
            block(x).sum().backward()

    replayed = measured(graphed(step))
    replayed.expect(ops={"AddmmBackward0": 2}, forbid_ops=["aten::bmm"])
    assert replayed.range("train").kernels == replayed.kernels.count


@torch.no_grad()
@pytest.mark.parametrize("mode", ["reduce-overhead", "default"])
def test_compiled_code_has_the_operators_that_it_calls(measured, block, x, mode):
    compiled = torch.compile(lambda x: (block(x).sin() + 1).softmax(-1), mode=mode)

    def step():
        with record_function("compiled"):
            compiled(x)

    replayed = measured(graphed(step) if mode == "default" else step)
    assert replayed.compile.recompiles == ()
    assert replayed.range("compiled").kernels == replayed.kernels.count
    replayed.expect(ops={"aten::mm": 2}, forbid_ops=["aten::softmax"], cuda_graph=True)
    generated = [kernel for kernel in replayed.kernels if kernel.triton]
    assert [(kernel.op, kernel.capture_known) for kernel in generated] == [(None, True)] * 2


def test_looking_on_changes_nothing(measured, x):
    """Under a mode of torch's dispatcher gradients are not scattered and added in place, but copied."""

    def step():
        y = x.detach().requires_grad_()
        (y[0].sum() + y.gather(0, torch.zeros_like(x, dtype=torch.long)).sum()).backward()

    eager, replayed = measured(step), measured(graphed(step))
    assert replayed.kernels.names == eager.kernels.names


def test_numbers_beside_tensors_are_what_they_were(measured, x):
    def step():
        y = x.sigmoid() * 2 + 1
        y.mul_(0.5)

    eager, replayed = measured(step), measured(graphed(step))
    assert replayed.kernels.names == eager.kernels.names
    assert [kernel.op for kernel in replayed.kernels] == [kernel.op for kernel in eager.kernels]


def test_what_was_captured_before_the_measurement_is_not_known(measured, x):
    call = graphed(lambda: x.sin())
    call()
    replayed = measured(call)
    assert [kernel.name for kernel in replayed.kernels if "sin" in kernel.name]
    assert says(why_not(lambda: replayed.expect(forbid_ops=["aten::cos"])), OperatorUntold, kernels=1)


def test_what_is_captured_in_a_step_is_not_known(measured, x):
    x.sin()

    def capture_anew():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            x.sin()
        graph.replay()

    with pytest.raises(NotMeasured, match=r"\[operator-unknown\]"):
        measured(capture_anew).expect(forbid_ops=["aten::cos"])


def test_a_graph_that_is_captured_anew_is_not_what_it_was(measured, x):
    graph, calls = torch.cuda.CUDAGraph(), []

    def step():
        calls.append(x)
        if len(calls) == 1:
            with torch.cuda.graph(graph):
                torch.mul(x, x)
        elif len(calls) == 4:
            graph.reset()
            with torch.cuda.graph(graph):
                torch.multiply(x, x)
        graph.replay()

    torch.mul(x, x)
    replayed = [kernel for kernel in measured(step).kernels if kernel.in_graph]
    assert [(kernel.op, kernel.capture_known) for kernel in replayed] == [(None, False)]


def test_a_capture_that_fails_leaves_nothing_behind(measured, x):
    calls = []

    def step():
        calls.append(x)
        if len(calls) == 1:
            with pytest.raises(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
                x.sum().item()
        x.sin()

    assert measured(step).ops == {"aten::sin": 1}
    assert _get_current_dispatch_mode() is None


def test_what_ran_on_the_cpu_while_a_graph_was_captured_does_not_run_in_it(measured, x):
    def step():
        torch.ones(1).add(1).item()
        x.sin()

    measured(graphed(step)).expect(ops={"aten::sin": 1}, forbid_ops=["aten::add", "aten::item"])


def test_the_users_own_execution_trace_goes_on(measured, x, tmp_path):
    own = ExecutionTraceObserver().register_callback(str(tmp_path / "own.json"))
    own.start()
    replayed = measured(graphed(lambda: x.sin()))
    x.cos()
    own.unregister_callback()
    assert "aten::cos" in (tmp_path / "own.json").read_text()
    with pytest.raises(NotMeasured):
        replayed.expect(forbid_ops=["aten::cos"])


def test_a_missed_limit_names_module_and_line_inside_the_graph(run_tests):
    result = run_tests(_REPLAYED.replace("LIMIT", "max_kernels=0"))
    result.stdout.fnmatch_lines(["*aten::addmm*", "*test_*.py:* in call, Sequential_0.Linear_0*"])
    assert "execution_trace" not in result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        ("ops={'aten::addmm': 1}", 0),
        ("forbid_ops=['aten::bmm']", 0),
        ("forbid_ops=['aten::linear']", 1),
        ("ops={'aten::copy_': (1, 2)}", 1),
        ("ranges={'absent': {'max_kernels': 1}}", 3),
    ],
)
def test_a_kept_recording_is_judged_as_its_test_was(run_tests, tmp_path, limit, status):
    passed = status == 0
    run_tests(_REPLAYED.replace("LIMIT", limit), f"--torchprof-save={tmp_path}").assert_outcomes(
        passed=passed, failed=not passed
    )
    [kept] = (path for path in tmp_path.rglob("*.json.gz") if "stacks" not in path.name)
    assert main(["check", str(kept), "--limit", limit]) == status


@pytest.fixture
def exported(block, x, tmp_path):
    """Return a function that lets torch itself profile and export a replay, annotated as asked kernel by kernel.

    torch's ``mark_kernels`` makes such a mapping, from numbers that the driver tells; here the recording's own are taken.
    """

    @torch.no_grad()
    def export(*annotations, **options):
        replay = graphed(lambda: block(x))
        replay()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as session:
            replay()
            torch.cuda.synchronize()
        session.export_chrome_trace(str(tmp_path / "plain.json"))
        events = json.loads((tmp_path / "plain.json").read_text())["traceEvents"]
        nodes = sorted(event["args"]["graph node id"] for event in events if event.get("cat") == "kernel")
        told = {node: [annotation] for node, annotation in zip(nodes, annotations, strict=True) if annotation}
        path = tmp_path / "annotated.json"
        session.export_chrome_trace(str(path), cuda_graph_annotations=told, **options)
        return pytest_torchprof.load(path)

    return export


@pytest.mark.parametrize("lanes", ["none", "all"])
def test_annotations_that_torch_exports_are_read(exported, capsys, lanes):
    found = exported({"module_fqn": "0"}, {"name": "act", "stream": 61}, {"name": "aten::linear"}, graph_lanes=lanes)
    found.expect(ranges={"act (in CUDA graphs)": {"max_kernels": 1}}, kernels={gemm(op="linear"): (1, 2)})
    assert found.range("act (in CUDA graphs)").kernels == 1
    assert "0 (in CUDA graphs)" in found.table(by="module")
    assert misses(found, forbid_ops=["aten::linear"]).seen == (ForbiddenMatches(1, "kernel", "aten::linear"),)
    assert says(why_not(lambda: found.expect(forbid_ops=["aten::bmm"])), OperatorUntold, kernels=3)
    path = str(found.trace.path)
    assert main(["check", path, "--limit", 'ranges={"act (in CUDA graphs)": {"max_kernels": 0}}']) == 1
    assert main(["analyze", path, "--by", "range"]) == 0
    assert "act (in CUDA graphs)" in capsys.readouterr().out


def test_kernels_that_torch_exports_without_an_annotation_are_named(exported):
    found = exported({"name": "fc"}, None, {"name": "fc"})
    with pytest.raises(NotMeasured, match=r": 1 x .*clamp") as untold:
        found.expect(ranges={"fc (in CUDA graphs)": {"max_kernels": 2}})
    assert says(untold.value.reason, RangeOfGraphUnknown, operations=1)
