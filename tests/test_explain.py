"""``torchprof explain``, and the page of limits that it reads: both are held to the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from pytest_torchprof import load
from pytest_torchprof.cli import main
from pytest_torchprof.findings import RULES
from pytest_torchprof.kernels.patterns import parse_value
from pytest_torchprof.limits import COMPILE, LIMITS, check_limits, read_limits, settings_of
from pytest_torchprof.reasons.errors import UnknownLimit
from pytest_torchprof.reasons.lines import BlockOver
from pytest_torchprof.reasons.recordings import NeedsGpu
from pytest_torchprof.testing.marker_options import _READERS, MARKER_OPTIONS
from pytest_torchprof.text import documentation

pytestmark = pytest.mark.any_torch

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "limits.md").read_text()
CODE = re.compile(r"`([^`]+)`")
ROWS = {
    cells[1].strip("` "): [cell.strip() for cell in cells[2:-1]]
    for cells in (re.split(r" ?\| ?", line) for line in PAGE.splitlines())
    if len(cells) > 3 and re.fullmatch(r"`\w+`", cells[1])
}
BY_NAME = {limit.name: limit for limit in LIMITS}
SETTINGS = settings_of(LIMITS)
WORDS = {**BY_NAME, **SETTINGS}

# What the page says of a value -> what the code takes for it, and what it refuses.
VALUES = {
    "whole number": ([0, 3], [-1, 1.5, "3", True]),
    "number from 0": ([0, 0.5, 7], [-1, "1"]),
    'number from 0, or a dict of "cold", "warm" or both': (
        [0, 0.5, {"cold": 30}, {"cold": 30, "warm": 0.5}],
        [-1, "1", {}, {"hot": 1}, {"cold": -1}],
    ),
    "share from 0 to 1": ([0, 0.5, 1], [1.5, "0.5"]),
    "duration": (["1.5ms", "3 us", "2ns", "1s", 0.5], ["1.5", "3 min", -1, "\u0661ms"]),
    "True, or a process group's name or description": ([True, "tp"], [False, "", 1]),
    "duration or share": (["1.5ms", "3 us", 0.1, 0], ["1.5", 1.5, -1, True, "\uff11ms"]),
    "names, or a dict of counts": (["all_reduce", ["barrier"], {"reduce": 1, "gather": (0, 2)}], ["ring", {}, 3]),
    "size": (["1.5GiB", "300MB", "1 TiB", "3 B", 1024], ["1.5", 0.5, -1]),
    "patterns": (["gemm", ["a*", "re:b"]], [3, []]),
    "patterns, or a dict of counts": (["gemm", ["a*", "re:b"], {"a": 1, "b": (1, 3)}], [3, {}, {"a": -1}]),
    "operators": (["aten::mm", ["mm", "aten::*"]], [3, "aten:mm"]),
    "operators, or a dict of counts": (["aten::mm", {"mm": 1, "add": (1, 3)}], [3, {"mm": "1"}]),
    "operator names, or lists of them": ([["add", "mul"], [["add"], ["mul", "sin"]]], [3, [3]]),
    "two operator names or more, or lists of them": ([["add", "mul"], [["add", "mul", "exp"]]], [3, ["add"]]),
    'share, "all" or True': ([True, "all", 0.95], [False, "some", 2]),
    "operators, ranges or lines": (
        ["aten::item", ["range:a b", "x.py", "a/x.py:3"]],
        [3, [], "range:", "x.py:y", "rang:a"],
    ),
    "operators or lines": (["aten::item", ["x.py", "a/x.py:3"]], [3, [], "x.py:y"]),
    "operators, ranges, lines or directions": (["HtoD", ["Memcpy DtoH", "x.py"]], [3, [], "range:"]),
    "packages or modules": (["tabpfn", ["tabpfn.model", "a_b"]], [3, [], "", "a/b", "tabpfn.", "a-b", [None]]),
    '"calls" or "all"': (["calls", "all"], ["copies", True]),
    "ranges, each with a dict of its limits": (
        [{"a": {"max_syncs": 0, "allow_syncs": "mm"}}],
        [3, {}, {"a": {}}, {"a": 3}, {"": {"max_syncs": 0}}, {"a": {"max_peak_memory": 1}}, {"a": {"waits": "all"}}],
    ),
    "codes of findings": (["hidden-copy", ["hidden-copy", "implicit-sync"]], ["hidden"]),
}


def test_each_word_of_the_marker_has_its_row():
    assert set(ROWS) == set(WORDS) | MARKER_OPTIONS


@pytest.mark.parametrize("name", WORDS)
def test_a_limit_or_setting_takes_what_its_row_says_and_refuses_what_it_does_not(name):
    good, bad = VALUES[ROWS[name][0]]
    for value in good:
        WORDS[name].read(value)
    for value in bad:
        with pytest.raises(UnknownLimit):
            WORDS[name].read(value)


def example_of(name):
    word, _, value = CODE.search(ROWS[name][-1])[1].partition("=")
    assert word == name
    return parse_value(value)


def test_each_example_can_be_read():
    read_limits({name: example_of(name) for name in WORDS})
    for name in MARKER_OPTIONS:
        _READERS[name](example_of(name))


@pytest.mark.parametrize("name", BY_NAME)
def test_a_row_says_where_its_limit_is_judged(name):
    recording = load(next((ROOT / "tests" / "recordings").glob("test_geglu_mlp.test_compiled*")))
    verdict, *_ = check_limits(recording, read_limits({name: example_of(name)}))
    lacks = isinstance(verdict.reason, NeedsGpu)
    expected = "GPU" if lacks else "everywhere" if BY_NAME[name].needs == COMPILE else "GPU, CPU"
    assert ROWS[name][-2] == expected, verdict


@pytest.fixture
def explained(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words):
        status = main(["explain", *words])
        said = capsys.readouterr()
        return status, said.out or said.err

    return run


@pytest.mark.parametrize("word", [*WORDS, *sorted(MARKER_OPTIONS), *(rule.code for rule in RULES)])
def test_each_limit_and_each_finding_is_explained(explained, word):
    status, text = explained(word)
    assert status == 0
    assert text.startswith(f"{word}\n")
    assert len(text) > 100
    assert max(map(len, text.splitlines())) <= 80


def test_a_limit_is_explained_by_its_row_and_what_stands_below_the_table(explained):
    assert explained("[bad-value]") == explained("bad-value")
    _, text = explained("kernels")
    assert 'example: `kernels={gemm(layout="tn"): 2}`' in text
    assert "regular expression after `re:`" in " ".join(text.split())
    assert "forbid_kernels" not in text


def test_each_page_explains_a_word_once():
    words = [(article.page, article.word) for article in documentation.articles()]
    assert sorted(words) == sorted(set(words))


@pytest.mark.parametrize("words", [["lines-not-known"], ["lines", "not", "known"]])
def test_a_message_is_explained_with_what_to_do(explained, words):
    status, text = explained(*words)
    assert status == 0
    assert BlockOver.SENTENCE in text
    assert f"what to do: {BlockOver.ADVICE}" in text


def test_what_a_fleet_can_do_is_said_where_a_text_has_sizes_or_asks_for_ranks(explained):
    assert "KiB" not in explained("out-of-memory")[1]
    assert "in a fleet, name those of one rank only" in " ".join(explained("no-rank")[1].split())


def test_several_words_are_each_explained(explained):
    status, text = explained("max_kernels", "launch-gaps")
    assert status == 0
    assert text == "\n".join([explained("max_kernels")[1], explained("launch-gaps")[1]])
    status, text = explained("max_kernels", "max_kernel")
    assert (status, "'max_kernel'" in text, "did you mean 'max_kernels'" in text) == (2, True, True)


def test_every_section_of_the_messages_can_be_asked_for(explained):
    pages = [page.read_text() for page in (ROOT / "docs").glob("messages-*.md")]
    words = [word for page in pages for word in re.findall(r"^## (.*)$", page, re.MULTILINE)]
    assert words
    for word in words:
        assert explained(word)[0] == 0


def test_without_a_word_all_are_listed(explained):
    status, text = explained()
    assert status == 0
    assert {"max_kernels", "launch-gaps", "not-measured", "tolerance"} <= set(re.findall(r"[\w-]+", text))


def test_what_is_not_known_is_refused_with_the_nearest_word(explained):
    status, text = explained("max_kernel")
    assert status == 2
    assert "'max_kernel'; did you mean 'max_kernels'?" in text


def test_a_wheel_holds_the_pages_where_the_command_looks_for_them():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert build["wheel"]["force-include"] == {
        f"docs/{page}.md": f"pytest_torchprof/docs/{page}.md" for page in documentation.PAGES
    }
    # A wheel is built from the sdist too.
    assert "docs" in build["sdist"]["include"]


def test_in_an_installed_package_the_pages_are_read_from_it(monkeypatch, tmp_path, explained):
    for page in documentation.PAGES:
        (tmp_path / "pytest_torchprof" / "docs").mkdir(parents=True, exist_ok=True)
        (tmp_path / "pytest_torchprof" / "docs" / f"{page}.md").write_text("# A page\n\n## of-the-wheel\nSays it.\n")
    monkeypatch.setattr(documentation, "__file__", str(tmp_path / "pytest_torchprof" / "text" / "documentation.py"))
    assert explained("of-the-wheel") == (0, "of-the-wheel\n\n  Says it.\n")


def test_what_a_failure_names_can_be_asked_for(explained):
    """A user of the wheel has no docs folder."""
    sources = "".join(path.read_text() for path in (ROOT / "pytest_torchprof").rglob("*.py"))
    asked = re.findall(r"torchprof explain ([a-z_-]+)`", sources)
    assert asked
    for word in asked:
        assert explained(word)[0] == 0
    assert "docs/" not in re.sub(r'"docs/?"|#.*|""".*?"""', "", sources, flags=re.DOTALL)


def test_pytests_markers_list_every_keyword_on_a_line_of_its_own(pytester):
    out = pytester.runpytest_subprocess("--markers").stdout.lines
    listed = [re.match(r" +(\w+)=\S.*  \S", line) for line in out]
    assert {found[1] for found in listed if found} == set(ROWS)
