"""Findings about who waits for whom: the GPU for the host, or the host for the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_torchprof.findings.finding import HOST_PACE, LAUNCHES, Finding, Rule, Threshold
from pytest_torchprof.kernels.names import decode
from pytest_torchprof.text import counted, show_ratio, show_us
from pytest_torchprof.trace import intervals
from pytest_torchprof.trace.columns import KERNEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.analysis.gpu_work import GpuWork

LATE = Threshold(
    "late_launches",
    0.5,
    "where half of the operations were launched only after the GPU had run dry, it is the host that sets the pace",
)
BUSY = Threshold(
    "busy", 0.5, "below half of the time busy, the GPU waits more than it works; TensorBoard's plugin warns there too"
)

COMPUTING = Threshold("share", 0.9, "a GPU that computes nine tenths of the time cannot be fed much better")

WAITING = Threshold(
    "share", 0.1, "a tenth of the time lost between kernels is worth a look; below that other things pay first"
)
LOADING = Threshold("data_loading", 0.05, "TensorBoard's plugin advises more workers from 5 % of the step on")

FIRST_US = Threshold(
    "first_us",
    1000.0,
    "a launch reaches an idle GPU in about 10 us; what takes a hundred times as long was not the launch",
)
FIRST_TIMES = Threshold("first_times", 10.0, "where all launches take long, it is the queue; ten medians are no queue")
MEDIAN_US = Threshold("median_us", 50.0, "five times what a launch takes to reach an idle GPU")

_LOADING = ("enumerate(DataLoader)#", "enumerate(DataPipe)#")


def _late(work: GpuWork) -> float:
    """Return the share of GPU operations that the device had to wait for."""
    # Where the profiler's own time cuts a gap into pieces, it is still one operation that came late.
    return len({before for _, _, cause, before in work.gaps if cause == "host"}) / max(len(work.gpu_ops), 1)


def _overhead_bound(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find that most operations were launched too late while the GPU was mostly idle and the CPU was not waiting."""
    work = analysis.gpu_work
    busy_us = sum(step.gpu_busy_us or 0.0 for step in analysis.steps)
    # What is done once is the cold start's: it would not be there in a second recording.
    cpu_us = sum(step.cpu_time_us or 0.0 for step in analysis.steps) - work.setup_us
    warm = work.window_us - work.setup_us
    if not busy_us or cpu_us <= busy_us or work.busy_share * work.window_us > at[BUSY] * warm:
        return
    late, ratio, busy_share = _late(work), cpu_us / busy_us, work.busy_share * work.window_us / warm
    if late < at[LATE]:
        return
    waited = work.idle.host_us / len(work.by_device)
    yield Finding(
        message=f"the CPU takes {show_ratio(ratio)} times as long to launch the work as the GPU to do it; "
        f"{late:.0%} of the GPU operations came late, the GPU was busy {busy_share:.0%} of the time",
        evidence={
            "time_us": waited,
            "share": work.share(waited),
            "cpu_gpu_ratio": ratio,
            "busy_share": busy_share,
            "late_launches": late,
        },
        saves_us=waited,
    )


def _compute_bound(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    work = analysis.gpu_work
    kind, talking = analysis.trace.gpu.kind, work.communication
    computing = [
        work.covered_us([i for i in ops if kind[i] == KERNEL and i not in talking]) for ops in work.by_device.values()
    ]
    share = work.share(sum(computing) / len(computing)) if computing else 0.0
    if share >= at[COMPUTING]:
        yield Finding(
            message=f"the GPU computes {share:.0%} of the time: faster kernels make it faster, a faster host does not",
            evidence={"time_us": sum(computing), "share": share},
            severity="information",
        )


def _launch_gaps(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find idle time between GPU operations of which the next one was not yet launched; of several GPUs the mean.

    The classes are HTA's, by when the launch began. But what of a gap lies behind the launch's end is not the host's.
    """
    work, trace = analysis.gpu_work, analysis.trace
    found, call_of, ends = work.idle, trace.links.call_of, trace.calls.end
    late = [
        (length, before)
        for start, end, cause, before in work.gaps
        if cause == "host" and (length := min(end, ends[call_of[before]]) - start) > 0
    ]
    devices = max(len(work.by_device), 1)
    waited_us = sum([length for length, _ in late]) / 1000 / devices
    if not late or work.share(waited_us) < at[WAITING]:
        return
    longest_ns, before = max(late)
    loading = _loading_us(analysis)
    launched_by = analysis.launching.op_name(analysis.launching.op_of[before])
    awaited = launched_by or decode(analysis.trace.names[analysis.trace.gpu.name[before]]).short
    evidence: dict[str, object] = {
        "time_us": waited_us,
        "share": work.share(waited_us),
        "host_wait_us": found.host_us,
        "kernel_wait_us": found.kernel_us,
        "other_us": found.other_us,
        "gaps": len(late),
        "longest_us": longest_ns / 1000,
        "longest_before": awaited,
        "data_loading_us": loading,
        "source": work.source_of(before),
    }
    remedy = "launch earlier: fewer and larger launches, no synchronization in between, CUDA graphs"
    if work.share(loading) >= at[LOADING]:
        remedy = f"load data meanwhile (num_workers, pin_memory), which takes {show_us(loading)}; {remedy}"
    yield Finding(
        message=f"{show_us(waited_us)} ({work.share(waited_us):.0%} of the time) the GPU idled because "
        f"the next operation was not launched yet, in {counted(len(late), 'gap')}, the longest "
        f"{show_us(longest_ns / 1000)} before {awaited}",
        evidence=evidence,
        remedy=remedy,
        saves_us=waited_us,
    )


def _loading_us(analysis: Analysis) -> float:
    trace = analysis.trace
    found = [span for prefix in _LOADING for span in trace.spans_in_steps(prefix)]
    return intervals.length(intervals.merged((span.start_ns, span.end_ns) for span in found)) / 1000


def _launch_delay(analysis: Analysis, at: Mapping[Threshold, float]) -> Iterator[Finding]:
    """Find that the way from a launch to its kernel is long although the GPU has nothing else to do."""
    trace, work = analysis.trace, analysis.gpu_work
    call_of, launched = trace.links.call_of, trace.calls.start
    linked = [i for i in work.kernels if call_of[i] >= 0]
    if not linked:
        return
    delays = [(trace.gpu.start[i] - launched[call_of[i]]) / 1000 for i in linked]
    first_launched = min(range(len(linked)), key=lambda at: launched[call_of[linked[at]]])
    first, middle = delays[first_launched], sorted(delays)[len(delays) // 2]
    started_idle = not any(trace.gpu.end[i] > launched[call_of[linked[first_launched]]] for i in trace.links.orphans)
    slow_start = first >= at[FIRST_US] and first >= at[FIRST_TIMES] * middle and started_idle
    if not slow_start and not (middle >= at[MEDIAN_US] and _late(work) >= at[LATE]):
        return
    yield Finding(
        message=f"the first kernel ran {show_us(first)} after its launch, the median is {show_us(middle)}",
        evidence={"first_us": first, "median_us": middle, "time_us": first - middle},
        severity="information",
    )


RULES = (
    Rule(
        code="overhead-bound",
        title="Bound by overhead",
        find=_overhead_bound,
        needs=(LAUNCHES,),
        thresholds=(LATE, BUSY),
        remedy="more work per launch (larger batches), fewer launches (torch.compile, foreach or fused variants), or "
        'one launch for all (mode="reduce-overhead")',
        explains=HOST_PACE,
    ),
    Rule(
        code="compute-bound",
        title="Bound by the GPU",
        find=_compute_bound,
        thresholds=(COMPUTING,),
        remedy="look at the longest kernels: their types, their sizes, and what could be fused",
    ),
    Rule(
        code="launch-gaps",
        title="The GPU waits for launches",
        find=_launch_gaps,
        needs=(LAUNCHES,),
        thresholds=(WAITING, LOADING),
        explains=HOST_PACE,
    ),
    Rule(
        code="launch-delay",
        title="Launches arrive late",
        find=_launch_delay,
        needs=(LAUNCHES,),
        thresholds=(FIRST_US, FIRST_TIMES, MEDIAN_US, LATE),
        remedy="a late first kernel is start-up (the profiler's buffers, loading of code): warm up longer; "
        "a late median on an idle GPU is the driver or a throttled CPU",
    ),
)
