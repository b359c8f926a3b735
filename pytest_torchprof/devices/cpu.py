"""The CPU as device: the operators that compute are its kernels."""

from __future__ import annotations

import re
from functools import cache

from pytest_torchprof.devices.cpu_operators import ALONE, VIEWS
from pytest_torchprof.devices.kinds import DeviceKind, OperatorWork
from pytest_torchprof.devices.range_names import PLUGIN, STEP

# Patterns that only recordings of the CPU need are texts, which are compiled at their first use.
# Fused loops, and templates of products and attention, which have different names, all with the number of a graph.
_FUSED = r"(?:kernel_)?cpp_(?:\w+_)?fused_\w*|graph_\d+_\w+"
_OPERATOR = r"[A-Za-z_]\w*::\w[\w.]*"
FORKED = "<forked function>"
"""The frame around the function that ``torch.jit.fork`` runs on one of torch's threads."""
# Ranges of autograd, torch.compile, communication (inside their operator), the profiler, and our own.
_HOLDERS = (
    r"(?s:autograd::engine::evaluate_function: .*|torch::\w+::.*|\w+Backward\d*|Optimizer\..*"
    r"|Torch-Compiled Region.*|TorchDynamo .*|Pregraph bytecode|AOTDispatcher .*|CompiledFunction\w*"
    r"|## Call CompiledFxGraph .*|inductor_wrapper_call|.* \(dynamo_timed\)"
    r"|(?:gloo|mpi|nccl|ucc):.*|record_param_comms"
    rf"|{STEP}\d+|profiler::_record_function_\w+(?:\.\w+)?|{PLUGIN}(?:sentinel|aotinductor)|prim::.*"
    rf"|{FORKED})"
)
# Views that torch does not declare as views.
_MORE_VIEWS = """
_reshape_from_tensor _unsafe_view align_as align_tensors align_to atleast_1d atleast_2d atleast_3d broadcast_tensors
concrete data flatten_dense_tensors lift meshgrid refine_names rename rename_ unflatten_dense_tensors unsafe_chunk
unsafe_split unsafe_split_with_sizes
"""
_METADATA = """
_assert_async _assert_scalar _assert_tensor_metadata _backward _choose_qparams_per_tensor _coalesced _coalesced_
_cufft_clear_plan_cache _debug_has_internal_overlap _dimI _dimV _fused_sdp_choice _has_compatible_shallow_copy_type
_has_same_storage_numel _is_all_true _is_any_true _is_zerotensor _local_scalar_dense _nested_get_ragged_idx
_nnpack_available _nnz _print _use_cudnn_ctc_loss _version backward can_cast cudnn_is_acceptable dense_dim get_device
is_coalesced is_complex is_conj is_contiguous is_distributed is_floating_point is_inference is_leaf is_neg
is_non_overlapping_and_dense is_nonzero is_pinned is_same_size is_set_to is_signed item numel output_nr promote_types
q_scale q_zero_point qscheme record_stream requires_grad_ result_type retain_grad retains_grad set
set_data size sparse_dim storage_offset stride sym_numel sym_size sym_storage_offset sym_stride
"""
_ALLOCATION = """
_efficientzerotensor _empty_affine_quantized _empty_per_channel_affine_quantized _resize_output _resize_output_ empty
empty_like empty_permuted empty_quantized empty_strided new_empty new_empty_strided resize resize_ resize_as
resize_as_
"""
# These return their input if there is nothing to do (no mask to draw in eval mode, the right type or layout already);
# otherwise they contain the operator that does the work.
_WRAPPERS = """
alpha_dropout alpha_dropout_ coalesce contiguous cpu cuda dropout dropout_ feature_alpha_dropout feature_dropout
feature_dropout_ pin_memory to type_as
"""
_MOVING = """
_copy_from _copy_from_and_resize _foreach_copy _foreach_copy_ _foreach_zero _foreach_zero_ _pin_memory _to_copy clone
copy copy_ fill fill_ full full_like lift_fresh_copy new_full new_ones new_zeros ones ones_like scalar_tensor zero zero_
zeros zeros_like
"""
_ATEN = {
    **dict.fromkeys((VIEWS + _MORE_VIEWS + _METADATA + _ALLOCATION + _WRAPPERS).split(), OperatorWork.NOTHING),
    **dict.fromkeys(_MOVING.split(), OperatorWork.MOVES),
    **dict.fromkeys(ALONE.split(), OperatorWork.ALONE),
}
_VIEW_COPY = (
    r"_?(?:alias|as_strided|conj|detach|diagonal|expand|narrow|neg_view|permute|reshape|reshape_alias|select|slice|split"
    r"|split_with_sizes|squeeze|t|transpose|unbind|unfold|unsqueeze|view|view_as_complex|view_as_real)_copy"
)
_OTHERS = {
    "inductor::_alloc_from_pool": OperatorWork.NOTHING,
    "inductor::_reinterpret_tensor": OperatorWork.NOTHING,
    "inductor::_empty_strided_cpu": OperatorWork.NOTHING,
}


@cache
def operator_work(name: str) -> OperatorWork:
    """Return the work that the operator does by itself."""
    if re.fullmatch(_FUSED, name):
        return OperatorWork.FUSED
    if re.fullmatch(_HOLDERS, name):
        return OperatorWork.NOTHING
    if not re.fullmatch(_OPERATOR, name):
        # Autograd has events of its own for a few operators, without a namespace.
        return _ATEN.get(name, OperatorWork.UNKNOWN)
    if not name.startswith("aten::"):
        return _OTHERS.get(name, OperatorWork.COMPUTES)
    plain = name.removeprefix("aten::").partition(".")[0]
    if re.fullmatch(_VIEW_COPY, plain):
        return OperatorWork.MOVES
    # An in-place operator does the work of the variant that makes a new tensor.
    return _ATEN.get(plain) or _ATEN.get(plain.rstrip("_"), OperatorWork.COMPUTES)


KIND = DeviceKind(
    name="cpu",
    title="the CPU as device",
    operator_work=operator_work,
    waiting_operators=frozenset({"aten::_local_scalar_dense", "aten::item", "aten::is_nonzero"}),
    lacks=frozenset({"gpu"}),
    # A GPU's driver and libraries say nothing about a test that ran on the CPU of the same machine.
    environment=("torch", "matmul_precision"),
)
