"""What a table tells of a row beside its total: how many, mean, least and most, and the step in which they took most."""

from __future__ import annotations

import json

import pytest
from builder import TraceBuilder
from facts import LEFT_OUT
from findings_on_recordings import FINDINGS

from pytest_torchprof import load
from pytest_torchprof.cli import main
from pytest_torchprof.report.analysis_json import as_dict

pytestmark = pytest.mark.any_torch

WAYS = {"kernel": "kernels", "family": "families", "op": "ops", "range": "ranges"}
TOLD = ("mean_us", "min_us", "max_us", "worst_step", "worst_step_us")


def three_steps(steps=3):
    """In step 0 two kernels of 10 and 30 us, in step 1 one of 50, in step 2 one of 20, each in a range "part"."""
    builder = TraceBuilder()
    for number, durations in enumerate([(10, 30), (50,), (20,)][:steps]):
        at = number * 1000
        builder.step(number, at, 900)
        builder.annotation("part", at + 5, 200 + number)
        for place, took in enumerate(durations):
            builder.launched("ampere_sgemm_128x64_tn", at + 10 + 100 * place, op="aten::mm", dur=took)
    return builder


@pytest.fixture
def rows(tmp_path, capsys):
    def of(builder, by, *more):
        assert main(["analyze", str(builder.write(tmp_path / "t.json")), "--json", "--by", by, *more]) == 0
        return json.loads(capsys.readouterr().out)[WAYS[by]]

    return of


@pytest.mark.parametrize("by", ["kernel", "family"])
def test_kernels_have_mean_least_most_and_worst_step(rows, by):
    (row,) = rows(three_steps(), by)
    assert (row["count"], row["time_us"]) == (4, 110)
    assert [row[name] for name in TOLD] == [27.5, 10, 50, "ProfilerStep#1", 50]


def test_operators_have_them_of_the_cpu_and_of_what_they_launched(rows):
    (row,) = rows(three_steps(), "op")
    assert [row[f"gpu_{name}"] for name in TOLD] == [27.5, 10, 50, "ProfilerStep#1", 50]
    assert [row[f"cpu_{name}"] for name in TOLD] == [8, 8, 8, "ProfilerStep#0", 16]


def test_a_range_has_them_of_each_time_it_was_entered(rows):
    part = next(row for row in rows(three_steps(), "range") if row["name"] == "part")
    assert part["calls"] == 3
    assert [part[f"gpu_{name}"] for name in TOLD] == [36.667, 20, 50, "ProfilerStep#1", 50]
    assert [part[f"cpu_{name}"] for name in TOLD] == [201, 200, 202, "ProfilerStep#2", 202]


@pytest.mark.parametrize("by", ["kernel", "family"])
def test_of_one_step_none_is_the_worst(rows, by):
    (row,) = rows(three_steps(), by, "--step", "0")
    assert [row[name] for name in TOLD] == [20, 10, 30, None, None]
    (row,) = rows(three_steps(steps=1), by)
    assert [row[name] for name in TOLD] == [20, 10, 30, None, None]


def test_the_table_says_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    table = load(three_steps().write(tmp_path / "t.json")).table().split("\n")
    assert table[1].split() == [
        "kernel",
        *["calls", "time", "share", "mean", "min", "max", "worst", "step", "launched", "by"],
    ]
    assert " ".join(table[3].split()) == (
        "gemm fp32 tn ampere_sgemm_128x64 4 110 us 100.0% 27.5 us 10.0 us 50.0 us 50.0 us #1 aten::mm"
    )
    alone = load(three_steps(steps=1).write(tmp_path / "t.json")).table().split("\n")
    assert "worst step" not in alone[1]


def test_a_narrow_terminal_names_what_it_has_no_room_for(tmp_path, monkeypatch):
    profile = load(three_steps().write(tmp_path / "t.json"))
    monkeypatch.setenv("COLUMNS", "80")
    *table, left_out = profile.table().split("\n")
    assert max(map(len, table)) <= 80
    assert table[1].split() == ["kernel", *["calls", "time", "share", "mean", "max", "worst", "step"]]
    assert left_out == "no room in 80 columns for: min, launched by"
    # The heading says what the shares are of: they are there to the last.
    monkeypatch.setenv("COLUMNS", "40")
    assert profile.table().split("\n")[2].split() == ["kernel", "time", "share"]
    monkeypatch.setenv("COLUMNS", "120")
    assert "no room" not in profile.table()


def test_a_name_that_is_cut_keeps_its_end(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    builder = three_steps()
    for tile in ("128x128x32", "128x64x32"):
        builder.launched(f"sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize{tile}_cublas", 700, op="aten::mm")
    shown = [
        line.split()[0:4] for line in load(builder.write(tmp_path / "t.json")).table().split("\n") if "gemm" in line
    ]
    assert len({tuple(name) for name in shown}) == 3


def test_the_column_that_rows_are_sorted_by_stays_and_the_times_are_of_its_device(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    builder = three_steps()
    builder.op("aten::_scaled_dot_product_flash_attention", 800, 5)
    profile = load(builder.write(tmp_path / "t.json"))
    titles = profile.table(by="op").split("\n")[1:3]
    assert "total" in titles[1]
    assert [line.count("CPU") for line in titles] == [0, 0]
    by_cpu = profile.table(by="op", sort_by="self_cpu_time_total").split("\n")[1:3]
    # Self CPU, CPU total, and mean and max of the CPU.
    assert [line.count("CPU") for line in by_cpu] == [3, 1]


def test_kernels_are_sorted_by_what_one_of_them_takes(tmp_path):
    builder = three_steps()
    builder.launched("void at::native::vectorized_elementwise_kernel<4, x>(int)", 700, op="aten::add", dur=40)
    profile = load(builder.write(tmp_path / "t.json"))
    assert profile.table().split("\n")[3].startswith("gemm")
    assert profile.table(sort_by="cuda_time").split("\n")[3].startswith("pointwise")


@pytest.mark.parametrize("recording", [name for name in FINDINGS if name not in LEFT_OUT])
def test_on_recordings_the_parts_make_the_whole(recording, shared_trace):
    """The worst step is the one whose own table, made of it alone, has the largest total."""
    profile = load(shared_trace(recording))
    numbered = [step.name.rpartition("#")[2] for step in profile.steps if step.name]
    for by, key in WAYS.items():
        alone = {
            f"ProfilerStep#{step}": {
                row.get("name") or (row["family"], row["library"]): row
                for row in as_dict(profile, (), by=by, step=int(step), findings=False)[key]
            }
            for step in (numbered if len(numbered) > 1 else ())
        }
        for row in as_dict(profile, (), by=by, findings=False)[key]:
            name = row.get("name") or (row["family"], row["library"])
            for device in ("",) if "time_us" in row else ("cpu_", "gpu_"):
                count, total = (
                    row.get("count") or row["calls"],
                    row[f"{device or ''}time_us" if not device else f"{device}us"],
                )
                mean, least, most, worst, worst_us = (row[f"{device}{one}"] for one in TOLD)
                assert least <= mean + 0.001 <= most + 0.002
                assert mean * count == pytest.approx(total, abs=0.001 * count)
                totals = [of.get(name, {}).get("time_us" if not device else f"{device}us", 0) for of in alone.values()]
                assert worst_us == (pytest.approx(max(totals), abs=0.002) if totals else None)
                assert worst is None or totals[[*alone].index(worst)] == pytest.approx(worst_us, abs=0.002)
