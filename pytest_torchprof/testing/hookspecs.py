"""Hooks with which another pytest plugin adds limits, findings and report formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_torchprof.findings import Rule
    from pytest_torchprof.limits import Limit
    from pytest_torchprof.report import Reporter


@pytest.hookspec
def pytest_torchprof_limits() -> Iterable[Limit] | None:
    """Return further limits; their names become keywords of the marker, and those of their settings.

    .. code-block:: python

        def pytest_torchprof_limits():
            return [Limit(name="max_names", read=whole_number, check=check_names)]

    A check returns a ``Verdict``, or several in a tuple. What else it returns is *not measured* (``no-verdict``).
    """


@pytest.hookspec
def pytest_torchprof_findings() -> Iterable[Rule] | None:
    """Return further rules; their codes can be forbidden with ``forbid=``, their thresholds set in the ini file.

    .. code-block:: python

        MOST = Threshold("kernels", 5, "so many sines are too many")

        def find_sines(profile, at):
            if profile.kernels.matching("aten::sin").count > at[MOST]:
                yield OtherFinding(code="sines", title="Sines", message="sines were computed")

        def pytest_torchprof_findings():
            return [Rule(code="sines", find=find_sines, needs=(), thresholds=(MOST,))]

    ``find`` takes the profile alone where there are no thresholds; ``needs`` says what a recording must hold for it.
    """


@pytest.hookspec
def pytest_torchprof_kernels() -> Mapping[str, str] | None:
    """Return the families of a library's kernels, by patterns on their names, where our tables do not know them.

    .. code-block:: python

        def pytest_torchprof_kernels():
            return {"my_rope_*": "pointwise", "mlp_fwd_*": "gemm bf16 tn"}

    Words are a family, and of its operands a dtype and a layout. The ini file's ``torchprof_kernels`` and a marker's
    ``own_kernels`` are asked first.
    """


@pytest.hookspec
def pytest_torchprof_reporters() -> Mapping[str, Reporter] | None:
    """Return further report formats by file suffix (``".csv"``), each a function from RunResults to text."""
