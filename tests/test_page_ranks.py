"""The ranks of a job on one page: what stands there is what `torchprof analyze DIR --ranks` says, lane by lane."""

from __future__ import annotations

import json
import re
from textwrap import dedent

import fresh
import pytest
from browser import CHROMIUM
from jobs import rank_of, recording, reduce
from pages import Page

from pytest_torchprof import load_ranks
from pytest_torchprof.cli import main

pytestmark = pytest.mark.any_torch
# In the second step, which begins at 10,000 us, rank 0 waits for 100 us, and in the first one for 20 us.
EARLY = (reduce(100, 200), reduce(10_300, 10_500))
LATE = (reduce(120, 200), reduce(10_400, 10_500), reduce(10_600, 10_650))


def write(folder, *builders):
    """Write recordings into a folder of their own."""
    folder.mkdir(parents=True)
    for number, builder in enumerate(builders):
        builder.write(folder / f"{number}.json")
    return folder


@pytest.fixture
def folder(tmp_path):
    early = rank_of(0, *EARLY, reduce(10_610, 10_650), steps=2)
    return write(tmp_path / "job", early, rank_of(1, *LATE, steps=2))


def page_of(path, tmp_path):
    assert main(["report", str(path), "-o", str(tmp_path / "page.html")]) == 0
    return Page((tmp_path / "page.html").read_text())


def jobs(page):
    """Return what the page tells of its jobs, each with the measurements that are of its ranks."""
    names = [name for name in page.scripts if name and name.startswith("job-")]
    numbers = {name: [number for number, one in enumerate(page.details) if one.get("job") == name] for name in names}
    return [(numbers[name], json.loads(page.unpacked(name))) for name in names]


def column(table, key):
    place = [one["key"] for one in table["columns"]].index(key)
    return [row[place] for row in table["rows"]]


def test_each_rank_has_its_numbers_and_a_way_to_its_recording(folder, tmp_path):
    job = load_ranks(folder)
    ((numbers, told),) = jobs(page_of(folder, tmp_path))
    assert numbers == column(told["ranks"], "number") == [0, 1]
    assert column(told["ranks"], "matched_wait_us") == [job.wait_us(0), job.wait_us(1)] == [120, 10]
    assert column(told["ranks"], "caused_us") == [10, 120]
    assert column(told["collectives"], "calls") == [3]
    assert "a job of 2 ranks, 2 recordings" in told["lines"]
    assert [one["code"] for one in told["findings"]] == ["straggler", "exposed-communication"]
    waits, late = folder / "0.json", folder / "1.json"
    assert told["findings"][0]["command"] == f"torchprof diff {waits} {late}"


def test_the_step_in_which_ranks_wait_longest_is_drawn_to_the_microsecond(folder, tmp_path):
    ((_, told),) = jobs(page_of(folder, tmp_path))
    drawn = told["drawn"]
    assert (drawn["step"], drawn["waiting_us"], drawn["total_us"], drawn["more"]) == (1, 110, 350, 0)
    # Start, waiting, sending.
    assert drawn["lanes"] == [
        [0, [[0, 100, 100, 0], [310, 0, 40, 0]]],
        [1, [[100, 0, 100, 0], [300, 10, 40, 0]]],
    ]


def test_the_longest_collectives_are_drawn_and_the_others_counted(tmp_path):
    many = [reduce(1000 + 20 * number, 1010 + 20 * number) for number in range(400)]
    write(tmp_path / "job", *(rank_of(rank, reduce(100, 900), *many) for rank in (0, 1)))
    ((_, told),) = jobs(page_of(tmp_path / "job", tmp_path))
    assert told["drawn"]["more"] == 1
    assert [len(lane) for _, lane in told["drawn"]["lanes"]] == [400, 400]
    assert told["drawn"]["lanes"][0][1][0] == [0, 0, 800, 0]


def test_jobs_in_folders_of_their_own_are_told_apart(tmp_path):
    for run in ("a", "b"):
        write(tmp_path / "runs" / run, *(rank_of(rank, reduce(100 + 10 * rank, 200)) for rank in (0, 1)))
    assert [numbers for numbers, _ in jobs(page_of(tmp_path / "runs", tmp_path))] == [[0, 1], [2, 3]]


def test_one_rank_of_each_of_many_runs_is_no_job(tmp_path):
    write(tmp_path / "nightly", *(rank_of(0, reduce(100, 200)) for _ in range(3)))
    assert jobs(page_of(tmp_path / "nightly", tmp_path)) == []


def test_recordings_that_are_not_of_one_job_say_why(tmp_path):
    later = rank_of(1, reduce(100, 200), base=10**18)
    write(tmp_path / "runs", rank_of(0, reduce(100, 200)), later)
    ((_, told),) = jobs(page_of(tmp_path / "runs", tmp_path))
    assert list(told) == ["why_not"]
    assert "[mixed-jobs]" in told["why_not"]


def test_a_test_of_several_ranks_has_the_others_whose_recordings_the_run_kept(pytester):
    pytester.makepyfile(
        dedent(
            """
            import pytest, torch, torch.distributed as dist

            @pytest.mark.torchprof(ranks=2, device="cpu")
            def test_reduce(torchprof):
                assert torchprof.ranks
                torchprof(dist.all_reduce, torch.ones(64))
            """
        )
    )
    words = ("--torchprof-save=kept", "--torchprof-report=run.html", "--torchprof-report=run.json")
    fresh.run_pytest(*words).assert_outcomes(passed=1)
    assert main(["report", str(pytester.path / "run.json"), "-o", str(pytester.path / "later.html")]) == 0
    for name in ("run.html", "later.html"):
        ((numbers, told),) = jobs(Page((pytester.path / name).read_text()))
        assert numbers == [0], name
        assert column(told["ranks"], "rank") == [0, 1], name
        assert column(told["collectives"], "name") == ["all_reduce"], name


@pytest.fixture
def opened(browser, quiet_browser, folder, tmp_path):
    """Show the page of the job at its section, in a window so wide."""
    page_of(folder, tmp_path)

    def open_(**look):
        browser.open(tmp_path / "page.html", fragment="#0/ranks", **look)
        return browser

    return open_


needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")


@needs_chromium
def test_lanes_are_as_wide_as_the_times_and_lead_to_the_ranks(opened):
    page = opened()
    drawn = page.run(
        """[...document.querySelectorAll(".track")].map((lane) => [...lane.children].map((piece) =>
          [piece.className, Math.round(10 * parseFloat(piece.style.left)), Math.round(10 * parseFloat(piece.style.width))]))"""
    )
    # In thousandths of 350 us.
    assert drawn == [
        [["waits", 0, 286], ["sends", 286, 286], ["sends", 886, 114]],
        [["sends", 286, 286], ["waits", 857, 29], ["sends", 886, 114]],
    ]
    page.run("document.querySelector('a[href=\"#1\"]').click()")
    page.wait("document.querySelector('#details h2')?.innerText.includes('1.json')")


# Each table's rows, a cell by the heading of its column.
TABLES = """[...document.querySelectorAll("[id='0/ranks'] table")].map((table) => {
  const heads = [...table.querySelectorAll("thead th")].map((head) => head.innerText.trim());
  return [...table.tBodies[0].rows].map((row) => Object.fromEntries([...row.cells].map((cell, at) => [heads[at], cell.innerText.trim()])));
})"""


@needs_chromium
def test_who_waits_and_how_far_apart_ranks_came_stands_side_by_side(opened):
    ranks, collectives = opened().run(TABLES)
    # The starts are 20, 100 and 10 us apart; in the last one it is rank 1 that waits.
    waits = {row["rank"]: (row["waits"], row["keeps waiting"]) for row in ranks}
    assert waits == {"rank 0": ("120 us", "10.0 us"), "rank 1": ("10.0 us", "120 us")}
    (row,) = collectives
    assert (row["collective"], row["calls"], row["skew"], row["last"]) == ("all_reduce", "3", "20.0 us", "1 (2 of 3)")
    # 130 of 570 us.
    assert row["waiting"] == "22.8 %"


@pytest.fixture
def one_late(tmp_path):
    """The recordings of two of four ranks, of which rank 1 comes last; rank 0 by itself suggests that another was."""
    starts = [20_000 * number + 500 for number in range(5)]
    ends = [start + (18_000 if number < 3 else 300) for number, start in enumerate(starts)]
    late = [start + (17_700 if number < 3 else 0) for number, start in enumerate(starts)]
    return write(tmp_path / "late", *(recording(rank, of, size=4, end=ends) for rank, of in enumerate((starts, late))))


def test_a_page_of_a_job_begins_with_what_the_command_for_jobs_begins_with(one_late, tmp_path, capsys):
    page = page_of(one_late, tmp_path)
    capsys.readouterr()
    assert main(["analyze", str(one_late), "--ranks"]) == 0
    said = " ".join(capsys.readouterr().out.partition("What stands out")[0].split())
    ((_, told),) = jobs(page)
    assert " ".join(told["headline"]) == said
    assert said.startswith("Rank 1 keeps ")
    assert all(line in page.words for line in told["headline"])
    assert page.words.index(told["headline"][0]) < page.words.index("0.json")


def test_what_one_rank_suggests_gives_way_to_what_the_ranks_show_together(one_late, tmp_path):
    alone, (of_job, *_) = page_of(one_late / "0.json", tmp_path).details, page_of(one_late, tmp_path).details
    suggested = alone[0]["headline"]["what"]
    assert suggested.startswith(of_job["headline"]["what"].rstrip("."))
    assert len(suggested) > len(of_job["headline"]["what"])
    before, now = (
        {one["code"]: one for one in each["findings"]}["exposed-communication"] for each in (alone[0], of_job)
    )
    assert ("--ranks" in before["remedy"], "in_job" in before) == (True, False)
    assert ("--ranks" in now["remedy"], now["in_job"]) == (False, True)


@needs_chromium
def test_the_headline_of_a_job_and_its_ranks_lead_to_the_ranks(browser, quiet_browser, one_late, tmp_path):
    page_of(one_late, tmp_path)
    browser.open(tmp_path / "page.html")
    (large,) = browser.run("[...document.querySelectorAll('.lead')].map((line) => line.innerText)")
    assert large.startswith("Rank 1 keeps ")
    links = browser.run("[...document.querySelectorAll('header .lead a, .findings .remedy a')].map((a) => a.hash)")
    assert links == ["#0/ranks", "#0/ranks"]
    assert browser.run("document.querySelector('.alone').innerText").startswith("Rank 0 by itself: ")
    browser.click("header .lead a")
    browser.wait("Math.abs(document.getElementById('0/ranks').getBoundingClientRect().top) < innerHeight")


@needs_chromium
def test_what_is_a_bound_where_ranks_are_missing_is_one_on_the_page_as_in_the_terminal(browser, tmp_path, capsys):
    partial = (rank_of(rank, *calls, size=4, steps=2) for rank, calls in enumerate((EARLY, LATE[:2])))
    page_of(write(tmp_path / "part", *partial), tmp_path)
    browser.open(tmp_path / "page.html", fragment="#0/ranks")
    _, (row,) = browser.run(TABLES)
    assert main(["analyze", str(tmp_path / "part"), "--ranks"]) == 0
    # Both rank 0 waits 120 of 300 us in, and rank 1 none of 180.
    assert (row["transfer"], row["waiting"]) == ("<=180 us", ">=25.0 %")
    assert re.search(r"<=180 us +>=25\.0%", capsys.readouterr().out)


@needs_chromium
@pytest.mark.parametrize("width", [360, 390])
def test_on_a_phone_nothing_of_the_ranks_is_cut(opened, width):
    shown = opened(width=width, height=800)
    assert (shown.cut(), shown.sideways()) == ([], [])
