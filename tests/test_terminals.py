"""Each kind of failure on terminals of several widths: no line of ours is wider, whatever COLUMNS says."""

from __future__ import annotations

import re
import sys
from contextlib import chdir

import fresh
import pytest

pytestmark = [
    pytest.mark.any_torch,
    pytest.mark.skipif(sys.platform != "linux", reason="looked at on Linux"),
]
WIDTHS = (40, 80, 200)
BEFORE = """
import torch


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query_key_value_projection = torch.nn.Linear(32, 32)

    def forward(self, x):
        return torch.relu(self.query_key_value_projection(x))


def data_dependent(x):
    if x.sum() > 0:
        return torch.sin(x)
    return torch.cos(x)
"""
AFTER = BEFORE.replace("return torch.relu(", "return torch.sigmoid(x) * torch.nn.functional.softmax(", 1).replace(
    "projection(x))", "projection(x), -1).double()"
)
TESTS = """
import pytest
import torch
import model

cpu = pytest.mark.torchprof(device="cpu")
x = torch.ones(8, 32)
block = model.Attention()


@pytest.mark.torchprof(device="cpu", max_kernels=1, forbid_ops="softmax", forbid_kernels="fp64", kernels={"gemm bf16": 2})
def test_limits(torchprof):
    torchprof(block, x)


@cpu
def test_baseline(torchprof):
    torchprof(block, x)


@pytest.mark.torchprof(device="cpu", max_syncs=0, max_peak_memory="1GB")
def test_not_measured(torchprof):
    torchprof(block, x)


@pytest.mark.torchprof(device="cpu", max_graph_breaks=0)
def test_graph_break(torchprof):
    torchprof(torch.compile(model.data_dependent, backend="eager"), x)


@cpu
def test_expects(torchprof):
    torchprof(block, x).expect(max_kernels=0)


@cpu
def test_labels(torchprof):
    for label in ("prefill of the whole prompt, with its mask", "decode"):
        with torchprof.measure(label, max_kernels=0, forbid_ops="softmax") as m:
            for _ in m.steps():
                block(x)


@cpu
def test_ranges(torchprof):
    for number in range(3):
        with torchprof.measure(f"a range with a long name {number}"):
            block(x)
    with torchprof.limits(max_kernels=0):
        block(x)
"""

IN_RANKS = """
import pytest
import torch
import model

x = torch.ones(8, 32)


@pytest.mark.torchprof(device="cpu", ranks=2, max_kernels=1, forbid_kernels="softmax", kernels={"gemm bf16": 2})
def test_limits(torchprof):
    torchprof(model.Attention(), x)


@pytest.mark.torchprof(device="cpu", ranks=2, max_kernels=0)
def test_an_error(torchprof):
    raise ValueError("a sentence of many words that says what went wrong, on both of the ranks, and why that is so")
"""


ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PY_COLORS": "0", "CI": ""}
WORDS = ["-m", "pytest", "-p", "torchprof", "-p", "no:cacheprovider", "--disable-warnings"]


@pytest.fixture(scope="module")
def tests(tmp_path_factory):
    """Return the folder of the tests, with the baseline of a model that has changed since."""
    folder = tmp_path_factory.mktemp("tests")
    (folder / "model.py").write_text(BEFORE)
    (folder / "test_it.py").write_text(TESTS)
    with chdir(folder):
        written = fresh.run_pytest(*WORDS[2:], "-k", "baseline", "--torchprof-baseline=update", **ALONE)
    written.assert_outcomes(passed=1, deselected=6)
    (folder / "model.py").write_text(AFTER)
    return folder


def too_wide(lines, columns):
    """Return the lines from the failures on that are wider than the terminal, and are no line of the tests themselves."""
    failures = lines[next(at for at, line in enumerate(lines) if "= FAILURES =" in line) :]
    codes = [line for line in failures if re.search(r"\[[a-z]+-[a-z-]*$", line)]
    assert codes == [], "a code in brackets is broken"
    # What tests consist of is shown as it stands there, and what they raise as pytest shows it.
    whole = re.compile(r"^E +ValueError: ")
    written = {line.strip() for line in (TESTS + IN_RANKS + LOADS).splitlines()}
    others = [line for line in failures if not whole.search(line) and line.removeprefix(">").strip() not in written]
    return [line for line in others if len(line) > columns]


@pytest.mark.parametrize(("quiet", "widths"), [((), WIDTHS), (("-q",), (60, 120))], ids=["plain", "quiet"])
def test_no_line_of_a_failure_is_wider_than_the_terminal(tests, monkeypatch, quiet, widths):
    from terminals import on_terminal

    monkeypatch.chdir(tests)
    for columns in widths:
        status, lines = on_terminal([*WORDS, *quiet], columns, **ALONE)
        assert status == 1
        assert too_wide(lines, columns) == []


def test_in_a_narrow_terminal_what_went_stands_beside_what_came_and_each_label_above_its_limits(tests, monkeypatch):
    from terminals import on_terminal

    monkeypatch.chdir(tests)
    for columns in WIDTHS:
        _, lines = on_terminal([*WORDS, "-k", "baseline or labels"], columns, **ALONE)
        assert {line.lstrip()[:2] for line in lines if line.startswith("    ")} >= {"+ ", "- "}
        whole = " ".join(" ".join(lines).split())
        assert "prefill of the whole prompt, with its mask: 2 limits missed: max_kernels, forbid_ops" in whole
        assert "decode: 2 limits missed: max_kernels, forbid_ops" in whole
        assert "also: forbid_ops; 1 other measurement fails: decode" in whole
        # What is left out is counted by what it is.
        assert all("new" in line or "gone" in line for line in lines if "more lines (" in line)


def test_in_colour_a_line_that_the_summary_has_whole_is_not_written_again(tests, monkeypatch):
    from terminals import on_terminal

    monkeypatch.chdir(tests)
    _, lines = on_terminal([*WORDS, "-k", "labels", "--color=yes"], 200, **ALONE)
    (whole,) = [line for line in lines if "FAILED" in line]
    assert "1 other measurement fails: decode" in whole
    assert not [line for line in lines if "in full:" in line]
    _, lines = on_terminal([*WORDS, "-k", "labels", "--color=yes"], 80, **ALONE)
    assert [line for line in lines if "in full:" in line]


def test_no_line_of_a_failure_in_ranks_is_wider_than_the_terminal(pytester):
    from terminals import on_terminal

    pytester.makepyfile(model=AFTER, test_it=IN_RANKS)
    for quiet, columns in (([], 40), (["-q"], 60), ([], 200)):
        status, lines = on_terminal([*WORDS, *quiet], columns, **ALONE)
        assert status == 1
        assert sum(line.startswith("rank 1 of 2: ") for line in lines) == 2
        assert too_wide(lines, columns) == []


def test_no_line_about_another_commit_is_wider_than_the_terminal(tmp_path):
    from repository import AUTHOR, Repository, as_python
    from terminals import on_terminal

    tests = TESTS[: TESTS.index("@pytest")] + TESTS[TESTS.index("@cpu") : TESTS.index("@pytest", TESTS.index("@cpu"))]
    repository = Repository(tmp_path / "repository", {"model.py": BEFORE, "test_it.py": tests})
    repository.write({"model.py": AFTER})
    with chdir(repository.path):
        for columns in (40, 200):
            status, lines = on_terminal([*WORDS, "--torchprof-against=main"], columns, as_python, **ALONE, **AUTHOR)
            assert status == 1
            assert too_wide(lines, columns) == []
            beside = [line for line in lines if line.startswith(("torchprof:", "base "))]
            assert len(beside) >= 3
            assert max(map(len, beside)) <= columns


NAMES = (
    "nvjet_tst_128x64_64x6_2x1_v_bz_coopA_splitK_bias_relu_epilogue_with_a_long_tail_TNT",
    (
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>"
        "(cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8::Params)"
    ),
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, at::native::"
        "binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int, at::native::BinaryFunctor<float, float, float, "
        "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul>)"
    ),
    "batched_transpose_16x64_pack_1x4_ediv_1x2_half_of_a_library_that_writes_long_names",
)


def recording_with_lines():
    """Return a recording of kernels with names of a GPU's, each launched from four lines."""
    from builder import TraceBuilder

    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 1900)
    for number in range(4):
        for at, name in enumerate(NAMES):
            start = 10 + 400 * number + 90 * at
            builder.event("python_function", f"models/attention.py({number + 7}): forward", start, 80)
            builder.launched(name, start + 10)
        builder.module("Attention_0." * 12, 10 + 400 * number, 360)
    builder.sync(2000, 50)
    return builder


@pytest.mark.parametrize(
    "limit", ["forbid_kernels=*", "forbid_kernels=gemm", "only_kernels=softmax", "max_gpu_time=1us"]
)
def test_no_name_of_a_gpus_kernel_is_wider_than_the_terminal(tmp_path, limit):
    from terminals import on_terminal

    path = recording_with_lines().write(tmp_path / "t.json")
    for columns in (40, 80):
        status, lines = on_terminal(["-c", CHECK, "check", str(path), f"--limit={limit}"], columns)
        assert status == 1
        assert [line for line in lines if len(line) > columns] == []


CHECK = "import sys; from pytest_torchprof.cli import main; sys.exit(main())"


LOADS = """
from pytest_torchprof import load

def test_it():
    p = load("t.json")
    p.expect(forbid_kernels="transpose")
"""


@pytest.mark.parametrize("columns", [40, 80])
def test_a_name_of_a_gpus_kernel_stands_in_the_summary_with_its_line_alone(pytester, columns):
    from terminals import on_terminal

    recording_with_lines().write(pytester.path / "t.json")
    pytester.makepyfile(test_it=LOADS)
    status, lines = on_terminal(WORDS, columns, **ALONE)
    assert status == 1
    assert too_wide(lines, columns) == []
    (whole,) = re.findall(r"in full: +test_it: (.*?) ==", " ".join(" ".join(lines).split()))
    assert whole.startswith("forbid_kernels=transpose: 4 kernels match transpose; 4 x copy ")
    assert whole.endswith(", models/attention.py:7")


MISUSED = """
import pytest


@pytest.mark.torchprof(max_kernelz=3)
def test_of_a_long_name_that_is_misspelt():
    pass


@pytest.mark.torchprof(nonsense=3)
def test_of_no_keyword():
    pass
"""


@pytest.mark.parametrize("columns", [40, 80])
def test_a_keyword_that_there_is_not_is_refused_within_the_terminal_and_in_few_words(pytester, columns):
    from terminals import on_terminal

    pytester.makepyfile(test_it=MISUSED)
    status, lines = on_terminal(WORDS, columns, **ALONE)
    assert status == 4
    refused = lines[next(at for at, line in enumerate(lines) if line.startswith("ERROR: ")) :]
    assert [line for line in refused if len(line) > columns and "/" not in line and "::" not in line] == []
    assert sum("[unknown-keyword]" in line for line in refused) == 2
    assert "expected one of" not in " ".join(refused)
    assert len(" ".join(" ".join(refused).split())) < 350
