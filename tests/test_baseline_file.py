"""Baseline files: merged, readable, stable, and one clear error for each damage."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING

import filelock
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_torchprof.baseline import (
    Entry,
    KernelRecord,
    from_plain,
    key_of,
    plain,
    read,
    read_or_empty,
    split_key,
    update,
)
from pytest_torchprof.errors import TorchprofError, UnreadableBaseline

if TYPE_CHECKING:
    from pathlib import Path

GEMM = KernelRecord(
    name="nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", family="gemm", dtype="bf16", layout="tn", op="aten::addmm"
)
GELU = KernelRecord(name="triton_poi_fused_gelu_mul_0", family="pointwise")


def entry(
    *,
    kernels: tuple[KernelRecord, ...] = (GEMM, GELU),
    steps: tuple[tuple[int, ...], ...] = ((0, 1, 0),),
    busy: float = 41.2,
    source: str = "0123456789abcdef",
) -> Entry:
    return Entry(
        source=source,
        environment={"gpu": "NVIDIA H200", "compute_capability": "9.0", "torch": "2.13.0", "tf32_matmul": False},
        kernels=kernels,
        steps=steps,
        numbers={"kernels": 3, "launches": 3, "syncs": 0},
        varying={"gpu_busy_us": busy, "cpu_gpu_ratio": 0.61},
    )


def test_what_is_written_is_read_back(tmp_path):
    file = tmp_path / "__torchprof__" / "test_mlp.nvidia-h200-sm90.json"
    update(file, {"test_b": entry(), "test_a[bf16] (prefill)": entry(steps=((0, 1), (1, 0, 0)))})
    assert read(file).entries == {"test_b": entry(), "test_a[bf16] (prefill)": entry(steps=((0, 1), (1, 0, 0)))}


def test_the_file_is_sorted_and_has_one_kernel_per_line_and_an_integer_schema(tmp_path):
    file = tmp_path / "b.json"
    update(file, {"test_b": entry(), "test_a": entry()})
    text = file.read_text()
    assert text.index("test_a") < text.index("test_b")
    assert json.loads(text)["schema"] == 1
    lines = [line.strip().rstrip(",") for line in text.splitlines() if "nvjet" in line]
    assert [json.loads(line) for line in lines] == [
        {
            "name": GEMM.name,
            "family": "gemm",
            "dtype": "bf16",
            "layout": "tn",
            "op": "aten::addmm",
            "count": 2,
        }
    ] * 2
    assert text.endswith("}\n")


def test_long_steps_are_wrapped_and_read_back(tmp_path):
    order = tuple(i % 2 for i in range(83))
    update(tmp_path / "b.json", {"t": entry(steps=(order,))})
    assert max(map(len, (tmp_path / "b.json").read_text().splitlines())) < 200
    assert read(tmp_path / "b.json").entries["t"].steps == (order,)


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


def test_a_time_is_rewritten_only_when_it_moved_by_more_than_a_third_of_its_tolerance(tmp_path):
    file = tmp_path / "b.json"
    for busy, kept in ((100.0, 100.0), (103.0, 100.0), (97.0, 100.0), (104.0, 104.0), (100.6, 104.0)):
        update(file, {"a": entry(busy=busy)}, time_tolerance=0.10)
        assert read(file).entries["a"].varying["gpu_busy_us"] == kept
    update(file, {"a": entry(busy=103.0)}, time_tolerance=0.0)
    assert read(file).entries["a"].varying["gpu_busy_us"] == 103.0


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


DAMAGE = {
    "newer schema": (lambda text: text.replace('"schema": 1', '"schema": 2'), "install a newer pytest-torchprof"),
    "merge markers": (merge_markers, "a merge left its markers"),
    "an entry twice": (lambda text: text.replace("test_b", "test_a"), '"test_a" twice'),
    "cut end": (lambda text: text[: len(text) // 2], "its end is missing"),
    "cut inside a string": (lambda text: text[: text.index("nvjet") + 3], "its end is missing"),
    "empty": (lambda _: "", "it is empty"),
    "not JSON": (lambda text: text.replace(":", "=", 1), "it is not JSON (line 2"),
    "another JSON": (lambda _: "[1, 2]", "no baseline"),
    "no schema": (lambda text: text.replace('"schema": 1', '"schema": "1"'), "no baseline"),
    "wrong type": (lambda text: text.replace('"launches": 3', '"launches": "3"', 1), "`int`, got `str`"),
    "a count below zero": (lambda text: text.replace('"launches": 3', '"launches": -3', 1), ">= 0"),
    "a share below zero": (lambda text: text.replace("0.61", "-0.61", 1), ">= 0"),
    "unknown field": (lambda text: text.replace('"source"', '"sauce"', 1), "sauce"),
    "NaN": (lambda text: text.replace("0.61", "NaN", 1), "NaN"),
    "too deep": (lambda _: "[" * 100_000, "baseline"),
    "endless number": (lambda text: text.replace('"schema": 1', '"schema": ' + "1" * 10_000), "baseline"),
    "a kernel that is not there": (lambda text: text.replace("[0, 1, 0]", "[0, 1, 7]", 1), "merged by hand?"),
    "no step": (
        lambda text: re.sub(r'"steps": \[.*?\n      \]', '"steps": []', text, count=1, flags=re.DOTALL),
        "is empty",
    ),
    "counts that differ": (lambda text: text.replace("[0, 1, 0]", "[0, 1]", 1), "merged by hand?"),
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


@given(data=st.data())
def test_any_entry_survives_a_file_and_a_trip_to_another_process(data, tmp_path_factory):
    rows = tuple(data.draw(st.lists(ROWS, unique=True, min_size=1, max_size=4)))
    every = tuple(range(len(rows)))
    more = data.draw(st.lists(st.lists(st.sampled_from(every), max_size=30).map(tuple), max_size=2, unique=True))
    made = replace(
        entry(kernels=rows, steps=(every, *(order for order in more if order != every))),
        varying=data.draw(st.dictionaries(st.text(), st.floats(0, allow_infinity=False))),
    )
    assert from_plain(json.loads(json.dumps(plain(made)))) == made
    file = tmp_path_factory.mktemp("any") / "b.json"
    update(file, {"k": made})
    assert read(file).entries == {"k": made}
    before = file.read_bytes()
    update(file, {"k": made})
    assert file.read_bytes() == before
