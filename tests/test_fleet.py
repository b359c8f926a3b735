"""``torchprof fleet run``: every file of a list comes to something, and how it was judged changes nothing of it."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gzip
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, wait
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Thread

import pytest
from builder import TraceBuilder, own_recording
from facts import says
from full_pipes import kill_children_at_full_pipes

from pytest_torchprof.cli import main
from pytest_torchprof.fleet.bounds import Bounds
from pytest_torchprof.fleet.crew import LocalCrew
from pytest_torchprof.fleet.engines import Engine, EngineCrew
from pytest_torchprof.fleet.judging import FileTask
from pytest_torchprof.fleet.listed import file_at_path
from pytest_torchprof.fleet.rules import Question
from pytest_torchprof.kernels.kernels import by_name
from pytest_torchprof.profiles import load_file
from pytest_torchprof.reasons import fleet as reasons
from pytest_torchprof.reasons.catalogue import from_plain
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.recordings import RecordedElsewhere, Unreadable
from pytest_torchprof.reasons.unreadable import ArchiveDamaged, NotUnpacked

pytestmark = pytest.mark.any_torch

FLEET = "import sys\nfrom pytest_torchprof.cli import main\nif __name__ == '__main__':\n    sys.exit(main(['fleet', 'run', *sys.argv[1:]]))"


@pytest.fixture
def traces(tmp_path):
    """Return a folder of recordings: three that hold three kernels or fewer, two that do not, three bad ones."""
    folder = tmp_path / "traces"
    (folder / "bert").mkdir(parents=True)
    for number in range(5):
        own_recording({"one": number + 1}).write(folder / f"{number}.json.gz")
    shutil.move(folder / "4.json.gz", folder / "bert" / "4.json.gz")
    whole = (folder / "0.json.gz").read_bytes()
    (folder / "cut.json.gz").write_bytes(whole[: len(whole) // 2])
    (folder / "other.json").write_text('{"models": []}')
    TraceBuilder().write(folder / "empty.json")
    return folder


def fleet(*words):
    return main(["fleet", "run", *map(str, words), "--jobs", "2"])


def started(*words, cwd, **environment):
    """Start the command as a program; its processes are started anew from it."""
    script = cwd / "fleet_script.py"
    script.write_text(FLEET)
    command = [sys.executable, str(script), *map(str, words), "--jobs", "2"]
    whole = {**os.environ, **environment}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=whole)


def summary_in(folder):
    return json.loads((folder / "summary.json").read_text())


def records_in(folder):
    """Return the records of a run by the names of the files."""
    lines = (folder / "records.jsonl").read_text().splitlines()
    return {Path(record.get("member", record["url"])).name: record for record in map(json.loads, lines)}


def content(folder):
    return [(folder / name).read_bytes() for name in ("summary.json", "records.jsonl")]


def counts(summary):
    return [summary[name] for name in ("listed", "judged", "not_measured", "quarantined")]


def large(path, *, parts=15, level=1):
    """Write a recording that takes seconds and hundreds of megabytes to read."""
    event = b'{"ph":"X","cat":"cpu_op","name":"aten::x","pid":1,"tid":1,"ts":5,"dur":1,"args":{}}'
    texts = [b'{"traceEvents":[\n', (event + b",\n") * 100_000, event + b"]}"]
    head, many, end = (gzip.compress(text, level) for text in texts)
    path.write_bytes(head + many * parts + end)
    return path


def test_each_file_is_judged_not_measured_or_quarantined(traces, tmp_path, capsys):
    assert fleet(traces, "--into", tmp_path / "out", "--limit", "max_kernels=3") == 1
    summary = summary_in(tmp_path / "out")
    assert counts(summary) == [8, 5, 1, 2]
    assert (summary["hold"], summary["missed"], summary["limits_missed"]) == (3, 2, {"max_kernels": 2})
    assert summary["quarantined_because"] == {"no-recording": 1, "recording-cut-off": 1}
    shown = capsys.readouterr().out
    assert shown.startswith("8 files listed: 5 judged, 1 not measured, 2 quarantined")
    assert "bert/4.json.gz" in shown
    assert "[recording-cut-off]" in shown
    records = records_in(tmp_path / "out")
    assert records["2.json.gz"]["result"]["outcome"] == "passed"
    assert records["3.json.gz"]["result"]["limits"][0]["number"] == 4
    assert records["empty.json"]["result"]["outcome"] == "not measured"
    assert [row["count"] for row in records["1.json.gz"]["families"]] == [4]
    assert records["0.json.gz"]["result"]["structure"] != records["1.json.gz"]["result"]["structure"]


def test_recordings_of_one_name_in_an_archive_are_refused(traces, tmp_path, capsys):
    archive = tmp_path / "nightly.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.write(traces / "0.json.gz", "deep/in.json.gz")
        with pytest.warns(UserWarning, match="Duplicate name"):
            packed.write(traces / "1.json.gz", "deep/in.json.gz")
    assert fleet(archive, "--into", tmp_path / "out") == 2
    assert f"{archive}: 2 recordings" in (shown := capsys.readouterr().err)
    assert "deep/in.json.gz" in shown
    assert not (tmp_path / "out" / "list.json").exists()


def test_a_record_has_the_kernels_of_the_step_with_most_of_them(tmp_path):
    # Of a GPU, and of CPUs, where operators are the kernels.
    gpu = own_recording({"one": 2, "void at::native::reduce_kernel<float>(float*)": 3}).write(tmp_path / "gpu.json.gz")
    sources = [gpu, *sorted((Path(__file__).parent / "recordings").glob("test_[glm]*.json.gz"))]
    fleet(*sources, "--into", tmp_path / "out")
    judged = {name: record["result"] for name, record in records_in(tmp_path / "out").items()}
    assert len(judged) == len(sources)
    for source in sources:
        named = by_name(load_file(str(source)).kernels)
        assert {row["name"]: (row["count"], row["time_us"], row["ops"]) for row in judged[source.name]["kernels"]} == {
            own[0].short or name: (
                len(own),
                sum(kernel.duration_us for kernel in own),
                list(dict.fromkeys(kernel.op for kernel in own if kernel.op)),
            )
            for name, own in named.items()
        }


def test_what_was_not_judged_is_no_pass_until_that_many_may_be_bad(traces, tmp_path):
    assert fleet(traces, "--into", tmp_path / "out") == 3
    assert fleet(traces, "--into", tmp_path / "out", "--max-bad", 2) == 3
    assert fleet(traces, "--into", tmp_path / "out", "--max-bad", 3) == 0
    assert fleet(traces / "*.json.gz", "--into", tmp_path / "only", "--limit", "max_kernels=9", "--max-bad", 1) == 0
    summary = summary_in(tmp_path / "out")
    assert (summary["without_limits"], summary["hold"]) == (5, 0)


def test_sources_are_files_folders_patterns_archives_and_manifests(traces, tmp_path):
    archive, manifest = tmp_path / "nightly.zip", tmp_path / "list.jsonl"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.write(traces / "1.json.gz", "deep/in.json.gz")
        packed.write(traces / "cut.json.gz", "cut.json.gz")
        packed.writestr("read.me", "no recording")
    rows = [{"url": "traces/2.json.gz", "model": "bert"}, {"url": "gone.json"}]
    manifest.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    sources = [traces / "0.json.gz", traces / "bert", traces / "[0-1].json.gz", tmp_path / "night*.zip", manifest]
    assert fleet(*sources, "--into", tmp_path / "out") == 3
    records = records_in(tmp_path / "out")
    assert records.keys() == {
        "0.json.gz", "1.json.gz", "4.json.gz", "in.json.gz", "cut.json.gz", "2.json.gz", "gone.json"
    }  # fmt: skip
    assert records["2.json.gz"]["metadata"] == {"model": "bert"}
    assert from_plain(records["gone.json"]["quarantined"]).code == "recording-missing"
    assert records["in.json.gz"]["result"]["summary"] == records["1.json.gz"]["result"]["summary"]
    assert "torchprof-" not in json.dumps(records["cut.json.gz"]["quarantined"])


def test_a_member_of_an_archive_that_is_of_another_device_has_the_reason_of_any_file(traces, tmp_path):
    archive = tmp_path / "nightly.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.write(traces / "1.json.gz", "in.json.gz")
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nfiles = ["*.json.gz"]\ndevice = "cpu"')
    assert fleet(archive, traces / "1.json.gz", "--rules", rules, "--into", tmp_path / "out") == 3
    reasons = {name: from_plain(record["quarantined"]) for name, record in records_in(tmp_path / "out").items()}
    assert reasons == dict.fromkeys(["in.json.gz", "1.json.gz"], RecordedElsewhere("cuda:0", "cpu"))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["gone/", "--into", "out"], "gone"),
        (["empty", "--into", "out"], "empty"),
        (["", "--into", "out"], "SOURCE"),
        (["traces", "--into", ""], "--into"),
        (["traces", "--into", "traces"], "--into traces"),
        (["traces/0.json.gz", "traces/bert", "--into", "."], "--into ."),
        (["gone", "--into", "out"], "gone: there is no such file or folder."),
        (["gone.zip", "--into", "out"], "gone.zip: there is no such file or folder."),
        (["gone*.json", "--into", "out"], "gone*.json: no file fits this pattern."),
        (
            ["empty", "--into", "out"],
            "empty: there are no recordings: expected files that end in .json, .json.gz or .pftrace.",
        ),
        (
            ["none.zip", "--into", "out"],
            "none.zip: there are no recordings in the archive: expected files that end in .json,",
        ),
        (
            ["traces", "--into", "bad.toml"],
            "bad.toml: cannot be written: Not a directory. Nothing was judged. Mend that, or",
        ),
        (
            ["traces", "--into", "out", "--timeout", "abc"],
            "--timeout: expected a duration",
        ),
        (["zero.jsonl", "--into", "out"], "zero.jsonl:1"),
        (["twice.jsonl", "--into", "out"], "0.json.gz"),
        (["nothing://bucket/traces", "--into", "out"], "nothing://bucket/traces"),
        (["traces", "--into", "out", "--limit", "max_kernel=3"], "max_kernel"),
        (["traces", "--into", "out", "--memory", "much"], "--memory"),
        (["traces", "--into", "out", "--memory", "1MB"], "--memory"),
        (["traces", "--into", "out", "--timeout", "0s"], "--timeout"),
        (["traces", "--into", "out", "--rules", "bad.toml"], "bad.toml: rule 1"),
        (["traces", "--into", "out", "--rules", "gone.toml"], "gone.toml"),
        (
            ["traces", "--into", "out", "--rules", "none.toml"],
            "none.toml: expected rules in TOML, [[rule]], and nothing",
        ),
        (["traces", "--into", "out", "--rules", "texts.toml"], "texts.toml: rule 1: Expected `object`, got `str`"),
        (["bad.jsonl", "--into", "out"], "bad.jsonl:1"),
    ],
)
def test_a_mistake_is_told_before_anything_is_judged(traces, tmp_path, monkeypatch, capsys, words, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.toml").write_text("[[rule]]\nlimits = {max_kernels = -1}\n")
    (tmp_path / "none.toml").write_text("")
    (tmp_path / "texts.toml").write_text('rule = ["inference"]\n')
    zipfile.ZipFile(tmp_path / "none.zip", "w").close()
    (tmp_path / "bad.jsonl").write_text('{"path": "x"}\n')
    (tmp_path / "zero.jsonl").write_text('{"url": "x\\u0000y.json"}\n')
    same = [{"url": "traces/0.json.gz", "model": "bert"}, {"url": "./traces/0.json.gz"}]
    (tmp_path / "twice.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in same))
    assert fleet(*words) == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("limits", ["kernels = 'gemmm()'", "kernels = ['gemmm()']", "kernels = {'gemmm()' = 1}"])
def test_a_selector_in_a_rule_that_is_none_is_a_mistake(traces, tmp_path, capsys, limits):
    rules = tmp_path / "rules.toml"
    rules.write_text(f"[[rule]]\nlimits = {{ {limits} }}\n")
    assert fleet(traces, "--rules", rules, "--into", tmp_path / "out") == 2
    assert "rule 1: kernels: there is no" in capsys.readouterr().err


def test_selectors_in_a_list_of_a_rule_are_no_texts(traces, tmp_path):
    rules = tmp_path / "rules.toml"
    gemm = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
    own_recording({gemm: 1}).write(tmp_path / "g.json.gz")
    rules.write_text("[[rule]]\nlimits = { forbid_kernels = ['conv()', 'gemm(dtype=\"bf16\")'] }\n")
    assert fleet(tmp_path / "g.json.gz", "--rules", rules, "--into", tmp_path / "out") == 1


@pytest.mark.parametrize("where", ['files = ["nope/*"]', 'where = { model = "*" }'])
def test_a_rule_that_fits_no_file_is_a_mistake(traces, tmp_path, capsys, where):
    rules = tmp_path / "rules.toml"
    rules.write_text(f"[[rule]]\n{where}\nlimits = {{ max_kernels = 0 }}\n")
    assert fleet(traces, "--rules", rules, "--into", tmp_path / "out") == 2
    assert "rule 1" in capsys.readouterr().err
    assert not (tmp_path / "out" / "list.json").exists()


@pytest.mark.parametrize("where", ["n = 3", 'n = "3"', "prod = true", "share = 0.5"])
def test_numbers_and_booleans_of_a_rule_are_those_of_a_manifest(traces, tmp_path, where):
    line = json.dumps({"url": "traces/2.json.gz", "n": 3, "prod": True, "share": 0.5})
    (tmp_path / "manifest.jsonl").write_text(line)
    (tmp_path / "rules.toml").write_text(f"[[rule]]\nwhere = {{ {where} }}\nlimits = {{ max_kernels = 1 }}\n")
    assert fleet(tmp_path / "manifest.jsonl", "--into", tmp_path / "out", "--rules", tmp_path / "rules.toml") == 1


def test_what_is_no_pattern_is_refused_with_the_number_of_its_rule(traces, tmp_path, capsys):
    (tmp_path / "rules.toml").write_text('[[rule]]\nname = "one"\n[[rule]]\nwhere = { tags = ["a"] }\n')
    assert fleet(traces, "--into", tmp_path / "out", "--rules", tmp_path / "rules.toml") == 2
    assert "rules.toml: rule 2: Expected `str`, got `array` - at `$.where[...]`" in capsys.readouterr().err


def test_two_lines_of_a_manifest_that_say_different_things_of_a_file_are_called_that(traces, tmp_path, capsys):
    lines = [{"url": "traces/2.json.gz", "model": model} for model in ("bert", "gpt")]
    (tmp_path / "list.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert fleet(tmp_path / "list.jsonl", "--into", tmp_path / "out") == 2
    assert f"two lines say different things of {traces}/2.json.gz; keep one of them" in capsys.readouterr().err


def test_the_first_rule_that_fits_says_what_is_asked(traces, tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text(
        """
        [[rule]]
        name = "bert"
        files = ["bert/*"]
        limits = { max_kernels = 1, kernels = ["one"] }

        [[rule]]
        where = { model = "gpt*" }
        limits = { max_kernels = 2 }
        thresholds = { "hotspot.share" = 1.1 }

        [[rule]]
        files = ["[01].json.gz"]
        device = "cpu"

        [[rule]]
        files = ["3.json.gz"]
        step = "train"
        """
    )
    manifest = tmp_path / "list.jsonl"
    manifest.write_text('{"url": "traces/2.json.gz", "model": "gpt-7"}\n')
    words = [traces, manifest, "--rules", rules, "--limit", "max_kernels=9", "--limit", "max_syncs=0"]
    assert fleet(*words, "--into", tmp_path / "out") == 1
    records = records_in(tmp_path / "out")

    def limits(name):
        return {row["limit"]: row["status"] for row in records[name]["result"]["limits"]}

    assert limits("4.json.gz") == {"max_syncs": "holds", "max_kernels": "missed", "kernels": "holds"}
    assert records["4.json.gz"]["rule"] == "bert"
    assert limits("2.json.gz") == {"max_syncs": "holds", "max_kernels": "missed"}
    assert "hotspot" not in str(records["2.json.gz"]["result"]["findings"])
    assert from_plain(records["0.json.gz"]["quarantined"]).code == "not-in-recording"
    assert from_plain(records["3.json.gz"]["result"]["reason"]).code == "no-such-range"
    assert "rule" not in records["empty.json"]


def test_a_manifest_and_rules_saved_with_a_byte_order_mark_are_read(traces, tmp_path):
    manifest, rules = tmp_path / "list.jsonl", tmp_path / "rules.toml"
    manifest.write_bytes(b'\xef\xbb\xbf{"url": "traces/0.json.gz"}\r\n{"url": "traces/1.json.gz"}\r\n')
    rules.write_bytes(b'\xef\xbb\xbf[[rule]]\r\nname = "all"\r\nlimits = { max_kernels = 9 }\r\n')
    fleet(manifest, "--rules", rules, "--into", tmp_path / "out")
    assert [record["rule"] for record in records_in(tmp_path / "out").values()] == ["all", "all"]


def test_the_same_command_goes_on_and_another_is_refused(traces, tmp_path, capsys):
    words = [traces, "--limit", "max_kernels=3", "--into", tmp_path / "out"]
    assert fleet(*words) == 1
    before, parts = content(tmp_path / "out"), list((tmp_path / "out" / "parts").iterdir())
    assert fleet(*words) == 1
    assert content(tmp_path / "out") == before
    assert list((tmp_path / "out" / "parts").iterdir()) == parts
    assert "since the list" not in capsys.readouterr().err
    own_recording({"one": 1}).write(traces / "new.json")
    assert fleet(*words) == 1
    assert content(tmp_path / "out") == before
    assert "1 file came, 0 changed" in (shown := capsys.readouterr().err)
    assert re.search(r"^torchprof fleet: came: .*new\.json$", shown, re.MULTILINE)
    assert fleet(traces, "--limit", "max_kernels=4", "--into", tmp_path / "out") == 2
    assert "other limits" in capsys.readouterr().err
    # What was lost is judged again.
    parts[0].write_bytes(parts[0].read_bytes()[:-40])
    assert fleet(*words) == 1
    assert content(tmp_path / "out") == before
    assert capsys.readouterr().err.count(parts[0].name) == 1


@pytest.mark.parametrize("pattern", ["*", "**", "**/*", "be*"])
def test_a_pattern_that_matches_folders_means_what_they_hold(traces, tmp_path, pattern):
    # As when a shell writes it out.
    (traces / "bert" / "deep").mkdir()
    own_recording({"one": 1}).write(traces / "bert" / "deep" / "5.json.gz")
    (traces / "bert" / "notes.txt").write_text("no recording")
    fleet(traces / pattern, "--into", tmp_path / "out")
    deep = {"4.json.gz", "5.json.gz"}
    names = records_in(tmp_path / "out").keys()
    if pattern == "be*":
        assert names == deep
    else:
        assert deep | {"0.json.gz", "cut.json.gz", "other.json"} <= names


def test_the_case_of_an_ending_decides_nothing(traces, tmp_path):
    shutil.move(traces / "0.json.gz", traces / "UP.JSON.GZ")
    with zipfile.ZipFile(tmp_path / "ONE.ZIP", "w") as packed:
        packed.write(traces / "1.json.gz", "IN.Json.Gz")
    assert fleet(traces, tmp_path / "ONE.ZIP", "--into", tmp_path / "out", "--max-bad", "9") == 0
    records = records_in(tmp_path / "out")
    assert {"UP.JSON.GZ", "IN.Json.Gz"} <= records.keys()
    assert records["IN.Json.Gz"]["result"]["summary"] == records["1.json.gz"]["result"]["summary"]


@pytest.mark.parametrize("name", ["more.tar", "more.tar.gz", "MORE.TGZ"])
def test_tar_archives_are_refused_by_name_or_told_of(traces, tmp_path, capsys, name):
    with tarfile.open(traces / "bert" / name, "w:" if name.endswith("tar") else "w:gz") as packed:
        packed.add(traces / "0.json.gz")
    for source in (traces / "bert" / name, traces / "bert" / "*"):
        assert fleet(source, "--into", tmp_path / "none") == 2
        assert f"{name}: tar archives" in capsys.readouterr().err
    fleet(traces, "--into", tmp_path / "out")
    assert "tar archives: 1 file" in capsys.readouterr().err
    assert summary_in(tmp_path / "out")["listed"] == 8


def test_a_link_to_a_folder_beside_it_counts_no_file_twice(traces, tmp_path):
    (traces / "again").symlink_to(traces / "bert")
    (traces / "1.json.gz").unlink()
    # A link to a file is a name of its own, as in the caches of hubs.
    (traces / "1.json.gz").symlink_to("0.json.gz")
    fleet(traces / "*", traces / "again", "--into", tmp_path / "out")
    lines = (tmp_path / "out" / "records.jsonl").read_text().splitlines()
    urls = [json.loads(line)["url"] for line in lines]
    assert [url for url in urls if url.endswith("4.json.gz")] == [str(traces / "bert" / "4.json.gz")]
    assert len(urls) == 8
    fleet(traces / "again", "--into", tmp_path / "linked")
    assert records_in(tmp_path / "linked")["4.json.gz"]["url"] == str(traces / "again" / "4.json.gz")


def test_bounds_may_be_plain_numbers_of_seconds_and_bytes(traces, tmp_path):
    assert fleet(traces / "0.json.gz", "--into", tmp_path / "out", "--timeout", "20", "--memory", "4000000000") == 0
    assert fleet(traces / "0.json.gz", "--into", tmp_path / "out", "--timeout", "1.5", "--memory", "inf") == 2


def test_a_manifest_s_values_are_texts_as_json_writes_them(traces, tmp_path):
    manifest, rules = tmp_path / "list.jsonl", tmp_path / "rules.toml"
    line = '"model": null, "gated": true, "batch": 8, "lr": 1e-3, "tags": ["a", "b"], "name": "é", "size": null'
    manifest.write_text(f'{{"url": "traces/0.json.gz", {line}}}\n{{"url": "traces/1.json.gz", "model": "bert"}}\n')
    rules.write_text("[[rule]]\nwhere = { model = '*' }\nlimits = { max_kernels = 0 }\n")
    assert fleet(manifest, "--rules", rules, "--into", tmp_path / "out") == 1
    said, other = (records_in(tmp_path / "out")[name] for name in ("0.json.gz", "1.json.gz"))
    assert said["metadata"] == {"gated": "true", "batch": "8", "lr": "1e-3", "tags": '["a", "b"]', "name": "é"}
    assert ("rule" in said, other["rule"]) == (False, "rule 1")


def test_a_source_without_recordings_is_named_with_what_it_is(tmp_path, capsys):
    with zipfile.ZipFile(tmp_path / "none.zip", "w") as packed:
        packed.writestr("read.me", "no recording")
    (tmp_path / "none.jsonl").write_text("\n")
    (tmp_path / "none").mkdir()
    for source, what in (("none.zip", "archive"), ("none.jsonl", "manifest"), ("none", ".pftrace")):
        assert fleet(tmp_path / source, "--into", tmp_path / "out") == 2
        shown = capsys.readouterr().err
        assert f"{tmp_path / source}: " in shown
        assert what in shown


def test_an_archive_that_cannot_be_read_is_quarantined_and_the_others_are_judged(traces, tmp_path):
    for name in ("good.zip", "cut.zip"):
        with zipfile.ZipFile(tmp_path / name, "w") as packed:
            packed.write(traces / "0.json.gz", "0.json.gz")
    cut = (tmp_path / "cut.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(cut[: len(cut) // 2])
    assert fleet(tmp_path / "*.zip", "--into", tmp_path / "out") == 3
    records = records_in(tmp_path / "out")
    assert records.keys() == {"0.json.gz", "cut.zip"}
    assert says(from_plain(records["cut.zip"]["quarantined"]), Unreadable)
    assert says(from_plain(records["cut.zip"]["quarantined"]).cause, ArchiveDamaged, path=str(tmp_path / "cut.zip"))


def test_a_member_that_is_encrypted_is_not_called_damaged(traces, tmp_path):
    with zipfile.ZipFile(tmp_path / "secret.zip", "w") as packed:
        packed.write(traces / "0.json.gz", "0.json.gz")
    content = bytearray((tmp_path / "secret.zip").read_bytes())
    content[6] |= 1
    content[content.index(b"PK\1\2") + 8] |= 1
    (tmp_path / "secret.zip").write_bytes(content)
    assert fleet(tmp_path / "secret.zip", "--into", tmp_path / "out") == 3
    cause = from_plain(records_in(tmp_path / "out")["0.json.gz"]["quarantined"]).cause
    assert isinstance(cause, NotUnpacked)
    assert "encrypted" in cause.error


def test_the_same_limit_written_in_another_way_is_the_same_run(traces, tmp_path, capsys):
    assert fleet(traces, "--into", tmp_path / "out", "--limit", "max_kernels=3") == 1
    before = content(tmp_path / "out")
    assert fleet(traces, "--into", tmp_path / "out", "--limit", "max_kernels = 3 ") == 1
    assert content(tmp_path / "out") == before
    assert fleet(traces, "--into", tmp_path / "out", "--limit", "max_kernels=4") == 2


def test_a_list_of_another_schema_is_refused_by_its_number(traces, tmp_path, capsys):
    fleet(traces, "--into", tmp_path / "out")
    frozen = tmp_path / "out" / "list.json"
    frozen.write_text(frozen.read_text().replace('"schema":1', '"schema":99', 1))
    assert fleet(traces, "--into", tmp_path / "out") == 2
    assert f"{frozen}: expected schema 1, got 99" in capsys.readouterr().err


def test_what_a_folder_holds_that_is_not_looked_into_is_told(traces, tmp_path, capsys):
    words = [traces, "--into", tmp_path / "out"]
    with zipfile.ZipFile(traces / "bert" / "more.zip", "w") as packed:
        packed.write(traces / "0.json.gz", "0.json.gz")
    (tmp_path / "elsewhere").mkdir()
    (traces / "linked").symlink_to(tmp_path / "elsewhere")
    fleet(*words)
    assert "1 archive and 1 link to folders" in capsys.readouterr().err
    assert summary_in(tmp_path / "out")["listed"] == 8
    with zipfile.ZipFile(tmp_path / "outer.zip", "w") as packed:
        packed.write(traces / "bert" / "more.zip", "more.zip")
        packed.write(traces / "0.json.gz", "0.json.gz")
    fleet(tmp_path / "outer.zip", tmp_path / "*.zip", "--into", tmp_path / "nested")
    assert "1 archive and 0 links" in capsys.readouterr().err
    (tmp_path / "again").symlink_to(traces)
    fleet(tmp_path / "again", f"{traces}/", traces / "bert" / "..", traces / "bert", "--into", tmp_path / "once")
    assert "1 archive and 1 link to folders" in capsys.readouterr().err


def test_files_that_may_be_recordings_by_other_names_are_counted(traces, tmp_path, capsys):
    for name in ("a.gz", "b.json.zst", "c.trace", "notes.md"):
        shutil.copy(traces / "0.json.gz", traces / name)
    fleet(traces, "--into", tmp_path / "out")
    assert ": 3 files that may be recordings" in capsys.readouterr().err
    assert summary_in(tmp_path / "out")["listed"] == 8


def test_what_other_runs_have_written_is_no_recording(traces, tmp_path, capsys):
    assert fleet(traces, "--into", traces / "before") == 3
    # Their names alone say nothing, and neither does a folder beside them.
    own_recording({"one": 1}).write(traces / "bert" / "list.json")
    own_recording({"one": 2}).write(traces / "bert" / "summary.json")
    (traces / "bert" / "parts").mkdir()
    capsys.readouterr()
    assert fleet(traces, "--into", traces / "out") == 3
    assert "other runs have written into 1 folder" in capsys.readouterr().err
    assert counts(summary_in(traces / "out")) == [10, 7, 1, 2]


def test_large_files_are_judged_first(tmp_path):
    files = [tmp_path / "traces" / f"{number}.json" for number in range(6)]
    files[0].parent.mkdir()
    for file, kernels in zip(files, (40, 2, 300, 9, 5000, 700), strict=True):
        own_recording({"one": kernels}).write(file)
    assert main(["fleet", "run", str(tmp_path / "traces"), "--into", str(tmp_path / "out"), "--jobs", "1"]) == 0
    parts = sorted((tmp_path / "out" / "parts").iterdir(), key=lambda part: part.stat().st_mtime_ns)
    judged = [Path(json.loads(line)["url"]) for part in parts for line in part.read_text().splitlines()]
    assert judged == sorted(files, key=lambda file: file.stat().st_size, reverse=True)
    records = (tmp_path / "out" / "records.jsonl").read_text().splitlines()
    assert [Path(json.loads(line)["url"]) for line in records] == files


def test_a_mistake_leaves_no_process_behind(tmp_path):
    assert fleet(tmp_path / "nothing", "--into", tmp_path / "out") == 2
    assert not multiprocessing.active_children()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes that are files")
@pytest.mark.parametrize("name", ["pipe.zip", "pipe.jsonl", "pipe.json", "pip*.zip"])
def test_a_pipe_is_quarantined_whatever_its_name_promises(tmp_path, name):
    os.mkfifo(tmp_path / name.replace("*", "e"))
    driver = started(tmp_path / name, "--into", tmp_path / "out", cwd=tmp_path)
    # A reader would wait for a writer for ever.
    driver.communicate(timeout=120)
    assert driver.returncode == 3
    assert counts(summary_in(tmp_path / "out")) == [1, 0, 0, 1]


def test_a_damaged_record_that_is_still_json_is_told_with_the_part_that_holds_it(traces, tmp_path, capsys):
    words = [traces, "--into", tmp_path / "out"]
    fleet(*words)
    (part,) = (tmp_path / "out" / "parts").iterdir()
    part.write_bytes(part.read_bytes().replace(b'"outcome":"recorded"', b'"outcome":"recorted"', 1))
    for command in (["status"], ["report"], ["retry"]):
        capsys.readouterr()
        assert main(["fleet", *command, str(tmp_path / "out")]) == 2
        assert str(part) in capsys.readouterr().err
    part.unlink()
    assert fleet(*words) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere all names are UTF-8")
def test_a_name_that_is_no_utf8_is_judged_like_any_other(traces, tmp_path):
    name = os.fsencode(traces) + b"/caf\xe9.json.gz"
    shutil.copy(traces / "0.json.gz", os.fsdecode(name))
    shutil.copy(traces / "3.json.gz", traces / r"caf\xe9.json.gz")
    for _ in range(2):
        assert fleet(traces, "--limit", "max_kernels=3", "--into", tmp_path / "out") == 1
        assert counts(summary_in(tmp_path / "out")) == [10, 7, 1, 2]
    lines = (tmp_path / "out" / "records.jsonl").read_text().splitlines()
    outcomes = [record["result"]["outcome"] for line in lines if "caf" in (record := json.loads(line))["url"]]
    assert sorted(outcomes) == ["failed", "passed"]


def test_records_do_not_depend_on_the_process_that_judges(tmp_path, monkeypatch):
    builder = TraceBuilder()
    builder.step(0, 0, 1000)
    builder.event("python_function", "train.py(20): main", -50, 2000)
    for number in range(6):
        begin = 100 * number + 10
        builder.module(f"Linear_{number}", begin, 90)
        builder.launched("same", begin + 10, op=f"aten::op{number}")
    builder.write(tmp_path / "places.json")
    came = set()
    for seed in "1234":
        # By it the order of a set of texts differs from one process to the next.
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        out = tmp_path / f"out{seed}"
        done = started(tmp_path / "places.json", "--limit", "max_kernels=1", "--into", out, cwd=tmp_path)
        done.communicate()
        came.add((out / "records.jsonl").read_bytes())
    (line,) = came
    assert b"Linear_5" in line


def test_two_drivers_at_once_do_each_other_no_harm(traces, tmp_path):
    words = [traces, "--limit", "max_kernels=3", "--into"]
    both = [started(*words, tmp_path / "out", cwd=tmp_path) for _ in range(2)]
    for driver in both:
        shown, errors = driver.communicate()
        assert driver.returncode == 1, errors
        assert shown.startswith("8 files listed: 5 judged, 1 not measured, 2 quarantined"), errors
    assert fleet(*words, tmp_path / "alone") == 1
    assert content(tmp_path / "out") == content(tmp_path / "alone")


def test_a_file_that_changes_while_it_runs_is_told_as_changed(traces, tmp_path):
    archive = tmp_path / "nightly.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.write(traces / "0.json.gz", "packed.json.gz")
    words = [traces, archive, "--into", tmp_path / "out"]
    fleet(*words)
    shutil.rmtree(tmp_path / "out" / "parts")
    own_recording({"one": 7}).write(traces / "1.json.gz")
    (traces / "2.json.gz").unlink()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.write(traces / "0.json.gz", "other.json.gz")
    assert fleet(*words) == 3
    records = records_in(tmp_path / "out")
    assert from_plain(records["1.json.gz"]["quarantined"]).code == Code.RECORDING_CHANGED
    assert from_plain(records["2.json.gz"]["quarantined"]).code == "recording-missing"
    assert from_plain(records["packed.json.gz"]["quarantined"]).code == Code.RECORDING_CHANGED
    assert counts(summary_in(tmp_path / "out")) == [9, 3, 1, 5]


def test_a_file_that_takes_too_much_is_quarantined_and_the_others_are_judged(traces, tmp_path):
    large(traces / "large.json.gz")
    assert fleet(traces, "--memory", "192MiB", "--into", tmp_path / "memory") == 3
    assert fleet(traces, "--timeout", "0.5s", "--into", tmp_path / "time") == 3
    taken = {name: records_in(tmp_path / name) for name in ("memory", "time")}
    of_large = {name: from_plain(records.pop("large.json.gz")["quarantined"]) for name, records in taken.items()}
    assert [reason.code for reason in of_large.values()] == [Code.OUT_OF_MEMORY, Code.TOOK_TOO_LONG]
    assert says(of_large["memory"], reasons.TookTooMuchMemory, limit=192 << 20)
    assert says(of_large["time"], reasons.TookTooLong, limit_us=5e5)
    assert taken["memory"] == taken["time"]
    assert counts(summary_in(tmp_path / "time")) == [9, 5, 1, 3]


@pytest.mark.parametrize("engine", [[], ["--engine", "futures:concurrent.futures:ThreadPoolExecutor"]])
def test_small_files_are_judged_whatever_becomes_of_those_given_with_them(traces, tmp_path, engine):
    for number in range(40):
        own_recording({"one": number % 7 + 1}).write(traces / f"small{number}.json.gz")
    assert fleet(traces, "--into", tmp_path / "alone") == 3
    bad = large(traces / "small2long.json.gz", parts=8, level=9)
    # Small enough to be given to a process with others, and it takes as long as a large one.
    assert bad.stat().st_size < 240 << 10
    assert fleet(traces, "--timeout", "0.5s", "--into", tmp_path / "out", *engine) == 3
    records = records_in(tmp_path / "out")
    assert from_plain(records.pop(bad.name)["quarantined"]).code == Code.TOOK_TOO_LONG
    assert records == records_in(tmp_path / "alone")
    assert counts(summary_in(tmp_path / "out")) == [49, 45, 1, 3]


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them")


def opened_by(path):
    """Yield the processes that have a file open."""
    for process in Path("/proc").glob("[0-9]*"):
        # It may end while it is looked at.
        with contextlib.suppress(OSError):
            if any(link.readlink() == path for link in (process / "fd").iterdir()):
                yield int(process.name)


@needs_proc
def test_a_file_that_kills_its_process_is_quarantined(traces, tmp_path):
    killer, done = large(traces / "killer.json.gz"), Event()

    def kill():
        while not done.is_set():
            for pid in opened_by(killer):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    killing = Thread(target=kill)
    killing.start()
    try:
        assert fleet(traces, "--retries", 1, "--into", tmp_path / "out") == 3
    finally:
        done.set()
        killing.join()
    reason = from_plain(records_in(tmp_path / "out")["killer.json.gz"]["quarantined"])
    assert says(reason, reasons.WorkerDied, status=-signal.SIGKILL)
    assert reason.code == Code.WORKER_DIED
    assert counts(summary_in(tmp_path / "out")) == [9, 5, 1, 3]


def crew_of_pool(jobs, bounds):
    """Return the crew of an engine that the user has made of Python's own pool."""
    return EngineCrew(Engine(partial(ProcessPoolExecutor, jobs, get_context("spawn")), lambda: None), jobs, bounds)


def crew_of_loky(jobs, bounds):
    """Return the crew of an engine that the user has made of loky's pool."""
    loky = pytest.importorskip("loky", reason="needs loky, which is installed by hand: pip install loky")
    return EngineCrew(Engine(lambda: loky.ProcessPoolExecutor(jobs), lambda: None), jobs, bounds)


@pytest.mark.skipif(sys.platform == "win32", reason="the processes hand over more than a pipe of Linux holds")
@pytest.mark.parametrize("crew_of", [LocalCrew, crew_of_pool, crew_of_loky])
def test_a_process_that_is_killed_while_it_hands_over_what_it_judged_is_replaced(traces, crew_of):
    """Their answers are larger than what a pipe holds: nobody empties it meanwhile, as on a machine with much to do."""
    crew = crew_of(2, Bounds(memory_bytes=2 << 30, timeout_s=60))
    files = [traces / f"{number}.json.gz" for number in range(4)] * 4
    tasks = tuple(
        FileTask(key=f"{at}", file=file_at_path(str(file)), question=Question()) for at, file in enumerate(files)
    )
    try:
        given = [crew.submit(tasks) for _ in range(12)]
        given[0].result(60)
        kill_children_at_full_pipes(2)
        # None is waited for without an end: each has come, or is tried again.
        assert not wait(given, timeout=60).not_done
    finally:
        crew.end()


def test_the_processes_of_a_program_that_calls_the_command_stay(traces, tmp_path):
    sleeping = get_context("spawn").Process(target=time.sleep, args=(600,))
    sleeping.start()
    try:
        assert fleet(traces, "--into", tmp_path / "out") == 3
        assert sleeping.is_alive()
    finally:
        sleeping.kill()
        sleeping.join()


def children(pid):
    pids = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            pids += map(int, thread.read_text().split())
    return pids


def proc_file(pid, what):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{what}").read_text()
    return ""


def workers_of(driver):
    """Return the processes that a driver has spawned, once there are any; none if it has ended."""
    while driver.poll() is None:
        time.sleep(0.02)
        if len(spawned := spawned_by(driver)) >= 2:
            return spawned
    return []


def spawned_by(driver):
    return [pid for pid in children(driver.pid) if "spawn_main" in proc_file(pid, "cmdline")]


@needs_proc
def test_kills_at_any_time_change_nothing(traces, tmp_path):
    for number in range(60):
        own_recording({"one": number % 7 + 1}).write(traces / f"more{number}.json")
    words = [traces, "--limit", "max_kernels=3", "--into"]
    assert fleet(*words, tmp_path / "undisturbed") == 1
    chance = random.Random(31)
    for number in range(6):
        driver = started(*words, tmp_path / "out", cwd=tmp_path)
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(chance.uniform(0.3, 2.0))
        whom = [driver.pid] if number % 2 else children(driver.pid)
        for pid in whom:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not number % 2:
            driver.communicate()
            assert driver.returncode == 1
            assert content(tmp_path / "out") == content(tmp_path / "undisturbed")
            shutil.rmtree(tmp_path / "out")
        else:
            driver.communicate()
    assert fleet(*words, tmp_path / "out") == 1
    assert content(tmp_path / "out") == content(tmp_path / "undisturbed")


@needs_proc
def test_ctrl_c_says_how_far_the_run_came_and_the_same_command_goes_on(traces, tmp_path):
    words = [traces, "--into", tmp_path / "out", "--limit", "max_kernels=3"]
    first = large(traces / "large.json.gz")
    driver = started(*words, cwd=tmp_path)
    while not any(opened_by(first)):
        assert driver.poll() is None, driver.communicate()
    driver.send_signal(signal.SIGINT)
    shown, errors = driver.communicate()
    assert (driver.returncode, shown) == (130, "")
    assert " of 9 files; what was judged stays" in errors
    assert "Traceback" not in errors
    assert fleet(*words) == 1
    assert counts(summary_in(tmp_path / "out")) == [9, 5, 1, 3]


@needs_proc
def test_memory_bounds_how_many_processes_there_are(tmp_path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    (tmp_path / "traces").mkdir()
    for number in range(3):
        large(tmp_path / "traces" / f"{number}.json.gz", parts=1, level=0)
    most = {}
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for memory in (whole, 128 << 20):
        command = [sys.executable, "-c", FLEET, str(tmp_path / "traces"), "--into", str(tmp_path / f"out{memory}")]
        with subprocess.Popen([*command, f"--memory={memory}"], stdout=subprocess.DEVNULL) as driver:
            most[memory] = 0
            while driver.poll() is None:
                most[memory] = max(most[memory], len(spawned_by(driver)))
                time.sleep(0.01)
    assert (most[whole], most[128 << 20] > 1) == (1, True)


@needs_proc
def test_no_process_outlives_its_driver(traces, tmp_path):
    large(traces / "large.json.gz")
    driver = started(traces, "--into", tmp_path / "out", cwd=tmp_path)
    workers = workers_of(driver)
    assert workers
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    until = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < until
        time.sleep(0.05)


def give_up_privileges():
    """Let permissions bind this process even where it is root's: without capabilities, root is a user like others."""
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, none) == 0


@needs_proc
def test_a_folder_that_cannot_be_written_is_said_so(traces, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    if (child := os.fork()) == 0:
        status = None
        try:
            with (tmp_path / "said").open("w") as sys.stderr:
                give_up_privileges()
                status = fleet(traces / "0.json.gz", "--into", locked / "out")
        finally:
            os._exit(99 if status is None else status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    said = (tmp_path / "said").read_text()
    assert f"{locked / 'out'}: cannot be written: Permission denied" in said
    assert "[report-not-written]" in said


@needs_proc
def test_a_full_disk_loses_nothing(traces, tmp_path):
    words = [traces, "--into", tmp_path / "out"]
    driver = started(*words, cwd=tmp_path)
    driver.communicate()
    whole = content(tmp_path / "out")
    for left in ("summary.json", "records.jsonl"):
        (tmp_path / "out" / left).unlink()
    shutil.rmtree(tmp_path / "out" / "parts")
    limited = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n{FLEET}"
    (tmp_path / "limited.py").write_text(limited)
    command = [sys.executable, str(tmp_path / "limited.py"), *map(str, words), "--jobs", "2"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "[report-not-written]" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not list((tmp_path / "out").rglob("*.tmp"))
    assert fleet(*words) == 3
    assert content(tmp_path / "out") == whole


@pytest.mark.skipif(sys.platform == "win32", reason="a console there tells processes by groups")
def test_ctrl_c_while_a_process_begins_is_the_commands_alone(traces, tmp_path):
    """A terminal interrupts all processes at once, also one that has just begun to import."""
    interrupted = (
        "import os, signal, sys\nif 'spawn_main' in ' '.join(sys.orig_argv): os.kill(os.getpid(), signal.SIGINT)"
    )
    (tmp_path / "early").mkdir()
    (tmp_path / "early" / "sitecustomize.py").write_text(interrupted)
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join(filter(None, [str(tmp_path / "early"), before]))
    out, err = started(traces, "--into", tmp_path / "out", cwd=tmp_path, PYTHONPATH=path).communicate()
    assert "Traceback" not in err
    assert "8 files listed: 5 judged" in out


def test_shards_share_the_folder_and_nothing_else(traces, tmp_path, capsys):
    words = [traces, "--limit", "max_kernels=3", "--into"]
    assert fleet(*words, tmp_path / "whole") == 1
    capsys.readouterr()
    came = [fleet(*words, tmp_path / "out", "--shard", f"{number}/3") for number in (2, 1, 3)]
    shown = capsys.readouterr().out
    assert re.findall(r"^(\d) files listed: .*", shown, re.MULTILINE) == ["3", "3", "2"]
    assert not (tmp_path / "out" / "summary.json").exists()
    assert 1 in came
    assert 0 not in came
    parts = set((tmp_path / "out" / "parts").iterdir())
    assert fleet(*words, tmp_path / "out") == 1
    assert set((tmp_path / "out" / "parts").iterdir()) == parts
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    for wrong in ("0/3", "4/3", "1", "a/b"):
        assert fleet(*words, tmp_path / "out", "--shard", wrong) == 2


FACTORIES = """
import multiprocessing
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor

def processes():
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))

def threads():
    return ThreadPoolExecutor(2)

class Losing(ThreadPoolExecutor):
    def submit(self, work, *given):
        return super().submit(lose)

def lose():
    raise ConnectionError("no host answers")

def losing():
    return Losing(2)

class Forgetful(ThreadPoolExecutor):
    def __init__(self, fates):
        super().__init__(2)
        self.fates = fates

    def submit(self, work, folder, act, *given):
        fates = self.fates.get(act.__name__)
        if not fates:
            return super().submit(work, folder, act, *given)
        future = Future()
        if fates.pop(0) == "breaks":
            future.set_exception(BrokenExecutor("a process has died"))
        return future

BESIDE = {"judge_there": ["forgets", "breaks"]}
ALONE = {"judge_there": ["breaks", "breaks"], "judge_alone": ["forgets", "breaks"]}

def forgets_beside():
    return Forgetful(BESIDE)

def forgets_alone():
    return Forgetful(ALONE)

class Refusing(ThreadPoolExecutor):
    def submit(self, work, *given):
        raise TypeError("no work today")

def refusing():
    return Refusing(2)

def nothing():
    return 5
"""


@pytest.mark.parametrize("factory", ["processes", "threads"])
def test_any_executor_comes_to_the_same(traces, tmp_path, monkeypatch, factory):
    (tmp_path / "fleet_factories.py").write_text(FACTORIES)
    monkeypatch.syspath_prepend(tmp_path)
    words = [traces, "--limit", "max_kernels=3", "--into"]
    assert fleet(*words, tmp_path / "whole") == 1
    assert fleet(*words, tmp_path / "out", "--engine", f"futures:fleet_factories:{factory}") == 1
    assert content(tmp_path / "out") == content(tmp_path / "whole")


@pytest.mark.parametrize("factory", ["forgets_beside", "forgets_alone"])
def test_what_an_executor_forgets_as_it_breaks_is_judged_all_the_same(traces, tmp_path, monkeypatch, factory):
    (tmp_path / "fleet_factories.py").write_text(FACTORIES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("pytest_torchprof.fleet.driving._TOGETHER_FILES", 2)
    words = [traces, "--limit", "max_kernels=3", "--into"]
    assert fleet(*words, tmp_path / "whole") == 1
    assert fleet(*words, tmp_path / "out", "--engine", f"futures:fleet_factories:{factory}") == 1
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    assert not any(vars(sys.modules["fleet_factories"])[factory.partition("_")[2].upper()].values())


class FullMachine(ThreadPoolExecutor):
    """Begins no process, as where there are as many as may be."""

    def __init__(self, jobs, *_):
        super().__init__(jobs)

    def submit(self, *_):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def test_where_no_further_process_begins_the_same_command_goes_on_later(traces, tmp_path, monkeypatch, capsys):
    words = [traces, "--limit", "max_kernels=3", "--into"]
    assert fleet(*words, tmp_path / "whole") == 1
    with monkeypatch.context() as full:
        full.setattr("pytest_torchprof.system.spawned_pool.ProcessPoolExecutor", FullMachine)
        assert fleet(*words, tmp_path / "out") == 2
    assert "no process could be begun: BlockingIOError" in capsys.readouterr().err
    assert fleet(*words, tmp_path / "out") == 1
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_where_no_process_begins_for_a_file_alone_it_is_not_quarantined(traces, tmp_path, monkeypatch, capsys):
    def run(*_, **__):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    large(traces / "large.json.gz")
    words = [traces, "--timeout", "0.5s", "--into", tmp_path / "out"]
    with monkeypatch.context() as full:
        full.setattr("pytest_torchprof.fleet.alone.run", run)
        assert fleet(*words) == 2
    assert "no process could be begun" in capsys.readouterr().err
    assert fleet(*words) == 3
    assert counts(summary_in(tmp_path / "out")) == [9, 5, 1, 3]


def test_what_an_engine_loses_is_quarantined(traces, tmp_path, monkeypatch):
    (tmp_path / "fleet_factories.py").write_text(FACTORIES)
    monkeypatch.syspath_prepend(tmp_path)
    words = [traces, "--into", tmp_path / "out", "--retries", 0, "--engine", "futures:fleet_factories:losing"]
    assert fleet(*words) == 3
    assert counts(summary_in(tmp_path / "out")) == [8, 0, 0, 8]
    reason = from_plain(records_in(tmp_path / "out")["0.json.gz"]["quarantined"])
    assert (reason.code, reason.error) == (Code.JUDGING_FAILED, "ConnectionError: no host answers")


@pytest.mark.parametrize(
    "engine",
    [
        "dask:",
        "futures",
        "futures:fleet_factories:gone",
        "futures:gone:processes",
        "futures:fleet_factories:nothing",
        "futures:fleet_factories:refusing",
    ],
)
def test_an_engine_that_is_none_is_told(traces, tmp_path, monkeypatch, capsys, engine):
    (tmp_path / "fleet_factories.py").write_text(FACTORIES)
    monkeypatch.syspath_prepend(tmp_path)
    assert fleet(traces, "--into", tmp_path / "out", "--engine", engine) == 2
    assert "--engine" in capsys.readouterr().err


@needs_proc
def test_dask_comes_to_the_same_though_a_worker_is_killed(traces, tmp_path):
    pytest.importorskip("distributed")
    for number in range(100):
        own_recording({"one": number % 7 + 1}).write(traces / f"more{number}.json")
    words = [traces, "--limit", "max_kernels=3", "--into"]
    assert fleet(*words, tmp_path / "whole") == 1
    driver = started(*words, tmp_path / "out", "--engine", "dask", cwd=tmp_path)
    judging = []
    while not judging and driver.poll() is None:
        judging = [pid for pid in workers_of(driver) if "msgspec" in proc_file(pid, "maps")]
    assert judging
    with contextlib.suppress(ProcessLookupError):
        os.kill(judging[0], signal.SIGKILL)
    _, errors = driver.communicate()
    assert driver.returncode == 1, errors
    assert content(tmp_path / "out") == content(tmp_path / "whole")


def test_a_scheduler_of_dask_that_runs_already_judges_by_its_address(traces, tmp_path):
    distributed = pytest.importorskip("distributed")
    words = [traces, "--limit", "max_kernels=3", "--into"]
    assert fleet(*words, tmp_path / "whole") == 1
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        assert fleet(*words, tmp_path / "out", "--engine", f"dask:{address}") == 1
        # It is not ours to end.
        with distributed.Client(address) as client:
            assert client.submit(sum, [1, 2]).result() == 3
    assert content(tmp_path / "out") == content(tmp_path / "whole")


@needs_proc
def test_ray_comes_to_the_same_by_the_adapter_of_the_documentation(traces, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="needs Ray, which is installed by hand: pip install ray")
    page = (Path(__file__).parents[1] / "docs" / "fleet.md").read_text()
    (adapter,) = re.findall(r"```python\n# fleet_ray.py.*?\n(.*?)```", page, re.DOTALL)
    (tmp_path / "fleet_ray.py").write_text(adapter)
    large(traces / "large.json.gz")
    words = [traces, "--limit", "max_kernels=3", "--timeout", "1s", "--into"]
    assert fleet(*words, tmp_path / "whole") == 1
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    driver = started(*words, tmp_path / "out", "--engine", "futures:fleet_ray:RayExecutor", cwd=tmp_path)
    _, errors = driver.communicate()
    assert driver.returncode == 1, errors
    assert content(tmp_path / "out") == content(tmp_path / "whole")
    records = records_in(tmp_path / "out")
    assert from_plain(records["large.json.gz"]["quarantined"]).code == Code.TOOK_TOO_LONG


def test_loky_comes_to_the_same(traces, tmp_path, monkeypatch):
    pytest.importorskip("loky", reason="needs loky, which is installed by hand: pip install loky")
    (tmp_path / "fleet_loky.py").write_text(
        "from loky import get_reusable_executor\ndef made(): return get_reusable_executor(max_workers=2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    words = [traces, "--limit", "max_kernels=3", "--into"]
    assert fleet(*words, tmp_path / "whole") == 1
    assert fleet(*words, tmp_path / "out", "--engine", "futures:fleet_loky:made") == 1
    assert content(tmp_path / "out") == content(tmp_path / "whole")


@needs_proc
def test_a_folder_that_takes_no_files_is_said_so(traces, capsys):
    assert fleet(traces, "--into", "/proc/fleet") == 2
    assert "[report-not-written]" in capsys.readouterr().err


def test_a_rule_whose_files_are_all_those_of_others_is_named_once(traces, tmp_path, capsys):
    rules = tmp_path / "rules.toml"
    rules.write_text(
        '[[rule]]\nname = "numbers"\nfiles = ["[0-3].json.gz"]\n[[rule]]\nname = "all"\n'
        '[[rule]]\nname = "late"\nfiles = ["bert/*", "1.json.gz"]\n'
    )
    words = [traces, "--rules", rules, "--into", tmp_path / "out"]
    assert fleet(*words) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{rules}: late" in line
    assert "numbers or all" in line
    assert "numbers is" not in line
    assert fleet(*words) == 3
    assert capsys.readouterr().err == ""


def test_the_rules_of_the_documentation_are_rules(traces, tmp_path):
    page = (Path(__file__).parents[1] / "docs" / "fleet.md").read_text()
    (rules,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "rules.toml").write_text(rules)
    shutil.move(traces / "0.json.gz", traces / "training")
    (traces / "nightly" / "training").mkdir(parents=True)
    shutil.move(traces / "training", traces / "nightly" / "training" / "0.json.gz")
    (traces / "inference").mkdir()
    shutil.move(traces / "1.json.gz", traces / "inference" / "1.json.gz")
    manifest = tmp_path / "list.jsonl"
    manifest.write_text('{"url": "traces/inference/1.json.gz", "model": "bert-base", "prod": true}\n')
    words = [traces / "nightly", manifest, "--rules", tmp_path / "rules.toml", "--into", tmp_path / "out"]
    assert fleet(*words) == 3
    records = records_in(tmp_path / "out")
    assert (records["0.json.gz"]["rule"], records["1.json.gz"]["rule"]) == ("rule 2", "inference")
