"""Who in this process may hold CUPTI beside torch.profiler: it serves one profiler at a time."""

from __future__ import annotations

import os
import sys

from pytest_torchprof.codes import Code, code_in, coded
from pytest_torchprof.text import enumerated

# By a module that is there once it may have begun; none of them comes with torch's own import.
_USERS = {
    "triton.profiler": "Proton (triton.profiler)",
    "jaxlib": "JAX (jax.profiler)",
    "tensorflow": "TensorFlow (tf.profiler)",
    "torch.profiler._cuspy.core": "torch's own monitor of CUPTI (CuspyConfig)",
    "torch.profiler._cupti_monitor": "torch's own monitor of CUPTI",
    "cupti": "cupti-python",
}
_DAEMON = "KINETO_USE_DAEMON"
_WITHOUT_THE_GPU = frozenset(
    {Code.NO_KERNELS_RECORDED, Code.NO_GPU_SIDE, Code.LOST_SENTINEL, Code.LOST_KERNELS, Code.LOST_LAUNCHES}
)


def loaded() -> list[str]:
    """Return the names of those that this process has imported."""
    return list(dict.fromkeys(name for module, name in _USERS.items() if module in sys.modules))


def in_this_process() -> list[str]:
    """Return these, and who may come from outside."""
    found = loaded()
    if os.environ.get(_DAEMON, "0") not in ("", "0"):
        found.append(f"a daemon such as dynolog, which starts profilers of torch's here ({_DAEMON})")
    return found


def told_with(reason: str) -> str:
    """Return a reason for which nothing was measured, with those who may be why the GPU's side is missing."""
    code, users = code_in(reason), in_this_process()
    if code is None or code not in _WITHOUT_THE_GPU or not users:
        return reason
    told = reason.removesuffix(f" [{code.value}]")
    return coded(
        f"{told}. CUPTI serves one profiler at a time, and may serve {enumerated(users)} in this process", code
    )
