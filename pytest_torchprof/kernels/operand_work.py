"""The least work of a call of an operator, computing and moving, from the operands that the recording holds.

FLOPs are those of torch.utils.flop_counter, by the function named beside each formula: a product and a sum are two.
Bytes are those of every operand read once and of the result written once; parts that overlap in memory are read once.
Work that the recording does not show stays None. A kernel that uses another algorithm (Winograd, FFT, sparsity) does
fewer FLOPs.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from msgspec import Struct

from pytest_torchprof.kernels.names.text import word_list
from pytest_torchprof.kernels.operands import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DTYPE_BYTES: Final = {
    **dict.fromkeys(("fp64", "int64", "complex64"), 8),
    **dict.fromkeys(("fp32", "int32"), 4),
    **dict.fromkeys(("bf16", "fp16", "int16"), 2),
    **dict.fromkeys(("fp8", "int8", "uint8", "bool"), 1),
    "complex128": 16,
}
FAMILIES: Final = {
    **dict.fromkeys(("gemm", "conv"), frozenset({"gemm", "conv"})),
    "attention": frozenset({"attention"}),
    **dict.fromkeys(("pointwise", "copy"), frozenset({"pointwise", "copy"})),
}
"""The families of kernels that may do the same work; the other kernels that an operator launches help (splits,
layouts, fills).
"""
_FLOATS: Final = frozenset({"fp64", "fp32", "bf16", "fp16"})
_SAME_TYPE: Final = frozenset(
    word_list(
        """
        abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal square pow sigmoid tanh sin cos erf relu gelu
        silu mish hardswish hardsigmoid softplus elu leaky_relu clamp clamp_min clamp_max floor ceil round trunc
        add sub mul div maximum minimum addcmul addcdiv lerp
        gelu_backward silu_backward sigmoid_backward tanh_backward threshold_backward
        """
    )
)
"""Operators that make, from operands of one floating-point type, one result of that type, of the shape to which the
operands are broadcast.
"""


class OperandWork(Struct, frozen=True, kw_only=True):
    """The least work of one call; each figure is None if the recording does not show it."""

    flops: int | None = None
    bytes: int | None = None


def work_together(calls: Sequence[tuple[int, OperandWork]]) -> OperandWork:
    """Return the work of all calls, each made so many times; a figure is None unless it is known for all of them."""

    def total(name: str) -> int | None:
        known = [(count, getattr(work, name)) for count, work in calls]
        return None if any(figure is None for _, figure in known) else sum(count * figure for count, figure in known)

    return OperandWork(flops=total("flops"), bytes=total("bytes"))


class Operand(Struct, frozen=True, kw_only=True):
    """A tensor among the inputs; ``dtype`` and ``strides`` are None if they are not known."""

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str | None

    @property
    def bytes(self) -> int | None:
        """The bytes that are read when it is read once; None if not known."""
        if self.strides is None or self.dtype not in DTYPE_BYTES:
            return None
        reach = 1 + sum((size - 1) * abs(stride) for size, stride in zip(self.shape, self.strides, strict=True))
        return DTYPE_BYTES[self.dtype] * min(prod(self.shape), reach)


def has_formula(op: str) -> bool:
    """Return whether the work of an operator follows from its operands."""
    return op in _FORMULAS or op.removeprefix("aten::").removesuffix("_") in _SAME_TYPE


def has_formula_for(op: str, dtypes: Sequence[object] | None, shapes: Sequence[object] | None) -> bool:
    """Return whether the work of an operator on such operands is known, or may be, as far as the recording shows."""
    if op in _FORMULAS or not dtypes or not shapes or len(dtypes) != len(shapes):
        return has_formula(op)
    known = {DTYPES.get(str(dtype)) for shape, dtype in zip(shapes, dtypes, strict=True) if shape and _is_shape(shape)}
    return has_formula(op) and len(known := known - {None}) <= 1 and known <= _FLOATS


def counts_flops(op: str) -> bool:
    """Return whether the work of an operator is known in FLOPs too."""
    return op in _FORMULAS and op != "aten::copy_"


def work_of(
    op: str,
    dtypes: Sequence[object] | None,
    shapes: Sequence[object] | None,
    strides: Sequence[object] | None,
    settings: Sequence[object] | None,
) -> OperandWork:
    """Return the work of one call; ``settings`` are the inputs other than tensors, as text at their positions."""
    formula: Callable[..., OperandWork] = _FORMULAS.get(op, _same_type)
    if not has_formula(op) or not shapes or not dtypes or len(dtypes) != len(shapes):
        return OperandWork()
    strides_of = strides if strides and len(strides) == len(shapes) else [None] * len(shapes)
    inputs = [_operand(*described) for described in zip(shapes, strides_of, dtypes, strict=True)]
    try:
        return formula(op, inputs, settings)
    except (IndexError, KeyError, ValueError):
        # These are not the operands of the operator that the formula is for.
        return OperandWork()


def _operand(shape: object, strides: object, dtype: object) -> Operand | None:
    """Return the tensor; None for any other input. A number is one without dimensions, of which nothing is read."""
    known = DTYPES.get(str(dtype))
    if known is None or not _is_shape(shape):
        return None
    are_whole = (
        isinstance(strides, list) and len(strides) == len(shape) and all(isinstance(stride, int) for stride in strides)
    )
    return Operand(shape=tuple(shape), strides=tuple(strides) if are_whole else None, dtype=known)  # type: ignore[arg-type]


def _is_shape(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(isinstance(size, int) for size in value)


_Inputs = list[Operand | None]


def _tensor(inputs: _Inputs, index: int) -> Operand:
    operand = inputs[index]
    if operand is None:
        raise ValueError(index)
    return operand


def _moved_bytes(read: Sequence[Operand], written: int, dtype: str | None) -> int | None:
    """Return the bytes of the operands that are read and of the ``written`` elements."""
    sizes = [operand.bytes for operand in read]
    known = [size for size in sizes if size is not None]
    return sum(known) + written * DTYPE_BYTES[dtype] if len(known) == len(sizes) and dtype in DTYPE_BYTES else None


def _product(first: int) -> Callable[..., OperandWork]:
    """Return the formula of products whose first matrix is input ``first``.

    It is that of mm_flop, addmm_flop, bmm_flop and baddbmm_flop.
    """

    def formula(_op: str, inputs: _Inputs, _settings: Any) -> OperandWork:
        a, b = _tensor(inputs, first), _tensor(inputs, first + 1)
        *batch, m, k = a.shape
        *same, inner, n = b.shape
        if batch != same or inner != k or len(batch) > 1:
            raise ValueError(a.shape, b.shape)
        out = prod(batch) * m * n
        added = [_tensor(inputs, 0)] if first else []
        return OperandWork(
            flops=2 * out * k, bytes=_moved_bytes([*added, a, b], out, a.dtype if a.dtype == b.dtype else None)
        )

    return formula


def _integers(settings: Any, index: int) -> list[int]:
    """Return the integers of the setting at ``index``; ValueError if they are not recorded."""
    text = str(settings[index]) if settings else ""
    if not text.startswith("["):
        raise ValueError(text)
    return [int(number) for number in text.strip("[]").split(",")]


def _convolution(padding_at: int, *, transposed: bool = False) -> Callable[..., OperandWork]:
    """Return the formula of convolutions with their padding at ``padding_at``.

    It is that of conv_flop_count, with the sizes of torch.nn.Conv2d.
    """

    def formula(_op: str, inputs: _Inputs, settings: Any) -> OperandWork:
        x, weight = _tensor(inputs, 0), _tensor(inputs, 1)
        batch, _, *size = x.shape
        c_out, c_in, *kernel = weight.shape
        padding = _integers(settings, padding_at)
        more = _integers(settings, padding_at + 1) if transposed else [0] * len(size)
        stride, dilation = (_integers(settings, padding_at + 1 + transposed + at) for at in range(2))
        each = [*zip(size, kernel, padding, stride, dilation, more, strict=True)]
        if transposed:
            out = [(n - 1) * s - 2 * p + d * (k - 1) + extra + 1 for n, k, p, s, d, extra in each]
            groups = int(str(settings[padding_at + 4]))
            result = batch * c_in * groups * prod(out)
        else:
            out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, p, s, d, _ in each]
            result = batch * c_out * prod(out)
        flops = 2 * batch * prod(size if transposed else out) * prod(kernel) * c_out * c_in
        dtype = x.dtype if x.dtype == weight.dtype else None
        return OperandWork(flops=flops, bytes=_moved_bytes([x, weight], result, dtype))

    return formula


def _scaled_product(_op: str, inputs: _Inputs, settings: Any) -> OperandWork:
    """Return the work of a product of fp8, by scaled_mm_flop; its scales are few."""
    a, b = _tensor(inputs, 0), _tensor(inputs, 1)
    rows, inner = a.shape
    same, columns = b.shape
    if inner != same:
        raise ValueError(a.shape, b.shape)
    result = _RESULTS.get(str(settings[_RESULT_AT])) if settings and len(settings) > _RESULT_AT else None
    return OperandWork(flops=2 * rows * columns * inner, bytes=_moved_bytes([a, b], rows * columns, result))


_RESULT_AT: Final = 6
_RESULTS: Final = {"5": "fp16", "6": "fp32", "15": "bf16"}


def _attention(
    without: Sequence[int], causal_at: int, *, heads_first: bool = False, bias_at: int | None = None
) -> Callable[..., OperandWork]:
    """Return the formula of attention, of tensors (batch, sequence, heads, size); sdpa_flop_count.

    With ``heads_first`` they are (batch, heads, sequence, size), and at ``bias_at`` is what is added to the weights.

    A causal mask halves the work, as the authors of FlashAttention count. ``without`` are inputs to which the formula
    does not apply: sequences of several lengths, windows.
    """

    def formula(_op: str, inputs: _Inputs, settings: Any) -> OperandWork:
        q, k, v = (_tensor(inputs, index) for index in range(3))
        batch, of_q, heads, size = q.shape
        _, of_k, _, _ = k.shape
        if heads_first:
            of_q, heads, of_k = heads, of_q, k.shape[2]
        if not settings or any(inputs[at] is not None or str(settings[at]) for at in without):
            raise ValueError(settings)
        causal = {"False": False, "0": False, "True": True, "1": True, "2": True}[str(settings[causal_at])]
        flops = 2 * batch * heads * of_q * of_k * (size + v.shape[-1])
        out = batch * of_q * heads * v.shape[-1]
        bias = None if bias_at is None else inputs[bias_at]
        read = [q, k, v] if bias is None else [q, k, v, bias]
        return OperandWork(flops=flops // 2 if causal else flops, bytes=_moved_bytes(read, out, q.dtype))

    return formula


def _same_type(op: str, inputs: _Inputs, _settings: Any) -> OperandWork:
    """Return the bytes of an elementwise operator; like torch, this does not count its few operations per element."""
    tensors = [operand for operand in inputs if operand is not None and operand.shape]
    dtypes = {operand.dtype for operand in tensors}
    if len(dtypes) != 1 or not dtypes <= _FLOATS:
        raise ValueError(op)
    return OperandWork(bytes=_moved_bytes(tensors, prod(_broadcast_shape(tensors)), tensors[0].dtype))


def _broadcast_shape(tensors: Sequence[Operand]) -> list[int]:
    """Return the shape that the operands are broadcast to."""
    longest = max(len(operand.shape) for operand in tensors)
    padded = [(1,) * (longest - len(operand.shape)) + operand.shape for operand in tensors]
    return [max(sizes) if min(sizes) else 0 for sizes in zip(*padded, strict=True)]


def _copy(_op: str, inputs: _Inputs, _settings: Any) -> OperandWork:
    """Return the bytes of a copy: the second operand is read, the first one written."""
    target, source = _tensor(inputs, 0), _tensor(inputs, 1)
    return OperandWork(bytes=_moved_bytes([source], prod(target.shape), target.dtype))


_FORMULAS: Final[dict[str, Callable[..., OperandWork]]] = {
    **dict.fromkeys(("aten::mm", "aten::bmm"), _product(0)),
    **dict.fromkeys(("aten::addmm", "aten::baddbmm", "aten::_addmm_activation"), _product(1)),
    "aten::cudnn_convolution": _convolution(2),
    "aten::miopen_convolution": _convolution(3),
    "aten::cudnn_convolution_transpose": _convolution(2, transposed=True),
    "aten::_flash_attention_forward": _attention((3, 4, 11, 12), 8),
    "aten::_efficient_attention_forward": _attention((4, 5, 13), 9),
    "aten::_cudnn_attention_forward": _attention((4, 5), 10, heads_first=True, bias_at=3),
    "aten::_scaled_mm": _scaled_product,
    "aten::copy_": _copy,
}
