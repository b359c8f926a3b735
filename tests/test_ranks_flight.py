"""A job that hangs names the collective on which each rank stood, where NCCL's flight recorder has dumped it."""

from __future__ import annotations

import json
import os
import pickle

import fresh
import pytest
import rank_jobs

from pytest_torchprof.testing.ranks.flight import last_collective_text


def entry(number, name="all_reduce", state="completed", *, retired=None, group=("0", "default_pg"), **more):
    """Return an entry as torch writes it."""
    return {
        "record_id": number,
        "process_group": group,
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "profiling_name": f"nccl:{name}",
        "state": state,
        "time_discovered_completed_ns": None,
        "retired": state == "completed" if retired is None else retired,
        "is_p2p": False,
        **more,
    }


WAITS = [entry(1), entry(2, "all_gather", "started"), entry(3, state="scheduled")]
BEFORE = [entry(1)]


def as_pickle(entries):
    return pickle.dumps({"version": "2.10", "pg_config": {}, "entries": entries}, protocol=2)


def as_json(entries):
    plain = [{**one, "process_group": list(one["process_group"])} for one in entries]
    return json.dumps({"version": "2.10", "entries": plain, "pg_status": {}}).encode()


def place(folder, text, *, name="nccl_trace_rank_", rank=0, since_s=0.0, **told):
    """Return where a rank stood that has left this dump."""
    (folder / f"{name}{rank}").write_bytes(text)
    return last_collective_text(rank, told or {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(folder / name)}, folder, since_s)


@pytest.mark.parametrize("written", [as_pickle, as_json])
@pytest.mark.parametrize(
    ("entries", "told"),
    [
        (WAITS, "at all_gather 2 of default_pg, begun, not completed"),
        ([entry(4, state="scheduled")], "at all_reduce 4 of default_pg, requested, not begun"),
        (BEFORE, "behind all_reduce 1 of default_pg, which was completed"),
        ([entry(2, "send 0->1", "started", is_p2p=True, p2p_seq_id=7)], "at send 0->1 7 of default_pg, begun, not completed"),
        ([entry(5, state="scheduled", retired=True)], "behind all_reduce 5 of default_pg, which was completed"),
        ([entry(5, state="started", group=("3", ""))], "at all_reduce 5 of 3, begun, not completed"),
        ([], ""),
    ],
)  # fmt: skip
def test_the_first_collective_that_is_not_completed_is_told(tmp_path, written, entries, told):
    assert place(tmp_path, written(entries)) == told


class Attack:
    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return os.mkdir, (self._path,)


def test_nothing_in_a_dump_is_called(tmp_path):
    text = pickle.dumps({"entries": WAITS, "more": Attack(str(tmp_path / "made"))}, protocol=2)
    assert place(tmp_path, text) == ""
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "text", [b"", b"{", b"\x80\x02", b"[1]", b'{"entries": [{"record_id": "x"}]}', as_pickle([{}])]
)
def test_a_dump_that_cannot_be_read_tells_nothing(tmp_path, text):
    assert place(tmp_path, text) == ""


def test_a_dump_of_an_earlier_job_tells_nothing(tmp_path):
    (tmp_path / "trace0").write_bytes(as_json(WAITS))
    written_s = (tmp_path / "trace0").stat().st_mtime
    assert place(tmp_path, as_json(WAITS), name="trace", since_s=written_s + 60) == ""


def test_a_link_and_a_pipe_are_not_read(tmp_path):
    (tmp_path / "real").write_bytes(as_json(WAITS))
    (tmp_path / "link0").symlink_to(tmp_path / "real")
    os.mkfifo(tmp_path / "pipe0")
    for name in ("link", "pipe"):
        assert last_collective_text(0, {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / name)}, tmp_path, 0.0) == ""


@pytest.mark.parametrize("name", ["comm_lib_trace_rank_", "nccl_trace_rank_"])
def test_where_torch_writes_by_default_is_looked(tmp_path, name):
    (tmp_path / ".cache" / "torch").mkdir(parents=True)
    assert place(tmp_path / ".cache" / "torch", as_json(BEFORE), name=name, rank=1, HOME=str(tmp_path))


HANGS = """
import os, time
import pytest, torch

@pytest.mark.torchprof(device="cpu", ranks=2)
def test_it(torchprof):
    with open(f"trace{torchprof.ranks.rank}", "wb") as file:
        file.write([WAITS, BEFORE][torchprof.ranks.rank])
    time.sleep(600)
"""


def test_a_job_that_hangs_names_the_collective_of_each_rank(tmp_path):
    pytest.importorskip("torch")
    head = f"WAITS, BEFORE = {as_pickle(WAITS)!r}, {as_json(BEFORE)!r}\n"
    (tmp_path / "test_it.py").write_text(head + HANGS)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntorchprof_rank_timeout = 2\n")
    words = ("-m", "pytest", "-p", "no:cacheprovider")
    environment = {**os.environ, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "trace", "COLUMNS": "400"}
    done = fresh.run_python(*words, folder=tmp_path, environment=environment, limit_s=rank_jobs.LONGEST_S)
    said = next(line for line in done.stdout.splitlines() if line.startswith("FAILED"))
    assert "in test_it, at all_gather 2 of default_pg, begun, not completed; rank 1 " in said
    assert "in test_it, behind all_reduce 1 of default_pg, which was completed [silent-rank]" in said
