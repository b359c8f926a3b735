"""``torchprof fleet run``: every file of a list comes to something, and how it was judged changes nothing of it."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from builder import own_recording
from facts import says
from fleets import content, counts, every_kind, fleet, large, records_in, summary_in

from pytest_torchprof.cli import main
from pytest_torchprof.kernels.kernels import by_name
from pytest_torchprof.profiles import ENDINGS, load_file
from pytest_torchprof.reasons.catalogue import from_plain
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.fleet_folders import FleetNotWritten
from pytest_torchprof.reasons.fleet_rules import OtherThanFleetRules
from pytest_torchprof.reasons.fleet_sources import LinesDisagree, NoRecordingsInSource, NoSuchSource, NothingFits
from pytest_torchprof.reasons.recordings import RecordedElsewhere, Unreadable
from pytest_torchprof.reasons.unreadable import ArchiveDamaged, NotUnpacked

pytestmark = [pytest.mark.any_torch, pytest.mark.usefixtures("forked_judges")]


@pytest.fixture
def traces(tmp_path):
    return every_kind(tmp_path / "traces")


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
        (["gone", "--into", "out"], str(NoSuchSource("gone"))),
        (["gone.zip", "--into", "out"], str(NoSuchSource("gone.zip"))),
        (["gone*.json", "--into", "out"], str(NothingFits("gone*.json"))),
        (["empty", "--into", "out"], str(NoRecordingsInSource("empty", ENDINGS))),
        (["none.zip", "--into", "out"], str(NoRecordingsInSource("none.zip", ENDINGS, is_archive=True))),
        (["traces", "--into", "bad.toml"], str(FleetNotWritten("bad.toml", "Not a directory", has_begun=False))),
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
        (["traces", "--into", "out", "--rules", "none.toml"], str(OtherThanFleetRules("none.toml"))),
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
    assert str(LinesDisagree(f"{tmp_path}/list.jsonl", f"{traces}/2.json.gz")) in capsys.readouterr().err


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
    told = capsys.readouterr().err
    assert "BlockingIOError" in told
    assert "[judging-failed]" in told
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
    assert "[judging-failed]" in capsys.readouterr().err
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


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has such a folder")
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
