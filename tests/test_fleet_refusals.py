"""A fleet whose store refuses every third request: nothing is lost, nothing is double, every file is accounted for."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Lock, Thread

import pytest
from builder import TraceBuilder, own_recording

from pytest_torchprof.cli import main
from pytest_torchprof.reasons.catalogue import from_plain
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.fleet_stores import ServerWithoutRanges

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp", reason="needs aiohttp")

pytestmark = [pytest.mark.any_torch, pytest.mark.usefixtures("forked_judges")]

REFUSED = 503
LIMITS = ["--limit", "max_kernels=9", "--jobs", "2", "--retries", "8"]
PROGRAM = """
import sys
from pytest_torchprof.cli import main
if __name__ == "__main__":
    sys.exit(main(["fleet", "run", *sys.argv[1:]]))
"""


class Refusing(SimpleHTTPRequestHandler):
    """Serves a folder, and refuses every third request."""

    requests, lock = count(1), Lock()

    def log_message(self, *_):
        """Say nothing."""

    def send_head(self):
        with self.lock:
            number = next(self.requests)
        if number % 3 == 0:
            self.send_error(REFUSED)
            return None
        return super().send_head()


@pytest.fixture
def traces(tmp_path):
    """Return a folder of recordings, one of which is cut off and one of which has no kernels."""
    folder = tmp_path / "traces"
    folder.mkdir()
    for number in range(12):
        own_recording({"one": number + 1}).write(folder / f"{number:02}.json.gz")
    (folder / "cut.json.gz").write_bytes((folder / "00.json.gz").read_bytes()[:300])
    TraceBuilder().write(folder / "empty.json")
    return folder


@pytest.fixture
def web(traces):
    """Return the address of a web server that has the recordings."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Refusing, directory=str(traces)))
    serving = Thread(target=server.serve_forever)
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    serving.join()
    server.server_close()


STORE = """
import sys
from itertools import count
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

store, requests, refuses = DomainDispatcherApplication(create_backend_app), count(1), False
BODY = b"<Error><Code>ServiceUnavailable</Code><Message>Please try again.</Message></Error>"

def serve(environ, start_response):
    if refuses and next(requests) % 3 == 0:
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response("503 Service Unavailable", [("Content-Type", "application/xml")])
        return [BODY]
    return store(environ, start_response)

server = make_server("127.0.0.1", 0, serve, threaded=True)
print(server.port, flush=True)
from threading import Thread
Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.readline()
refuses = True
sys.stdin.read()
"""


@pytest.fixture
def bucket(monkeypatch, traces):
    """Return a bucket that has the recordings, of a server that refuses every third request from then on."""
    s3fs = pytest.importorskip("s3fs", reason="needs s3fs and moto[server]: the extra named stores")
    pytest.importorskip("moto.server", reason="needs s3fs and moto[server]: the extra named stores")
    server = subprocess.Popen(
        [sys.executable, "-c", STORE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.stdout.readline().strip()}",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().mkdir("traces")
    s3fs.S3FileSystem().put(str(traces), "traces/nightly", recursive=True)
    server.stdin.write("\n")
    server.stdin.flush()
    yield "s3://traces"
    s3fs.S3FileSystem.clear_instance_cache()
    server.communicate("")


def fleet(*words):
    return main(["fleet", "run", *map(str, words), *LIMITS])


def by_name(records):
    """Return what each file came to, without where it lay."""
    return {
        record["url"].rpartition("/")[2]: (
            record["result"]["outcome"] if "result" in record else from_plain(record["quarantined"]).code
        )
        for record in map(json.loads, records.splitlines())
    }


def test_a_web_server_that_refuses_every_third_request_is_asked_again(web, traces, tmp_path):
    assert fleet(traces, "--into", tmp_path / "here") == 1
    assert fleet(f"{web}/", "--into", tmp_path / "out") == 1
    summaries = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("here", "out")]
    assert summaries[0] == summaries[1]
    outcomes = [by_name((tmp_path / name / "records.jsonl").read_text()) for name in ("here", "out")]
    assert outcomes[0] == outcomes[1]
    assert len(outcomes[1]) == 14
    assert outcomes[1]["cut.json.gz"] == Code.RECORDING_CUT_OFF


def test_a_bucket_that_refuses_every_third_request_loses_nothing(bucket, traces, tmp_path):
    import s3fs

    assert fleet(traces, "--into", tmp_path / "here") == 1
    assert fleet(f"{bucket}/nightly", "--into", f"{bucket}/out") == 1
    (tmp_path / "out").mkdir()
    files = s3fs.S3FileSystem(config_kwargs={"retries": {"total_max_attempts": 9}})
    there = {name: files.cat_file(f"{bucket}/out/{name}") for name in ("summary.json", "records.jsonl")}
    assert there["summary.json"] == (tmp_path / "here" / "summary.json").read_bytes()
    assert by_name(there["records.jsonl"]) == by_name((tmp_path / "here" / "records.jsonl").read_bytes())
    parts = [files.cat_file(name) for name in files.ls(f"{bucket}/out/parts", detail=False)]
    assert sum(part.count(b"\n") for part in parts) == 14


def test_two_drivers_of_one_bucket_do_each_other_no_harm(bucket, traces, tmp_path):
    import s3fs

    assert fleet(traces, "--into", tmp_path / "here") == 1
    program = tmp_path / "fleet_script.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), f"{bucket}/nightly", "--into", f"{bucket}/out", *LIMITS]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    ended = [(*driver.communicate(), driver.returncode) for driver in both]
    assert [(shown.partition(":")[0], status) for shown, _, status in ended] == [("14 files listed", 1)] * 2, ended
    files = s3fs.S3FileSystem(config_kwargs={"retries": {"total_max_attempts": 9}})
    assert files.cat_file(f"{bucket}/out/summary.json") == (tmp_path / "here" / "summary.json").read_bytes()
    assert files.cat_file(f"{bucket}/out/records.jsonl").count(b"\n") == 14


def test_a_tree_of_pages_is_listed_however_many_of_them_are_refused(web, traces, tmp_path):
    for number in range(12):
        folder = traces / "deep" / f"model{number}" / "runs"
        folder.mkdir(parents=True)
        own_recording({"one": number + 1}).write(folder / "run.json.gz")
    assert fleet(traces, "--into", tmp_path / "here") == 1
    assert fleet(f"{web}/", "--into", tmp_path / "out") == 1
    assert (tmp_path / "out" / "summary.json").read_bytes() == (tmp_path / "here" / "summary.json").read_bytes()


def test_what_lies_behind_an_address_is_fetched_by_the_command_that_opens_it(
    web, bucket, traces, tmp_path, capsys, monkeypatch
):
    import s3fs

    with zipfile.ZipFile(tmp_path / "night.zip", "w") as packed:
        packed.write(traces / "11.json.gz", "deep/a.json.gz")
    s3fs.S3FileSystem().put(str(tmp_path / "night.zip"), f"{bucket}/night.zip")
    monkeypatch.setattr(Refusing, "requests", count(1, 3))  # Nothing is refused.
    assert (
        main(["fleet", "run", f"{web}/10.json.gz", f"{bucket}/night.zip", "--into", str(tmp_path / "out"), *LIMITS])
        == 1
    )
    capsys.readouterr()
    assert main(["fleet", "report", str(tmp_path / "out"), "--json"]) == 1
    monkeypatch.chdir(tmp_path)
    commands = [file["command"] for file in json.loads(capsys.readouterr().out)["worst"]]
    assert [command.split()[-4:] for command in commands] == [
        ["&&", "torchprof", "open", name] for name in ("10.json.gz", "a.json.gz")
    ]
    for command in commands:
        fetching = command.partition(" && ")[0].removeprefix("python ")
        subprocess.run(f"{shlex.quote(sys.executable)} {fetching}", shell=True, check=True)
    assert (tmp_path / "10.json.gz").read_bytes() == (traces / "10.json.gz").read_bytes()
    assert (tmp_path / "a.json.gz").read_bytes() == (traces / "11.json.gz").read_bytes()


def test_a_store_that_always_refuses_is_told(web, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Refusing, "requests", count(3, 3))
    listed = tmp_path / "list.jsonl"
    listed.write_text(f'{{"url": "{web}/00.json.gz", "size": 9, "etag": "x"}}\n')
    assert main(["fleet", "run", str(listed), "--into", str(tmp_path / "out"), "--retries", "1"]) == 3
    assert str(REFUSED) in capsys.readouterr().out
    assert main(["fleet", "run", f"{web}/", "--into", str(tmp_path / "none"), "--retries", "1"]) == 2
    told = capsys.readouterr().err
    assert "[recording-unreadable]" in told
    assert str(REFUSED) in told


def test_an_archive_of_a_server_that_sends_files_only_as_a_whole_is_to_be_copied(web, traces, tmp_path, capsys):
    with zipfile.ZipFile(traces / "nightly.zip", "w") as packed:
        packed.write(traces / "00.json.gz", "00.json.gz")
    assert main(["fleet", "run", f"{web}/nightly.zip", "--into", str(tmp_path / "out"), "--retries", "8"]) == 2
    assert str(ServerWithoutRanges(f"{web}/nightly.zip")) in capsys.readouterr().err


def test_a_store_is_asked_again_after_pauses_that_grow(web, tmp_path, monkeypatch):
    monkeypatch.setattr(Refusing, "requests", count(3, 3))
    pauses, real = [], time.sleep
    monkeypatch.setattr(time, "sleep", lambda pause_s: (pauses.append(pause_s), real(pause_s / 50)))
    assert main(["fleet", "run", f"{web}/", "--into", str(tmp_path / "none"), "--retries", "4"]) == 2
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]
