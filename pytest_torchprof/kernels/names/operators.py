"""Operators as kernels: where the CPU is the device, a kernel is called ``aten::addmm``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.names.kernelname import KernelName

if TYPE_CHECKING:
    from pytest_torchprof.kernels.names.text import Text

_SPACES: Final = ("aten::", "mkldnn::", "mkldnn_prepacked::", "quantized::", "onednn::", "torchvision::")

_FAMILIES: Final = {
    "gemm": """
        mm addmm bmm baddbmm addbmm mv addmv addr ger outer dot vdot inner matmul linear _scaled_mm _int_mm _grouped_mm
        _addmm_activation _linear_pointwise mkldnn_linear linear_dynamic linear_pointwise qlinear_pointwise _mkl_linear
        _weight_int4pack_mm_for_cpu _weight_int8pack_mm _dyn_quant_matmul_4bit
        """,
    "conv": """
        convolution _convolution mkldnn_convolution convolution_backward conv1d conv2d conv3d thnn_conv2d
        _slow_conv2d_forward _slow_conv2d_backward slow_conv3d slow_conv3d_forward _convolution_pointwise
        _convolution_transpose_pointwise convolution_overrideable _conv_depthwise2d conv_depthwise3d
        slow_conv_transpose2d
        slow_conv_dilated2d _nnpack_spatial_convolution convolution_relu
        """,
    "attention": """
        _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward
        _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention _flash_attention_forward
        _efficient_attention_forward flash_attention
        """,
    "softmax": "_softmax _log_softmax softmax log_softmax _softmax_backward_data _log_softmax_backward_data",
    "normalization": """
        native_layer_norm native_layer_norm_backward native_batch_norm native_batch_norm_backward native_group_norm
        native_group_norm_backward _native_batch_norm_legit _batch_norm_with_update _fused_rms_norm rms_norm renorm
        _fused_rms_norm_backward _weight_norm_interface
        """,
    "reduction": """
        sum mean prod max min amax amin argmax argmin any all var std var_mean std_mean norm linalg_vector_norm
        logsumexp cumsum cumprod cummax cummin nansum median mode max_pool2d_with_indices avg_pool2d adaptive_avg_pool2d
        _adaptive_avg_pool2d max_pool2d_with_indices_backward nll_loss_forward nll_loss_backward mse_loss bincount histc
        count_nonzero _cdist_forward aminmax _max_pool2d
        """,
    "copy": """
        copy_ _to_copy clone contiguous cat stack repeat tile flip roll constant_pad_nd reflection_pad2d
        replication_pad2d
        """,
    "index": """
        index index_select index_put_ _index_put_impl_ index_add_ index_copy_ index_fill_ gather scatter scatter_
        scatter_add_ scatter_add scatter_reduce embedding embedding_dense_backward _embedding_bag
        _embedding_bag_dense_backward take masked_select nonzero masked_scatter_ where_index
        """,
    "sort": "sort topk kthvalue unique _unique2 searchsorted msort unique_dim unique_consecutive",
    "rng": """
        random_ uniform_ normal_ bernoulli_ bernoulli exponential_ multinomial native_dropout randperm rand randn
        normal log_normal_ cauchy_ geometric_ rrelu_with_noise
        """,
}
_SOLVERS: Final = ("linalg", "fft", "lstm", "gru", "rnn", "lu_", "cholesky", "svd", "qr", "triangular", "ormqr", "stft")
_FAMILY_OF: Final = {op: family for family, ops in _FAMILIES.items() for op in ops.split()}


def decode(text: Text) -> KernelName | None:
    """Return what an operator computes, None for any name without an operator's namespace."""
    base = text.head
    if not base.startswith(_SPACES) or text.args:
        return None
    op = text.last.partition(".")[0]
    family = _FAMILY_OF.get(op)
    if family is None:
        # What computes and is none of the above works element by element, but for ATen's solvers and transforms.
        pointwise = "pointwise" if base.startswith("aten::") and not op.lstrip("_").startswith(_SOLVERS) else "other"
        family = "optimizer" if op.startswith("_fused_") and op.endswith("_") else pointwise
    return KernelName(family=family, library="aten", tensor_core=False, stem=op)
