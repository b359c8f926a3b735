"""Baselines as a pytest user meets them: what each mode compares, writes and fails."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections import Counter
from pathlib import Path

import fresh
import pytest
from facts import WORSE, came, of_no_use, reasons_in

from pytest_torchprof.baseline import file as baseline_file
from pytest_torchprof.baseline import read
from pytest_torchprof.compare.notes import EditedTest, OtherSoftware
from pytest_torchprof.reasons.baselines import MergeMarkersLeft
from pytest_torchprof.report import Disuse
from pytest_torchprof.report.account import NotJudgedOnCpu
from pytest_torchprof.report.baseline_failure import AcceptAsWell, FixOrAccept, NoBaseline

pytestmark = pytest.mark.any_torch

ONE = """
@pytest.mark.torchprof(device="cpu", warmup=1, steps=2)
def test_block():
    torch.mm(x, x)
"""
TWO = ONE.replace("torch.mm(x, x)", "torch.add(torch.mm(x, x), x)")


def baseline_files(pytester):
    return sorted(path for path in pytester.path.rglob("__torchprof__/*.json"))


def test_the_silent_new_test_passes_and_says_new(run_tests, pytester):
    result = run_tests(ONE)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*test_block * new *passed*"])
    assert not baseline_files(pytester)


def test_update_writes_one_readable_file_per_module_and_device(run_tests, pytester):
    run_tests(ONE, "--torchprof-baseline=update").assert_outcomes(passed=1)
    (path,) = baseline_files(pytester)
    assert path.parent == pytester.path / "__torchprof__"
    assert path.name.startswith("test_it.cpu-")
    baseline = json.loads(path.read_text())
    assert baseline["schema"] == 2
    assert "test_block" in path.read_text()
    assert str(pytester.path) not in path.read_text()


def test_compare_fails_on_an_added_kernel_and_names_it(run_tests):
    run_tests(ONE, "--torchprof-baseline=update")
    result = run_tests(TWO)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{WORSE} __torchprof__*", "*+*aten::add*", "*--torchprof-baseline=update*"])


def test_the_ratchet_comparing_never_writes_so_a_regression_fails_the_second_time_too(run_tests, pytester):
    run_tests(ONE, "--torchprof-baseline=update")
    (path,) = baseline_files(pytester)
    before = path.read_bytes()
    for _ in range(2):
        run_tests(TWO).assert_outcomes(failed=1)
    assert path.read_bytes() == before


def test_fewer_kernels_pass_as_better_and_say_how_to_keep_it(run_tests):
    run_tests(TWO, "--torchprof-baseline=update")
    result = run_tests(ONE)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*better*passed*", "*pytest --torchprof-baseline=update*"])


def test_what_differs_from_the_baseline_without_failing_is_shown(run_tests):
    run_tests(TWO, "--torchprof-baseline=update")
    result = run_tests(ONE)
    result.stdout.fnmatch_lines(["*test_block: against the baseline", "  - *add*", "*edited after*"])


def test_another_torch_is_said_before_any_verdict(run_tests, pytester):
    run_tests(ONE, "--torchprof-baseline=update")
    (path,) = baseline_files(pytester)
    path.write_text(path.read_text().replace('"torch": "', '"torch": "1.'))
    result = run_tests(ONE)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"*{OtherSoftware('the baseline', 'torch 1.*', 'this run', 'torch *')}*"])


def test_add_writes_what_is_missing_and_compares_the_rest(run_tests, pytester):
    run_tests(ONE, "--torchprof-baseline=add").assert_outcomes(passed=1)
    (path,) = baseline_files(pytester)
    before = path.read_bytes()
    run_tests(TWO, "--torchprof-baseline=add").assert_outcomes(failed=1)
    assert path.read_bytes() == before


def test_the_silent_new_test_fails_under_strict(run_tests):
    result = run_tests(ONE, "--torchprof-baseline=strict")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{NoBaseline('*')}*", "*--torchprof-baseline=add*"])


def test_off_neither_compares_nor_writes(run_tests):
    run_tests(ONE, "--torchprof-baseline=update")
    run_tests(TWO, "--torchprof-baseline=off").assert_outcomes(passed=1)


@pytest.fixture
def edited_baseline(run_tests, pytester):
    """Write the baseline of `ONE`, then change its numbers by hand."""

    def edit(change) -> None:
        run_tests(ONE, "--torchprof-baseline=update").assert_outcomes(passed=1)
        (path,) = baseline_files(pytester)
        kept = json.loads(path.read_text())
        change(kept["entries"]["test_block"]["numbers"])
        path.write_text(json.dumps(kept))

    return edit


@pytest.mark.parametrize("mode", ["compare", "add", "strict"])
def test_an_entry_that_lacks_a_gated_number_is_not_compared(run_tests, edited_baseline, mode):
    edited_baseline(lambda numbers: numbers.pop("graph_breaks"))
    result = run_tests(ONE, f"--torchprof-baseline={mode}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not measured: graph_breaks: * __torchprof__*"])
    assert "[baseline-incomplete]" in result.stdout.str()
    run_tests(ONE, "--torchprof-baseline=update").assert_outcomes(passed=1)
    run_tests(ONE, "--torchprof-baseline=strict").assert_outcomes(passed=1)


def test_a_gated_number_that_was_not_known_is_shown_and_strict_asks_for_it(run_tests, edited_baseline):
    edited_baseline(lambda numbers: numbers.update(graph_breaks=None))
    result = run_tests(ONE)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*test_block * changed (graph_breaks) *"])
    result = run_tests(ONE, "--torchprof-baseline=strict")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not measured: graph_breaks: *", "*[[]baseline-incomplete]*"])


def test_baseline_false_is_measured_and_never_compared(run_tests):
    run_tests(ONE, "--torchprof-baseline=update")
    run_tests(TWO.replace("steps=2", "steps=2, baseline=False")).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "ending",
    [
        "assert False",
        "pytest.skip('mine')",
        "pytest.xfail('mine')",
    ],
)
def test_no_mode_writes_for_a_test_that_did_not_pass(run_tests, pytester, ending):
    source = f"""
@cpu
def test_block(torchprof):
    torchprof(torch.mm, x, x)
    {ending}
"""
    run_tests(source, "--torchprof-baseline=update")
    assert not baseline_files(pytester)


def test_no_mode_writes_for_a_test_that_missed_its_limits_or_whose_teardown_failed(run_tests, pytester):
    source = """
@pytest.mark.torchprof(device="cpu", max_kernels=0)
def test_missed():
    torch.mm(x, x)

@pytest.fixture
def broken():
    yield
    raise ValueError

@cpu
def test_teardown(broken, torchprof):
    torchprof(torch.mm, x, x)

@cpu
@pytest.mark.xfail
def test_xpass(torchprof):
    torchprof(torch.mm, x, x)
"""
    run_tests(source, "--torchprof-baseline=update")
    assert not baseline_files(pytester)


def test_other_tests_entries_are_untouched_by_a_selection(run_tests, pytester):
    source = ONE + ONE.replace("test_block", "test_other")
    run_tests(source, "--torchprof-baseline=update")
    (path,) = baseline_files(pytester)
    run_tests((TWO + ONE.replace("test_block", "test_other")), "--torchprof-baseline=update", "-k", "test_block")
    assert {key: entry.numbers["kernels"] for key, entry in read(path).entries.items()} == {
        "test_block": 2,
        "test_other": 1,
    }


def test_an_entry_that_is_the_same_keeps_its_bytes_times_included(run_tests, pytester):
    run_tests(ONE, "--torchprof-baseline=update")
    (path,) = baseline_files(pytester)
    # As if it had been recorded on a busy day: times as far off as they come.
    recorded = re.sub(r'"gpu_busy_us": [0-9.e+]+', '"gpu_busy_us": 987654', path.read_text())
    path.write_text(recorded)
    run_tests(ONE, "--torchprof-baseline=update").assert_outcomes(passed=1)
    assert path.read_text() == recorded


def test_update_with_times_renews_the_times_of_what_is_the_same(run_tests, pytester):
    run_tests(ONE, "--torchprof-baseline=update")
    (path,) = baseline_files(pytester)
    path.write_text(re.sub(r'"gpu_busy_us": [0-9.e+]+', '"gpu_busy_us": 987654', path.read_text()))
    run_tests(ONE, "--torchprof-baseline=update,times").assert_outcomes(passed=1)
    assert "987654" not in path.read_text()


def test_a_renamed_test_is_named_in_every_verbosity(run_tests):
    run_tests(ONE, "--torchprof-baseline=update")
    for verbosity in ("-q", "-qq", "-v"):
        result = run_tests(ONE.replace("test_block", "test_renamed"), verbosity)
        result.stdout.fnmatch_lines(
            [
                "*test_renamed*",
                f"*{of_no_use(Disuse.RENAMED, 'test_block', became=('test_renamed',))}",
                "*do: torchprof baseline rename *",
            ]
        )


def test_without_any_baseline_quiet_names_none(run_tests):
    result = run_tests(ONE, "-q")
    result.stdout.fnmatch_lines(["torchprof: 1 passed"])
    result.stdout.no_fnmatch_line("*without a baseline*")


def test_an_update_forgets_steps_that_nothing_runs_any_more(run_tests, pytester):
    alternating = ONE.replace(
        "    torch.mm(x, x)", "    calls.append(None)\n    x.exp() if len(calls) % 2 else x.sin()"
    ).replace("steps=2", "steps=4")
    run_tests(f"calls = []\n{alternating}", "--torchprof-baseline=update")
    (path,) = baseline_files(pytester)
    assert len(read(path).entries["test_block"].steps) == 2
    only_one = ONE.replace("torch.mm(x, x)", "x.exp()").replace("steps=2", "steps=4")
    run_tests(only_one, "--torchprof-baseline=update").assert_outcomes(passed=1)
    assert len(read(path).entries["test_block"].steps) == 1


def test_a_test_that_was_edited_and_is_the_same_changes_its_source_alone(run_tests, pytester):
    run_tests(ONE, "--torchprof-baseline=update")
    (path,) = baseline_files(pytester)
    before = path.read_text().splitlines()
    run_tests(ONE.replace("    torch.mm", "    assert True\n    torch.mm"), "--torchprof-baseline=update")
    after = path.read_text().splitlines()
    assert [line.split(":")[0].strip() for line in after if line not in before] == ['"source"']


def test_two_branches_that_changed_one_test_each_merge(run_tests, pytester):
    def git(*words):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    names = ("test_block", "test_middle", "test_other")
    one, two = ({name: source.replace("test_block", name) for name in names} for source in (ONE, TWO))
    run_tests("\n".join(one.values()), "--torchprof-baseline=update")
    (path,) = baseline_files(pytester)
    for words in (["init", "-q", "-b", "main"], ["add", "__torchprof__"], ["commit", "-qm", "all"]):
        git(*words)
    for changed in ("test_block", "test_other"):
        git("checkout", "-q", "-b", changed, "main")
        run_tests("\n".join({**one, changed: two[changed]}.values()), "--torchprof-baseline=update")
        git("commit", "-qam", changed)
    git("merge", "-q", "test_block")
    merged = read(path).entries
    assert [merged[name].numbers["kernels"] for name in names] == [2, 1, 2]


def test_the_baseline_dir_mirrors_the_tests_path(run_tests, pytester):
    run_tests(ONE, "--torchprof-baseline=update", "--torchprof-baseline-dir=base")
    assert [path.name.split(".")[0] for path in (pytester.path / "base").rglob("*.json")] == ["test_it"]
    run_tests(TWO, "--torchprof-baseline-dir=base").assert_outcomes(failed=1)


def test_an_unreadable_baseline_is_an_error_and_stays_as_it_is(run_tests, pytester):
    run_tests(ONE, "--torchprof-baseline=update")
    (path,) = baseline_files(pytester)
    torn = "<<<<<<< HEAD\n" + path.read_text() + "=======\n>>>>>>> other\n"
    path.write_text(torn)
    for mode in ("compare", "update"):
        result = run_tests(ONE, f"--torchprof-baseline={mode}", "--torchprof-report=out.json")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["*__torchprof__*[[]baseline-merged]*"])
        assert reasons_in(Path("out.json")) == [MergeMarkersLeft(str(path))]
        assert path.read_text() == torn


def test_update_in_ci_works_and_is_announced(run_tests, pytester, monkeypatch):
    pytester.makepyfile(test_it="import pytest, torch\nx = torch.ones(2, 2)\n" + ONE)
    monkeypatch.setenv("CI", "true")
    result = pytester.runpytest_inprocess("--torchprof-baseline=update", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["torchprof: writing baselines in CI*"])
    assert baseline_files(pytester)


def test_the_xdist_hole_the_gate_holds_with_several_workers_and_the_controller_alone_writes(run_tests, pytester):
    source = ONE + ONE.replace("test_block", "test_other")
    result = run_tests(source, "-n", "2", "--torchprof-baseline=strict")
    result.assert_outcomes(failed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert not baseline_files(pytester)
    update = ("--torchprof-baseline=update", "--torchprof-report=report.json")
    run_tests(source, "-n", "2", *update).assert_outcomes(passed=2)
    (path,) = baseline_files(pytester)
    assert sorted(json.loads(path.read_text())["entries"]) == ["test_block", "test_other"]
    assert len(json.loads((pytester.path / "report.json").read_text())["results"]) == 2
    result = run_tests(TWO + ONE.replace("test_block", "test_other"), "-n", "1")
    result.assert_outcomes(failed=1, passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*test_block *worse*failed*"])


NOTHING = """
@cpu
def test_block():
    if RUNS: torch.add(x, x)
"""


@pytest.mark.parametrize("mode", ["compare", "update", "strict"])
def test_a_test_that_no_longer_runs_anything_is_not_better_but_not_measured(run_tests, pytester, mode):
    run_tests("RUNS = True" + NOTHING, "--torchprof-baseline=update")
    (path,) = pytester.path.rglob("__torchprof__/*.json")
    before = path.read_bytes()
    result = run_tests("RUNS = False" + NOTHING, f"--torchprof-baseline={mode}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*baseline=* not measured: *step 1 of 5; *min_kernels=0 [[]nothing-ran]"])
    assert path.read_bytes() == before


@pytest.mark.parametrize("mode", ["update", "add"])
def test_no_baseline_is_written_of_nothing_unless_that_is_meant(run_tests, pytester, mode):
    run_tests("RUNS = False" + NOTHING, f"--torchprof-baseline={mode}").assert_outcomes(failed=1)
    assert not list(pytester.path.rglob("__torchprof__/*.json"))
    meant = NOTHING.replace("@cpu", '@pytest.mark.torchprof(device="cpu", min_kernels=0)')
    for _ in range(2):
        run_tests("RUNS = False" + meant, f"--torchprof-baseline={mode}").assert_outcomes(passed=1)
    run_tests("RUNS = False" + meant).assert_outcomes(passed=1)
    run_tests("RUNS = True" + meant).assert_outcomes(failed=1)


def test_without_a_gpu_a_baseline_of_one_is_not_judged_and_no_pass(run_tests, pytester):
    """A runner that has lost its GPU must not turn green because there is no baseline for its CPU."""
    if __import__("torch").cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    source = """
@pytest.mark.torchprof
def test_block():
    torch.add(x, x)
"""
    run_tests(source, "--torchprof-baseline=update")  # nothing is known of a GPU: the CPU's is written
    (path,) = pytester.path.rglob("__torchprof__/*.json")
    path.rename(path.with_name("test_it.nvidia-h200-sm90.json"))
    for mode in ("compare", "update", "add"):
        result = run_tests(source, f"--torchprof-baseline={mode}", "-rs")
        result.assert_outcomes(skipped=1)
        result.stdout.fnmatch_lines([f"*{NotJudgedOnCpu(('baseline',))}*"])
    run_tests(source, "--torchprof-baseline=strict").assert_outcomes(failed=1)
    run_tests(source, "--torchprof-device=cpu").assert_outcomes(passed=1)


def test_one_operator_on_several_types_is_the_same_as_its_own_baseline(run_tests):
    source = """
@cpu
def test_it(torchprof):
    y = torch.ones(8, 8, requires_grad=True)
    torchprof(lambda: y.pow(2).mean().backward())
"""
    run_tests(source, "--torchprof-baseline=update").assert_outcomes(passed=1)
    result = run_tests(source)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*same*passed*"])


def test_a_number_that_is_no_longer_measured_is_no_pass(run_tests, pytester):
    source = """
@pytest.mark.torchprof(device="cpu"MORE)
def test_it():
    torch.add(x, x)
"""
    run_tests(source.replace("MORE", ""), "--torchprof-baseline=update").assert_outcomes(passed=1)
    (path,) = pytester.path.rglob("__torchprof__/*.json")
    kept = json.loads(path.read_text())
    kept["entries"]["test_it"]["numbers"]["launches"] = 1
    path.write_text(json.dumps(kept))
    result = run_tests(source.replace("MORE", ""))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not measured: launches: *", "*[[]not-recorded]*"])
    run_tests(source.replace("MORE", ""), "--torchprof-baseline=update").assert_outcomes(passed=1)
    result = run_tests(source.replace("MORE", ', tolerance={"memory": 0.05}'))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not measured: peak memory: *", "*[[]not-recorded]*"])
    run_tests(source.replace("MORE", ', tolerance={"memory": 0.05}'), "--torchprof-baseline=update").assert_outcomes(
        failed=1
    )


@pytest.mark.parametrize("args", [(), ("-q",), ("-n", "2"), ("-q", "-n", "2")])
def test_an_option_that_cannot_be_used_is_one_error_line(run_tests, args):
    result = run_tests(ONE, "--torchprof-baseline=foo", *args, in_process=False)
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        [
            "ERROR: --torchprof-baseline: expected compare, update, add, strict, off or update,times, got 'foo' [[]bad-option]"
        ]
    )
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()


def test_one_line_of_a_regression_says_what_is_worse(run_tests):
    run_tests(ONE, "--torchprof-baseline=update")
    outlines = run_tests(TWO, "-q").outlines
    line = next(line for line in outlines if line.startswith(f"{WORSE}: new: pointwise add, test_it.py:"))
    assert f"FAILED test_it.py::test_block - {line}" in outlines


def test_a_regression_begins_with_its_kernels_and_ends_with_its_times(run_tests, pytester):
    run_tests(ONE, "--torchprof-baseline=update")
    (path,) = baseline_files(pytester)
    # As if it had been recorded on a machine of another century.
    path.write_text(re.sub(r'"gpu_busy_us": [0-9.e+]+', '"gpu_busy_us": 1.56e+06', path.read_text()))
    for workers in ((), ("-n", "1")):
        lines = [line.removeprefix("E").strip() for line in run_tests(TWO, *workers).outlines]
        first = lines.index(next(line for line in lines if line.startswith(f"{WORSE} ")))
        assert lines[first].endswith(".json:")
        assert lines[first + 1] == came("aten::add")
        assert re.fullmatch(r"pointwise add from: test_it.py:\d+ in test_block", lines[first + 2])
        assert lines[first + 3] == "kernels 1 -> 2"
        assert lines[first + 4] == str(EditedTest())
        assert re.match(r"do: .* at test_it.py:\d+ ", lines[first + 5])
        times = lines.index(next(line for line in lines if line.startswith("for information, not gated: ")))
        assert "busy 1.56 s -> " in lines[times]
        assert lines.index(next(line for line in lines if line.startswith("recording: "))) > times > first + 5


@pytest.mark.parametrize("limit", ["", ", max_kernels=1"])
def test_quietly_all_that_came_and_went_is_named_and_the_command_that_accepts_it(run_tests, limit):
    before = ONE.replace("torch.mm(x, x)", "x.sin().exp()")
    after = ONE.replace("torch.mm(x, x)", "torch.add(torch.mm(x, x), x)").replace("steps=2", f"steps=2{limit}")
    run_tests(before, "--torchprof-baseline=update")
    result = run_tests(after, "-q")
    result.assert_outcomes(failed=1)
    told = " ".join(result.outlines)
    signs = {sign + " " + what for sign, what in re.findall(r"(?<!\S)([-+~]) (\w+(?: \w+){1,4}): 1 per step", told)}
    assert "new: gemm fp32 nn mm and pointwise add, test_it.py:" in told
    assert signs == {"- pointwise sin", "- pointwise exp"}
    accept = str(AcceptAsWell()) if limit else FixOrAccept.SENTENCE.removeprefix("{fix}")
    assert f'{accept}: pytest "test_it.py::test_block" --torchprof-baseline=update' in told
    assert len([line for line in result.outlines if " per step" in line and line.startswith("FAILED")]) <= 1


def test_a_command_keeps_a_test_id_that_a_shell_would_change(run_tests):
    source = """
@pytest.mark.parametrize("what", ["a b$HOME", 'a"b', "plain"])
@pytest.mark.torchprof(device="cpu", warmup=1, steps=1)
def test_block(what):
    torch.mm(x, x)
"""
    result = run_tests(source, "--torchprof-baseline=strict")
    result.assert_outcomes(failed=3)
    told = [line.partition("do: ")[2] for line in result.outlines if "do: pytest" in line]
    assert sorted(shlex.split(line)[1] for line in told) == [
        "test_it.py::test_block[a b$HOME]",
        'test_it.py::test_block[a"b]',
        "test_it.py::test_block[plain]",
    ]
    assert 'pytest "test_it.py::test_block[plain]" --torchprof-baseline=add' in told


def test_without_the_header_too_it_is_said_that_measuring_is_off(run_tests):
    run_tests(ONE, "-q", "--torchprof=off").stdout.fnmatch_lines(["torchprof: off: *"])


def test_without_a_gpu_a_limit_on_the_compiler_is_judged_by_expect_too(run_tests):
    if __import__("torch").cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    result = run_tests("""
@torch.compile(backend="eager")
def broken(y):
    torch._dynamo.graph_break()
    return y + 1

def test_compiler(torchprof):
    torchprof(broken, x).expect(max_graph_breaks=0)

def test_kernels(torchprof):
    torchprof(broken, x).expect(max_graph_breaks=1, max_kernels=9)
""")
    result.assert_outcomes(failed=1, skipped=1)
    result.stdout.fnmatch_lines(["*LimitsMissed: 1 limit missed: max_graph_breaks*"])


@pytest.mark.parametrize("args", [(), ("-n", "1")])
def test_the_baseline_of_a_test_file_that_was_renamed_is_told_as_gone(run_tests, pytester, args):
    source = "@cpu\ndef test_it():\n    torch.sin(x)\n"
    run_tests(source, "--torchprof-baseline=update").assert_outcomes(passed=1)
    (pytester.path / "test_it.py").rename(pytester.path / "test_other.py")
    result = fresh.run_pytest("-p", "no:cacheprovider", *args)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*__torchprof__/test_it.cpu-*.json*gone*"])


SEVERAL = """
@pytest.mark.parametrize("n", range(3))
@pytest.mark.torchprof(device="cpu", warmup=1, steps=1)
def test_block(n):
    torch.mm(x, x)
"""


@pytest.fixture
def parsed(monkeypatch):
    """Count how often each baseline file is parsed."""
    files = Counter()

    def read(path):
        files[path.name] += 1
        return original(path)

    original = baseline_file.read
    monkeypatch.setattr(baseline_file, "read", read)
    return files


@pytest.mark.parametrize("mode", ["compare", "add", "strict"])
def test_a_baseline_file_is_parsed_once_per_run_however_many_tests_it_has(run_tests, pytester, parsed, mode):
    run_tests(SEVERAL, "--torchprof-baseline=update").assert_outcomes(passed=3)
    (file,) = baseline_files(pytester)
    parsed.clear()
    run_tests(SEVERAL, f"--torchprof-baseline={mode}").assert_outcomes(passed=3)
    assert parsed == {file.name: 1}


def test_a_run_reads_a_baseline_anew_after_another_one_wrote_it(run_tests):
    run_tests(TWO, "--torchprof-baseline=update")
    run_tests(ONE, "--torchprof-baseline=update").stdout.fnmatch_lines(["*written (better*"])
    result = run_tests(ONE)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*test_block * same *"])
