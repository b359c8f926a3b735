"""Assert what the GPU really did in a test: kernels, launches, copies, graph breaks.

In a test, the ``torchprof`` fixture (a `Torchprof`) measures a call and returns a `Profile`; the marker sets limits::

    @pytest.mark.torchprof(max_kernels=5, max_syncs=0)
    def test_step(torchprof):
        profile = torchprof(model, x)
        assert profile.kernels.matching(gemm(dtype="bf16")).count == 2

In a script, ``profile(model, x, max_kernels=5)`` measures a call and ``measure()`` a block, with the same limits;
``judge(model, x, limits={"max_kernels": 5})`` returns verdicts and raises nothing for a missed limit.

``load(path)`` reads a recording, ``load_ranks(folder)`` those of a job's ranks. A `Profile` has the numbers of a step
(``worst``, ``median``, each of ``steps``), ``kernels``, ``findings``, ``compile`` and ``expect(**limits)``;
``print(profile.table())`` shows what ran. ``attention``, ``communication``, ``conv``, ``family``, ``gemm``, ``library``
and ``triton`` select kernels by what they compute; ``mark("decode")`` names a range of the code.

A missed limit raises `LimitsMissed`, and whatever could not be measured raises `NotMeasured`; `Limits` and
`MarkerKeywords` list the keywords. ``torchprof explain WORD`` explains a limit, a finding or a message.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_torchprof.analysis.numbers import Numbers
    from pytest_torchprof.kernels.kernel import Kernel
    from pytest_torchprof.kernels.kernels import Kernels
    from pytest_torchprof.kernels.selectors import attention, communication, conv, family, gemm, library, triton
    from pytest_torchprof.limits.keywords import Limits, MarkerKeywords
    from pytest_torchprof.measuring.annotation import mark
    from pytest_torchprof.measuring.block import MeasuredBlock
    from pytest_torchprof.measuring.judged import Verdicts, judge
    from pytest_torchprof.measuring.script import measure, profile
    from pytest_torchprof.profiles import Profile, StepProfile, load, load_ranks
    from pytest_torchprof.reasons.errors import (
        LimitsMissed,
        NotMeasured,
        TorchprofError,
        TorchprofWarning,
        UnknownLimit,
        UnreadableBaseline,
        UnreadableRecording,
    )
    from pytest_torchprof.testing.fixture import Torchprof
    from pytest_torchprof.testing.ranks.place import Ranks
    from pytest_torchprof.trace import Trace

__all__ = [
    "Kernel",
    "Kernels",
    "Limits",
    "LimitsMissed",
    "MarkerKeywords",
    "MeasuredBlock",
    "NotMeasured",
    "Numbers",
    "Profile",
    "Ranks",
    "StepProfile",
    "Torchprof",
    "TorchprofError",
    "TorchprofWarning",
    "Trace",
    "UnknownLimit",
    "UnreadableBaseline",
    "UnreadableRecording",
    "Verdicts",
    "attention",
    "communication",
    "conv",
    "family",
    "gemm",
    "judge",
    "library",
    "load",
    "load_ranks",
    "mark",
    "measure",
    "profile",
    "triton",
]

_HOMES = {
    **dict.fromkeys(
        [
            "LimitsMissed",
            "NotMeasured",
            "TorchprofError",
            "TorchprofWarning",
            "UnknownLimit",
            "UnreadableBaseline",
            "UnreadableRecording",
        ],
        "reasons.errors",
    ),
    **dict.fromkeys(["attention", "communication", "conv", "family", "gemm", "library", "triton"], "kernels.selectors"),
    **dict.fromkeys(["Profile", "StepProfile", "load", "load_ranks"], "profiles"),
    **dict.fromkeys(["Limits", "MarkerKeywords"], "limits.keywords"),
    **dict.fromkeys(["Verdicts", "judge"], "measuring.judged"),
    **dict.fromkeys(["measure", "profile"], "measuring.script"),
    "Kernel": "kernels.kernel",
    "Kernels": "kernels.kernels",
    "MeasuredBlock": "measuring.block",
    "Numbers": "analysis.numbers",
    "mark": "measuring.annotation",
    "Torchprof": "testing.fixture",
    "Ranks": "testing.ranks.place",
    "Trace": "trace",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: this package loads in every pytest run of every user."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
