"""Words that once meant several things have one meaning each in names; the page for contributors says which."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import syntax

pytestmark = pytest.mark.any_torch

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pytest_torchprof"

# As a whole name these say nothing of what they hold.
VAGUE = frozenset({"one", "ones", "found", "say", "tell"})
# Nor do these as a part of a name.
VAGUE_PARTS = frozenset({"told", "said", "perhaps", "likewise"})
# Here these words would mean something else than they mean elsewhere: a process's arguments, its start, a rank's step, an index.
ELSEWHERE = {
    "against": frozenset({"launch", "words", "word"}),
    "capture": frozenset({"pace"}),
    "fleet": frozenset({"place", "places"}),
    "history": frozenset({"place", "places"}),
    "recording": frozenset({"place", "places"}),
    "system": frozenset({"words", "word"}),
}

# Fields that stand under these names in recordings and reports, which later versions read too.
RECORDED: dict[str, str] = {
    "limits/evidence.py": "said",
    "limits/seen.py": "said",
    "reasons/adopting.py": "found",
    "reasons/reason.py": "said",
    "reasons/lost_work.py": "found",
    "reasons/own_steps.py": "found",
}


def parts_of(name: str) -> set[str]:
    """Return the words of a name, whichever way it joins them."""
    return {part.lower() for part in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}


NAMING = (
    ast.Name,
    ast.Attribute,
    ast.arg,
    ast.alias,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.MatchAs,
    ast.MatchStar,
    ast.ExceptHandler,
)


def names_in(source: str) -> set[str]:
    """Return all names that a module gives."""
    names = set()
    for node in syntax.nodes(source, *NAMING):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.alias(asname=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
            case ast.ExceptHandler(name=str(name)):
                names.add(name)
    return names


def counts_places(source: str) -> bool:
    """Whether an index is called a place: a place is a line of code."""
    indices: list[ast.AST] = []
    for node in syntax.nodes(source, ast.For, ast.comprehension):
        if called(node.iter) == "enumerate":
            indices += node.target.elts[:1] if isinstance(node.target, ast.Tuple) else []
    for node in syntax.nodes(source, ast.Assign):
        if makes_indices(node.value):
            indices += node.targets
    return any(getattr(index, "id", None) == "place" for index in indices)


def makes_indices(value: ast.AST) -> bool:
    """Whether an expression is an index, or finds one for each of its keys."""
    if isinstance(value, ast.BinOp):
        return makes_indices(value.left)
    if isinstance(value, ast.DictComp):
        return any(called(loop.iter) == "enumerate" for loop in value.generators)
    return called(value) in ("bisect_left", "bisect_right", "index")


def called(node: ast.AST) -> str | None:
    """Return the name of the function or method that is called."""
    function = getattr(node, "func", None)
    return getattr(function, "id", getattr(function, "attr", None))


def unclear_words(file: Path) -> set[str]:
    """Return the words that a module's names use otherwise than the glossary has them."""
    source = file.read_text(encoding="utf-8")
    names = names_in(source)
    folder = file.relative_to(PACKAGE).parts[0]
    found_parts = set().union(*map(parts_of, names)) if names else set()
    return (
        (names & VAGUE)
        | (found_parts & VAGUE_PARTS)
        | (found_parts & ELSEWHERE.get(folder, frozenset()))
        | ({"place"} if re.search(r"\bplace\b", source) and counts_places(source) else set())
    )


# Turns of phrase that say little or mean something else, in what people read: docstrings, comments and pages.
PHRASES = re.compile(
    r"\bin vain\b|\bheld against\b|\blikewise\b|\bReturn the same\b|\bNone where none\b|\bwhat ends one\b"
    r"|(?-i:\bTell whether\b|\b(?:Return|Yield) what\b)|\bslip of the pen\b|\b(?:nothing|nobody|none) tells\b",
    re.IGNORECASE,
)


COMMENT = re.compile(r"(?:^|  )[ ]*#[ ]*(.*)", re.MULTILINE)
"""What the formatter leaves of one: on a line of its own, or two blanks behind the code. A text that looks so is taken for one."""


def prose_in(source: str) -> str:
    """Return the docstrings and comments of a module, each on a line of its own."""
    texts = [
        node.value.value
        for node in syntax.nodes(source, ast.Expr)
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    # A comment goes on in the next line.
    comments = COMMENT.findall(source)
    return "\n".join([*(" ".join(text.split()) for text in texts), " ".join(comments)])


FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def test_names_keep_to_the_glossary():
    """A file that is not listed has no such name; one that is listed is there and has exactly what is listed."""
    unclear = {name: " ".join(sorted(unclear_words(PACKAGE / name))) for name in FILES}
    assert {name: words for name, words in unclear.items() if words} == RECORDED


def test_docstrings_and_comments_are_plain():
    phrases = {name: PHRASES.findall(prose_in((PACKAGE / name).read_text(encoding="utf-8"))) for name in FILES}
    assert {name: unclear for name, unclear in phrases.items() if unclear} == {}


PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_are_plain(path):
    page = path.read_text(encoding="utf-8")
    # The page for contributors quotes the words.
    assert PHRASES.findall(" ".join(re.sub(r"`[^`]*`|\"[^\"]*\"", "", page).split())) == []


@pytest.mark.parametrize(
    ("source", "phrases"),
    [
        ('"""Tell whether it holds."""', ["Tell whether"]),
        ('"""Return what ends it."""', ["Return what"]),
        ('def f():\n    """Yield what ends it."""', ["Yield what"]),
        ('def f():\n    """Return the\n    same profile."""', ["Return the same"]),
        ("value = 1  # likewise", ["likewise"]),
        ("# None where\n# none is\n", ["None where none"]),
        ('class A:\n    field: int\n    """Held against a limit."""', ["Held against"]),
        ('text = "in vain"', []),
    ],
)
def test_a_phrase_is_seen_wherever_it_is_written(source, phrases):
    """The test can fail: docstrings, what stands below a field, and comments over several lines are read."""
    assert PHRASES.findall(prose_in(source)) == phrases


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("for one in values: pass", {"one"}),
        ("def why_not_told(): pass", {"told"}),
        ("class Told: pass", {"told"}),
        ("async def told(): pass", {"told"}),
        ("match values:\n    case [one, *found]: pass", {"one", "found"}),
        ("self.said = 1", {"said"}),
        ("for place, value in enumerate(values): pass", {"place"}),
        ("place = bisect_right(starts, start) - 1", {"place"}),
        ("place = {name: number for number, name in enumerate(names)}", {"place"}),
        ("place = origin.file_line", set()),
        ("NotFoundInCache = 1", set()),
    ],
)
def test_a_name_is_seen_wherever_it_is_given(tmp_path, monkeypatch, source, words):
    """The test can fail: each kind of name is looked at."""
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    file = tmp_path / "module.py"
    file.write_text(source)
    assert unclear_words(file) == words


def test_the_page_for_contributors_has_each_word():
    """Who meets the test learns there what to write."""
    page = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    table = page.partition("\n## Words\n")[2].partition("\n## ")[0]
    words = set(re.findall(r"`(\w+)`", table))
    used = VAGUE | VAGUE_PARTS | set().union(*ELSEWHERE.values()) | {"place"}
    assert used - {"ones", "places", "word"} <= words
