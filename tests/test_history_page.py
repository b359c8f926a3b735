"""The page of a history in a browser: what changed last comes first, and each change tells what came and went."""

from __future__ import annotations

import re

import pytest
from browser import CHROMIUM
from histories import launched, run_of, sha, write
from pages import HOSTILE

from pytest_torchprof.cli import main
from pytest_torchprof.history.record import Event

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


def made(folder, records, capsys, *words):
    """Return the page of these records."""
    page = folder / "history.html"
    assert main(["history", "page", str(write(folder / "history", [*records])), "-o", str(page), *words]) == 0
    capsys.readouterr()
    return page


@pytest.fixture
def page(tmp_path, capsys):
    return made(tmp_path, runs(), capsys)


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


def test_one_kernel_is_no_kernels(browser, tmp_path, capsys):
    browser.open(made(tmp_path, [run_of(1, launched(EARLY, {"gemm": 1}))], capsys))
    (facts,) = browser.run("[...document.querySelectorAll('.facts')].map(facts => facts.textContent)")
    assert "now 1 kernel" in facts
    assert "1 kernels" not in facts


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


def test_a_gap_is_left_empty(browser, page):
    browser.open(page)
    drawn = browser.run("[...document.querySelectorAll('.chart path')].map(path => path.getAttribute('d'))")
    assert [line.count("M") for line in drawn] == [1, 1, 2]


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_a_phone(browser, page, dark):
    browser.open(page, width=360, dark=dark)
    browser.run("document.querySelectorAll('.mark').forEach(mark => mark.click())")
    assert browser.run("document.querySelectorAll('.event').length") == 2
    assert browser.run("document.documentElement.scrollWidth") <= 360


def test_the_filter_and_the_number_choose_what_is_drawn(browser, page):
    browser.open(page)
    browser.run("{const s = document.getElementById('search'); s.value = 'late'; s.dispatchEvent(new Event('input'));}")
    assert names(browser) == [LATE]
    assert browser.run("document.querySelector('[role=status]').textContent") == "1 of 3 series"
    browser.run(
        "{const s = document.querySelector('select'); s.value = 'launches'; s.dispatchEvent(new Event('change'));}"
    )
    assert browser.run("document.querySelector('.chart svg').getAttribute('aria-label')") == "launches: 5 to 6"


def test_names_and_remarks_are_text_and_nothing_else(browser, tmp_path, capsys):
    records = [
        run_of(at, launched(f"test_m.py::test[{BAD}]", {BAD: 1} if at else {"softmax": 1}), branch=BAD)
        for at in range(3)
    ]
    folder = str(write(tmp_path / "history", records))
    for subject in (sha(1), sha(2)):
        assert main(["history", "note", folder, subject, BAD, "--branch", BAD]) == 0
    page = made(tmp_path, records, capsys, "--branch", BAD)
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
    browser.open(made(tmp_path, runs(), capsys))
    assert browser.run("document.querySelectorAll('.mark.known').length") == 1
    browser.run("document.querySelector('.mark.known').click()")
    shown = browser.run("document.querySelector('.series .event').textContent")
    assert "as planned" in shown
    assert "for the new gate" in shown
    assert "for the new gate" in browser.run("document.getElementById('remarks').textContent")


def test_a_history_with_one_commit_or_with_gaps_alone_is_drawn_too(browser, tmp_path, capsys):
    for name, measured in (("one", launched(EARLY, FIVE)), ("none", launched(EARLY, None))):
        folder = tmp_path / name
        folder.mkdir()
        browser.open(made(folder, [run_of(3, measured)], capsys))
        assert names(browser) == [EARLY]


def test_runs_that_are_no_points_are_counted_in_the_heading(browser, tmp_path, capsys):
    page = made(tmp_path, [*runs(), run_of(9, launched(EARLY, FIVE), event=Event.PR)], capsys)
    browser.open(page)
    assert "1 (pull requests)" in browser.run("document.querySelector('header').textContent")


def test_many_tests_are_shown_some_at_a_time(browser, tmp_path, capsys):
    records = [run_of(at, *(launched(f"test_m.py::test[{number}]", FIVE) for number in range(120))) for at in range(3)]
    browser.open(made(tmp_path, records, capsys))
    assert len(names(browser)) == 50
    browser.run("document.querySelector('.more').click()")
    browser.run("document.querySelector('.more').click()")
    assert len(names(browser)) == 120
    assert browser.run("document.querySelector('.more')") is None


def test_the_page_grows_with_what_changed_and_not_with_the_runs(tmp_path, capsys):
    def size(commits):
        folder = tmp_path / str(commits)
        folder.mkdir()
        records = [
            run_of(at, *(launched(f"test_m.py::test[{number}]", FIVE if at < 3 else SIX) for number in range(20)))
            for at in range(commits)
        ]
        return made(folder, records, capsys).stat().st_size

    # What is left is a hash and a date for each commit.
    assert size(60) - size(6) < 60 * 60
