"""A verdict is data: it goes between processes and into reports as JSON values, with its reason and its evidence."""

from __future__ import annotations

import msgspec
import pytest

from pytest_torchprof.limits import HOLDS, MISSED, NOT_MEASURED, Verdict
from pytest_torchprof.limits.evidence import WhyLine, WorkRow
from pytest_torchprof.limits.seen import CountSeen, InWords
from pytest_torchprof.reasons.composed import OfRank, Several
from pytest_torchprof.reasons.lost_work import LostKernels
from pytest_torchprof.reasons.reason import Verbatim

pytestmark = pytest.mark.any_torch

ROW = WorkRow(
    count=3,
    name="gemm",
    full="gemm<float>",
    time_us=2.5,
    ops=("aten::mm",),
    places=((2, "model.py:4"), (1, "model.py:7")),
    line=("model.py", 4),
)
LOST = LostKernels(1, 3, in_each_step=False)


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict(
            limit="max_syncs",
            range="decode",
            expected="0",
            status=MISSED,
            number=3,
            seen=(CountSeen(3, "wait"),),
            evidence=(ROW, WhyLine(LOST)),
            step="2",
        ),
        Verdict(limit="forbid", expected="'no-finding'", status=HOLDS, number=0, seen=(InWords("9 names"),)),
        Verdict(limit="max_kernels", expected="9", status=NOT_MEASURED, reason=LOST),
        Verdict(
            limit="max_kernels", expected="9", status=NOT_MEASURED, reason=OfRank(2, Several((LOST, Verbatim("x"))))
        ),
    ],
)
def test_a_verdict_is_the_same_after_it_has_travelled_as_json(verdict):
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) == verdict
