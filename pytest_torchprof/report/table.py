"""The rows that the terminal and the Markdown report share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import convert

from pytest_torchprof.recording.metadata import Environment
from pytest_torchprof.text import printable, show_ratio, show_us

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_torchprof.report.results import Result

HEADERS = ("test", "kernels", "launches", "GPU time", "CPU/GPU", "breaks", "baseline", "verdict")
KERNEL_HEADERS = ("kernel", "calls", "time", "launched by")


def row(result: Result) -> tuple[str, ...]:
    """Return one measurement's row: medians over its steps; "-" for what is not known."""
    numbers = result.summary
    return (
        printable(result.name),
        _count(numbers, "kernels"),
        _count(numbers, "launches"),
        show_us(numbers.get("gpu_busy_us")),
        show_ratio(numbers.get("cpu_gpu_ratio")),
        _count(numbers, "graph_breaks"),
        result.baseline or "-",
        result.outcome,
    )


def kernel_rows(result: Result) -> list[tuple[str, ...]]:
    """Return the kernels of a failed measurement, most time first."""
    return [
        (
            printable(entry["name"]),
            str(entry["count"]),
            show_us(entry["time_us"]),
            printable(", ".join(entry["ops"])),
        )
        for entry in result.kernels
    ]


def where(environment: Mapping[str, Any]) -> str:
    """Return the device and the versions in one line."""
    known = convert(environment, Environment)
    gpu, architecture = known.gpu, known.architecture
    device = f"{gpu} ({architecture})" if gpu and architecture else gpu or known.cpu or "cpu"
    versions = (("torch", known.torch), ("CUDA", known.cuda), ("ROCm", known.rocm))
    note = [f"{known.launches_wait}: times are not judged"] if known.launches_wait else []
    return printable(", ".join([device, *(f"{name} {version}" for name, version in versions if version), *note]))


def _count(numbers: Mapping[str, Any], name: str) -> str:
    value = numbers.get(name)
    return "-" if value is None else f"{value:g}"
