"""torch's private names that are about GPUs, each in a function that says what it is for.

Run with torch 2.13.0, 2.14.1 and 2.15.0; names that older versions (from 2.6) may lack are looked up with a default.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def has_context(index: int) -> bool:
    """Whether this process holds a context on that GPU; True where torch does not tell."""
    import torch

    tell = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    return bool(tell(index)) if tell else True


def spin(device: str, cycles: int) -> bool:
    """Keep a GPU's current stream busy for so many cycles of its clock, without use of memory; False if torch cannot.

    Run with torch 2.15 (CUDA); undocumented, and in torch since long before 2.6.
    """
    import torch

    sleep = getattr(torch.cuda, "_sleep", None)
    if sleep is None:
        return False
    with torch.cuda.device(device):
        sleep(cycles)
    return True


def cannot_use_gpus_since_fork() -> bool:
    """Whether this process was forked from one that had asked for its GPUs: CUDA refuses to begin again in it."""
    tell = getattr(import_module("torch.cuda"), "_is_in_bad_fork", None)
    return bool(tell and tell())


def precision_flags() -> dict[str, Any]:
    """Return `tf32_matmul`, `tf32_cudnn` and `matmul_precision` as torch has them set; None where it will not say.

    Since 2.9 torch has two sets of these flags, and asking by the older one raises once the newer one was used.
    """
    import torch

    precision = getattr(torch._C, "_get_fp32_precision_getter", None)
    if precision:
        matmul, convolution = precision("cuda", "matmul") == "tf32", precision("cuda", "conv") == "tf32"
    else:
        matmul, convolution = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        overall: str | None = torch.get_float32_matmul_precision()
    except RuntimeError:
        overall = None
    return {"tf32_matmul": matmul, "tf32_cudnn": convolution, "matmul_precision": overall}
