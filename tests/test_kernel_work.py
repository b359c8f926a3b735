"""TFLOP/s and GB/s of kernels: the work that operands tell of is torch's own count, and goes to the kernel that did it."""

from __future__ import annotations

import json

import pytest
import torch
from builder import TraceBuilder
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from pytest_torchprof import NotMeasured, load
from pytest_torchprof.kernels.operand_work import OperandWork, work_of
from pytest_torchprof.report.analysis_json import as_dict
from pytest_torchprof.trace.columns import WITH_SETTINGS

GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
COPY = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(int)"
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, Mul>>(int)"
FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>(Flash_fwd_params)"
A100 = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108, "computeMajor": 8}
WORDS = {torch.float32: "float", torch.bfloat16: "c10::BFloat16", torch.float64: "double", torch.bool: "bool"}


def recorded(*inputs):
    """Return types, shapes, strides and settings as the profiler writes them of an operator's inputs."""
    tensors = [isinstance(one, torch.Tensor) for one in inputs]
    return (
        [WORDS[one.dtype] if is_one else "ScalarList" for one, is_one in zip(inputs, tensors, strict=True)],
        [list(one.shape) if is_one else [] for one, is_one in zip(inputs, tensors, strict=True)],
        [list(one.stride()) if is_one else [] for one, is_one in zip(inputs, tensors, strict=True)],
        ["" if is_one or one is None else str(one) for one, is_one in zip(inputs, tensors, strict=True)],
    )


def flops_of(call, *inputs):
    with FlopCounterMode(display=False) as counter:
        result = call(*inputs)
    return counter.get_total_flops(), result


def size_of(*tensors):
    return sum(one.numel() * one.element_size() for one in tensors)


M, K, N = 8, 32, 16
X, W, BIAS, OUT = torch.ones(M, K), torch.ones(K, N), torch.ones(N), torch.ones(M, N)
BATCHES = torch.ones(3, M, K), torch.ones(3, K, N), torch.ones(3, M, N)


@pytest.mark.parametrize(
    ("name", "call", "inputs"),
    [
        ("aten::mm", torch.mm, (X, W)),
        ("aten::mm", torch.mm, (X, torch.ones(N, K).t())),
        ("aten::addmm", torch.addmm, (BIAS, X, W)),
        ("aten::addmm", torch.addmm, (OUT, X, W)),
        ("aten::bmm", torch.bmm, BATCHES[:2]),
        ("aten::baddbmm", torch.baddbmm, (BATCHES[2], *BATCHES[:2])),
    ],
)
def test_products_have_the_flops_that_torch_counts_and_the_bytes_of_their_operands(name, call, inputs):
    flops, result = flops_of(call, *inputs)
    assert work_of(name, *recorded(*inputs)) == OperandWork(flops=flops, bytes=size_of(*inputs, result))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("padding", "stride", "dilation"), [([0, 0], [1, 1], [1, 1]), ([3, 1], [2, 3], [1, 2])])
def test_convolutions_have_them_too(padding, stride, dilation, groups):
    x, weight = torch.ones(2, 4, 17, 19), torch.ones(6, 4 // groups, 3, 5)
    told = recorded(x, weight, padding, stride, dilation, groups)
    flops, result = flops_of(lambda: functional.conv2d(x, weight, None, stride, padding, dilation, groups))
    assert work_of("aten::cudnn_convolution", *told) == OperandWork(flops=flops, bytes=size_of(x, weight, result))
    told = recorded(x, weight, None, padding, stride, dilation, groups)
    assert work_of("aten::miopen_convolution", *told) == OperandWork(flops=flops, bytes=size_of(x, weight, result))


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolutions_have_them_too(groups):
    x, weight = torch.ones(2, 4, 7, 9), torch.ones(4, 6 // groups, 3, 5)
    given = {"stride": [2, 3], "padding": [1, 0], "output_padding": [1, 2], "groups": groups, "dilation": [1, 1]}
    flops, result = flops_of(lambda: functional.conv_transpose2d(x, weight, **given))
    order = ("padding", "output_padding", "stride", "dilation", "groups")
    told = recorded(x, weight, *(given[name] for name in order))
    found = work_of("aten::cudnn_convolution_transpose", *told)
    assert found == OperandWork(flops=flops, bytes=size_of(x, weight, result))


def attention(*, causal="False", lengths=None, window=""):
    q, k = torch.ones(2, 64, 4, 32, dtype=torch.bfloat16), torch.ones(2, 48, 4, 32, dtype=torch.bfloat16)
    told = recorded(q, k, k, lengths, lengths, 64, 48, 0.0, causal, False, 0.125, window, window, None, None)
    return work_of("aten::_flash_attention_forward", *told), (q, k)


def test_attention_has_the_flops_that_torch_counts_and_half_of_them_with_a_causal_mask():
    found, (q, k) = attention()
    flops = sdpa_flop_count(*([*one.transpose(1, 2).shape] for one in (q, k, k)))
    assert found == OperandWork(flops=flops, bytes=size_of(q, k, k, q))
    assert attention(causal="True")[0].flops == flops // 2


def cudnn_attention(*, causal="False", bias=None, lengths=None):
    q, k = torch.ones(2, 4, 64, 32, dtype=torch.bfloat16), torch.ones(2, 2, 48, 32, dtype=torch.bfloat16)
    told = recorded(q, k, k, bias, lengths, lengths, 64, 48, False, 0.0, causal, False, 0.125)
    return work_of("aten::_cudnn_attention_forward", *told), (q, k)


def test_cudnns_attention_has_its_heads_before_its_sequence_and_may_have_a_mask():
    bare, (q, k) = cudnn_attention()
    # Two heads of the queries share one of the keys.
    flops = sdpa_flop_count(q.shape, (2, 4, 48, 32), (2, 4, 48, 32))
    assert bare == OperandWork(flops=flops, bytes=size_of(q, k, k, q))
    assert cudnn_attention(causal="True")[0].flops == flops // 2
    mask = torch.ones(64, 48, dtype=torch.bfloat16)
    assert cudnn_attention(bias=mask)[0] == OperandWork(flops=flops, bytes=size_of(q, k, k, q, mask))
    assert cudnn_attention(lengths=torch.ones(3))[0] == OperandWork()


@pytest.mark.parametrize(("asked", "element_bytes"), [("15", 2), ("6", 4), ("", None), ("99", None)])
def test_a_product_of_fp8_has_flops_and_bytes_where_its_result_is_told(asked, element_bytes):
    types, shapes = ["c10::Float8_e4m3fn"] * 2 + ["float"] * 2, [[M, K], [K, N], [], []]
    settings = ["", "", "", "", "", "", asked, "False"]
    given = [*types, "", "", "Scalar", "Scalar"], [*shapes, [], [], [], []], [[K, 1], [1, K], *[[]] * 6], settings
    moved = None if element_bytes is None else M * K + K * N + element_bytes * M * N
    assert work_of("aten::_scaled_mm", *given) == OperandWork(flops=2 * M * K * N, bytes=moved)
    assert work_of("aten::_scaled_mm", given[0], given[1], given[2], []) == OperandWork(flops=2 * M * K * N)


def test_of_attention_that_is_another_one_nothing_is_known():
    assert attention(lengths=torch.ones(3))[0] == OperandWork()
    assert attention(window="16")[0] == OperandWork()
    q = torch.ones(2, 64, 4, 32)
    types, shapes, strides, _ = recorded(q, q, q)
    assert work_of("aten::_flash_attention_forward", types, shapes, strides, None) == OperandWork()


def test_pointwise_operators_read_what_they_are_given_once_and_write_their_result():
    wide, row = torch.ones(16, 8), torch.ones(8)
    assert work_of("aten::mul", *recorded(wide, row)) == OperandWork(bytes=size_of(wide, row, wide))
    assert work_of("aten::add_", *recorded(wide, wide)) == OperandWork(bytes=size_of(wide, wide, wide))
    # What is expanded is in memory once.
    assert work_of("aten::mul", *recorded(wide, row.expand(16, 8))).bytes == size_of(wide, row, wide)
    line = torch.ones(23)
    assert work_of("aten::mul", *recorded(wide, line.unfold(0, 8, 1))).bytes == size_of(wide, line, wide)
    # A number is recorded as a tensor of another type without dimensions.
    assert work_of("aten::mul", *recorded(wide, torch.tensor(2.0, dtype=torch.float64))).bytes == size_of(wide, wide)
    outer = torch.ones(16, 1), torch.ones(1, 8)
    assert work_of("aten::add", *recorded(*outer)).bytes == size_of(*outer, wide)


def test_a_copy_reads_one_type_and_writes_another():
    target, source = torch.ones(16, 8), torch.ones(16, 8, dtype=torch.bfloat16)
    assert work_of("aten::copy_", *recorded(target, source, None)).bytes == size_of(target, source)


def test_what_is_not_known_is_not_guessed():
    types, shapes, strides, settings = recorded(X, W)
    assert work_of("aten::mm", types, shapes, None, settings) == OperandWork(flops=2 * M * K * N)
    assert work_of("aten::mm", ["float", "Unknown"], shapes, strides, settings) == OperandWork()
    assert work_of("aten::mm", types, [[8, 32], [16, 8]], strides, settings) == OperandWork()
    assert work_of("aten::mm", types, [[8, 32]], strides, settings) == OperandWork()
    assert work_of("aten::mm", None, None, None, None) == OperandWork()
    # Of two types nobody here says what comes out, of comparisons a type of its own does, of others no formula is known.
    assert work_of("aten::mul", *recorded(X, X.double())) == OperandWork()
    assert work_of("aten::gt", *recorded(X, X)) == OperandWork()
    assert work_of("aten::index_select", *recorded(X, X)) == OperandWork()
    assert (
        work_of("aten::cudnn_convolution", *recorded(torch.ones(2, 4, 8, 8), torch.ones(6, 4, 3, 3))) == OperandWork()
    )


def test_the_settings_of_operators_are_kept_where_their_work_depends_on_them(tmp_path):
    builder = TraceBuilder()
    for number, name in enumerate(["aten::slice", *sorted(WITH_SETTINGS)]):
        told = {"Concrete Inputs": ["", "[1, 1]"]}
        builder.op(name, 10 * number, 5, inputs=[((4, 4), (4, 1), "float")], **told)
    profile = load(builder.write(tmp_path / "t.json"))
    kept = {
        profile.trace.names[name]: profile.launching.settings(inputs)
        for name, inputs in zip(profile.trace.ops.name, profile.trace.ops.inputs, strict=True)
    }
    assert kept == {"aten::slice": None, **dict.fromkeys(WITH_SETTINGS, ("", "[1, 1]"))}


def matrix(rows, columns, dtype="c10::BFloat16"):
    return (rows, columns), (columns, 1), dtype


PRODUCT = [matrix(4096, 4096), matrix(4096, 4096)]
FLOPS, BYTES = 2 * 4096**3, 3 * 4096**2 * 2


@pytest.fixture
def row(tmp_path):
    def of(builder):
        (found,) = as_dict(load(builder.write(tmp_path / "t.json")), (), findings=False)["kernels"]
        return found["tflops"], found["gb_per_s"]

    return of


def test_a_kernels_rates_are_its_work_over_its_time(row):
    builder = TraceBuilder()
    for number in range(2):
        builder.launched(GEMM, 2000 * number, op="aten::mm", inputs=PRODUCT, dur=500 + 500 * number)
    assert row(builder) == (round(2 * FLOPS / 1.5e-3 / 1e12, 3), round(2 * BYTES / 1.5e-3 / 1e9, 3))


def test_an_operator_on_the_cpu_is_its_own_kernel(row):
    builder = TraceBuilder()
    builder.step(0, 0, 2000)
    builder.op("aten::mm", 10, 1000, inputs=PRODUCT)
    builder.own(device="cpu", steps=1)
    assert row(builder) == (round(FLOPS / 1e-3 / 1e12, 3), round(BYTES / 1e-3 / 1e9, 3))


def test_each_call_of_an_operator_on_the_cpu_counts_with_the_operands_that_it_was_given(row):
    builder = TraceBuilder()
    builder.step(0, 0, 4000)
    small = [matrix(2048, 2048), matrix(2048, 2048)]
    for number, inputs in enumerate((PRODUCT, small, PRODUCT)):
        builder.op("aten::mm", 10 + 1000 * number, 1000, inputs=inputs)
    builder.own(device="cpu", steps=1)
    flops, moved = 2 * FLOPS + 2 * 2048**3, 2 * BYTES + 3 * 2048**2 * 2
    assert row(builder) == (round(flops / 3e-3 / 1e12, 3), round(moved / 3e-3 / 1e9, 3))


def test_of_kernels_that_are_not_all_known_there_is_no_rate(row):
    builder = TraceBuilder()
    builder.launched(GEMM, 0, op="aten::mm", inputs=PRODUCT, dur=500)
    builder.launched(GEMM, 2000, op="aten::mm", dur=500)
    assert row(builder) == (None, None)


def test_an_operator_that_launched_two_of_a_kind_tells_of_neither(row):
    builder = TraceBuilder()
    builder.op("aten::mm", 0, 100, inputs=PRODUCT)
    for at in (10, 30):
        builder.kernel(GEMM, 500 + at, 10, builder.launch(at))
    assert row(builder) == (None, None)


def test_the_table_has_rates_where_they_are_known(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "132")
    builder = TraceBuilder()
    builder.launched(GEMM, 0, op="aten::mm", inputs=PRODUCT, dur=500)
    builder.launched(COPY, 1000, op="aten::copy_", inputs=[matrix(1024, 1024)] * 2, dur=10)
    builder.launched("spin_kernel", 2000, op=None, dur=5)
    titles, _, *rows = load(builder.write(tmp_path / "t.json")).table().split("\n")[1:]
    assert "TFLOP/s  GB/s" in titles
    at = titles.index("TFLOP/s"), titles.index("GB/s") + len("GB/s")
    assert [line[at[0] : at[1]].split() for line in rows] == [["275", "201"], ["-", "419"], ["-", "-"]]


@pytest.mark.parametrize(
    ("recording", "kernel", "tflops", "gb_per_s"),
    [
        # 4 images of 3 x 224 x 224 in patches of 16: 2 x 4 x 196 x 768 x 3 x 256 FLOPs in 98.2 us.
        ("h100_vit_falconsai", "conv", 9.4, 36.7),
        ("h100_qwen_orphans", "attention", 90.3, 646),
        ("h100_transformer_three_steps", "gemm", 215, None),
    ],
)
def test_recordings_have_rates(recording, kernel, tflops, gb_per_s, shared_trace):
    rows = as_dict(load(shared_trace(recording)), (), findings=False)["kernels"]
    first = next(row for row in rows if row["family"] == kernel)
    assert first["tflops"] == pytest.approx(tflops, rel=0.01)
    assert first["gb_per_s"] == (gb_per_s and pytest.approx(gb_per_s, rel=0.01))


def test_no_kernel_of_a_recording_is_faster_than_its_gpu(shared_trace):
    """Tensor cores of an H100 make 989 TFLOP/s in bf16; pointwise kernels may read from the cache, at its 5.5 TB/s."""
    for name in ("h100_bert_small", "h100_qwen_orphans", "h100_vit_falconsai", "h100_transformer_three_steps"):
        for row in as_dict(load(shared_trace(name)), (), findings=False)["kernels"]:
            assert (row["tflops"] or 0) < 989
            assert (row["gb_per_s"] or 0) < 5500


# Far below the roofline.


def slow(
    *, kernel=MUL, op="aten::mul", inputs=None, dur=400, count=4, blocks_per_sm=4.0, device=A100, strides=True, beside=0
):
    """Return a recording of so many kernels; two operands of 16 MiB and a result are 25 us at 2,039 GB/s."""
    builder = TraceBuilder()
    builder.metadata["deviceProperties"] = [device]
    given = inputs or [matrix(2048, 2048, "float")] * 2
    for number in range(count):
        builder.launched(
            kernel, 1000 * number, op=op, inputs=given, dur=dur, blocks_per_sm=blocks_per_sm, occupancy=None
        )
    if beside:
        builder.launched("spin_kernel", 1000 * count, op=None, dur=beside)
    if not strides:
        for event in builder.events:
            event["args"].pop("Input Strides", None)
    return builder


@pytest.fixture
def found(tmp_path):
    def look(builder):
        findings = load(builder.write(tmp_path / "t.json")).findings
        return next((finding for finding in findings if finding.code == "below-roofline"), None)

    return look


def test_a_kernel_far_below_its_roofline_is_found_with_its_figures(found):
    finding = found(slow())
    bound = 3 * 2**24 / 2039e9 * 1e6
    assert finding.evidence["bound_us"] == pytest.approx(bound)
    assert (finding.evidence["mean_us"], finding.evidence["count"], finding.evidence["time_us"]) == (400, 4, 1600)
    assert finding.saves_us == pytest.approx(4 * (400 - bound))
    assert finding.message.startswith(
        "pointwise vectorized_elementwise_kernel of aten::mul ([2048, 2048], [2048, 2048]) "
    )
    assert "400 us (126 GB/s)" in finding.message
    assert "24.7 us" in finding.message
    assert "1.60 ms" in finding.message
    assert "contiguous operands" in finding.remedy


def test_of_a_product_the_longer_of_its_two_bounds_counts(found):
    # 137 GFLOP are 441 us at 312 TFLOP/s, 100 MB are 49 us.
    product = {"kernel": GEMM, "op": "aten::mm", "inputs": PRODUCT}
    finding = found(slow(**product, dur=2500, count=1))
    assert finding.evidence["bound_us"] == pytest.approx(FLOPS / 312e12 * 1e6)
    assert "larger sizes" in finding.remedy
    assert found(slow(**product, dur=2100, count=1)) is None
    # A matrix and a thin one: 134 MB of operands are 66 us at 2,039 GB/s, the products 0.9 us.
    thin = {**product, "inputs": [matrix(8192, 8192), matrix(8192, 8)]}
    assert found(slow(**thin, dur=300, count=1)) is None
    assert found(slow(**thin, dur=400, count=1)).evidence["bound_us"] == pytest.approx(65.9, rel=0.01)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"dur": 120}, id="less than five times its bound"),
        pytest.param(
            {"inputs": [matrix(16, 16, "float")] * 2, "dur": 45}, id="latency, not work: less than five times 10 us"
        ),
        pytest.param({"blocks_per_sm": 0.5}, id="small-grid says why"),
        pytest.param(
            {"kernel": GEMM, "op": "aten::mm", "inputs": [matrix(4096, 4095), matrix(4095, 4096)], "dur": 9000},
            id="misaligned-gemm says why",
        ),
        pytest.param({"beside": 60_000}, id="less than a twentieth of all"),
        pytest.param({"strides": False}, id="nobody knows how much of the operands is in memory"),
        pytest.param(
            {"device": {"id": 0, "name": "NVIDIA Simulated GPU"}}, id="simulated: no such peaks, and no such times"
        ),
        pytest.param({"device": {"id": 0, "name": "NVIDIA B200"}}, id="no peak of its memory"),
    ],
)
def test_no_false_alarm(change, found):
    assert found(slow()) is not None
    assert found(slow(**change)) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"strides": False}, "strides"), ({"device": {"id": 0, "name": "Test GPU"}}, "peaks")],
)
def test_to_forbid_it_where_nobody_can_tell_is_not_measured(change, reason, tmp_path):
    profile = load(slow(**change).write(tmp_path / "t.json"))
    with pytest.raises(NotMeasured, match=reason):
        profile.expect(forbid="below-roofline")


def test_the_figures_are_plain_json(tmp_path):
    profile = load(slow().write(tmp_path / "t.json"))
    assert json.loads(json.dumps(as_dict(profile)["findings"]))
