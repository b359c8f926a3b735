"""Each error and each reason has a code: a mistake that leads to it, a section on a page of messages, no line of ours."""

from __future__ import annotations

import re
from contextlib import chdir
from pathlib import Path
from textwrap import dedent

import pytest
import torch
from builder import TraceBuilder, own_recording

from pytest_torchprof import LimitsMissed, NotMeasured, load
from pytest_torchprof.cli import main
from pytest_torchprof.reasons.catalogue import KINDS
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.error_texts import ErrorTexts
from pytest_torchprof.reasons.errors import TorchprofError, saying
from pytest_torchprof.reasons.explained import EXPLAINED
from pytest_torchprof.reasons.explained_errors import ERRORS
from pytest_torchprof.reasons.whole_runs import RuleWithoutTest, reason_of
from pytest_torchprof.testing.recordings import recording_name

pytestmark = pytest.mark.any_torch

ROOT = Path(__file__).parents[1]
SOURCES = {path: path.read_text() for path in (ROOT / "pytest_torchprof").rglob("*.py")}
PAGES = "".join(page.read_text() for page in sorted((ROOT / "docs").glob("messages-*.md")))
OURS = re.compile(r"Traceback \(most recent|pytest_torchprof/\S+\.py|^INTERNALERROR", re.MULTILINE)
BASELINE = "test_it.cpu-x86_64.json"
MERGED = '<<<<<<< a\n{"schema": 2, "entries": {}}\n=======\n{"schema": 2, "entries": {}}\n>>>>>>> b\n'

MARKERS = {
    Code.UNKNOWN_KEYWORD: "max_kernel=5",
    Code.BAD_VALUE: "max_kernels=-1",
    Code.BAD_PATTERN: "kernels=pytest_torchprof.gemm",
    Code.POSITIONAL_ARGUMENT: "5",
    Code.CONTRADICTION: "min_kernels=3, max_kernels=2",
    Code.LONE_SETTING: "allow_syncs='aten::item'",
}

BODIES = {
    Code.FIXTURE_MISUSE: """
        @cpu
        def test_it(torchprof):
            for _ in range(2):
                with torchprof.measure("once") as m:
                    for _ in m.steps():
                        torch.sin(x)
        """,
    Code.ANOTHER_PROFILER: """
        @cpu
        def test_it():
            with torch.profiler.profile():
                torch.sin(x)
        """,
    Code.NOTHING_RAN: """
        @cpu
        def test_it():
            pass
        """,
    Code.NOTHING_MEASURED: """
        @cpu
        def test_it(torchprof):
            torch.sin(x)
        """,
    Code.NOT_RUN_TO_END: """
        @cpu
        def test_it(torchprof):
            with torchprof.measure("left") as m:
                for _ in m.steps():
                    torch.sin(x)
                    break
        """,
    Code.UNREPEATABLE_BODY: """
        @cpu
        async def test_it():
            torch.sin(x)
        """,
    Code.LATE_MARKER: """
        def test_it(request):
            request.applymarker(pytest.mark.torchprof(max_kernels=1))
        """,
    Code.OTHER_THREAD: """
        import threading

        @cpu
        def test_it():
            thread = threading.Thread(target=torch.sin, args=(x,))
            thread.start()
            thread.join()
            torch.sin(x)
        """,
    Code.NEEDS_GPU: """
        @pytest.mark.torchprof(device="cpu", max_launches=1)
        def test_it():
            torch.sin(x)
        """,
    Code.NO_TIMES: """
        import time

        @pytest.mark.torchprof(device="cpu", warmup=0, steps=1, tolerance={"time": 0.1})
        def test_it(monkeypatch):
            from pytest_torchprof.capture import samples
            monkeypatch.setattr(samples, "_LIMIT_S", 0)
            torch.sin(x)
        """,
    Code.NO_COMPILE_EVIDENCE: """
        @pytest.mark.torchprof(device="cpu", max_compile_time=1)
        def test_it():
            torch.sin(x)
        """,
    Code.COMPILER_RECORDS_CLEARED: """
        @pytest.mark.torchprof(device="cpu", max_graph_breaks=0)
        def test_it():
            torch.compile(torch.sin, backend="eager")(x)
            torch._dynamo.utils.clear_compilation_metrics()
        """,
    Code.COMPILE_CACHE: """
        @pytest.mark.torchprof(device="cpu", max_compile_time=3600)
        def test_it(torchprof):
            with torchprof.measure("cold", max_compile_time={"cold": 3600}) as m:
                for _ in m.steps():
                    torch.compile(torch.sin, backend="eager")(x)
        """,
    Code.NO_RECORDING_LEFT: """
        @cpu
        def test_it(torchprof):
            torchprof.adopt(lambda folder: None, timeout=0)
        """,
    Code.RECORDING_NOT_WRITTEN: r"""
        @cpu
        def test_it(torchprof):
            with torchprof.measure("\ud800") as m:
                for _ in m.steps():
                    torch.sin(x)
        """,
}

MEASURED = """
@cpu
def test_it():
    torch.sin(x)
"""
OPTIONS = {
    Code.BAD_OPTION: ("--torchprof-steps=0",),
    Code.REPLAY_MISSING: ("--torchprof-replay=.",),
    Code.REPLAY_UNUSED: ("--torchprof-replay=.", "-k", "nothing"),
    Code.BASELINE_NOT_WRITTEN: ("--torchprof-baseline=update", "--torchprof-baseline-dir=file.txt"),
    Code.REPORT_NOT_WRITTEN: ("--torchprof-report=file.txt/report.json",),
    Code.NO_GPU: ("--torchprof-require-gpu",),
}


def reading(name: str, text: str | bytes) -> tuple[list[str], dict[str, bytes]]:
    return ["analyze", name], {name: text.encode() if isinstance(text, str) else text}


def baseline(text: str) -> tuple[list[str], dict[str, bytes]]:
    return ["baseline", "show", BASELINE], {BASELINE: text.encode()}


RECORDING = own_recording({"k": 1}).text()
COMMANDS = {
    Code.BAD_USAGE: (["analyze"], {}),
    Code.NOT_IN_RECORDING: (["analyze", "t.json", "--step", "9"], {"t.json": RECORDING.encode()}),
    Code.RECORDING_MISSING: (["analyze", "t.json"], {}),
    Code.RECORDING_UNREADABLE: (["analyze", "t" * 300], {}),
    Code.RECORDING_CUT_OFF: reading("t.json", RECORDING[: len(RECORDING) // 2]),
    Code.RECORDING_DAMAGED: reading("t.json", '{"traceEvents": [{"ph" "X"}]}'),
    Code.RECORDING_TOO_LARGE: reading("t.json", '{"traceEvents": [' + " " * 40 * 1024**2),
    Code.RECORDING_NEWER: reading("t.json", '{"traceEvents": [], "torchprof": {"schema": 99}}'),
    Code.NO_RECORDING: reading("t.json", "{}"),
    Code.BASELINE_UNREADABLE: (["baseline", "show", "nothing.json"], {}),
    Code.BASELINE_DAMAGED: baseline("{}"),
    Code.BASELINE_MERGED: baseline(MERGED),
    Code.BASELINE_NEWER: baseline('{"schema": 99, "entries": {}}'),
}


def lost_kernels() -> TraceBuilder:
    builder = own_recording({"k": 1})
    builder.launch(500)
    return builder


def lost_graph_kernels() -> TraceBuilder:
    builder = own_recording({"k": 1}, steps=2)
    for at, nodes in ((100, (0, 1)), (1100, (0,))):
        launch = builder.graph_launch(at)
        for node in nodes:
            builder.kernel("k", at + 10, 5, launch, **{"graph id": 3, "graph node id": (3 << 32) + node})
    return builder


def wrong_graph_numbers() -> TraceBuilder:
    builder = own_recording({"k": 1})
    builder.graph_launch(200)
    builder.kernel("k", 220, 5, 9000, **{"graph id": 3, "graph node id": 3 << 32})
    return builder


def earlier_work() -> TraceBuilder:
    builder = own_recording({"k": 1})
    builder.kernel("k", -1020, 119, 8, stream=9)
    builder.kernel("k", -1020, 1200, 9, stream=9)
    return builder


def lost_launches() -> TraceBuilder:
    builder = TraceBuilder()
    builder.step(0, 0, 900)
    builder.launched("k", 100)
    builder.kernel("k", 300, 5, builder.unrecorded())
    return builder


def lost_steps() -> TraceBuilder:
    builder = own_recording({"k": 1}, steps=2)
    builder.torchprof["steps"] = 3
    return builder


def lost_sentinel() -> TraceBuilder:
    builder = own_recording({"k": 1})
    builder.events = [event for event in builder.events if event["name"] != "torchprof::sentinel"]
    return builder


def no_gpu_side() -> TraceBuilder:
    builder = TraceBuilder()
    builder.launch(10)
    return builder


def unplaced_launches() -> TraceBuilder:
    builder = TraceBuilder()
    builder.own(steps=2)
    for number in range(2):
        builder.step(number, number * 1000, 900)
    builder.kernel("k", 1500, 5, builder.unrecorded())
    builder.sync(2100, 50)
    return builder


def untimed_kernels() -> TraceBuilder:
    builder = own_recording({"k": 1})
    kernel = next(event for event in builder.events if event["name"] == "k")
    kernel["dur"] = -5
    return builder


def clocks_differ() -> TraceBuilder:
    builder = own_recording({"k": 1})
    builder.launched("early", 500, wait=-40)
    return builder


def overlapping_steps() -> TraceBuilder:
    builder = TraceBuilder()
    for number in range(2):
        builder.step(number, number * 50, 100)
        builder.launched("k", number * 50 + 10)
    return builder


def aotinductor() -> TraceBuilder:
    builder = own_recording({"aten::mul": 1}, device="cpu")
    builder.annotation("torchprof::aotinductor", 20, 5)
    return builder


def of_no_known_family():
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 900)
    builder.launched("mine", 10, op="mine::rope")
    builder.sync(950, 20)
    return builder


def unseen_work() -> TraceBuilder:
    builder = TraceBuilder()
    builder.own(device="cpu", steps=1, step_cpu_times_us=[19_000.0])
    builder.step(0, 0, 20_000)
    builder.op("forward", 1000, 18_000)
    builder.op("aten::mm", 2000, 1000)
    return builder


def in_a_graph() -> TraceBuilder:
    builder = own_recording({}, steps=1)
    builder.kernel("k", 110, 5, builder.graph_launch(100))
    return builder


def lost_records() -> TraceBuilder:
    builder = own_recording({"k": 1})
    builder.metadata["WARNING"] = ["WARNING: Exceeded max GPU buffer count (33 >= 33) - terminating tracing"]
    return builder


def no_such_range() -> TraceBuilder:
    builder = own_recording({"k": 1})
    builder.torchprof["adopted"] = {"nodeid": "test_it.py::test_it", "step": "decode"}
    return builder


def launches_wait() -> TraceBuilder:
    builder = own_recording({"k": 1})
    builder.torchprof["environment"] = {"launches_wait": "CUDA_LAUNCH_BLOCKING=1"}
    return builder


def clocks_locked() -> TraceBuilder:
    builder = own_recording({"k": 1})
    builder.events.append(
        {"ph": "C", "name": "SM Active (%)", "pid": "GPU 0 Counters", "ts": 1_000_100, "args": {"": 9}}
    )
    return builder


def lost_copies():
    builder = own_recording({"k": 1})
    builder.call("cudaMemcpyAsync", 30, 5)
    return builder


def polled():
    builder = own_recording({"k": 1})
    for place in range(20):
        builder.call("cudaEventQuery", 200 + place)
    return builder


def unknown_launch() -> TraceBuilder:
    builder = own_recording({"k": 1})
    builder.kernel("k", 210, 5, builder.call("cudaNobodyKnowsThis", 200))
    return builder


def unknown_work() -> TraceBuilder:
    builder = own_recording({"k": 1})
    builder.event("gpu_task", "k", 210, 5, stream=7)
    return builder


RECORDINGS = {
    Code.LOST_KERNELS: (lost_kernels, "max_kernels=9"),
    Code.LOST_GRAPH_KERNELS: (lost_graph_kernels, "max_kernels=9"),
    Code.WRONG_GRAPH_NUMBERS: (wrong_graph_numbers, "max_kernels=9"),
    Code.EARLIER_WORK: (earlier_work, "max_kernels=9"),
    Code.LOST_LAUNCHES: (lost_launches, "max_kernels=9"),
    Code.LOST_STEPS: (lost_steps, "max_kernels=9"),
    Code.LOST_SENTINEL: (lost_sentinel, "max_kernels=9"),
    Code.NO_GPU_SIDE: (no_gpu_side, "max_kernels=9"),
    Code.UNPLACED_LAUNCHES: (unplaced_launches, "max_kernels=9"),
    Code.UNTIMED_KERNELS: (untimed_kernels, "max_kernels=9"),
    Code.CLOCKS_DIFFER: (clocks_differ, "max_kernels=9"),
    Code.OVERLAPPING_STEPS: (overlapping_steps, "max_kernels=9"),
    Code.LOST_RECORDS: (lost_records, "max_kernels=9"),
    Code.NO_SUCH_RANGE: (no_such_range, "max_kernels=9"),
    Code.AOTINDUCTOR: (aotinductor, "max_kernels=9"),
    Code.UNSEEN_WORK: (unseen_work, "max_kernels=9"),
    Code.LAUNCHES_WAIT: (launches_wait, "max_gpu_time=1s"),
    Code.CLOCKS_LOCKED: (clocks_locked, "max_gpu_time=1s"),
    Code.UNKNOWN_LAUNCH: (unknown_launch, "max_launches=9"),
    Code.UNKNOWN_WORK: (unknown_work, "max_kernels=9"),
    Code.POLLED: (polled, "max_syncs=0"),
    Code.LOST_COPIES: (lost_copies, "max_memcpys=9"),
    Code.NOT_RECORDED: (lambda: own_recording({"k": 1}), "max_peak_memory=1GB"),
    Code.MATCH_UNKNOWN: (lambda: own_recording({"": 1}), "forbid_kernels=gemm"),
    Code.FAMILY_UNKNOWN: (of_no_known_family, "collectives={'all_reduce': 0}"),
    Code.OPERATOR_UNKNOWN: (in_a_graph, "ops=mul"),
    Code.NO_SUCH_OPERATOR: (lambda: own_recording({"k": 1}), "forbid_kernels=aten::clampmin"),
    Code.NOTHING_TO_FUSE: (in_a_graph, "not_fused=['sum', 'amax']"),
    Code.ONE_RANK: (lambda: own_recording({"k": 1}), "same_kernels=True"),
    Code.NO_COMMUNICATION: (lambda: own_recording({"k": 1}), "min_overlap=0.5"),
}

# What needs a GPU, real or simulated, or a compiler: tests that expect the code, or a kind of reason that has it.
ELSEWHERE = {
    Code.NO_SUCH_DEVICE: "gpu/test_gpu_capture.py",
    Code.NO_KERNELS_RECORDED: "gpu/test_gpu_failures.py",
    Code.GPU_UNUSABLE: "gpu/test_gpu_failures.py",
    Code.GPU_FAILED: "gpu/test_gpu_failures.py",
    Code.FORKS: "gpu/test_gpu_failures.py",
    Code.NO_PEAK_MEMORY: "gpu/test_gpu_failures.py",
    Code.GPU_IN_USE: "test_gpu_lock.py",
    Code.MEASUREMENT_FAILED: "test_capture.py",
    Code.OWN_UNKNOWN: "test_own.py",
    Code.LINES_NOT_KNOWN: "test_explaining.py",
    Code.OTHER_FILE_COUNT: "test_adopt.py",
    Code.STALE_RECORDING: "test_adopt.py",
    Code.UNFINISHED_RECORDING: "test_adopt.py",
    Code.MIXED_JOBS: "test_adopt.py",
    Code.NO_RANK: "test_jobs.py",
    Code.SILENT_RANK: "test_ranks_lockstep.py",
    Code.OTHER_RANK: "test_ranks_lockstep.py",
    Code.DIFFERENT_COLLECTIVES: "test_different_ranks.py",
    Code.RANK_LOST: "test_ranks_marker.py",
    Code.NO_JOB: "test_ranks_marker.py",
    Code.COMPILED_BEFORE: "test_compile_watch.py",
    Code.RAN_UNCOMPILED: "test_compile_watch.py",
    Code.BASELINE_ELSEWHERE: "test_silent_passes.py",
    **dict.fromkeys((Code.NO_REPOSITORY, Code.UNKNOWN_REF, Code.OBJECT_MISSING), "test_against_git.py"),
    **dict.fromkeys((Code.BASE_NOT_MEASURED, Code.NOTHING_COMPARED), "test_against_gaps.py"),
    **dict.fromkeys((Code.INSTALL_FAILED, Code.OTHER_CODE), "test_against_code.py"),
    Code.IGNORED_FILE: "test_against_proof.py",
    Code.NO_VERDICT: "test_plugin_limits.py",
    **dict.fromkeys((Code.NO_ANCESTOR, Code.NO_TEST), "test_bisect.py"),
    Code.BASELINE_INCOMPLETE: "test_baseline_modes.py",
    **dict.fromkeys((Code.BAD_RECORD, Code.NO_HISTORY), "test_history.py"),
    Code.UNUSABLE_STORE: "test_history_stores.py",
    **dict.fromkeys((Code.RECORDING_CHANGED, Code.JUDGING_FAILED), "test_fleet.py"),
    **dict.fromkeys((Code.WORKER_DIED, Code.TOOK_TOO_LONG, Code.OUT_OF_MEMORY), "test_fleet_processes.py"),
    **dict.fromkeys((Code.RECORDING_NOT_FETCHED, Code.PORT_IN_USE), "test_export.py"),
}


def holds_only_the_code(text: str, code: Code) -> None:
    assert f"[{code}]" in text
    assert not OURS.search(text)


@pytest.mark.parametrize("code", MARKERS)
def test_a_marker_that_cannot_be_read_stops_the_run(run_tests, code):
    result = run_tests(f"@pytest.mark.torchprof({MARKERS[code]})\ndef test_it(): pass")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    holds_only_the_code(f"{result.outlines}{result.errlines}", code)


@pytest.mark.parametrize("code", BODIES)
def test_a_test_that_cannot_be_measured_fails(run_tests, code):
    result = run_tests(dedent(BODIES[code]))
    result.assert_outcomes(failed=1)
    holds_only_the_code(result.stdout.str(), code)


@pytest.mark.parametrize("code", OPTIONS)
def test_an_option_that_cannot_be_followed_fails_the_run(run_tests, pytester, code):
    if code is Code.NO_GPU and torch.cuda.is_available():
        pytest.skip("a GPU is there")
    pytester.path.joinpath("file.txt").touch()
    result = run_tests(MEASURED, *OPTIONS[code])
    assert result.ret != pytest.ExitCode.OK
    holds_only_the_code(result.stdout.str() + result.stderr.str(), code)


def test_the_recording_of_another_test_is_not_judged(run_tests, pytester):
    run_tests(MEASURED, "--torchprof-save=kept").assert_outcomes(passed=1)
    (kept,) = (pytester.path / "kept").iterdir()
    kept.rename(kept.with_name(recording_name("test_it.py::test_other", None, rank())))
    result = run_tests(MEASURED.replace("test_it", "test_other"), "--torchprof-replay=kept")
    result.assert_outcomes(failed=1)
    holds_only_the_code(result.stdout.str(), Code.REPLAY_MISMATCH)


def rank():
    from pytest_torchprof.capture.rank import Rank

    return Rank()


@pytest.mark.parametrize("code", COMMANDS)
def test_what_the_command_cannot_read_ends_in_exit_status_2(tmp_path, capsys, code):
    words, files = COMMANDS[code]
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with chdir(tmp_path):
        assert main(words) == 2
    holds_only_the_code(capsys.readouterr().err, code)


@pytest.mark.parametrize("code", RECORDINGS)
def test_a_recording_that_may_not_be_believed_is_not_measured(tmp_path, capsys, code):
    build, limit = RECORDINGS[code]
    path = build().write(tmp_path / "t.json")
    assert main(["check", str(path), "--limit", limit]) == 3
    holds_only_the_code(capsys.readouterr().out, code)


def test_what_came_of_limits_has_a_code_too(tmp_path):
    with pytest.raises(LimitsMissed) as missed:
        load(own_recording({"k": 2}).write(tmp_path / "t.json")).expect(max_kernels=1)
    assert missed.value.code == Code.LIMITS_MISSED
    with pytest.raises(NotMeasured) as unknown:
        load(lost_kernels().write(tmp_path / "u.json")).expect(max_kernels=1)
    assert unknown.value.code == Code.LOST_KERNELS
    assert NotMeasured("for a reason of somebody else").code == Code.NOT_MEASURED


@pytest.mark.parametrize("name", ["brief", "in_one_line", "in_columns"])
def test_nobody_gives_an_error_other_texts(name):
    with pytest.raises(AttributeError):
        setattr(LimitsMissed("whole"), name, "another")


def test_a_copy_that_says_another_text_is_raised_where_the_error_was():
    with pytest.raises(LimitsMissed) as missed:
        raise LimitsMissed(texts=ErrorTexts("whole", "brief", "line", str)) from ValueError("cause")
    error = missed.value
    error.add_note("a user's")
    copied = saying(error, "other")
    assert (str(copied), copied.brief, copied.in_one_line, copied.in_columns) == ("other", "brief", "line", None)
    assert (str(error), error.in_columns) == ("whole", str)
    assert type(copied) is LimitsMissed
    assert (copied.__traceback__, copied.__cause__) == (error.__traceback__, error.__cause__)
    assert (copied.__suppress_context__, copied.__notes__) == (True, ["a user's"])


def test_the_reason_of_a_whole_run_says_what_its_error_says():
    why = RuleWithoutTest("a rule")
    assert reason_of(TorchprofError.because(why)) == why
    about = TorchprofError.because(why, "pyproject.toml")
    assert (reason_of(about).text, reason_of(about).code) == (about.text, about.code)


CASES = {
    **dict.fromkeys((*MARKERS, *BODIES, *OPTIONS, *COMMANDS, *RECORDINGS, *ELSEWHERE)),
    **dict.fromkeys((Code.REPLAY_MISMATCH, Code.LIMITS_MISSED, Code.NOT_MEASURED)),
}


def test_each_code_has_a_case_and_each_case_a_code():
    assert set(CASES) == set(Code)


@pytest.mark.parametrize(("code", "file"), ELSEWHERE.items())
def test_what_is_tested_elsewhere_is(code, file):
    test = (ROOT / "tests" / file).read_text().replace("\\", "")
    kinds = [kind.__name__ for kind in KINDS if vars(kind).get("CODE") == code]
    names = [f"Code.{code.name}", *(f"adopting.{kind}" for kind in kinds), *(f"str({kind}" for kind in kinds)]
    assert f"{code}]" in test or any(re.search(rf"\b{re.escape(name)}\b", test) for name in names)


@pytest.mark.parametrize("code", Code)
def test_each_code_is_raised_somewhere_and_explained(code, capsys):
    assert any(f"Code.{code.name}" in text for text in SOURCES.values())
    assert main(["explain", code]) == 0
    assert len(capsys.readouterr().out) > len(code) + 50


def test_each_section_of_the_messages_is_a_codes_or_says_what_others_have_in_common():
    common = {
        *("nobody-told", "not-judged-without-a-gpu", "ambiguous"),
        *("measured-code", "compiled-code", "not-known", "times", "adopted-recordings", "several-ranks"),
        *(
            "history",
            "fleet",
            "another-commit",
            "changes",
            "usage-errors",
            "unreadable-recording",
            "unreadable-baseline",
        ),
    }
    headings = re.findall(r"^##+ (.*)$", PAGES, re.MULTILINE)
    assert len(set(headings)) == len(headings)
    assert set(headings) == common | set(Code)
    assert {*EXPLAINED, *ERRORS} <= set(headings)
