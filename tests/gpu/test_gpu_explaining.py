"""Lines and modules of what really ran on a GPU, after a missed limit."""

from __future__ import annotations

import re

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
]

MODEL = """
class MLP(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(64, 128)
        self.down = torch.nn.Linear(128, 64)

    def forward(self, x):
        h = self.up(x)
        h = torch.nn.functional.gelu(h)
        return self.down(h)

mlp, x = MLP().cuda(), torch.ones(64, 64, device="cuda")
"""


GELU = "h = torch.nn.functional.gelu(h)"


@pytest.fixture
def line(pytester):
    """Return a function that gives the place of a line of the test's file."""

    def find(code):
        lines = [line.strip() for line in (pytester.path / "test_it.py").read_text().splitlines()]
        return f"test_it.py:{lines.index(code) + 1} in"

    return find


@pytest.fixture
def told(run_tests, monkeypatch):
    """Return what the failure of a test of the model says with everything, its white space made one."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(source):
        result = run_tests(MODEL + source, "-vv", in_process=False)
        result.assert_outcomes(failed=1)
        return " ".join(result.stdout.str().split())

    return run


def place_of(op, text):
    """Return what stands below the raw name, an instance of a template, of the kernel that an operator launched."""
    return re.search(rf" {op} void at::native::.*?>\(int, .*?>\) (.*)", text)[1]


def test_kernels_of_the_gpu_have_module_and_line(told, line):
    text = told("@pytest.mark.torchprof(max_kernels=0)\ndef test_it():\n    mlp(x)\n")
    assert "aten::addmm" in text
    assert f"{line('h = self.up(x)')} forward, MLP_0.Linear_0" in text
    assert place_of("aten::gelu", text).startswith(f"{line(GELU)} forward, MLP_0 ")
    assert f"{line('return self.down(h)')} forward, MLP_0.Linear_1" in text


def test_kernels_of_a_backward_pass_are_placed_at_their_forward(told, line):
    text = told("@pytest.mark.torchprof(max_kernels=0)\ndef test_it():\n    mlp(x).sum().backward()\n")
    assert place_of("aten::gelu_backward", text).startswith(f"backward of {line(GELU)} forward, MLP_0 ")
    assert f"backward of {line('h = self.up(x)')} forward, MLP_0.Linear_0" in text


BACKWARD = {
    "function": """
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a.clone()
        @staticmethod
        def backward(ctx, gradient):
            return torch.cos(gradient)  # here
    Own.apply(w).sum().backward()
""",
    "hook": """
    y = torch.exp(w)
    y.register_hook(
        lambda gradient: torch.cos(gradient))  # here
    y.sum().backward()
""",
}
BODY = """
w = torch.ones(8, device="cuda", requires_grad=True)
@pytest.mark.torchprof(max_kernels=0)
def test_it():
"""


@pytest.mark.parametrize("source", BACKWARD.values(), ids=BACKWARD)
def test_python_of_a_backward_pass_has_its_own_line_on_autograds_thread(told, line, source):
    text = told(BODY + source)
    (code,) = [line.strip() for line in source.splitlines() if line.endswith("# here")]
    assert f"aten::cos {line(code)} " in text


def test_after_a_hook_autograds_thread_is_placed_at_the_forward_again(told, line):
    text = told(BODY + BACKWARD["hook"])
    assert f"backward of {line('y = torch.exp(w)')} test_it" in text


def test_autograds_thread_is_traced_no_longer_than_the_lines_are_looked_for(told):
    traced = """
    seen = []
    y = w.clone()
    y.register_hook(lambda gradient: seen.append(sys.gettrace()))
    y.backward(torch.ones_like(y))
    assert seen == [None]
"""
    text = told(
        "import sys\n"
        + BODY.replace("test_it()", "test_it(torchprof)").replace("max_kernels=0", "")
        + "    with pytest.raises(pytest_torchprof.LimitsMissed):\n"
        "        torchprof(lambda: w.clone().sum().backward()).expect(max_kernels=0)\n"
        + traced
        + "    assert False, 'done'\n"
    )
    assert "AssertionError: done" in text


def test_a_blocking_call_and_its_copy_have_operator_and_line(told, line):
    source = "@pytest.mark.torchprof(max_syncs=0, max_memcpys=0)\ndef test_it():\n    mlp(x).sum().item()\n"
    text = told(source)
    assert f"aten::_local_scalar_dense {line('mlp(x).sum().item()')} test_it" in text
    assert "aten::item, aten::_local" in text
    assert "Memcpy DtoH" in text


def test_with_a_cuda_graph_the_result_of_the_last_call_can_be_read(told):
    text = told(
        """
@pytest.mark.torchprof(max_kernels=0)
def test_it(torchprof):
    compiled = torch.compile(mlp, mode="reduce-overhead")
    with torch.no_grad():
        assert torchprof(compiled, x).result.cpu().shape == (64, 64)
"""
    )
    assert "limit missed: max_kernels" in text
    assert "lines: not known" not in text
