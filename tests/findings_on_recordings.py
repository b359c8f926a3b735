"""What the findings say about the shared recordings: looked at one by one, with the events behind each and why it is so.

recording -> code -> (time in us that the finding names, or the count where it names no time; what is seen, and why)
"""

from facts import LEFT_OUT

FINDINGS: dict[str, dict[str, tuple[float, str]]] = {
    "a100_cuda_sync_events": {
        "cold-start": (2187, "the first aten::empty of the process, inside aten::ones"),
        "nothing-recorded": (712, "570 us from the step's begin to aten::ones, and Python between the operators"),
        "costly-children": (
            2240,
            "aten::ones is 2.25 ms, 2.19 of it in aten::empty: the first allocation of the process",
        ),
        "implicit-sync": (35, "cudaStreamSynchronize inside aten::is_nonzero: a Python `if` on a tensor"),
        "launch-gaps": (3017, "5 gaps before late launches, 2.81 ms of it before the first one"),
        "overhead-bound": (3017, "5 of 5 GPU operations launched on an idle GPU, 51 us of GPU work in 3.1 ms"),
        "small-grid": (12, "two kernels of less than one block per SM; the spin kernel is made to last"),
    },
    "a100_graphs_nccl_orphans": {
        "costly-children": (767000, "aten::to: its copy_ blocks behind the full queue"),
        "cudagraph-input-copy": (
            11900,
            "aten::copy_ in CompiledFunction(Backward) before its cudaGraphLaunch, 76 a step",
        ),
        "exposed-communication": (185000, "75 SendRecv kernels on their own stream with no compute kernel meanwhile"),
        "hotspot": (165000, "SendRecv is 48 % of the kernel time"),
        "implicit-sync": (
            761000,
            "aten::to x75: 30 copies to pageable memory wait up to 147 ms in cudaMemcpyAsync, all have a cudaStreamSynchronize",
        ),
        "queued-work-waits": (
            669000,
            "266 gaps of up to 65 ms before graphs and copies that were launched: streams wait",
        ),
        "in-flight-kernels": (59500, "872 GPU operations whose correlation has no call in the file"),
        "tf32-gemm": (99500, "cutlass_tensorop_s1688gemm: TF32 in the name, fp32 operands where they are known"),
        "unfused-pointwise": (9000, "the loss: sigmoid, neg, clamp, mul .. in a row on one size, without a compiler"),
    },
    "a100_launches_without_kernels": {
        "lost-kernels": (260, "260 cudaLaunchKernel and not one GPU event: lost, not idle"),
    },
    "a100_megatron_tp8_rank0": {
        "cpu-held-up": (
            368722,
            "8 to 30 ms in aten::view, cudaEventRecord, the 184th cudaFuncSetAttribute: others had the core",
        ),
        "exposed-communication": (241000, "all_reduce of tensor parallelism, nothing else runs meanwhile"),
        "hotspot": (227000, "all_reduce is 61 % of the kernel time"),
        "implicit-sync": (56, "aten::to x2 and aten::is_nonzero x1 hold a cudaStreamSynchronize"),
        "launch-gaps": (213700, "100 gaps that end with a launch made after the kernel before, if any, had ended"),
        "unfused-attention": (
            36200,
            "baddbmm, ScaledUpperTriangMaskedSoftmax, bmm in 40 layers: the softmax is fused, not the rest",
        ),
    },
    "a100_megatron_tp8_rank1": {
        "cpu-held-up": (237793, "as on rank 0: 20 ms in aten::view, aten::as_strided, aten::expand"),
        "exposed-communication": (481000, "as on rank 0, and twice as long: this rank waits for the other one"),
        "hotspot": (461000, "all_reduce is 75 % of the kernel time"),
        "implicit-sync": (65, "aten::to x2 and aten::is_nonzero x1 hold a cudaStreamSynchronize"),
        "unfused-attention": (36200, "as on rank 0: the same kernels"),
    },
    "a100_moe_no_steps": {
        "cold-start": (
            704628,
            "launches of up to 497 ms on an idle GPU, cudaMalloc x52, first calls of 2 to 6 ms: the first run in the process",
        ),
        "costly-children": (501000, "aten::embedding holds aten::index_select, whose launch loads the code"),
        "fp32-gemm": (40300, "ampere_sgemm under aten::addmm with float operands"),
        "hotspot": (20800, "one sgemm is 49 % of the kernel time"),
        "implicit-sync": (17000, "aten::is_nonzero x20: an assertion on a tensor in each expert layer"),
        "kernel-time-varies": (4660, "three runs of one sgemm on the same operands take 1 to 3 ms instead of 0.4"),
        "launch-delay": (497000, "the first kernel starts 497 ms after its launch did, the median is 22 us"),
        "launch-gaps": (688000, "306 gaps before late launches, 501 ms of it before the first one"),
        "overhead-bound": (688000, "without the cold start still 57 % late launches, the GPU a third busy"),
        "sync-over-little-work": (2110, "one cudaStreamSynchronize of 2.3 ms over 0.2 ms of GPU work"),
        "unfused-attention": (858, "multiquery_attention.py: bmm, softmax, bmm, ten times"),
    },
    "a100_sam_eager_large": {
        "nothing-recorded": (
            938107,
            "36,717 gaps of 26 us between operators: the Python of the mask generator, no stacks",
        ),
        "repeated-constant": (
            1020,
            "112 x aten::arange(14): relative positions, made anew in 28 layers for q and k of both axes",
        ),
        "costly-children": (1.14e6, "aten::index: most of it in the aten::nonzero of a mask"),
        "fp32-gemm": (649000, "sgemm: the eager model is float; convolutions run in TF32"),
        "implicit-sync": (1.046e6, "7,023 blocking calls inside aten::index, aten::to, aten::is_nonzero .."),
        "launch-gaps": (1.53e6, "18,457 gaps before late launches, more than half of the recording"),
        "many-small-calls": (60900, "aten::nonzero with 5,936 and aten::eq with 2,760 kernels of 2 to 3 us"),
        "unfused-attention": (
            168261,
            "144 softmaxes: 112 in the mask decoder, 32 in the image encoder with two bmm of relative positions before",
        ),
    },
    "a100_sam_fast_large": {
        "cold-start": (467603, "451 ms in the call that captures a graph; cudaMalloc x16"),
        "nothing-recorded": (989558, "as in the eager one: Python between the operators, up to 68 ms"),
        "costly-children": (472000, "aten::index: most of it in the aten::nonzero of a mask"),
        "implicit-sync": (375000, "6,896 blocking calls inside aten::to, aten::index, aten::is_nonzero .."),
        "copy-kernels": (86200, "direct_copy, 465 casts and changes of layout"),
        "unasked-fp64": (57200, "aten::upsample_bilinear2d and what follows it take and give double"),
        "launch-gaps": (1.97e6, "18,164 gaps before late launches: the GPU got faster, the host did not"),
        "overhead-bound": (1970000.0, "72 % late launches, the GPU 21 % busy"),
        "unfused-pointwise": (18400, "the mask decoder is eager: div, mul, add, gelu on one size"),
    },
    "a100_vit_capture_and_graphs": {
        "graph-recaptured": (
            638579,
            "the first, third and fifth call capture the same graph for 210 ms or more; the others replay one in 2.4 ms",
        ),
        "launch-gaps": (637800, "18 gaps of up to 164 ms: the host prepares and captures graphs"),
        "small-grid": (3860, "batch 1: GEMMs with fewer blocks than the A100 has SMs"),
    },
    "b200_eager_nvjet": {
        "cold-start": (
            7400,
            "the first aten::addmm and aten::mm: more than 1 ms each on an idle GPU",
        ),
        "hotspot": (6080, "vllm::moe_forward launches 56 % of the kernel time"),
        "launch-gaps": (71640, "713 gaps before late launches, 82 % of the recording"),
        "many-small-calls": (1230, "vllm::moe_forward launches 180 routing and quantizing kernels of 5 us"),
        "overhead-bound": (71640, "77 % late launches, the GPU 13 % busy: decoding without graphs"),
        "profiler-gap": (1530, "an Activity Buffer Request of 1.5 ms before the first kernel"),
    },
    "cpu_only_steps": {
        "no-gpu-work": (5, "no call and no GPU event in any of 5 steps: it was trained on the CPU"),
    },
    "h100_bert_small": {
        "hotspot": (198, "aten::addmm launches 64 % of the kernel time"),
        "implicit-sync": (7.64, "cudaStreamSynchronize inside aten::is_nonzero: a check of the attention mask"),
        "launch-gaps": (3958, "61 gaps before late launches, 89 % of the recording"),
        "misaligned-gemm": (41.3, "the vocabulary of 30,522 is no multiple of 8: cutlass .._align2"),
        "overhead-bound": (3958, "nothing but late launches: a small model, one forward"),
        "small-grid": (199, "GEMMs of 32x32 tiles that do not fill 132 SMs"),
    },
    "h100_qwen_orphans": {
        "below-roofline": (
            2720,
            "24 x flash_fwd_kernel of 113 us: their 10.2 GFLOP, causal, are 10 us at 989 TFLOP/s, their 73 MB 22 us",
        ),
        "copy-kernels": (5100, "197 x direct_copy: casts to fp32 and back in each norm, the rotary embedding"),
        "compute-bound": (45200, "kernels cover 91 % of the window, orphans included"),
        "costly-children": (9750, "aten::linear is aten::matmul and views"),
        "implicit-sync": (7.69, "cudaStreamSynchronize inside aten::is_nonzero: a check of the attention mask"),
        "in-flight-kernels": (13700, "509 GPU operations whose correlation has no call in the file"),
        "unfused-norm": (7383, "49 x Qwen2RMSNorm: to fp32, pow, mean, add, rsqrt, mul, to bf16, mul by the weight"),
        "unfused-pointwise": (2180, "the rotary embedding and norms of Qwen, eager: mul, add, mul on one size"),
        "unfused-rotary": (
            6954,
            "48 x apply_rotary_pos_emb: mul, neg, cat, mul, add for the query and the key of a layer",
        ),
    },
    "h100_transformer_three_steps": {
        "launch-gaps": (2328, "46 gaps before late launches, 81 % of the recording"),
        "overhead-bound": (2328, "96 % late launches, the GPU 14 % busy: the tutorial's small batch"),
        "tf32-gemm": (233, "sm90_xmma_gemm_f32f32_tf32: float operands under allow_tf32"),
        "unfused-attention": (54, "need_weights: bmm, softmax, bmm in aten::_native_multi_head_attention"),
    },
    "h100_vit_falconsai": {
        "hotspot": (735, "aten::addmm launches 60 % of the kernel time"),
        "launch-gaps": (6326, "148 gaps before late launches, 80 % of the recording"),
        "overhead-bound": (6326, "95 % late launches: one image"),
        "small-grid": (958, "products of one image do not fill 132 SMs"),
    },
    "mi210_gpu_only": {
        "copy-kernels": (1100, "batched_transpose once more, and casts"),
        "layout-conversion": (822, "MIOpen's batched_transpose around its NHWC convolutions"),
    },
    "mi250_string_tids": {
        "cold-start": (6540, "a hipLaunchKernel of 6.5 ms on an idle GPU"),
        "fp32-gemm": (30.2, "Tensile's SB kernels with float operands"),
        "hidden-copy": (6.88, "a copy kernel inside aten::addmm before its GEMM: the bias"),
        "implicit-sync": (95.8, "hipMemcpyWithStream inside aten::to x2"),
        "launch-gaps": (8937, "16 gaps before late launches"),
        "no-gpu-work": (1, "the second of two steps launches nothing"),
        "overhead-bound": (8937, "14 kernels of 5 us each in 9 ms"),
        "unfused-pointwise": (13.1, "fill, mse_backward, threshold on one size"),
    },
    "mi300x_bert_small": {
        "hotspot": (174, "aten::addmm launches 45 % of the kernel time"),
        "implicit-sync": (24.9, "hipMemcpyWithStream inside aten::is_nonzero"),
        "launch-gaps": (2674, "52 gaps before late launches, 67 % of the recording"),
        "misaligned-gemm": (25.5, "the vocabulary of 30,522 is no multiple of 8"),
        "overhead-bound": (2674, "85 % late launches: a small model, one forward"),
    },
    "mi300x_compile_tiny": {
        "compute-bound": (12500, "kernels without a gap, 98 % of the window"),
        "hotspot": (8030, "aten::mm launches 64 % of the kernel time"),
    },
    "mi300x_sglang_decode_device9": {
        "implicit-sync": (463000, "hipMemcpyWithStream inside aten::copy_"),
        "queued-work-waits": (463000, "one kernel starts 463 ms after its launch had returned"),
        "sync-over-little-work": (463000, "hipMemcpyWithStream of 463 ms over next to no GPU work"),
    },
    "mi300x_vllm_decode_graph": {
        "nothing-recorded": (5988, "the gap before the first copy once more: no frame of Python's either"),
        "queued-work-waits": (7830, "hipGraphLaunch and a copy return, and 7.8 ms pass until the copy runs"),
    },
    "rocm_no_correlation": {
        "compute-bound": (10900, "ten GEMMs without a gap, 99 % of the window"),
    },
    "rtx3060_compile_steps": {
        "compute-bound": (126000, "kernels cover 98 % of the window, the GPU runs behind"),
        "fp32-gemm": (70700, "ampere_sgemm and cutlass_simt_sgemm"),
        "hotspot": (64800, "aten::mm launches 58 % of the kernel time"),
        "in-flight-kernels": (13700, "164 GPU operations whose correlation has no call in the file"),
    },
    "rtx3060_cudagraph_steps": {
        "compute-bound": (115000, "kernels cover 98 % of the window"),
        "cudagraph-input-copy": (1080, "aten::_foreach_copy_ in CompiledFunction before its cudaGraphLaunch"),
        "fp32-gemm": (71300, "ampere_sgemm and cutlass_simt_sgemm, launched by graphs"),
        "in-flight-kernels": (798, "one GPU operation whose correlation has no call in the file"),
    },
    "rtx3060_cudagraph_steps_slow": {
        "compute-bound": (848000, "kernels cover the whole window"),
        "cudagraph-input-copy": (8150, "aten::_foreach_copy_ in CompiledFunction before its cudaGraphLaunch"),
        "fp32-gemm": (571000, "ampere_sgemm and cutlass_simt_sgemm, launched by graphs"),
        "in-flight-kernels": (714, "one GPU operation whose correlation has no call in the file"),
    },
    "v100_dlrm_rank0": {
        "exposed-communication": (5540, "SendRecv and AllReduce while nothing else runs"),
        "hotspot": (4000, "SendRecv is 59 % of the kernel time"),
        "implicit-sync": (2045, "cudaStreamSynchronize inside aten::index, aten::to, aten::_index_put_impl_"),
        "launch-gaps": (7326, "159 gaps before late launches, 51 % of the step"),
        "overhead-bound": (7326, "61 % late launches, the GPU 46 % busy, communication included"),
        "single-tensor-optimizer": (
            209,
            "Optimizer.step#Adagrad.step: addcmul_, sqrt, addcdiv_ for each of 16 tensors",
        ),
        "unfused-pointwise": (260, "Adagrad again: neg, clamp, fill, add .. on one size"),
    },
    "v100_ns_timestamps": {
        "compute-bound": (468000, "kernels cover 97 % of the window"),
        "fp32-gemm": (298000, "volta_sgemm and cuDNN's fp32 engines"),
        "hotspot": (211000, "aten::convolution_backward launches 45 % of the kernel time"),
    },
    "v100_resnet50_oldest": {
        "fp32-gemm": (407000, "cuDNN's fp32 convolutions, volta_sgemm"),
        "implicit-sync": (782, "cudaStreamSynchronize inside aten::to x12: images to the GPU"),
        "in-flight-kernels": (39700, "765 GPU operations whose correlation has no call in the file"),
        "launch-gaps": (630000, "the GPU waits while a DataLoader without workers loads"),
        "many-small-calls": (59300, "aten::add_ with 499 kernels of 8 us in each step, fill_ and mul_"),
        "single-tensor-optimizer": (7720, "Optimizer.step#SGD.step: add_ and mul_ for each of 161 tensors"),
    },
    "v100_resnet50_steps": {
        "fp32-gemm": (395000, "cuDNN's fp32 convolutions, volta_sgemm"),
        "implicit-sync": (551, "cudaStreamSynchronize inside aten::to x12: images to the GPU"),
        "launch-gaps": (447000, "the GPU waits while a DataLoader without workers loads"),
        "many-small-calls": (44400, "aten::add_ with 499 kernels of 8 us in each step, fill_ and mul_"),
        "single-tensor-optimizer": (7880, "Optimizer.step#SGD.step: add_ and mul_ for each of 161 tensors"),
    },
}

HEALTHY = ("mi300x_compile_tiny", "rocm_no_correlation")
"""Compiled or graph-launched work in bf16 that keeps the GPU busy: nothing to warn of."""

TOLD_BY: dict[str, dict[str, str]] = {
    "a100_cuda_sync_events": {"costly-children": "cold-start", "launch-gaps": "overhead-bound"},
    "a100_graphs_nccl_orphans": {"costly-children": "implicit-sync", "hotspot": "exposed-communication"},
    "a100_megatron_tp8_rank0": {"hotspot": "exposed-communication", "launch-gaps": "cpu-held-up"},
    "a100_megatron_tp8_rank1": {"hotspot": "exposed-communication"},
    "a100_moe_no_steps": {
        "launch-gaps": "cold-start",
        "overhead-bound": "cold-start",
        "costly-children": "cold-start",
        "launch-delay": "cold-start",
        "hotspot": "fp32-gemm",
    },
    "a100_sam_eager_large": {"costly-children": "implicit-sync"},
    "a100_sam_fast_large": {"overhead-bound": "launch-gaps", "costly-children": "implicit-sync"},
    "a100_vit_capture_and_graphs": {"launch-gaps": "graph-recaptured"},
    "h100_qwen_orphans": {"costly-children": "compute-bound", "unfused-pointwise": "unfused-rotary"},
    "rtx3060_compile_steps": {"hotspot": "fp32-gemm"},
    "v100_ns_timestamps": {"hotspot": "fp32-gemm"},
    "v100_resnet50_oldest": {"many-small-calls": "single-tensor-optimizer"},
    "v100_resnet50_steps": {"many-small-calls": "single-tensor-optimizer"},
    "mi210_gpu_only": {"copy-kernels": "layout-conversion"},
    "mi300x_sglang_decode_device9": {
        "implicit-sync": "queued-work-waits",
        "sync-over-little-work": "queued-work-waits",
    },
    "mi300x_vllm_decode_graph": {"nothing-recorded": "queued-work-waits"},
    "v100_dlrm_rank0": {
        "overhead-bound": "launch-gaps",
        "hotspot": "exposed-communication",
        "unfused-pointwise": "single-tensor-optimizer",
    },
    "b200_eager_nvjet": {"launch-gaps": "overhead-bound"},
    "h100_bert_small": {"launch-gaps": "overhead-bound"},
    "h100_transformer_three_steps": {"launch-gaps": "overhead-bound"},
    "h100_vit_falconsai": {"launch-gaps": "overhead-bound"},
    "mi250_string_tids": {"launch-gaps": "overhead-bound"},
    "mi300x_bert_small": {"launch-gaps": "overhead-bound"},
}
"""By recording and code, which finding tells its cause, so that it does not stand out."""
LIKE_ANOTHER = "a100_sam_fast_large"
"""A recording of the same model as another one of its size: what goes one way through both is looked at in that one."""


def is_in_shorter_ones(code: str, recording: str) -> bool:
    """Whether a recording is one of the longest, and others have this finding too."""
    return recording in LEFT_OUT and any(code in FINDINGS[other] for other in FINDINGS.keys() - LEFT_OUT)
