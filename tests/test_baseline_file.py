"""Baseline files: merged, readable, stable, and one clear error for each damage."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING

import filelock
import pytest
from facts import says
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert, to_builtins
from msgspec.structs import replace

from pytest_torchprof.baseline import (
    Entry,
    EntryFields,
    KernelRecord,
    RankEntry,
    entry_from,
    fields_of,
    key_of,
    read,
    read_or_empty,
    split_key,
    update,
)
from pytest_torchprof.baseline.form import MOST_LAUNCHES_IN_FILE
from pytest_torchprof.reasons.errors import TorchprofError, UnreadableBaseline
from pytest_torchprof.reasons.not_written import BaselineBehindLink
from pytest_torchprof.reasons.unreadable import InsteadOfFile

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.any_torch

GEMM = KernelRecord(
    name="nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", family="gemm", dtype="bf16", layout="tn", op="aten::addmm"
)
GELU = KernelRecord(name="triton_poi_fused_gelu_mul_0", family="pointwise")


def entry(
    *,
    steps: tuple[tuple[KernelRecord, ...], ...] = ((GEMM, GELU, GEMM),),
    busy: float = 41.2,
    source: str = "0123456789abcdef",
) -> Entry:
    return Entry(
        source=source,
        environment={"gpu": "NVIDIA H200", "compute_capability": "9.0", "torch": "2.13.0", "tf32_matmul": False},
        steps=steps,
        numbers={"kernels": max(map(len, steps)), "launches": 3, "syncs": 0},
        varying={"gpu_busy_us": busy, "cpu_gpu_ratio": 0.61},
    )


def test_what_is_written_is_read_back(tmp_path):
    file = tmp_path / "__torchprof__" / "test_mlp.nvidia-h200-sm90.json"
    update(file, {"test_b": entry(), "test_a[bf16] (prefill)": entry(steps=((GEMM, GELU), (GELU, GEMM, GEMM)))})
    assert read(file).entries == {
        "test_b": entry(),
        "test_a[bf16] (prefill)": entry(steps=((GEMM, GELU), (GELU, GEMM, GEMM))),
    }


def test_what_another_rank_has_otherwise_stands_in_its_entry_and_that_rank_is_compared_with_it(tmp_path):
    file = tmp_path / "b.json"
    other = entry(steps=((GEMM, GELU, GEMM, GELU),))
    made = replace(entry(), ranks={"2": other.unlike(entry(), steps=True)})
    update(file, {"test_a": made})
    assert read(file).entries == {"test_a": made}
    assert json.loads(file.read_text())["entries"]["test_a"]["ranks"].keys() == {"2"}
    assert made.of_rank(0) is made.of_rank(1) is made
    assert (made.of_rank(2).steps, made.of_rank(2).numbers) == (other.steps, other.numbers)
    assert entry().unlike(entry(), steps=False) is None
    update(file, {"test_a": replace(made, ranks={})})
    assert "ranks" not in file.read_text()


def test_the_file_is_sorted_and_has_one_kernel_per_line_and_an_integer_schema(tmp_path):
    file = tmp_path / "b.json"
    update(file, {"test_b": entry(), "test_a": entry()})
    text = file.read_text()
    assert text.index("test_a") < text.index("test_b")
    assert json.loads(text)["schema"] == 2
    lines = [line.strip().rstrip(",") for line in text.splitlines() if "nvjet" in line]
    assert [json.loads(line) for line in lines] == [
        {
            "name": GEMM.name,
            "family": "gemm",
            "dtype": "bf16",
            "layout": "tn",
            "op": "aten::addmm",
        }
    ] * 4
    assert text.endswith("}\n")


def test_an_update_leaves_other_entries_as_they_are_and_none_removes_one(tmp_path):
    file = tmp_path / "b.json"
    update(file, {"a": entry(), "b": entry(source="b"), "c": entry()})
    update(file, {"a": None, "c": entry(source="new"), "never_there": None})
    assert {key: kept.source for key, kept in read(file).entries.items()} == {"b": "b", "c": "new"}


def test_removing_the_last_entry_removes_the_file_and_removing_from_none_makes_none(tmp_path):
    file = tmp_path / "folder" / "b.json"
    update(file, {"a": None})
    assert not file.parent.exists()
    update(file, {"a": entry()})
    update(file, {"a": None})
    assert not file.exists()
    assert read_or_empty(file).entries == {}


def test_two_updates_in_a_row_give_the_same_bytes_and_do_not_touch_the_file(tmp_path):
    file = tmp_path / "b.json"
    update(file, {"a": entry(), "b": entry()})
    first, stamp = file.read_bytes(), file.stat().st_mtime_ns
    update(file, {"b": entry(), "a": entry()})
    assert (file.read_bytes(), file.stat().st_mtime_ns) == (first, stamp)


def test_only_the_baseline_shows_in_git(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    folder = tmp_path / "__torchprof__"
    update(folder / "test_a.cpu-x86_64.json", {"a": entry()})
    (folder / ".torchprof.999999.tmp").write_text("left by a killed update")
    status = subprocess.run(
        ["git", "-C", str(tmp_path), "status", "--porcelain", "-uall"], check=True, capture_output=True, text=True
    )
    assert status.stdout.split() == ["??", "__torchprof__/test_a.cpu-x86_64.json"]


def test_a_folders_own_gitignore_is_left_alone(tmp_path):
    (tmp_path / ".gitignore").write_text("mine\n")
    update(tmp_path / "b.json", {"a": entry()})
    assert (tmp_path / ".gitignore").read_text() == "mine\n"


def test_a_file_keeps_its_permissions_and_a_new_one_gets_the_usual_ones(tmp_path):
    file = tmp_path / "b.json"
    usual = tmp_path / "usual"
    usual.touch()
    update(file, {"a": entry()})
    assert file.stat().st_mode == usual.stat().st_mode
    file.chmod(0o640)
    update(file, {"b": entry()})
    assert file.stat().st_mode & 0o777 == 0o640


def good(tmp_path: Path) -> str:
    update(tmp_path / "good.json", {"test_a": entry(), "test_b": entry()})
    return (tmp_path / "good.json").read_text()


def merge_markers(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:4], "<<<<<<< HEAD\n", *lines[4:6], "=======\n", *lines[4:6], ">>>>>>> main\n", *lines[6:]])


def repeated(text: str, *, repeat: int, only_in: str | None = None) -> str:
    """Return the text with its first gemm that stands by itself made a block."""
    line = re.search(r'^ {10}(\{"family": "gemm".*\}),?$', text, flags=re.MULTILINE)
    only = "" if only_in is None else f'"only_in": "{only_in}", '
    block = f'{{"repeat": {repeat}, "kernels": [{{{only}{line[1][1:]}, "end"]}}'
    return text[: line.start(1)] + block + text[line.end(1) :]


LINE_OF_ALL = '{"only_in": "1-999999", "name": "k"}'
DAMAGE = {
    "older schema": (lambda text: text.replace('"schema": 2', '"schema": 1'), "reads schema 2 alone"),
    "newer schema": (lambda text: text.replace('"schema": 2', '"schema": 3'), "[baseline-newer]"),
    "merge markers": (merge_markers, "[baseline-merged]"),
    "an entry twice": (lambda text: text.replace("test_b", "test_a"), '"test_a" twice'),
    "cut end": (lambda text: text[: len(text) // 2], "end is missing"),
    "cut inside a string": (lambda text: text[: text.index("nvjet") + 3], "end is missing"),
    "empty": (lambda _: "", "it is empty"),
    "not JSON": (lambda text: text.replace(":", "=", 1), "not JSON (line 2"),
    "another JSON": (lambda _: "[1, 2]", "no baseline"),
    "no schema": (lambda text: text.replace('"schema": 2', '"schema": "1"'), "no baseline"),
    "wrong type": (lambda text: text.replace('"launches": 3', '"launches": "3"', 1), "`int | null`, got `str`"),
    "a count below zero": (lambda text: text.replace('"launches": 3', '"launches": -3', 1), ">= 0"),
    "a share below zero": (lambda text: text.replace("0.61", "-0.61", 1), ">= 0"),
    "unknown field": (lambda text: text.replace('"source"', '"sauce"', 1), "sauce"),
    "NaN": (lambda text: text.replace("0.61", "NaN", 1), "NaN"),
    "too deep": (lambda _: "[" * 100_000, "baseline"),
    "endless number": (lambda text: text.replace('"schema": 2', '"schema": ' + "1" * 10_000), "baseline"),
    "no step": (
        lambda text: re.sub(r'"steps": \[.*?\n      \]', '"steps": []', text, count=1, flags=re.DOTALL),
        "length >= 1",
    ),
    "a round without a block": (
        lambda text: text.replace('{"family": "gemm"', '{"only_in": "1", "family": "gemm"', 1),
        "merged by hand?",
    ),
    "a round beyond the last": (lambda text: repeated(text, repeat=3, only_in="2, 4"), "merged by hand?"),
    "rounds that are not in order": (lambda text: repeated(text, repeat=9, only_in="4-3"), "not in order"),
    "rounds that overlap": (lambda text: repeated(text, repeat=9, only_in="1-3, 2"), "not in order"),
    "a number that is infinite": (lambda text: text.replace("0.61", "1e999", 1), "1e999"),
    "a block without a kernel": (
        lambda text: text.replace('"end"', '{"repeat": 9, "kernels": ["end"]}, "end"', 1),
        "has no kernel",
    ),
    "a few bytes that stand for billions of rounds": (
        lambda text: text.replace(
            '"end"', f'{{"repeat": 999999, "kernels": [{LINE_OF_ALL}, {LINE_OF_ALL}, "end"]}}, "end"', 1
        ),
        "1,000,000 launches",
    ),
    "a round that is no number": (lambda text: repeated(text, repeat=3, only_in="2-"), "only_in"),
    "a block of nothing": (lambda text: repeated(text, repeat=0, only_in="1"), ">= 1"),
    "no end": (lambda text: re.sub(r',\n +"end"', "", text, count=1), 'close with "end"'),
    "a step of billions": (lambda text: repeated(text, repeat=4_000_000_000, only_in="1"), "repeat"),
    "steps of millions": (lambda text: repeated(repeated(text, repeat=999_999), repeat=999_999), "1,000,000 launches"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_one_error_with_file_and_remedy_and_stays_byte_identical(tmp_path, damage):
    spoil, said = DAMAGE[damage]
    file = tmp_path / "b.json"
    file.write_text(spoil(good(tmp_path)))
    before = file.read_bytes()
    for use in (read, read_or_empty, lambda path: update(path, {"test_c": entry()})):
        with pytest.raises(UnreadableBaseline) as error:
            use(file)
        assert str(file) in str(error.value)
        assert said in str(error.value)
        assert "--torchprof-baseline=update" in str(error.value) or "newer" in str(error.value)
    assert file.read_bytes() == before


def test_bytes_that_are_no_text_are_an_error_and_stay(tmp_path):
    file = tmp_path / "b.json"
    file.write_bytes(b"\xff\xfe{}")
    with pytest.raises(UnreadableBaseline, match="UTF-8"):
        update(file, {"a": entry()})
    assert file.read_bytes() == b"\xff\xfe{}"


def test_a_missing_file_or_a_folder_is_an_error_to_read(tmp_path):
    with pytest.raises(UnreadableBaseline, match="No such file"):
        read(tmp_path / "none.json")
    with pytest.raises(UnreadableBaseline, match=r"[Dd]irectory"):
        read(tmp_path)


def test_a_folder_that_cannot_be_made_is_one_error_that_says_so(tmp_path):
    (tmp_path / "__torchprof__").write_text("a file in its place")
    with pytest.raises(TorchprofError, match="not written"):
        update(tmp_path / "__torchprof__" / "b.json", {"a": entry()})


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    file = tmp_path / "b.json"
    update(file, {"a": entry()})
    before = file.read_bytes()

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TorchprofError, match="No space left on device"):
        update(file, {"b": entry()})
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [".gitignore", ".torchprof.lock", "b.json"]


def test_a_lock_that_is_never_given_back_is_an_error_that_names_it(tmp_path, monkeypatch):
    monkeypatch.setattr("pytest_torchprof.baseline.file.LOCK_SECONDS", 0.1)
    with filelock.FileLock(tmp_path / ".torchprof.lock"), pytest.raises(TorchprofError, match=r"\.torchprof\.lock"):
        update(tmp_path / "b.json", {"a": entry()})
    assert not (tmp_path / "b.json").exists()


NASTY = (
    "test_x[" + "a" * 300 + "]",
    "test_x[../../../etc/passwd]",
    "test_x[a/b\\c]",
    "test_größe[日本語]",
    "test_x[\x1b[31mred\u202e]",
    "test_x[\ud800]",
    "..",
    "",
)


@pytest.mark.parametrize("key", NASTY)
def test_a_test_id_of_any_shape_is_data_in_the_file(tmp_path, key):
    file = tmp_path / "__torchprof__" / "b.json"
    update(file, {key: entry(), "other": entry()})
    assert set(read(file).entries) == {key, "other"}
    assert {path.name for path in tmp_path.iterdir()} == {"__torchprof__"}
    assert {path.name for path in file.parent.iterdir()} == {"b.json", ".gitignore", ".torchprof.lock"}
    assert all(line.isprintable() for line in file.read_text().split("\n"))


def test_keys_of_two_measurements_never_collide():
    assert key_of("tests/test_x.py::TestA::test_b[p]", None) == "TestA::test_b[p]"
    assert key_of("tests/test_x.py::TestA::test_b[p]", "prefill") == "TestA::test_b[p] (prefill)"
    assert key_of("test_x.py::item (a)", None) != key_of("test_x.py::item", "a")
    assert key_of("test_x.py::t[a] (b", "c") != key_of("test_x.py::t[a]", "b (c")


@given(st.text(), st.one_of(st.none(), st.text(min_size=1)))
def test_a_key_gives_back_its_test_and_label(test, label):
    assert split_key(key_of(f"test_x.py::{test}", label)) == (test, label)


ROWS = st.builds(
    KernelRecord,
    name=st.text(min_size=1),
    family=st.sampled_from(["gemm", "pointwise"]),
    dtype=st.sampled_from([None, "bf16"]),
    op=st.one_of(st.none(), st.text()),
)


def of_rank(steps):
    if steps is None:
        return RankEntry(numbers={"syncs": 3})
    return RankEntry(steps=tuple(steps), numbers={"kernels": max(map(len, steps)), "launches": None})


@given(data=st.data())
def test_any_entry_survives_a_file_and_a_trip_to_another_process(data, tmp_path_factory):
    kernels = st.sampled_from(data.draw(st.lists(ROWS, unique=True, min_size=1, max_size=4)))
    orders = st.lists(st.lists(kernels, max_size=30).map(tuple), min_size=1, max_size=3, unique=True)
    ranks = data.draw(st.dictionaries(st.sampled_from(["1", "2", "12"]), st.none() | orders))
    made = replace(
        entry(steps=tuple(data.draw(orders))),
        ranks={rank: of_rank(steps) for rank, steps in ranks.items()},
        varying=data.draw(st.dictionaries(st.text(), st.floats(0, allow_infinity=False))),
    )
    assert entry_from(convert(json.loads(json.dumps(to_builtins(fields_of(made)))), EntryFields)) == made
    file = tmp_path_factory.mktemp("any") / "b.json"
    update(file, {"k": made})
    assert read(file).entries == {"k": made}
    before = file.read_bytes()
    update(file, {"k": made})
    assert file.read_bytes() == before


KERNEL = {"name": "k", "family": "gemm"}


def entries_of(*steps, count=1):
    entry = {"source": "s", "environment": {}, "steps": list(steps), "numbers": {}, "varying": {}}
    return json.dumps({"schema": 2, "entries": {f"test_{n}": entry for n in range(count)}})


def one_entry():
    return entry_from(convert(json.loads(entries_of([KERNEL, "end"]))["entries"]["test_0"], EntryFields))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (lambda: " " * 17 * 1024**2, "than any baseline"),
        (lambda: entries_of([KERNEL, "end"], count=10_001), "more than 10,000 entries"),
        (lambda: entries_of(*[[{**KERNEL, "op": str(n)}, "end"] for n in range(10_001)]), "10,000 launch orders"),
        (lambda: entries_of([*[{**KERNEL, "name": str(n)} for n in range(10_001)], "end"]), "more than 10,000 names"),
    ],
)
def test_a_file_of_more_than_anybody_measures_is_refused(tmp_path, text, reason):
    path = tmp_path / "test_it.cpu-x86_64.json"
    path.write_text(text())
    with pytest.raises(UnreadableBaseline, match=reason):
        read(path)


def test_a_file_of_more_launches_than_anybody_measures_is_refused(tmp_path, monkeypatch):
    """Each entry alone has fewer; in a tenth of so many, which take seconds."""
    monkeypatch.setattr("pytest_torchprof.baseline.form.MOST_LAUNCHES_IN_FILE", MOST_LAUNCHES_IN_FILE // 10)
    path = tmp_path / "test_it.cpu-x86_64.json"
    path.write_text(entries_of([{"repeat": 40_000, "kernels": [KERNEL, "end"]}, "end"], count=20))
    with pytest.raises(UnreadableBaseline, match="more than 400,000 launches"):
        read(path)


def test_the_files_of_an_update_are_not_written_through_links(tmp_path):
    """A checkout may link to anywhere."""
    victim, folder = tmp_path / "victim", tmp_path / "__torchprof__"
    victim.write_text("kept")
    folder.mkdir()
    for name in (".gitignore", "test_it.cpu-x86_64.json"):
        (folder / name).symlink_to(victim)
    (folder / "test_it.cpu-x86_64.json").unlink()
    update(
        folder / "test_it.cpu-x86_64.json",
        {"test_it": one_entry()},
    )
    assert victim.read_text() == "kept"
    assert not (folder / ".gitignore").is_symlink()


def test_no_baseline_is_written_through_a_folder_that_is_a_link(tmp_path):
    outside, folder = tmp_path / "outside", tmp_path / "__torchprof__"
    outside.mkdir()
    folder.symlink_to(outside)
    entry = one_entry()
    with pytest.raises(TorchprofError) as refused:
        update(folder / "test_it.cpu-x86_64.json", {"test_it": entry})
    assert says(refused.value.reason, BaselineBehindLink, folder=str(folder))
    assert list(outside.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_nobody_waits_for_a_baseline_that_is_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "test_it.cpu-x86_64.json")
    with pytest.raises(UnreadableBaseline, match=str(InsteadOfFile.SPECIAL)):
        read(tmp_path / "test_it.cpu-x86_64.json")
