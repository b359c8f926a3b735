"""Whole numbers of hundreds of digits, wherever somebody may write one: one clear error, and no traceback."""

from __future__ import annotations

import os
import re

import pytest
from builder import TraceBuilder

from pytest_torchprof import TorchprofError, profile
from pytest_torchprof.capture.rank import this_rank
from pytest_torchprof.cli import main

pytestmark = pytest.mark.any_torch

DIGITS = {"400 digits": "9" * 400, "5,000 digits": "9" * 5000}
HUGE = r"[\w ]+ is beyond 64 bits"


@pytest.fixture(params=DIGITS)
def number(request):
    return DIGITS[request.param]


# 10 ** 5000 is none of the literals that Python reads.
KEYWORDS = {
    "max_kernels": "{}",
    "kernels": "{{'a': {}}}",
    "max_gpu_time": "{}",
    "max_peak_memory": "{}",
    "ranges": "{{'a': {{'max_syncs': {}}}}}",
    "steps": "{}",
    "warmup": "{}",
    "ranks": "{}",
    "tolerance": "{{'kernels': {}}}",
}


def test_keywords_of_a_marker(pytester, number):
    value = f"10 ** {len(number)}"
    tests = "".join(
        f"@pytest.mark.torchprof(device='cpu', {keyword}={form.format(value)})\ndef test_{keyword}(): pass\n"
        for keyword, form in KEYWORDS.items()
    )
    pytester.makepyfile(test_it=f"import pytest\n{tests}")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    out = "\n".join([*result.outlines, *result.errlines])
    assert "INTERNALERROR" not in out
    assert "Traceback" not in out
    assert result.ret != 0
    for keyword in KEYWORDS:
        assert re.search(rf"{keyword}(=\.\.\.)?: {HUGE}", out)


@pytest.mark.parametrize(
    "option",
    [
        "torchprof_steps = {}",
        "torchprof_warmup = {}",
        "torchprof_tolerance = kernels={}",
        "torchprof_rank_timeout = {}",
    ],
)
def test_keys_of_the_ini_file(pytester, number, option):
    pytester.makepyfile(test_it="import pytest\n@pytest.mark.torchprof(device='cpu')\ndef test_it(): pass\n")
    pytester.makeini(f"[pytest]\n{option.format(number)}\n")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    said = "\n".join([*result.outlines, *result.errlines])
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "INTERNALERROR" not in said
    assert "[bad-option]" in said


@pytest.mark.parametrize(
    "words",
    [
        ["check", "TRACE", "--limit", "max_kernels={}"],
        ["check", "TRACE", "--limit", "max_gpu_time={}"],
        ["check", "TRACE", "--limit", "kernels={{'a': {}}}"],
        ["check", "TRACE", "--limit", "max_kernels=1", "--threshold", "hotspot.share={}"],
        ["check", "TRACE", "--limit", "max_kernels=1", "--threshold", "small-kernels.kernels={}"],
        ["analyze", "TRACE", "--step", "{}"],
        ["analyze", "TRACE", "--top", "{}"],
        ["run", "--limit", "max_kernels={}", "TRACE"],
    ],
)
def test_words_of_a_command(tmp_path, capsys, number, words):
    builder = TraceBuilder()
    builder.launched("kernel", 10)
    trace = builder.write(tmp_path / "trace.json")
    assert main([str(trace) if word == "TRACE" else word.format(number) for word in words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"torchprof {words[0]}: ")


@pytest.mark.parametrize("keyword", ["max_kernels", "steps"])
def test_measurements_of_scripts(number, keyword):
    with pytest.raises(TorchprofError, match=rf"{keyword}(=\.\.\.)?: {HUGE}"):
        profile(os.getpid, device="cpu", **{keyword: 10 ** len(number)})


def test_a_rank_of_so_many_digits_is_none(monkeypatch, number):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, number)
    assert this_rank().alone


def test_a_json_report(pytester, capsys, number):
    pytester.makepyfile(
        test_it="""
        import pytest, torch
        @pytest.mark.torchprof(device="cpu", max_kernels=3)
        def test_it(): torch.sin(torch.ones(2))
        """
    )
    assert pytester.runpytest_inprocess("-p", "no:cacheprovider", "--torchprof-report=report.json").ret == 0
    report = pytester.path / "report.json"
    report.write_text(re.sub(r'("kernels": )[\d.]+', rf"\g<1>{number}", report.read_text()))
    status = main(["report", str(report), "-o", "out.html"])
    err = capsys.readouterr().err
    assert status == 2
    assert "report.json" in err
    assert "Traceback" not in err
