"""Facts travel as data: nothing in the package takes a sentence apart that the package itself has made."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_torch

PACKAGE = Path(__file__).parents[1] / "pytest_torchprof"

TAKING_APART = {"partition", "rpartition", "split", "rsplit", "startswith", "endswith", "removeprefix", "removesuffix"}
# Which files read what others write, and whose it is. Whoever adds a file here says why no field could tell it.
FOREIGN = {
    "against/git.py": "git's output",
    "against/start.py": "words of a command line",
    "against/outcomes.py": "pytest's reports of skips and of errors while collecting",
    "against/request.py": "what users write behind an option",
    "analysis/efficiency.py": "names of copies in recordings",
    "analysis/lanes.py": "names of streams in recordings",
    "analysis/regions.py": "names of Inductor's ranges",
    "analysis/stacks.py": "names of Python frames in recordings",
    "analysis/waits.py": "names of copies in recordings",
    "baseline/entry.py": "keys of entries in baseline files",
    "baseline/step_form.py": "lines of baseline files",
    "capture/compile_history.py": "Dynamo's reasons",
    "capture/gpu_lock.py": "the note in the lock's file",
    "capture/torch_graphs.py": "names of torch's ranges",
    "capture/handed_over.py": "the kernel's file on a thread",
    "capture/inductor_code.py": "code that Inductor generates",
    "capture/reasons.py": "CUDA's messages",
    "cli/__init__.py": "words of a command line",
    "cli/check.py": "what users write as a limit",
    "cli/explain.py": "tables of the documentation",
    "doctor/machine.py": "Python's message of a missing module",
    "findings/compiling.py": "names of Inductor's ranges",
    "findings/finding.py": "what users write as a threshold",
    "kernels/": "names of kernels and operators, and patterns that users write",
    "limits/compile_limits.py": "names of torch's ranges",
    "recording/reader.py": "msgspec's messages",
    "testing/gpus.py": "what nvidia-smi and variables of the environment say",
    "testing/pytest_report.py": "pytest's crash message and reports of skips",
    "testing/rank_ends.py": "pytest's reports of skips",
    "testing/ranks/": "pytest's reports, torchrun's log, and Python's stacks",
    "testing/tolerance.py": "what users write as a tolerance",
    "text/__init__.py": "commands of CI services in any text",
    "text/documentation.py": "tables of the documentation",
}
SENTENCES = {
    "text",
    "message",
    "sentence",
    "words",
    "said",
    "seen",
    "reason",
    "why",
    "why_not",
    "brief",
    "told",
    "remedy",
}
"""What variables and attributes are called that hold sentences."""


def taken_apart(source):
    """Return the lines in which a source asks what stands in a sentence: by words with a blank, or by the name of it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TAKING_APART:
            asked, of = node.args[:1], node.func.value
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            asked, of = [node.left], node.comparators[0]
        else:
            continue
        words = [one.value for one in asked if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if (
            words
            and words[0] != "\n"
            and (called(of) in SENTENCES or (" " in words[0] and not isinstance(node, ast.Compare)))
        ):
            found.add(node.lineno)
    return sorted(found)


def called(node):
    """Return what is asked about is called: the last name of an expression."""
    if isinstance(node, ast.Call):
        return called(node.args[0]) if node.args and called(node.func) == "str" else called(node.func)
    if isinstance(node, ast.Attribute):
        return called(node.value) if node.attr in {"lower", "strip", "lstrip", "rstrip", "text_of"} else node.attr
    return node.id if isinstance(node, ast.Name) else ""


def files_that_take_sentences_apart():
    return {
        path.relative_to(PACKAGE).as_posix(): lines
        for path in sorted(PACKAGE.rglob("*.py"))
        if (lines := taken_apart(path.read_text()))
    }


def test_no_sentence_of_ours_is_taken_apart():
    found = files_that_take_sentences_apart()
    assert {file: lines for file, lines in found.items() if not file.startswith(tuple(FOREIGN))} == {}


@pytest.mark.parametrize(
    "source",
    [
        'change, _, ratio = words.partition(", ")',
        'problem.text.partition("can be read: ")[2]',
        'result.message.removeprefix("not measured: ")',
        'if "Perfetto" in file.problem.text: pass',
        'if "gpus" in said.lower(): pass',
        'if line.lstrip().startswith("+ kernel"): pass',
        'if str(reason).endswith("."): pass',
    ],
)
def test_what_takes_a_sentence_apart_is_found(source):
    assert taken_apart(source) == [1]


@pytest.mark.parametrize(
    "source",
    [
        'for line in text.split("\\n"): pass',
        'file, _, test = nodeid.partition("::")',
        'name.removesuffix(".py")',
        'if "total" in times: pass',
        "if name in words: pass",
    ],
)
def test_what_reads_names_and_keys_is_not(source):
    assert taken_apart(source) == []
