"""The explanations of *not measured* and its codes besides the kinds of reasons that have them.

``reasons.articles`` puts the rows together with the kinds; the pages of messages and ``torchprof explain`` show that.
All is Markdown, with links as pages in ``docs/`` have them; one to a code, ``(#lost-kernels)``, leads to its page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_torchprof.reasons.codes import Code

if TYPE_CHECKING:
    from collections.abc import Mapping


class Explained(NamedTuple):
    """The explanation of a word; a code whose kinds say it all has no row."""

    about: str = ""
    """Paragraphs in front of the table."""
    meaning: str = ""
    """The meaning of those kinds of a code that have none of their own."""
    remedy: str = ""
    """The remedy for these."""
    texts: tuple[tuple[str, str, str], ...] = ()
    """Texts that belong to no reason, what each means, and what to do; the second is empty where the text says it."""


EXPLAINED: Final[Mapping[str, Explained]] = {
    Code.NOT_MEASURED: Explained(
        """
        *Not measured* is an outcome of its own: never a pass, never a smaller number, and no `xfail` hides it. The
        text after it says why, and ends with the reason's code. If the profiler or the device is the cause, the
        text ends with *do: run* `torchprof doctor`, a command that looks for what is wrong with them
        ([doctor](doctor.md)).

        A test that catches the error fails all the same: *the test caught the error that said so* stands below the
        limit that `profile.expect(...)` could not judge, or below `profile=measured`, if the test asked for a
        number that cannot be told, or for what is refused (`max_kernls=0`). Ask for what can be measured there, or
        let the error pass. To expect a missed limit, write `pytest.raises(LimitsMissed)`.
        """,
    ),
    Code.WRONG_GRAPH_NUMBERS: Explained(
        """
        CUPTI before CUDA 13.1 Update 1 gives CUDA graphs wrong correlation ids in all sessions of a process but the
        first (so say NVIDIA's release notes), and a measurement's session never is the first. torch 2.11 and 2.14.1
        bring CUPTI 13.0. The text names the one that recorded them, where the recording tells (kineto's
        `cupti_version`); a newer one is not known to do that, so please report it. `torchprof doctor` says which one
        is loaded, and whether its graphs have right ids.
        """,
    ),
    Code.ANOTHER_PROFILER: Explained(
        meaning="a torch.profiler ran before, during or after the measured code",
        remedy="take it out of the test; `--torchprof=off` runs the test plainly, for example under nsys",
    ),
    Code.MIXED_JOBS: Explained(
        """
        How runs are told apart: [recordings of one run](ranks.md#recordings-of-one-run). Where hosts are more than
        a minute apart, set their clocks.
        """,
        meaning=(
            "two are of the same rank or the same recording; or they are of jobs of different sizes, tests or "
            "process groups; or one tells its rank and another does not"
        ),
        remedy="one call of `adopt`, or of a command with `--ranks`, for each job, each with a folder of its own",
    ),
    Code.RAN_UNCOMPILED: Explained(
        meaning=(
            "a stance or `torch._dynamo.config.disable` was in force for a part of the measured code, about which "
            "breaks and recompiles say nothing"
        ),
        remedy="set the stance around other code, or measure the parts by themselves",
    ),
    Code.COMPILE_CACHE: Explained(
        """
        The test asks for cold or for warm [caches of torch.compile](compile.md#cold-and-warm-caches), and they were
        not so, or nobody can tell.
        """,
    ),
    Code.NO_COMPILE_EVIDENCE: Explained(
        meaning="the limit is on compiled code, and there was none, or an earlier test had compiled it",
        remedy="compile in the measured code (the warm-up counts)",
    ),
    Code.LAUNCHES_WAIT: Explained(
        meaning="counts are still judged",
        remedy="unset it",
    ),
    Code.NOT_RECORDED: Explained(
        meaning=(
            "what the limit, the finding or the baseline needs is not in the file: it was recorded by another "
            "program, by another version, or without the option that the sentence names"
        ),
        remedy="record it again with what is missing, or do without the limit",
    ),
    Code.MATCH_UNKNOWN: Explained(
        meaning=(
            "neither the names of the listed kernels nor the inputs of their operators say it, for instance the "
            "dtype of a Triton kernel; one of them may match"
        ),
        remedy=(
            'ask for what is known: a name, a family, an operator (`op="mul"`); or record the inputs of operators '
            "(recordings of others: `record_shapes=True`)"
        ),
    ),
    Code.SILENT_RANK: Explained(
        """
        The ranks of a job [measure in step](ranks.md#in-step), and nothing was heard of one of them. A rank that
        *has not collected* the test has it under another id (see [rank-lost](#rank-lost)). One that is *in the one
        called ...* measures under another label. *No rank made progress for 60 s* ends the job of a test with
        `ranks=2`: each rank hangs at the line that is named, its stack follows, and *at all_gather 12 of
        default_pg, begun, not completed* is what [NCCL's flight recorder](ranks.md#a-job-that-hangs) has dumped.
        """,
    ),
    Code.OTHER_RANK: Explained(
        """
        *failed on rank 1: ...* says that the test was measured on all ranks and failed on another one, while
        nothing is wrong on this one.
        """,
        meaning="the measured code has ended there, so nothing is known of all ranks together",
        remedy="that rank's own failure says where",
    ),
    Code.NO_RANK: Explained(
        meaning="the job has more ranks than there are recordings, so limits may be missed where nobody looks",
        remedy=(
            "add the missing recordings, or check those you have one by one; in a test, say how many to expect "
            "(`files=2`); in a fleet, name those of one rank only, which are judged like any others"
        ),
    ),
    Code.RANK_LOST: Explained(
        texts=(
            (
                (
                    "*the test was not collected there: test_it.py::test_a[7] is no id in that process; of "
                    "test_it.py::test_a there are ...*"
                ),
                (
                    "the id is another one in each process: it is made of an address, a process id, a random number "
                    "or the order of a set"
                ),
                "give `parametrize` its `ids=`, or sorted values",
            ),
        ),
    ),
    Code.NO_KERNELS_RECORDED: Explained(
        """
        Where none of the few kernels is recorded that are launched before the first test, the same is done in a fresh
        process with kineto's log (`KINETO_LOG_LEVEL=1`, within two minutes), and the reason says what came of it.

        With `TEARDOWN_CUPTI=1` kineto takes CUPTI down after each recording and sets it up for the next. The header
        says so: measurements take longer, a recording that begins too soon after the last one may lack the GPU's
        side (it is made again), and before CUDA 12.6 CUDA graphs may crash the process.
        """,
        texts=(
            (
                "*A fresh process records them*",
                (
                    "this process is the problem: kineto registers with the GPU only once, and a session for the CPU "
                    "alone came first, or an empty one (`torch.profiler._utils._init_for_cuda_graphs`, which serving "
                    "engines call)"
                ),
                "remove that session from the conftest, plugin or import, or let it record CUDA too",
            ),
            (
                "*CUPTI serves one profiler at a time, and may serve ... in this process*",
                (
                    "what may hold CUPTI has been imported here (Proton, JAX, TensorFlow, cupti-python, torch's own "
                    "monitor), or a daemon may start profilers (`KINETO_USE_DAEMON`); said wherever the GPU's side "
                    "of a recording is missing"
                ),
                "do not profile with it in the same process",
            ),
            (
                "*CUPTI says CUPTI_ERROR_INSUFFICIENT_PRIVILEGES*",
                "the driver lets only administrators profile",
                ("load it with `NVreg_RestrictProfilingToAdminUsers=0`, or give the container `CAP_SYS_ADMIN`"),
            ),
            (
                "*CUPTI says CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED*",
                "another tool is attached: nsys, ncu, compute-sanitizer, DCGM",
                "run without it; under nsys use `--torchprof=off`",
            ),
            (
                "*CUPTI says CUPTI_ERROR_NOT_COMPATIBLE* or *..._NOT_INITIALIZED*",
                "the libraries of another CUDA version were loaded",
                "look at `LD_LIBRARY_PATH`",
            ),
            (
                "*nor does a fresh process, and CUPTI says nothing*",
                "torch has no CUPTI, or the records are lost on their way",
                "reinstall torch; look for attached tools",
            ),
        ),
    ),
    Code.NO_GPU: Explained(
        """
        If torch sees no GPU, the errors of `device="cuda"` and `--torchprof-require-gpu` say why. So does the
        reason of a skip, on a machine that seems to have one:
        """,
        texts=(
            (
                "*torch ... is built for the CPU only, and this machine has an NVIDIA driver*",
                "",
                "install the CUDA build (on AMD the ROCm build) of torch",
            ),
            (
                "*the NVIDIA driver is too old for torch ...: it knows CUDA 12.4*",
                "",
                "update the driver, or install a build of torch for that CUDA version",
            ),
            (
                "*no NVIDIA driver is to be found*",
                "",
                "install it; start containers with `--gpus all`",
            ),
            (
                (
                    "*CUDA_VISIBLE_DEVICES='' leaves this process no GPU* (or `HIP_VISIBLE_DEVICES`, "
                    "`ROCR_VISIBLE_DEVICES`)"
                ),
                "",
                "unset it, or name a GPU that is there",
            ),
            (
                "*CUDA error 802*",
                "",
                "start the fabric manager, in the driver's own version",
            ),
            (
                "*the driver sees no GPU*, *CUDA cannot be initialized: ...*",
                "",
                "`nvidia-smi` (AMD: `rocminfo`) tells more",
            ),
        ),
    ),
    Code.FORKS: Explained(
        """
        CUDA cannot be used in a fork of a process that has looked for GPUs; even `torch.cuda.is_available()`
        counts. In such a fork the CPU is measured as usual. With `--forked` (pytest-forked) the plugin leaves the
        GPU alone until the test itself runs; each test then begins CUDA and checks the profiler anew.
        `--torchprof-require-gpu` has to look earlier, and cannot be combined with it.
        """,
    ),
    Code.LINES_NOT_KNOWN: Explained(
        """
        A missed limit is explained by one more call of the measured code, with stacks. If a failure says *lines:
        not known*, the verdict stands and only the lines are missing.
        """,
    ),
    "nobody-told": Explained(
        """
        These remarks accompany times, and change no verdict: *during the samples ...*
        """,
        texts=(
            (
                "*the GPU was slowed down by ...*",
                "power, heat, or a limit of the board reduced its speed",
                "better cooling, or clocks that are locked lower",
            ),
            (
                "*N other processes used the GPU*",
                "the times include what they did",
                "run the tests where nothing else runs",
            ),
            (
                "*nobody told whether the GPU was slowed down*, *was used by others*",
                "NVML is missing, does not support the question, or refuses it; the reason follows",
                "in a container, `--pid=host` lets it tell its own process from others; otherwise nothing",
            ),
            (
                "*the GPU waited for the CPU within most calls*",
                (
                    "the call waits for the GPU itself, uses several streams, or takes long to launch: its times "
                    "include gaps"
                ),
                "nothing, if that is what the call does",
            ),
        ),
    ),
    "not-judged-without-a-gpu": Explained(
        """
        With `device="auto"` on a machine without a GPU, limits that need GPU kernels are not judged: counts of CPU
        operators say nothing about them. What the CPU can answer (graph breaks, recompiles) is judged and can fail
        the test; otherwise the test is skipped. To judge the rest here, replay a recording:
        `--torchprof-replay=DIR`. To measure the CPU itself, write `device="cpu"`.
        """,
    ),
    "ambiguous": Explained(
        """
        A test compares its times (`tolerance={"time": 0.10}`), but nobody can tell whether they are worse: the
        samples do not decide it, the baseline has none, or they were taken under other conditions (machine,
        threads, cache). The test passes with a `TorchprofWarning`, which is shown even where warnings are errors,
        and fails under `--torchprof-baseline=strict`. Record the baseline again on the machine that compares, or
        measure where nothing else runs.
        """,
    ),
    Code.LIMITS_MISSED: Explained(
        """
        At least one limit does not hold for what was measured. Each missed limit is listed with what was seen;
        `torchprof explain max_kernels` says what a limit means, and `torchprof explain launch-gaps` what a finding
        means.
        """,
    ),
    "measured-code": Explained(
        """
        What the test measures cannot be measured as it is written.
        """,
    ),
    "compiled-code": Explained(
        """
        A limit asks for what torch.compile did, and that cannot be seen.
        """,
    ),
    "not-known": Explained(
        """
        The recording is sound and does not have the answer. Limits that do not ask for it are judged.
        """,
    ),
    "times": Explained(
        """
        Times are compared ([times](baselines.md#times-when-asked-for)), and here they mean nothing, were not taken, or
        do not decide it. Counts are judged all the same.
        """,
    ),
    "adopted-recordings": Explained(
        """
        A recording that another process has left ([adopt](adopt.md)) is missing, old, unfinished, or of something else.
        """,
    ),
    "several-ranks": Explained(
        """
        A test runs on several ranks, or their recordings are judged together ([ranks](ranks.md)).
        """,
    ),
}
