"""The order of a failure: what is wrong, what came and went, the numbers, what to do, and last what varies anyway."""

from __future__ import annotations

import re

import pytest
from builder import TraceBuilder

from pytest_torchprof import load
from pytest_torchprof.limits import FailureLine, Screen, check_limits, error_for, in_one_line, read_limits

pytestmark = pytest.mark.any_torch

COSTLY, NEW = "void costly_kernel(float*)", "void sigmoid_kernel(float*)"
HEADLINE = FailureLine("worse than b.json", "headline", subject="worse")
FIGURES = ("busy 9.06 us -> 18.7 ms", "CPU time 59.3 us -> 19.0 ms", "softmax 0 us -> 12.2 ms")
ABOUT = "for information, not gated: "
VARIED = FailureLine(f"  {ABOUT}{'; '.join(FIGURES)} (1 kernel more)", "varies", subject=ABOUT, figures=FIGURES)
SCREEN = Screen.of_columns(80)
REMEDY = FailureLine("look at it", "remedy")


def came(name, place="model.py:10"):
    """Return the lines about a kernel that came."""
    line = FailureLine(f"    + {name}: 1 per step", "came", subject=name, file_line=place, full=NEW)
    return [line, FailureLine(f"      {name} from: {place} in forward", "place")]


@pytest.fixture
def error(tmp_path):
    """Return a function that judges a step of four costly kernels and a short one by limits, beside other failures."""

    def judge(*others, screen=SCREEN, **limits):
        builder = TraceBuilder()
        builder.own(steps=1)
        builder.step(0, 0, 900)
        for at in range(4):
            builder.launched(COSTLY.replace("costly", f"costly{at}"), 10 + 20 * at, dur=100 - at, wait=200 * at)
        builder.launched(NEW, 100, dur=1, wait=900)
        builder.sync(2000, 50)
        profile = load(builder.write(tmp_path / "t.json"))
        verdicts = [verdict for verdict in check_limits(profile, read_limits(limits)) if verdict.status != "holds"]
        return error_for(verdicts, profile, lambda _: (), also=others, screen=screen)

    return judge


def rows(text):
    return [line.split(" x ")[1].split("  ")[0].strip() for line in text.splitlines() if " 1 x " in line]


@pytest.mark.parametrize(
    "limits", [{"max_kernels": 4}, {"max_kernels": 4, "max_gpu_time": 0}, {"forbid_kernels": "re:.*"}], ids="-".join
)
def test_below_a_limit_stands_first_the_kernel_that_is_new_however_short_it_is(error, limits):
    text = str(error(HEADLINE, *came("sigmoid_kernel"), REMEDY, **limits))
    assert "sigmoid" in rows(text)[0]
    assert "sigmoid" not in rows(str(error(**limits)))[0], "without a baseline the longest is first"


def test_new_kernels_stand_there_in_the_order_in_which_the_headline_names_them(error):
    others = [*came("sigmoid_kernel"), *(line._replace(full="") for line in came("costly2_kernel"))]
    text = str(error(HEADLINE, *others, REMEDY, max_kernels=4))
    assert "new: sigmoid_kernel and costly2_kernel, model.py:10" in " ".join(text.split())
    assert rows(text)[:3] == ["sigmoid_kernel", "costly2_kernel", "costly0_kernel"]


@pytest.mark.parametrize(("columns", "is_beside"), [(40, False), (60, True)])
def test_what_was_seen_stands_below_its_limit_where_it_would_be_broken(error, columns, is_beside):
    lines = str(error(max_kernels=4, screen=Screen.of_columns(columns))).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("  max_kernels=4"))
    assert ("5 kernels" in lines[at]) is is_beside
    assert is_beside or lines[at + 1] == "      5 kernels"


def test_a_new_kernel_is_shown_with_its_line_where_several_limits_fail_and_much_else_differs(error):
    before = [FailureLine(f"    another environment, fact {number}") for number in range(9)]
    new = came("sigmoid_kernel")
    text = str(error(HEADLINE, *before, *new, REMEDY, max_kernels=4, max_gpu_time=0, max_launches=0))
    section = text.split("worse than b.json:\n")[1].splitlines()
    assert section[:2] == [line.text for line in new]
    assert "more lines: pytest -vv" in text


def test_what_came_and_the_numbers_stand_in_this_order(error):
    numbers = FailureLine("    kernels 2 -> 3", "gated")
    text = str(error(HEADLINE._replace(numbers="kernels 2 -> 3"), *came("pointwise sigmoid"), numbers, REMEDY, VARIED))
    first, *below = text.splitlines()
    assert first == "worse than b.json:"
    assert [line.split()[0] for line in below] == ["+", "pointwise", "kernels", "do:", "for"]


def test_where_nothing_came_the_numbers_are_what_is_said_first(error):
    text = str(error(HEADLINE._replace(numbers="launches 2 -> 3"), REMEDY))
    assert text.splitlines()[0] == "worse than b.json: launches 2 -> 3"


@pytest.mark.parametrize(
    ("columns", "about", "numbers"),
    [
        (40, "for information, not gated", "3 numbers"),
        (60, "not gated", f"{FIGURES[0]} and 2 more"),
        (80, "for information, not gated", f"{FIGURES[0]} and 2 more"),
        (110, "for information, not gated", "; ".join(FIGURES)),
    ],
)
def test_what_varies_anyway_is_one_line_with_whole_numbers(error, columns, about, numbers):
    *_, last = str(error(HEADLINE, REMEDY, VARIED, screen=Screen.of_columns(columns))).splitlines()
    assert len(last) <= columns
    assert last == f"  {about}: {numbers}"


@pytest.mark.parametrize("screen", [Screen(), Screen.of_columns(200), Screen.of_columns(60, everything=True)])
def test_what_varies_anyway_is_whole_where_there_is_room_or_all_is_asked_for(error, screen):
    text = " ".join(str(error(HEADLINE, REMEDY, VARIED, screen=screen)).split())
    assert text.endswith(" ".join(VARIED.text.split()))


@pytest.mark.parametrize("limits", [{}, {"max_kernels": 4}, {"max_kernels": 4, "max_gpu_time": 0}])
def test_quietly_the_line_is_that_of_the_summary(error, limits):
    others = [HEADLINE, *came("pointwise sigmoid"), *came("pointwise mul"), *came("pointwise add"), REMEDY]
    both = error(*others, **limits, screen=Screen())
    assert both.brief.splitlines()[0] == both.in_one_line
    assert "new: pointwise sigmoid, model.py:10 and 2 more" in both.in_one_line
    assert [line.split()[0] for line in both.brief.splitlines()[1:]] == ["+", "+", "do:"]


def test_quietly_many_kernels_that_came_are_counted(error):
    lines = [line for number in range(30) for line in came(f"pointwise kernel {number}")]
    quiet = error(HEADLINE, *lines, REMEDY, screen=Screen()).brief.splitlines()
    assert len(quiet) == 1 + 6 + 1 + 1
    assert quiet[-2] == "  and 23 more lines (23 new): pytest -vv"


GATED_TEST = """
import model


@pytest.mark.torchprof(device="cpu", max_kernels=3)
def test_block(torchprof):
    torchprof(model.block, torch.ones(64, 64))
"""


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("words", [(), ("-q",)], ids=["plain", "quiet"])
def test_what_went_and_the_gated_number_have_their_room_before_all_that_came(
    run_tests, pytester, monkeypatch, words, columns
):
    pytester.syspathinsert()
    block = "import torch\n\n\ndef block(X):\n    return {}\n"
    pytester.makepyfile(model=block.format("torch.relu(X @ X)"))
    run_tests(GATED_TEST, "--torchprof-baseline=update", in_process=False).assert_outcomes(passed=1)
    pytester.makepyfile(model=block.format("torch.sigmoid(X @ X).double() + torch.sin(X)"))
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = run_tests(GATED_TEST, *words, in_process=False).outlines
    assert any(line.lstrip().startswith("- pointwise clamp_min") for line in lines)
    assert not words or any("+ pointwise sin" in line and line.endswith("at model.py:5") for line in lines)
    assert words or any("kernels 2 -> 5" in line for line in lines)
    assert sum("+ pointwise sigmoid" in line for line in lines) == (0 if words else 1)
    assert "; gone: pointwise clamp_min" in " ".join(" ".join(lines).split())


@pytest.mark.parametrize("us", [(5, 300), (300, 5)], ids=["the-shorter-first", "the-longer-first"])
@pytest.mark.parametrize("names", [("exp", "sin"), ("sin", "exp")], ids="-".join)
@pytest.mark.parametrize(
    "limit",
    [
        lambda *names: {"forbid_kernels": [*names]},
        lambda *names: {"kernels": dict.fromkeys(names, 0)},
        lambda *names: {"forbid_ops": [f"aten::{name}" for name in names]},
        lambda *names: {"ops": {f"aten::{name}": 0 for name in names}},
    ],
    ids=["forbid_kernels", "kernels", "forbid_ops", "ops"],
)
def test_of_several_patterns_the_first_is_what_ran_first_whichever_is_asked_for_first(tmp_path, limit, names, us):
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 900)
    for at, name in enumerate(("exp", "sin")):
        builder.launched(f"void {name}_kernel(float*)", 10 + 40 * at, op=f"aten::{name}", dur=us[at], wait=400 * at)
    builder.sync(1000, 50)
    profile = load(builder.write(tmp_path / "t.json"))
    (verdict,) = check_limits(profile, read_limits(limit(*names)))
    assert re.search(r"; first: (?:aten::)?exp", in_one_line([verdict], ()))
    assert "exp" in verdict.culprit.name


def test_a_kernel_that_two_patterns_match_stands_there_once(error):
    text = str(error(forbid_kernels=["sigmoid", "re:.*"]))
    assert sorted(rows(text)) == [*(f"costly{at}_kernel" for at in range(4)), "sigmoid_kernel"]


MIXED = """
import pytest, torch

X = torch.randn(2048, 2048)

def block(x):
    y = torch.sigmoid(x[:2, :2])
    return y, x * 2  # It takes the longest, and another one is the first.

@pytest.mark.torchprof(device="cpu", forbid_kernels=["*"], max_syncs=0)
def test_it():
    block(X)
"""


def test_what_to_do_is_said_for_its_limit_and_begins_at_the_line_that_the_short_summary_has(pytester, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    pytester.makepyfile(test_it=MIXED)
    lines = [line.strip() for line in pytester.runpytest("--color=no").outlines]
    (summary,) = (line for line in lines if line.startswith("FAILED"))
    (place,) = re.findall(r"first: [a-z ]+, (\S+:\d+)", summary)
    remedies = [line.removeprefix("do: ") for line in lines if line.startswith("do: ")]
    assert remedies[0].startswith(f"for forbid_kernels: beginning at {place}: ")
    assert remedies[1].startswith("for max_syncs: ")
