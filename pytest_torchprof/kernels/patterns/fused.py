"""Which operators one generated kernel carries, and what to show when none carries them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_torchprof.kernels.kernel import Kernel


def carried_ops(kernel: Kernel) -> tuple[str, ...]:
    """Return the operators that Inductor's name for this kernel lists; empty for every other kernel."""
    return kernel.decoded.triton_ops


def is_nameless(kernel: Kernel) -> bool:
    """Whether a Triton kernel does not tell what it carries: Inductor's ``unique_kernel_names`` is off."""
    return kernel.triton == "unk" and not carried_ops(kernel)


def fused_match(kernel: Kernel, tokens: Iterable[str]) -> bool:
    """Tell whether this one Inductor kernel carries all of ``tokens`` (``add``, or ``aten::add``)."""
    carried = set(carried_ops(kernel))
    return bool(carried) and all(token.rpartition("::")[2].partition(".")[0] in carried for token in tokens)


def unfused_lines(kernels: Sequence[Kernel]) -> list[str]:
    """Return one line per kernel in launch order: its display name and the operators it carries or was launched by.

    Kernels that follow each other and read the same are one line with a count.
    """
    lines: list[tuple[str, int]] = []
    for kernel in kernels:
        carried = carried_ops(kernel)
        ops = "carries " + ", ".join(carried) if carried else f"launched by {kernel.op or '?'}"
        line = f"{kernel.short}  {ops}"
        if lines and lines[-1][0] == line:
            lines[-1] = (line, lines[-1][1] + 1)
        else:
            lines.append((line, 1))
    return [line if count == 1 else f"{line}  x{count}" for line, count in lines]
