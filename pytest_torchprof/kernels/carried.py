"""The operators that a kernel carries, by Inductor's own code if a recording holds it, else by the kernel's name.

Inductor also puts into a name the operators that a kernel's input comes from, and those that it was made for. So a name
alone proves an operator only if no other kernel can have computed it: see ``doubted`` of a :class:`Kernel`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_torchprof.kernels.fields import bare
from pytest_torchprof.kernels.reply import NO, NOT_KNOWN, YES, Reply, every

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_torchprof.kernels.kernel import Kernel

# On Windows Inductor cuts long names and appends a hash.
_CUT: Final = re.compile(r"[0-9a-f]{8}")


def carries(kernel: Kernel, op: str) -> Reply:
    """Return whether this kernel of Inductor's carries an operator (``add``, or ``aten::add``)."""
    name = bare(op)
    if kernel.code is not None and kernel.code.ops is not None:
        return YES if name in kernel.code.ops else NOT_KNOWN if name in kernel.code.unclear else NO
    if name in kernel.decoded.triton_ops:
        return NOT_KNOWN if name in kernel.doubted else YES
    return NOT_KNOWN if hides_operators(kernel) else NO


def carries_all(kernel: Kernel, group: Iterable[str]) -> Reply:
    """Return whether this kernel of Inductor's carries all operators of a group."""
    return every(carries(kernel, op) for op in group)


def possible_operators(kernel: Kernel) -> tuple[str, ...]:
    """Return the operators that a kernel of Inductor's carries or may carry."""
    if kernel.code is not None and kernel.code.ops is not None:
        return (*kernel.code.ops, *kernel.code.unclear)
    return kernel.decoded.triton_ops


def doubts(kernel: Kernel) -> tuple[str, ...]:
    """Return the operators that a kernel of Inductor's is named after and may not carry."""
    return kernel.doubted if kernel.code is None or kernel.code.ops is None else kernel.code.unclear


def hides_operators(kernel: Kernel) -> bool:
    """Return whether a kernel of Inductor's carries operators that its name does not show: it names none, or is cut."""
    if kernel.code is not None and kernel.code.ops is not None:
        return False
    named = kernel.decoded.triton_ops
    generated = kernel.triton not in (None, "user") or "cpp_fused" in kernel.name
    return generated and (not named or _CUT.fullmatch(named[-1]) is not None)
