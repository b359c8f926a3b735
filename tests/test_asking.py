"""What a test asks for: refused before it runs where it cannot be meant, and answered in the words it asked in."""

from __future__ import annotations

import math

import pytest

from pytest_torchprof import UnknownLimit
from pytest_torchprof.limits import LIMITS, read_limits
from pytest_torchprof.limits.seen import CarriedByNone

pytestmark = pytest.mark.any_torch

BODY = "\ndef test_it():\n    raise AssertionError('not refused')\n"


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ("max_kernels=3, min_kernels=9", "max_kernels=3 and min_kernels=9 cannot both hold"),
        (
            "kernels=['sin', 'cos'], forbid_kernels='cos'",
            "'cos' stands in kernels and in forbid_kernels* [[]contradiction[]]",
        ),
        (
            "kernels={gemm(): 2}, forbid_kernels=[gemm()]",
            "gemm() stands in kernels and in forbid_kernels* [[]contradiction[]]",
        ),
        ("ops='mm', forbid_ops=['mm']", "'mm' stands in ops and in forbid_ops* [[]contradiction[]]"),
        ("kernels=gemm", "kernels=gemm is a function; call it: kernels=gemm()"),
        ("forbid_kernels=[family]", "forbid_kernels=[[]family]: family is the * call it: family('reduction')"),
        ("kernels={triton: 2}", "triton is the function* call it: triton() [[]bad-pattern]"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_collection(run_tests, limits, text):
    result = run_tests(
        f"from pytest_torchprof import family, gemm, triton\n@pytest.mark.torchprof(device='cpu', {limits}){BODY}"
    )
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*torchprof marker: *{text}*"])


ODD = (
    None, True, -1, 1.5, 2**70, math.inf, math.nan, "", " ", "[", "re:(", "range:", "9" * 400, "9" * 400 + "ms", "9" * 400 + "MB",
    b"x", 1j, len, object, [], {}, set(), [[]], [["a"]], [{"a": 1}], ["a", ["b"]], ["a", None], {"a": {}}, {"a": [1]}, {"a": -1},
    {1: 1}, {(1,): 1}, {"a": {"kernels": [[1]]}}, {"a": {"max_syncs": 0, "allow_syncs": {}}},
)  # fmt: skip
WORDS = sorted({name for limit in LIMITS for name in (limit.name, *(one.name for one in limit.settings))})


@pytest.mark.parametrize("word", WORDS)
def test_a_value_of_any_kind_is_read_or_refused_with_the_word(word):
    said = [text for value in ODD if (text := refusal(word, value)) is not None]
    assert said
    assert all(text.startswith(f"{word}=") for text in said)


def refusal(word, value):
    try:
        read_limits({"max_syncs": 0, "max_memcpys": 0, "max_graph_breaks": 0, "forbid_ops": "aten::mm", word: value})
    except UnknownLimit as problem:
        return str(problem)
    return None


@pytest.mark.parametrize(
    "limits",
    [
        "max_kernels=3, min_kernels=3",
        "kernels={'cos': 0, 'sin': 1}, forbid_kernels='cos'",
        "kernels='sin', forbid_kernels='si[n]'",
        "kernels={'sin': (0, 2)}, forbid_kernels='cos'",
    ],
)
def test_limits_that_can_hold_together_are_taken(run_tests, limits):
    marker = f"@pytest.mark.torchprof(device='cpu', {limits})"
    run_tests(
        f"{marker}\ndef test_it():\n    torch.sin(x); torch.sin(x); torch.sin(x)\n", "--collect-only"
    ).assert_outcomes()


def test_a_measurements_own_limit_may_contradict_the_markers(run_tests):
    result = run_tests(
        """
@pytest.mark.torchprof(device="cpu", min_kernels=9)
def test_it(torchprof):
    with torchprof.measure("few", max_kernels=3) as m:
        for _ in m.steps():
            torch.sin(x)
"""
    )
    result.stdout.fnmatch_lines(["*UnknownLimit: max_kernels=3 and min_kernels=9 cannot both hold*"])


@pytest.mark.parametrize(
    ("limits", "advice"),
    [
        ("max_kernel=5", "unknown keyword 'max_kernel'; did you mean 'max_kernels'?"),
        ("max_time=5", "unknown keyword 'max_time'; did you mean 'max_gpu_time'?"),
        (
            "kernel_limit=5",
            "unknown keyword 'kernel_limit'; *`pytest --markers`*, such as kernels; *",
        ),
        ("forbid='slow'", "'slow' is no finding; expected one of *launch-gaps*"),
    ],
)
def test_a_word_is_suggested_only_where_it_is_near(run_tests, limits, advice):
    result = run_tests(f"@pytest.mark.torchprof(device='cpu', {limits}){BODY}")
    result.stderr.fnmatch_lines([f"*{advice}*"])


@pytest.mark.parametrize(("tokens", "carried"), [("'gelu'", ("gelu",)), ("['gelu', 'mul']", ("gelu", "mul"))])
def test_fused_on_eager_code_says_that_nothing_was_compiled(run_tests, tokens, carried):
    result = run_tests(
        f"""
@pytest.mark.torchprof(device="cpu", fused={tokens})
def test_it():
    torch.nn.functional.gelu(x) * 2
"""
    )
    result.stdout.fnmatch_lines([f"*{CarriedByNone(carried, compiled=False)} in step*"])


def test_what_cannot_be_told_names_the_kernels(run_tests):
    result = run_tests(
        """
from pytest_torchprof import family
numbers = torch.arange(8)
@pytest.mark.torchprof(device="cpu", forbid_kernels=family("pointwise", dtype="fp64"))
def test_told():
    torch.where(numbers > 3, torch.sin(x) * 2.0 + 1, 0.0)

@pytest.mark.torchprof(device="cpu", forbid_kernels=family("pointwise", dtype="fp64"))
def test_untold():
    torch.sin(x)
    numbers / 2
"""
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*for 1 kernel*[[]match-unknown]*", "*1 x pointwise div*"])
    assert "sin" not in "".join(line for line in result.stdout.lines if " x " in line)


def test_a_recompile_of_torchs_own_code_is_placed_where_the_user_calls_it(run_tests):
    result = run_tests(
        """
layer = torch.compile(torch.nn.Linear(4, 4), dynamic=False, backend="eager")
rows = iter(range(2, 20))

@pytest.mark.torchprof(device="cpu", max_recompiles=0, warmup=1, steps=2)
def test_it():
    layer(torch.ones(next(rows), 4))  # here
""",
        in_process=False,
    )
    result.stdout.fnmatch_lines(["*max_recompiles=0 *recompile*", "*test_it.py:11 in test_it: *"])


PLAIN = """
import asyncio, unittest

seen = []

@pytest.fixture
def numbers():
    return (n for n in range(3))

@pytest.mark.torchprof(max_kernels=0, device="cuda:7")
async def test_coroutine():
    seen.append("coroutine")

@pytest.mark.torchprof(max_kernels=0)
def test_generator(numbers):
    assert list(numbers) == [0, 1, 2]

@pytest.mark.torchprof(max_kernels=0)
def test_fixture(torchprof):
    def generate():
        yield 1
    assert list(torchprof(generate).result) == [1]

@pytest.mark.torchprof(max_kernels=0)
class TestCase(unittest.IsolatedAsyncioTestCase):
    async def test_it(self):
        seen.append("unittest")

def test_seen():
    assert seen == ["coroutine", "unittest"]
"""


def test_when_off_every_marked_test_runs_once_and_plainly(run_tests, pytester):
    # What an asyncio plugin does.
    pytester.makeconftest(
        """
import asyncio, inspect, pytest

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        asyncio.run(pyfuncitem.obj())
        return True
"""
    )
    run_tests(PLAIN, "--torchprof=off").assert_outcomes(passed=5)
