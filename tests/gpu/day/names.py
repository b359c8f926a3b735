"""The question about kernels' names: which ones this device's libraries bring."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from events import name_of, start
from sessions import record, within
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import record_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from questions import Said

    Cases = Iterator[tuple[str, Callable[[], object]]]

_SIZES = ((16, 16, 16), (64, 64, 64), (1024, 1024, 1024), (8192, 8192, 8192), (1000, 1001, 999), (16, 8192, 8192))
_SIZES += ((1, 4096, 4096), (16, 16, 65536))
_TYPES = ("float32", "tf32", "float16", "bfloat16", "float64")
_PAUSE_S = 0.002


def names(_: str, *, quick: bool) -> Said:
    """Run each case once to warm up, and once in its range of a session that all cases of a group share.

    One session per case would lose the case's own kernel where CUPTI loses the first ones of a session.
    """
    found: dict[str, Any] = {}
    for group, cases in _groups(quick=quick):
        noted = _noted(cases)
        found |= noted
        failed = [f"{case} ({said:.80})" for case, said in noted.items() if isinstance(said, str)]
        without = [case for case, said in noted.items() if not said]
        said = f"{group}: {len(noted)} cases, e.g. {_sample(noted)}"
        if failed or without:
            said += f"; failed: {failed or 'none'}; without a kernel: {without or 'none'}"
        yield said, sorted({one["name"] for own in noted.values() if not isinstance(own, str) for one in own})
        if folder := os.environ.get("DAY_FILES"):
            with gzip.open(Path(folder, "names.json.gz"), "wt") as file:
                json.dump(found, file)


def _sample(noted: dict[str, Any]) -> str:
    return next((name_of(own[0], 60) for own in noted.values() if own and not isinstance(own, str)), "none")


def _noted(cases: Cases) -> dict[str, Any]:
    noted: dict[str, Any] = {}
    able: dict[str, Callable[[], object]] = {}
    for case, code in cases:
        try:
            code()
            torch.cuda.synchronize()
            able[case] = code
        except Exception as error:  # noqa: BLE001 - that this GPU has no such kernel is an answer too
            noted[case] = str(error).partition("\n")[0]

    def all_of_them() -> None:
        spare = torch.ones(8, device="cuda")
        with record_function("padding"):
            for _ in range(64):
                spare.add_(1)
            torch.cuda.synchronize()
        for case, code in able.items():
            time.sleep(_PAUSE_S)
            with record_function(case):
                code()
            torch.cuda.synchronize()

    recording = record(all_of_them)
    for case in able:
        own = sorted(within(recording, case).gpu, key=start)
        noted[case] = [
            {"name": one["name"], "dur": one["dur"], **{key: one["args"].get(key) for key in ("grid", "block")}}
            for one in own
        ]
    return noted


def _groups(*, quick: bool) -> Iterator[tuple[str, Cases]]:
    for dtype in _TYPES[-2:-1] if quick else _TYPES:
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        yield f"products of {dtype}", _products(dtype, _SIZES[:2] if quick else _SIZES)
    torch.backends.cuda.matmul.allow_tf32 = False
    yield "layers", _layers()
    yield "training", _training()


def _products(dtype: str, sizes: tuple[tuple[int, int, int], ...]) -> Cases:
    kind = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
    for m, n, k in sizes:
        if dtype == "float64" and m * n * k >= 8192**3:
            continue
        left = {"n": torch.ones(m, k, device="cuda", dtype=kind), "t": torch.ones(k, m, device="cuda", dtype=kind).t()}
        right = {"n": torch.ones(k, n, device="cuda", dtype=kind), "t": torch.ones(n, k, device="cuda", dtype=kind).t()}
        for one, other in product("nt", "nt"):
            yield f"mm {dtype} {m}x{n}x{k} {one}{other}", lambda a=left[one], b=right[other]: a @ b


def _layers() -> Cases:
    x = torch.ones(64, 512, device="cuda", dtype=torch.bfloat16)
    weight, bias = torch.ones(2048, 512, device="cuda", dtype=x.dtype), torch.ones(2048, device="cuda", dtype=x.dtype)
    batch, image = torch.ones(8, 64, 64, device="cuda"), torch.ones(8, 64, 56, 56, device="cuda", dtype=x.dtype)
    one = torch.ones((), device="cuda")
    yield "linear with a bias", lambda: F.linear(x, weight, bias)
    yield "bmm", lambda: torch.bmm(batch, batch)
    fp8 = torch.float8_e4m3fn
    yield (
        "fp8",
        lambda: torch._scaled_mm(x.to(fp8), weight.to(fp8).t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16),
    )
    yield "layer_norm", lambda: F.layer_norm(x, (512,))
    yield "rms_norm", lambda: F.rms_norm(x, (512,))
    yield "softmax", lambda: x.softmax(-1)
    yield "gelu", lambda: F.gelu(x)
    yield "batch_norm", lambda: F.batch_norm(image.float(), None, None, training=True)
    labels = torch.zeros(64, dtype=torch.long, device="cuda")
    yield "cross_entropy", lambda: F.cross_entropy(x.float(), labels)
    lstm, series = torch.nn.LSTM(64, 64, device="cuda"), torch.ones(10, 8, 64, device="cuda")
    yield "lstm", lambda: lstm(series)


def _training() -> Cases:
    q = torch.ones(2, 8, 512, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    def attend(backend: SDPBackend) -> None:
        with sdpa_kernel(backend):
            F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()

    attention = (
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.EFFICIENT_ATTENTION,
        SDPBackend.CUDNN_ATTENTION,
        SDPBackend.MATH,
    )
    for backend in attention:
        yield f"attention {backend.name}", partial(attend, backend)
    for layout in (torch.contiguous_format, torch.channels_last):
        convolve = torch.nn.Conv2d(64, 64, 3, device="cuda", dtype=torch.bfloat16).to(memory_format=layout)
        image = torch.ones(8, 64, 56, 56, device="cuda", dtype=torch.bfloat16).to(memory_format=layout)
        image.requires_grad_()
        yield f"convolution {layout}", lambda run=convolve, image=image: run(image).sum().backward()
    for kind in ("fused", "foreach"):
        parameters = [torch.ones(512, 512, device="cuda", requires_grad=True) for _ in range(4)]
        for one in parameters:
            one.grad = torch.ones_like(one)
        with contextlib.suppress(RuntimeError):  # a device for which there is no such kind
            yield f"Adam {kind}", torch.optim.Adam(parameters, **{kind: True}).step
