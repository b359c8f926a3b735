"""Other profilers around, inside and beside the measured code; each in a process of its own, since torch may crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import fresh
import pytest
import torch

from pytest_torchprof.reasons.capturing import (
    ProfilerEnded,
    ProfilerInside,
    ProfilerOnOtherThread,
    ProfilerRuns,
    ThreadOfProfiler,
)

ON_THIS_THREAD = ProfilerRuns(ThreadOfProfiler.THIS).sentence

ROOT = Path(__file__).parents[1]

PROGRAM = """
import contextlib, json, sys, threading, time
from pathlib import Path
import torch
import torch.autograd.profiler as autograd_profiler
from torch.profiler import ProfilerActivity, profile, record_function
from pytest_torchprof import capture
from pytest_torchprof.reasons.errors import NotMeasured

path = Path(sys.argv[1])
calls = 0

def measure(body, warmup=1, steps=3, check=lambda path: None):
    global calls
    calls = 0
    plan = capture.Plan(
        device="cpu", warmup=warmup, steps=steps, record=frozenset(), nodeid="t.py::t", label=None
    )
    with contextlib.closing(capture.iterations(plan, path, check)) as iterations:
        for _ in iterations:
            calls += 1
            body()

def result(body, **options):
    path.unlink(missing_ok=True)
    try:
        measure(body, **options)
        why = None
    except NotMeasured as reason:
        why = str(reason)
    return {"why": why, "calls": calls, "files": [entry.name for entry in path.parent.iterdir()]}

def cpu_profile():
    return profile(activities=[ProfilerActivity.CPU])

def add():
    return torch.ones(3) + 1

def events(profiler):
    return [event.name() for event in profiler.profiler.kineto_results.events()]
"""


def run(tmp_path, scenario, *, warnings="error"):
    """Run the scenario, which calls `say(value)` once; a process that crashes or prints a traceback fails the test."""
    folder = tmp_path / "recordings"
    folder.mkdir()
    program = f"import warnings; warnings.simplefilter({warnings!r})\n{PROGRAM}\ndef say(value): print('RESULT ' + json.dumps(value))\n{dedent(scenario)}"
    done = fresh.run_code(program, str(folder / "t.json"))
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    said = [line.removeprefix("RESULT ") for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert len(said) == 1, done.stdout
    return json.loads(said[0])


NOTHING_KEPT = {"files": []}
HOLDS_AGAIN = {"why": None, "calls": 4, "files": ["t.json"]}


def test_a_profiler_inside_the_measured_code_is_not_measured_and_works_for_its_owner(tmp_path):
    said = run(
        tmp_path,
        """
        theirs = []
        def body():
            global line
            line = sys._getframe().f_lineno + 1
            with cpu_profile() as profiler:
                add()
            theirs.append(events(profiler))
        first = result(body)
        say([first, theirs, result(add), line])
        """,
    )
    assert said[0]["why"] == str(ProfilerInside(f"<string>:{said[3]}", left_running=False))
    assert said[0]["calls"] == 1 + 3 * 3
    assert said[0]["files"] == []
    assert all("aten::add" in names for names in said[1])
    assert said[2] == HOLDS_AGAIN


def test_a_profiler_inside_one_step_only_is_measured_again(tmp_path):
    said = run(
        tmp_path,
        """
        def body():
            if calls == 3:
                with cpu_profile():
                    add()
            add()
        first = result(body)
        recording = json.loads(path.read_text())
        steps = [event["name"] for event in recording["traceEvents"] if event["name"].startswith("ProfilerStep")]
        say([first, recording["torchprof"]["attempts"], recording["torchprof"]["problems"], steps])
        """,
    )
    assert said == [
        {"why": None, "calls": 1 + 3 + 3, "files": ["t.json"]},
        2,
        [],
        ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"],
    ]


def test_a_profiler_that_is_left_running_is_named_and_stays_whole_for_its_owner(tmp_path):
    said = run(
        tmp_path,
        """
        theirs = []
        def body():
            if calls == 2:
                theirs.append(cpu_profile())
                theirs[0].start()
            add()
        first = result(body)
        second = result(add)
        theirs[0].stop()
        say([first, second, events(theirs[0]).count("aten::add"), result(add)])
        """,
    )
    assert said[0]["why"].startswith(ProfilerInside("<string>", left_running=True).sentence.removesuffix(")"))
    assert said[0]["calls"] == 1 + 3
    assert said[0]["files"] == []
    assert ON_THIS_THREAD in said[1]["why"]
    assert said[1]["calls"] == 0
    assert said[2] == 3
    assert said[3] == HOLDS_AGAIN


def test_a_profiler_that_spans_two_steps_is_not_measured(tmp_path):
    said = run(
        tmp_path,
        """
        theirs = cpu_profile()
        def body():
            if calls == 2:
                theirs.start()
            add()
            if calls == 3:
                theirs.stop()
        first = result(body, steps=3)
        say([first, events(theirs).count("aten::add")])
        """,
    )
    assert said[0]["why"] is None
    assert said[0]["calls"] == 1 + 3 + 3
    assert said[1] == 2


def test_a_profiler_on_another_thread_is_measured_again_and_the_process_lives(tmp_path):
    said = run(
        tmp_path,
        """
        def profiled():
            with cpu_profile():
                add()
        def body():
            if calls == 2:
                thread = threading.Thread(target=profiled)
                thread.start()
                thread.join()
            add()
        first = result(body)
        say([first, result(add)])
        """,
    )
    assert said == [{"why": None, "calls": 1 + 3 + 3, "files": ["t.json"]}, HOLDS_AGAIN]


def test_a_profiler_on_another_thread_in_every_step_is_named(tmp_path):
    said = run(
        tmp_path,
        """
        def profiled():
            global line
            line = sys._getframe().f_lineno + 1
            with cpu_profile():
                add()
        def body():
            thread = threading.Thread(target=profiled)
            thread.start()
            thread.join()
        first = result(body)
        say([first, result(add), line])
        """,
    )
    assert said[0]["why"] == str(ProfilerOnOtherThread(f"<string>:{said[2]}"))
    assert said[0]["calls"] == 1 + 3 * 3
    assert said[1] == HOLDS_AGAIN


def test_profilers_here_and_on_another_thread_in_one_measurement_leave_the_process_fit_for_the_next(tmp_path):
    said = run(
        tmp_path,
        """
        def profiled():
            with cpu_profile():
                add()
        def body():
            if calls == 2:
                profiled()
            if calls == 3:
                thread = threading.Thread(target=profiled)
                thread.start()
                thread.join()
            add()
        first = result(body)
        say([first, result(add), result(add)])
        """,
    )
    assert said == [{"why": None, "calls": 1 + 3 + 3, "files": ["t.json"]}, HOLDS_AGAIN, HOLDS_AGAIN]


def test_a_profiler_that_runs_on_on_another_thread_is_waited_for_by_later_measurements(tmp_path):
    said = run(
        tmp_path,
        """
        started, done = threading.Event(), threading.Event()
        def profiled():
            with cpu_profile():
                started.set()
                done.wait()
        thread = threading.Thread(target=profiled)
        def body():
            if calls == 2:
                thread.start()
                started.wait()
            add()
        first = result(body)
        second = result(add)
        done.set()
        thread.join()
        say([first, second, result(add)])
        """,
    )
    assert said[0]["why"].startswith(ProfilerOnOtherThread("<string>").sentence.removesuffix(")"))
    assert said[0]["calls"] == 1 + 3
    assert "[another-profiler]" in said[1]["why"]
    assert said[2] == HOLDS_AGAIN


@pytest.mark.parametrize(
    "outer",
    [
        "cpu_profile()",
        "autograd_profiler.profile()",
        "__import__('torch.autograd.profiler_legacy', fromlist=['x']).profile()",
    ],
    ids=["torch.profiler", "torch.autograd.profiler", "legacy"],
)
def test_a_profiler_around_the_test_is_named_and_loses_nothing(tmp_path, outer):
    said = run(
        tmp_path,
        f"""
        with {outer} as theirs:
            add()
            first = result(add)
            add()
        names = [event.name for event in (theirs.events() if callable(getattr(theirs, "events", None)) else theirs.function_events)]
        say([first, names.count("aten::add"), result(add)])
        """,
        warnings="default",
    )
    assert ON_THIS_THREAD in said[0]["why"]
    assert said[0]["calls"] == 0
    assert said[1] == 2
    assert said[2] == HOLDS_AGAIN


def test_a_profiler_on_another_thread_from_before_is_named_and_loses_nothing(tmp_path):
    said = run(
        tmp_path,
        """
        started, done, theirs = threading.Event(), threading.Event(), []
        def profiled():
            with cpu_profile() as profiler:
                add()
                started.set()
                done.wait()
            theirs.append(events(profiler))
        thread = threading.Thread(target=profiled)
        thread.start()
        started.wait()
        first = result(add)
        done.set()
        thread.join()
        say([first, theirs[0].count("aten::add"), result(add)])
        """,
    )
    assert ProfilerRuns(ThreadOfProfiler.OTHER).sentence in said[0]["why"]
    assert said[0]["calls"] == 0
    assert said[1] == 1
    assert said[2] == HOLDS_AGAIN


def test_a_profiler_opened_during_warmup_and_left_running_is_named(tmp_path):
    said = run(
        tmp_path,
        """
        theirs = cpu_profile()
        def body():
            if calls == 1:
                theirs.start()
            add()
        first = result(body)
        theirs.stop()
        say([first, events(theirs).count("aten::add")])
        """,
    )
    assert ON_THIS_THREAD in said[0]["why"]
    assert said[0]["calls"] == 1
    assert said[1] == 1


def test_a_profiler_opened_and_closed_during_warmup_disturbs_nothing(tmp_path):
    said = run(
        tmp_path,
        """
        def body():
            if calls == 1:
                with cpu_profile():
                    add()
            add()
        say(result(body))
        """,
    )
    assert said == HOLDS_AGAIN


def test_an_exception_inside_a_nested_profiler_leaves_the_process_fit_for_the_next_measurement(tmp_path):
    said = run(
        tmp_path,
        """
        def body():
            if calls == 3:
                with cpu_profile():
                    add()
                    raise ValueError("out of luck")
        try:
            result(body)
        except ValueError as error:
            first = str(error)
        say([first, [entry.name for entry in path.parent.iterdir()], result(add)])
        """,
    )
    assert said == ["out of luck", [], HOLDS_AGAIN]


def test_a_profiler_that_torch_itself_refuses_does_no_harm(tmp_path):
    said = run(
        tmp_path,
        """
        from torch.autograd.profiler_legacy import profile as legacy
        refused = []
        def body():
            try:
                with legacy():
                    add()
            except RuntimeError as error:
                refused.append(str(error))
                add()
        say([result(body), len(refused)])
        """,
        warnings="default",
    )
    assert said == [HOLDS_AGAIN, 3]


def test_a_session_ended_behind_our_back_is_not_measured(tmp_path):
    said = run(
        tmp_path,
        """
        def body():
            if torch._C._autograd._profiler_enabled():
                torch._C._autograd._disable_profiler()
        say(result(body))
        """,
    )
    assert said == {
        "why": str(ProfilerEnded()),
        "calls": 1 + 3 * 3,
        "files": [],
    }


def test_measuring_raises_no_warning_and_hides_none_of_the_users(tmp_path):
    said = run(
        tmp_path,
        """
        import warnings
        def body():
            warnings.warn("mine")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            measured = result(body)
        say([measured, [str(warning.message) for warning in caught]])
        """,
    )
    assert said == [HOLDS_AGAIN, ["mine"] * 4]


def test_importing_capture_does_not_import_torch():
    program = "import sys, pytest_torchprof.capture; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_torch_still_takes_the_events_of_an_outer_profiler():
    """What the guards are for: if torch ever keeps the outer profiler's events, they can go."""
    program = f"""{PROGRAM}
with cpu_profile() as outer:
    with cpu_profile():
        add()
sys.exit(len(events(outer)))
"""
    done = fresh.run_code(program, "t.json")
    if torch.__version__ < (2, 13):
        pytest.skip(f"known of torch 2.13 to 2.15; here is {torch.__version__}")
    assert done.returncode == 0
