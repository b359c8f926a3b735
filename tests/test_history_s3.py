"""A history in an object store that is reached over HTTP: S3's, as moto's server answers it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from histories import launched, run_of
from msgspec.structs import replace

from pytest_torchprof.cli import main
from pytest_torchprof.history.record import SUFFIX, BadRecord, encode
from pytest_torchprof.history.store import StoreUnusable, records_of
from pytest_torchprof.history.stores import store_at
from pytest_torchprof.history.where import where_of

pytest.importorskip("s3fs", reason="needs s3fs and moto[server]: the extra named stores")
pytest.importorskip("moto.server", reason="needs s3fs and moto[server]: the extra named stores")

pytestmark = pytest.mark.any_torch

# More than are fetched together.
RUNS = [run_of(at, launched("test_m.py::test_b", {"k": 5 + (at > 2)})) for at in range(40)]
KEY, SECRET = "AKIAEXAMPLE", "s3cret/key"


@pytest.fixture(scope="module")
def endpoint():
    """The address of a server of its own process."""
    code = (
        "from moto.server import ThreadedMotoServer\nserver = ThreadedMotoServer(port=0, verbose=False)\nserver.start()\n"
        "print(*server.get_host_and_port(), flush=True)\nimport sys\nsys.stdin.read()"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    _, port = server.stdout.readline().split()
    yield f"http://127.0.0.1:{port}"
    server.communicate("")


@pytest.fixture
def bucket(endpoint, monkeypatch, request):
    """Where a history is: a prefix in a new bucket."""
    import s3fs

    for name, value in {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    name = f"bucket-{abs(hash(request.node.name))}"
    s3fs.S3FileSystem().mkdir(name)
    yield f"s3://{name}/team/[history]"
    s3fs.S3FileSystem.clear_instance_cache()


def store(where):
    return store_at(where_of(where, Path()))


def test_records_go_into_a_bucket_and_come_back_by_their_ids(bucket, capsys, tmp_path):
    import s3fs

    assert not store(bucket).is_there
    for run in RUNS:
        assert store(bucket).add(run)
    assert not store(bucket).add(RUNS[0])
    in_order = sorted(RUNS, key=lambda run: run.uuid)
    assert list(records_of(store(bucket))) == in_order
    names = [name.rpartition("/")[2] for name in s3fs.S3FileSystem().ls(bucket, refresh=True)]
    assert sorted(names) == [f"{run.uuid}{SUFFIX}" for run in in_order]
    assert main(["history", "changes", bucket]) == 0
    assert "kernels 5 -> 6" in capsys.readouterr().out
    assert main(["history", "merge", str(tmp_path / "kept"), bucket]) == 0
    assert capsys.readouterr().out == "40 records added, 0 known, 0 refused\n"


def test_what_others_have_written_since_the_last_look_is_there(bucket):
    import s3fs

    store(bucket).add(RUNS[0])
    assert len(list(records_of(store(bucket)))) == 1
    others = s3fs.S3FileSystem(skip_instance_cache=True)
    others.pipe_file(f"{bucket}/{RUNS[1].uuid}{SUFFIX}", encode(RUNS[1]))
    assert len(list(records_of(store(bucket)))) == 2


def test_an_object_is_written_once(bucket):
    assert store(bucket).add(RUNS[0])
    with pytest.raises(BadRecord, match=RUNS[0].uuid):
        store(bucket).add(replace(RUNS[1], uuid=RUNS[0].uuid))
    assert list(records_of(store(bucket))) == [RUNS[0]]


def test_an_object_that_is_no_record_is_named_and_left_out(bucket, capsys):
    import s3fs

    for run in RUNS[:3]:
        store(bucket).add(run)
    s3fs.S3FileSystem().pipe_file(f"{bucket}/bad{SUFFIX}", encode(RUNS[4])[:-9])
    assert main(["history", "verify", bucket]) == 2
    told = capsys.readouterr()
    assert told.out == "3 records read, 1 cannot be believed\n"
    assert f"bad{SUFFIX}" in told.err


def test_a_bucket_that_is_not_there_is_refused_without_keys(bucket, capsys):
    with pytest.raises(StoreUnusable) as refused:
        store("s3://nowhere-at-all/history").add(RUNS[0])
    assert not {KEY, SECRET} & set(str(refused.value).split())
    assert main(["history", "changes", "s3://nowhere-at-all/history"]) == 2
    told = capsys.readouterr().err
    assert KEY not in told
    assert SECRET not in told


def test_a_run_whose_bucket_does_not_answer_keeps_its_verdict_and_its_record(bucket, run_tests, monkeypatch, capsys):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    source = "import torch\n@cpu\ndef test_it(): torch.mm(torch.ones(4, 4), torch.ones(4, 4))"
    result = run_tests(source, f"--torchprof-history={bucket}", in_process=False)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*--torchprof-history=s3:*.torchprof/outbox*"])
    assert main(["history", "push", "kept"]) == 0
    assert capsys.readouterr().out.endswith("1 record added\n")
