"""What was measured as nothing, or cannot be known, never passes: with or without limits, in every baseline mode."""

from __future__ import annotations

import pytest
from builder import TraceBuilder, own_recording
from facts import says

from pytest_torchprof import load
from pytest_torchprof.cli import main
from pytest_torchprof.limits import check_limits, read_limits
from pytest_torchprof.reasons.lost_work import LostLaunches
from pytest_torchprof.report.account import NotJudgedOnCpu

NOTHING, THREAD = "[[]nothing-ran]", "[[]other-thread]"
ON_A_THREAD = """
import threading
def on_a_thread():
    thread = threading.Thread(target=x.cos)
    thread.start()
    thread.join()
"""
COMPILED_BESIDE_A_THREAD = (
    ON_A_THREAD
    + """
f = torch.compile(lambda a: a.sin(), backend="eager")

@pytest.mark.torchprof(device="cpu", max_graph_breaks=0)
def test_it():
    f(x)
    on_a_thread()
"""
)
BODIES = {
    "an empty body": ("", NOTHING),
    "a body that returns early": ("if x.shape == (8, 8): return", NOTHING),
    "views alone": ("x.t()[0]", NOTHING),
    "work on another thread": ("on_a_thread()", THREAD),
    "work on another thread beside its own": ("x.sin(); on_a_thread()", THREAD),
}
MODES = ["compare", "add", "update", "strict", "off"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("body", BODIES)
def test_a_marked_test_without_a_limit_is_not_measured_where_nothing_was(run_tests, pytester, body, mode):
    code, reason = BODIES[body]
    source = f"{ON_A_THREAD}\n@cpu\ndef test_it():\n    {code or 'pass'}\n"
    result = run_tests(source, f"--torchprof-baseline={mode}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not measured*", f"*{reason}*"])
    assert not list(pytester.path.glob("__torchprof__/*.json"))


FIXTURES = {
    "a function that does nothing": "torchprof(lambda: None)",
    "a function that returns a generator": "torchprof(lambda: (x.sin() for _ in range(3)))",
    "a thread": "torchprof(on_a_thread)",
    "a block that does nothing": """
    with torchprof.measure("one") as m:
        for _ in m.steps(): pass
""",
    "a block beside one that works": """
    torchprof(x.sin)
    with torchprof.measure("two") as m:
        for _ in m.steps(): pass
""",
}


@pytest.mark.parametrize("mode", ["compare", "update", "strict"])
@pytest.mark.parametrize("code", FIXTURES)
def test_a_fixture_that_measures_nothing_is_not_measured(run_tests, code, mode):
    source = f"{ON_A_THREAD}\n@cpu\ndef test_it(torchprof):\n    {FIXTURES[code].strip()}\n"
    result = run_tests(source, f"--torchprof-baseline={mode}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not measured*"])


def test_neither_does_one_of_an_asynchronous_test_nor_of_another_fixture(run_tests):
    result = run_tests(
        """
@pytest.fixture
def profile(torchprof):
    return torchprof(lambda: None)

@cpu
def test_of_a_fixture(profile): pass

@cpu
class TestAsync:
    def test_it(self, torchprof):
        import asyncio
        async def measured():
            with torchprof.measure("one") as m:
                for _ in m.steps():
                    await asyncio.sleep(0)
        asyncio.run(measured())

def test_without_a_mark(torchprof):
    torchprof(lambda: None)
""",
        "--torchprof-device=cpu",
    )
    result.assert_outcomes(failed=3)


def test_an_expected_failure_hides_none_of_it(run_tests):
    result = run_tests("@cpu\n@pytest.mark.xfail\ndef test_it(): pass")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*min_kernels=0 {NOTHING}*"])


def test_nothing_is_meant_where_the_test_says_so(run_tests):
    result = run_tests("""
@pytest.mark.torchprof(device="cpu", min_kernels=0)
def test_it(): x.t()

@pytest.mark.torchprof(device="cpu")
def test_fixture(torchprof):
    with torchprof.measure("one", min_kernels=0) as m:
        for _ in m.steps(): pass
""")
    result.assert_outcomes(passed=2)


def test_a_test_that_measured_something_passes_without_a_limit(run_tests):
    result = run_tests("""
@cpu
def test_it(): x.sin()

@cpu
def test_fixture(torchprof): torchprof(x.sin)
""")
    result.assert_outcomes(passed=2)


def test_what_the_compiler_did_is_measured_without_kernels(run_tests):
    """A limit on what the compiler did asks for no kernel, so that a thread beside it hides nothing from it."""
    result = run_tests(COMPILED_BESIDE_A_THREAD)
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("mode", ["update", "strict"])
def test_a_baseline_that_cannot_be_had_is_not_measured_beside_a_limit_that_holds(run_tests, mode):
    result = run_tests(
        COMPILED_BESIDE_A_THREAD,
        f"--torchprof-baseline={mode}",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*baseline*", f"*{THREAD}*"])


def test_off_is_off(run_tests):
    run_tests("@cpu\ndef test_it(): pass", "--torchprof=off").assert_outcomes(passed=1)


def test_a_replay_of_nothing_is_not_measured(run_tests, pytester):
    source = "@pytest.mark.torchprof(device='cpu'{})\ndef test_it(): x.t()"
    run_tests(source.format(", min_kernels=0"), "--torchprof-save=kept").assert_outcomes(passed=1)
    result = run_tests(source.format(""), "--torchprof-replay=kept")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{NOTHING}*"])


def test_workers_report_it_too(run_tests):
    pytest.importorskip("xdist")
    result = run_tests("@cpu\ndef test_it(): pass", "-n1", in_process=False)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{NOTHING}*"])


def test_without_a_gpu_a_test_that_does_nothing_is_skipped(run_tests):
    """What it does on a GPU cannot be told here, where its body may return early for want of one."""
    result = run_tests("@pytest.mark.torchprof\ndef test_it():\n    if not torch.cuda.is_available(): return", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"*{NotJudgedOnCpu(('',))}*"])


# ---------------------------------------------------------------------------------------------------- ends of a test


XFAILS = {
    "in the body": """
@cpu
def test_it(torchprof):
    with torchprof.measure("one") as m:
        for _ in m.steps(): pass
    pytest.xfail("later")
""",
    "where the measurement raised": """
@cpu
def test_it(torchprof):
    try:
        with torchprof.measure("one") as m:
            for _ in m.steps(): break
    except Exception: pass
    pytest.xfail("later")
""",
    "in a unittest": """
import unittest

class TestIt(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def use(self, torchprof): self.torchprof = torchprof

    @cpu
    def test_it(self):
        self.torchprof(lambda: None)
        pytest.xfail("later")
""",
}


@pytest.mark.parametrize("source", XFAILS)
def test_an_xfail_that_is_called_hides_nothing_that_was_not_measured(run_tests, source):
    result = run_tests(XFAILS[source])
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not measured*"])


def test_an_xfail_that_is_called_hides_a_missed_limit(run_tests):
    result = run_tests("""
@pytest.mark.torchprof(device="cpu", max_kernels=0)
def test_it(torchprof):
    torchprof(x.sin)
    pytest.xfail("later")
""")
    result.assert_outcomes(xfailed=1)


# ------------------------------------------------------------------------------------------------ baselines elsewhere


@pytest.mark.parametrize("args", [("-q",), ()])
@pytest.mark.parametrize("first", ["outer", "inner"])
def test_a_baseline_of_another_root_directory_is_not_measured(run_tests, pytester, first, args):
    pytester.mkdir("inner")
    test = pytester.path / "inner" / "test_it.py"
    test.write_text("import pytest, torch\n@pytest.mark.torchprof(device='cpu')\ndef test_it(): torch.ones(2).sin()\n")
    roots = {"outer": pytester.path, "inner": pytester.path / "inner"}
    second = "inner" if first == "outer" else "outer"
    where = ("-p", "no:cacheprovider", f"--torchprof-baseline-dir={pytester.path / 'kept'}", str(test))

    def run(root, *more):
        return pytester.runpytest_inprocess(f"--rootdir={roots[root]}", *where, *more)

    run(first, "--torchprof-baseline=update").assert_outcomes(passed=1)
    result = run(second, *args)
    result.assert_outcomes(failed=1)
    assert "[baseline-elsewhere]" in result.stdout.str()
    assert "--rootdir" in result.stdout.str().partition("short test summary")[0].partition("= FAILURES")[2]
    run(first, *args).assert_outcomes(passed=1)


@pytest.mark.parametrize("args", [("-q",), ()])
def test_a_reason_keeps_its_remedy_and_its_code_however_long_its_paths_are(run_tests, pytester, args):
    inner = pytester.path / ("a" * 200) / ("b" * 200) / ("c" * 200)
    inner.mkdir(parents=True)
    test = inner / "test_it.py"
    test.write_text("import pytest, torch\n@pytest.mark.torchprof(device='cpu')\ndef test_it(): torch.ones(2).sin()\n")
    where = ("-p", "no:cacheprovider", f"--torchprof-baseline-dir={pytester.path / 'kept'}", str(test))
    root = f"--rootdir={pytester.path}"
    pytester.runpytest_inprocess(root, *where, "--torchprof-baseline=update").assert_outcomes(passed=1)
    result = pytester.runpytest_inprocess(f"--rootdir={inner}", *where, *args)
    result.assert_outcomes(failed=1)
    said = " ".join(result.stdout.str().partition("= FAILURES")[2].partition("torchprof: ")[0].split())
    assert "not measured: " in said
    assert "--torchprof-baseline=update [baseline-elsewhere]" in said


# ------------------------------------------------------------------------------------------------- files with holes


def recorded(tmp_path, *, lost_launch=False, unknown_call=False, early=False):
    """Return a foreign recording of one step with three kernels, one of them in a state of its own."""
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    for at in (100, 200):
        builder.launched("known", at)
    if lost_launch:
        builder.kernel("lost", 305, 10, builder.unrecorded())
    if unknown_call:
        builder.kernel("behind", 405, 10, builder.call("xyzLaunchSomething", 400))
    if early:
        builder.kernel("queued_before", 50, 10, 7)
    builder.sync(1100, 50)
    return str(builder.write(tmp_path / "trace.json"))


@pytest.mark.parametrize(
    "limit",
    [
        "max_kernels=5",
        "min_kernels=1",
        "forbid_kernels=lost",
        "only_kernels=known",
        "max_launches=5",
        "max_gpu_time=1.0",
    ],
)
def test_a_kernel_whose_launch_was_lost_makes_limits_not_measured(tmp_path, capsys, limit):
    trace = recorded(tmp_path, lost_launch=True)
    assert main(["check", trace, "--limit", limit]) == 3
    out = capsys.readouterr().out
    assert "1 GPU operation " in out


def lost_head(tmp_path, *ops: tuple[str, bool], steps: int = 2):
    """Return a foreign recording whose first step lost its calls; ops as (name, whether the later ones launch)."""
    builder = TraceBuilder()
    for number in range(steps):
        builder.step(number, number * 1000, 900)
        for place, (op, launches) in enumerate(ops):
            at = number * 1000 + 100 + 50 * place
            if number and not launches:
                builder.op(op, at, 8)
            elif number:
                builder.launched("k", at, op=op)
            else:
                builder.op(op, at, 8)
                builder.kernel("k", at + 10, 10, builder.unrecorded())
    builder.sync(steps * 1000, 50)
    return str(builder.write(tmp_path / "trace.json"))


@pytest.mark.parametrize("limit", ["max_kernels=2", "max_launches=2", "forbid_kernels=x", "max_gpu_time=1.0"])
def test_launches_lost_at_the_head_of_anybody_elses_recording_make_limits_not_measured(tmp_path, capsys, limit):
    trace = lost_head(tmp_path, ("aten::mm", True), ("aten::copy_", False))
    assert main(["check", trace, "--limit", limit]) == 3
    doubt = load(trace).doubt
    assert says(doubt, LostLaunches, idle_first="aten::mm")
    assert doubt.sentence in " ".join(capsys.readouterr().out.split())


def test_a_first_step_that_lost_all_its_launches_is_not_measured(tmp_path, capsys):
    builder = TraceBuilder()
    for number in range(3):
        builder.step(number, number * 1000, 900)
        builder.kernel("k", number * 1000 + 110, 10, builder.graph_launch(number * 1000 + 100))
    builder.events = [
        event for event in builder.events if event["args"].get("correlation") != 101 or event["cat"] == "kernel"
    ]
    builder.sync(3000, 50)
    path = builder.write(tmp_path / "t.json")
    assert main(["check", str(path), "--limit", "max_launches=1"]) == 3
    doubt = load(path).doubt
    assert says(doubt, LostLaunches, idle_first="step")
    assert doubt.sentence in " ".join(capsys.readouterr().out.split())


def test_operators_that_need_not_launch_tell_nothing_and_check_says_what_is_left_out(tmp_path, capsys):
    builder = TraceBuilder()
    builder.step(0, 0, 900)
    builder.op("aten::copy_", 100, 8)
    builder.kernel("k", 50, 10, 7)
    builder.launched("k", 300)
    builder.op("aten::copy_", 400, 8)
    builder.launched("k", 500, op="aten::copy_")
    trace = str(builder.write(tmp_path / "t.json"))
    assert main(["check", trace, "--limit", "max_kernels=2"]) == 0
    assert "1 GPU operation " in capsys.readouterr().out


def test_a_kernel_behind_an_unknown_call_makes_launches_not_measured(tmp_path, capsys):
    trace = recorded(tmp_path, unknown_call=True)
    assert main(["check", trace, "--limit", "max_launches=5"]) == 3
    assert "xyzLaunchSomething" in capsys.readouterr().out
    assert main(["check", trace, "--limit", "max_kernels=3"]) == 0


def test_check_tells_of_orphans_of_before(tmp_path, capsys):
    assert main(["check", recorded(tmp_path, early=True), "--limit", "max_kernels=2"]) == 0
    assert "1 GPU operation " in capsys.readouterr().out


def test_unknown_launch_calls_of_our_own_recordings_make_launches_not_measured(tmp_path, capsys):
    builder = own_recording({"a": 2}, steps=2)
    builder.kernel("behind", 705, 10, builder.call("xyzLaunchSomething", 700))
    trace = str(builder.write(tmp_path / "trace.json"))
    assert main(["check", trace, "--limit", "max_launches=5"]) == 3
    assert main(["check", trace, "--limit", "max_kernels=3"]) == 0


def with_idle_graph(**ours):
    """Return a recording of ours whose graph idles for most of its step between the kernels that are recorded."""
    builder = TraceBuilder()
    builder.own(steps=1, **ours)
    builder.step(0, 0, 900)
    builder.annotation("decode", 5, 880)
    launch = builder.graph_launch(10)
    for at in (30, 300, 600):
        builder.kernel("void sin_kernel(float*)", at, 20, launch)
    builder.sync(650, 200)
    builder.sync(1000, 50)
    return builder


UPPER = {
    "max_kernels": 3,
    "max_gpu_time": "1s",
    "max_memcpys": 0,
    "max_memsets": 0,
    "forbid_kernels": "re:cos",
    "only_kernels": "re:sin",
    "kernels": {"re:sin": 3},
    "ranges": {"decode": {"max_kernels": 3}},
}
LOWER = {"min_kernels": 3, "kernels": "re:sin", "max_launches": 1, "max_syncs": 1, "min_gpu_utilization": 0.01}


def statuses(profile, limits):
    """Return the outcome of each limit, with the code of the reason where there is one."""
    verdicts = [check_limits(profile, read_limits({name: value}))[0] for name, value in limits.items()]
    return {
        name: verdict.status if verdict.reason is None else verdict.reason.code
        for name, verdict in zip(limits, verdicts, strict=True)
    }


def test_where_kernels_of_graphs_seem_to_be_missing_no_limit_holds_that_they_might_miss(tmp_path):
    profile = load(with_idle_graph().write(tmp_path / "t.json"))
    assert set(statuses(profile, UPPER).values()) == {"lost-graph-kernels"}
    assert set(statuses(profile, LOWER).values()) == {"holds"}, "more would hold as well"
    assert statuses(profile, {"max_kernels": 2}) == {"max_kernels": "missed"}, "more would be worse still"


def test_gaps_of_a_graph_mean_nothing_where_torch_says_that_all_its_kernels_are_there(tmp_path):
    profile = load(with_idle_graph(graph_replays=[3]).write(tmp_path / "t.json"))
    assert set(statuses(profile, UPPER).values()) == {"holds"}
    (waits,) = (finding for finding in profile.findings if finding.code == "queued-work-waits")
    assert not waits.lacks_work


def test_check_of_somebodys_recording_whose_graphs_lack_kernels_is_no_pass(shared_trace, capsys):
    path = str(shared_trace("a100_graphs_nccl_orphans"))
    assert main(["check", path, "--limit", "max_kernels=100000", "--limit", "forbid_kernels=gelu"]) == 3
    assert capsys.readouterr().out.count("[lost-graph-kernels]") == 2
    assert main(["check", path, "--limit", "min_kernels=1000", "--limit", "max_launches=2000"]) == 0
