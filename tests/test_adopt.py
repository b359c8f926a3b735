"""Recordings of other processes, adopted by a test and judged like its own."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from facts import reasons_in, says

from pytest_torchprof import load
from pytest_torchprof.cli import main
from pytest_torchprof.cli.report_file import read_report
from pytest_torchprof.reasons import adopting
from pytest_torchprof.reasons.asked_wrongly import NoSuchLimit, OptionOfMarker
from pytest_torchprof.reasons.comparing import AdoptedWithoutTimes
from pytest_torchprof.reasons.lost_work import LossNoted
from pytest_torchprof.reasons.misuse import (
    CallWithout,
    LabelTwice,
    MeasuresInside,
    ProducerRunsNothing,
    Takes,
    WrongArgument,
)
from pytest_torchprof.reasons.names_asked import NoSuchRange
from pytest_torchprof.reasons.own_steps import NoGpuOperations
from pytest_torchprof.reasons.recordings import UnreadableFile
from pytest_torchprof.reasons.unreadable import InPerfettosFormat
from pytest_torchprof.reasons.wrong_values import ValueForm
from pytest_torchprof.report.account import NotJudgedOnCpu

if TYPE_CHECKING:
    from pytest_torchprof.reasons.reason import Reason

pytestmark = pytest.mark.any_torch

ADOPTING = """
import contextlib, gzip, json, os, shutil, threading, time
from pathlib import Path
import fresh
from pytest_torchprof import NotMeasured

CHILD = '''
import sys, torch
from torch.profiler import ProfilerActivity, profile, record_function
x = torch.ones(4, 4)
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    torch.sin(x)
    for _ in range(3):
        with record_function("decode"):
            torch.add(torch.mm(x, x), x)
    torch.cos(x)
profiler.export_chrome_trace(sys.argv[1])
'''

def child(folder, name="trace.json.gz", code=CHILD):
    assert fresh.run_code(code, str(folder / name)).returncode == 0

def of_rank(folder, name, rank, world):
    child(folder, name)
    trace = json.loads((folder / name).read_text())
    trace["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
    # One is recorded after the other, as no job on one host is.
    trace["host_name"] = f"host{rank}"
    (folder / name).write_text(json.dumps(trace))
"""

DECODE = """
@cpu
def test_it(torchprof):
    profile = torchprof.adopt(child, "decode", step="decode", timeout=20, max_kernels=2, kernels={"aten::mm": 1})
    assert profile.kernels.names == ["aten::mm", "aten::add"]
    assert len(profile.steps) == 3
"""
# What runs no child and calls nothing.
FORBIDDEN = DECODE.replace("adopt(child", "adopt(lambda folder: pytest.exit('called')")


@pytest.fixture
def adopt(run_tests):
    """Run a module of tests that adopt what a child process records."""

    def run(source: str, *args: str, in_process: bool = True):
        return run_tests(ADOPTING + source, "--torchprof-report=told.json", *args, in_process=in_process)

    return run


def one_test(body: str, marker: str = "cpu") -> str:
    return f"@{marker}\ndef test_it(torchprof):\n    {body}\n"


def not_measured(result: pytest.RunResult, kind: type[Reason], passed: int = 0, **facts: object) -> None:
    """Hold that the test's one measurement has failed for this reason, and that the terminal says so with its code."""
    result.assert_outcomes(failed=1, passed=passed)
    reasons = reasons_in(Path("told.json"))
    codes = {reason.code for reason in reasons if says(reason, kind, **facts)}
    assert codes, reasons
    screen = " ".join(result.stdout.str().split())
    assert [code for code in codes if not re.search(rf"not measured: .*\[{code}\]", screen)] == []


def not_replayed(result: pytest.RunResult, label: str) -> None:
    """Hold that the test has failed because no recording with this label was kept."""
    result.assert_outcomes(failed=1)
    reasons = reasons_in(Path("told.json"))
    facts = {"test": "test_it.py::test_it", "label": label}
    assert any(says(reason, adopting.NothingToReplay, **facts) for reason in reasons), reasons


# ------------------------------------------------------------------------------------------------ what is judged, and how


def test_what_a_child_process_records_is_judged(adopt):
    adopt(DECODE).assert_outcomes(passed=1)
    result = adopt(DECODE.replace("max_kernels=2", "max_kernels=1"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*decode: *", "*max_kernels=1*2 kernels*", "*recording: .torchprof/*"])


def test_the_whole_recording_is_one_step_without_a_range(adopt):
    source = "profile = torchprof.adopt(child, max_kernels=8)\n    assert [s.name for s in profile.steps] == [None]"
    adopt(one_test(source)).assert_outcomes(passed=1)
    adopt(one_test(source.replace("8", "7"))).assert_outcomes(failed=1)


def test_the_profilers_own_steps_are_the_steps_without_a_range(adopt):
    source = """
STEPS = '''
import sys, torch
from torch.profiler import ProfilerActivity, profile, schedule
x = torch.ones(4, 4)
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=1, active=2, repeat=1)) as profiler:
    for _ in range(3):
        torch.mm(x, x)
        profiler.step()
profiler.export_chrome_trace(sys.argv[1])
'''

@cpu
def test_it(torchprof):
    profile = torchprof.adopt(lambda folder: child(folder, code=STEPS), max_kernels=1)
    assert [step.name for step in profile.steps] == ["ProfilerStep#1", "ProfilerStep#2"]
"""
    adopt(source).assert_outcomes(passed=1)


NESTED = """
NESTED = CHILD.replace("torch.cos(x)", '''
    def inner(depth):
        with record_function("outer"):
            torch.mm(x, x)
            if depth:
                inner(depth - 1)
    inner(2)
    try:
        with record_function("outer"):
            torch.sin(x)
            raise ValueError
    except ValueError:
        pass
''')
"""


def test_ranges_that_are_nested_recursive_or_left_by_an_error_are_one_step_each(adopt):
    body = """profile = torchprof.adopt(lambda folder: child(folder, code=NESTED), step="outer")
    assert [(step.name, step.kernels.names, step.kernels.count) for step in profile.steps] == [
        ("outer#0", ["aten::mm"], 3), ("outer#1", ["aten::sin"], 1)]"""
    adopt(NESTED + one_test(body)).assert_outcomes(passed=1)


def test_a_path_in_place_of_a_function_is_adopted(adopt, pytester):
    source = """
def test_make():
    Path("here").mkdir()
    child(Path("here"))
""" + one_test('torchprof.adopt("here", "a", max_kernels=8)\n    torchprof.adopt(Path("here", "trace.json.gz"), "b")')
    adopt(source, "--torchprof-save=kept").assert_outcomes(passed=2)
    shutil.rmtree(pytester.path / "here")
    adopt(source, "--torchprof-replay=kept", "-k", "not make").assert_outcomes(passed=1, deselected=1)


# ---------------------------------------------------------------------------------------------------- save, replay, read


def test_a_replay_judges_what_was_kept_and_calls_nothing(adopt):
    adopt(DECODE, "--torchprof-save=kept").assert_outcomes(passed=1)
    adopt(FORBIDDEN, "--torchprof-replay=kept").assert_outcomes(passed=1)
    result = adopt(FORBIDDEN.replace("max_kernels=2", "max_kernels=1"), "--torchprof-replay=kept")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*max_kernels=1*2 kernels*"])
    result = adopt(FORBIDDEN.replace('"decode", step', '"prefill", step'), "--torchprof-replay=kept")
    not_replayed(result, "prefill")


def test_a_replay_has_the_range_for_its_step_that_the_test_names_now(adopt):
    adopt(DECODE, "--torchprof-save=kept").assert_outcomes(passed=1)
    whole = FORBIDDEN.replace('step="decode", ', "").replace('max_kernels=2, kernels={"aten::mm": 1}', "max_kernels=8")
    result = adopt(whole, "--torchprof-replay=kept")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*At index 0 diff: 'aten::sin' != 'aten::mm'*"])
    result = adopt(FORBIDDEN.replace('step="decode"', 'step="prefill"'), "--torchprof-replay=kept")
    not_measured(result, NoSuchRange, name="prefill", there=("decode",))


def test_a_kept_recording_has_its_steps_and_all_that_it_said(adopt, pytester):
    adopt(DECODE, "--torchprof-save=kept").assert_outcomes(passed=1)
    (kept,) = (pytester.path / "kept").iterdir()
    recording = json.loads(gzip.decompress(kept.read_bytes()))
    assert {"schemaVersion", "trace_id", "traceEvents"} <= recording.keys()
    assert recording["torchprof"]["adopted"]["nodeid"] == "test_it.py::test_it"
    assert recording["torchprof"].keys() == {"schema", "adopted"}
    profile = load(kept)
    assert [step.name for step in profile.steps] == ["decode#0", "decode#1", "decode#2"]
    assert profile.kernels.count == 2
    assert main(["check", str(kept), "--limit", "max_kernels=2"]) == 0
    assert main(["check", str(kept), "--limit", "max_kernels=1"]) == 1
    assert main(["diff", str(kept), str(kept)]) == 0


def test_numbers_live_and_replayed_are_the_same_in_reports(adopt, pytester):
    adopt(DECODE, "--torchprof-save=kept", "--torchprof-report=live.json").assert_outcomes(passed=1)
    adopt(FORBIDDEN, "--torchprof-replay=kept", "--torchprof-report=again.json").assert_outcomes(passed=1)
    live, again = (json.loads((pytester.path / name).read_text())["results"] for name in ("live.json", "again.json"))
    assert [one["summary"] for one in live] == [one["summary"] for one in again]
    assert (live[0]["label"], live[0]["outcome"]) == ("decode", "passed")


def test_a_recording_of_this_plugins_keeps_what_it_says(adopt, pytester):
    source = """
def test_make():
    Path("test_child.py").write_text("import pytest, torch\\n@pytest.mark.torchprof(device='cpu', steps=2)\\n"
        "def test_sin(): torch.sin(torch.ones(2))")
    assert fresh.run_pytest("test_child.py", "--torchprof-save=made", "-p", "no:cacheprovider").ret == 0
    (made,) = Path("made").iterdir()
    # What a later version says beside.
    made.write_bytes(gzip.compress(gzip.decompress(made.read_bytes()).replace(b'"schema":1,', b'"schema":1,"later":7,')))
""" + one_test('torchprof.adopt("made", max_kernels=2)')
    adopt(source, "--torchprof-save=kept").assert_outcomes(passed=2)
    made, kept = (
        json.loads(gzip.decompress(next((pytester.path / folder).glob("*.gz")).read_bytes()))
        for folder in ("made", "kept")
    )
    assert {**kept["torchprof"]} == {**made["torchprof"], "adopted": kept["torchprof"]["adopted"]}
    assert kept["torchprof"]["later"] == 7
    assert kept["traceEvents"] == made["traceEvents"]
    assert gzip.decompress(next((pytester.path / "kept").glob("*.gz")).read_bytes()).count(b'"torchprof":') == 1
    adopt(source, "test_it.py", "--torchprof-replay=kept", "-k", "not make", "-W", "error").assert_outcomes(
        passed=1, deselected=1
    )


def test_the_oldest_form_of_a_trace_is_kept_too(adopt, pytester):
    source = one_test("torchprof.adopt(listed, max_kernels=8)").replace(
        "@cpu",
        """
def listed(folder):
    child(folder, "a.json")
    (folder / "a.json").write_text(json.dumps(json.loads((folder / "a.json").read_text())["traceEvents"]))
@cpu""",
    )
    adopt(source, "--torchprof-save=kept").assert_outcomes(passed=1)
    adopt(source.replace("child(folder", "pytest.exit('called'"), "--torchprof-replay=kept").assert_outcomes(passed=1)


# ---------------------------------------------------------------------------------------------------------------- baselines


def test_a_baseline_of_an_adopted_recording_is_written_compared_and_asked_for(adopt):
    strict = adopt(DECODE, "--torchprof-baseline=strict")
    strict.assert_outcomes(failed=1)
    (told,) = read_report(Path("told.json"))[0]
    assert (told.outcome, told.baseline_state, told.baseline_fails) == ("failed", "new", True)
    adopt(DECODE, "--torchprof-baseline=update").assert_outcomes(passed=1)
    adopt(DECODE, "--torchprof-baseline=strict").assert_outcomes(passed=1)
    result = adopt(
        'CHILD = CHILD.replace("torch.mm(x, x)", "torch.mm(x, x).exp()")\n'
        + one_test("torchprof.adopt(child, 'decode', step='decode')").replace(
            "(child,", "(lambda f: child(f, code=CHILD),"
        )
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*aten::exp*"])


def test_two_recordings_have_two_labels_two_kept_files_and_two_baselines(adopt, pytester):
    source = """
def both(folder):
    of_rank(folder, "z.json", 4, 8)
    of_rank(folder, "a.json", 5, 8)

@cpu
def test_it(torchprof):
    first, second = sorted(torchprof.adopt(both, "decode", files=2, max_kernels=8), key=lambda one: one.trace.of_test)
    assert (first.trace.of_test[1], second.trace.of_test[1]) == ("decode[4]", "decode[5]")
"""
    result = adopt(source, "--torchprof-save=kept", "--torchprof-baseline=update", "-v")
    result.assert_outcomes(passed=1)
    assert len(list((pytester.path / "kept").iterdir())) == 2
    entries = json.loads(next(pytester.path.glob("__torchprof__/*.json")).read_text())["entries"]
    assert sorted(entries) == ["test_it (decode[4])", "test_it (decode[5])"]
    replayed = source.replace("both,", "lambda folder: pytest.exit('called'),")
    adopt(replayed, "--torchprof-replay=kept").assert_outcomes(passed=1)
    result = adopt(replayed.replace("files=2", 'files="any"'), "--torchprof-replay=kept")
    not_measured(result, adopting.RanksNotAdopted, missing=(0, 1, 2, 3, 6, 7), there=2)
    result = adopt(replayed.replace("files=2", "files=3"), "--torchprof-replay=kept")
    not_measured(result, adopting.OtherNumberAdopted, adopted=2, asked="3")
    next((pytester.path / "kept").glob("*5*")).unlink()
    not_replayed(adopt(replayed.replace("files=2", 'files="any"'), "--torchprof-replay=kept"), "decode[5]")


def test_of_several_recordings_each_is_judged(adopt):
    source = """
def both(folder):
    child(folder, "b.json")
    child(folder, "a/b.json", CHILD.replace("torch.cos(x)", "torch.cos(x), torch.cos(x)"))
def make(folder):
    (folder / "a").mkdir()
    both(folder)
""" + one_test('torchprof.adopt(make, files="any", max_kernels=8)')
    result = adopt(source)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*[[]0]: *", "*max_kernels=8*9 kernels*"])


# ------------------------------------------------------------------------------------------------- what is not measured


@pytest.mark.parametrize(
    ("body", "kind", "facts"),
    [
        (
            "torchprof.adopt(lambda f: None, timeout=0.1)",
            adopting.NoRecordingLeft,
            {"after_s": 0.1, "others": ()},
        ),
        (
            "torchprof.adopt(lambda f: (f / 'config.json').write_text('{\"a\": 1}'), timeout=0.1)",
            adopting.NoRecordingLeft,
            {"others": ("config.json",)},
        ),
        ("torchprof.adopt('nowhere')", adopting.NoRecordingLeft, {"after_s": None}),
        (
            "torchprof.adopt(child, files=2, timeout=0.1)",
            adopting.TooFewRecordings,
            {"wanted": "2", "after_s": 0.1, "files": ("trace.json.gz",)},
        ),
        (
            "torchprof.adopt(lambda f: (child(f), child(f, 'b.json')))",
            adopting.TooManyRecordings,
            {"found": 2, "wanted": 1, "files": ("b.json", "trace.json.gz")},
        ),
        (
            "torchprof.adopt(child, step='decoded')",
            NoSuchRange,
            {"name": "decoded", "near": "decode"},
        ),
        (
            "torchprof.adopt(lambda f: (f / 'a.pftrace').write_bytes(b'\\n\\x02\\x50\\x01'))",
            adopting.PerfettoFile,
            {"file": "a.pftrace"},
        ),
        (
            "torchprof.adopt(lambda f: (f / 'a.json').write_bytes(b'\\n\\x02\\x50\\x01'))",
            UnreadableFile,
            {"cause": InPerfettosFormat()},
        ),
        (
            "torchprof.adopt(lambda f: (child(f), shutil.copy(f / 'trace.json.gz', f / 'b.json.gz')), files=2)",
            adopting.RecordingTwice,
            {"files": ("b.json.gz", "trace.json.gz")},
        ),
        (
            "torchprof.adopt(lambda f: (of_rank(f, 'a.json', 0, 2), of_rank(f, 'b.json', 0, 2)), files=2)",
            adopting.RankTwice,
            {"files": ("a.json", "b.json"), "rank": 0},
        ),
        (
            "torchprof.adopt(lambda f: (of_rank(f, 'a.json', 0, 2), of_rank(f, 'b.json', 1, 4)), files='any')",
            adopting.DifferentJobSizes,
            {"sizes": (("a.json", 2), ("b.json", 4))},
        ),
        (
            "torchprof.adopt(lambda f: (of_rank(f, 'a.json', 0, 2), child(f, 'b.json')), files='any')",
            adopting.OneTellsNoRank,
            {"silent": "b.json", "other": "a.json"},
        ),
    ],
)
def test_what_is_not_there_or_not_right_is_not_measured(adopt, body, kind, facts):
    not_measured(adopt(one_test(body)), kind, **facts)


CUT = """
def cut(folder, name="trace.json.gz", left=-100):
    child(folder, "whole" + name)
    whole = (folder / ("whole" + name)).read_bytes()
    (folder / ("whole" + name)).unlink()
    (folder / name).write_bytes(whole[:left])
    return whole
"""


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
@pytest.mark.parametrize("left", [-100, 700, 0])
def test_a_recording_that_stays_incomplete_is_not_measured(adopt, name, left):
    body = f"torchprof.adopt(lambda f: cut(f, {name!r}, {left}), timeout=0.2)"
    not_measured(adopt(CUT + one_test(body)), adopting.StillIncomplete, file=name, after_s=0.2)


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_recording_that_is_still_being_written_is_waited_for(adopt, name):
    source = (
        CUT
        + f"""
def slowly(folder):
    whole = cut(folder, {name!r}, 1000)
    def go_on():
        for at in range(1000, len(whole), len(whole) // 5):
            time.sleep(0.1)
            with (folder / {name!r}).open("ab") as file:
                file.write(whole[at:at + len(whole) // 5])
    threading.Thread(target=go_on).start()
"""
    )
    adopt(source + one_test("torchprof.adopt(slowly, max_kernels=8)")).assert_outcomes(passed=1)


def test_a_recording_that_gets_its_name_at_last_is_waited_for(adopt):
    source = """
def renamed(folder):
    child(folder, "one.json")
    child(folder, "part.json")
    (folder / "part.json").rename(folder / "two.json.tmp")
    def rename():
        time.sleep(0.4)
        (folder / "two.json.tmp").rename(folder / "two.json")
    threading.Thread(target=rename).start()
"""
    adopt(source + one_test("assert len(torchprof.adopt(renamed, files='any')) == 2")).assert_outcomes(passed=1)
    left = source.replace("threading.Thread(target=rename).start()", "pass")
    not_measured(
        adopt(left + one_test("torchprof.adopt(renamed, files='any', timeout=0.2)")),
        adopting.StillUnnamed,
        file="two.json.tmp",
        after_s=0.2,
    )


@pytest.mark.parametrize(
    ("copied", "kind"),
    [("copy2", adopting.WrittenBefore), ("copy", adopting.CopiedRecording)],
)
def test_an_older_recording_is_not_measured(adopt, copied, kind):
    source = f"""
def test_first():
    child(Path.cwd(), "old.json")
    trace = json.loads(Path("old.json").read_text())
    trace["baseTimeNanoseconds"] -= 2 * 10**9
    Path("old.json").write_text(json.dumps(trace))
    os.utime("old.json", (time.time() - 5, time.time() - 5))

@cpu
def test_it(torchprof):
    torchprof.adopt(lambda folder: shutil.{copied}("old.json", folder))
"""
    result = adopt(source)
    not_measured(result, kind, passed=1, file="old.json")


def test_a_recording_that_says_that_it_lost_records_is_not_measured(adopt):
    source = """
def losing(folder):
    child(folder, "a.json")
    trace = json.loads((folder / "a.json").read_text())
    trace["WARNING"] = ["WARNING:2026-01-01 CuptiActivityApi.cpp:1] Dropped 17 activity records"]
    (folder / "a.json").write_text(json.dumps(trace))
"""
    result = adopt(source + one_test("torchprof.adopt(losing)"))
    not_measured(result, LossNoted, note="Dropped 17 activity records")


def test_an_xfail_hides_no_recording_that_is_missing(adopt):
    result = adopt("@pytest.mark.xfail\n" + one_test("torchprof.adopt(lambda f: None, timeout=0)"))
    result.assert_outcomes(failed=1)


# ------------------------------------------------------------------------------------------------------- devices


GPU = "pytest.mark.torchprof"


@pytest.fixture
def shared(adopt, shared_trace):
    """Run a test that adopts shared recordings, by path: they are older than any call."""

    def run(body: str, name: str, *args: str, marker: str = GPU):
        return adopt(one_test(body.replace("PATH", repr(str(shared_trace(name)))), marker), *args)

    return run


def test_a_recording_of_a_gpu_is_judged_without_one(shared):
    shared("torchprof.adopt(PATH, max_kernels=60, max_launches=60)", "h100_bert_small").assert_outcomes(passed=1)
    result = shared("torchprof.adopt(PATH, max_kernels=59)", "h100_bert_small")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*max_kernels=59*60 kernels*"])


def test_a_recording_of_a_gpu_is_none_of_the_cpu(shared):
    result = shared("torchprof.adopt(PATH)", "h100_bert_small", marker="cpu")
    not_measured(result, adopting.GpuWorkForCpu)


@pytest.mark.parametrize(
    ("name", "step", "kernels"),
    [
        ("mi300x_sglang_decode_device9", "step[DECODE bs=32]", 550),
        ("mi300x_vllm_decode_graph", None, 425),
        ("b200_eager_nvjet", "execute_context_1(888_788544)_generation_0(0)", None),
    ],
)
def test_recordings_of_serving_engines_are_adopted_and_replayed(shared, name, step, kernels):
    body = f"profile = torchprof.adopt(PATH, step={step!r}); assert {kernels} in (None, profile.kernels.count)"
    shared(body, name, "--torchprof-save=kept", "--torchprof-baseline=update").assert_outcomes(passed=1)
    shared(body, name, "--torchprof-replay=kept", "--torchprof-baseline=strict").assert_outcomes(passed=1)


def test_two_ranks_of_a_trainer_are_adopted_as_one_job(adopt, shared_trace):
    paths = [str(shared_trace(f"a100_megatron_tp8_rank{rank}")) for rank in (1, 0)]
    source = f"""
Path("ranks").mkdir(exist_ok=True)
for number, path in enumerate({paths!r}):
    shutil.copy(path, f"ranks/{{number}}.json.gz")

@pytest.mark.torchprof
def test_it(torchprof):
    profiles = torchprof.adopt("ranks", "train", files=2, min_kernels=100)
    assert [one.trace.of_test[1] for one in profiles] == ["train[1]", "train[0]"]
    assert [one.ranks.straggler for one in profiles] == [0, 0]
    assert len(profiles[0].ranks.collectives) == 84
"""
    adopt(source).assert_outcomes(passed=1)


def test_the_baseline_of_a_gpu_without_a_name_is_not_that_of_the_cpu(shared, pytester):
    shared("torchprof.adopt(PATH)", "mi300x_vllm_decode_graph", "--torchprof-baseline=update").assert_outcomes(passed=1)
    assert [path.name for path in pytester.path.glob("__torchprof__/*.json")] == ["test_it.unnamed-gpu.json"]


def test_lost_launches_make_an_adopted_recording_not_measured(shared):
    not_measured(shared("torchprof.adopt(PATH)", "a100_launches_without_kernels"), NoGpuOperations, launches=260)


def test_without_any_gpu_a_recording_of_the_cpu_is_not_judged(adopt):
    result = adopt(one_test("torchprof.adopt(child, max_kernels=1)", GPU), "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"*body passed; {NotJudgedOnCpu(('max_kernels',))}*"])


@pytest.mark.parametrize(
    ("marker", "seen", "sign", "asked"),
    [
        (GPU, [{"id": 0, "name": "NVIDIA H100"}], adopting.SignOfGpu.IN_RECORDING, None),
        (f"{GPU}(device='cuda')", [], adopting.SignOfGpu.ASKED, "cuda"),
    ],
)
def test_a_recording_without_work_of_the_gpu_that_there_was_is_not_measured(adopt, marker, seen, sign, asked):
    source = f"""
def blind(folder):
    child(folder, "a.json")
    trace = json.loads((folder / "a.json").read_text())
    trace["deviceProperties"] = {seen!r}
    (folder / "a.json").write_text(json.dumps(trace))
"""
    result = adopt(source + one_test("torchprof.adopt(blind, max_kernels=100)", marker))
    not_measured(result, adopting.NothingOfGpu, sign=sign, asked=asked)
    assert "ProfilerActivity.CUDA" in result.stdout.str()


def test_a_recording_that_was_kept_of_the_cpu_is_judged_so_under_any_marker(adopt):
    source = one_test("torchprof.adopt(child, max_kernels=8)")
    adopt(source, "--torchprof-save=kept").assert_outcomes(passed=1)
    adopt(source.replace("@cpu", f"@{GPU}"), "--torchprof-replay=kept").assert_outcomes(passed=1)
    adopt(source.replace("@cpu", f"@{GPU}(device='cuda')"), "--torchprof-replay=kept").assert_outcomes(failed=1)


# --------------------------------------------------------------------------------------------------- use and misuse


CALL = "torchprof.adopt()"


@pytest.mark.parametrize(
    ("arguments", "kind", "facts"),
    [
        ("3", CallWithout, {"call": CALL, "takes": Takes.PRODUCER, "got": "3"}),
        ("written_later", ProducerRunsNothing, {}),
        ("child, ''", WrongArgument, {"argument": "label", "expected": ValueForm.TEXT, "got": "''"}),
        ("child, step=3", WrongArgument, {"argument": "step", "expected": ValueForm.TEXT, "got": "3"}),
        ("child, files=0", WrongArgument, {"argument": "files", "expected": ValueForm.FILES, "got": "0"}),
        ("child, files='all'", WrongArgument, {"argument": "files", "expected": ValueForm.FILES, "got": "'all'"}),
        ("child, timeout=-1", WrongArgument, {"argument": "timeout", "expected": ValueForm.SECONDS, "got": "-1"}),
        ("child, max_kernel=1", NoSuchLimit, {"name": "max_kernel", "near": "max_kernels"}),
        ("child, device='cpu'", OptionOfMarker, {"name": "device"}),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_called(adopt, arguments, kind, facts):
    producers = "def child(folder): pytest.exit('called')\nasync def written_later(folder): pytest.exit('called')\n"
    result = adopt(producers + one_test(f"torchprof.adopt({arguments})"))
    result.assert_outcomes(failed=1)
    assert any(says(why, kind, **facts) for why in reasons_in(Path("told.json")))


def test_another_process_has_no_samples_of_times(adopt):
    source = one_test("torchprof.adopt(child)").replace("@cpu", f"@{GPU}(device='cpu', tolerance={{'time': 0.1}})")
    result = adopt(source)
    result.assert_outcomes(failed=1)
    assert {type(reason) for reason in reasons_in(Path("told.json"))} == {AdoptedWithoutTimes}


def test_an_error_of_what_produces_it_is_the_tests_own(adopt):
    result = adopt(one_test("torchprof.adopt(lambda folder: folder / 1)"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E*TypeError: *", "*error*"])


def test_off_calls_it_once_and_judges_nothing(adopt):
    source = """
calls = []
@cpu
def test_it(torchprof):
    torchprof.adopt(lambda folder: calls.append(folder.is_dir()), "a", files=2, max_kernels=0)
    torchprof.adopt("nowhere", "b", max_kernels=0)

def test_calls():
    assert calls == [True]

@cpu
def test_look(torchprof):
    torchprof.adopt("nowhere").kernels
"""
    adopt(source, "--torchprof=off").assert_outcomes(passed=2, skipped=1)


def test_nothing_else_is_measured_meanwhile(adopt):
    result = adopt(one_test("torchprof.adopt(lambda folder: torchprof(torch.sin, x), 'outer')"))
    result.assert_outcomes(failed=1)
    inside = MeasuresInside("test_it.py::test_it", of_body=False)
    assert str(inside) in " ".join(result.stdout.str().split())


@pytest.mark.parametrize(
    ("make", "said", "by_its_path"),
    [
        ("os.mkfifo(folder / 'x.json')", "a pipe", adopting.NoFileThere),
        ("os.symlink('x.json', folder / 'x.json')", "a link", adopting.NoRecordingLeft),
    ],
)
def test_what_never_becomes_a_file_is_refused_at_once(adopt, tmp_path, make, said, by_its_path):
    produced = one_test(f"torchprof.adopt(lambda folder: {make}, timeout=30)")
    result = adopt(produced)
    not_measured(result, adopting.NoFileThere, file="x.json")
    result.stdout.fnmatch_lines([f"*{said}*"])
    found = one_test(f"folder = Path({str(tmp_path)!r})\n    {make}\n    torchprof.adopt(folder, timeout=30)")
    not_measured(adopt(found), adopting.NoFileThere, file="x.json")
    named = one_test(f"torchprof.adopt({str(tmp_path / 'x.json')!r}, timeout=30)")
    not_measured(adopt(named), by_its_path)


SWALLOWED = """
def both(folder):
    child(folder)
    try:
        torchprof.adopt(child, "inner", step="decode", max_kernels=0)
    except Exception:
        pass
"""


def test_what_was_refused_is_not_measured_although_nobody_heard_of_it(adopt):
    body = SWALLOWED.replace("\n", "\n    ") + "\n    torchprof.adopt(both, 'outer', step='decode', max_kernels=2)"
    result = adopt(one_test(body))
    result.assert_outcomes(failed=1)
    not_measured(result, MeasuresInside, test="test_it.py::test_it")
    result.stdout.fnmatch_lines(["*inner: not measured: *"])


def test_of_two_that_are_adopted_on_threads_at_once_the_one_that_was_refused_is_not_measured(adopt):
    body = """def adopt(produce, label):
        with contextlib.suppress(Exception):
            torchprof.adopt(produce, label, step="decode", max_kernels=2)
    def meanwhile(folder):
        second.start()
        second.join()
        child(folder)
    second = threading.Thread(target=adopt, args=(child, "second"))
    first = threading.Thread(target=adopt, args=(meanwhile, "first"))
    first.start()
    first.join()"""
    result = adopt(one_test(body))
    result.assert_outcomes(failed=1)
    not_measured(result, MeasuresInside, test="test_it.py::test_it")
    result.stdout.fnmatch_lines(["*second: not measured: *"])


def test_labels_are_used_once(adopt):
    result = adopt(one_test("for _ in range(2): torchprof.adopt(child, 'same')"))
    result.assert_outcomes(failed=1)
    assert str(LabelTwice("same", "test_it.py::test_it")) in " ".join(result.stdout.str().split())


def test_the_example_of_the_page_runs(run_tests):
    page = (Path(__file__).parents[1] / "docs" / "adopt.md").read_text()
    example = page.partition("```python\n")[2].partition("```")[0]
    # As code of ours is started, which a fork can be.
    by_fork = example.replace('sys.executable, "-c"', 'sys.executable, "-P", "-c"')
    assert by_fork != example
    run_tests(by_fork).assert_outcomes(passed=1)


def test_there_is_no_result(adopt):
    adopt(one_test("with pytest.raises(NotMeasured): torchprof.adopt(child).result")).assert_outcomes(passed=1)


def test_a_limit_asked_for_afterwards_is_judged_and_nothing_is_called_again(adopt):
    source = """
calls = []
@cpu
def test_it(torchprof):
    profile = torchprof.adopt(lambda folder: (calls.append(1), child(folder)))
    with pytest.raises(pytest_torchprof.LimitsMissed):
        profile.expect(max_kernels=1)
    assert calls == [1]
"""
    adopt(source).assert_outcomes(passed=1)


def test_workers_of_xdist_and_reruns_adopt_too(adopt, pytester):
    source = """
tried = []
@cpu
@pytest.mark.flaky(reruns=1)
def test_it(torchprof):
    tried.append(1)
    torchprof.adopt(child, "decode", step="decode", max_kernels=len(tried))

@cpu
def test_other(torchprof):
    torchprof.adopt(child, max_kernels=8)
"""
    adopt(source, "-n", "2", "--torchprof-save=kept", in_process=False).assert_outcomes(passed=2)
    assert len(list((pytester.path / "kept").iterdir())) == 2
