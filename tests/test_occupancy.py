"""The occupancy of kernels with more shared memory than kineto reckons with: calculated by kineto's own formula.

What the kernels take, and the H200's facts, were recorded on an NVIDIA H200 with torch 2.11.0+cu130 and CUDA 13.0, where
kineto wrote 0 for each of them.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter

import msgspec
import pytest
from builder import TraceBuilder

from pytest_torchprof import LimitsMissed, NotMeasured, load
from pytest_torchprof.trace.occupancy import estimated_percent

pytestmark = pytest.mark.any_torch

H200 = {
    "id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "maxThreadsPerBlock": 1024, "numSms": 132,
    "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 32, "sharedMemPerBlock": 49152,
    "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 232448, "sharedMemPerMultiprocessor": 233472,
}  # fmt: skip

# kernel, threads of a block, registers of a thread, shared memory of a block, blocks per SM, percent of all warps
SEEN = [
    ("nvjet_sm90_tst_64x8_64x16_1x2_h_bz_bias_TNT", 384, 168, 164308, 0.969697, 18.1818),
    ("nvjet_sm90_tst_32x64_64x16_4x2_h_bz_NTN", 384, 168, 213460, 0.060606, 1.1364),
    (
        "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_execute_kernel__5x_cublas",
        256,
        254,
        67584,
        3.878788,
        12.5,
    ),
    ("fmha_cutlassB_f32_aligned_64x64_k32_sm80(Params)", 128, 232, 53504, 0.121212, 0.7576),
    (
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64",
        384,
        168,
        152576,
        0.121212,
        2.2727,
    ),
]
RECORDINGS = (
    *("v100_resnet50_steps", "a100_sam_fast_large", "a100_graphs_nccl_orphans", "rtx3060_compile_steps"),
    *("h100_bert_small", "h100_qwen_orphans", "b200_eager_nvjet"),
)
LARGE = {"block": [512, 1, 1], "grid": [100000, 1, 1], "registers per thread": 32, "shared memory": 100_000}


def recording(tmp_path, *, device=H200, name="void mine::staged(float*)", blocks=64.0, percent=0, **args):
    builder = TraceBuilder()
    builder.metadata["deviceProperties"] = [device]
    builder.own(steps=1)
    builder.step(0, 0, 900)
    builder.launched(name, 10, blocks_per_sm=blocks, occupancy=percent, **args)
    builder.sync(1100, 50)
    return load(builder.write(tmp_path / "t.json"))


def launch_shape(args):
    return b"\0".join(
        json.dumps(args[fact]).encode() for fact in ("grid", "block", "registers per thread", "shared memory")
    )


def occupancy(profile):
    return profile.trace.occupancies[-1]


@pytest.mark.parametrize(("name", "threads", "registers", "shared", "blocks", "percent"), SEEN)
def test_a_zero_is_not_believed_where_shared_memory_is_beyond_the_default(
    tmp_path, name, threads, registers, shared, blocks, percent
):
    args = {"grid": [1, 1, 1], "block": [threads, 1, 1], "registers per thread": registers, "shared memory": shared}
    profile = recording(tmp_path, name=name, blocks=blocks, **args)
    assert occupancy(profile) == pytest.approx(percent, rel=1e-3)


def test_the_mean_is_kinetos_own(tmp_path):
    """It is defined as kineto's estimate, zeros included: other tools show the same for the file."""
    assert recording(tmp_path, **LARGE).achieved_occupancy == 0


def test_with_less_shared_memory_the_files_own_number_counts(tmp_path):
    assert occupancy(recording(tmp_path, **LARGE | {"shared memory": 48 * 1024})) == 0
    assert occupancy(recording(tmp_path, percent=7, **LARGE)) == 7


@pytest.mark.parametrize(
    "device",
    [
        {"id": 0, "name": "NVIDIA H200", "numSms": 132},
        H200 | {"regsPerMultiprocessor": "many"},
        H200 | {"computeMajor": None},
    ],
)
def test_where_the_device_is_not_known_it_is_not_known_either(tmp_path, device):
    profile = recording(tmp_path, device=device, **LARGE)
    assert occupancy(profile) < 0
    with pytest.raises(NotMeasured):
        profile.expect(forbid="low-occupancy")


def test_few_warps_beside_much_shared_memory_are_found(tmp_path):
    with pytest.raises(LimitsMissed):
        recording(tmp_path, **LARGE | {"block": [128, 1, 1]}).expect(forbid="low-occupancy")


def test_enough_warps_beside_it_are_not(tmp_path):
    """Two blocks of 512 threads fit: half of the warps."""
    profile = recording(tmp_path, **LARGE)
    assert occupancy(profile) == 50
    profile.expect(forbid="low-occupancy")


@pytest.mark.parametrize("name", RECORDINGS)
def test_below_the_default_the_formula_gives_what_kineto_wrote(name, shared_trace):
    """From 6 KiB on no GPU's limit on the number of blocks comes before that of shared memory."""
    document = msgspec.json.decode(gzip.decompress(shared_trace(name).read_bytes()))
    devices = {device["id"]: device for device in document["deviceProperties"]}
    off = Counter()
    for event in document["traceEvents"]:
        args = event.get("args", {})
        if 6 * 1024 <= args.get("shared memory", 0) <= 48 * 1024 and "est. achieved occupancy %" in args:
            ours = estimated_percent(devices[args["device"]], launch_shape(args), args["blocks per SM"])
            off[abs(ours - args["est. achieved occupancy %"]) > 0.51] += 1
    assert off[False] > 0
    assert off[True] == 0
