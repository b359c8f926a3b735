"""What cannot be read is one clear error that names the file, the cause and the remedy."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import zipfile

import pytest
from builder import TraceBuilder, own_recording, write
from facts import says, why_refused, why_unreadable

from pytest_torchprof import UnreadableRecording, load
from pytest_torchprof.cli import main
from pytest_torchprof.reasons.codes import Code, coded
from pytest_torchprof.reasons.recordings import NoTracesThere
from pytest_torchprof.reasons.unreadable import (
    BinaryData,
    EmptyFile,
    EventsNoList,
    GzipCutOff,
    GzipDamaged,
    InPerfettosFormat,
    InsteadOfFile,
    JsonCutOff,
    JsonInvalid,
    KeyOfOthers,
    ListOfOthers,
    NestedBeyondTraces,
    NewerSchema,
    NoEvent,
    NoSuchFile,
    NotUtf8,
    OddEvent,
    Oddity,
    OtherText,
    SpecialFile,
    WithoutEvents,
    ZeroByteInPath,
    ZipArchive,
)

pytestmark = pytest.mark.any_torch


def good():
    builder = TraceBuilder()
    for i in range(3000):
        builder.launched("k", i * 20)
    return builder


def truncated_gzip(path):
    path.write_bytes(gzip.compress(good().text().encode())[:-500])
    return path


def corrupt_gzip(path):
    data = bytearray(gzip.compress(good().text().encode()))
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    return path


def with_event(path, **changed):
    builder = TraceBuilder()
    builder.launched("k", 10)
    builder.events[1].update(changed)
    return builder.write(path)


def newer(path):
    builder = own_recording({"k": 1})
    builder.torchprof["schema"] = 2
    return builder.write(path)


def foreign_key(path, value):
    builder = TraceBuilder()
    builder.torchprof = value
    return builder.write(path)


def not_utf8(path):
    builder = TraceBuilder()
    builder.launched("kernel MARK", 10)
    return write(path, builder.text().encode().replace(b"MARK", b"\xff\xfe"))


def deep(path, text):
    return write(path, text % (b"[" * 100_000 + b"]" * 100_000))


# Two operators as torch 2.14.1 writes them under a name with ".pftrace" in it.
PERFETTOS = gzip.decompress(
    base64.b64decode(
        "H4sIAAAAAAACA+PScmhY8ePjgvsz30oEMBrJcPFwsAnARYA8RiSe0CNmfg5GKW6OxiIjtoLKkoz8PC61R8zKHEwajEqyQFGBxiIt0ZKMotTE"
        "FAVDE1NLYwUNiDJNrkWNDQwBjBmMSTOBDCE+DkYhrsSS1Dwrq/y81GIhfg4mIW4IPzW3oKQSKMAME0jLzMmJF+LlYBHihAgkpqQI8XCwCnFA"
        "uCX5QkIcbEJ8EF58SX58cn5BpZA4B7uQMJKR8cUlRZkpqSlAozlgRoMUxnNxAR3DllxQGp9fwOXrsP7mowOdLRO+AoMjgynK1oMxgimAUYJR"
        "iSuIzbVMwTOlQoFBiT+I27WiJLUoLzFHITNFgVFJLEgoKDU5vyhFIa00L7kkMz8PJM4ANK7lzlMM45hQjGNEN44Jj3GPf77AMI4ZxTgmdOOY"
        "cRpX6jBlYvtBhHGpYONYUIxjRjeORUkwiNetPEUBGs8gk3DZoCQcxB+cWliampecqpBXmpuUWgT2xb/bXQfRfcGKYi0LurWseALlR1MPhnFs"
        "KMaxohvHhse4d08wjWNHMY4N3Th2PMbd39uHYRwHinHs6MZx4DROyGHdukaYcVEsHkwRTECx3pXPD6CL/Z6Eqe7hhYkYYk2zJ2CItc3AFOtf"
        "2oshNmcCmjoAuSLh2k8EAAA="
    )
)


def zipped(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("trace.json", good().text())
    return path


IN_AN_EVENT = (
    b'{"traceEvents": [{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":0,"ts":1,"dur":1,"args":{"stream": %s}}]}'
)

BAD = {
    "no UTF-8 at all": (not_utf8, NotUtf8),
    "metadata that is not UTF-8": (lambda path: write(path, b'{"a": "\xff", "traceEvents": []}'), NotUtf8),
    "deep metadata": (lambda path: deep(path, b'{"a": %s, "traceEvents": []}'), NestedBeyondTraces),
    "a deep event": (lambda path: deep(path, IN_AN_EVENT), NestedBeyondTraces),
    "a deep list": (lambda path: deep(path, b"%s"), NestedBeyondTraces),
    "missing": (lambda path: path, NoSuchFile),
    "empty": (lambda path: write(path, b""), EmptyFile()),
    "blank": (lambda path: write(path, b" \n"), EmptyFile()),
    "text": (lambda path: write(path, b"hello"), OtherText()),
    "text behind a blank": (lambda path: write(path, b" hello"), OtherText()),
    "no JSON": (lambda path: write(path, b"{hello"), JsonInvalid),
    "an archive of nothing": (lambda path: write(path, b"PK\5\6" + bytes(18)), ZipArchive()),
    "an archive": (zipped, ZipArchive()),
    "binary": (lambda path: write(path, bytes(range(256))), BinaryData()),
    "number": (lambda path: write(path, b"42"), WithoutEvents()),
    "Perfetto's own format": (lambda path: write(path, PERFETTOS), InPerfettosFormat()),
    "Perfetto's own, cut off": (lambda path: write(path, PERFETTOS[:500]), InPerfettosFormat()),
    "Perfetto's own, cut in a packet": (lambda path: write(path, PERFETTOS[:30]), InPerfettosFormat()),
    "null": (lambda path: write(path, b"null"), WithoutEvents()),
    "no events": (lambda path: write(path, b'{"a": 1}'), WithoutEvents()),
    "events of a wrong type": (lambda path: write(path, b'{"traceEvents": {"a": 1}}'), EventsNoList()),
    "numbers": (lambda path: write(path, b"[1, 2, 3]"), ListOfOthers()),
    "an empty list": (lambda path: write(path, b"[]"), ListOfOthers()),
    "objects": (lambda path: write(path, b'[{"a": 1}]'), ListOfOthers()),
    "an event that is no object": (lambda path: write(path, b'{"traceEvents": [7]}'), NoEvent(0, "7")),
    "cut off": (lambda path: write(path, good().text()[:-300]), JsonCutOff()),
    "cut off in the head": (lambda path: write(path, b'{"schemaVersion": 1, "trace'), JsonCutOff()),
    "cut off gzip": (truncated_gzip, GzipCutOff),
    "corrupt gzip": (corrupt_gzip, GzipDamaged),
    "newer": (newer, NewerSchema(2, 1)),
    "key without schema": (lambda path: foreign_key(path, {"nodeid": "x"}), KeyOfOthers()),
    "key of a wrong type": (lambda path: foreign_key(path, [1]), KeyOfOthers()),
    "schema of a wrong type": (lambda path: foreign_key(path, {"schema": True}), KeyOfOthers()),
    "a time beyond all time": (
        lambda path: with_event(path, ts=1e308),
        OddEvent("ts", 1, Oddity.TOO_LATE, "1E+308"),
    ),
    "time of a wrong type": (lambda path: with_event(path, ts="soon"), OddEvent("ts", 1, Oddity.NO_TIME, '"soon"')),
    "no time": (lambda path: with_event(path, ts=None), OddEvent("ts", 1, Oddity.NO_TIME, "null")),
    "duration of a wrong type": (lambda path: with_event(path, dur=[1]), OddEvent("dur", 1, Oddity.NO_TIME, "[1]")),
    "thread of a wrong type": (lambda path: with_event(path, tid={}), OddEvent("tid", 1, Oddity.NO_IDENTITY, "{}")),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_bad_files_are_one_clear_error(tmp_path, capsys, name, suffix):
    make, cause = BAD[name]
    path = make(tmp_path / f"bad.{suffix}")
    if not path.exists() and name != "missing":
        pytest.fail("the test made no file")
    with pytest.raises(UnreadableRecording) as caught:
        load(path)
    refused, text = caught.value.cause, str(caught.value)
    assert (type(refused) if isinstance(cause, type) else refused) == cause
    assert text == coded(refused.of_file(str(path)), refused.CODE)
    assert str(path) in text
    assert caught.value.__cause__ is None
    assert main(["analyze", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"torchprof analyze: {text}\n"


# What JSON begins with, and what the decoder takes for a value of another kind.
@pytest.mark.parametrize("end", ["1", "1.", "-", "1e", '"x', "tr"])
def test_wherever_a_recording_is_cut_off_it_is_told_from_one_that_is_damaged(tmp_path, end):
    cut = write(tmp_path / "t.json", f'{{"traceEvents": [{{"ph": "X", "ts": {end}'.encode())
    with pytest.raises(UnreadableRecording) as problem:
        load(cut)
    assert problem.value.code == Code.RECORDING_CUT_OFF


@pytest.mark.parametrize("length", [ord(letter) for letter in '{["5'])
def test_perfettos_own_format_is_known_whatever_its_first_packet_is_as_long_as(tmp_path, length):
    packet = b"\x08\x00".ljust(length, b"\xff")
    path = write(tmp_path / "t.json", b"\n" + bytes([length]) + packet + PERFETTOS)
    assert why_unreadable(lambda: load(path)) == InPerfettosFormat()


@pytest.mark.parametrize("text", [b"\n\x04" + bytes(100), b"\x00\x04" + bytes(100)])
def test_other_binary_data_is_not_taken_for_perfettos_format(tmp_path, text):
    assert why_unreadable(lambda: load(write(tmp_path / "t.json", text))) == BinaryData()


def test_what_this_torch_writes_for_perfetto_is_refused(tmp_path):
    from torch._C import _profiler

    encoder = getattr(_profiler, "_cuspy", getattr(_profiler, "_cupti_monitor", None))
    if not hasattr(encoder, "encode_pftrace"):
        pytest.skip("torch before 2.14 writes JSON only")
    path = tmp_path / "t.pftrace"
    path.write_bytes(encoder.encode_pftrace(0, [(1, 0, True, 1, 1, "python")], ["aten::mm"], ["cpu_op"], []))
    assert why_unreadable(lambda: load(path)) == InPerfettosFormat()


@pytest.mark.parametrize(
    "command",
    [
        "analyze bad.pftrace",
        "check bad.pftrace --limit max_kernels=1",
        "diff sound.json bad.pftrace",
        "analyze .",
        "check . --limit max_kernels=1",
    ],
)
def test_each_command_refuses_perfettos_format_in_a_line_that_says_what_to_do(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    good().write(tmp_path / "sound.json")
    (tmp_path / "bad.pftrace").write_bytes(gzip.compress(PERFETTOS))
    assert main(command.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert InPerfettosFormat().of_file("bad.pftrace") in line


def test_json_that_is_only_called_so_is_read(tmp_path):
    assert load(good().write(tmp_path / "t.pftrace")).measured is not None
    assert len(load(tmp_path)) == 1


def test_a_folder_without_traces_is_an_error(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("nothing")
    assert says(why_refused(lambda: load(tmp_path)), NoTracesThere, folder=str(tmp_path), json_files=0)
    assert main(["analyze", str(tmp_path), "--json"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_other_json_beside_the_traces_of_a_folder_is_passed_over(tmp_path, capsys):
    good().write(tmp_path / "a.json")
    write(tmp_path / "b.json", b'{"worker": "metadata"}')
    write(tmp_path / "c.json.gz", b"[]")
    assert len(load(tmp_path)) == 1
    assert main(["analyze", str(tmp_path)]) == 0
    (tmp_path / "a.json").unlink()
    assert says(why_refused(lambda: load(tmp_path)), NoTracesThere, json_files=2)
    assert main(["analyze", str(tmp_path)]) == 2
    assert "none of its 2" in capsys.readouterr().err


@pytest.mark.parametrize("damaged", [b'{"traceEvents": [{"ph": "X", ', b'{"traceEvents": null}', b"", b"{"])
def test_a_damaged_trace_in_a_folder_is_an_error_not_passed_over(tmp_path, damaged):
    good().write(tmp_path / "a.json")
    write(tmp_path / "b.json", damaged)
    with pytest.raises(UnreadableRecording, match=r"b\.json"):
        load(tmp_path)


def test_a_path_with_a_zero_byte_is_no_recording(capsys):
    assert isinstance(why_unreadable(lambda: load("a\0b")), ZeroByteInPath)
    assert main(["analyze", "a\0b"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_one_bad_file_in_a_folder_is_named(tmp_path):
    good().write(tmp_path / "a.json")
    write(tmp_path / "b.json", b"hello")
    with pytest.raises(UnreadableRecording, match=r"b\.json"):
        load(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("words", [["analyze"], ["check", "--limit", "max_kernels=1"], ["diff", "a.json"]])
def test_nobody_waits_for_a_pipe(tmp_path, monkeypatch, capsys, words):
    # To open it would take until somebody writes to it, which nobody does.
    monkeypatch.chdir(tmp_path)
    own_recording({"k": 1}).write(tmp_path / "a.json")
    os.mkfifo("pipe.json")
    assert main([*words, "pipe.json"]) == 2
    assert re.search(f"pipe.json.*: {InsteadOfFile.SPECIAL}", capsys.readouterr().err)
    assert why_unreadable(lambda: load(tmp_path)) == SpecialFile(str(tmp_path / "pipe.json"))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="a superuser may read anything")
def test_a_file_that_may_not_be_read_is_an_error(tmp_path):
    path = good().write(tmp_path / "t.json")
    path.chmod(0)
    with pytest.raises(UnreadableRecording, match="Permission denied"):
        load(path)


def test_a_path_with_escapes_does_not_reach_the_terminal(tmp_path, capsys):
    assert main(["analyze", str(tmp_path / "\x1b[31mred")]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_names_with_escapes_do_not_reach_the_terminal(tmp_path, capsys):
    builder = TraceBuilder()
    builder.metadata["deviceProperties"] = [{"id": 0, "name": "GPU \x1b]0;title\x07"}]
    builder.annotation("range \x9b31m", 0, 100)
    builder.launched("kernel \x1b[2J\x9b2J\u202e", 10, op="aten::\x1b[31mred")
    path = builder.write(tmp_path / "t.json")
    for options in ([], ["--by", "op"], ["--by", "range"], ["--by", "family"], ["--json"], ["--json", "--by", "op"]):
        assert main(["analyze", str(path), *options]) == 0
        out = capsys.readouterr().out
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", out), options


def test_surrogates_in_names_are_shown(tmp_path, capsys):
    text = TraceBuilder().text().replace('"traceEvents": []', '"traceEvents": [%s]')
    event = {"ph": "X", "cat": "kernel", "name": "k \U0001f600", "pid": 0, "tid": 7, "ts": 1, "dur": 1, "args": {}}
    path = write(tmp_path / "t.json", text % json.dumps(event))
    assert main(["analyze", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"][0]["name"] == "k \U0001f600"
