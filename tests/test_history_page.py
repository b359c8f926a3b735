"""The page of a history in a browser: what changed last comes first, and each change tells what came and went."""

from __future__ import annotations

import math
import random
import re

import pytest
from browser import CHROMIUM
from histories import H100, launched, run_of, sha, write
from msgspec.structs import replace
from pages import HOSTILE
from test_page import AXE, NO_AXE

from pytest_torchprof.cli import main
from pytest_torchprof.history.record import Event, MachineRecord, VaryingRecord

pytestmark = [
    pytest.mark.any_torch,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.usefixtures("quiet_browser"),
]
# JSON has no lone surrogates.
BAD = "".join(text for text in HOSTILE if len(text) < 300).encode(errors="replace").decode()
FIVE = {"gemm bf16 tn": 4, "softmax": 1}
SIX = {**FIVE, "pointwise sigmoid": 1}
EARLY, LATE, NEVER = "test_m.py::test_early", "test_m.py::test_late", "test_a.py::test_never"


def runs():
    """Return runs at each commit but one, of which one changed a test, and one of two changed another."""
    for at in (0, 1, 2, 3, 4, 6, 7):
        yield run_of(
            at,
            launched(EARLY, FIVE if at < 2 else SIX),
            launched(LATE, SIX if at < 5 else FIVE),
            launched(NEVER, None if at == 3 else FIVE),
        )


def made(folder, records, *words):
    """Return the page of these records."""
    page = folder / "history.html"
    assert main(["history", "page", str(write(folder / "history", [*records])), "-o", str(page), *words]) == 0
    return page


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return made(tmp_path_factory.mktemp("runs"), runs())


SLOWER, OTHERS, STEADY = "test_t.py::test_slower", "test_t.py::test_others", "test_t.py::test_steady"
OTHER = {"gemm bf16 nt": 4, "softmax": 1}


def timed_runs():
    """Return runs on two machines, one of them seldom.

    One test became slower with the same kernels, another before that with other ones, between two of its commits.
    """
    chosen = random.Random(3)
    for at in range(80):
        for machine in (0, 1) if at % 3 == 0 else (0,):
            if at in (40, 41):
                continue
            launches = (launched(OTHERS, FIVE if at < 42 else OTHER), launched(SLOWER, FIVE), launched(STEADY, FIVE))
            slower = (1 + 0.1 * (at >= 42), 1 + 0.08 * (at >= 60), 1)
            us = [50 * share * math.exp(chosen.gauss(0, 0.005)) * (1 + machine) for share in slower]
            run = run_of(at, *launches, varying=tuple(VaryingRecord(numbers={"gpu_busy_us": time}) for time in us))
            digest = f"{machine}" * 16
            yield replace(run, uuid=f"{2 * at + machine:032x}", machine=MachineRecord(digest=digest, gpu=H100.gpu))


@pytest.fixture(scope="module")
def timed_page(tmp_path_factory):
    return made(tmp_path_factory.mktemp("timed"), timed_runs())


def test_a_page_is_one_file_with_nothing_of_others_in_it(page):
    """Neither a library nor anything that a browser would fetch; the drawings are its own."""
    text = page.read_text()
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", text, re.DOTALL)
    assert scripts
    assert not [attributes for attributes, _ in scripts if "src" in attributes]
    assert not re.findall(r"<(?:iframe|object|embed|img|base)\b", text)
    assert all('href="data:' in link for link in re.findall(r"<link[^>]*>", text))
    assert "default-src 'none'" in text
    code = "".join(body for attributes, body in scripts if "json" not in attributes)
    assert not re.findall(r"\b(?:fetch|XMLHttpRequest|WebSocket|EventSource|importScripts|sendBeacon|require)\b", code)
    assert not re.findall(r"\bimport\b\s*[({'\"\w]", code)
    assert not re.findall(r"@import|url\((?!['\"]?(?:data:|#))", text)
    known = {"http://www.w3.org/2000/svg"}
    assert set(re.findall(r"https?://[^\s\"'<>)]+", code)) <= known


def names(browser):
    return browser.run("[...document.querySelectorAll('.series h2 bdi')].map(name => name.textContent)")


def test_tests_stand_in_the_order_of_their_last_change(browser, page):
    browser.open(page)
    assert names(browser) == [LATE, EARLY, NEVER]
    facts = browser.run("[...document.querySelectorAll('.facts')].map(facts => facts.textContent)")
    assert "now 5 kernels" in facts[0]
    assert "5 to 6" in facts[0]
    assert "2026-01-07" in facts[0]
    assert "1 lost-kernels" in facts[2]


def test_one_kernel_is_no_kernels(browser, tmp_path):
    browser.open(made(tmp_path, [run_of(1, launched(EARLY, {"gemm": 1}))]))
    (facts,) = browser.run("[...document.querySelectorAll('.facts')].map(facts => facts.textContent)")
    assert "now 1 kernel" in facts
    assert "1 kernels" not in facts


def test_a_history_in_which_nothing_was_measured_has_no_number_to_choose(browser, tmp_path):
    browser.open(made(tmp_path, [run_of(at, launched(EARLY, None)) for at in range(2)]))
    (facts,) = browser.run("[...document.querySelectorAll('.facts')].map(facts => facts.textContent)")
    assert facts == "numbers: not knownnever changedgaps: 2 lost-kernelsnot known of the newest commit"
    assert browser.run("document.querySelectorAll('#tools select').length") == 0


def test_a_click_on_a_change_shows_the_kernels_that_came_and_went_and_the_line_that_bisects(browser, page):
    browser.open(page)
    browser.run("document.querySelectorAll('.series')[0].querySelector('.mark').click()")
    shown = browser.run("document.querySelector('.event').textContent")
    assert f"torchprof bisect --changed {LATE} --good {sha(4)[:12]} --bad {sha(6)[:12]}" in shown
    assert browser.run("document.querySelector('.event .went').textContent") == "1 x pointwise sigmoid"
    browser.run("document.querySelectorAll('.series')[1].querySelector('.mark').click()")
    other = browser.run("document.querySelectorAll('.series')[1].querySelector('.event').textContent")
    assert sha(2)[:7] in other
    assert "bisect" not in other
    assert browser.run("document.querySelectorAll('.series')[1].querySelector('.came').textContent") == (
        "1 x pointwise sigmoid"
    )


def test_a_change_is_opened_and_closed_by_keyboard_alone(browser, page):
    browser.open(page)
    for _ in range(20):
        browser.press("Tab")
        if browser.run("document.activeElement.className") == "mark":
            break
    browser.press("Enter")
    assert browser.run("document.querySelectorAll('.event').length") == 1
    assert browser.run("document.activeElement.getAttribute('aria-expanded')") == "true"
    browser.press("Escape")
    assert browser.run("document.querySelectorAll('.event').length") == 0
    assert browser.run("document.activeElement.className") == "mark"


def test_of_times_too_few_for_any_step_it_is_not_said_that_they_have_none(browser, page):
    browser.open(page)
    (early, *_) = browser.run("[...document.querySelectorAll('.facts')].map(facts => facts.textContent)")
    assert re.search(r"on machine 00000000: no step could be shown yet: \d of at least \d+ runs", early)


def test_a_gap_is_left_empty(browser, page):
    browser.open(page)
    drawn = browser.run("[...document.querySelectorAll('.chart path')].map(path => path.getAttribute('d'))")
    assert [line.count("M") for line in drawn] == [1, 1, 2]


def lines_of(browser, selector):
    return browser.run(f"[...document.querySelectorAll({selector!r})].map(line => line.textContent)")


def test_a_step_of_times_is_listed_with_its_commits_its_medians_and_its_kernels(browser, timed_page):
    browser.open(timed_page)
    # What became slower last comes first, though its counts never changed.
    assert names(browser) == [SLOWER, OTHERS, STEADY]
    slower = lines_of(browser, ".series:nth-child(1) .steps li")
    assert len(slower) == 2
    for line, moved in zip(slower, (r"50\.\d us -> 54\.\d us", r"(99\.\d|100) us -> 108 us"), strict=True):
        commit = f"2026-03-02  {sha(60)[:7]}, after {sha(59)[:7]}"
        assert re.fullmatch(rf"{commit}: {moved} \(\+\d\.\d%\), same kernels", line)
    (other, _) = lines_of(browser, ".series:nth-child(2) .steps li")
    commits = f"one of 3 commits after {sha(39)[:7]}: {sha(40)[:7]}, {sha(41)[:7]}, {sha(42)[:7]}"
    assert re.search(rf"{commits}: [\d.]+ us -> [\d.]+ us \(\+\d+\.\d%\), other kernels$", other)
    facts = lines_of(browser, ".series > .facts")
    assert "last changed 2026-03-02" in facts[0]
    assert "never changed" in facts[2]
    assert "machine 11111111: no step; smallest step that could be shown: " in facts[2]
    assert "times: 315 measurements in 6 series" in browser.run("document.querySelector('header').textContent")


def test_a_step_is_drawn_at_its_commit_with_those_among_which_it_lies(browser, timed_page):
    browser.open(timed_page)
    assert browser.run("document.querySelectorAll('.times').length") == 4
    told = browser.run("[...document.querySelectorAll('.times svg')].map(svg => svg.getAttribute('aria-label'))")
    assert re.fullmatch(r"GPU busy: (49\.9|50\.\d) us to (53\.9|54\.\d) us", told[0])
    # 78 commits were measured, and the 61st of the branch is the 59th of them.
    (left, *_) = browser.run("[...document.querySelectorAll('.times .mark')].map(mark => parseFloat(mark.style.left))")
    assert left == pytest.approx(100 * 58 / 77)
    bands = browser.run(
        "[...document.querySelectorAll('.band')].map(band => "
        "[band.getAttribute('x'), band.getAttribute('width')].map(Number))"
    )
    assert bands[0] == [pytest.approx(100 * 57 / 77), pytest.approx(100 / 77)]
    # A machine that measures seldom knows less of where the step lies.
    assert bands[1][1] == pytest.approx(300 / 77)
    drawn = browser.run("document.querySelector('.times path').getAttribute('d')")
    assert (drawn.count("M"), drawn.count("V")) == (1, 1)


def test_a_click_on_a_step_shows_all_of_its_event_and_the_line_that_bisects_where_kernels_are_others(
    browser, timed_page
):
    browser.open(timed_page)
    browser.run("document.querySelector('.series:nth-child(1) .times .mark').click()")
    shown = browser.run("document.querySelector('.event').textContent")
    assert shown.count(f"{SLOWER} (NVIDIA H100 80GB HBM3, machine ") == 2
    assert "bisect" not in shown
    browser.run("document.querySelector('.series:nth-child(2) .times .mark').click()")
    shown = browser.run("document.querySelector('.series:nth-child(2) .event').textContent")
    assert f"torchprof bisect --changed {OTHERS} --good {sha(39)[:12]} --bad {sha(42)[:12]}" in shown
    # Another mark of the same test closes it.
    browser.run("document.querySelector('.series:nth-child(2) > .chart .mark').click()")
    assert "came" in browser.run("document.querySelector('.series:nth-child(2) .event').textContent")
    assert browser.run("document.querySelectorAll('.series:nth-child(2) .event').length") == 1


def test_what_is_known_of_a_step_stands_beside_it(browser, tmp_path, capsys):
    folder = str(write(tmp_path / "history", [*timed_runs()]))
    assert main(["history", "changes", folder]) == 0
    (own,) = re.findall(rf"{sha(60)[:7]}, after .*\[(\w+)\]", capsys.readouterr().out)
    assert main(["history", "accept", folder, own, "the new loader"]) == 0
    browser.open(made(tmp_path, []))
    assert browser.run("document.querySelectorAll('.times .mark.known').length") == 2
    browser.run("document.querySelector('.times .mark.known').click()")
    assert "known: the new loader" in browser.run("document.querySelector('.event').textContent")


def test_a_step_is_opened_and_closed_by_keyboard_alone(browser, timed_page):
    browser.open(timed_page)
    in_times = "document.activeElement.closest('.times') !== null"
    for _ in range(20):
        browser.press("Tab")
        if browser.run(in_times):
            break
    browser.press("Enter")
    assert browser.run("document.activeElement.getAttribute('aria-expanded')") == "true"
    assert browser.run("document.querySelector('.event').getAttribute('aria-label')").startswith("step of times ")
    browser.press("Escape")
    assert browser.run("document.querySelectorAll('.event').length") == 0
    assert browser.run(in_times)


@pytest.mark.skipif(AXE is None, reason=NO_AXE)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_changes_and_steps_are_accessible(browser, timed_page, dark):
    browser.open(timed_page, dark=dark)
    browser.run("document.querySelectorAll('.series').forEach(row => row.querySelector('.mark')?.click())")
    browser.run(AXE.read_text() + ";0")
    assert browser.run("axe.run().then(result => result.violations.map(rule => rule.id))") == []


@pytest.mark.parametrize("dark", [False, True])
def test_no_step_is_wider_than_a_phone(browser, timed_page, dark):
    browser.open(timed_page, width=360, dark=dark)
    browser.run("document.querySelectorAll('.times .mark').forEach(mark => mark.click())")
    assert browser.run("document.querySelectorAll('.event').length") == 2
    assert browser.cut() == []


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_a_phone(browser, page, dark):
    browser.open(page, width=360, dark=dark)
    browser.run("document.querySelectorAll('.mark').forEach(mark => mark.click())")
    assert browser.run("document.querySelectorAll('.event').length") == 2
    assert browser.cut() == []


def test_the_filter_and_the_number_choose_what_is_drawn(browser, page):
    browser.open(page)
    browser.run("{const s = document.getElementById('search'); s.value = 'late'; s.dispatchEvent(new Event('input'));}")
    assert names(browser) == [LATE]
    assert browser.run("document.querySelector('[role=status]').textContent") == "1 of 3 series"
    browser.run(
        "{const s = document.querySelector('select'); s.value = 'launches'; s.dispatchEvent(new Event('change'));}"
    )
    assert browser.run("document.querySelector('.chart svg').getAttribute('aria-label')") == "launches: 5 to 6"


def test_names_and_remarks_are_text_and_nothing_else(browser, tmp_path):
    records = [
        run_of(at, launched(f"test_m.py::test[{BAD}]", {BAD: 1} if at else {"softmax": 1}), branch=BAD)
        for at in range(3)
    ]
    folder = str(write(tmp_path / "history", records))
    for subject in (sha(1), sha(2)):
        assert main(["history", "note", folder, subject, BAD, "--branch", BAD]) == 0
    page = made(tmp_path, records, "--branch", BAD)
    browser.open(page)
    browser.run("document.querySelector('.mark').click()")
    assert browser.run("document.querySelectorAll('.event').length") == 2
    assert browser.run("document.querySelectorAll('.series img, .event img, .series script').length") == 0


def test_what_is_known_and_what_is_remarked_stands_beside_the_change(browser, tmp_path, capsys):
    folder = str(write(tmp_path / "history", [*runs()]))
    assert main(["history", "note", folder, sha(2), "for the new gate"]) == 0
    assert main(["history", "changes", folder]) == 0
    (own,) = re.findall(rf"{sha(2)[:7]}, after .*\[(\w+)\]", capsys.readouterr().out)
    assert main(["history", "accept", folder, own, "as planned"]) == 0
    browser.open(made(tmp_path, runs()))
    assert browser.run("document.querySelectorAll('.mark.known').length") == 1
    browser.run("document.querySelector('.mark.known').click()")
    shown = browser.run("document.querySelector('.series .event').textContent")
    assert "as planned" in shown
    assert "for the new gate" in shown
    assert "for the new gate" in browser.run("document.getElementById('remarks').textContent")


def test_a_history_with_one_commit_or_with_gaps_alone_is_drawn_too(browser, tmp_path):
    for name, measured in (("one", launched(EARLY, FIVE)), ("none", launched(EARLY, None))):
        folder = tmp_path / name
        folder.mkdir()
        browser.open(made(folder, [run_of(3, measured)]))
        assert names(browser) == [EARLY]


def test_runs_that_are_no_points_are_counted_in_the_heading(browser, tmp_path):
    page = made(tmp_path, [*runs(), run_of(9, launched(EARLY, FIVE), event=Event.PR)])
    browser.open(page)
    assert "1 (pull requests)" in browser.run("document.querySelector('header').textContent")


def test_many_tests_are_shown_some_at_a_time(browser, tmp_path):
    records = [run_of(at, *(launched(f"test_m.py::test[{number}]", FIVE) for number in range(120))) for at in range(3)]
    browser.open(made(tmp_path, records))
    assert len(names(browser)) == 50
    browser.run("document.querySelector('.more').click()")
    browser.run("document.querySelector('.more').click()")
    assert len(names(browser)) == 120
    assert browser.run("document.querySelector('.more')") is None


def test_the_page_grows_with_what_changed_and_not_with_the_runs(tmp_path):
    def size(commits):
        folder = tmp_path / str(commits)
        folder.mkdir()
        records = [
            run_of(at, *(launched(f"test_m.py::test[{number}]", FIVE if at < 3 else SIX) for number in range(20)))
            for at in range(commits)
        ]
        return made(folder, records).stat().st_size

    # What is left is a hash and a date for each commit.
    assert size(60) - size(6) < 60 * 60
