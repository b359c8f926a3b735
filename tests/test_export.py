"""Recordings for other tools: nothing that Perfetto would drop, stacks whose time is the recording's, a door that shuts."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import socket
import threading
from collections import Counter, defaultdict
from pathlib import Path

import msgspec
import pytest
from builder import TraceBuilder
from conftest import SHARED_TRACES

from pytest_torchprof import load
from pytest_torchprof.analysis.lanes import ON_GPU, lanes_of
from pytest_torchprof.cli import main

pytestmark = pytest.mark.any_torch

RECORDINGS = sorted([*(Path(__file__).parent / "recordings").glob("*.json.gz"), *SHARED_TRACES.glob("*.json.gz")])
SMALL = [path for path in RECORDINGS if path.stat().st_size < 300_000]
PORT = 9001


def events_in(path: Path) -> list[dict]:
    text = gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()
    document = msgspec.json.decode(text)
    return document if isinstance(document, list) else document["traceEvents"]


def exported(path: Path, tmp_path: Path) -> list[dict]:
    out = tmp_path / "lanes.json"
    assert main(["export", str(path), "--lanes", "-o", str(out)]) == 0
    return events_in(out)


def slices(events: list[dict]) -> list[dict]:
    return [event for event in events if event["ph"] == "X"]


def is_gpu_work(event: dict) -> bool:
    return event.get("cat", "").lower() in ("kernel", "gpu_memcpy", "memcpy", "gpu_memset", "memset")


def drops(events: list[dict]) -> list[dict]:
    """Return the slices that overlap another one of their track without lying in it, or are GPU work inside GPU work."""
    tracks = defaultdict(list)
    for event in slices(events):
        # A thousandth of a microsecond is what a trace tells.
        start = round(event["ts"] * 1000)
        tracks[str(event["pid"]), str(event["tid"])].append((start, -round(event["dur"] * 1000), event))
    found = []
    for members in tracks.values():
        running: list[tuple[int, dict]] = []
        for start, minus, event in sorted(members, key=lambda one: one[:2]):
            end = start - minus
            while running and running[-1][0] <= start:
                running.pop()
            if running and (end > running[-1][0] or (is_gpu_work(event) and is_gpu_work(running[-1][1]))):
                found.append(event)
            else:
                running.append((end, event))
    return found


def told(events: list[dict]) -> Counter:
    return Counter(msgspec.json.encode({**event, "tid": None}) for event in events)


@pytest.mark.parametrize("pid", [{"a": 1}, [1], True, None], ids=json.dumps)
def test_a_name_for_a_process_that_has_no_number_names_no_lane(overlapping, tmp_path, pid):
    content = json.loads(overlapping.read_text())
    odd = {"ph": "M", "name": "thread_name", "pid": pid, "tid": 7, "args": {"name": "odd"}}
    overlapping.write_text(json.dumps({**content, "traceEvents": [odd, *content["traceEvents"]]}))
    events = exported(overlapping, tmp_path)
    assert events[0] == odd
    assert not any("odd (lane" in str(event) for event in events)


@pytest.fixture
def overlapping(tmp_path):
    builder = TraceBuilder()
    graph = builder.graph_launch(5)
    for number, (start, dur) in enumerate([(10, 10), (15, 10), (16, 2), (20, 5)]):
        builder.kernel(f"kernel_{number}", start, dur, graph)
    builder.step(0, 0, 50)
    return builder.write(tmp_path / "t.json")


def test_of_kernels_that_overlap_each_has_a_lane(overlapping, tmp_path):
    assert len(drops(events_in(overlapping))) == 2
    events = exported(overlapping, tmp_path)
    tids = {event["name"]: event["tid"] for event in slices(events) if is_gpu_work(event)}
    assert len(set(tids.values())) == 3
    assert tids["kernel_0"] == tids["kernel_3"]
    assert {event["args"]["name"] for event in events if event["ph"] == "M" and event["tid"] in tids.values()} >= {
        "7 (lane 2)",
        "7 (lane 3)",
    }


def test_the_lanes_are_the_rows_of_the_reports_timeline(overlapping, tmp_path):
    (lane,) = [lane for lane in lanes_of(load(overlapping)) if lane.kind in ON_GPU]
    rows = [lane.rows[lane.members.index(i)] for i in range(4)]
    tids = [event["tid"] for event in slices(exported(overlapping, tmp_path)) if is_gpu_work(event)]
    assert rows == [0, 1, 2, 0]
    assert [sorted(set(tids)).index(tid) for tid in tids] == rows


@pytest.mark.parametrize("recording", SMALL, ids=lambda path: path.name)
def test_perfetto_drops_no_slice_and_all_is_there(recording, tmp_path):
    before, after = events_in(recording), exported(recording, tmp_path)
    assert drops(after) == []
    assert len(slices(after)) == len(slices(before))
    assert not told(before) - told(after)
    assert {event["ph"] for event in after[len(before) :]} <= {"M"}


def test_an_arrow_goes_where_its_kernel_went(tmp_path):
    builder = TraceBuilder()
    for number in range(2):
        launched = builder.launch(3 * number)
        builder.kernel("kernel", 10, 10, launched)
        arrow = {"cat": "ac2g", "name": "ac2g", "id": launched}
        builder.events.append({**arrow, "ph": "s", "pid": 1000, "tid": 1000, "ts": builder.begin + 3 * number})
        builder.events.append({**arrow, "ph": "f", "bp": "e", "pid": 0, "tid": 7, "ts": builder.begin + 10})
    events = exported(builder.write(tmp_path / "t.json"), tmp_path)
    kernels = {event["args"]["correlation"]: event["tid"] for event in slices(events) if is_gpu_work(event)}
    assert len(set(kernels.values())) == 2
    assert {event["id"]: event["tid"] for event in events if event["ph"] == "f"} == kernels


def exported_text(capsys, *words) -> str:
    capsys.readouterr()
    assert main(["export", *map(str, words)]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("recording", SMALL, ids=lambda path: path.name)
def test_stacks_have_the_time_of_the_recordings_gpu_work(recording, capsys):
    profile = load(recording)
    wanted = sum(step.gpu_time_us for step in profile.steps) if len(profile.trace.gpu) else 0
    if not wanted:
        lines = exported_text(capsys, recording, "--collapsed").splitlines()
        assert all(int(line.rpartition(" ")[2]) > 0 for line in lines)
        return
    lines = exported_text(capsys, recording, "--collapsed").splitlines()
    # Old recordings have the steps among the operators: they are one frame.
    assert not any("ProfilerStep#" in line for line in lines)
    assert sum(int(line.rpartition(" ")[2]) for line in lines) / 1000 == pytest.approx(wanted)
    (gpu,) = [
        profile
        for profile in json.loads(exported_text(capsys, recording, "--speedscope"))["profiles"]
        if profile["name"] == "time on the GPU"
    ]
    assert gpu["endValue"] == sum(gpu["weights"]) == sum(int(line.rpartition(" ")[2]) for line in lines)


@pytest.fixture
def called(tmp_path):
    builder = TraceBuilder()
    builder.step(0, 0, 100)
    builder.event("python_function", "train.py(3): train; it", 1, 98)
    builder.module("Net_0", 2, 90)
    builder.op("aten::mm", 10, 20)
    builder.kernel("gemm", 200, 7, builder.launch(12))
    builder.op("aten::add", 40, 5)
    return builder.write(tmp_path / "t.json")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ["Net_0;aten::mm;gemm 7000"]),
        (["--by", "operator"], ["aten::mm;gemm 7000"]),
        (["--by", "stack"], ["train.py(3): train, it;nn.Module: Net_0;aten::mm;gemm 7000"]),
        (["--weight", "cpu"], ["Net_0;aten::mm 20000", "Net_0;aten::add 5000"]),
    ],
)
def test_stacks_are_folded_by_what_is_asked_for(called, capsys, words, expected):
    assert exported_text(capsys, called, "--collapsed", *words).splitlines() == expected


def test_a_file_for_speedscope_is_what_its_schema_says(called, capsys):
    jsonschema = pytest.importorskip("jsonschema")
    document = json.loads(exported_text(capsys, called, "--speedscope", "--by", "stack"))
    schema = json.loads((Path(__file__).parent / "speedscope.schema.json").read_text())
    jsonschema.validate(document, schema)
    frames = [frame["name"] for frame in document["shared"]["frames"]]
    assert [[frames[i] for i in stack] for stack in document["profiles"][0]["samples"]] == [
        ["train.py(3): train; it", "nn.Module: Net_0", "aten::mm", "gemm"]
    ]
    assert [profile["name"] for profile in document["profiles"]] == ["time on the GPU", "time on the CPU"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "--lanes --collapsed --speedscope"),
        (["--lanes", "--collapsed"], "not allowed with argument --lanes"),
        (["--lanes", "--by", "stack"], "--lanes does not go with --by"),
        (["--speedscope", "--weight", "gpu"], "--speedscope does not go with --weight"),
        (["--collapsed", "--by", "stack"], "--by stack: .*; expected operator"),
        (["--collapsed", "--weight", "tpu"], "'tpu'"),
        (["--lanes", "-o", "no/such/folder"], "no/such/folder cannot be written"),
    ],
)
def test_what_cannot_be_exported_is_said(overlapping, capsys, words, problem):
    assert main(["export", str(overlapping), *words]) == 2
    assert re.search(problem, capsys.readouterr().err)


def asked(host: str, path: str, port_named: str = f"127.0.0.1:{PORT}") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(host, PORT, timeout=10)
    connection.request("GET", path, headers={"Host": port_named, "Origin": "https://ui.perfetto.dev"})
    return connection.getresponse()


def test_perfettos_page_is_handed_the_recording_once(overlapping, capfd, monkeypatch):
    for screen in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(screen, raising=False)
    with socket.socket() as taken:
        try:
            taken.bind(("127.0.0.1", PORT))
        except OSError:
            pytest.skip(f"port {PORT} is in use here")
        taken.listen()
        assert main(["open", str(overlapping)]) == 2
        assert "[port-in-use]" in capfd.readouterr().err
    assert main(["open", str(overlapping), "--wait", "1"]) == 2
    assert "[recording-not-fetched]" in capfd.readouterr().err
    statuses: list[int] = []
    opened = threading.Thread(target=lambda: statuses.append(main(["open", str(overlapping), "--wait", "60"])))
    opened.start()
    said = ""
    while "\n" not in said.partition("http")[2]:
        said += capfd.readouterr().err
    place = re.search(rf"https://ui\.perfetto\.dev/#!/\?url=http://127\.0\.0\.1:{PORT}(/\S+)", said)[1]
    assert place.endswith("/t.json")
    assert asked("127.0.0.1", "/t.json").status == 404
    assert asked("127.0.0.1", place, port_named=f"elsewhere.example:{PORT}").status == 404
    answer = asked("127.0.0.1", place)
    assert answer.getheader("Access-Control-Allow-Origin") == "https://ui.perfetto.dev"
    assert drops(json.loads(answer.read())["traceEvents"]) == []
    opened.join(30)
    assert statuses == [0]
