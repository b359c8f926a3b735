"""What follows from CUDA's own headers and libraries: call ids, names of errors, and stubs for all that is missing."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# The libraries that no call may reach: prefix of their functions, and their own code for "not supported".
LIBRARIES = {
    "libcudart.so.13": ("cuda", 801),
    "libcupti.so.13": ("cupti", 27),
    "libcublas.so.13": ("cublas", 15),
    "libcublasLt.so.13": ("cublasLt", 15),
}
DRIVER_UNSUPPORTED = 801


def tables(include: Path, out: Path) -> None:
    """Write the tables that the sources include."""
    runtime = _call_ids(include / "cupti_runtime_cbid.h", "CUPTI_RUNTIME")
    driver = _call_ids(include / "cupti_driver_cbid.h", "CUPTI_DRIVER")
    newest: dict[str, tuple[int, int]] = {}
    for name, number in runtime:
        # "cudaMalloc_v3020": the call, and the version of CUDA that brought it.
        found = re.fullmatch(r"(\w+?)(?:_v[23])?_v(\d{4,5})", name)
        if found and not re.search("_pts[zd]s?|_ptds", name):
            newest[found[1]] = max(newest.get(found[1], (0, 0)), (int(found[2]), number))
    errors = re.findall(
        r"^\s*(cudaError\w+|cudaSuccess)\s*=\s*(\d+)", (include / "driver_types.h").read_text(), re.MULTILINE
    )
    cupti_errors = re.findall(r"^\s*(CUPTI_\w+)\s*=\s*(\d+),", (include / "cupti_result.h").read_text(), re.MULTILINE)
    _write(out / "gen_rt_cbid.inc", (f'X("{name}", {number})' for name, number in runtime))
    _write(out / "gen_cu_cbid.inc", (f'X("{name}", {number})' for name, number in driver))
    _write(out / "gen_rt_best.inc", (f"constexpr unsigned RTCB_{n} = {best};" for n, (_, best) in newest.items()))
    _write(out / "gen_cu_best.inc", (f"constexpr unsigned CUCB_{name} = {number};" for name, number in driver))
    _write(out / "gen_errors.inc", (f'X({code}, "{name}")' for name, code in errors))
    _write(out / "gen_cupti_errors.inc", (f'X({code}, "{name}")' for name, code in cupti_errors))


def stubs(include: Path, libraries: Path, compiler: str, objects: Iterable[Path], out: Path) -> int:
    """Write a function for each one that the objects do not have; it refuses to work. Return how many there are."""
    have = {name for path in objects for name in _symbols(path, "T")}
    header = subprocess.run(
        [compiler, "-E", "-I", include, include / "cuda.h"], capture_output=True, text=True, check=True
    ).stdout
    wanted = dict.fromkeys(sorted(set(re.findall(r"CUresult\s+(cu[A-Z]\w+)\s*\(", header))), DRIVER_UNSUPPORTED)
    for library, (prefix, code) in LIBRARIES.items():
        names = _symbols(libraries / library, "TW", "-D")
        wanted |= dict.fromkeys(sorted(name for name in names if name.startswith(prefix)), code)
    missing = {name: code for name, code in wanted.items() if name not in have}
    lines = (f'int {name}() {{ return fake::unsupported("{name}", {code}); }}' for name, code in missing.items())
    _write(out, ["namespace fake { int unsupported(const char*, int); }", 'extern "C" {', *lines, "}"])
    return len(missing)


def _call_ids(header: Path, prefix: str) -> list[tuple[str, int]]:
    found = re.findall(rf"{prefix}_TRACE_CBID_(\w+)\s*=\s*(\d+)", header.read_text())
    return [
        (name, int(number)) for name, number in found if "FORCE_INT" not in name and name not in ("INVALID", "SIZE")
    ]


def _symbols(path: Path, kinds: str, *options: str) -> set[str]:
    listing = subprocess.run(
        ["nm", "--defined-only", *options, path], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in listing.splitlines()]
    return {row[-1].partition("@")[0] for row in rows if len(row) == 3 and row[1] in kinds}


def _write(path: Path, lines: Iterable[str]) -> None:
    """Write the file only where it says something new, so that what depends on it is not built again."""
    text = "".join(f"{line}\n" for line in lines)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
