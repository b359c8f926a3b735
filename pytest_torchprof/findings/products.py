"""Findings about matrix products and convolutions: their types, their sizes, and copies that belong to them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from pytest_torchprof.analysis.efficiency import has_tf32, peak_ratio
from pytest_torchprof.analysis.parts import copied_bytes, copy_direction
from pytest_torchprof.findings.catalogue.products import (
    Fp32Products,
    HiddenCopy,
    MisalignedProducts,
    Tf32Products,
    UnaskedFp64,
)
from pytest_torchprof.findings.events import Events
from pytest_torchprof.findings.evidence import evidence, members
from pytest_torchprof.findings.finding import (
    GPU_WORK,
    HOW_MANY_KERNELS,
    OPERATORS,
    SHAPES,
    SLOW_KERNELS,
    WHICH_KERNELS,
    Finding,
    Need,
    Operations,
    Rule,
    Threshold,
    need_known_kernels,
    need_known_operations,
)
from pytest_torchprof.findings.places import source_of_ops
from pytest_torchprof.kernels.names.kernelname import FAMILIES
from pytest_torchprof.kernels.operands import Launch
from pytest_torchprof.kernels.reply import NO, NOT_KNOWN, ask, every, known, same
from pytest_torchprof.reasons.findings import CopiesOfSomeUnknown, SizesOfSomeUnknown, TypesOfSomeUnknown
from pytest_torchprof.trace.columns import MEMCPY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.gpu_work import Group
    from pytest_torchprof.findings.evidence import KernelFacts
    from pytest_torchprof.kernels.names import KernelName
    from pytest_torchprof.kernels.reply import Reply

    class _SlowType(KernelFacts):
        """The facts of products in a slow type; see `SlowType`."""

        kernel_share: float
        families: tuple[Literal["gemm", "conv"], ...]
        peak_ratio: float
        peaks_known: bool
        flags: dict[str, bool | str | None]
        saves_us: float


SLOW_TYPE = Threshold(
    "share", 0.05, "from a twentieth of the kernel time on, the type of the products decides about it"
)

MISALIGNED = Threshold("share", 0.05, "of the time of products; below a twentieth of it padding changes nothing")
TO_BE_WON = 0.5
"""Kernels for unaligned operands read 2 or 4 bytes where 16 fit; half of their time is the most seen in practice."""
_UNIT = {"bf16": 8, "fp16": 8, "tf32": 4, "fp8": 16, "int8": 16}
"""Elements in 16 bytes, the widest access to memory."""

_PRODUCT_FAMILIES: Final = ("gemm", "conv")
_WORTH_A_SETTING = 0.1
"""The part of the time in fp32 from which on what allows TF32 for it is told."""
_FLAGS = ("tf32_matmul", "tf32_cudnn", "matmul_precision")

DOUBLE = Threshold("share", 0.01, "a hundredth of the kernel time in a type that few programs ask for")
MEANT = Threshold("meant", 0.5, "a program that computes mostly in fp64 means to")

COPYING = Threshold("share", 0.01, "a hundredth of the kernel time on copies that nobody wrote is easily saved")

_PRODUCTS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1, "aten::_addmm_activation": 1}
"""The position of the first matrix among the operands."""
_ADDING = ("aten::addmm", "aten::addmm_", "aten::baddbmm", "aten::baddbmm_", "aten::_addmm_activation")


def _products_of_type(analysis: Analysis, dtype: str, least: float) -> tuple[list[Group], float]:
    """Return the products and convolutions that compute in a type, and their time, if that is enough for a finding.

    A kernel that only prepares them, such as a conversion of the layout, computes in no type.
    """
    work = analysis.gpu_work
    products = [group for group in work.of_family("gemm", "conv") if _is_product_in(work.decoded(group), dtype)]
    spent = sum(group.time_ns for group in products) / 1000
    return (products, spent) if spent and spent >= least * work.kernel_time_us else ([], 0.0)


def _need_types(dtype: str, least: Threshold, *families: str) -> Need:
    """Return the need that holds where products of unknown type cannot make a finding about this type."""
    return need_known_kernels(
        TypesOfSomeUnknown(dtype),
        partial(_may_compute_in, dtype=dtype),
        least,
        surely=partial(_computes_in, dtype, families),
    )


def _is_product_in(decoded: KernelName, dtype: str) -> bool:
    return decoded.dtype == dtype and decoded.helper is None


def _computes_in(dtype: str, families: Sequence[str], analysis: Analysis, group: Group) -> bool:
    decoded = analysis.gpu_work.decoded(group)
    is_product = decoded.family not in _PRODUCT_FAMILIES or decoded.helper is None
    return decoded.dtype == dtype and decoded.family in families and is_product


def _may_compute_in(analysis: Analysis, group: Group, dtype: str) -> bool:
    """Whether a product, or a kernel that may be one, could compute in a type but is not known to."""
    work, decoded = analysis.gpu_work, analysis.gpu_work.decoded(group)
    if decoded.dtype is not None or decoded.helper is not None or decoded.is_of("gemm", "conv") is NO:
        return False
    types, shapes, _ = analysis.launching.operands(group.inputs) if group.inputs >= 0 else (None, None, None)
    launch = Launch(op=work.op_name(group), dtypes=types, shapes=shapes)
    from pytest_torchprof.kernels.computed_types import computes_in  # noqa: PLC0415 - few products need it

    return computes_in(analysis.trace.names[group.name], decoded, launch, dtype) is NOT_KNOWN


def _slow_type(analysis: Analysis, least: float, dtype: str, faster: Sequence[str]) -> _SlowType | None:
    """Return the facts about products in a type, None if they are not enough for a finding."""
    work, (products, spent) = analysis.gpu_work, _products_of_type(analysis, dtype, least)
    if not products:
        return None
    known = [gain for other in faster if (gain := peak_ratio(analysis.trace, other, dtype)) is not None]
    gain = max(known, default=2.0)
    metadata = analysis.trace.metadata
    environment = None if metadata is None else metadata.environment
    families = {work.named[group.name].family for group in products}
    return {
        **evidence(work, members(products)),
        "kernel_share": spent / work.kernel_time_us,
        "families": tuple(family for family in _PRODUCT_FAMILIES if family in families),
        "peak_ratio": gain,
        "peaks_known": bool(known),
        "flags": {name: getattr(environment, name) for name in _FLAGS} if environment else {},
        "saves_us": spent * (1 - 1 / gain),
    }


def _fp32_gemm(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    if (facts := _slow_type(analysis, at[SLOW_TYPE], "fp32", ("bf16", "fp16"))) is not None:
        fast_bf16 = analysis.trace.rocm or has_tf32(analysis.trace)
        yield Fp32Products(**facts, fast_bf16=fast_bf16, may_use_tf32=_without_tf32(analysis))


def _without_tf32(analysis: Analysis) -> tuple[Literal["gemm", "conv"], ...]:
    """Return the families that compute in fp32 because TF32 is not allowed, as far as settings and kernels show."""
    if not has_tf32(analysis.trace):
        return ()
    work, metadata = analysis.gpu_work, analysis.trace.metadata
    environment = None if metadata is None else metadata.environment
    allowed = {
        "gemm": environment is not None and bool(environment.tf32_matmul),
        "conv": environment is not None and bool(environment.tf32_cudnn),
    }
    types: dict[str, set[str | None]] = {"gemm": set(), "conv": set()}
    in_fp32_ns = dict.fromkeys(types, 0)
    for group in work.of_family(*_PRODUCT_FAMILIES):
        if (decoded := work.decoded(group)).helper is None:
            # A convolution may be computed as a product; the setting for convolutions decides.
            of_conv = decoded.family == "conv" or "conv" in (work.op_name(group) or "")
            types["conv" if of_conv else "gemm"].add(decoded.dtype)
            in_fp32_ns["conv" if of_conv else "gemm"] += group.time_ns if decoded.dtype == "fp32" else 0
    # What hardly any of it is about is no advice: with cuDNN's TF32 allowed, a setting for products changes nothing.
    least_ns = _WORTH_A_SETTING * sum(in_fp32_ns.values())
    return tuple(
        family
        for family in _PRODUCT_FAMILIES
        if in_fp32_ns[family] > least_ns and "tf32" not in types[family] and not allowed[family]
    )


def _tf32_gemm(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    if (facts := _slow_type(analysis, at[SLOW_TYPE], "tf32", ("bf16",))) is not None:
        yield Tf32Products(**facts)


def _unasked_fp64(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find kernels that compute in fp64 in a program that computes in another type."""
    work = analysis.gpu_work
    in_fp64 = [group for group in work.groups if work.decoded(group).dtype == "fp64"]
    spent = sum(group.time_ns for group in in_fp64) / 1000
    if not spent or not at[DOUBLE] * work.kernel_time_us <= spent < at[MEANT] * work.kernel_time_us:
        return
    yield UnaskedFp64(**evidence(work, members(in_fp64)), kernel_share=spent / work.kernel_time_us, saves_us=spent / 2)


def _misaligned_gemm(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find products on tensor cores whose rows do not start at multiples of 16 bytes."""
    work = analysis.gpu_work
    products = work.of_family("gemm")
    whole = sum(group.time_ns for group in products) / 1000
    odd = [(group, sizes) for group in products if (sizes := odd_sizes(analysis, group))]
    spent = sum(group.time_ns for group, _ in odd) / 1000
    if not spent or spent < at[MISALIGNED] * whole:
        return
    yield MisalignedProducts(
        **evidence(work, members(group for group, _ in odd)),
        product_share=spent / whole,
        sizes=tuple(sizes for _, sizes in odd[:5]),
        of_ops=tuple(str(work.op_name(group)) for group, _ in odd[:5]),
        saves_us=spent * TO_BE_WON,
    )


def odd_sizes(analysis: Analysis, group: Group) -> str | None:
    """Return the sizes that are not multiples, such as "N=30522"; None if all are, or if sizes are not recorded."""
    work = analysis.gpu_work
    if group.op < 0 or work.trace.names[group.op] not in _PRODUCTS:
        return None
    unit = _UNIT.get(work.decoded(group).dtype or "")
    first = _PRODUCTS[work.trace.names[group.op]]
    _, shapes, strides = analysis.launching.operands(group.inputs)
    if unit is None or not shapes or len(shapes) < first + 2:
        return None
    mat1, mat2 = shapes[first], shapes[first + 1]
    if not (_matrix(mat1) and _matrix(mat2)):
        return None
    # A size is in the way only where it is the distance between rows. Rows of the first operand and of the result may
    # be as many as they like; a column-major operand has its other size there.
    sizes = {"M": mat1[-2], "K": mat1[-1], "N": mat2[-1]}
    if 1 in sizes.values():
        return None
    apart = {"N"}
    for shape, stride, names in ((mat1, _at(strides, first), "MK"), (mat2, _at(strides, first + 1), "KN")):
        column_major = stride is not None and len(stride) == len(shape) and stride[-2] == 1 != stride[-1]
        apart.add(names[0] if column_major else names[1])
    return ", ".join(f"{name}={sizes[name]}" for name in "MKN" if name in apart and sizes[name] % unit) or None


def _may_be_odd(analysis: Analysis, group: Group) -> bool:
    """Whether a kernel may be a product of odd sizes: its operator or the operator's operands are unknown."""
    work, decoded = analysis.gpu_work, analysis.gpu_work.decoded(group)
    if decoded.helper is not None or decoded.dtype not in (*_UNIT, None) or decoded.is_of("gemm") is NO:
        return False
    if not work.operator_known(group):
        return True
    return work.op_name(group) in _PRODUCTS and (decoded.dtype is None or work.shapes(group) is None)


def _matrix(shape: Any) -> bool:
    return isinstance(shape, list) and len(shape) >= 2 and all(isinstance(size, int) for size in shape)


def _at(values: Sequence[Any] | None, place: int) -> Any:
    return values[place] if values is not None and place < len(values) and isinstance(values[place], list) else None


def _hidden_copy(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find copies on the device that fill a product's result with the bias before the product adds to it."""
    trace, work, copies = analysis.trace, analysis.gpu_work, _bias_copies(analysis).yes
    spent = work.time_us(copies)
    if not spent or spent < at[COPYING] * work.kernel_time_us:
        return
    size = copied_bytes(trace, [i for i in copies if trace.gpu.kind[i] == MEMCPY])
    yield HiddenCopy(
        time_us=spent,
        share=work.share_of(copies),
        copies=len(copies),
        bytes=size,
        ops=tuple(dict.fromkeys(name for name in _products_around(analysis, copies) if name is not None)),
        source=source_of_ops(work, copies),
        events=Events(gpu_ops=tuple(copies)),
        saves_us=spent,
    )


def _bias_copies(analysis: Analysis) -> Operations:
    """Ask each copy, and each kernel that copies or may copy, whether it puts a bias into the result of a product."""
    work, trace, launching = analysis.gpu_work, analysis.trace, analysis.launching
    copying = {name for name, decoded in work.named.items() if decoded.is_of("copy").may_be}
    asked = [*work.copies, *(i for i in work.kernels if trace.gpu.name[i] in copying)]
    # The operator of most of them is known, and is no product.
    products, no_operator = _products_around(analysis, asked), work.without_known_operator
    in_question = [i for i, of in zip(asked, products, strict=True) if of is not None or i in no_operator]

    def puts_bias(gpu_op: int) -> Reply:
        untold = gpu_op in no_operator
        if trace.gpu.kind[gpu_op] == MEMCPY:
            on_device = same(copy_direction(trace.names[trace.gpu.name[gpu_op]]), "DtoD")
            return every((NOT_KNOWN, on_device)) if untold else on_device
        decoded = launching.decoded(gpu_op)
        if untold:
            return NOT_KNOWN if decoded.is_of("copy").may_be else NO
        return known(holds=decoded.helper == "bias copy")

    replies = ask(in_question, puts_bias)
    return Operations(yes=replies.yes, not_known=replies.not_known)


def _products_around(analysis: Analysis, gpu_ops: Iterable[int]) -> list[str | None]:
    """Return for each operation the product's operator, if it or a copy directly inside it launched it; else None."""
    trace, op_of = analysis.trace, analysis.launching.op_of
    named, parent = trace.ops.name, trace.nesting.parent
    products = {i: name for i, name in enumerate(trace.names) if name in _ADDING}
    copies = {i for i, name in enumerate(trace.names) if name == "aten::copy_"}
    launching = (op_of[i] for i in gpu_ops)
    around = (parent[op] if op >= 0 and named[op] in copies else op for op in launching)
    return [products.get(named[op]) if op >= 0 else None for op in around]


RULES = (
    Rule(
        code="fp32-gemm",
        find=_fp32_gemm,
        needs=(GPU_WORK, _need_types("fp32", SLOW_TYPE, "gemm", "conv")),
        thresholds=(SLOW_TYPE,),
        explains=(*WHICH_KERNELS, *SLOW_KERNELS),
    ),
    Rule(
        code="tf32-gemm",
        find=_tf32_gemm,
        needs=(GPU_WORK, _need_types("tf32", SLOW_TYPE, "gemm", "conv")),
        thresholds=(SLOW_TYPE,),
        explains=(*WHICH_KERNELS, *SLOW_KERNELS),
    ),
    Rule(
        code="unasked-fp64",
        find=_unasked_fp64,
        needs=(GPU_WORK, _need_types("fp64", DOUBLE, *FAMILIES)),
        thresholds=(DOUBLE, MEANT),
        explains=SLOW_KERNELS,
    ),
    Rule(
        code="misaligned-gemm",
        find=_misaligned_gemm,
        needs=(
            OPERATORS,
            SHAPES,
            need_known_kernels(
                SizesOfSomeUnknown(),
                _may_be_odd,
                MISALIGNED,
                surely=odd_sizes,
                families=("gemm",),
            ),
        ),
        thresholds=(MISALIGNED,),
        explains=SLOW_KERNELS,
    ),
    Rule(
        code="hidden-copy",
        find=_hidden_copy,
        needs=(
            OPERATORS,
            need_known_operations(CopiesOfSomeUnknown(), _bias_copies, COPYING),
        ),
        thresholds=(COPYING,),
        explains=(*HOW_MANY_KERNELS, *WHICH_KERNELS, *SLOW_KERNELS, "max_memcpys"),
    ),
)
