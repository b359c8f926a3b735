"""Properties of name decoding: any string is classified, and what is built from a grammar comes back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_torchprof.kernels.names import decode, normal_name
from pytest_torchprof.kernels.names.kernelname import (
    COLLECTIVES,
    DTYPES,
    FAMILIES,
    LAYOUTS,
    LIBRARIES,
    TRITON_CATEGORIES,
)

pytestmark = pytest.mark.any_torch

sizes = st.sampled_from([8, 16, 32, 64, 96, 128, 192, 256])
layouts = st.sampled_from(LAYOUTS)
stages = st.integers(1, 16)
# Pieces of real names, so that random strings reach deep into the decoders.
pieces = st.sampled_from(
    [
        "void ",
        "at::native::",
        "gemm_",
        "_tn",
        "nvjet_",
        "tst_",
        "128x64",
        "_",
        "triton_",
        "poi_fused",
        "add",
        "(anonymous namespace)::",
        "<",
        ">",
        "(",
        ")",
        ", ",
        "float",
        "cutlass::Kernel2<",
        "cutlass_80_",
        "tensorop_",
        "Cijk_Alik_Bljk_",
        "BBS_",
        "MT",
        "cudnn::",
        "xmma_",
        "fprop",
        "flash_fwd",
        "_ZN2ck",
        "ILi1E",
        "ncclDevKernel_",
        "lambda(float)#1",
        "::",
    ]
)
names = st.one_of(
    st.text(max_size=6000),
    st.lists(pieces, max_size=400).map("".join),
    st.tuples(st.lists(pieces, max_size=30).map("".join), st.text(max_size=60)).map("".join),
)


@given(names)
@settings(max_examples=400, deadline=None)
def test_any_string_is_classified(name):
    """Never an exception, a family of ours or none, always a known library, and a display name that fits."""
    found = decode(name)
    assert found.family in (None, *FAMILIES)
    assert found.never <= set(FAMILIES)
    assert found.library in LIBRARIES
    assert found.dtype in (None, *DTYPES)
    assert found.layout in (None, *LAYOUTS)
    assert found.triton in (None, *TRITON_CATEGORIES)
    assert found.collective in (None, *COLLECTIVES)
    assert len(found.short) <= 60
    normal_name(name)


@given(
    code=st.sampled_from(
        [("hsh", "fp16"), ("hss", "fp16"), ("tst", "bf16"), ("tss", "bf16"), ("qqtst", "fp8"), ("ootst", "fp4")]
    ),
    arch=st.sampled_from([None, "sm90", "sm100", "sm103"]),
    tile=st.tuples(sizes, sizes, sizes),
    depth=stages,
    cluster=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    middle=st.lists(st.sampled_from(["2cta", "coopA", "algo2", "bias", "splitK", "badd"]), max_size=3, unique=True),
    layout=layouts,
    last=st.sampled_from("NT"),
)
def test_an_nvjet_name_gives_its_fields_back(code, arch, tile, depth, cluster, middle, layout, last):
    letters, dtype = code
    name = "_".join(
        [
            "nvjet",
            *([arch] if arch else []),
            letters,
            f"{tile[0]}x{tile[1]}",
            f"{tile[2]}x{depth}",
            f"{cluster[0]}x{cluster[1]}",
            "v",
            "bz",
            *middle,
            layout.upper() + last,
        ]
    )
    found = decode(name)
    assert (found.family, found.library, found.dtype, found.layout) == ("gemm", "cublas", dtype, layout)
    assert (found.tile, found.stages, found.cluster, found.arch) == (tile, depth, cluster, arch)
    assert (found.tensor_core, found.split_k) == (True, True if "splitK" in middle else None)
    assert found.epilogue == (("bias",) if "bias" in middle else ())


@given(
    kind=st.sampled_from(
        [
            ("bf16_s16816", "bf16", "bf16"),
            ("fp16_s16816", "fp16", "fp16"),
            ("fp16_s1688", "fp16", "fp16"),
            ("h16816", None, "fp16"),
        ]
    ),
    tile=st.tuples(sizes, sizes, sizes),
    depth=stages,
    relu=st.booleans(),
    layout=layouts,
)
def test_an_ampere_name_gives_its_fields_back(kind, tile, depth, relu, layout):
    front, out, dtype = kind
    middle = "ldg8_relu_f2f" if relu else "ldg8_f2f"
    name = (
        f"ampere_{front}gemm_{out + '_' if out else ''}{tile[0]}x{tile[1]}_{middle}_stages_{tile[2]}x{depth}_{layout}"
    )
    found = decode(name)
    assert (found.family, found.dtype, found.layout, found.tensor_core) == ("gemm", dtype, layout, True)
    assert (found.tile, found.stages, found.arch) == (tile, depth, "sm80")
    assert found.epilogue == (("relu",) if relu else ())


@given(
    types=st.sampled_from(
        [
            ("bf16bf16_bf16f32_f32", "bf16"),
            ("f16f16_f16f16_f16", "fp16"),
            ("f32f32_tf32f32_f32", "tf32"),
            ("e4m3e4m3_e4m3f32_f32", "fp8"),
        ]
    ),
    arch=st.sampled_from(["sm75", "sm80", "sm90"]),
    tile=st.tuples(sizes, sizes, sizes),
    layout=layouts,
)
def test_an_xmma_name_gives_its_fields_back(types, arch, tile, layout):
    code, dtype = types
    size = "x".join(map(str, tile))
    found = decode(
        f"{arch}_xmma_gemm_{code}_{layout}_n_tilesize{size}_stage3_warpsize2x2x1_tensor16x8x16_execute_kernel__5x_cublas"
    )
    assert (found.family, found.library, found.dtype, found.layout) == ("gemm", "cublas", dtype, layout)
    assert (found.tile, found.stages, found.arch, found.tensor_core) == (tile, 3, arch, True)
    found = decode(
        f"{arch}_xmma_fprop_implicit_gemm_{code}_nhwckrsc_nhwc_tilesize{size}_stage3_warpsize2x2x1_g1_execute"
    )
    assert (found.family, found.library, found.dtype, found.layout) == ("conv", "cudnn", dtype, None)
    assert found.tile == tile


@given(
    kind=st.sampled_from(
        [
            ("tensorop_bf16_s16816gemm_bf16", "bf16", True),
            ("tensorop_f16_s16816gemm_relu_f16", "fp16", True),
            ("tensorop_s1688gemm", "tf32", True),
            ("tensorop_d884gemm", "fp64", True),
            ("simt_sgemm", "fp32", False),
        ]
    ),
    tile=st.tuples(sizes, sizes, sizes),
    depth=stages,
    align=st.sampled_from([1, 2, 4, 8]),
    layout=layouts,
    wrapper=st.sampled_from(
        ["{}", "void cutlass::Kernel2<{0}>({0}::Params)", "void cutlass::Kernel<{0}>({0}::Params)"]
    ),
)
def test_a_cutlass_2_name_gives_its_fields_back(kind, tile, depth, align, layout, wrapper):
    front, dtype, tensor_core = kind
    found = decode(wrapper.format(f"cutlass_80_{front}_{tile[0]}x{tile[1]}_{tile[2]}x{depth}_{layout}_align{align}"))
    assert (found.family, found.library, found.dtype, found.layout) == ("gemm", "cutlass", dtype, layout)
    assert (found.tile, found.stages, found.alignment, found.tensor_core) == (tile, depth, align, tensor_core)


@given(
    types=st.sampled_from(
        [
            ("bf16_bf16_f32_bf16_bf16", "bf16"),
            ("f16_f16_f32_void_f16", "fp16"),
            ("e4m3_e5m2_f32_bf16_bf16", "fp8"),
            ("f32_f32_f32_f32_f32", "tf32"),
        ]
    ),
    tile=st.tuples(sizes, sizes, sizes),
    cluster=st.tuples(st.integers(1, 4), st.integers(1, 4), st.just(1)),
    layout=layouts,
)
def test_a_cutlass_3_name_gives_its_fields_back(types, tile, cluster, layout):
    code, dtype = types
    sizes_, clusters = "x".join(map(str, tile)), "x".join(map(str, cluster))
    found = decode(
        f"cutlass3x_sm90_tensorop_s64x128x16gemm_{code}_{sizes_}_{clusters}_0_{layout}n_align8_warpspecialized_epi_tma"
    )
    assert (found.family, found.library, found.dtype, found.layout) == ("gemm", "cutlass", dtype, layout)
    assert (found.tile, found.cluster, found.arch, found.alignment) == (tile, cluster, "sm90", 8)


@given(
    types=st.sampled_from(
        [
            ("BBS_BH", "bf16"),
            ("B_BS_BH", "bf16"),
            ("HHS_BH", "fp16"),
            ("HSS", "fp16"),
            ("SB", "fp32"),
            ("DB", "fp64"),
            ("F8BS_BH", "fp8"),
        ]
    ),
    layout=layouts,
    tile=st.tuples(sizes, sizes, sizes),
    mfma=st.booleans(),
    custom=st.booleans(),
)
def test_a_tensile_name_gives_its_fields_back(types, layout, tile, mfma, custom):
    code, dtype = types
    a = "Alik" if layout[0] == "t" else "Ailk"
    b = "Bjlk" if layout[1] == "t" else "Bljk"
    name = f"{'Custom_' if custom else ''}Cijk_{a}_{b}_{code}_MT{'x'.join(map(str, tile))}{'_MI16x16x1' if mfma else ''}_SN_ISA942.kd"
    found = decode(name)
    assert (found.family, found.library, found.dtype, found.layout) == ("gemm", "tensile", dtype, layout)
    assert (found.tile, found.tensor_core, found.arch) == (tile, mfma, "gfx942")


@given(
    category=st.sampled_from(["poi", "per", "red", "for", "spl", "unk"]),
    ops=st.lists(
        st.sampled_from(["add", "mul", "gelu", "_to_copy", "native_layer_norm", "sum", "_unsafe_view", "index_put"]),
        min_size=1,
        max_size=8,
    ),
    index=st.integers(0, 9999),
)
def test_an_inductor_name_gives_its_fields_back(category, ops, index):
    found = decode(f"triton_{category}_fused_{'_'.join(ops)}_{index}")
    assert (found.library, found.triton, found.triton_ops, found.triton_index) == (
        "triton",
        category,
        tuple(ops),
        index,
    )
    assert decode(f"cpp_fused_{'_'.join(ops)}_{index}").triton_ops == tuple(ops)
