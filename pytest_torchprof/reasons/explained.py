"""What is explained of a code beside the kinds of reasons that have it, and of what several codes have in common.

``reasons.articles`` puts the rows together with the kinds; docs/messages.md and ``torchprof explain`` show that. All
is Markdown, with links as pages in ``docs/`` have them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_torchprof.reasons.codes import Code

if TYPE_CHECKING:
    from collections.abc import Mapping


class Explained(NamedTuple):
    """What there is to say of a word; a code whose kinds say it all has no row."""

    about: str = ""
    """Paragraphs in front of the table."""
    meaning: str = ""
    """What those kinds of a code mean that do not say so themselves."""
    remedy: str = ""
    """What to do about these."""
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
        """
        *there is one rank's recording*: `--ranks` compares those of several ranks; put all of them into one folder.
        """,
        meaning="the job has more ranks than there are recordings, so limits may be missed where nobody looks",
        remedy=(
            "add the missing recordings, or check those you have one by one; in a test, say how many to expect "
            "(`files=2`)"
        ),
    ),
    Code.RANK_LOST: Explained(
        texts=(
            (
                "*rank 1 of 2: was killed by SIGSEGV*",
                (
                    "a rank of a test with `ranks=2` ended before its test did, and what it had measured is lost. "
                    "The last lines that it wrote follow; the other ranks may have ended because of it"
                ),
                (
                    "run that rank's code by itself; SIGKILL without another reason usually means that the system "
                    "ran out of memory"
                ),
            ),
            (
                (
                    "*rank 0 of 2: had not ended 65 s after another rank had failed: model.py:42 in forward (in "
                    "all_reduce, ...)*"
                ),
                "it waited for the rank that failed, in a collective or elsewhere, and was ended at that line",
                "fix the rank that failed; `torchprof_rank_timeout` in the ini file says how long the others may take",
            ),
            (
                "*rank 0 of 2: was ended by the launcher after rank 1 was killed by SIGKILL*",
                "the launcher ends all ranks once one of them has ended",
                "see what that rank says",
            ),
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
            (
                "*the test did not run there*",
                "pytest ended on that rank before the test",
                "see what that rank says",
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
    "usage-errors": Explained(
        """
        The marker, the fixture, an option or the command line says something that it cannot mean. A marker or an
        option that cannot be read stops the run before the first test, with exit code 4 and the nearest valid name;
        the command ends with exit status 2.
        """,
    ),
    Code.UNKNOWN_KEYWORD: Explained(
        """
        The marker, a selector's threshold or a measured block was given a keyword that does not exist. The text
        names the nearest one; all of them are in [limits](limits.md). Keywords that say how to measure (`warmup`,
        `steps`, `device`, ...) belong in the marker, not in a single `torchprof.measure(...)`.
        """,
    ),
    Code.BAD_VALUE: Explained(
        """
        A keyword has a value of the wrong type, or outside its range. The text says what is expected;
        [limits](limits.md) has an example of each.
        """,
    ),
    Code.BAD_PATTERN: Explained(
        """
        A pattern could match no kernel or operator: an empty text, an invalid regular expression, a selector
        written as a text or not called (`kernels=gemm` instead of `kernels=gemm()`), a keyword or value that a
        selector does not know, the name of a copy or of a runtime call. As it stands it would never match, and a
        limit that forbids it would always hold. So are spellings that no recording has: several names in one text
        (`"gemm, conv"`), blanks around a name, quotes in it, a number that only a table gives (`pointwise fill
        [2]`), `torch.clamp_min`, `aten.clamp_min`, `aten::mm.default`, `nn.Linear`, a namespace alone (`aten::`).
        In a live test, so is an operator that torch does not have in a namespace that it has. The text names the
        spelling that is meant, or the nearest operator; a library's own operators are known once it is imported.
        """,
    ),
    Code.POSITIONAL_ARGUMENT: Explained(
        """
        `@pytest.mark.torchprof(5)`: the marker takes keywords only. Write `max_kernels=5`.
        """,
    ),
    Code.CONTRADICTION: Explained(
        """
        Two limits of one test cannot both hold, whatever runs: `min_kernels=3, max_kernels=2`, or a pattern that is
        both required and forbidden.
        """,
    ),
    Code.LONE_SETTING: Explained(
        """
        A keyword that changes what a limit counts was given without that limit: `allow_syncs` without `max_syncs`.
        A keyword in the marker may have its limit in `torchprof.measure(...)`, and the other way round;
        `profile.expect(...)` takes none from the marker, so write both there.
        """,
    ),
    Code.FIXTURE_MISUSE: Explained(
        """
        The `torchprof` fixture was used in a way in which nothing could be measured correctly: one measurement
        inside another, a label twice, no label, `m.steps()` outside its block or twice, `m.profile` before the
        block's end, the fixture requested with `getfixturevalue()` while the test runs. The text says which, and
        what to write.
        """,
    ),
    Code.NO_JOB: Explained(
        """
        `torchprof.ranks` was used in a test that runs in no job of several ranks, or in a job whose launcher does
        not say where ranks meet. `ranks=2` in the marker [starts a job](ranks.md#tests-of-several-ranks) for the
        test; `torchrun --nproc-per-node 2 -m pytest` runs all tests in one.
        """,
    ),
    Code.BAD_OPTION: Explained(
        """
        An option on pytest's command line or in the ini file has a value that it does not take, names a file where
        a folder belongs, or excludes another option. The format of a report follows from its suffix.
        """,
    ),
    Code.BAD_USAGE: Explained(
        """
        There are arguments on `torchprof`'s command line that do not belong there. `torchprof COMMAND --help` lists
        those that do.
        """,
    ),
    Code.NO_SUCH_DEVICE: Explained(
        """
        `device="cuda:7"` where torch sees fewer GPUs, or a device of a kind that cannot be measured.
        """,
    ),
    Code.NOT_IN_RECORDING: Explained(
        """
        The recording has no step or range of that name, or one of its steps does not have it. torch.compile drops
        ranges inside the code that it compiles ([ranges](limits.md#ranges)).
        """,
    ),
    "unreadable-recording": Explained(
        """
        A recording that cannot be read is refused with its path and the reason; `torchprof` exits with 2. In a
        folder of recordings, valid JSON files without `traceEvents` (what other tools leave beside traces) are
        passed over. Everything else there counts: a trace that is cut off, damaged or newer is an error, since
        passing over it would judge fewer recordings than there are.
        """,
    ),
    Code.RECORDING_MISSING: Explained(
        """
        There is no such file, or no trace in the folder; or the recording of a measurement is gone because its test
        has ended. Keep recordings with `--torchprof-save=DIR`, or with `profile.save()` in the test itself.
        """,
    ),
    Code.RECORDING_UNREADABLE: Explained(
        """
        The system does not allow the file to be read: permissions, a broken disk, a network folder that is gone.
        The text ends with the system's reason.
        """,
    ),
    Code.RECORDING_CUT_OFF: Explained(
        """
        The file ends in the middle: the program that wrote it was killed, the disk was full, or a copy was
        interrupted. Record or copy it again.
        """,
    ),
    Code.RECORDING_DAMAGED: Explained(
        """
        The file is not valid JSON, its gzip data cannot be unpacked, or an event has a name or a time that no
        profiler writes. If its `torchprof` key holds values of a wrong type, it was changed. Record or copy it
        again.
        """,
    ),
    Code.RECORDING_TOO_LARGE: Explained(
        """
        The file is larger than [any recording](how-it-works.md#what-is-refused), and the text says what it has too
        much of. Record fewer steps, or without stacks.
        """,
    ),
    Code.RECORDING_NEWER: Explained(
        """
        It was recorded by a newer version of this plugin, with a schema that this version does not know. Upgrade
        pytest-torchprof.
        """,
    ),
    Code.NO_RECORDING: Explained(
        """
        It is a folder, is empty, or is something other than a trace of torch.profiler. That includes a file in
        Perfetto's own format, which torch can write since 2.14 if the name contains `.pftrace`: write it again with
        `profiler.export_chrome_trace("trace.json.gz")`.
        """,
    ),
    Code.RECORDING_NOT_WRITTEN: Explained(
        """
        A recording cannot be kept where it should be: the folder cannot be written, the disk is full, or a label
        contains half of a character.
        """,
    ),
    Code.RECORDING_NOT_FETCHED: Explained(
        """
        `torchprof open` hands a recording out once, and Perfetto's page did not ask for it in time. Open the link
        that the command prints in a browser on the same machine. From another machine, forward the port: `ssh -L
        9001:127.0.0.1:9001 HOST`.
        """,
    ),
    Code.PORT_IN_USE: Explained(
        """
        `torchprof open` needs port 9001, the only one from which Perfetto's page may read. Something else is using
        it: `trace_processor --httpd`, or another `torchprof open`. End that, or write the trace with `torchprof
        export --lanes` and drag it into the page.
        """,
    ),
    Code.REPLAY_MISSING: Explained(
        """
        `--torchprof-replay=DIR` judges kept recordings, and the folder has none for this test, label and rank. The
        text has the command that records it.
        """,
    ),
    Code.REPLAY_MISMATCH: Explained(
        """
        The recording in the replay's folder belongs to another test or label, or to the CPU although the test asks
        for a GPU. Record it again.
        """,
    ),
    Code.REPLAY_UNUSED: Explained(
        """
        No test has judged any recording in the replay's folder: a green run would mean nothing, so the run fails.
        Check which tests were selected, and the folder.
        """,
    ),
    "unreadable-baseline": Explained(
        """
        A baseline that cannot be read fails the tests that are compared with it, and is left as it is.
        """,
    ),
    Code.BASELINE_UNREADABLE: Explained(
        """
        There is no such file, or the system does not allow it to be read. The text ends with the system's reason.
        """,
    ),
    Code.BASELINE_DAMAGED: Explained(
        """
        The file is cut off, is not JSON, or does not have the form of a baseline, for example after an edit by
        hand. Restore it from version control, or delete it and write it anew with `--torchprof-baseline=update`.
        """,
    ),
    Code.BASELINE_MERGED: Explained(
        """
        A merge left its markers in the file. `torchprof baseline resolve` takes each entry from the side that
        changed it, and [lists what both changed](baselines.md#two-branches). If one side was written by an older
        version, take one side as a whole (`git checkout --theirs FILE`), or write the file anew.
        """,
    ),
    Code.BASELINE_NEWER: Explained(
        """
        It was written by a newer version of this plugin. Upgrade pytest-torchprof.
        """,
    ),
    Code.BASELINE_NOT_WRITTEN: Explained(
        """
        The folder cannot be written, or another process has held its lock for two minutes. The old contents are
        unchanged.
        """,
    ),
    "another-commit": Explained(
        """
        `--torchprof-against` compares with another commit ([against.md](against.md)). If that cannot begin, pytest
        ends with exit code 4.
        """,
    ),
    Code.NO_REPOSITORY: Explained(
        """
        There is no git on the PATH, the folder is not in a working tree of git, or the tests lie outside the
        repository. Start pytest in the repository that contains the tests.
        """,
    ),
    Code.UNKNOWN_REF: Explained(
        """
        Git knows no commit of this name. In a shallow clone, such as CI makes, the text has the `git fetch` that
        brings it; on GitHub Actions `fetch-depth: 2` of `actions/checkout` brings the base of a pull request,
        `HEAD^`.
        """,
    ),
    Code.OBJECT_MISSING: Explained(
        """
        Files of the commit are not available: its submodule's commit or its git-lfs object is not in this clone,
        and the plugin asks no server. The text has the command that brings it.
        """,
    ),
    Code.INSTALL_FAILED: Explained(
        """
        The command of `--torchprof-against-install` failed, and the text ends with what it said. If it failed at
        the other commit, nothing is measured there.
        """,
    ),
    Code.OTHER_CODE: Explained(
        """
        What was measured is not the side's own code. `--torchprof-against-install="pip install -e ."` installs each
        side in an environment of its own; where the package lies in a folder that nothing puts on the path, such as
        `packages/a/src`, pytest's setting `pythonpath` names it. If a folder of `testpaths` holds code too, call the
        one with tests `tests`.
        """,
    ),
    Code.IGNORED_FILE: Explained(
        """
        It is a compiled part that is built in place, for example, or local settings.
        """,
    ),
    Code.NOTHING_COMPARED: Explained(
        """
        No test was measured on both sides, so a green run would mean nothing. Check which tests were selected, and
        what the run says about the base: the first tests of a project have nothing to be compared with.
        """,
    ),
    Code.NO_ANCESTOR: Explained(
        """
        `torchprof bisect` searches between a good commit and a bad one that comes after it. The text says how the
        two are related instead: exchanged, on branches that parted, or cut off in a shallow clone.
        """,
    ),
    Code.NO_TEST: Explained(
        """
        Pytest finds no test of this name, and the text ends with what pytest said. Name the test as you would for
        `pytest`, from the folder you are in: `tests/test_mlp.py::test_block`.
        """,
    ),
    Code.REPORT_NOT_WRITTEN: Explained(
        """
        A report, the step summary of GitHub Actions or the output of `torchprof` cannot be written. The run fails,
        since whoever reads the report would miss it; all verdicts stand.
        """,
    ),
    "fleet": Explained(
        """
        `torchprof fleet run` quarantines a file that it cannot judge, and goes on with the others: see
        [Judge many recordings](fleet.md). A quarantined file never counts as a pass. Files that cannot be read have
        the codes of [unreadable recordings](#unreadable-recording).
        """,
    ),
    "history": Explained(
        """
        `torchprof history` could not read what it was asked for; [History](history.md) says what it needs. No verdict
        of a test depends on a history, unless a branch in it [is the baseline](history.md#a-branch-as-the-baseline).
        """,
    ),
    Code.BAD_RECORD: Explained(
        """
        A file is no record of a run, is cut off, is larger than any record, was written by a newer version, belongs to
        another project, or has the id of another record that is there. It is refused and named, and all others count.
        """,
    ),
    Code.NO_HISTORY: Explained(
        """
        The store is not there, or it has no run of the branch or no test of the name that was asked for.
        `torchprof history log STORE TEST --branch NAME` takes both as the runs have recorded them. Of tests that are
        [judged by a branch](history.md#a-branch-as-the-baseline) it says which run of it there is not.
        """,
    ),
    Code.UNUSABLE_STORE: Explained(
        """
        The store of a history cannot be reached, read or written, and the text says why: a server that does not
        answer, a folder without permission, an SQLite file on a network file system, a library that is not installed,
        or a schema of another version, with the line that upgrades it. A run's record then waits in
        `.torchprof/outbox`, and `torchprof history push STORE` sends it. The text never has a password.
        """,
    ),
}
