"""``torchprof fleet run`` where recordings lie elsewhere, or the run is kept there."""

from __future__ import annotations

import io
import json
import shutil
import sys
import zipfile

import pytest
from builder import own_recording

from pytest_torchprof.cli import main
from pytest_torchprof.reasons.catalogue import from_plain
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.fleet_sources import NothingThere
from pytest_torchprof.reasons.unreadable import NothingAtAddress

fsspec = pytest.importorskip("fsspec")

pytestmark = [pytest.mark.any_torch, pytest.mark.usefixtures("forked_judges")]


def fleet(*words):
    return main(["fleet", "run", *map(str, words), "--jobs", "2"])


@pytest.fixture
def memory(request):
    """Return an address below which nothing lies yet, and the file system that it is of."""
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    return f"memory://{request.node.name[:30].strip('[')}", files


def written(address, *, kernels):
    """Write a recording that launches so many kernels behind an address."""
    with fsspec.open(address, "wb") as file:
        file.write(own_recording({"one": kernels}).text().encode())


def records_in(folder):
    lines = fsspec.open(f"{folder}/records.jsonl", "rb").open().read().splitlines()
    return {record.get("member", record["url"]).rpartition("/")[2]: record for record in map(json.loads, lines)}


def summary_in(folder):
    return json.loads(fsspec.open(f"{folder}/summary.json", "rb").open().read())


def quarantined(record):
    return from_plain(record["quarantined"]).code


@pytest.mark.parametrize("name", ["", "/no.json", "/no.zip", "/no.jsonl"])
def test_an_address_at_which_nothing_is_is_called_that(memory, tmp_path, capsys, name):
    bucket, _ = memory
    assert fleet(f"{bucket}{name}", "--into", tmp_path / "out", "--retries", 0) == 2
    assert str(NothingThere(f"{bucket}{name}")) in capsys.readouterr().err


def test_what_a_manifest_names_and_never_was_is_not_called_gone(memory, tmp_path):
    bucket, _ = memory
    (tmp_path / "list.jsonl").write_text(f'{{"url": "{bucket}/never.json"}}\n')
    assert fleet(tmp_path / "list.jsonl", "--into", tmp_path / "out", "--retries", 0) == 3
    record = records_in(tmp_path / "out")["never.json"]
    assert from_plain(record["quarantined"]).cause == NothingAtAddress(f"{bucket}/never.json")


def test_addresses_are_files_folders_patterns_archives_and_manifests(memory, tmp_path):
    bucket, files = memory
    for number in range(4):
        written(f"{bucket}/runs/{number}.json", kernels=number + 1)
    files.pipe(f"{bucket}/runs/read.me", b"no recording")
    files.pipe(f"{bucket}/runs/3.stacks.json.gz", b"beside the third")
    with zipfile.ZipFile(tmp_path / "nightly.zip", "w") as packed:
        packed.writestr("deep/in.json", own_recording({"one": 5}).text())
    files.put_file(str(tmp_path / "nightly.zip"), f"{bucket}/nightly.zip")
    (tmp_path / "list.jsonl").write_text(
        f'{{"url": "{bucket}/runs/1.json", "model": "bert"}}\n{{"url": "{bucket}/gone.json"}}\n'
        f'{{"url": "file://{own_recording({"one": 9}).write(tmp_path / "local.json")}"}}\n'
    )
    sources = [f"{bucket}/runs/0.json", f"{bucket}/runs", f"{bucket}/*/[01].json", f"{bucket}/nightly.zip"]
    assert fleet(*sources, tmp_path / "list.jsonl", "--into", tmp_path / "out", "--limit", "max_kernels=4") == 1
    records = records_in(tmp_path / "out")
    assert records.keys() == {"0.json", "1.json", "2.json", "3.json", "in.json", "gone.json", "local.json"}
    assert records["1.json"]["metadata"] == {"model": "bert"}
    assert quarantined(records["gone.json"]) == Code.RECORDING_MISSING
    missed = [name for name, record in records.items() if record.get("result", {}).get("outcome") == "failed"]
    assert sorted(missed) == ["in.json", "local.json"]
    assert "torchprof-" not in json.dumps(records)


def test_archives_in_an_archive_of_a_store_are_said_to_be_passed_over(memory, tmp_path, capsys):
    bucket, files = memory
    inner, outer = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(inner, "w") as packed:
        packed.writestr("in.json", "{}")
    recording = own_recording({"one": 1}).write(tmp_path / "a.json")
    with zipfile.ZipFile(outer, "w") as packed:
        packed.write(recording, "a.json")
        packed.writestr("inner.zip", inner.getvalue())
        packed.writestr("b.json.zst", b"")
    files.pipe(f"{bucket}/outer.zip", outer.getvalue())
    # By whichever sources an archive is named, it counts once.
    assert fleet(f"{bucket}/outer.zip", f"{bucket}/*.zip", "--into", tmp_path / "out") == 0
    shown = capsys.readouterr().err
    assert "1 archive and 0 links" in shown
    assert ": 1 file that may be" in " ".join(shown.split())


def test_a_pattern_of_addresses_that_matches_folders_means_what_they_hold(memory, tmp_path):
    bucket, files = memory
    for number, folder in enumerate(("runs/bert", "runs/gpt/deep", "runs")):
        written(f"{bucket}/{folder}/{number}.json", kernels=number + 1)
    files.pipe(f"{bucket}/runs/bert/read.me", b"no recording")
    assert fleet(f"{bucket}/runs/*", "--into", tmp_path / "out", "--limit", "max_kernels=4") == 0
    assert records_in(tmp_path / "out").keys() == {"0.json", "1.json", "2.json"}


@pytest.mark.parametrize("source", ["/runs", "/ru*"])
def test_archives_in_a_folder_of_a_store_are_said_to_be_passed_over(source, memory, tmp_path, capsys):
    bucket, files = memory
    written(f"{bucket}/runs/a.json", kernels=1)
    for name in ("more.zip", "deep/more.ZIP", "old.tar.gz"):
        files.pipe(f"{bucket}/runs/{name}", b"packed")
    assert fleet(bucket + source, f"{bucket}/runs", "--into", tmp_path / "out") == 0
    shown = capsys.readouterr().err
    assert "2 archives" in shown
    assert "tar archives: 1 file" in shown


@pytest.mark.parametrize("source", ["/runs", "/ru*"])
def test_a_folder_of_a_store_is_listed_once(source, memory, tmp_path, monkeypatch):
    bucket, files = memory
    written(f"{bucket}/runs/a.json", kernels=1)
    listed, find = [], type(files).find

    def counted(self, path, *args, **kwargs):
        listed.append(path)
        return find(self, path, *args, **kwargs)

    monkeypatch.setattr(type(files), "find", counted)
    assert fleet(bucket + source, "--into", tmp_path / "out") == 0
    assert len([path for path in listed if path.strip("/").endswith("/runs")]) == 1


def test_a_manifest_may_lie_beside_what_it_lists(memory, tmp_path):
    bucket, files = memory
    written(f"{bucket}/runs/a.json", kernels=1)
    files.pipe(f"{bucket}/runs/list.jsonl", b'{"url": "a.json", "gpu": "H100"}\n')
    assert fleet(f"{bucket}/runs/list.jsonl", "--into", tmp_path / "out") == 0
    assert records_in(tmp_path / "out")["a.json"]["metadata"] == {"gpu": "H100"}


def test_what_a_store_calls_another_version_is_another_file(memory, tmp_path):
    bucket, _ = memory
    for name in ("same", "changed"):
        written(f"{bucket}/{name}.json", kernels=1)
    words = [bucket, "--into", tmp_path / "out"]
    assert fleet(*words) == 0
    keys = {name: record["key"] for name, record in records_in(tmp_path / "out").items()}
    shutil.rmtree(tmp_path / "out" / "parts")
    written(f"{bucket}/changed.json", kernels=1)
    assert fleet(*words) == 3
    records = records_in(tmp_path / "out")
    assert quarantined(records["changed.json"]) == Code.RECORDING_CHANGED
    assert "result" in records["same.json"]
    assert fleet(bucket, "--into", tmp_path / "again") == 0
    again = {name: record["key"] for name, record in records_in(tmp_path / "again").items()}
    assert again["same.json"] == keys["same.json"]
    assert again["changed.json"] != keys["changed.json"]


def test_a_manifest_says_which_version_and_size_are_meant(memory, tmp_path):
    bucket, _ = memory
    lines = []
    for name, said in {"size": {"size": 7}, "etag": {"etag": '"abc"', "size": 7}, "none": {}}.items():
        written(f"{bucket}/{name}.json", kernels=1)
        lines.append(json.dumps({"url": f"{bucket}/{name}.json", **said}))
    (tmp_path / "list.jsonl").write_text("\n".join(lines))
    assert fleet(tmp_path / "list.jsonl", "--into", tmp_path / "out") == 3
    records = records_in(tmp_path / "out")
    assert [quarantined(records[name]) for name in ("size.json", "etag.json")] == [Code.RECORDING_CHANGED] * 2
    assert "result" in records["none.json"]
    listed = json.loads((tmp_path / "out" / "list.json").read_text())["files"]
    assert [(file["size"], file["etag"]) for file in listed if "etag.json" in file["url"]] == [(7, "abc")]


@pytest.mark.parametrize(
    ("module", "command"), [("fsspec", "pip install 'pytest-torchprof[fleet]'"), ("s3fs", "pip install s3fs")]
)
def test_a_library_that_is_not_installed_is_named(monkeypatch, tmp_path, capsys, module, command):
    monkeypatch.setitem(sys.modules, module, None)
    assert fleet("s3://bucket/traces", "--into", tmp_path / "out") == 2
    assert command in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("source", "into"),
    [("nothing://bucket/x", "out"), ("memory://empty/", "out"), ("memory://full", "https://host/out")],
)
def test_an_address_that_means_nothing_is_told(memory, tmp_path, monkeypatch, capsys, source, into):
    monkeypatch.chdir(tmp_path)
    written("memory://full/a.json", kernels=1)
    assert fleet(source, "--into", into) == 2
    assert (into if into != "out" else source) in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_password_is_shown_nowhere(tmp_path, capsys):
    pytest.importorskip("aiohttp")
    (tmp_path / "list.jsonl").write_text(
        '{"url": "http://me:secret@127.0.0.1:1/a.json?token=hidden", "size": 5, "etag": "x"}\n'
    )
    assert fleet(tmp_path / "list.jsonl", "--retries", 0, "--into", tmp_path / "out") == 3
    assert "http://me:***@127.0.0.1:1/a.json?token=***" in capsys.readouterr().out
    shown = (tmp_path / "out" / "records.jsonl").read_text()
    assert not {"secret", "hidden"} & {word for word in ("secret", "hidden") if word in shown}


def test_a_run_may_be_kept_behind_an_address(memory, tmp_path, capsys):
    bucket, files = memory
    for number in range(5):
        written(f"{bucket}/runs/{number}.json", kernels=number + 1)
    words = [f"{bucket}/runs", "--limit", "max_kernels=3", "--into"]
    assert fleet(*words, tmp_path / "here") == 1
    assert fleet(*words, f"{bucket}/runs/out") == 1
    for name in ("summary.json", "records.jsonl"):
        assert files.cat(f"{bucket}/runs/out/{name}") == (tmp_path / "here" / name).read_bytes()
    assert summary_in(f"{bucket}/runs/out")["missed"] == 2
    parts = files.ls(f"{bucket}/runs/out/parts", detail=False)
    capsys.readouterr()
    # What is there is not judged again, and what was lost is.
    assert fleet(*words, f"{bucket}/runs/out") == 1
    assert files.ls(f"{bucket}/runs/out/parts", detail=False) == parts
    assert capsys.readouterr().err == ""
    files.rm(parts[0])
    assert fleet(*words, f"{bucket}/runs/out", "--shard", "1/2") in (0, 1)
    assert fleet(*words, f"{bucket}/runs/out") == 1
    assert files.cat(f"{bucket}/runs/out/summary.json") == (tmp_path / "here" / "summary.json").read_bytes()
    assert fleet(f"{bucket}/runs", "--into", f"{bucket}/runs/out") == 2
    assert f"{bucket}/runs/out" in capsys.readouterr().err
