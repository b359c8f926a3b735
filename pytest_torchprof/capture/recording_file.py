"""The one recording file of a session: exported, made anonymous, completed with its environment, moved into place.

Recordings are committed and passed around, so the machine's name and the folder are taken out of them.
"""

from __future__ import annotations

import os
import platform
import re
from functools import cache
from importlib import metadata
from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pytest_torchprof.analysis.source_lines import EXPORTED_MARK, MARK
from pytest_torchprof.capture.devices import live_device
from pytest_torchprof.capture.triton_kernels import triton_kernels
from pytest_torchprof.devices import launches_wait
from pytest_torchprof.devices.kinds import kind_of
from pytest_torchprof.reasons.errors import hide_our_frames as __tracebackhide__  # noqa: F401  (read by pytest)
from pytest_torchprof.recording.writer import write_metadata
from pytest_torchprof.system.replacing import replacing
from pytest_torchprof.trace.metadata import KEY, Environment

if TYPE_CHECKING:
    from typing import BinaryIO

    from pytest_torchprof.capture.session import Session
    from pytest_torchprof.trace.metadata import Metadata


# A mark as torch exports it; its replacement has the same length, so that nothing has to move.
_EXPORTED = re.compile(rb'"cat": "cpu_op",(\s*)"name": "%s' % EXPORTED_MARK.encode())
_AS_FRAME = b'"cat": "python_function",%%b"name": "%b' % MARK.encode()
_UNUSED = b'"cat": "unused",%%b"name": "%b' % EXPORTED_MARK.encode()
# Both are outside the events, which may be many: one before them, the other after.
_MARGIN = 64 * 1024
_STRING = rb'"(?:[^"\\]|\\.)*"'
_HOST = re.compile(rb'"host_name":\s*' + _STRING + rb"\s*,")
_NAME_KEY = b'"traceName":'
_NAME = re.compile(_NAME_KEY + rb"\s*(" + _STRING + rb")")


def write_recording(session: Session, path: Path, metadata: Metadata) -> Metadata:
    """Write the session's recording to `path`, with `metadata` under its `torchprof` key; all of it or nothing.

    Returns what was written under the key: `metadata`, with what only the exported trace shows.
    """
    with replacing(path) as unfinished:
        session.export(unfinished)
        if session.marked:
            _settle_marks(unfinished, keep=metadata.lines is True)
        metadata = replace(metadata, tensor_lists=session.tensor_lists)
        if metadata.device is not None and kind_of(metadata.device).has_launches:
            metadata = replace(metadata, triton_kernels=triton_kernels(unfinished))
        with unfinished.open("r+b") as file:
            make_anonymous(file, path.name)
            write_metadata(file, metadata)
    return metadata


def _settle_marks(path: Path, *, keep: bool) -> None:
    """Turn the marks of lines into frames, so that they are not taken for operators; in place.

    If some are missing, none is kept: they get a category that no reader asks for.
    """
    with path.open("r+b") as file, mmap(file.fileno(), 0) as text:
        for mark in _EXPORTED.finditer(text):
            start, end = mark.span()
            text[start:end] = (_AS_FRAME if keep else _UNUSED) % mark[1]


def replace_metadata(path: Path, metadata: Metadata) -> None:
    """Replace the value under the `torchprof` key of the recording at `path` by `metadata`; all of it or nothing."""
    with replacing(path) as unfinished, unfinished.open("w+b") as file:
        # The key is the last of the file, and alone on its line: text in JSON has no line ends.
        trace, _, _ = path.read_bytes().rpartition(b',\n"%s": ' % KEY.encode())
        file.write(trace + b"\n}\n")
        write_metadata(file, metadata)


def make_anonymous(file: BinaryIO, name: str) -> None:
    """Blank out `host_name` and call the trace `name`, which must not be longer than its path; in place."""
    head = file.read(_MARGIN)
    host = _HOST.search(head.partition(b'"traceEvents"')[0])
    if host:
        _overwrite(file, host.start(), b"", len(host[0]))
    tail, rest = 0, head
    if len(head) == _MARGIN:
        tail = max(0, file.seek(0, 2) - _MARGIN)
        file.seek(tail)
        rest = file.read()
    # Looked for from the end: an expression would try every character of the events.
    at = rest.rfind(_NAME_KEY)
    if at >= 0 and (named := _NAME.match(rest, at)):
        start, end = named.span(1)
        _overwrite(file, tail + start, b'"%s"' % _quoted(name), end - start)


def _overwrite(file: BinaryIO, at: int, text: bytes, length: int) -> None:
    if len(text) <= length:
        file.seek(at)
        file.write(text.ljust(length))


def _quoted(name: str) -> bytes:
    return re.sub(r'[^ -~]|["\\]', "_", name).encode()


def environment(device: str) -> Environment:
    """Return the environment of recordings on `device` ("cpu" or "cuda:0"); unknown fields are None."""
    import torch

    return Environment(
        **live_device(device).describe(),
        cuda=torch.version.cuda,
        rocm=torch.version.hip,
        torch=str(torch.__version__),
        triton=_triton_version(),
        python=_python_version(),
        cpu=_cpu_model(),
        platform=_platform(),
        **_precision_flags(),
        cuda_launch_blocking=os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"),
        launches_wait=launches_wait(),
    )


def _precision_flags() -> dict[str, Any]:
    """Return `tf32_matmul`, `tf32_cudnn` and `matmul_precision` as torch has them set; None where it does not say.

    torch has two interfaces to these flags, and the older one raises once the newer one was used.
    """
    import torch

    matmul: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    try:
        overall: str | None = torch.get_float32_matmul_precision()
    except RuntimeError:
        overall = None
    return {
        "tf32_matmul": matmul.fp32_precision == "tf32",
        "tf32_cudnn": cudnn.conv.fp32_precision == "tf32",
        "matmul_precision": overall,
    }


# These stay as they are, and Python works each out anew.
_python_version = cache(platform.python_version)


@cache
def _platform() -> str:
    return f"{platform.system()}-{platform.machine()}"


@cache
def _triton_version() -> str | None:
    for distribution in ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-windows"):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


@cache
def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model")))
    return next(names, "") or platform.processor() or platform.machine()
