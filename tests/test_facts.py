"""Facts travel as data: nothing in the package takes a sentence apart that the package itself has made."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_torch

PACKAGE = Path(__file__).parents[1] / "pytest_torchprof"

TAKING_APART = {"partition", "rpartition", "split", "rsplit", "startswith", "endswith", "removeprefix", "removesuffix"}
MATCHING = {"match": 0, "fullmatch": 0, "search": 0, "findall": 0, "finditer": 0, "split": 0, "sub": 1, "subn": 1}
"""What a regular expression does, and which argument behind the expression is the text."""
# Which functions read what others write, and whose it is. Whoever adds one here says why no field could hold it.
FOREIGN = {
    "against/git.py": ("git's output", "worktrees"),
    "against/imports.py": ("files of projects", "_is_copy"),
    "against/outcomes.py": ("pytest's reports of skips", "_longrepr"),
    "against/request.py": ("what users write behind an option", "_time_share _budget_s"),
    "analysis/efficiency.py": ("names of copies in recordings", "_copies_by_direction"),
    "analysis/lanes.py": ("names of streams in recordings", "_of_streams"),
    "analysis/regions.py": ("names of Inductor's ranges", "_region"),
    "analysis/stacks.py": ("names of Python frames in recordings", "stack_kinds"),
    "analysis/unseen.py": ("names of Python frames in recordings", "_unrecorded"),
    "analysis/waits.py": ("names of copies in recordings", "waiting_copies"),
    "baseline/entry.py": ("keys of entries in baseline files", "split_key"),
    "baseline/path.py": ("names of devices", "_slug"),
    "baseline/step_form.py": ("lines of baseline files", "_read_line"),
    "capture/compile_history.py": ("Dynamo's reasons", "break_of_reason _explanation"),
    "capture/gpu_lock.py": ("the note in the lock's file", "_holder_text"),
    "capture/inductor_code.py": ("code that Inductor generates", "_dtypes _defined"),
    "capture/reasons.py": ("CUDA's messages", "no_gpu _initializing_text of_device"),
    "capture/recording_file.py": ("the profiler's file", "_settle_marks"),
    "capture/torch_graphs.py": ("names of torch's ranges", "renamed"),
    "capture/triton_kernels.py": ("code of Triton's kernels", "triton_kernels"),
    "cli/check.py": ("what users write as a limit", "read_limit_texts _read_value"),
    "cli/explain.py": ("tables of the documentation", "_stacked_rows"),
    "doctor/inquiry.py": ("paths in any text", "public"),
    "doctor/machine.py": ("Python's message of a missing module", "of_torch"),
    "findings/compiling.py": ("names of Inductor's ranges", "_backward_not_compiled"),
    "findings/finding.py": ("what users write as a threshold", "with_thresholds"),
    "limits/compile_limits.py": ("names of torch's ranges", "_in_compiled_code"),
    "recording/oddities.py": ("bytes of recordings", "repairs _thorough"),
    "recording/reader.py": ("msgspec's messages", "_uncut"),
    "recording/text.py": ("bytes of recordings", "head is_perfetto"),
    "report/analysis_json.py": ("characters that are no ASCII", "encoded"),
    "testing/pytest_report.py": ("pytest's crash message and reports of skips", "shorten line_of"),
    "testing/rank_ends.py": ("pytest's reports of skips", "_own_end"),
    "testing/ranks/launch.py": ("torchrun's log", "statuses_of"),
    "testing/ranks/placing.py": ("words of a command line", "_words"),
    "testing/ranks/reports.py": ("pytest's reports of skips", "text_of"),
    "testing/ranks/stacks.py": ("Python's stacks", "_main_stack"),
    "testing/tolerance.py": ("what users write as a tolerance", "_number"),
    "text/__init__.py": ("commands of CI services and tracebacks in any text", "printable raised_line"),
    "text/documentation.py": ("tables of the documentation", "marker_help articles plain"),
}
NAMES = "kernels/"
"""There are no sentences: its functions read names of kernels and operators, and patterns that users write."""
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
    """Return the functions in which a source asks what stands in a sentence: by words with a blank, or by its name."""
    return {name for node, name in in_functions(ast.parse(source), "") if takes_apart(node)}


def in_functions(node, name):
    """Yield each node below with the name of the innermost function around it."""
    for child in ast.iter_child_nodes(node):
        inside = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else name
        yield child, inside
        yield from in_functions(child, inside)


def takes_apart(node):
    """Return whether a node is a question to a sentence, a regular expression over one, or what stands behind a place."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        # A text is cut at its end for want of room; what a slice begins behind is known by somebody.
        return isinstance(node.slice.lower, ast.Constant | ast.Call) and called(node.value) in SENTENCES
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        return written(node.left) not in ("", "\n") and called(node.comparators[0]) in SENTENCES
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    if node.func.attr in MATCHING and is_expression(node.func.value):
        at = MATCHING[node.func.attr] + (called(node.func.value) == "re")
        return len(node.args) > at and called(node.args[at]) in SENTENCES
    words = written(*node.args[:1])
    return (
        node.func.attr in TAKING_APART
        and words not in ("", "\n")
        and (" " in words or called(node.func.value) in SENTENCES)
    )


def written(node=None):
    """Return the text that stands in the source; empty where something else does."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def is_expression(node):
    """Return whether it is the module of regular expressions, or one that was compiled: a constant."""
    return isinstance(node, ast.Name) and (node.id == "re" or node.id.isupper())


def called(node):
    """Return what is asked about is called: the last name of an expression."""
    if isinstance(node, ast.Call):
        return called(node.args[0]) if node.args and called(node.func) == "str" else called(node.func)
    if isinstance(node, ast.Attribute):
        return called(node.value) if node.attr in {"lower", "strip", "lstrip", "rstrip", "text_of"} else node.attr
    return node.id if isinstance(node, ast.Name) else ""


def test_no_sentence_of_ours_is_taken_apart():
    found = {path.relative_to(PACKAGE).as_posix(): taken_apart(path.read_text()) for path in PACKAGE.rglob("*.py")}
    known = {file: set(functions.split()) for file, (_, functions) in FOREIGN.items()}
    assert {file: functions for file, functions in found.items() if functions and not file.startswith(NAMES)} == known


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
        'ratio = re.search(r"\\d+x", sentence)',
        'name = re.sub("^GPU ", "", number.text)',
        "found = _NOT_MEASURED.match(str(result.message))",
        'bare = _CODE.sub("", reason)',
        "ratio = sentence[12:]",
        'cause = problem.text[len("not measured: ") :]',
        'number = words[words.index("x") : -1]',
    ],
)
def test_what_takes_a_sentence_apart_is_found(source):
    assert taken_apart(f"def cut():\n    {source}") == {"cut"}


@pytest.mark.parametrize(
    "source",
    [
        'for line in text.split("\\n"): pass',
        'file, _, test = nodeid.partition("::")',
        'name.removesuffix(".py")',
        'if "total" in times: pass',
        "if name in words: pass",
        're.sub(r"[^a-z]", "-", name)',
        "_FRAME.fullmatch(name)",
        "shown = text[:60]",
        "last = name[3:]",
    ],
)
def test_what_reads_names_and_keys_is_not(source):
    assert taken_apart(source) == set()
