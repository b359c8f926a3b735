"""Names out of recordings and of tests are data: no terminal, no CI service and no Markdown acts on them."""

from __future__ import annotations

import re

import pytest
from builder import TraceBuilder, own_recording

from pytest_torchprof import NotMeasured, conv, load
from pytest_torchprof.cli import main
from pytest_torchprof.report.markdown import escaped, fenced
from pytest_torchprof.text import WIDTH, printable, wrapped

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
    with pytest.raises(NotMeasured, match="cannot be told for 1 kernel"):
        profile.expect(**limits)


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
    result.stdout.fnmatch_lines(["*cut.json is not a recording that can be read: it ends in the middle*"])
    result.stdout.no_fnmatch_line("*recording/reader.py*")
    result.stdout.no_fnmatch_line("*pytest_torchprof/profile.py*")


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
    result.stdout.fnmatch_lines(["*TorchprofError: *ud800* cannot be written into a recording: it holds half of a*"])
    result.stdout.no_fnmatch_line("*recording_file.py*")
