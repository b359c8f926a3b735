"""A text on kernels or operators never holds because the name that it asks for is shown only where more is known."""

from __future__ import annotations

import re
from functools import partial

import pytest
import torch
from builder import TraceBuilder
from facts import says, why_not
from test_forbidden_operators import outcome
from test_patterns import FLASH, FPROP, NVJET, SOFTMAX, kernel
from torch.nn import functional

from pytest_torchprof import LimitsMissed, UnknownLimit, family, load, profile
from pytest_torchprof.kernels.patterns import compile_pattern
from pytest_torchprof.kernels.reply import NO, NOT_KNOWN, YES
from pytest_torchprof.reasons.names_asked import PartOfOperators
from pytest_torchprof.reasons.operators_untold import NameOfOperator, OperatorRanWithoutKernel

pytestmark = pytest.mark.any_torch

OWN = "my_ns::thing_kernel(float*)"
REDUCE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<X>>(x)"
single, double = torch.randn(16, 16), torch.randn(16, 16, dtype=torch.float64)
picked = torch.arange(4)
query = torch.randn(1, 2, 8, 8)


def on_cpu(code):
    with torch.no_grad():
        return profile(code, device="cpu", warmup=0, steps=1)


@pytest.mark.parametrize(
    "text",
    [
        *("*gemm*", "gemm*", "re:gemm", "re:^gemm", "re:(?i)gemm|conv", "*conv*", "*softmax*", "*copy*", "*reduc*"),
        *("gem", "gemm fp64 *", "re:^gemm bf16 tn", "*all_reduce*", "fp64", "*fp64*"),
    ],
)
def test_what_a_kernel_of_no_known_family_would_be_called_is_not_known(text):
    assert compile_pattern(text).verdict(kernel(OWN)) is NOT_KNOWN


@pytest.mark.parametrize("text", ["*cutlass*", "gemm_v2", "re:^my_gemm", "*gemm bf16 thin_*", "re:^pointwise.*_fwd$"])
def test_what_it_would_not_be_called_whatever_it_is_does_not_match(text):
    assert compile_pattern(text).verdict(kernel(OWN)) is NO


def test_what_it_surely_is_not_is_no_part_of_its_name():
    # What aten::add launches is no product, whoever wrote it.
    added = kernel(OWN, op="aten::add")
    assert compile_pattern("*gemm*").verdict(added) is NO
    assert compile_pattern("*pointwise*").verdict(added) is NOT_KNOWN


def test_an_operator_of_ones_own_is_not_measured():
    @torch.library.custom_op("hidden::product", mutates_args=())
    def product(x: torch.Tensor) -> torch.Tensor:
        return torch.tensor([[sum(row)] for row in x.tolist()])

    found = on_cpu(lambda: product(single))
    for limits in ({"forbid_kernels": "*gemm*"}, {"forbid_kernels": "re:(?i)gemm|conv"}, {"kernels": {"*gemm*": 0}}):
        assert outcome(found, **limits) == "not measured", limits
    assert outcome(found, forbid_kernels=["*gemm_v2*", "re:^my_"]) == "holds"


@pytest.mark.parametrize(
    ("code", "missed", "held"),
    [
        (lambda: double.sum(), ["fp64", "*fp64*", "reduction fp64", "re:fp64"], ["bf16", "*fp32*", "int64"]),
        (lambda: double + 1, ["fp64", "*fp64*", "pointwise fp64"], ["bf16", "int64"]),
        (lambda: double * double, ["fp64", "FP64", "double", "float64"], ["bf16", "BF16", "bfloat16"]),
        (lambda: single.sum(), ["fp32"], ["fp64", "*fp64*", "bf16"]),
        (lambda: functional.embedding(picked, single), ["fp32"], ["fp64", "int64"]),
        (lambda: functional.layer_norm(single @ single, (16,)).argmax(-1), ["fp32"], ["fp64", "bf16", "fp16"]),
    ],
)
def test_a_type_that_the_operands_tell_is_known(code, missed, held):
    found = on_cpu(code)
    for text in missed:
        assert outcome(found, forbid_kernels=text) == "missed", text
    found.expect(forbid_kernels=held)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (lambda: single.half(), "fp16"),
        (lambda: single.sum(dtype=torch.float64), "fp64"),
        # Of integers this makes what torch's default type is.
        (lambda: torch.arange(4) / 2, "fp64"),
    ],
)
def test_a_type_that_nothing_tells_is_not_measured(code, text):
    assert outcome(on_cpu(code), forbid_kernels=text) == "not measured"


def rotated(x):
    """Return what rotary embeddings do: two halves are exchanged, joined, and used."""
    return torch.cat([-x[..., 8:], x[..., :8].contiguous()], dim=-1) * x


def test_joined_tensors_are_of_a_type_that_those_who_use_them_show():
    found = on_cpu(lambda: rotated(single))
    found.expect(forbid_kernels=["fp64", "*fp64*", "bf16", family("copy", dtype="fp64")])
    for limits in ({"forbid_kernels": "fp64"}, {"forbid_kernels": family("copy", dtype="fp64")}):
        # Nobody uses these: that they are joined tells it, as far as the recording keeps what is in lists.
        assert outcome(on_cpu(lambda: (single + 1, torch.cat([double, double]))), **limits) == "missed"
    assert outcome(on_cpu(lambda: rotated(double)), forbid_kernels="fp64") == "missed"


def test_a_librarys_operator_is_none_without_its_namespace_either():
    attended = kernel(NVJET, op="vllm::unified_attention")
    assert compile_pattern("unified_attention").verdict(attended) is NOT_KNOWN
    assert compile_pattern("vllm::unified_attention").verdict(attended) is NOT_KNOWN
    assert compile_pattern("attend").verdict(attended) is NO


@pytest.mark.parametrize(
    ("dtypes", "verdict"), [(("double", "ScalarList"), YES), (("float", "ScalarList"), NO), (None, NOT_KNOWN)]
)
def test_neither_is_it_where_kernels_are_launched(dtypes, verdict):
    reduced = kernel(REDUCE, op="aten::sum", dtypes=dtypes)
    assert compile_pattern("fp64").verdict(reduced) is verdict
    assert family("reduction", dtype="fp64").verdict(reduced) is verdict


@pytest.mark.parametrize("op", ["aten::cudnn_convolution", None])
def test_what_computes_where_the_operands_of_a_convolution_lie_computes_in_whole_numbers(op):
    offsets = kernel("cask_cudnn::computeBOffsetsKernel(cask_cudnn::ComputeBOffsetsParams)", op=op)
    for text in ("fp64", "*bf16*", "fp32"):
        assert compile_pattern(text).verdict(offsets) is NO


def test_the_size_of_an_element_tells_which_types_it_is_not(tmp_path):
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 1000)
    joins = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<4u>, unsigned int, 2, 64, 64>(x)"
    builder.launched(joins, 100, op="aten::cat", inputs=[((8, 8), (8, 1), "TensorList")])
    builder.sync(900, 20)
    found = load(builder.write(tmp_path / "joined.json"))
    found.expect(forbid_kernels=["fp64", "bf16", "*int64*"])
    assert outcome(found, forbid_kernels="fp32") == "not measured"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (lambda: single @ single, ["matmul", "*matmul*", "aten::matmul"]),
        (lambda: functional.linear(single, single), ["linear", "aten::linear"]),
        (lambda: torch.nn.Conv1d(16, 16, 1)(single[None]), ["convolution", "conv1d"]),
        (
            lambda: functional.scaled_dot_product_attention(query, query, query),
            ["scaled_dot_product_attention", "sdpa"],
        ),
        (lambda: functional.dropout(single), ["dropout"]),
        (lambda: functional.embedding(torch.arange(4), single), ["embedding"]),
    ],
)
def test_an_operator_is_no_kernel_with_its_namespace_or_without(code, words):
    found = on_cpu(code)
    for word in words:
        assert says(why_not(partial(found.expect, forbid_kernels=word)), NameOfOperator)
        assert outcome(found, kernels={word: 0}) == "not measured"
    found.expect(forbid_kernels=["layer_norm", "aten::layer_norm", "gelu"])


def test_neither_is_it_in_recordings_of_gpus(shared_trace):
    found = load(shared_trace("h100_bert_small"))
    for word in ("matmul", "linear", "aten::linear"):
        assert outcome(found, forbid_kernels=word) == "not measured", word
    found.expect(forbid_kernels=["conv2d", "dropout_backward"])


@pytest.mark.parametrize(("word", "name"), [("matmul", NVJET), ("sdpa", FLASH), ("*convolution*", FPROP)])
def test_the_operators_word_stands_for_whatever_does_the_same(word, name):
    # nn.Linear runs no aten::matmul; inside a graph replay there is no operator.
    assert compile_pattern(word).verdict(kernel(name)) is NOT_KNOWN
    assert compile_pattern(word).verdict(kernel(SOFTMAX)) is NO


def test_a_bare_word_that_a_graphs_kernels_do_not_hold_is_a_piece_of_a_name():
    assert compile_pattern("aten::linear").verdict(kernel(NVJET)) is NOT_KNOWN
    assert compile_pattern("linear").verdict(kernel(NVJET)) is NO


def test_an_operator_that_ran_and_is_no_kernel_is_not_measured():
    found = on_cpu(lambda: (single + 1).sum().item())
    for limits in (
        {"forbid_kernels": "aten::item"},
        {"forbid_kernels": "aten::_local_scalar*"},
        {"kernels": {"aten::item": 0}},
    ):
        assert says(why_not(partial(found.expect, **limits)), OperatorRanWithoutKernel)
    # A word may be a piece of a kernel's name, of which none has this one.
    found.expect(forbid_kernels=["item", "aten::mul"])
    assert outcome(found, forbid_kernels="aten::add") == "missed"


@pytest.mark.parametrize(
    ("code", "word", "meant"),
    [
        (lambda: torch.nn.Conv2d(1, 2, 3)(single[None, None]), "conv", "aten::conv2d"),
        (lambda: functional.max_pool2d(single[None], 2), "pool", "aten::max_pool2d"),
    ],
)
def test_a_part_of_an_operators_word_is_not_measured_with_the_operators_that_ran(code, word, meant):
    found = on_cpu(code)
    for limits in ({"forbid_ops": word}, {"ops": {word: 0}}, {"forbid_kernels": family("sort", op=word)}):
        reason = why_not(partial(found.expect, **limits))
        assert says(reason, PartOfOperators, written=word)
        assert meant in str(reason)
    assert outcome(found, forbid_ops=meant) == "missed"


def test_what_is_an_operators_name_is_no_part_of_others():
    # aten::mm is one, and aten::addmm another; of what did not run each word holds.
    found = on_cpu(lambda: torch.addmm(single, single, single))
    found.expect(forbid_ops=["mm", "conv", "pool", "norm"])
    with pytest.raises(LimitsMissed):
        found.expect(forbid_ops="addmm")


@pytest.mark.parametrize("word", ["cast", "type", "astype"])
def test_words_for_conversions_are_refused_with_what_a_recording_has(word):
    with pytest.raises(UnknownLimit, match=re.escape("a conversion is 'aten::_to_copy'")):
        on_cpu(lambda: (single + 1).half()).expect(forbid_ops=word)
    assert str(compile_pattern(word)) == word
