"""Waits and copies that a test allows: by operator, by range, by line; the rest counts, and what cannot be told fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import AUTOGRAD, TraceBuilder
from facts import misses, says, why_not, why_refused

from pytest_torchprof import LimitsMissed, NotMeasured, load
from pytest_torchprof.analysis.analysis import Repeat
from pytest_torchprof.cli import main
from pytest_torchprof.limits import check_limits, read_limits
from pytest_torchprof.reasons.asked_wrongly import NoSuchLimit, SettingAlone
from pytest_torchprof.reasons.composed import AllowanceUntold, OfEntry
from pytest_torchprof.reasons.lines import FileNotFound, RepeatWentElsewhere
from pytest_torchprof.reasons.recordings import Absent
from pytest_torchprof.reasons.wrong_values import NoneOfThese, UnknownName, ValueForm, WrongValue

pytestmark = pytest.mark.any_torch

NONZERO, SAMPLE, ITEM = 100, 200, 300
"""When the three waits of a step happen."""


def recording(*, steps=1, lines=False):
    """Return a recording of ours whose steps wait in aten::nonzero, in the range "sample", and in sampler.py."""
    builder = TraceBuilder()
    builder.own(steps=steps, lines=lines)
    for number in range(steps):
        at = number * 1000
        builder.step(number, at, 900)
        builder.launched("k", at + 10)
        wait(builder, at + NONZERO, "model.py(7): forward" if lines else None, op="aten::nonzero")
        builder.annotation("sample", at + SAMPLE - 10, 60)
        wait(builder, at + SAMPLE, "loop.py(40): decode" if lines else None, op=None)
        wait(builder, at + ITEM, "pkg/sampler.py(12): pick" if lines else None, op="aten::item")
    builder.sync(steps * 1000 + 100, 50)
    return builder


def wait(builder, at, line=None, *, op="aten::item", tid=1000):
    """Add a blocking call, made by an operator, in a line."""
    if line is not None:
        builder.event("python_function", f"[line] {line}, ", at - 5, 1, tid=tid)
    if op is not None:
        builder.op(op, at, 30, tid=tid)
        builder.op("aten::_local_scalar_dense", at + 1, 28, tid=tid)
    builder.sync(at + 5, 20, what="stream sync", tid=tid)


@pytest.fixture
def profile(tmp_path):
    return lambda builder: load(builder.write(tmp_path / "t.json"))


@pytest.fixture
def check(tmp_path, capsys):
    """Return the status and the output of ``torchprof check`` on a recording."""

    def run(builder, **limits):
        path = builder.write(tmp_path / "t.json")
        words = [word for name, value in limits.items() for word in ("--limit", f"{name}={value!r}")]
        return main(["check", str(path), *words]), " ".join(capsys.readouterr().out.split())

    return run


def missed(profile, **limits):
    with pytest.raises(LimitsMissed) as error:
        profile.expect(**limits)
    return " ".join(str(error.value).split())


def not_measured(profile, **limits):
    with pytest.raises(NotMeasured) as error:
        profile.expect(**limits)
    return " ".join(str(error.value).split())


ALL = ["aten::nonzero", "range:sample", "sampler.py"]


def test_three_waits_of_three_origins_may_be_allowed(check):
    status, said = check(recording(lines=True), max_syncs=0, allow_syncs=ALL)
    assert (status, said.count("allowed: ")) == (0, 3)
    assert "max_syncs=0 3 blocking calls, 3 allowed" in said
    assert "allowed: aten::nonzero aten::nonzero, aten::_local_scalar_dense model.py:7 in forward" in said
    assert "allowed: range:sample loop.py:40 in decode" in said
    assert "allowed: sampler.py aten::item, aten::_local_scalar_dense pkg/sampler.py:12 in pick" in said
    assert "allowed nothing" not in said


def test_a_fourth_wait_of_another_origin_fails_and_is_named_first(profile):
    builder = recording(lines=True)
    wait(builder, 500, "train.py(3): log")
    text = missed(profile(builder), max_syncs=0, allow_syncs=ALL)
    assert "max_syncs=0 4 blocking calls, 3 allowed 1 x cudaStreamSynchronize 20.0 us" in text
    assert text.index("train.py:3 in log") < text.index("allowed: aten::nonzero")
    profile(builder).expect(max_syncs=1, allow_syncs=ALL)


def to_do(text):
    """Return what is to be done, without the words for waits that are meant."""
    return text.partition(" do: ")[2].rpartition("; ")[0]


def test_what_to_do_about_a_wait_that_the_code_asks_for_is_to_leave_it_out(profile):
    builder = TraceBuilder()
    builder.own(steps=1, lines=True)
    builder.step(0, 0, 900)
    builder.launched("k", 10)
    wait(builder, 100, "train.py(3): log", op=None)
    builder.sync(300, 5)
    remedy = to_do(missed(profile(builder), max_syncs=0))
    assert ".item()" in remedy, "where no operators are recorded, one may have called the first"
    builder.op("aten::item", 500, 30)
    builder.sync(505, 1, what="stream sync")
    remedy = to_do(missed(profile(builder), max_syncs=0))
    asked, of_operator = remedy.split("; ")
    assert asked.startswith("at train.py:3: ")
    (implicit,) = [own for own in profile(builder).why_missed("max_syncs") if own.code == "implicit-sync"]
    assert ".item()" not in asked
    assert [implicit.remedy in about for about in (asked, of_operator)] == [False, True]


SHARED = Path(__file__).parents[2] / "shared" / "traces"
ASKS, READS = "moca/library/profiling/profile.py:34", "transformers/modeling_attn_mask_utils.py:429"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared recordings are not here")
@pytest.mark.parametrize(
    ("name", "first", "then"), [("h100_bert_small", READS, ASKS), ("mi300x_bert_small", ASKS, READS)]
)
def test_what_to_do_is_said_of_each_kind_of_wait_at_its_own_line(name, first, then):
    bert = load(SHARED / f"{name}.json.gz")
    about_first, about_then = to_do(missed(bert, max_syncs=0)).split("; ")
    assert first in about_first
    assert then in about_then
    (implicit,) = [own for own in bert.why_missed("max_syncs") if own.code == "implicit-sync"]
    assert [implicit.remedy in about for about in (about_first, about_then)] == [first == READS, then == READS]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared recordings are not here")
def test_a_wait_that_is_allowed_is_neither_the_cause_nor_to_be_changed():
    text = missed(load(SHARED / "h100_bert_small.json.gz"), max_syncs=0, allow_syncs="aten::is_nonzero")
    assert ASKS in to_do(text)
    assert READS not in to_do(text)
    assert "implicit-sync" not in text


def test_the_worst_step_is_the_one_with_most_that_are_not_allowed(profile):
    builder = recording(steps=3, lines=True)
    wait(builder, 1500, "train.py(3): log")
    for at in (2500, 2600, 2700):
        wait(builder, at, "pkg/sampler.py(12): pick")
    assert "4 blocking calls, 3 allowed in step 2 of 3" in missed(profile(builder), max_syncs=0, allow_syncs=ALL)


def test_a_wait_has_the_time_of_the_copy_before_it_and_the_operator_that_was_called(profile):
    """A copy from pageable memory waits in its own call; the synchronization behind it returns at once."""
    builder = TraceBuilder()
    builder.step(0, 0, 900)
    builder.launched("k", 10)
    builder.op("aten::to", 100, 200)
    builder.op("aten::copy_", 101, 198)
    builder.memcpy("HtoD", 110, 100, builder.call("copy", 105, 110))
    builder.sync(220, 5, what="stream sync")
    builder.sync(400, 30, what="stream sync")
    rows = misses(profile(builder), max_syncs=0).rows
    assert [(row.count, row.name, row.time_us, row.in_copies_us, row.ops) for row in rows] == [
        (1, "cudaStreamSynchronize", 115, 110, ("aten::to", "aten::copy_")),
        (1, "cudaStreamSynchronize", 30, 0, ()),
    ]


def test_the_number_of_waits_stays_whole(profile):
    measured = profile(recording(lines=True))
    measured.expect(max_syncs=0, allow_syncs=ALL)
    assert measured.syncs == 3
    assert "3 blocking calls" in missed(measured, max_syncs=0)


@pytest.mark.parametrize(
    ("allowed", "left"),
    [
        ("aten::item", 2),
        ("nonzero", 2),
        ("aten::*", 1),
        ("aten::_local_scalar_dense", 1),
        ("range:sample", 2),
        ("range:sam", 3),
        ("sampler.py", 2),
        ("pkg/sampler.py:12", 2),
        ("./pkg/sampler.py", 2),
        ("pkg\\sampler.py", 2),
        ("sampler.py:13", 3),
        ("ampler.py", 3),
        ("other/sampler.py", 3),
        (["sampler.py", "aten::item"], 2),
    ],
)
def test_what_an_allowance_allows(profile, allowed, left):
    measured = profile(recording(lines=True))
    measured.expect(max_syncs=left, allow_syncs=allowed)
    missed(measured, max_syncs=left - 1, allow_syncs=allowed)


def test_what_allowed_nothing_is_told_in_a_failure_and_where_the_limit_holds(check):
    allowed = ["aten::nonzero", "range:sampel", "simpler.py"]
    for most, status in ((2, 0), (1, 1)):
        told, said = check(recording(lines=True), max_syncs=most, allow_syncs=allowed)
        assert told == status
        assert "allowed nothing: 'range:sampel', 'simpler.py'" in said


def test_a_range_allows_what_begins_in_it_on_its_own_thread_and_in_autograds_for_it(profile):
    builder = recording()
    builder.annotation("sample", 400, 100)
    wait(builder, 420, tid=AUTOGRAD)
    assert "4 blocking calls, 1 allowed" in missed(profile(builder), max_syncs=0, allow_syncs="range:sample")
    builder.op("autograd::engine::evaluate_function: X", 415, 60, tid=AUTOGRAD)
    assert "4 blocking calls, 2 allowed" in missed(profile(builder), max_syncs=0, allow_syncs="range:sample")


def test_a_range_around_the_step_allows_what_is_in_it(profile):
    builder = recording()
    builder.annotation("all", -50, 950)
    profile(builder).expect(max_syncs=0, allow_syncs="range:all")


def test_without_lines_a_path_is_not_measured_and_never_allowed(profile):
    measured = profile(recording())
    text = not_measured(measured, max_syncs=2, allow_syncs="sampler.py")
    assert "sampler.py allows 3 blocking calls" in text
    assert "[not-recorded]" in text


def test_without_lines_a_limit_that_holds_anyway_is_judged(profile):
    measured = profile(recording())
    measured.expect(max_syncs=3, allow_syncs="sampler.py")
    measured.expect(max_syncs=1, allow_syncs=["aten::nonzero", "range:sample", "sampler.py"])


def test_what_is_surely_too_much_is_missed_with_or_without_lines(profile):
    measured = profile(recording())
    text = missed(measured, max_syncs=1, allow_syncs="aten::nonzero")
    assert "3 blocking calls, 1 allowed" in text


def test_where_frames_name_functions_a_file_is_known_and_a_line_is_not(profile):
    builder = recording()
    builder.event("python_function", "pkg/sampler.py(10): pick", ITEM - 5, 50)
    builder.event("python_function", "loop.py(1): decode", NONZERO - 5, 150)
    measured = profile(builder)
    measured.expect(max_syncs=2, allow_syncs="sampler.py")
    text = not_measured(measured, max_syncs=2, allow_syncs="sampler.py:12")
    assert "sampler.py:12 allows 1 blocking call" in text


@pytest.mark.parametrize("written", ["work/src/pkg/sampler.py", "src/pkg/sampler.py:12", "{here}/pkg/sampler.py:12"])
@pytest.mark.parametrize("imported", [False, True], ids=["from the working directory", "from where it is imported"])
def test_the_whole_path_counts_wherever_pytest_was_started(profile, tmp_path, monkeypatch, written, imported):
    measured, here = profile(recording(lines=True)), tmp_path / "work" / "src"
    (here / "pkg").mkdir(parents=True)
    (here / "pkg" / "sampler.py").touch()
    allowed = written.format(here=here)
    assert "whether" in not_measured(measured, max_syncs=2, allow_syncs=allowed)
    if imported:
        monkeypatch.syspath_prepend(here)
    else:
        monkeypatch.chdir(here)
    measured.expect(max_syncs=2, allow_syncs=allowed)
    other = allowed.replace("src/", "lib/")
    assert "allowed nothing" in missed(measured, max_syncs=2, allow_syncs=other)


def test_a_file_that_is_not_here_may_be_the_one_that_is_meant(profile):
    judged = profile(recording(lines=True))
    reason = why_not(lambda: judged.expect(max_syncs=2, allow_syncs="/home/me/pkg/sampler.py"))
    assert isinstance(reason, AllowanceUntold)
    assert reason.because == FileNotFound("pkg/sampler.py")


def test_of_two_files_of_one_name_it_cannot_be_told_which_is_meant(profile, tmp_path, monkeypatch):
    for folder in ("one", "two"):
        (tmp_path / folder / "pkg").mkdir(parents=True)
        (tmp_path / folder / "pkg" / "sampler.py").touch()
        monkeypatch.syspath_prepend(tmp_path / folder)
    not_measured(profile(recording(lines=True)), max_syncs=2, allow_syncs="one/pkg/sampler.py")


def test_a_whole_path_that_is_recorded_is_held_against_all_of_it(profile):
    builder = recording()
    builder.event("python_function", "/home/me/pkg/sampler.py(10): pick", ITEM - 5, 50)
    builder.event("python_function", "loop.py(1): decode", NONZERO - 5, 150)
    measured = profile(builder)
    for allowed in ("sampler.py", "pkg/sampler.py", "/home/me/pkg/sampler.py"):
        measured.expect(max_syncs=2, allow_syncs=allowed)
    for allowed in ("/pkg/sampler.py", "/home/home/me/pkg/sampler.py", "home/home/me/pkg/sampler.py"):
        missed(measured, max_syncs=2, allow_syncs=allowed)


def test_a_repeat_that_waited_more_often_or_less_does_not_tell_which_are_allowed(tmp_path):
    first, again = recording(), recording(lines=True)
    wait(first, 500)
    measured = load(first.write(tmp_path / "first.json"))
    repeat = Repeat(load(again.write(tmp_path / "again.json")))
    text = not_measured(measured.with_repeat(repeat), max_syncs=1, allow_syncs=["range:sample", "sampler.py"])
    assert "allows 3 blocking calls" in text
    as_often = load(recording().write(tmp_path / "first.json")).with_repeat(repeat)
    as_often.expect(max_syncs=1, allow_syncs=["range:sample", "sampler.py"])


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (None, lambda builder: builder.annotation("log", ITEM - 10, 60)),
        (None, lambda builder: builder.op("aten::is_nonzero", ITEM - 6, 60)),
        (lambda builder: builder.launched("k", NONZERO - 20), lambda builder: builder.launched("k", ITEM + 100)),
    ],
    ids=["in a range", "in another operator", "before a kernel"],
)
def test_a_repeat_that_went_another_way_does_not_tell_which_are_allowed(tmp_path, before, now):
    first, again = recording(), recording(lines=True)
    if before is not None:
        before(first)
    now(again)
    measured = load(first.write(tmp_path / "first.json"))
    repeat = Repeat(load(again.write(tmp_path / "again.json")))
    repeated = measured.with_repeat(repeat)
    why = why_not(lambda: repeated.expect(max_syncs=1, allow_syncs=["range:sample", "sampler.py"]))
    assert isinstance(why, AllowanceUntold)
    assert why.because == RepeatWentElsewhere()


def test_the_profilers_own_flush_is_no_wait(profile):
    builder = TraceBuilder()
    builder.launched("k", 10)
    wait(builder, 100)
    builder.sync(300, 50)
    assert "1 blocking call, 1 allowed" not in missed(profile(builder), max_syncs=0, allow_syncs="aten::nonzero")
    profile(builder).expect(max_syncs=0, allow_syncs="aten::item")


def test_without_operators_an_operator_cannot_be_told(profile):
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 900)
    builder.launched("k", 10, op=None)
    wait(builder, 100, op=None)
    builder.sync(1100, 50)
    reason = why_not(lambda: profile(builder).expect(max_syncs=0, allow_syncs="aten::item"))
    assert says(reason, AllowanceUntold, allowed=("aten::item",), count=1)


def test_where_only_the_gpus_side_was_recorded_waits_cannot_be_told(profile):
    builder = TraceBuilder()
    builder.op("aten::mul", 0, 100)
    builder.kernel("k", 10, 5, None)
    for limits in ({}, {"allow_syncs": "aten::item"}):
        assert str(Absent.CALLS) in not_measured(profile(builder), max_syncs=0, **limits)


def copying(*, call_us, name="HtoD", sync=False):
    """Return a recording with a copy of pageable memory, whose call takes so long."""
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 900)
    builder.launched("k", 10)
    builder.annotation("load", 190, 200)
    builder.op("aten::copy_", 195, 100)
    builder.memcpy(name, 210, 30, builder.call("copy", 200, call_us), size=4096)
    if sync:
        builder.sync(200 + call_us + 2, 10, what="stream sync")
    builder.sync(1100, 50)
    return builder


def test_a_copy_that_blocks_counts_as_a_wait_where_all_waits_count(profile):
    measured = profile(copying(call_us=50))
    measured.expect(max_syncs=0)
    assert measured.syncs == 0
    text = missed(measured, max_syncs=0, waits="all")
    assert "max_syncs=0 1 wait 1 x Memcpy HtoD (Pageable -> Device) 30.0 us 4.00 KiB aten::copy_" in text
    measured.expect(max_syncs=0, waits="calls")


def test_of_copies_and_calls_that_wait_the_first_is_what_waited_first(profile):
    builder = copying(call_us=50)
    wait(builder, 400)
    (verdict,) = check_limits(profile(builder), read_limits({"max_syncs": 0, "waits": "all"}))
    assert verdict.culprit.name == "Memcpy HtoD (Pageable -> Device)"


def test_a_copy_that_blocks_may_be_allowed_like_any_wait(profile):
    measured = profile(copying(call_us=50))
    measured.expect(max_syncs=0, waits="all", allow_syncs="range:load")
    measured.expect(max_syncs=0, waits="all", allow_syncs="aten::copy_")


def test_a_copy_whose_call_came_back_before_it_was_done_is_no_wait(profile):
    profile(copying(call_us=10)).expect(max_syncs=0, waits="all")


def test_a_copy_whose_operator_waits_by_a_call_is_one_wait(profile):
    measured = profile(copying(call_us=50, name="DtoH", sync=True))
    measured.expect(max_syncs=1, waits="all")
    assert "1 wait " in missed(measured, max_syncs=0, waits="all")


@pytest.mark.parametrize(
    ("allowed", "holds"), [("HtoD", True), ("Memcpy HtoD", True), ("DtoH", False), ("copy_", True)]
)
def test_copies_may_be_allowed_by_direction_too(profile, allowed, holds):
    measured = profile(copying(call_us=10))
    if holds:
        measured.expect(max_memcpys=0, allow_memcpys=allowed)
        measured.expect(max_memcpys=0, allow_memcpys="range:load")
    else:
        text = missed(measured, max_memcpys=0, allow_memcpys=allowed)
        assert "1 copy 1 x Memcpy HtoD" in text
        assert "allowed nothing: 'DtoH'" in text


@pytest.mark.parametrize(
    ("limits", "kind", "facts"),
    [
        ({"max_syncs": 0, "allow_syncs": 3}, WrongValue, {"expected": ValueForm.ALLOWED, "got": "3"}),
        ({"max_syncs": 0, "allow_syncs": []}, WrongValue, {"expected": ValueForm.AN_ENTRY, "got": "[]"}),
        ({"max_syncs": 0, "allow_syncs": "range:"}, WrongValue, {"expected": ValueForm.ALLOWED_RANGE}),
        ({"max_syncs": 0, "allow_syncs": "rnge:sample"}, UnknownName, {"name": "'rnge'", "near": "range"}),
        ({"max_syncs": 0, "allow_syncs": "sampler.py:x"}, WrongValue, {"expected": ValueForm.SOURCE_FILE}),
        ({"max_syncs": 0, "allow_syncs": "src/sampler"}, OfEntry, {"entry": "'src/sampler'"}),
        ({"forbid_ops": "mm", "allow_ops": "range:a"}, WrongValue, {"expected": ValueForm.ALLOWED_OPERATOR}),
        ({"max_syncs": 0, "waits": "al"}, NoneOfThese, {"known": ("'calls'", "'all'"), "got": "'al'"}),
        ({"max_syncs": 0, "allow_sync": "aten::item"}, NoSuchLimit, {"near": "allow_syncs"}),
        ({"allow_syncs": "aten::item"}, SettingAlone, {"name": "allow_syncs", "limits": ("max_syncs",)}),
        ({"max_memcpys": 0, "waits": "all"}, SettingAlone, {"name": "waits", "limits": ("max_syncs",)}),
        ({"max_syncs": 0, "allow_memcpys": "HtoD"}, SettingAlone, {"limits": ("max_memcpys",)}),
    ],
)
def test_bad_values_are_refused_with_what_was_expected(profile, limits, kind, facts):
    assert says(why_refused(lambda: profile(recording()).expect(**limits)), kind, **facts)


def test_expect_has_none_of_the_markers_settings(run_tests):
    result = run_tests(
        """
@pytest.mark.torchprof(device="cpu", max_syncs=0, allow_syncs="aten::item")
def test_it(torchprof):
    torchprof(torch.sin, x).expect(allow_syncs="aten::item")
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*UnknownLimit: allow_syncs changes what max_syncs counts; give max_syncs too*"])


def test_several_on_the_command_line_add_up(tmp_path, capsys):
    path = str(recording().write(tmp_path / "t.json"))
    allowed = [f"--limit=allow_syncs={one}" for one in ("aten::nonzero", "range:sample", "aten::item")]
    assert main(["check", path, "--limit=max_syncs=0", *allowed]) == 0
    assert "3 blocking calls, 3 allowed" in capsys.readouterr().out
