"""The test that stands for one whose process finds the compile caches empty, or filled by a process before it."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_torchprof.capture.cache_phase import CachePhase
from pytest_torchprof.testing.ranks.item import JobItem
from pytest_torchprof.testing.ranks.task import Turn

if TYPE_CHECKING:
    from pytest_torchprof.testing.ranks.launch import JobEnd


class CachedItem(JobItem):
    """Runs a test in a process of its own; for warm caches twice, and what the second one comes to counts."""

    def _job_end(self) -> JobEnd:
        with tempfile.TemporaryDirectory(prefix="torchprof-caches-", ignore_cleanup_errors=True) as folder:
            if self.plan.compile_cache == "warm":
                end = self._in_process(CachePhase(name="cold", folder=folder, fills=True))
                if end.lost:
                    return end
                return self._in_process(CachePhase(name="warm", folder=folder))
            return self._in_process(CachePhase(name="cold", folder=folder))

    def _in_process(self, phase: CachePhase) -> JobEnd:
        variables = {**self.plan.variables, **phase.variables}
        plan = replace(self.plan, phase=phase, variables=variables)
        return self._jobs.run(plan, [self.test_id], Turn(nodeid=self.test_id, last=True))
