"""Builds trace files as torch.profiler writes them, for tests that need no GPU."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

CPU, MAIN, AUTOGRAD = 1000, 1000, 1001
"""The process, its main thread, and autograd's."""

CUDA = {
    "launch": "cudaLaunchKernel",
    "graph": "cudaGraphLaunch",
    "copy": "cudaMemcpyAsync",
    "fill": "cudaMemsetAsync",
    "stream sync": "cudaStreamSynchronize",
    "device sync": "cudaDeviceSynchronize",
    "begin": "cudaStreamBeginCapture",
    "end": "cudaStreamEndCapture",
}
ROCM = {
    "launch": "hipLaunchKernel",
    "graph": "hipGraphLaunch",
    "copy": "hipMemcpyAsync",
    "fill": "hipMemsetAsync",
    "stream sync": "hipStreamSynchronize",
    "device sync": "hipDeviceSynchronize",
    "begin": "hipStreamBeginCapture",
    "end": "hipStreamEndCapture",
}


class TraceBuilder:
    """Collects events; times are microseconds from the trace's begin, whole ones unless a test says otherwise.

    A call returns its correlation id, by which ``kernel`` and the copies are tied to it.
    """

    def __init__(self, *, rocm: bool = False, begin: float = 1_000_000) -> None:
        self.words = ROCM if rocm else CUDA
        self.rocm = rocm
        self.begin = begin
        self.events: list[dict[str, Any]] = []
        self.metadata: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "Test GPU", "numSms": 100}],
        }
        self.torchprof: dict[str, Any] | None = None
        self._correlation = 100
        self._external = 0
        self._arrows = 0

    def event(
        self, cat: str, name: str, start: float, dur: float, *, pid: Any = CPU, tid: Any = MAIN, **args: Any
    ) -> None:
        """Add any complete event."""
        self.events.append(
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": pid,
                "tid": tid,
                "ts": self.begin + start,
                "dur": dur,
                "args": args,
            }
        )

    def step(self, number: int, start: float, dur: float, *, tid: int = MAIN) -> None:
        """Add a ``ProfilerStep#N`` range."""
        self.annotation(f"ProfilerStep#{number}", start, dur, tid=tid)

    def annotation(self, name: str, start: float, dur: float, *, tid: int = MAIN) -> None:
        """Add a ``record_function`` range."""
        self.event("user_annotation", name, start, dur, tid=tid)

    def module(self, name: str, start: float, dur: float, *, tid: int = MAIN) -> None:
        """Add a call of an ``nn.Module``, as stacks record it."""
        self.event("python_function", f"nn.Module: {name}", start, dur, tid=tid)

    def region(self, identity: str, start: float, dur: float, *, tid: int = MAIN) -> None:
        """Add a compiled region such as ``0/0``."""
        self.op(f"Torch-Compiled Region: {identity}", start, dur, tid=tid)

    def op(
        self,
        name: str,
        start: float,
        dur: float,
        *,
        tid: int = MAIN,
        inputs: Sequence[tuple[Sequence[int], Sequence[int], str]] | None = None,
        **args: Any,
    ) -> None:
        """Add an operator; ``inputs`` are (shape, strides, type in torch's words), one per operand."""
        self._external += 1
        recorded = {}
        if inputs is not None:
            recorded = {
                "Input Dims": [list(shape) for shape, _, _ in inputs],
                "Input Strides": [list(strides) for _, strides, _ in inputs],
                "Input type": [dtype for _, _, dtype in inputs],
            }
        self.event("cpu_op", name, start, dur, tid=tid, **{"External id": self._external}, **recorded, **args)

    def call(
        self, name: str, start: float, dur: float = 2, *, tid: int = MAIN, driver: bool = False, **args: Any
    ) -> int:
        """Add a runtime call by its own name, or by the word for it in ``words``; return its correlation id."""
        self._correlation += 1
        category = "cuda_driver" if driver else "cuda_runtime"
        known = {"cbid": 211, "correlation": self._correlation}
        self.event(category, self.words.get(name, name), start, dur, tid=tid, **{**known, **args})
        return self._correlation

    def unrecorded(self) -> int:
        """Return the correlation id of a call that leaves no event, made after those that were added so far."""
        self._correlation += 1
        return self._correlation

    def launch(self, start: float, dur: float = 2, *, tid: int = MAIN) -> int:
        """Add a kernel launch; return its correlation id."""
        return self.call("launch", start, dur, tid=tid)

    def graph_launch(self, start: float, dur: float = 2, *, tid: int = MAIN) -> int:
        """Add a graph launch; all kernels of the graph have its correlation id."""
        return self.call("graph", start, dur, tid=tid)

    def sync(self, start: float, dur: float, *, what: str = "device sync", tid: int = MAIN) -> int:
        """Add a blocking call."""
        return self.call(what, start, dur, tid=tid)

    def capture(self, start: float, end: float, *, tid: int = MAIN) -> None:
        """Add the begin and the end of a stream capture."""
        self.call("begin", start, 1, tid=tid)
        self.call("end", end, 1, tid=tid)

    def kernel(
        self,
        name: str,
        start: float,
        dur: float,
        correlation: int | None,
        *,
        device: Any = 0,
        stream: Any = 7,
        blocks_per_sm: float | None = 1.0,
        occupancy: int | None = 50,
        **args: Any,
    ) -> None:
        """Add a kernel; on ROCm without occupancy, as there."""
        known: dict[str, Any] = {"device": device, "stream": stream}
        if correlation is not None:
            known["correlation"] = correlation
        if not self.rocm:
            known |= {"blocks per SM": blocks_per_sm, "est. achieved occupancy %": occupancy}
        found = {key: value for key, value in {**known, **args}.items() if value is not None}
        self.event("kernel", name, start, dur, pid=device, tid=stream, **found)

    def memcpy(
        self, kind: str, start: float, dur: float, correlation: int, *, size: Any = 4, device: int = 0, stream: int = 7
    ) -> None:
        """Add a copy such as ``HtoD``."""
        ends = {"H": "Pageable", "D": "Device"}
        name = f"Memcpy {kind} ({ends[kind[0]]} -> {ends[kind[-1]]})"
        args = {"device": device, "stream": stream, "correlation": correlation, "bytes": size}
        self.event("gpu_memcpy", name, start, dur, pid=device, tid=stream, **args)

    def memset(self, start: float, dur: float, correlation: int, *, device: int = 0, stream: int = 7) -> None:
        """Add a fill."""
        args = {"device": device, "stream": stream, "correlation": correlation, "bytes": 4}
        self.event("gpu_memset", "Memset (Device)", start, dur, pid=device, tid=stream, **args)

    def launched(
        self, name: str, start: float, *, op: str | None = "aten::mul", dur: float = 10, wait: float = 5, **args: Any
    ) -> None:
        """Add an operator that launches a kernel, which runs ``wait`` microseconds later for ``dur``.

        ``written_tid`` is the thread that the launch has in the file, where that is another.
        """
        tid = args.pop("tid", MAIN)
        written_tid = args.pop("written_tid", tid)
        inputs = args.pop("inputs", None)
        if op is not None:
            self.op(op, start, 8, tid=tid, inputs=inputs)
            args = {"External id": self._external, **args}
        self.kernel(name, start + 3 + wait, dur, self.launch(start + 2, 3, tid=written_tid), **args)

    def allocation(self, size: int, at: float, *, tid: int = MAIN, device_type: int = 1) -> None:
        """Add that an allocator gave memory, or took it back (below zero); 0 is the CPU, 1 CUDA."""
        args = {"Bytes": size, "Device Type": device_type, "Device Id": 0, "Addr": 1, "Total Allocated": 2**30}
        self.events.append(
            {
                "ph": "i",
                "s": "t",
                "cat": "cpu_instant_event",
                "name": "[memory]",
                "pid": CPU,
                "tid": tid,
                "ts": self.begin + at,
                "args": args,
            }
        )

    def backward_of(self, forward: float, backward: float, *, tid: int = MAIN, backward_tid: int = AUTOGRAD) -> None:
        """Add the arrow between the operators that start at these moments."""
        self._arrows += 1
        for phase, at, thread in (("s", forward, tid), ("f", backward, backward_tid)):
            arrow = {"ph": phase, "id": self._arrows, "pid": CPU, "tid": thread, "ts": self.begin + at, "bp": "e"}
            self.events.append({**arrow, "cat": "fwdbwd", "name": "fwdbwd"})

    def flows(self) -> None:
        """Add the arrows between launches and kernels that every file has and nobody needs."""
        for event in list(self.events):
            correlation = event.get("args", {}).get("correlation")
            if correlation is not None:
                side = "s" if event["cat"].startswith("cuda_") else "f"
                self.events.append(
                    {
                        "ph": side,
                        "id": correlation,
                        "pid": event["pid"],
                        "tid": event["tid"],
                        "ts": event["ts"],
                        "cat": "ac2g",
                        "name": "ac2g",
                    }
                )

    def own(self, *, device: str = "cuda:0", steps: int, sentinel_kernel: bool = True, **more: Any) -> None:
        """Make it a recording of this project's: its key, and the sentinel before time 0."""
        self.torchprof = {
            "schema": 1,
            "nodeid": "test_x.py::test_x",
            "label": None,
            "device": device,
            "warmup": 0,
            "steps": steps,
            "sentinel": "torchprof::sentinel",
            "problems": [],
            **more,
        }
        self.annotation("torchprof::sentinel", -1000, 100)
        if device != "cpu":
            correlation = self.launch(-990)
            if sentinel_kernel:
                self.kernel("sentinel_kernel", -980, 1, correlation)
            self.sync(-950, 20)

    def document(self) -> dict[str, Any]:
        """Return what the file holds."""
        ours = {} if self.torchprof is None else {"torchprof": self.torchprof}
        return {**self.metadata, **ours, "traceEvents": self.events, "traceName": "test.json"}

    def text(self, *, indent: int | None = None) -> str:
        """Return the file's text."""
        return json.dumps(self.document(), indent=indent)

    def write(self, path: Path, *, indent: int | None = None) -> Path:
        """Write the file, gzipped if it is called so, and return its path."""
        return write(path, self.text(indent=indent))


def write(path: Path, text: str | bytes) -> Path:
    """Write a text to a file, gzipped if it is called so, and return its path."""
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def own_recording(kernels: Mapping[str, int], *, steps: int = 2, device: str = "cuda:0") -> TraceBuilder:
    """Return a recording of this project's whose steps each launch these kernels, so many times each."""
    builder = TraceBuilder()
    builder.own(device=device, steps=steps)
    for number in range(steps):
        at = number * 1000
        builder.step(number, at, 900)
        for place, name in enumerate(name for name, count in kernels.items() for _ in range(count)):
            if device == "cpu":
                builder.op(name, at + 10 + 20 * place, 15)
            else:
                builder.launched(name, at + 10 + 20 * place)
    builder.sync(steps * 1000 + 100, 50)
    return builder
