"""Compilations with cold and with warm caches, each in a process of its own, and what was found in the caches."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import fresh
import pytest
from builder import own_recording
from facts import misses, says, why_not

from pytest_torchprof import load
from pytest_torchprof.capture.torch_caches import uses_between
from pytest_torchprof.limits import check_limits, read_limits
from pytest_torchprof.limits.evidence import CachesUsed
from pytest_torchprof.limits.seen import CompileTime
from pytest_torchprof.reasons.caches import (
    CachesMoved,
    FoundFromElsewhere,
    FoundOfThisProcess,
    NotFoundInCache,
    NothingWasWarm,
)
from pytest_torchprof.reasons.catalogue import from_plain
from pytest_torchprof.reasons.limits import NotMeasuredWithCaches
from pytest_torchprof.reasons.reason import Verbatim
from pytest_torchprof.trace.caches import CacheUse, CacheUses

# A product alone leaves Inductor nothing to generate: no C++ compiler is waited for.
TESTS = """
import os
from pathlib import Path
import pytest, torch

def cached(phase, **limits):
    return pytest.mark.torchprof(device="cpu", warmup=0, steps=1, compile_cache=phase, max_compile_time=3600, **limits)

x = torch.ones(8, 8)

def product(a):
    return a @ a

def test_that_fills_the_cache_that_all_processes_share():
    torch.compile(product)(x)

@pytest.mark.torchprof(device="cpu", warmup=0, steps=1, max_compile_time={"cold": 3600, "warm": 3600})
def test_warm(request):
    request.addfinalizer(lambda: Path(os.environ["LEFT"], f"warm{os.getpid()}").touch())
    torch.compile(product)(x)
    if not Path(os.environ["LEFT"], "artifacts").exists():
        Path(os.environ["LEFT"], "artifacts").write_bytes(torch.compiler.save_cache_artifacts()[0])

@cached("cold")
def test_cold_that_loads_what_another_has_compiled():
    torch.compiler.load_cache_artifacts(Path(os.environ["LEFT"], "artifacts").read_bytes())
    torch.compile(product)(x)

@cached("cold")
def test_the_same_graph_twice():
    for _ in range(2):
        torch._dynamo.reset()
        torch.compile(lambda a: a @ a @ a)(x)

@cached("cold")
def test_two_starts(torchprof):
    torchprof(torch.compile(product), x)
    torch._dynamo.reset()
    torchprof(torch.compile(product), x)

@cached("warm")
def test_another_graph_in_each_process():
    left = Path(os.environ["LEFT"])
    size = 9 + len(list(left.glob("size*")))
    (left / f"size{size}").touch()
    torch.compile(product)(torch.ones(size, size))

@cached("warm")
def test_a_backward_that_is_never_called():
    torch.compile(product)(torch.ones(8, 8, requires_grad=True))

@cached("warm")
def test_a_backend_without_a_cache():
    torch.compile(product, backend="eager")(x + 1)

@cached("cold")
def test_a_folder_of_the_tests_own(monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", os.environ["LEFT"])
    torch.compile(product)(x)

@cached("warm")
def test_that_ends_its_process():
    os._exit(7)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the results of these tests by name, their recordings' folder, and what pytest wrote."""
    folder = tmp_path_factory.mktemp("caches")
    (folder / "left").mkdir()
    (folder / "test_it.py").write_text(TESTS)
    before = Path.cwd()
    os.chdir(folder)
    try:
        words = ["--torchprof-report=report.json", "--torchprof-save=saved", "--torchprof-baseline=update"]
        variables = {
            "LEFT": str(folder / "left"),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "torchinductor_shared"),
            "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE": "1",
            "COLUMNS": "200",
        }
        done = fresh.start_pytest("-v", *words, **variables).done(limit_s=1800)
    finally:
        os.chdir(before)
    results = json.loads((folder / "report.json").read_text())["results"]
    told = pytest.RunResult(done.returncode, done.stdout.splitlines(), done.stderr.splitlines(), 0)
    return {one["nodeid"].partition("::")[2]: one for one in results}, folder, told


def found(result, name="inductor"):
    """Return hits and misses of a cache."""
    use = result["compile_caches"]["uses"][name]
    return use["hits"], use["misses"]


def test_cold_caches_hold_nothing_that_other_processes_have_compiled(run):
    results, _, _ = run
    cold = results["test_warm"]["compile_caches"]["cold"]["uses"]
    assert [(cold[name]["hits"], cold[name]["misses"]) for name in ("aot_autograd", "inductor")] == [(0, 1), (0, 1)]


def test_warm_caches_were_filled_by_a_process_before_the_one_that_is_measured(run):
    results, folder, _ = run
    warm = results["test_warm"]
    assert (warm["outcome"], warm["compile_caches"]["phase"], warm["compile_caches"]["doubt"]) == (
        "passed",
        "warm",
        None,
    )
    assert found(warm) == found(warm, "aot_autograd") == (1, 0)
    assert len(list((folder / "left").glob("warm*"))) == 2
    assert warm["compile_caches"]["cold"]["time_us"]["total"] > 0


def test_each_phase_has_a_bound_of_its_own(run):
    _, folder, _ = run
    profile = load(next((folder / "saved").glob("*test_warm.*")))
    profile.expect(max_compile_time={"cold": 3600, "warm": 3600})
    profile.expect(max_compile_time=3600)
    verdict = misses(profile, max_compile_time={"cold": 0, "warm": 3600})
    assert [one.phase for one in verdict.seen] == ["cold", "warm"]
    assert [one.phase for one in verdict.evidence if isinstance(one, CachesUsed)] == ["cold", "warm"]
    uses = verdict.evidence[-1].uses
    assert (uses.aot_autograd.hits, uses.aot_autograd.misses, uses.inductor.hits, uses.inductor.misses) == (1, 0, 1, 0)
    assert misses(profile, max_compile_time={"warm": 0}).limit == "max_compile_time"


def test_what_a_process_has_compiled_itself_is_no_foreign_entry(run):
    results, _, _ = run
    assert results["test_the_same_graph_twice"]["outcome"] == "passed"
    assert found(results["test_the_same_graph_twice"]) == (1, 1)


@pytest.mark.parametrize(
    ("name", "kind", "facts"),
    [
        ("test_cold_that_loads_what_another_has_compiled", FoundFromElsewhere, {}),
        ("test_two_starts", FoundOfThisProcess, {"hits": 1, "cache": "Inductor"}),
        ("test_another_graph_in_each_process", NotFoundInCache, {"misses": 1, "lookups": 1, "cache": "Inductor"}),
        ("test_a_backward_that_is_never_called", NotFoundInCache, {"cache": "AOTAutograd"}),
        ("test_a_backend_without_a_cache", NothingWasWarm, {}),
        ("test_a_folder_of_the_tests_own", CachesMoved, {"variable": "TORCHINDUCTOR_CACHE_DIR"}),
    ],
)
def test_caches_that_are_not_as_the_test_asks_are_not_measured(run, name, kind, facts):
    results, _, _ = run
    assert results[name]["outcome"] == "not measured"
    told = (row.get("reason") for row in (results[name], *results[name]["limits"]))
    assert any(says(from_plain(reason), kind, **facts) for reason in told if reason is not None)
    assert "[compile-cache]" in results[name]["message"]


def test_a_process_that_ends_while_it_fills_the_caches_is_told(run):
    results, _, told = run
    assert results["test_that_ends_its_process"]["outcome"] == "not measured"
    told.stdout.fnmatch_lines(["*the process that fills the caches: *exit status 7*"])


def test_the_table_says_how_the_caches_were(run):
    _, _, told = run
    told.stdout.fnmatch_lines(
        ["test  *  cache hits  *", "*test_warm *  warm 2/2  *", "*graph_in_each_process *  warm 0/2  *"]
    )


def test_only_what_is_measured_is_kept(run):
    _, folder, _ = run
    (file,) = (folder / "__torchprof__").glob("*.json")
    assert json.loads(file.read_text())["entries"].keys() == {
        "test_warm",
        "test_the_same_graph_twice",
    }


def test_a_replay_judges_the_same_without_another_process(run, monkeypatch):
    _, folder, _ = run
    monkeypatch.chdir(folder)
    told = fresh.run_pytest("-k", "test_warm or test_another", "--torchprof-replay=saved", LEFT="left")
    told.assert_outcomes(passed=1, failed=1)
    told.stdout.fnmatch_lines(["*[[]compile-cache]*"])
    assert len(list(Path("left").glob("warm*"))) == 2


# -------------------------------------------------------------------------------------------------- without a process

COLD = {"dynamo": True, "compiled": True, "time_us": {"inductor": 2_000_000, "total": 2_000_000}}
KNOWN = {name: {"hits": 0, "misses": 1, "bypasses": 0} for name in ("aot_autograd", "inductor")}


def recorded(folder, caches):
    builder = own_recording({"k": 1})
    builder.torchprof["compile"] = {**COLD, "caches": caches}
    return load(builder.write(folder / "recording.json"))


def test_a_bound_on_caches_that_were_not_measured_so_is_not_measured(tmp_path):
    for caches in (None, {"uses": KNOWN}):
        reason = why_not(partial(recorded(tmp_path, caches).expect, max_compile_time={"cold": 3}))
        assert reason == NotMeasuredWithCaches("cold")
    recorded(tmp_path, {"uses": KNOWN, "phase": "cold"}).expect(max_compile_time={"cold": 2})
    of_cold_ones = recorded(tmp_path, {"uses": KNOWN, "phase": "cold"})
    reason = why_not(lambda: of_cold_ones.expect(max_compile_time={"cold": 2, "warm": 2}))
    assert reason == NotMeasuredWithCaches("warm")


def test_below_a_limit_on_compile_time_the_longest_part_stands_first(tmp_path):
    builder = own_recording({"k": 1})
    parts = {"dynamo": 1_000_000, "inductor": 2_000_000, "aot_autograd": 500_000, "total": 3_500_000}
    builder.torchprof["compile"] = {**COLD, "time_us": parts}
    profile = load(builder.write(tmp_path / "recording.json"))
    (verdict,) = check_limits(profile, read_limits({"max_compile_time": 3}))
    assert [fact.took_us for fact in verdict.evidence] == [2_000_000, 1_000_000, 500_000]


def test_a_doubt_is_not_measured_whatever_the_bound(tmp_path):
    profile = recorded(tmp_path, {"phase": "warm", "doubt": "it rained", "cold": {"time_us": {"total": 9_000_000}}})
    for bound in (3600, 0, {"cold": 3600, "warm": 3600}):
        assert why_not(partial(profile.expect, max_compile_time=bound)) == Verbatim("it rained")
    assert misses(profile, max_compile_time={"cold": 1, "warm": 3600}).seen == (CompileTime(9.0, "cold"),)


def test_a_count_that_torch_does_not_keep_is_told_as_not_known(tmp_path):
    profile = recorded(tmp_path, {"uses": {**KNOWN, "dynamo": {}, "triton": {"misses": 3}}})
    uses = misses(profile, max_compile_time=1).evidence[-1].uses
    assert (uses.dynamo, uses.triton) == (CacheUse(), CacheUse(misses=3))
    assert uses.aot_autograd == uses.inductor == CacheUse(hits=0, misses=1, bypasses=0)


def test_a_count_that_was_cleared_in_between_is_not_known():
    before = CacheUses(inductor=CacheUse(hits=2, misses=1, bypasses=0))
    now = CacheUses(inductor=CacheUse(hits=1, misses=3, bypasses=0))
    assert uses_between(before, now).inductor == CacheUse(hits=None, misses=2, bypasses=0)


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ("compile_cache='hot'", "expected cold"),
        ("compile_cache='cold', max_compile_time={'cold': 1, 'warm': 1}", "write compile_cache='warm'"),
        ("compile_cache='cold', ranks=2", "and ranks=2 a job; * [[]contradiction]"),
        ("max_compile_time={'tepid': 1}", "warm, got {'tepid': 1} [[]bad-value]"),
        ("max_compile_time={}", "warm, got {} [[]bad-value]"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(pytester, marker, said):
    pytester.makepyfile(f"import pytest\n@pytest.mark.torchprof(device='cpu', {marker})\ndef test_it(): pass")
    told = pytester.runpytest()
    assert told.ret == pytest.ExitCode.USAGE_ERROR
    told.stderr.fnmatch_lines([f"*{said}*"])


def test_one_measurement_of_several_cannot_have_caches_of_its_own(pytester):
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.torchprof(device="cpu")
        def test_it(torchprof):
            with torchprof.measure("once", compile_cache="cold"):
                pass
        """
    )
    told = pytester.runpytest()
    told.assert_outcomes(failed=1)
    told.stdout.fnmatch_lines(["*'compile_cache' is no limit* in the marker*unknown-keyword*"])


def test_a_process_that_has_run_other_code_is_neither_cold_nor_warm(pytester):
    pytester.makepyfile(
        """
        import pytest, torch
        @pytest.fixture(autouse=True)
        def late(request):
            request.applymarker(pytest.mark.torchprof(device="cpu", compile_cache="cold"))
        def test_it():
            torch.ones(2) + 1
        """
    )
    told = pytester.runpytest()
    told.assert_outcomes(failed=1)
    told.stdout.fnmatch_lines(["*compile_cache='cold' *[[]compile-cache]*"])


def test_where_nothing_is_measured_no_process_is_started(pytester):
    pytester.makepyfile(
        """
        import os, pytest
        PID = os.getpid()
        @pytest.mark.torchprof(device="cpu", compile_cache="warm")
        def test_it():
            with open("calls", "a") as file:
                file.write(f"{PID}\\n")
        """
    )
    pytester.runpytest("--torchprof=off").assert_outcomes(passed=1)
    assert Path("calls").read_text().split() == [str(os.getpid())]


# --------------------------------------------------------------------------------------------- what Dynamo itself keeps

PRECOMPILED = """
import pytest, torch
import torch._dynamo
torch._dynamo.config.caching_precompile = True
x = torch.ones(8, 8)

def product(a):
    return a @ a

@pytest.mark.torchprof(device="cpu", warmup=0, steps=1, compile_cache="warm", max_compile_time={"cold": 3600})
def test_it():
    torch.compile(product)(x)
    torch.compiler.save_cache_artifacts()
"""


def test_what_dynamo_keeps_is_counted_cold_and_warm_and_shown(pytester):
    pytester.makepyfile(test_it=PRECOMPILED)
    told = fresh.run_pytest("--torchprof-report=report.json", COLUMNS="200")
    told.assert_outcomes(passed=1)
    (result,) = json.loads(Path("report.json").read_text())["results"]
    caches = result["compile_caches"]
    assert caches["doubt"] is None
    assert [found({"compile_caches": one}, "dynamo") for one in (caches["cold"], caches)] == [(0, 1), (1, 0)]
    # What it has kept whole nobody else is asked for.
    assert found(result, "inductor") == (0, 0)
    told.stdout.fnmatch_lines(["*test_it *  warm 1/1  *"])
