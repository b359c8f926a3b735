"""Calls of operators that torch's own tests of operators leave out: layers, sparse, quantized, on lists, in other types."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def calls() -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield calls by name; what this build of torch does not have raises when it is called."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        yield from _convolutions(dtype)
        for layer in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
            yield (
                f"{layer.__name__} {dtype}",
                partial(_backward, layer(64, 64, 2).to(dtype), _random(20, 8, 64, dtype=dtype)),
            )
    yield from _places()
    yield from _sparse()
    yield from _quantized()
    yield from _lists()
    encoder = torch.nn.TransformerEncoderLayer(64, 4, batch_first=True).eval()
    yield "transformer encoder", torch.no_grad()(partial(encoder, torch.randn(4, 32, 64)))
    scores = _random(50, 16, 20)
    lengths = torch.full((16,), 50), torch.full((16,), 20)
    yield (
        "ctc_loss",
        partial(_backward, lambda x: functional.ctc_loss(x.log_softmax(2), torch.ones(16, 30), *lengths), scores),
    )
    small = torch.randint(-5, 5, (128, 128), dtype=torch.int8)
    yield "int_mm", partial(torch._int_mm, small, small)
    yield "scaled_mm", _scaled


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def _backward(function: Callable[..., Any], *inputs: torch.Tensor) -> None:
    result = function(*inputs)
    (result[0] if isinstance(result, tuple) else result).sum().backward()


def _convolutions(dtype: torch.dtype) -> Iterator[tuple[str, Callable[[], object]]]:
    for dims, size in ((1, 256), (2, 32), (3, 12)):
        x, bias = _random(2, 16, *[size] * dims, dtype=dtype), _random(16, dtype=dtype)
        full, single = (_random(16, width, *[3] * dims, dtype=dtype) for width in (16, 1))
        plain = getattr(functional, f"conv{dims}d")
        yield f"conv{dims}d {dtype}", partial(_backward, plain, x, full, bias)
        yield f"dilated conv{dims}d {dtype}", partial(_backward, partial(plain, dilation=2), x, full, bias)
        yield f"grouped conv{dims}d {dtype}", partial(_backward, partial(plain, groups=16), x, single, bias)
        transposed = getattr(functional, f"conv_transpose{dims}d")
        yield f"conv_transpose{dims}d {dtype}", partial(_backward, transposed, x, full, bias)


def _places() -> Iterator[tuple[str, Callable[[], object]]]:
    x, rows, places = torch.randn(300, 300), torch.randint(0, 300, (300,)), torch.randint(0, 300, (300, 300))
    for how in ("mean", "prod", "amax", "amin"):
        yield f"index_reduce {how}", partial(x.index_reduce, 0, rows, x, how)
        yield f"scatter_reduce {how}", partial(x.scatter_reduce, 0, places, x, how)
    yield "repeat_interleave", partial(x.repeat_interleave, rows % 3, 0)


def _sparse() -> Iterator[tuple[str, Callable[[], object]]]:
    dense = torch.randn(300, 300)
    half = (dense * (torch.rand(300, 300) > 0.5)).to_sparse()
    yield "sparse mm", partial(torch.sparse.mm, half, dense)
    yield "sparse times sparse", partial(torch.sparse.mm, half, half)
    yield "csr mm", lambda: half.to_sparse_csr() @ dense
    yield "sparse addmm", partial(torch.sparse.addmm, dense, half, dense)
    yield "sparse sum", partial(torch.sparse.sum, half, 0)
    yield "sparse softmax", partial(torch.sparse.softmax, half, 0)
    yield "sparse add", lambda: half + half
    yield "sparse mul", lambda: half * half
    yield "to sparse and back", lambda: dense.to_sparse().to_dense()
    yield "coalesce", lambda: torch.sparse_coo_tensor(half.indices(), half.values(), (300, 300)).coalesce()


def _quantized() -> Iterator[tuple[str, Callable[[], object]]]:
    from torch.ao.nn import quantized

    x, image = torch.randn(64, 128), torch.randn(2, 16, 32, 32)
    rows, pixels = (torch.quantize_per_tensor(one, 0.1, 10, torch.quint8) for one in (x, image))
    yield "quantized linear", lambda: quantized.Linear(128, 128)(rows)
    yield "quantized conv", lambda: quantized.Conv2d(16, 16, 3)(pixels)
    yield "quantized add", lambda: torch.ops.quantized.add(rows, rows, 0.1, 10)
    yield "quantized pool", lambda: functional.max_pool2d(pixels, 2)
    yield "quantize", lambda: torch.quantize_per_tensor(x, 0.1, 10, torch.quint8).dequantize()
    yield "mkldnn", lambda: functional.max_pool2d(torch.relu(image.to_mkldnn()), 2).to_dense()


def _lists() -> Iterator[tuple[str, Callable[[], object]]]:
    tensors = [torch.rand(100, 100) for _ in range(10)]
    for name in [one for one in dir(torch) if one.startswith("_foreach_")]:
        for more in ((), (tensors,), (2.0,), (tensors, tensors)):
            yield (
                f"{name} of {len(more) + 1}",
                lambda name=name, more=more: getattr(torch, name)([x.clone() for x in tensors], *more),
            )


def _scaled() -> None:
    eighth = torch.randn(128, 128).to(torch.float8_e4m3fn)
    torch._scaled_mm(eighth, eighth.t(), torch.tensor(1.0), torch.tensor(1.0))
