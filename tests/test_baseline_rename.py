"""A test that was renamed keeps its baseline: the run says so, and `torchprof baseline rename` does it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path

import fresh
import pytest
from facts import of_no_use
from msgspec.structs import replace

from pytest_torchprof.baseline import Entry, KernelRecord, RankEntry, baseline_path, read, update
from pytest_torchprof.cli import main
from pytest_torchprof.reasons.baseline_renames import NothingToRename
from pytest_torchprof.report import Disuse, EntriesDisused

pytestmark = pytest.mark.any_torch

ONE = """
@pytest.mark.torchprof(device="cpu", warmup=0, steps=1)
def test_block():
    torch.mm(x, x)
"""
OTHER = ONE.replace("test_block", "test_other").replace("torch.mm(x, x)", "x.sin()")
THREE = """
@pytest.mark.parametrize("n", ["a b", "c$d", "e"])
@pytest.mark.torchprof(device="cpu", warmup=0, steps=1)
def test_block(n):
    torch.mm(x, x)
"""
COMMAND = "do: torchprof baseline rename "


def commands(result) -> list[list[str]]:
    """Return the words of each command to rename that a run prints."""
    return [shlex.split(line.partition("do: ")[2])[1:] for line in result.outlines if COMMAND in line]


@pytest.fixture
def paste(pytester, monkeypatch):
    """Run a command as it was printed, where the run was started."""

    def run(words: list[str]) -> int:
        monkeypatch.chdir(pytester.path)
        return main(words)

    return run


def entries(pytester) -> dict[str, set[str]]:
    """Return the keys of each test file's baseline."""
    return {file.name.split(".")[0]: set(read(file).entries) for file in pytester.path.rglob("__torchprof__/*.json")}


@pytest.mark.parametrize("args", [(), ("-q",), ("-qq",), ("-v",), ("-n", "1")])
def test_a_run_prints_the_command_and_what_it_does_ends_the_matter(run_tests, pytester, paste, args):
    run_tests(ONE + OTHER, "--torchprof-baseline=update")
    result = run_tests(ONE.replace("test_block", "test_renamed") + OTHER, *args)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [f"*__torchprof__/test_it.cpu-*: {of_no_use(Disuse.RENAMED, 'test_block', became=('test_renamed',))}"]
    )
    assert commands(result) == [["baseline", "rename", "test_it.py::test_block", "test_it.py::test_renamed"]]
    result.stdout.no_fnmatch_line("*baseline prune*")
    assert paste(commands(result)[0]) == 0
    assert entries(pytester) == {"test_it": {"test_renamed", "test_other"}}
    result = run_tests(ONE.replace("test_block", "test_renamed") + OTHER, "--torchprof-baseline=strict", *args)
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*gone*")


@pytest.mark.parametrize("args", [(), ("-q",), ("-n", "1")])
def test_under_strict_it_fails_until_then_and_nobody_is_told_to_add_it(run_tests, paste, args):
    run_tests(ONE + OTHER, "--torchprof-baseline=update")
    renamed = ONE.replace("test_block", "test_renamed") + OTHER
    result = run_tests(renamed, "--torchprof-baseline=strict", *args)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.no_fnmatch_line("*--torchprof-baseline=add*")
    told = " ".join(" ".join(result.outlines).split())
    assert "those of test_block, which is gone" in told
    assert len(commands(result)) == 1
    # A test that is new in truth is to be added.
    result = run_tests(
        ONE + OTHER + OTHER.replace("sin", "cos").replace("test_other", "test_new"), "--torchprof-baseline=strict"
    )
    result.assert_outcomes(failed=1, passed=2)
    result.stdout.fnmatch_lines(["*--torchprof-baseline=add"])


def test_add_writes_no_second_entry_for_it(run_tests, pytester):
    run_tests(ONE, "--torchprof-baseline=update")
    result = run_tests(ONE.replace("test_block", "test_renamed") + OTHER, "--torchprof-baseline=add")
    result.assert_outcomes(passed=2)
    assert len(commands(result)) == 1
    assert entries(pytester) == {"test_it": {"test_block", "test_other"}}
    # Who says so gets it.
    run_tests(ONE.replace("test_block", "test_renamed"), "--torchprof-baseline=update")
    assert "test_renamed" in entries(pytester)["test_it"]


def test_every_report_has_it(run_tests, pytester, monkeypatch):
    run_tests(ONE, "--torchprof-baseline=update")
    run_tests(ONE.replace("test_block", "test_renamed"), "--collect-only")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "summary.md"))
    reports = [f"--torchprof-report=report{suffix}" for suffix in (".json", ".md")]
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", *reports)
    command = 'torchprof baseline rename "test_it.py::test_block" "test_it.py::test_renamed"'
    assert any(line.startswith("::warning file=__torchprof__/test_it.") and command in line for line in result.outlines)
    found = json.loads((pytester.path / "report.json").read_text())
    assert list(found["renamed"].values()) == [["test_block"]]
    assert not found["gone"]
    for page in ("report.md", "summary.md"):
        assert f"(`{command}`)" in (pytester.path / page).read_text()


def test_which_of_two_it_was_is_not_guessed(run_tests):
    run_tests(ONE, "--torchprof-baseline=update")
    two = ONE.replace("test_block", "test_b") + ONE.replace("test_block", "test_c")
    for mode in ("compare", "strict"):
        result = run_tests(two, f"--torchprof-baseline={mode}")
        assert commands(result) == []
        told = " ".join(" ".join(result.outlines).split())
        which = EntriesDisused(Disuse.RENAMED, ("test_block",), ("test_b or test_c",), unclear=True)
        assert str(which) in told
        assert "--torchprof-baseline=add" not in told


def test_two_that_are_gone_and_one_that_is_new_are_not_paired(run_tests):
    run_tests(ONE + ONE.replace("test_block", "test_b"), "--torchprof-baseline=update")
    result = run_tests(ONE.replace("test_block", "test_c"))
    assert commands(result) == []
    assert "not clear" in " ".join(" ".join(result.outlines).split())


def test_other_kernels_are_another_test(run_tests):
    run_tests(ONE, "--torchprof-baseline=update")
    result = run_tests(OTHER, "--torchprof-baseline=strict")
    assert commands(result) == []
    result.stdout.fnmatch_lines(
        ["*--torchprof-baseline=add", f"*{of_no_use(Disuse.GONE, 'test_block')}", "*baseline prune"]
    )


def test_a_test_that_is_only_not_selected_is_not_gone(run_tests):
    run_tests(ONE, "--torchprof-baseline=update")
    both = ONE + ONE.replace("test_block", "test_new")
    assert commands(run_tests(both, "-k", "new", "--torchprof-baseline=strict")) == []
    assert commands(run_tests(both, "test_it.py::test_new")) == []


def test_a_function_with_parameters_is_renamed_at_once(run_tests, pytester, paste):
    run_tests(THREE, "--torchprof-baseline=update")
    renamed = THREE.replace("test_block", "test_new")
    result = run_tests(renamed)
    assert commands(result) == [["baseline", "rename", "test_it.py::test_block", "test_it.py::test_new"]]
    assert paste(commands(result)[0]) == 0
    assert entries(pytester)["test_it"] == {"test_new[a b]", "test_new[c$d]", "test_new[e]"}
    run_tests(renamed, "--torchprof-baseline=strict").assert_outcomes(passed=3)


def test_a_parameter_is_renamed_by_itself_and_its_id_survives_the_shell(run_tests, pytester, paste):
    run_tests(THREE, "--torchprof-baseline=update")
    changed = THREE.replace('"c$d"', '"x`y [z]"')
    result = run_tests(changed)
    old, new = "test_it.py::test_block[c$d]", "test_it.py::test_block[x`y [z]]"
    assert commands(result) == [["baseline", "rename", old, new]]
    assert paste(commands(result)[0]) == 0
    run_tests(changed, "--torchprof-baseline=strict").assert_outcomes(passed=3)


def test_a_class_is_renamed_at_once_and_labels_stay(run_tests, pytester, paste):
    source = """
class TestOld:
    @pytest.mark.torchprof(device="cpu", warmup=0, steps=1)
    def test_body(self):
        torch.mm(x, x)

    @cpu
    def test_labels(self, torchprof):
        for label, function in (("one (a)", torch.sin), ("two", torch.cos)):
            with torchprof.measure(label) as m:
                for _ in m.steps():
                    function(x)
"""
    run_tests(source, "--torchprof-baseline=update")
    result = run_tests(source.replace("TestOld", "TestNew"))
    assert commands(result) == [["baseline", "rename", "test_it.py::TestOld", "test_it.py::TestNew"]]
    assert paste(commands(result)[0]) == 0
    run_tests(source.replace("TestOld", "TestNew"), "--torchprof-baseline=strict").assert_outcomes(passed=1 + 1)
    # One test that moves into a class, with all of its labels.
    moved = source.replace("    def test_labels", "    def test_words").replace("TestOld", "TestNew")
    result = run_tests(moved)
    assert commands(result) == [
        ["baseline", "rename", "test_it.py::TestNew::test_labels", "test_it.py::TestNew::test_words"]
    ]
    assert paste(commands(result)[0]) == 0
    run_tests(moved, "--torchprof-baseline=strict").assert_outcomes(passed=2)


@pytest.mark.parametrize("to", ["test_renamed.py", "sub/test_it.py", "sub/deep/test_renamed.py"])
def test_a_file_that_was_renamed_or_moved_is_one_command(run_tests, pytester, paste, to):
    run_tests(THREE + OTHER + ONE.replace("test_block", "test_first"), "--torchprof-baseline=update")
    (pytester.path / to).parent.mkdir(parents=True, exist_ok=True)
    (pytester.path / "test_it.py").rename(pytester.path / to)
    result = fresh.run_pytest("-p", "no:cacheprovider", "--torchprof-baseline=strict")
    result.assert_outcomes(failed=5)
    assert commands(result) == [["baseline", "rename", "test_it.py", to]]
    result.stdout.no_fnmatch_line("*--torchprof-baseline=add*")
    result.stdout.no_fnmatch_line("*baseline prune, *")
    assert paste(commands(result)[0]) == 0
    assert len(entries(pytester)[Path(to).stem]) == 5
    fresh.run_pytest("-p", "no:cacheprovider", "--torchprof-baseline=strict").assert_outcomes(passed=5)


def test_in_a_file_that_was_renamed_a_test_may_be_renamed_too(run_tests, pytester, paste):
    """All with the same kernels: what is clear leaves one for what is not."""
    run_tests(THREE + ONE.replace("test_block", "test_first"), "--torchprof-baseline=update")
    renamed = (pytester.path / "test_it.py").read_text().replace("test_first", "test_last")
    (pytester.path / "test_it.py").unlink()
    pytester.makepyfile(test_new=renamed)
    result = fresh.run_pytest("-p", "no:cacheprovider")
    first, second = commands(result)
    assert first == ["baseline", "rename", "test_it.py::test_first", "test_new.py::test_last"]
    assert second == ["baseline", "rename", "test_it.py", "test_new.py"]
    assert [paste(first), paste(second)] == [0, 0]
    fresh.run_pytest("-p", "no:cacheprovider", "--torchprof-baseline=strict").assert_outcomes(passed=4)


def test_one_test_that_moved_to_a_file_beside_others_is_renamed_alone(run_tests, pytester, paste):
    run_tests(ONE + OTHER, "--torchprof-baseline=update")
    head = (pytester.path / "test_it.py").read_text().partition("\n@pytest")[0]
    pytester.makepyfile(test_it=head + OTHER, test_more=head + ONE)
    result = fresh.run_pytest("-p", "no:cacheprovider")
    assert commands(result) == [["baseline", "rename", "test_it.py::test_block", "test_more.py::test_block"]]
    assert paste(commands(result)[0]) == 0
    fresh.run_pytest("-p", "no:cacheprovider", "--torchprof-baseline=strict").assert_outcomes(passed=2)


def test_with_a_folder_of_all_baselines_the_command_names_it(run_tests, pytester, paste):
    run_tests(ONE, "--torchprof-baseline=update", "--torchprof-baseline-dir=all kept")
    result = run_tests(ONE.replace("test_block", "test_new"), "--torchprof-baseline-dir=all kept")
    ids = ["test_it.py::test_block", "test_it.py::test_new"]
    assert commands(result) == [["baseline", "rename", *ids, "--baseline-dir", "all kept"]]
    assert paste(commands(result)[0]) == 0
    strict = ("--torchprof-baseline-dir=all kept", "--torchprof-baseline=strict")
    run_tests(ONE.replace("test_block", "test_new"), *strict).assert_outcomes(passed=1)


# The command by itself.

ADD = KernelRecord(name="triton_poi_fused_add_0", family="pointwise", op="aten::add")
ENTRY = Entry(
    source="s",
    environment={"torch": "2.13.0"},
    steps=((ADD,) * 3,),
    numbers={"kernels": 3},
    varying={"gpu_busy_us": 1.0},
)
RANKED = replace(ENTRY, ranks={"1": RankEntry(numbers={"syncs": 1})})


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("test_old.py", "test_new.py"):
        Path(name).touch()
    return tmp_path


def kept(project, *keys, device="cpu-x86_64", module="test_old.py", entry=ENTRY, folder=None):
    file = baseline_path(project / module, project, device, folder)
    update(file, dict.fromkeys(keys, entry))
    return file


def rename(*words: str) -> int:
    return main(["baseline", "rename", *words])


def snapshot(folder: Path) -> dict[Path, object]:
    return {
        path: (path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None)
        for path in folder.rglob("*")
        if not path.name.startswith(".")
    }


def test_it_renames_in_the_files_of_all_devices_and_leaves_the_rest(project, capsys):
    first = kept(project, "test_a", "test_a (b)", "test_ab", entry=RANKED)
    second = kept(project, "test_a[1]", device="nvidia-h200-sm90")
    assert rename("test_old.py::test_a", "test_old.py::test_z") == 0
    assert read(first).entries == dict.fromkeys(("test_z", "test_z (b)", "test_ab"), RANKED)
    assert read(second).entries == {"test_z[1]": ENTRY}
    assert capsys.readouterr().out.splitlines() == [
        "__torchprof__/test_old.cpu-x86_64.json: test_a -> test_z",
        "__torchprof__/test_old.cpu-x86_64.json: test_a (b) -> test_z (b)",
        "__torchprof__/test_old.nvidia-h200-sm90.json: test_a[1] -> test_z[1]",
        "3 entries renamed",
    ]


def test_only_the_lines_of_the_name_change(project):
    file = kept(project, "test_a")
    before = file.read_text()
    assert rename("test_old.py::test_a", "test_old.py::test_z") == 0
    assert file.read_text() == before.replace('"test_a"', '"test_z"')


@pytest.mark.parametrize("folder", [None, "kept"])
def test_a_file_takes_all_of_its_entries_along(project, folder):
    folder = folder and project / folder
    files = [kept(project, "test_a", "TestB::test_c (d)", device=device, folder=folder) for device in ("cpu", "gpu")]
    kept(project, "test_own", device="gpu", module="test_new.py", folder=folder)
    before = files[0].read_bytes()
    assert rename("test_old.py", "test_new.py", *(["--baseline-dir", "kept"] if folder else [])) == 0
    assert not any(file.exists() for file in files)
    cpu, gpu = (baseline_path(project / "test_new.py", project, device, folder) for device in ("cpu", "gpu"))
    assert cpu.read_bytes() == before
    assert read(gpu).entries.keys() == {"test_a", "TestB::test_c (d)", "test_own"}


def test_a_name_that_has_a_baseline_on_any_device_is_refused_and_nothing_is_renamed(project, capsys):
    kept(project, "test_a")
    kept(project, "test_a", "test_z", device="nvidia-h200-sm90")
    before = snapshot(project)
    assert rename("test_old.py::test_a", "test_old.py::test_z") == 2
    said = capsys.readouterr().err
    assert "[bad-usage]" in said
    assert "test_old.nvidia-h200-sm90.json: test_z" in said
    assert snapshot(project) == before


@pytest.mark.parametrize(
    ("old", "new", "tests"),
    [
        ("test_old.py::test_x", "test_old.py::test_z", ("test_a",)),
        ("test_new.py", "test_old.py", ()),
    ],
)
def test_a_name_that_no_baseline_has_is_refused_with_those_that_its_file_has(project, capsys, old, new, tests):
    kept(project, "test_a")
    before = snapshot(project)
    assert rename(old, new) == 2
    assert str(NothingToRename(f"{project}/{old}", old.partition("::")[0], tests)) in capsys.readouterr().err
    assert snapshot(project) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["test_old.py::test_a", "test_new.py"], "one of each"),
        (["test_old.py::test_a"], "NEW"),
        (["test_old.py::", "test_old.py::test_z"], "'test_old.py::' is neither"),
        (["test_old.py::test_a", "test_old.py::test_a"], "two names"),
        (["test_old.py::test_a", "test_none.py::test_a"], "test_none.py: rename it"),
        (["--frob", "a", "b"], "unknown option"),
    ],
)
def test_what_cannot_be_renamed_is_refused_in_a_line_and_nothing_changes(project, capsys, words, said):
    kept(project, "test_a")
    before = snapshot(project)
    assert rename(*words) == 2
    assert said in capsys.readouterr().err
    assert snapshot(project) == before


def test_where_one_file_cannot_be_written_none_is(project, capsys, monkeypatch):
    """As on a full disk: the second of three files fails."""
    for device in ("cpu", "gpu", "tpu"):
        kept(project, "test_a", "test_b", device=device)
    (project / "sub").mkdir()
    (project / "sub/test_new.py").touch()
    before = snapshot(project)
    replaced, calls = os.replace, []

    def fails_once(*names):
        calls.append(names)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        replaced(*names)

    monkeypatch.setattr(os, "replace", fails_once)
    assert rename("test_old.py::test_a", "sub/test_new.py::test_a") == 2
    error = capsys.readouterr().err
    assert "No space left on device" in error
    assert "[baseline-not-written]" in error
    # A folder for the baselines may be left, with nothing in it.
    assert {path: text for path, text in snapshot(project).items() if path in before} == before
    assert not list((project / "sub").rglob("*.json"))


def test_a_damaged_file_is_named_and_nothing_changes(project, capsys):
    kept(project, "test_a")
    damaged = kept(project, "test_a", device="gpu")
    damaged.write_text("{")
    before = snapshot(project)
    assert rename("test_old.py::test_a", "test_old.py::test_z") == 2
    assert str(damaged) in capsys.readouterr().err
    assert snapshot(project) == before


def test_nothing_is_renamed_through_a_link(project, tmp_path_factory, capsys):
    outside = tmp_path_factory.mktemp("outside")
    file = kept(project, "test_a")
    shutil.move(file.parent, outside / "kept")
    (project / "__torchprof__").symlink_to(outside / "kept")
    before = snapshot(outside)
    assert rename("test_old.py::test_a", "test_old.py::test_z") == 2
    assert "[baseline-not-written]" in capsys.readouterr().err
    assert snapshot(outside) == before
    # A file that is a link is replaced, and what it links to stays.
    (project / "__torchprof__").unlink()
    file = kept(project, "test_b")
    file.unlink()
    file.symlink_to(outside / "kept" / file.name)
    assert rename("test_old.py::test_a", "test_old.py::test_z") == 0
    assert set(read(file).entries) == {"test_z"}
    assert snapshot(outside) == before


def test_the_help_names_it(capsys):
    assert main(["baseline", "--help"]) == 0
    assert "rename" in capsys.readouterr().out
