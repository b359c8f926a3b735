"""``torchprof check``: what its values mean, and what it prints."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from builder import own_recording
from jsonschema import validate

from pytest_torchprof.cli import main
from pytest_torchprof.cli.schema import SCHEMAS
from pytest_torchprof.limits.remedies import REMEDIES
from pytest_torchprof.reasons.reports import OutputNotWritten

pytestmark = pytest.mark.any_torch

CHECK = "import sys; from pytest_torchprof.cli import main; sys.exit(main())"
GEMM = "nvjet_tst_128x64_64x6_2x1_v_bz_bias_TNT"


@pytest.fixture
def check(tmp_path):
    def run(kernels, *limits):
        path = own_recording(kernels, steps=1).write(tmp_path / "t.json")
        return main(["check", str(path), *(word for limit in limits for word in ("--limit", limit))])

    return run


def test_the_examples_of_its_help_are_understood(tmp_path, capsys):
    assert main(["check", "--help"]) == 0
    examples = re.findall(r"^  torchprof (check \S+ .*)$", capsys.readouterr().out, re.MULTILINE)
    assert examples
    path = str(own_recording({"one": 3}, steps=1).write(tmp_path / "t.json"))
    for command, _, *words in map(shlex.split, examples):
        assert "--ranks" in words or main([command, path, *words]) != 2, capsys.readouterr().err


def test_what_kernels_are_is_no_limit_that_could_hold(check, capsys):
    assert check({"my_rope": 1}, 'own_kernels={"my_rope*": "pointwise"}') == 2
    assert "own_kernels" in capsys.readouterr().err


def test_thresholds_change_what_is_found(tmp_path, capsys):
    path = str(own_recording({"one": 3, "two": 1, "three": 1}, steps=1).write(tmp_path / "t.json"))
    words = ["check", path, "--limit", "forbid=hotspot"]
    assert main(words) == 1
    assert main([*words, "--threshold", "hotspot.share=1.1"]) == 0
    assert main([*words, "--threshold=hotspot.share=1.1"]) == 0
    capsys.readouterr()
    assert main([*words, "--threshold=hotspot.shares=0.7"]) == 2
    assert "'hotspot.shares'" in capsys.readouterr().err
    assert main([*words, "--threshold"]) == 2
    assert "--threshold" in capsys.readouterr().err


def as_json(capsys):
    """Return what was printed as one line of JSON, which is of the schema."""
    (line,) = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    validate(told, SCHEMAS["check"]())
    return told


def test_verdicts_are_data_for_programs(tmp_path, capsys):
    path = str(own_recording({"one": 3, "two": 1}, steps=1).write(tmp_path / "t.json"))
    words = ["--limit=max_kernels=3", "--limit=max_syncs=0", "--limit=max_peak_memory=1GB", "--json"]
    assert main(["check", path, *words]) == 1
    told = as_json(capsys)
    assert told["status"] == "missed"
    missed, held, unknown = told["limits"]
    assert (missed["limit"], missed["status"], missed["bound"], missed["number"]) == ("max_kernels", "missed", 3, 4)
    assert [(row["name"], row["count"]) for row in missed["evidence"]] == [("one", 3), ("two", 1)]
    assert missed["remedy"] == REMEDIES["max_kernels"]
    assert (held["status"], held["number"], held["remedy"]) == ("holds", 0, None)
    assert (unknown["status"], unknown["measured"], unknown["code"]) == ("not measured", None, "not-recorded")
    assert unknown["message"]


@pytest.mark.parametrize(
    ("limit", "status", "word"), [("max_kernels=9", 0, "holds"), ("max_peak_memory=1GB", 3, "not measured")]
)
def test_their_status_is_that_of_the_command(tmp_path, capsys, limit, status, word):
    path = str(own_recording({"one": 3}, steps=1).write(tmp_path / "t.json"))
    assert main(["check", path, "--limit", limit, "--json"]) == status
    assert as_json(capsys)["status"] == word


def test_a_job_of_ranks_has_them_too(tmp_path, shared_trace, capsys):
    for rank in (0, 1):
        (tmp_path / f"{rank}.json.gz").symlink_to(shared_trace(f"a100_megatron_tp8_rank{rank}"))
    assert main(["check", str(tmp_path), "--ranks", "--limit=max_kernels=0", "--json"]) == 1
    told = as_json(capsys)["limits"]
    assert ("max_kernels", "missed") in [(verdict["limit"], verdict["status"]) for verdict in told]


def test_each_limit_has_as_many_rows_as_are_asked_for(tmp_path, capsys):
    kernels = {f"kernel_{number}": 1 for number in range(15)}
    path = str(own_recording(kernels, steps=1).write(tmp_path / "t.json"))

    def rows(*words):
        main(["check", path, "--limit=max_kernels=3", *words])
        lines = capsys.readouterr().out.splitlines()
        return sum("kernel_" in line for line in lines), [line.strip() for line in lines if "--top" in line]

    assert rows() == (10, ["and 5 more: --top N"])
    assert rows("--top=2") == (2, ["and 13 more: --top N"])
    assert rows("--top=15") == (15, [])
    main(["check", path, "--limit=max_kernels=3", "--json", "--top=2"])
    assert len(as_json(capsys)["limits"][0]["evidence"]) == 15


@pytest.mark.parametrize(
    ("limit", "status"),
    [
        ('kernels=gemm(layout="tn")', 0),
        ("forbid_kernels=gemm", 1),
        ("forbid_kernels=gemm bf16 tn nvjet", 1),
        ("forbid_kernels=Attention", 0),
        ("forbid_kernels=aten::mmm", 3),
        ('kernels={gemm(layout="tn"): 3}', 0),
        ('kernels={gemm(layout="tn"): 2}', 1),
        ('forbid_kernels=[gemm(), "no"]', 1),
        ('forbid_kernels=[conv(), "no"]', 0),
        ('forbid_kernels=(conv(), "no")', 0),
        ("kernels=nvjet_*", 0),
        ('forbid_kernels="(anonymous"', 0),
        ("forbid_kernels=void gemm(float*)", 0),
    ],
)
def test_selectors_may_stand_in_lists_and_dicts(check, capsys, limit, status):
    assert check({GEMM: 3}, limit) == status
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "value",
    [
        *("[gemm()", "[gem()]", "gem()", "{gemm(): 3", "(gemm", "[x]", "{x: 1}", '"gemm', "'x", "gemm(layout=tn)"),
        *("gemm(layout='xx')", "__import__('os').system('true')", "[__import__('os')]", "{}x", "[" * 3000),
    ],
)
def test_what_looks_like_a_value_and_is_none_is_bad_usage_and_never_a_text_that_matches_nothing(check, capsys, value):
    assert check({GEMM: 3}, f"forbid_kernels={value}") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "--limit forbid_kernels" in said.err or "forbid_kernels" in said.err
    assert "Traceback" not in said.err
    assert len(said.err) < 1000


def test_names_out_of_the_trace_are_escaped_and_shortened(check, capsys):
    """They are data: a terminal must not obey them, and a name may have thousands of characters."""
    assert check({f"evil \x1b[2J\x9b\u202e{'x' * 3000}": 1}, "only_kernels=gemm", "kernels=none", "max_kernels=0") == 1
    out = capsys.readouterr().out
    assert not any(char in out for char in "\x1b\x9b\u202e")
    assert "\\x1b[2J" in out
    assert max(map(len, out.splitlines())) < 700


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_screen(check, capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    names = {f"{GEMM}{'_with_a_long_name' * number}": number for number in range(1, 12)}
    assert check(names, "max_kernels=1", "max_peak_memory=1GB", "only_kernels=attention") == 1
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    assert any("[not-recorded]" in line for line in lines), "a code is never broken"


def test_nor_is_what_is_said_of_the_recording(shared_trace, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["check", str(shared_trace("rtx3060_cudagraph_steps")), "--limit", "max_launches=1000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("1 GPU operation ") for line in lines)
    assert max(map(len, lines)) <= 40


@pytest.mark.skipif(sys.platform != "linux", reason="looked at on Linux")
@pytest.mark.parametrize("columns", [40, 80])
def test_nor_is_an_error_on_a_terminal(columns):
    from terminals import on_terminal

    status, lines = on_terminal(["-c", CHECK, "check", "t", "--limit=max_kernel=1"], columns)
    assert status == 2
    assert max(map(len, lines)) <= columns
    assert any("[unknown-keyword]" in line for line in lines)


def test_in_a_file_lines_stay_whole(check, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("shutil.get_terminal_size", lambda fallback=(0, 0): os.terminal_size(fallback))
    check({GEMM: 2, "other": 1}, "max_peak_memory=1GB")
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "max_peak_memory=1GB" in line)
    assert line.endswith("[not-recorded]")


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_what_fails_is_shown_as_a_test_shows_it_and_what_holds_below_it(shared_trace, capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    path = str(shared_trace("h100_bert_small"))
    assert main(["check", path, "--limit=forbid_kernels=gemm", "--limit=max_syncs=9"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 limit missed: forbid_kernels"
    place = "(transformers/models/bert/modeling_bert.py:364)"
    assert any(place in line for line in lines) or len(place) > columns, "a place is whole where it has room"
    assert "modeling_bert.py:364)" in "".join(line.strip() for line in lines)
    assert [line for line in lines if len(line) > columns] == []
    assert "cutlass::Kernel2" not in "".join(lines)
    assert "gemm bf16 tn" in "".join(lines), "its family, type and layout"
    held = next(number for number, line in enumerate(lines) if line.startswith("holds"))
    assert "max_syncs=9" in lines[held]
    assert held > max(number for number, line in enumerate(lines) if "do: " in line)
    assert main(["check", path, "--limit=forbid_kernels=gemm", "--json"]) == 1
    remedy = as_json(capsys)["limits"][0]["remedy"]
    assert f"do: {remedy}".replace(" ", "") in "".join("".join(lines).split()), "a path is broken in a narrow terminal"


def test_of_a_job_of_ranks_too_what_to_do_is_said(shared_trace, tmp_path, capsys):
    for rank in (0, 1):
        (tmp_path / f"{rank}.json.gz").symlink_to(shared_trace(f"a100_megatron_tp8_rank{rank}"))
    assert main(["check", str(tmp_path), "--ranks", "--limit=max_kernels=0"]) == 1
    text = capsys.readouterr().out
    assert text.startswith("1 limit missed: max_kernels")
    assert f"do: for max_kernels: {REMEDIES['max_kernels']}" in " ".join(text.split())


def test_the_remedy_of_a_finding_is_for_the_line_of_the_finding(shared_trace, capsys):
    recording = shared_trace("h100_bert_small")
    assert main(["check", str(recording), "--limit=max_syncs=0", "--json"]) == 1
    (limit,) = json.loads(capsys.readouterr().out)["limits"]
    # The wait that takes longest is another one, which the code asks for by its name.
    assert "(transformers/modeling_attn_mask_utils.py:429): " in limit["remedy"]


def check_in_a_process(path, limit, output):
    words = [sys.executable, "-c", CHECK, "check", str(path), "--limit", limit]
    return subprocess.run(words, check=False, stdout=output, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("limit", "status"), [("max_kernels=1", 1), ("max_kernels=9", 0)])
def test_a_reader_that_has_seen_enough_changes_no_verdict(tmp_path, limit, status):
    path = own_recording({"one": 3}, steps=1).write(tmp_path / "t.json")
    read, write = os.pipe()
    os.close(read)
    done = check_in_a_process(path, limit, write)
    os.close(write)
    assert (done.returncode, done.stderr) == (status, "")


@pytest.mark.parametrize(("limit", "status"), [("max_kernels=1", 1), ("max_kernels=9", 0)])
def test_output_that_is_closed_changes_no_verdict(tmp_path, limit, status):
    path = own_recording({"one": 3}, steps=1).write(tmp_path / "t.json")
    words = [sys.executable, "-c", CHECK, "check", str(path), "--limit", limit]
    closed = subprocess.run(["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *words], check=False)
    assert closed.returncode == status


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_cannot_be_written_is_one_error(tmp_path):
    path = own_recording({"one": 3}, steps=1).write(tmp_path / "t.json")
    with Path("/dev/full").open("w") as full:
        done = check_in_a_process(path, "max_kernels=9", full)
    assert done.returncode == 2
    assert done.stderr == f"torchprof check: {OutputNotWritten('No space left on device')}\n"


def test_a_pattern_has_one_count(check, capsys):
    assert check({GEMM: 3}, "kernels={'nvjet': 3}", "kernels={'bias': 3}") == 0
    assert check({GEMM: 3}, "kernels={'nvjet': 5}", "kernels={'nvjet': 3}") == 2
    assert "--limit kernels has two" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("limit", "meant"),
    [
        ("forbid_kernels=gemm, conv", "write ['gemm', 'conv']"),
        ("forbid_kernels=aten.mm", "'aten::mm'"),
        ("forbid_ops=aten::mm,aten::bmm", "write ['aten::mm', 'aten::bmm']"),
    ],
)
def test_another_spelling_is_refused_with_the_one_that_is_meant(check, capsys, limit, meant):
    assert check({GEMM: 1}, limit) == 2
    assert meant in capsys.readouterr().err
