"""Names out of recordings and of tests are data: no terminal, no CI service and no Markdown acts on them."""

from __future__ import annotations

import json
import re

import pytest
from builder import TraceBuilder, own_recording
from facts import why_not

from pytest_torchprof import conv, load
from pytest_torchprof.baseline import device_slug
from pytest_torchprof.capture.rank import Rank
from pytest_torchprof.cli import main
from pytest_torchprof.report.markdown import escaped, fenced
from pytest_torchprof.testing.recordings import recording_name
from pytest_torchprof.text import printable
from pytest_torchprof.text.wrapping import WIDTH, wrapped

pytestmark = pytest.mark.any_torch

UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
COMMAND = re.compile(r"^\s*::|##(vso)?\[", re.MULTILINE)
NAMES = ["::add-mask::kernel", "  ::error::x", "##[add-mask]kernel", "k ##vso[task.x]", "k \x1b[31m\u202e\u2066"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("by", ["kernel", "op", "range", "family"])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_name_is_no_command_of_the_ci_service_nor_of_the_terminal(tmp_path, capsys, name, by, form):
    builder = TraceBuilder()
    builder.annotation(name, 0, 1000)
    builder.op(name, 1, 900)
    builder.launched(name, 10)
    builder.memcpy("HtoD", 50, 5, builder.call("copy", 50), size=100)
    assert main(["analyze", str(builder.write(tmp_path / "t.json")), "--by", by, *form]) == 0
    out = capsys.readouterr().out
    assert not COMMAND.search(out)
    assert not UNSEEN.search(out)


def test_the_name_of_a_copy_is_escaped(tmp_path, capsys):
    builder = TraceBuilder()
    builder.launched("k", 10)
    correlation = builder.call("copy", 50)
    builder.event("gpu_memcpy", "Memcpy \x1b[31m (Device -> Pageable)", 60, 5, pid=0, tid=7,
                  correlation=correlation, stream=7, device=0, bytes=10**6)  # fmt: skip
    assert main(["analyze", str(builder.write(tmp_path / "t.json"))]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_markdown_shows_what_a_terminal_would(name):
    for text in (escaped(name), fenced(f"{name}\n{name}")):
        assert not UNSEEN.search(text)
        assert not re.search(r"^\s*::", text, re.MULTILINE)


def test_what_names_have_in_real_life_stays():
    for name in ("at::native::add", "void (anonymous namespace)::k<int>(int)", "a::b ##", "ünïcode"):
        assert printable(name) == name


def test_a_line_that_is_broken_before_a_command_holds_none():
    for before in range(WIDTH):
        assert not any(COMMAND.search(line) for line in wrapped(f"{'x' * before} ::add-mask::x ##[group]", "  "))


@pytest.mark.parametrize("name", ["", " "])
@pytest.mark.parametrize("limits", [{"forbid_kernels": "gemm"}, {"forbid_kernels": conv()}, {"only_kernels": ["k*"]}])
def test_a_kernel_without_a_name_satisfies_no_limit_on_names(tmp_path, name, limits):
    profile = load(own_recording({"k": 1, name: 1}).write(tmp_path / "t.json"))
    assert why_not(lambda: profile.expect(**limits)).code == "match-unknown"


DAMAGED = """
import pytest
from pytest_torchprof import load

@pytest.fixture
def recording():
    return load("cut.json")

def test_load():
    load("cut.json")

def test_fixture(recording):
    pass
"""


def test_a_damaged_recording_shows_no_line_of_the_plugin(pytester):
    pytester.makepyfile(test_it=DAMAGED)
    (pytester.path / "cut.json").write_text('{"traceEvents": [')
    result = pytester.runpytest()
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(["*UnreadableRecording: cut.json *", "*[[]recording-cut-off]"])
    result.stdout.no_fnmatch_line("*recording/reader.py*")
    result.stdout.no_fnmatch_line("*pytest_torchprof/profiles.py*")


def test_half_a_character_in_a_label_is_named(pytester):
    pytester.makepyfile(
        test_it=r"""
        import pytest

        @pytest.mark.torchprof(device="cpu", steps=1)
        def test_label(torchprof):
            with torchprof.measure("\ud800") as m:
                for _ in m.steps():
                    pass
        """
    )
    result = pytester.runpytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*TorchprofError: *ud800*"])
    result.stdout.no_fnmatch_line("*recording_file.py*")


BAD = "x\n::error::a\r\x1b[31m\x07\u202e ##[group]b ##vso[c] |`<b>"
BREAK = {"reason": BAD, "file": BAD, "line": 3, "function": BAD, "explanation": BAD, "at": BAD}
COMPILED = {
    "dynamo": True, "compiled": True, "breaks": [BREAK], "entries": {BAD: [BREAK]}, "given_up": [BREAK],
    "recompiles": [{"reason": BAD, "function": BAD, "file": BAD, "line": 1}], "seen_instead": [BAD],
    "eager_under": [BAD], "unknown": {"graph_breaks": BAD, "recompiles": BAD}, "time_us": {BAD: 5, "total": 6},
    "cudagraph_skips": {"count": 1, "reasons": [BAD]},
    "fx_graphs": [{"hash": BAD, "code_path": BAD, "cudagraph_skip": BAD, "aten_calls": {BAD: 2}}],
}  # fmt: skip
TIMES = {"clock": BAD, "cache": BAD, "batches": [{"samples_us": [1.0] * 30, "disturbed": [BAD]}], "why_not": BAD}
SETTINGS = ("gpu", "gcn_arch", "driver", "cuda", "rocm", "torch", "triton", "python", "cpu", "platform")
KEYS = {
    "its environment": {"environment": dict.fromkeys(SETTINGS, BAD)},
    "its device": {"device_asked": BAD, "environment": {"gpu": BAD, "launches_wait": BAD}},
    "a problem": {"problems": [BAD]},
    "what was compiled": {"compile": COMPILED, "peak_memory_why_not": BAD, "timing": TIMES},
    "another test": {"nodeid": BAD, "label": BAD},
}
ALL_LIMITS = (
    "max_kernels=0, kernels='gemm', forbid_kernels='*', only_kernels='a', ops='x', max_syncs=0, max_graph_breaks=0, "
    "max_recompiles=0, max_fallbacks=0, max_compile_time=0, cuda_graph=True, max_peak_memory=1, max_gpu_time='1ns', "
    "allow_syncs=['a.py', 'range:b'], max_memcpys=0, allow_memcpys='c', "
    f"ranges={{'d': {{'max_kernels': 0}}, {BAD!r}: {{'max_kernels': 0, 'max_syncs': 0}}}}"
)


def written_by_somebody_else(key):
    builder = own_recording({f"{BAD}kernel": 2})
    builder.torchprof.update({"nodeid": "test_it.py::test_it", **key})
    builder.metadata["deviceProperties"] = [{"id": 0, "name": BAD, "numSms": 100}]
    builder.annotation(BAD, 5, 300)
    builder.op(BAD, 600, 5)
    return builder


def entry_of_somebody_else(**more):
    kernel = {"name": BAD, "family": BAD, "op": BAD}
    return {
        "source": BAD, "environment": {"gpu": BAD, "torch": BAD, BAD: BAD}, "steps": [[kernel, "end"]],
        "numbers": {BAD: 1}, "varying": {BAD: 1.0, "gpu_busy_us": 2.0}, **more,
    }  # fmt: skip


def acted_on(text):
    """Return what in a text somebody would act on, without what pytest's own colours and progress are."""
    return [found[0] for found in (*COMMAND.finditer(text), *UNSEEN.finditer(text))]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("verbosity", ["-q", "-vv"])
def test_nothing_in_a_replayed_recording_and_its_baseline_is_acted_on(run_tests, pytester, monkeypatch, key, verbosity):
    summary = pytester.path / "summary.md"
    trace = written_by_somebody_else(KEYS[key])
    kept = pytester.mkdir("kept")
    trace.write(kept / recording_name("test_it.py::test_it", None, Rank()))
    slug = device_slug(load(trace.write(pytester.path / "t.json")).trace.environment)
    folder = pytester.mkdir("__torchprof__")
    entries = {"test_it": entry_of_somebody_else(), BAD: entry_of_somebody_else()}
    (folder / f"test_it.{slug}.json").write_text(json.dumps({"schema": 2, "entries": entries}))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    written = (
        "--torchprof-report=r.json",
        "--torchprof-report=r.md",
        "--torchprof-report=r.bmf.json",
        "--junitxml=r.xml",
    )
    source = f"@pytest.mark.torchprof(tolerance={{'time': 0.1}}, {ALL_LIMITS})\ndef test_it(): pass"
    result = run_tests(source, "--torchprof-replay=kept", verbosity, *written)
    result.assert_outcomes(failed=1)
    assert not acted_on(result.stdout.str())
    for name in ("r.json", "r.md", "r.bmf.json", "r.xml"):
        assert not acted_on((pytester.path / name).read_text()), name
    if summary.exists():
        assert not acted_on(summary.read_text())


@pytest.mark.parametrize("command", ["list", "show", "diff", "resolve"])
def test_nothing_in_a_baseline_is_acted_on(tmp_path, capsys, command):
    ours, theirs = (json.dumps({"schema": 2, "entries": {key: entry_of_somebody_else()}}) for key in (BAD, f"{BAD}2"))
    files = {"a": ours, "b": theirs, "c": f"<<<<<<< a\n{ours}\n=======\n{theirs}\n>>>>>>> b\n"}
    paths = {name: tmp_path / f"{name}.cpu-x86_64.json" for name in files}
    for name, text in files.items():
        paths[name].write_text(text)
    given = {"diff": "ab", "resolve": "c"}.get(command, "a")
    main(["baseline", command, *(str(paths[name]) for name in given)])
    said = capsys.readouterr()
    assert not acted_on(said.out + said.err)


@pytest.mark.parametrize("words", [["analyze", "t.json", "--json"], ["diff", "t.json", "u.json", "--json"], [BAD]])
def test_no_json_and_no_word_of_the_command_line_is_acted_on(tmp_path, capsys, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    written_by_somebody_else({}).write(tmp_path / "t.json")
    own_recording({"k": 1}).write(tmp_path / "u.json")
    main(words)
    said = capsys.readouterr()
    assert not acted_on(said.out + said.err)
