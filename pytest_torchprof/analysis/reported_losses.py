"""What the profiler itself reported of records that it lost: kineto keeps its log beside the events of some files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_torchprof.reasons.lost_work import LossNoted

if TYPE_CHECKING:
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.trace import Trace

_LOGS = ("ERROR", "WARNING", "INFO")
# libkineto/src: CuptiActivityApi.cpp, RoctracerLogger.cpp, CuptiActivityProfiler.cpp ("Record counts").
_LOSS = re.compile(r"Dropped [1-9]\d* activity records|Exceeded max GPU buffer count.*|CUPTI stopped early\? = 1")


def reported_loss(trace: Trace) -> Reason | None:
    """Return why the recording is not whole by its own words; None where it says nothing of that."""
    for log in _LOGS:
        lines = trace.header.get(log)
        for line in lines if isinstance(lines, list) else ():
            if match := _LOSS.search(str(line)):
                return LossNoted(match[0])
    return None
