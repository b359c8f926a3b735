"""Assert what the GPU really did in a test.

In a test, the ``torchprof`` fixture (`Torchprof`) returns a `Profile`::

    @pytest.mark.torchprof(max_kernels=5, max_syncs=0)
    def test_step(torchprof):
        profile = torchprof(model, x)
        assert profile.kernels.matching(gemm(dtype="bf16")).count == 2

In a script, ``profile(model, x, max_kernels=5)`` measures a call, and
``measure()`` a block (`MeasuredBlock`); ``judge()`` returns `Verdicts`.
``load(path)`` reads a recording, ``load_ranks(folder)`` those of `Ranks`.

A `Profile` has ``steps`` (`StepProfile`) and their `Numbers`, ``kernels``
(`Kernels`, each a `Kernel`), ``findings``, a `Trace`, ``table()`` and
``expect(**limits)``. `Limits` and `MarkerKeywords` list the keywords.
``attention``, ``communication``, ``conv``, ``family``, ``gemm``,
``library`` and ``triton`` select kernels; ``mark("decode")`` names a range.

A missed limit raises `LimitsMissed`, what was not measured `NotMeasured`.
`UnknownLimit`, `UnreadableRecording` and `UnreadableBaseline` are the other
kinds of `TorchprofError`; warnings are `TorchprofWarning`. More on a name:
``help(pytest_torchprof.Profile)``; on a limit: ``torchprof explain WORD``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_torchprof.analysis.numbers import Numbers as Numbers
    from pytest_torchprof.errors import LimitsMissed as LimitsMissed
    from pytest_torchprof.errors import NotMeasured as NotMeasured
    from pytest_torchprof.errors import TorchprofError as TorchprofError
    from pytest_torchprof.errors import TorchprofWarning as TorchprofWarning
    from pytest_torchprof.errors import UnknownLimit as UnknownLimit
    from pytest_torchprof.errors import UnreadableBaseline as UnreadableBaseline
    from pytest_torchprof.errors import UnreadableRecording as UnreadableRecording
    from pytest_torchprof.kernels.kernel import Kernel as Kernel
    from pytest_torchprof.kernels.kernels import Kernels as Kernels
    from pytest_torchprof.kernels.selectors import attention as attention
    from pytest_torchprof.kernels.selectors import communication as communication
    from pytest_torchprof.kernels.selectors import conv as conv
    from pytest_torchprof.kernels.selectors import family as family
    from pytest_torchprof.kernels.selectors import gemm as gemm
    from pytest_torchprof.kernels.selectors import library as library
    from pytest_torchprof.kernels.selectors import triton as triton
    from pytest_torchprof.limits.keywords import Limits as Limits
    from pytest_torchprof.limits.keywords import MarkerKeywords as MarkerKeywords
    from pytest_torchprof.measuring.annotation import mark as mark
    from pytest_torchprof.measuring.block import MeasuredBlock as MeasuredBlock
    from pytest_torchprof.measuring.judged import Verdicts as Verdicts
    from pytest_torchprof.measuring.judged import judge as judge
    from pytest_torchprof.measuring.script import measure as measure
    from pytest_torchprof.measuring.script import profile as profile
    from pytest_torchprof.profiles import Profile as Profile
    from pytest_torchprof.profiles import StepProfile as StepProfile
    from pytest_torchprof.profiles import load as load
    from pytest_torchprof.profiles import load_ranks as load_ranks
    from pytest_torchprof.testing.fixture import Torchprof as Torchprof
    from pytest_torchprof.testing.ranks.place import Ranks as Ranks
    from pytest_torchprof.trace import Trace as Trace

# No __all__ that names them: help() prints the whole documentation of each name in it, two thousand lines, where a page
# is asked for. One that is empty would tell type checkers that nothing is public.
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
        "errors",
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
    __tracebackhide__ = True  # A name that there is not is an error of the line that asks for it.
    if name == "__all__":  # Nothing comes with ``import *``.
        return []
    if name == "errors":  # As the errors call themselves.
        return import_module(f"{__name__}.errors")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOMES)
