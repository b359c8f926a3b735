"""Whatever a table calls a kernel can be written as a pattern: it matches, or is refused with what is meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import SHARED_TRACES
from facts import LEFT_OUT, says, why_refused
from test_patterns import AMPERE, FLASH, NVJET, POINTWISE, SOFTMAX, SPLIT_K, kernel

from pytest_torchprof import Kernels, UnknownLimit, load
from pytest_torchprof.cli import main
from pytest_torchprof.kernels.patterns import Pattern, compile_pattern
from pytest_torchprof.kernels.reply import NO, NOT_KNOWN, YES
from pytest_torchprof.reasons.wrong_patterns import NotSpelledSo, OfOtherLimit, Spelling

pytestmark = pytest.mark.any_torch

OWN = sorted((Path(__file__).parent / "recordings").glob("*.json.gz"))
# Names are shown and forbidden alike in recordings of any size.
SHARED = [path for path in sorted(SHARED_TRACES.glob("*.json.gz")) if not path.name.startswith(LEFT_OUT)]
LONG = "my_kernel_that_reads" + "_and_reads_again" * 5 + "_and_writes"
GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#1}>(int)"


@pytest.mark.parametrize(
    ("text", "name", "verdict"),
    [
        ("attention", FLASH, YES),
        ("attention bf16 flash", FLASH, YES),
        ("Attention", FLASH, YES),
        ("GEMM", NVJET, YES),
        ("gemm", AMPERE, YES),
        ("gemm bf16 tn", NVJET, YES),
        ("gemm bf16", NVJET, YES),
        ("gemm fp32", NVJET, NO),
        ("softmax", SOFTMAX, YES),
        ("pointwise", GELU, YES),
        ("gelu", GELU, YES),
        # Inductor's kernels are shown without their family.
        ("pointwise", POINTWISE, YES),
        ("communication all_reduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", YES),
        ("communication all_gather", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", NO),
        ("cublas", NVJET, YES),
        ("cudnn", NVJET, NO),
        # A glob and an expression are on the whole of either name.
        ("gemm bf16 *", NVJET, YES),
        ("gemm", SPLIT_K, NO),
        ("gem?", NVJET, NO),
        ("re:^gemm bf16 tn", NVJET, YES),
        ("re:^nvjet", NVJET, YES),
        ("attention", NVJET, NO),
    ],
)
def test_a_text_asks_for_the_raw_name_and_for_the_shown_one(text, name, verdict):
    assert compile_pattern(text).verdict(kernel(name)) is verdict


@pytest.mark.parametrize(
    ("text", "verdict"), [("gemm", YES), ("gemm bf16", NOT_KNOWN), ("gemm bf16 tn", NOT_KNOWN), ("pointwise fp64", NO)]
)
def test_the_words_of_a_shown_name_are_asked_of_what_is_known(text, verdict):
    """A product whose dtype nobody knows may be the one that is forbidden."""
    assert compile_pattern(text).verdict(kernel("gemm_kernel")) is verdict


def test_three_dots_stand_for_what_a_table_has_left_out():
    one = kernel(LONG)
    assert "..." in one.short
    for text in (one.short, one.short[:-5], "my_kernel...writes", "kernel_that...again", "my_*...writes"):
        assert compile_pattern(text).verdict(one) is YES, text
    assert compile_pattern("my_kernel...start").verdict(one) is NO
    assert compile_pattern("...kernel*...again").verdict(one) is NO


def test_what_a_terminal_cannot_show_matches_as_it_is_shown():
    assert compile_pattern("my\\x1b[31mkernel").verdict(kernel("my\x1b[31mkernel")) is YES


@pytest.mark.parametrize(
    ("text", "how", "meant"),
    [
        ("gemm ", Spelling.BLANK_BEHIND, ["gemm"]),
        (" gemm", Spelling.BLANK_BEFORE, ["gemm"]),
        ("gemm, conv", Spelling.SEVERAL, ["gemm", "conv"]),
        ("gemm,conv*", Spelling.SEVERAL, ["gemm", "conv*"]),
        ("gemm,", Spelling.SEVERAL, ["gemm"]),
        ("gemm,,conv", Spelling.SEVERAL, ["gemm", "conv"]),
        ("gemm|conv", Spelling.SEVERAL, ["gemm", "conv"]),
        ("'gemm'", Spelling.QUOTED, ["gemm"]),
        ('["gemm", "conv"]', Spelling.LIST, []),
        ("12 x attention bf16 flash_fwd_kernel", Spelling.COUNT, ["attention bf16 flash_fwd_kernel"]),
        ("pointwise fill [2]", Spelling.NUMBER, ["pointwise fill"]),
        ("pointwise ver...[2]", Spelling.NUMBER, ["pointwise ver..."]),
        ("...", Spelling.NOTHING, []),
        ("aten::", Spelling.NAMESPACE, ["aten::"]),
        ("aten::mm.default", Spelling.OVERLOAD, ["aten::mm"]),
        ("mm.default", Spelling.OVERLOAD, ["mm"]),
        ("add.Tensor", Spelling.OVERLOAD, ["add"]),
        ("aten.clamp_min", Spelling.OPERATOR, ["aten::clamp_min"]),
        ("aten.clamp_min.default", Spelling.OPERATOR, ["aten::clamp_min"]),
        ("torch.clamp_min", Spelling.OPERATOR, ["aten::clamp_min"]),
        ("torch.float64", Spelling.TYPE, ["fp64"]),
        ("torch.ops.aten.mm", Spelling.OPERATOR, ["aten::mm"]),
        ("F.relu", Spelling.OPERATOR, ["aten::relu"]),
        ("nn.LayerNorm", Spelling.OPERATOR, ["aten::layer_norm"]),
        ("dist.all_reduce", Spelling.OF_SELECTOR, ["all_reduce"]),
        ("x.item()", Spelling.OPERATOR, ["aten::item"]),
        ("x.float()", Spelling.READS, ["float"]),
        ("x.cpu()", Spelling.CONVERTS, ["cpu"]),
        ("x.numpy()", Spelling.ON_HOST, ["numpy"]),
        ("torch.cuda.synchronize()", Spelling.WAITS, ["synchronize"]),
    ],
)
def test_what_no_kernel_is_called_is_refused_with_what_is_meant(text, how, meant):
    why = why_refused(lambda: compile_pattern(text))
    assert says(why, NotSpelledSo, written=text, of_operator=False, how=how, names=tuple(meant))
    assert why.code == "bad-pattern"


@pytest.mark.parametrize(
    ("text", "limit"), [("memcpy", "max_memcpys"), ("*Memset*", "max_memsets"), ("HtoD", "max_memcpys")]
)
def test_what_is_no_kernel_is_refused_with_its_own_limit(text, limit):
    assert says(why_refused(lambda: compile_pattern(text)), OfOtherLimit, written=text, limit=limit)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "Array<char*, 3>",
            "64, 128, 128, 4, false",
            "float, float",
            "void gemm(float*)",
            "at::native::gelu",
            "at::native::",
        ),
        *(
            "std::array<char *, 2ul>",
            "(anonymous",
            "vllm::rms_norm_kernel<float",
            "memcpy32_post",
            "operator()",
            "a[2]",
            "x",
        ),
    ],
)
def test_a_piece_of_a_name_of_cpp_is_none_of_these(text):
    assert str(compile_pattern(text)) == text


def shown(path: Path, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what the command's table calls the kernels of a recording."""
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["analyze", str(path), "--top", "100000", "--no-findings"]) == 0
    table = re.search(r"^kernel.*\n(-+)  .*\n((?:.+\n)*)", capsys.readouterr().out, re.MULTILINE)
    if table is None:
        return []
    rows = [line for line in table[2].splitlines() if not line.startswith(("no room", "  "))]
    return list(dict.fromkeys(row[: len(table[1])].strip() for row in rows))


def pattern_of(name: str) -> Pattern:
    """Return the pattern of a name, without the number behind it that the refusal of it leaves out."""
    try:
        return compile_pattern(name)
    except UnknownLimit as refused:
        why = refused.reason
        return compile_pattern(why.names[0] if says(why, NotSpelledSo, how=Spelling.NUMBER) else name)


@pytest.mark.parametrize("path", [*OWN, *SHARED], ids=lambda path: path.name[:40])
def test_no_name_that_is_shown_can_be_forbidden_in_vain(path, monkeypatch, capsys):
    """Those of the table, of failures, of profiles; and the word of each family."""
    profiles = load(path)
    profile = profiles[0] if isinstance(profiles, list) else profiles
    ran = list({(one.name, one.decoded.titles): one for step in profile.steps for one in step.kernels}.values())
    kernels = Kernels(lambda: ran, len(ran))
    own = {name: one for one in ran for name in (one.short, one.name) if name}
    for name, one in own.items():
        assert pattern_of(name).verdict(one).may_be, name
    for name in shown(path, 110, monkeypatch, capsys):
        if name not in own:
            found = pattern_of(name)
            assert any(found.verdict(one).may_be for one in ran), name
    for word in {one.family for one in ran if one.family}:
        assert word in kernels
