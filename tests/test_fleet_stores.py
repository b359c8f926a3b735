"""A fleet in stores of Google and Hugging Face, as far as servers on this machine that answer like them show it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

import pytest
from builder import own_recording

from pytest_torchprof.reasons.catalogue import from_plain
from pytest_torchprof.reasons.codes import Code

pytest.importorskip("fsspec")

pytestmark = pytest.mark.any_torch

PROGRAM = "import sys\nfrom pytest_torchprof.cli import main\nif __name__ == '__main__':\n    sys.exit(main(['fleet', *sys.argv[1:]]))"


@pytest.fixture
def fleet(tmp_path):
    """Return a function that runs the command as a program with such an environment, and returns status and output."""

    def run(*words, **environment):
        script = tmp_path / "fleet_script.py"
        script.write_text(PROGRAM)
        done = subprocess.run(
            [sys.executable, str(script), *map(str, words)],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def records_in(folder):
    lines = (folder / "records.jsonl").read_text().splitlines()
    return {record["url"].rpartition("/")[2]: record for record in map(json.loads, lines)}


def code_of(record):
    return from_plain(record["quarantined"]).code


@pytest.fixture
def google(tmp_path):
    """Return the environment in which gcsfs asks an emulator with a bucket ``traces``, and the bucket's files."""
    pytest.importorskip("gcsfs", reason="needs gcsfs and gcp-storage-emulator: the extra named stores")
    emulator = pytest.importorskip(
        "gcp_storage_emulator.server", reason="needs gcsfs and gcp-storage-emulator: the extra named stores"
    )
    server = emulator.create_server("127.0.0.1", 0, in_memory=True, default_bucket="traces")
    server.start()
    host, port = server._api._httpd.server_address
    environment = {
        "STORAGE_EMULATOR_HOST": f"http://{host}:{port}",
        # What it tries of its own accord is not in the emulator, nor needed.
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
    }
    yield environment
    server.stop()


PUT = """
import sys, fsspec
files = fsspec.filesystem("gs")
for source, target in zip(sys.argv[1::2], sys.argv[2::2]):
    files.put_file(source, target)
"""


def put(environment, **files):
    words = [str(part) for name, path in files.items() for part in (path, f"traces/nightly/{name}.json.gz")]
    subprocess.run([sys.executable, "-c", PUT, *words], env={**os.environ, **environment}, check=True)


def test_google_cloud_storage_has_sources_and_runs(fleet, google, tmp_path):
    local = {
        name: own_recording({"one": number}).write(tmp_path / f"{name}.json.gz") for number, name in enumerate("abc", 1)
    }
    put(google, **local)
    words = ["run", "gs://traces/nightly/", "--limit", "max_kernels=2", "--jobs", "2", "--into"]
    status, output = fleet(*words, tmp_path / "here", **google)
    assert (status, output.splitlines()[0][:24]) == (1, "3 files listed: 3 judged")
    for shard in ("1/2", "2/2"):
        assert fleet(*words, "gs://traces/out", "--shard", shard, **google)[0] in (0, 1)
    assert fleet(*words, "gs://traces/out", **google)[0] == 1
    status, output = fleet("status", "gs://traces/out", "--json", **google)
    assert (status, json.loads(output)["files"]["judged"]) == (1, 3)
    put(google, b=own_recording({"one": 7}).write(tmp_path / "again.json.gz"))
    for part in (tmp_path / "here" / "parts").iterdir():
        part.unlink()
    assert fleet(*words, tmp_path / "here", **google)[0] == 1
    records = records_in(tmp_path / "here")
    assert code_of(records["b.json.gz"]) == Code.RECORDING_CHANGED
    assert {name: record.get("result", {}).get("outcome") for name, record in records.items()} == {
        "a.json.gz": "passed", "b.json.gz": None, "c.json.gz": "failed"
    }  # fmt: skip


class Hub(BaseHTTPRequestHandler):
    """Answers as the Hub does of one data set, ``me/traces``, whose files lie in a folder."""

    def __init__(self, folder, *given):
        self.folder = folder
        super().__init__(*given)

    def log_message(self, *_):
        """Say nothing."""

    def answer(self, content, status=200, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def plain(self, value, status=200, **headers):
        self.answer(json.dumps(value).encode(), status, Content_Type="application/json", **headers)

    def entry(self, path):
        name = path.relative_to(self.folder).as_posix()
        if path.is_dir():
            return {"type": "directory", "oid": "1" * 40, "size": 0, "path": name}
        content = path.read_bytes()
        return {"type": "file", "oid": hashlib.sha1(content).hexdigest(), "size": len(content), "path": name}

    def do_GET(self):
        asked = urlsplit(self.path)
        match unquote(asked.path).strip("/").split("/"):
            case ["api", "datasets", "me", "traces"]:
                self.plain({"id": "me/traces", "sha": "0" * 40, "siblings": []})
                return
            case ["api", "datasets", "me", "traces", "tree", _, *path] if (at := self.folder.joinpath(*path)).is_dir():
                below = at.rglob("*") if "recursive=true" in asked.query.lower() else at.iterdir()
                self.plain([self.entry(file) for file in sorted(below)])
                return
            case ["datasets", "me", "traces", "resolve", _, *path] if (at := self.folder.joinpath(*path)).is_file():
                self.answer(at.read_bytes(), ETag=f'"{self.entry(at)["oid"]}"', X_Repo_Commit="0" * 40)
                return
        self.plain({"error": "not found"}, 404, X_Error_Code="EntryNotFound")

    do_HEAD = do_GET  # noqa: N815 - what http.server calls


@pytest.fixture
def hub(tmp_path):
    """Return the environment in which huggingface_hub asks a server of this machine, and the data set's folder."""
    pytest.importorskip("huggingface_hub", reason="needs huggingface_hub: the extra named stores")
    folder = tmp_path / "hub"
    (folder / "nightly").mkdir(parents=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, folder))
    Thread(target=server.serve_forever, daemon=True).start()
    host, port = server.server_address
    environment = {
        "HF_ENDPOINT": f"http://{host}:{port}", "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_TELEMETRY": "1"
    }  # fmt: skip
    yield environment, folder
    server.shutdown()
    server.server_close()


def test_a_data_set_of_the_hub_has_sources(fleet, hub, tmp_path):
    environment, folder = hub
    for number in range(3):
        own_recording({"one": number + 1}).write(folder / "nightly" / f"{number}.json.gz")
    (folder / "read.me").write_text("no recording")
    words = ["run", "hf://datasets/me/traces/nightly", "hf://datasets/me/traces/**/[01].json.gz"]
    words += ["--limit", "max_kernels=2", "--jobs", "2", "--into", tmp_path / "out"]
    status, output = fleet(*words, **environment)
    assert (status, output.splitlines()[0][:24]) == (1, "3 files listed: 3 judged")
    for part in (tmp_path / "out" / "parts").iterdir():
        part.unlink()
    own_recording({"one": 7}).write(folder / "nightly" / "0.json.gz")
    (folder / "nightly" / "1.json.gz").unlink()
    assert fleet(*words, **environment)[0] == 1
    records = records_in(tmp_path / "out")
    assert [code_of(records[name]) for name in ("0.json.gz", "1.json.gz")] == [
        Code.RECORDING_CHANGED, Code.RECORDING_MISSING
    ]  # fmt: skip
    assert records["2.json.gz"]["result"]["outcome"] == "failed"
