"""Questions about calls: of the driver, of common code, of threads, of allocators."""

from __future__ import annotations

import ctypes
import threading
from collections import Counter, defaultdict
from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import torch
from events import end, name_of, number, spans, start
from sessions import adds, record_asked
from torch.nn import functional as F  # noqa: N812

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from events import Event
    from questions import Said
    from sessions import Recording

_PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry nothing() { ret; }
"""


def driver_calls(_: str, *, quick: bool) -> Said:
    """Call the driver as libraries do; each call alone in its session, so that what it leaves is its own."""
    x, y = torch.ones(1024, device="cuda"), torch.ones(1024, device="cuda")
    cuda = ctypes.CDLL("libcuda.so.1")
    module, function, one = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint(1)
    codes = [cuda.cuModuleLoadData(ctypes.byref(module), _PTX)]
    codes.append(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"nothing"))
    yield f"the driver takes a module of PTX with codes {codes}", codes
    to, source, size = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_size_t(1024)
    grid, shared = (one, one, one), ctypes.c_uint(0)
    asked: dict[str, Callable[[], int]] = {
        "cuLaunchKernel": partial(cuda.cuLaunchKernel, function, *grid, *grid, shared, None, None, None),
        "cuLaunchKernel with 4,096 threads, which it refuses": partial(
            cuda.cuLaunchKernel, function, *grid, ctypes.c_uint(4096), one, one, shared, None, None, None
        ),
        "cuLaunchCooperativeKernel": partial(
            cuda.cuLaunchCooperativeKernel, function, *grid, *grid, shared, None, None
        ),
        "cuMemcpyDtoDAsync": partial(cuda.cuMemcpyDtoDAsync_v2, to, source, size, None),
        "cuMemsetD8Async": partial(cuda.cuMemsetD8Async, to, ctypes.c_ubyte(1), size, None),
    }
    for name, call in asked.items():
        code: list[int] = []
        recording = record_asked(lambda call=call, code=code: code.append(call()))
        links = recording.links()
        events, work = [name_of(one) for one in recording.calls], [name_of(one, 40) for one in recording.gpu]
        yield f"{name}: code {code}, calls {events or 'none'}, work {work or 'none'}", links


def common_calls(_: str, *, quick: bool) -> Said:
    """Record code that copies, waits or launches in its own way; each twice, and the second time counts."""
    for name, code in _common(1 << 10 if quick else 1 << 20):
        try:
            code()
            torch.cuda.synchronize()
            recording = record_asked(code)
        except Exception as error:  # noqa: BLE001 - an answer too
            yield f"{name}: {error!s:.200}", None
            continue
        calls, links = Counter(map(name_of, recording.calls)), recording.links()
        apart = ""
        if links["launches without work"] or links["work without a call"]:
            apart = (
                f" ({len(links['launches without work'])} without work, {links['work without a call']} without a call)"
            )
        figures = {
            "calls": [(name_of(one), float(one["dur"])) for one in recording.calls[:40]],
            "work": [name_of(one, 120) for one in recording.gpu[:40]],
            "operators": [[name_of(one), operator] for one, operator in _operators(recording)],
        }
        said = ", ".join(f"{count} {call}" for call, count in calls.items()) or "no call"
        whose = Counter(f"{name_of(call)} in {operator}" for call, operator in _operators(recording))
        under = f" ({', '.join(whose)})" if whose else ""
        yield f"{name}: {said}{under}; {len(recording.gpu)} on the GPU{apart}", figures


def _operators(recording: Recording) -> Iterator[tuple[Event, str]]:
    """Yield the calls that copy or wait, each with the innermost operator around it."""
    operators = [one for one in spans(recording.file) if one.get("cat") == "cpu_op"]
    for call in recording.calls:
        if "Memcpy" in call["name"] or "Synchronize" in call["name"]:
            around = [one for one in operators if one["tid"] == call["tid"] and start(one) <= start(call) <= end(one)]
            yield call, name_of(around[-1]) if around else "no operator"


def _common(size: int) -> Iterator[tuple[str, Callable[[], object]]]:
    x, y, event = torch.ones(1 << 16, device="cuda"), torch.ones(8, device="cuda"), torch.cuda.Event()
    pageable, pinned = torch.ones(size), torch.ones(size).pin_memory()
    half = torch.ones(256, 256, device="cuda", dtype=torch.bfloat16)
    long, thin = (torch.ones(shape, device="cuda", dtype=torch.bfloat16) for shape in ((16, 1 << 15), (1 << 15, 16)))
    table = torch.nn.Embedding(100, 8, device="cuda")
    weight = torch.nn.Parameter(torch.ones(64, device="cuda"))
    weight.grad = torch.ones_like(weight)
    places, square = torch.zeros(64, dtype=torch.long, device="cuda"), torch.eye(8, device="cuda")
    yield "item()", lambda: x.sum().item()
    yield "a condition", lambda: bool((y > 0).all())
    yield "nonzero()", lambda: x.nonzero()
    yield "a boolean mask", lambda: x[x > 2]
    yield "unique()", lambda: y.unique()
    yield "cpu()", lambda: x.cpu()
    yield "tolist()", y.tolist
    yield "str()", lambda: str(y)
    yield "to the GPU from pageable memory", lambda: pageable.to("cuda")
    yield "the same, non_blocking", lambda: pageable.to("cuda", non_blocking=True)
    yield "to the GPU from pinned memory", lambda: pinned.to("cuda")
    yield "that, non_blocking", lambda: pinned.to("cuda", non_blocking=True)
    yield "synchronize()", torch.cuda.synchronize
    yield "an event, waited for", lambda: (event.record(), event.synchronize())
    yield "a stream that waits for an event", lambda: torch.cuda.current_stream().wait_event(event)
    yield "an event, asked", event.query
    yield "empty_cache()", torch.cuda.empty_cache
    yield "is a stream being captured", torch.cuda.is_current_stream_capturing
    yield "zeros()", lambda: torch.zeros(size, device="cuda")
    yield "sort()", lambda: x.sort()
    yield "multinomial()", lambda: torch.multinomial(y, 2)
    yield "repeat_interleave()", lambda: torch.repeat_interleave(places[:4])
    yield "randperm()", lambda: torch.randperm(1000, device="cuda")
    yield "values put at places", lambda: y.index_put_((places[:3],), x[:3])
    yield "the norm of gradients, clipped", lambda: torch.nn.utils.clip_grad_norm_([weight], 1.0)
    yield "fft", lambda: torch.fft.rfft(x)
    yield "cholesky", lambda: torch.linalg.cholesky(square)
    yield "svd", lambda: torch.linalg.svd(square)
    yield "solve", lambda: torch.linalg.solve(square, y)
    yield "eigh", lambda: torch.linalg.eigh(square)
    yield "linear with a bias, bf16", lambda: F.linear(half, half, half[0])
    yield "a product over a long dimension", lambda: long @ thin
    yield "an embedding's backward", lambda: table(places).sum().backward()


def threads(_: str, *, quick: bool) -> Said:
    """Launch from four threads at once."""
    count, x = 20 if quick else 400, torch.ones(8, device="cuda")

    def code() -> None:
        ours = [threading.Thread(target=adds(count, x)) for _ in range(4)]
        for one in ours:
            one.start()
        for one in ours:
            one.join()

    recording = record_asked(code)
    ids = [number(call) for call in recording.calls]
    of_thread: dict[Any, list[int]] = defaultdict(list)
    for call in recording.calls:
        of_thread[call["tid"]].append(number(call))
    back = sum(one > other for one, other in pairwise(ids))
    inside = sum(one > other for own in of_thread.values() for one, other in pairwise(own))
    worst = max((most - one for most, one in zip(accumulate(ids, max), ids, strict=True)), default=0)
    figures = recording.links() | {"back": back, "back inside a thread": inside, "by at most": worst}
    said = f"of {len(ids)} calls {back} have a lower id than the one before, by at most {worst}"
    yield f"{said}; inside a thread {inside}", figures


def allocators(_: str, *, quick: bool) -> Said:
    """Allocate, fill and give back, with the allocator that the environment asks for."""

    def code() -> None:
        for size in (30, 60, 90):
            torch.empty(size << 20, device="cuda", dtype=torch.uint8).fill_(1)
        torch.cuda.empty_cache()

    recording = record_asked(code)
    links, calls = recording.links(), Counter(map(name_of, recording.calls))
    said = ", ".join(f"{count} {name}" for name, count in calls.items())
    lost, alone = len(links["launches without work"]), links["work without a call"]
    backend = torch.cuda.get_allocator_backend()
    yield f"{backend}: {said}; {lost} launches without work, {alone} operations without a call", links


def frees(_: str, *, quick: bool) -> Said:
    """Give memory back while products run: a free that waits for them takes as long as they do."""
    side = 256 if quick else 8192
    x = torch.zeros(side, side, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(x)
    torch.mm(x, x, out=out)

    def code() -> None:
        spare = torch.empty(1 << 28, device="cuda", dtype=torch.uint8)
        del spare
        for _ in range(10):
            torch.mm(x, x, out=out)
        torch.cuda.empty_cache()

    recording = record_asked(code)
    waited = [(name_of(call), float(call["dur"])) for call in recording.calls if "Free" in call["name"]]
    ran_us = sum(float(one["dur"]) for one in recording.gpu)
    said = ", ".join(f"{name} {took_us:.0f} us" for name, took_us in waited) or "no call that frees"
    yield f"empty_cache() behind {ran_us:.0f} us of products: {said}", waited
