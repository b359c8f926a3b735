"""`torchprof baseline`: list, show, diff and prune baseline files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import fresh
import pytest
from facts import came
from msgspec.structs import replace

from pytest_torchprof.baseline import Entry, KernelRecord, RankEntry, Times, baseline_path, read, update
from pytest_torchprof.cli import main

pytestmark = pytest.mark.any_torch

REPOSITORY = Path(__file__).parents[1]
ADD = KernelRecord(name="triton_poi_fused_add_0", family="pointwise", op="aten::add")
MUL = replace(ADD, name="triton_poi_fused_mul_0", op="aten::mul")
TESTS = """
import pytest

@pytest.mark.parametrize("size", [1, 2])
def test_kept(size): pass

class TestGroup:
    def test_in_class(self): pass
"""


def run(words: list[str]) -> int:
    return main(["baseline", *words])


def entry(*kernels: KernelRecord, gpu: str = "NVIDIA H200", torch: str = "2.13.0") -> Entry:
    return Entry(
        source="s",
        environment={"gpu": gpu, "torch": torch, "cuda": "13.0"},
        steps=(kernels,),
        numbers={"kernels": len(kernels)},
        varying={"gpu_busy_us": 41.2},
    )


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "500")  # Folders of tests have long names, and lines are as wide as the screen.
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q -m 'not slow'\nmarkers = slow\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_mlp.py").write_text(TESTS)
    return tmp_path


def recorded(project: Path, *keys: str, baseline_dir: Path | None = None, module: str = "test_mlp.py") -> Path:
    file = baseline_path(project / "tests" / module, project, "nvidia-h200-sm90", baseline_dir)
    update(file, dict.fromkeys(keys, entry(ADD)))
    return file


@pytest.fixture
def forked_pytest(monkeypatch):
    """Let pytest, which collects the tests that are there, run in forks; one test starts it as it is."""

    def run_fork(command):
        fresh.run_python(*command[1:], folder=Path.cwd(), environment=os.environ)

    monkeypatch.setattr("pytest_torchprof.cli.baseline.run_process", run_fork)


@pytest.fixture
def git(project):
    def run(*words: str, fails: bool = False) -> None:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "merge.conflictStyle=merge", *words]
        done = subprocess.run(command, check=False, cwd=project, capture_output=True, text=True)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr

    run("init", "-q", "-b", "main")
    return run


def two_branches(project: Path, git, *, ours: dict, theirs: dict) -> Path:
    """Return the file in which a merge of both sides' changes to entries of one kernel left its markers."""
    file = recorded(project, "test_a", "test_b", "test_c")
    git("add", "-A")
    git("commit", "-qm", "base")
    for name, changes in (("theirs", theirs), ("ours", ours)):
        git("checkout", "-q", "-b", name, "main")
        update(file, changes)
        git("commit", "-qam", name)
    git("merge", "-q", "theirs", fails=True)
    return file


def test_resolve_takes_each_entry_from_the_side_that_changed_it(project, git, capsys):
    # Neighbours in the file: version control cannot tell the two apart.
    ours, theirs = replace(entry(ADD, MUL), varying={"gpu_busy_us": 90.0}), entry(MUL)
    file = two_branches(
        project,
        git,
        ours={"test_a": None, "test_b": ours},
        theirs={"test_a": None, "test_c": theirs, "test_b": replace(ours, varying={"gpu_busy_us": 70.0})},
    )
    assert run(["resolve"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{file.relative_to(project)}: resolved",
        f"{file.relative_to(project)}: both sides changed these, and at least one of them nothing but times",
        "    test_b: times (ours)",
    ]
    assert read(file).entries == {"test_b": ours, "test_c": theirs}


def test_what_both_sides_changed_is_ours_and_named(project, git, capsys):
    ours, theirs = entry(ADD, MUL), entry(MUL)
    file = two_branches(project, git, ours={"test_b": ours}, theirs={"test_b": theirs})
    assert run(["resolve", str(file)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{file}: resolved; both sides changed these, measure them again with --torchprof-baseline=update",
        "    test_b: kernels (ours)",
    ]
    assert read(file).entries["test_b"] == ours


def test_what_one_side_removed_and_the_other_changed_stays_and_is_named(project, git, capsys):
    file = two_branches(project, git, ours={"test_b": None}, theirs={"test_b": entry(MUL)})
    assert run(["resolve", str(file)]) == 1
    assert "    test_b: removed by us (theirs)" in capsys.readouterr().out
    assert read(file).entries["test_b"] == entry(MUL)


def test_what_was_resolved_by_hand_stays(project, git, capsys):
    ours, theirs = entry(ADD, MUL), entry(MUL)
    file = two_branches(
        project, git, ours={"test_a": ours, "test_c": ours}, theirs={"test_a": theirs, "test_c": theirs}
    )
    first, second = re.findall(r"<<<<<<< .*?>>>>>>> \w+\n", file.read_text(), re.DOTALL)[:2]
    hand = re.sub(r"<<<<<<< .*?=======\n|>>>>>>> \w+\n", "", first, flags=re.DOTALL)
    file.write_text(file.read_text().replace(first, hand, 1))
    assert second in file.read_text()
    assert run(["resolve", str(file)]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == ["    test_c: kernels (ours)"]
    assert read(file).entries["test_a"] == theirs


def test_times_alone_are_no_change_that_keeps_the_others_out(project, git, capsys):
    theirs = entry(ADD, MUL)
    busy = replace(entry(ADD), varying={"gpu_busy_us": 70.0})
    file = two_branches(
        project,
        git,
        ours={"test_a": entry(MUL), "test_b": busy},
        theirs={"test_a": theirs, "test_b": replace(theirs, varying={"gpu_busy_us": 50.0})},
    )
    assert run(["resolve", str(file)]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[1:2] + told[3:] == ["    test_a: kernels (ours)", "    test_b: kernels, times (theirs)"]
    assert read(file).entries["test_b"].steps == theirs.steps


BUSY = {"gpu_busy_us": 70.0}
TIMES = Times(conditions={"machine": "H200"}, samples=40, median_us=5.0, quantiles_us=(4.0, 5.0, 6.0))
TWO_RANKS = {"1": RankEntry(numbers={"syncs": 1})}


@pytest.mark.parametrize(
    ("ours", "theirs", "said", "kept", "status"),
    [
        # One side's times, where nothing else tells the sides apart.
        ({"varying": BUSY}, {"varying": {"gpu_busy_us": 50.0}}, "times (ours)", "ours", 0),
        ({"varying": BUSY}, {"time": TIMES, "varying": {"gpu_busy_us": 50.0}}, "times (ours)", "ours", 1),
        ({"time": TIMES}, {"time": replace(TIMES, median_us=5.5)}, "times (ours)", "ours", 0),
        # What only one side changed beside times is not dropped for the other's times.
        (
            {"varying": BUSY},
            {"ranks": TWO_RANKS, "varying": {"gpu_busy_us": 50.0}},
            "ranks, times (theirs)",
            "theirs",
            0,
        ),
        ({"ranks": TWO_RANKS, "varying": BUSY}, {"varying": {"gpu_busy_us": 50.0}}, "ranks, times (ours)", "ours", 0),
        (
            {"ranks": TWO_RANKS, "varying": BUSY},
            {"ranks": {"2": RankEntry(numbers={"syncs": 2})}},
            "ranks, times (ours)",
            "ours",
            1,
        ),
        (
            {"ranks": TWO_RANKS, "varying": BUSY},
            {"steps": ((ADD, MUL),), "varying": {"gpu_busy_us": 50.0}},
            "kernels, ranks, times (ours)",
            "ours",
            1,
        ),
        ({"source": "t", "varying": BUSY}, {"source": "u"}, "source, times (ours)", "ours", 1),
    ],
)
def test_nothing_that_both_sides_changed_is_dropped_in_silence(project, git, capsys, ours, theirs, said, kept, status):
    sides = {name: replace(entry(ADD), **changes) for name, changes in (("ours", ours), ("theirs", theirs))}
    # The neighbour conflicts in any case, so that there is something to resolve.
    both = {
        name: {"test_b": one, "test_c": replace(one, varying={"gpu_busy_us": len(name)})} for name, one in sides.items()
    }
    file = two_branches(project, git, **both)
    assert run(["resolve", str(file)]) == status
    assert f"    test_b: {said}" in capsys.readouterr().out.splitlines()
    assert read(file).entries["test_b"] == sides[kept]


def lines_of(*kernels: KernelRecord) -> Entry:
    return replace(entry(*kernels), varying={"gpu_busy_us": float(len(kernels))})


SIX = tuple(
    replace(ADD, name=f"triton_poi_fused_{name}_0", op=f"aten::{name}")
    for name in ("sin", "cos", "exp", "log", "abs", "neg")
)


def test_kernels_that_git_has_merged_line_by_line_are_told_though_no_line_of_them_conflicts(project, git, capsys):
    """Both branches updated the test: git joins what each did to the kernels, and marks the times alone."""
    file = recorded(project, "test_a")
    update(file, {"test_b": lines_of(*SIX)})
    git("add", "-A")
    git("commit", "-qm", "base")
    sides = {"theirs": lines_of(*SIX[:-1]), "ours": lines_of(MUL, *SIX)}
    for name, one in sides.items():
        git("checkout", "-q", "-b", name, "main")
        update(file, {"test_b": one})
        git("commit", "-qam", name)
    git("merge", "-q", "theirs", fails=True)
    assert file.read_text().count("<<<<<<<") == 1
    assert run(["resolve"]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == ["    test_b: kernels, times (ours)"]
    assert read(file).entries["test_b"] == sides["ours"]
    # Whoever takes a line of times by hand has kernels that nobody has measured.
    git("checkout", "-q", "--merge", str(file))
    half = re.sub(r"<<<<<<< .*?=======\n|>>>>>>> \w+\n", "", file.read_text(), flags=re.DOTALL)
    file.write_text(half)
    assert read(file).entries["test_b"].steps not in [one.steps for one in sides.values()]
    assert run(["resolve"]) == 1
    again = "both sides changed these, measure them again with --torchprof-baseline=update"
    assert capsys.readouterr().out.splitlines() == [
        "no merge markers in 1 baseline file",
        f"{file.relative_to(project)}: merged line by line; {again}",
        "    test_b: kernels, times (as merged)",
    ]
    git("add", "-A")
    git("commit", "-qm", "merged")
    assert run(["resolve"]) == 1
    update(file, {"test_b": lines_of(MUL, *SIX, MUL)})
    assert run(["resolve"]) == 0


def test_a_merge_without_any_conflict_is_looked_at_too(project, git, capsys):
    file = recorded(project, "test_a")
    update(file, {"test_b": entry(*SIX)})
    git("add", "-A")
    git("commit", "-qm", "base")
    for name, one in {"theirs": entry(*SIX[:-1]), "ours": entry(MUL, *SIX)}.items():
        git("checkout", "-q", "-b", name, "main")
        update(file, {"test_b": one, f"test_{name}": entry(ADD)} if name == "ours" else {"test_b": one})
        git("commit", "-qam", name)
    git("merge", "-q", "theirs")
    before = file.read_bytes()
    assert run(["resolve"]) == 1
    assert "    test_b: kernels (as merged)" in capsys.readouterr().out
    assert file.read_bytes() == before
    git("commit", "-q", "--allow-empty", "-m", "next")
    assert run(["resolve"]) == 0


def test_in_a_rebase_too_both_sides_are_told(project, git, capsys):
    file = recorded(project, "test_a")
    update(file, {"test_b": lines_of(*SIX)})
    git("add", "-A")
    git("commit", "-qm", "base")
    sides = {"theirs": lines_of(*SIX[:-1]), "ours": lines_of(MUL, *SIX)}
    for name, one in sides.items():
        git("checkout", "-q", "-b", name, "main")
        update(file, {"test_b": one})
        git("commit", "-qam", name)
    git("rebase", "-q", "theirs", fails=True)
    assert run(["resolve"]) == 1
    assert "    test_b: kernels, times (ours)" in capsys.readouterr().out
    assert read(file).entries["test_b"] == sides["theirs"]  # onto which it is replayed


def test_files_without_markers_and_damaged_ones_are_told_and_the_others_mended(project, git, capsys):
    assert run(["resolve"]) == 0
    assert "no merge markers in 0 baseline files" in capsys.readouterr().out
    file = two_branches(project, git, ours={"test_b": entry(ADD, MUL)}, theirs={"test_b": entry(MUL)})
    damaged = file.with_name("test_a.nvidia-h200-sm90.json")
    damaged.write_text("<<<<<<< a\n{\n=======\n[\n>>>>>>> b\n")
    assert run(["resolve"]) == 2
    assert str(damaged.relative_to(project)) in capsys.readouterr().err
    assert read(file).entries["test_b"] == entry(ADD, MUL)


@pytest.mark.parametrize("style", ["merge", "diff3"])
def test_without_git_the_markers_tell_the_sides(project, git, capsys, style):
    file = two_branches(project, git, ours={"test_b": entry(ADD, MUL)}, theirs={"test_b": entry(MUL)})
    git("checkout", "-q", f"--conflict={style}", str(file))
    shutil.rmtree(project / ".git")
    assert run(["resolve", str(file)]) == 1
    assert read(file).entries.keys() == {"test_a", "test_b", "test_c"}


def test_a_version_that_cannot_be_read_leaves_the_file(project, git, capsys):
    file = two_branches(project, git, ours={"test_b": entry(ADD, MUL)}, theirs={"test_b": entry(MUL)})
    shutil.rmtree(project / ".git")
    file.write_text(file.read_text().replace('"schema": 2', '"schema": 99'))
    before = file.read_bytes()
    assert run(["resolve", str(file)]) == 2
    assert "schema 99" in capsys.readouterr().err
    assert file.read_bytes() == before


def test_a_side_in_another_form_is_told_with_what_to_do(project, capsys):
    """One branch wrote the file in a form that this version does not read; the line of the schema is the other's."""
    file = project / "test_mlp.cpu-x86_64.json"
    head, _, new = (
        (REPOSITORY / "tests/baselines_before/schema_2/test_steps.cpu-x86_64.json").read_text().partition("\n    ")
    )
    old = new.replace('"steps"', '"launches"')
    mixed = f"{head}\n<<<<<<< HEAD\n    {old}=======\n    {new}>>>>>>> theirs\n"
    file.write_text(mixed)
    assert run(["resolve", str(file)]) == 2
    said = capsys.readouterr().err
    assert "of ours is no baseline" in said
    assert "git checkout --ours" in said
    assert "Object" not in said
    assert file.read_text() == mixed


def test_a_merge_that_cannot_be_written_is_told_and_the_others_are_resolved(project, git, capsys):
    file = two_branches(project, git, ours={"test_b": entry(ADD, MUL)}, theirs={"test_b": entry(MUL)})
    locked = project / "locked" / file.name
    locked.parent.mkdir()
    locked.write_bytes(file.read_bytes())
    (locked.parent / ".torchprof.lock").mkdir()
    assert run(["resolve", str(locked), str(file)]) == 2
    error = capsys.readouterr().err
    assert str(locked) in error
    assert "[baseline-not-written]" in error
    assert read(file).entries["test_b"] == entry(ADD, MUL)


def test_a_merge_that_is_no_utf8_is_left_as_it_is(project, git, capsys):
    file = two_branches(project, git, ours={"test_b": entry(ADD, MUL)}, theirs={"test_b": entry(MUL)})
    damaged = file.read_bytes().replace(b"aten::mul", b"aten::m\xff")
    file.write_bytes(damaged)
    assert run(["resolve", str(file)]) == 2
    assert file.read_bytes() == damaged


def test_list_names_each_entry_with_its_kernels_and_software(project, capsys):
    recorded(project, "test_kept[1]", "test_kept[2] (prefill)")
    assert run(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "tests/__torchprof__/test_mlp.nvidia-h200-sm90.json"
    assert [line.split()[0] for line in lines[1:]] == ["test_kept[1]", "test_kept[2]"]
    assert "(prefill)" in lines[2]
    assert lines[2].endswith("1 kernel, torch 2.13.0, CUDA 13.0")


def test_show_lists_the_kernels_with_counts_and_operators(project, capsys):
    file = recorded(project, "test_kept[1]")
    assert run(["show", str(file)]) == 0
    out = capsys.readouterr().out
    assert "1 x  triton_poi_fused_add_0" in out
    assert "aten::add" in out
    assert "gpu_busy_us 41.2" in out


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_show_is_as_wide_as_the_screen(project, capsys, monkeypatch, columns):
    recorded(project, "test_kept[1]")
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run(["show", "."]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "/" not in line]
    assert max(map(len, lines)) <= columns
    assert any(line.strip().startswith("1 x  triton_poi_fused_add_0") for line in lines)


def test_diff_exits_with_1_where_kernels_differ_and_says_how(project, capsys):
    update(project / "a.json", {"t": entry(ADD), "same": entry(ADD)})
    update(project / "b.json", {"t": entry(ADD, MUL), "same": entry(ADD)})
    assert run(["diff", "a.json", "b.json"]) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[:4] == [
        "t",
        "  worse (+1 kernel)",
        f"    {came('aten::mul', name=MUL.name)}",
        "    kernels 1 -> 2",
    ]
    assert "same" not in "".join(out.splitlines()[:-1])
    assert out.endswith("\n1 of 2 entries the same\n")


def test_diff_of_the_same_says_so(project, capsys):
    update(project / "a.json", {"t": entry(ADD)})
    assert run(["diff", "a.json", "a.json"]) == 0
    assert capsys.readouterr().out == "1 of 1 entry the same\n"


def test_diff_of_other_environments_says_that_the_kernels_are_the_same(project, capsys):
    other = {**entry(ADD).environment, "torch": "2.14.0"}
    update(project / "a.json", {name: entry(ADD) for name in "abc"})
    update(project / "b.json", {name: replace(entry(ADD), environment=other) for name in "abc"})
    assert run(["diff", "a.json", "b.json"]) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said == "3 of 3 entries with the same kernels, and what is said above differs"


def test_diff_exits_with_0_where_only_times_differ(project, capsys):
    update(project / "a.json", {"t": entry(ADD)})
    update(project / "b.json", {"t": replace(entry(ADD), varying={"gpu_busy_us": 410.0})})
    assert run(["diff", "a.json", "b.json"]) == 0
    assert "busy 41.2 us -> 410 us" in capsys.readouterr().out


def test_diff_of_two_devices_says_so_and_compares_structure(project, capsys):
    update(project / "a.json", {"t": entry(ADD), "gone": entry(ADD)})
    update(project / "b.json", {"t": entry(MUL, gpu="NVIDIA H100")})
    assert run(["diff", "a.json", "b.json"]) == 1
    out = capsys.readouterr().out
    assert "the first was recorded on NVIDIA H200, the second used NVIDIA H100" in out
    assert "changed (1 kernel, other environment)" in out
    assert "gone\n  only in the first" in out


def test_diff_of_two_folders_pairs_their_files(project, capsys):
    update(project / "a/x/t.cpu.json", {"t": entry(ADD)})
    update(project / "b/x/t.cpu.json", {"t": entry(ADD, MUL)})
    assert run(["diff", "a", "b"]) == 1
    assert capsys.readouterr().out.startswith("x/t.cpu.json: t\n")


@pytest.mark.usefixtures("forked_pytest")
def test_prune_lists_tests_that_are_gone_and_removes_them_only_with_yes(project, capsys):
    file = recorded(project, "test_kept[1]", "test_kept[3]", "TestGroup::test_in_class (a)", "test_gone (b)")
    before = file.read_bytes()
    assert run(["prune"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "tests/__torchprof__/test_mlp.nvidia-h200-sm90.json: test_mlp.py does not have",
        "    test_gone (b)",
        "    test_kept[3]",
        "2 entries of tests that no longer exist; --yes removes them",
    ]
    assert file.read_bytes() == before
    assert run(["prune", "--yes"]) == 0
    assert set(read(file).entries) == {"test_kept[1]", "TestGroup::test_in_class (a)"}
    assert run(["prune"]) == 0
    assert capsys.readouterr().out.endswith("0 entries of tests that no longer exist\n")


def test_a_deselected_test_is_not_gone(project):
    (project / "tests/test_mlp.py").write_text(TESTS + "\n@pytest.mark.slow\ndef test_slow(): pass\n")
    file = recorded(project, "test_slow")
    assert run(["prune", "--yes"]) == 0
    assert set(read(file).entries) == {"test_slow"}


@pytest.mark.usefixtures("forked_pytest")
@pytest.mark.parametrize("trouble", ["raise ImportError", "import pytest; pytest.skip('no', allow_module_level=True)"])
def test_nothing_is_gone_where_collecting_failed_or_skipped_the_module(project, capsys, trouble):
    (project / "tests/test_mlp.py").write_text(trouble)
    file = recorded(project, "test_gone")
    assert run(["prune", "--yes"]) == 2
    assert "as it is: collecting" in capsys.readouterr().out
    assert set(read(file).entries) == {"test_gone"}


def test_prune_removes_the_baseline_of_a_test_file_that_is_gone(project, capsys):
    file = recorded(project, "test_a", module="test_deleted.py")
    assert run(["prune", "--yes"]) == 0
    assert "its test file does not exist" in capsys.readouterr().out
    assert not file.exists()


@pytest.mark.usefixtures("forked_pytest")
def test_prune_finds_the_test_file_of_a_mirrored_baseline(project, capsys, monkeypatch):
    kept = project / "kept"
    file = recorded(project, "test_gone", "test_kept[1]", baseline_dir=kept)
    monkeypatch.chdir(kept)
    assert run(["prune", "."]) == 2
    assert "--rootdir" in capsys.readouterr().out
    assert run(["prune", "--yes", "--rootdir", str(project), str(kept)]) == 0
    assert set(read(file).entries) == {"test_kept[1]"}


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["frob"], "'frob'"),
        (["list", "--frob"], "unknown option"),
        (["diff", "one.json"], "B"),
        (["show", "none.json"], "No such file"),
        (["prune", "--rootdir"], "--rootdir"),
        (["list", "."], ".: no baseline"),
    ],
)
def test_bad_usage_and_unreadable_files_exit_with_2_and_one_line(tmp_path, monkeypatch, capsys, argv, said):
    monkeypatch.chdir(tmp_path)
    assert run(argv) == 2
    assert said in capsys.readouterr().err


def test_help_is_printed_on_demand_and_named_where_no_command_is_given(capsys):
    assert run(["--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: torchprof baseline")
    assert run([]) == 2
    assert "COMMAND; see torchprof baseline --help" in capsys.readouterr().err


def test_environments_and_hidden_folders_are_not_searched(project, capsys):
    for folder in (".cache", "venv"):
        update(project / folder / "__torchprof__/test_x.cpu.json", {"t": entry(ADD)})
    (project / "venv/pyvenv.cfg").touch()
    recorded(project, "test_kept[1]")
    assert run(["list"]) == 0
    assert "test_x" not in capsys.readouterr().out


def test_the_command_imports_neither_pytest_nor_torch():
    script = "import sys, pytest_torchprof.cli.baseline as b; sys.exit(bool({'pytest', 'torch'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, check=False).returncode == 0
