"""What the launching operator adds to a kernel's name, and where the two contradict each other."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from pytest_torchprof import load
from pytest_torchprof.kernels.operands import Launch, complete

pytestmark = pytest.mark.any_torch

SHARED = Path(__file__).parents[2] / "shared" / "traces"
needs_recordings = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared recordings are not here")

AMPERE = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
COPY = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::direct_copy_kernel_cuda(x)::{lambda(float)#1}>(int)"
)
BF16, FLOAT = "c10::BFloat16", "float"


def mm(dtype=BF16, shapes=((64, 32), (32, 16)), strides=((32, 1), (1, 32)), op="aten::mm", **more):
    """Return the launch of one product; the default strides are nn.Linear's: layout tn."""
    return Launch(op=op, op_chain=(op,), dtypes=(dtype, dtype), shapes=shapes, strides=strides, **more)


def test_what_both_tell_alike_stays():
    """Name and operator agree on dtype and layout."""
    found = complete(AMPERE, mm())
    assert (found.dtype, found.layout) == ("bf16", "tn")


def test_the_operator_completes_what_the_name_leaves_open():
    """oneDNN's name says nothing; a CK GEMM's neither."""
    found = complete("gemm_kernel", mm())
    assert (found.family, found.dtype, found.layout) == ("gemm", "bf16", "tn")
    assert complete("gemm_kernel", mm(strides=((1, 64), (16, 1)))).layout == "nt"
    assert complete("attn_fwd", Launch(op="aten::_flash_attention_forward", dtypes=(BF16, BF16, BF16))).dtype == "bf16"


def test_a_contradiction_is_none_of_the_two():
    """A bf16 kernel under fp16 operands, a tn kernel under nn strides: neither is reported."""
    assert complete(AMPERE, mm(dtype="c10::Half")).dtype is None
    assert complete(AMPERE, mm(strides=((32, 1), (16, 1)))).layout is None


def test_float_operands_confirm_tf32_and_never_decide_it():
    """The operator cannot tell fp32 from tf32: it confirms either, and completes only a kernel without tensor cores."""
    tf32 = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4>(P)"
    assert complete(tf32, mm(dtype=FLOAT)).dtype == "tf32"
    assert complete("ampere_sgemm_128x64_tn", mm(dtype=FLOAT)).dtype == "fp32"
    assert complete("gemm_kernel", mm(dtype=FLOAT)).dtype is None
    assert complete("aten::mm", mm(dtype=FLOAT)).dtype == "fp32", "the CPU has no tensor cores"


@pytest.mark.parametrize("shapes", [((1, 32), (32, 16)), ((64, 1), (1, 16)), ((64, 32), (32, 1))])
def test_a_size_of_one_leaves_the_name_as_it_is(shapes):
    """Where M, N or K is 1 a stride means nothing."""
    assert complete(AMPERE, mm(shapes=shapes, strides=((32, 1), (16, 1)))).layout == "tn"


def test_an_operand_without_unit_stride_says_nothing():
    """Such an operand was copied before the product."""
    assert complete(AMPERE, mm(strides=((64, 2), (1, 32)))).layout == "tn"


def test_batched_products_and_products_with_a_bias_have_their_operands_elsewhere():
    """bmm's last two dimensions count; addmm's operands are its second and third inputs."""
    batched = mm(op="aten::bmm", shapes=((8, 64, 32), (8, 32, 16)), strides=((2048, 32, 1), (512, 16, 1)))
    assert complete("gemm_kernel", batched).layout == "nn"
    addmm = Launch(
        op="aten::addmm",
        dtypes=(FLOAT, BF16, BF16, "Scalar"),
        shapes=((16,), (64, 32), (32, 16), ()),
        strides=((1,), (32, 1), (1, 32), ()),
    )
    found = complete("gemm_kernel", addmm)
    assert (found.dtype, found.layout) == ("bf16", "tn")


def test_one_product_that_runs_as_several_kernels_is_one_gemm_and_helpers():
    """The split-K reduction and the bias copy are named for what they do; they are no products."""
    chain = ("aten::linear", "aten::addmm")
    reduce = complete("void splitKreduce_kernel<32, 16, int, float>(x)", Launch(op="aten::addmm", op_chain=chain))
    assert (reduce.family, reduce.helper) == ("reduction", "split-k reduce")
    bias = complete(COPY, Launch(op="aten::copy_", op_chain=(*chain, "aten::copy_")))
    assert (bias.family, bias.helper) == ("copy", "bias copy")
    operand = complete(COPY, Launch(op="aten::copy_", op_chain=(*chain, "aten::clone", "aten::copy_")))
    assert operand.helper == "operand copy"
    assert complete(COPY, Launch(op="aten::copy_", op_chain=("aten::to", "aten::copy_"))).helper is None


def test_a_nameless_triton_kernel_takes_what_its_range_says():
    """With unique_kernel_names off only the CPU range has the descriptive name."""
    found = complete("triton__0d1d2de", Launch(op="triton_poi_fused_add_mul_3"))
    assert (found.family, found.triton, found.triton_ops, found.triton_index) == ("pointwise", "poi", ("add", "mul"), 3)
    assert complete("triton_", Launch(op="aten::add")).triton == "unk"


@pytest.mark.parametrize(
    ("name", "call", "triton"),
    [
        ("_geglu_tanh_forward_kernel", "cuLaunchKernelEx", "user"),
        ("_geglu_tanh_forward_kernel", "hipModuleLaunchKernel", "user"),
        ("matmul_kernel", "cuLaunchKernel", "user"),
        ("_geglu_tanh_forward_kernel", "cudaLaunchKernel", None),
        ("_geglu_tanh_forward_kernel", None, None),
        ("nvjet_tst_64x8_64x16_1x1_v_bz_TNT", "cuLaunchKernelEx", None),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "cuLaunchKernelEx", None),
        ("bmm_E4m3_E4m3E4m3_Fp32_t128x32x256u2", "cuLaunchKernelEx", None),
        ("Cijk_Alik_Bljk_BBS_BH_MT128x128x64_MI16x16x1", "hipModuleLaunchKernel", None),
        ("kernel_cutlass_kernel___main__Sm90Gemm_object", "cuLaunchKernelEx", None),
        ("void deep_gemm::fp8_gemm_kernel<1u>(x)", "cuLaunchKernelEx", None),
    ],
)
def test_a_hand_written_triton_kernel_needs_a_driver_launch_and_a_plain_name(name, call, triton):
    """Compiled kernels that come through the driver too are not taken for it."""
    found = complete(name, Launch(call=call))
    assert found.triton == triton
    assert (found.library == "triton") == (triton is not None)


def test_a_collective_has_the_dtype_of_its_arguments_not_of_its_name():
    """NCCL runs other types inside the entry point that is named for one."""
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    found = complete(name, Launch(collective="allreduce", collective_dtype="BFloat16"))
    assert (found.collective, found.dtype) == ("all_reduce", "bf16")
    assert (
        complete("ncclDevKernel_Generic(x)", Launch(collective="_reduce_scatter_base")).collective == "reduce_scatter"
    )
    assert complete(name, Launch()).dtype is None


@cache
def products():
    """Return the distinct (name, operator, dtypes, shapes, strides) -> launches of products in the shared recordings."""
    found = Counter()
    for path in sorted(SHARED.glob("*.json.gz")):
        for step in load(path).steps:
            for kernel in step.kernels:
                if kernel.op in ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"):
                    key = (
                        kernel.name,
                        kernel.op,
                        kernel.op_dtypes,
                        _frozen(kernel.op_shapes),
                        _frozen(kernel.op_strides),
                    )
                    found[(*key, kernel.decoded)] += 1
    return found


def _frozen(value):
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


# (name, operator, what the name says, what the operator says) that differ, with the reason; there are none.
EXPLAINED: dict[tuple[str, ...], str] = {}


@needs_recordings
def test_names_agree_with_strides_and_types_of_their_operators():
    """In at least 99.5 % of the launches of products, every other one explained; sizes of 1 are left out."""
    from pytest_torchprof.kernels.names import decode
    from pytest_torchprof.kernels.operands import strides_layout

    types = {"c10::BFloat16": {"bf16"}, "c10::Half": {"fp16"}, "float": {"fp32", "tf32"}, "double": {"fp64"}}
    judged, differing = Counter(), Counter()
    for (name, op, dtypes, shapes, strides, _), launches in products().items():
        told = decode(name)
        if told.family != "gemm":
            continue
        layout = strides_layout(op, shapes, strides)
        if layout is not None:
            judged["layout"] += launches
            if told.layout != layout:
                differing["layout", name, op, told.layout, layout] += launches
        first = 0 if op in ("aten::mm", "aten::bmm") else 1
        operands = set(dtypes[first : first + 2]) if dtypes else set()
        if len(operands) == 1 and operands <= types.keys():
            judged["dtype"] += launches
            if told.dtype not in types[operands.pop()]:
                differing["dtype", name, op, told.dtype] += launches
    assert judged["layout"] > 600
    assert judged["dtype"] > 600
    assert set(differing) == set(EXPLAINED)
    for what in ("layout", "dtype"):
        assert sum(count for key, count in differing.items() if key[0] == what) <= 0.005 * judged[what]


@needs_recordings
def test_what_a_product_launches_beside_its_gemm_is_no_gemm():
    """Split-K reductions and copies under the four operators carry the name of what they do."""
    helpers = Counter(found.helper for (*_, found), _ in products().items() if found.family != "gemm")
    assert helpers["split-k reduce"] > 0
    assert helpers["bias copy"] > 0


@needs_recordings
@pytest.mark.parametrize("large", [False, True])
def test_nearly_all_kernel_time_has_a_family(large):
    """At least 97 % of the kernel time of the recordings is of a known family."""
    time = Counter()
    for path in sorted(SHARED.glob("*.json.gz")):
        if ("large" in path.name) == large:
            for step in load(path).steps:
                for kernel in step.kernels:
                    time[kernel.family] += kernel.dur_ns
    assert time.total() > 0
    assert time["other"] <= 0.03 * time.total()
