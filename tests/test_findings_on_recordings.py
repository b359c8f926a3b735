"""No false friends: on every shared recording the findings are those that a person found right."""

from __future__ import annotations

import gzip
import json

import pytest
from findings_on_recordings import FINDINGS, HEALTHY

from pytest_torchprof import load

NAMED = ("time_us", "lost_kernels", "steps")


def named(finding):
    """Return the time that the finding names, or else its count."""
    value = next(finding.evidence[key] for key in NAMED if key in finding.evidence)
    return len(value) if isinstance(value, list) else value


@pytest.mark.parametrize("recording", FINDINGS)
def test_the_findings_are_those_a_person_found_right(recording, shared_trace):
    found = {finding.code: named(finding) for finding in load(shared_trace(recording)).findings}
    expected = {code: number for code, (number, _) in FINDINGS[recording].items()}
    assert sorted(found) == sorted(expected)
    assert found == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("recording", HEALTHY)
def test_nothing_warns_on_a_healthy_recording(recording, shared_trace):
    assert {finding.severity for finding in load(shared_trace(recording)).findings} <= {"information"}


def without(source, target, gone):
    """Write the recording without the events that ``gone`` holds for."""
    document = json.loads(gzip.decompress(source.read_bytes()))
    events = document if isinstance(document, list) else document["traceEvents"]
    events[:] = [event for event in events if not (event.get("ph") == "X" and gone(event))]
    target.write_text(json.dumps(document))
    return target


def called(*words):
    return lambda event: any(word in event["name"] for word in words)


def of(*categories):
    return lambda event: event.get("cat", "").lower() in categories


def both(one, other):
    return lambda event: one(event) and other(event)


def early_launch(event):
    return "Launch" in event["name"] and event["dur"] > 1000


def small_grid(event):
    return event.get("args", {}).get("blocks per SM", 1) < 1


REMOVED = [
    ("a100_launches_without_kernels", "lost-kernels", called("LaunchKernel")),
    ("h100_qwen_orphans", "in-flight-kernels", of("kernel", "gpu_memcpy", "gpu_memset")),
    ("b200_eager_nvjet", "profiler-gap", called("Activity Buffer Request")),
    ("h100_bert_small", "overhead-bound", of("cuda_runtime", "cuda_driver")),
    ("h100_bert_small", "launch-gaps", of("cuda_runtime", "cuda_driver")),
    ("h100_bert_small", "implicit-sync", called("cudaStreamSynchronize")),
    ("h100_bert_small", "misaligned-gemm", called("aten::addmm")),
    ("h100_bert_small", "small-grid", small_grid),
    ("h100_bert_small", "hotspot", both(of("kernel"), called("gemm"))),
    ("mi300x_compile_tiny", "compute-bound", both(of("kernel"), called("Cijk", "attn_fwd"))),
    ("a100_moe_no_steps", "cold-start", both(of("cuda_runtime"), called("cudaLaunch", "cudaMalloc", "cudaFree"))),
    ("a100_moe_no_steps", "launch-delay", early_launch),
    ("a100_moe_no_steps", "kernel-time-varies", both(of("kernel"), called("sgemm"))),
    ("a100_moe_no_steps", "sync-over-little-work", called("cudaStreamSynchronize")),
    ("a100_moe_no_steps", "costly-children", called("aten::embedding")),
    ("a100_moe_no_steps", "fp32-gemm", both(of("kernel"), called("sgemm"))),
    ("h100_transformer_three_steps", "unfused-attention", called("softmax")),
    ("h100_transformer_three_steps", "tf32-gemm", both(of("kernel"), called("gemm"))),
    ("h100_qwen_orphans", "unfused-pointwise", called("aten::mul")),
    ("mi210_gpu_only", "layout-conversion", called("transpose")),
    ("mi250_string_tids", "hidden-copy", called("aten::addmm")),
    ("a100_megatron_tp8_rank1", "exposed-communication", called("nccl")),
    ("rtx3060_cudagraph_steps", "cudagraph-input-copy", called("_foreach_copy_")),
    ("v100_resnet50_steps", "single-tensor-optimizer", called("Optimizer.step")),
    ("v100_resnet50_steps", "many-small-calls", both(of("kernel"), called("elementwise"))),
]


@pytest.mark.parametrize(
    ("recording", "code", "gone"), REMOVED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_finding_goes_when_its_evidence_goes(recording, code, gone, shared_trace, tmp_path):
    assert code in FINDINGS[recording]
    cut = without(shared_trace(recording), tmp_path / "cut.json", gone)
    assert code not in {finding.code for finding in load(cut).findings}
