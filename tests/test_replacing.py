"""Files that appear whole or not at all."""

from __future__ import annotations

import os

import pytest

from pytest_torchprof.system.replacing import UNFINISHED, replacing

pytestmark = pytest.mark.any_torch


@pytest.mark.parametrize("lasting", [False, True])
def test_a_file_takes_its_place_when_it_is_written(tmp_path, lasting):
    path = tmp_path / "file"
    path.write_text("before")
    with replacing(path, lasting=lasting) as unfinished:
        unfinished.write_text("after")
        assert path.read_text() == "before"
        assert [file.name for file in tmp_path.glob(UNFINISHED)] == [unfinished.name]
    assert path.read_text() == "after"
    assert os.listdir(tmp_path) == ["file"]  # noqa: PTH208 - hidden files too


@pytest.mark.parametrize("problem", [KeyboardInterrupt, OSError])
def test_what_fails_half_way_leaves_what_was_there_and_nothing_beside_it(tmp_path, problem):
    path = tmp_path / "file"
    path.write_text("before")

    def write_half() -> None:
        with replacing(path) as unfinished:
            unfinished.write_text("half")
            raise problem

    with pytest.raises(problem):
        write_half()
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["file"]  # noqa: PTH208 - hidden files too


def test_a_link_is_replaced_and_not_written_through(tmp_path):
    (tmp_path / "mine").write_text("kept")
    (tmp_path / "file").symlink_to(tmp_path / "mine")
    with replacing(tmp_path / "file") as unfinished:
        unfinished.write_text("new")
    assert (tmp_path / "mine").read_text() == "kept"
    assert not (tmp_path / "file").is_symlink()


def test_two_at_once_do_not_meet(tmp_path):
    with replacing(tmp_path / "a") as first, replacing(tmp_path / "a") as second:
        first.write_text("first")
        second.write_text("second")
    assert (tmp_path / "a").read_text() == "first"
