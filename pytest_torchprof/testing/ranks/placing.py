"""Where a test of several ranks runs: in the job that this process is a rank of, or in one of its own."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.testing import JOB
from pytest_torchprof.testing.gpus import count_of_run, seeing_all
from pytest_torchprof.testing.ranks.item import CachedItem, JobItem
from pytest_torchprof.testing.ranks.launch import JobPlan
from pytest_torchprof.testing.workers import HAND_OVER, arguments_of, nodeid_of
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from pytest_torchprof.reasons.reason import Reason
    from pytest_torchprof.testing.marker_options import TestOptions
    from pytest_torchprof.testing.options import RunOptions
    from pytest_torchprof.testing.ranks.job import Jobs
    from pytest_torchprof.testing.session import RunState

_LOOPBACK: Final = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
"""Ranks of one host need no other network, and the one to which the host's name belongs may not exist."""

_MORE_PATIENCE_S: Final = 5.0
"""Ranks that wait for each other in a measurement notice it themselves, and can say more about it."""


def placed(item: pytest.Item, options: TestOptions, state: RunState, jobs: Jobs) -> pytest.Item:
    """Return the item to run in place of a test: the test itself, if it asks for no ranks or runs in a job."""
    is_alone = options.compile_cache is not None
    ranks, here = 1 if is_alone else options.ranks, this_rank()
    if is_alone and not (state.options.enabled and state.options.replay is None and here.alone):
        return item  # Recordings are judged where pytest was called, and a rank has no say in how many there are.
    if ranks is None or HAND_OVER in item.config.stash or not isinstance(item, pytest.Function):
        return item
    if not here.alone:
        if here.world != ranks:
            item.add_marker(pytest.mark.skip(reason=f"ranks={ranks}, and this job has {counted(here.world, 'rank')}"))
        return item
    plan, test_id = _plan(item, options, ranks, state.options), nodeid_of(item)
    parent: Any = item.parent
    own = {"nodeid": item.nodeid} if item.nodeid != test_id else {}  # With a group of pytest-xdist's.
    job: JobItem = (CachedItem if is_alone else JobItem).from_parent(
        parent, name=item.name, function=item, state=state, plan=plan, jobs=jobs, test_id=test_id, **own
    )
    job.stash[JOB] = job
    if lack := why_too_few_gpus(options, state.options):
        job.add_marker(pytest.mark.skip(reason=lack.text))
    return job


def why_too_few_gpus(options: TestOptions, run: RunOptions) -> Reason | None:
    """Return why there is not a GPU for each rank of a test; None if there is, or if no GPU is measured."""
    if options.ranks is None or options.device == "cpu" or run.replay is not None:
        return None
    gpus = count_of_run()
    if gpus >= options.ranks or (gpus == 0 and options.device == "auto"):
        return None
    from pytest_torchprof.reasons.refused_tests import TooFewGpus  # noqa: PLC0415 - for what is refused alone

    return TooFewGpus(options.ranks, gpus)


def _arguments(config: pytest.Config) -> tuple[str, ...]:
    """Return the arguments that pytest was called with, and more for what is settled before a plugin is asked."""
    arguments, own = arguments_of(config), ["--capture=fd"]  # What a rank writes is shown with its report.
    if hasattr(config.option, "no_cov"):
        own.append("--no-cov")  # pytest-cov: ranks would write one file together.
    if (seed := getattr(config.option, "randomly_seed", None)) is not None:
        own.append(f"--randomly-seed={seed}")  # pytest-randomly: all ranks must draw the same order.
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return (*arguments[:at], *own, *arguments[at:])


def _plan(item: pytest.Function, options: TestOptions, ranks: int, run: RunOptions) -> JobPlan:
    # A process alone waits for nobody, and a test of one process may be silent for as long as it likes.
    waits = run.enabled and options.compile_cache is None
    return JobPlan(
        file=str(item.path),
        device=options.device,
        ranks=ranks,
        arguments=_arguments(item.config),
        folder=item.config.invocation_params.dir,
        variables={**_LOOPBACK, **seeing_all()},
        silence_s=run.rank_timeout_s if waits else math.inf,
        patience_s=run.rank_timeout_s + _MORE_PATIENCE_S,
        replays=run.replay is not None and run.enabled,
        compile_cache=options.compile_cache,
    )
