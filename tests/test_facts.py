"""Facts travel as data: the package takes no sentence apart that it has made itself, and tests ask for facts.

How a sentence of a catalogue reads stands in messages.txt and findings.txt beside this file, and nowhere else.
"""

from __future__ import annotations

import ast
import re
from collections import ChainMap, defaultdict, deque
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import msgspec
import pytest
import syntax

from pytest_torchprof import capture, report, trace
from pytest_torchprof.against import search_facts
from pytest_torchprof.compare import change, comparison, cost, new_kernels, notes, time_comparison
from pytest_torchprof.findings.finding import Finding
from pytest_torchprof.limits import evidence, failure, seen
from pytest_torchprof.limits.limit import Verdict
from pytest_torchprof.reasons import (
    collectives,
    commit_gaps,
    compiler_events,
    disturbances,
    fresh_processes,
    no_gpu,
    nvml_silence,
    skips,
    uncompiled,
    unreadable,
)
from pytest_torchprof.reasons.catalogue import KINDS
from pytest_torchprof.reasons.codes import MISUSES
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.report import account, baseline_failure, result
from pytest_torchprof.report.account import Account
from pytest_torchprof.testing import records_left

pytestmark = pytest.mark.any_torch

PACKAGE = Path(__file__).parents[1] / "pytest_torchprof"

TAKING_APART = {
    *("partition", "rpartition", "split", "rsplit", "startswith", "endswith", "removeprefix", "removesuffix"),
    *("find", "rfind", "replace", "index", "rindex", "count"),
}
MATCHING = {"match": 0, "fullmatch": 0, "search": 0, "findall": 0, "finditer": 0, "split": 0, "sub": 1, "subn": 1}
"""What a regular expression does, and which argument behind the expression is the text."""
# Which functions read what others write, and whose it is. Whoever adds one here says why no field could hold it.
FOREIGN = {
    "against/git.py": ("git's output", "worktrees"),
    "against/imports.py": ("files of projects", "_is_copy"),
    "against/request.py": ("what users write behind an option", "_time_share _budget_s"),
    "analysis/efficiency.py": ("names of copies in recordings", "_copies_by_direction"),
    "analysis/lanes.py": ("names of streams and of annotations in recordings", "_stream_lanes _annotated"),
    "analysis/ranges.py": ("names of nodes of autograd in recordings", "__init__"),
    "analysis/regions.py": ("names of Inductor's ranges", "region_of"),
    "analysis/stacks.py": ("names of Python frames in recordings", "stack_kinds"),
    "analysis/unseen.py": ("names of Python frames in recordings", "_unrecorded"),
    "analysis/waits.py": ("names of copies in recordings", "waiting_copies"),
    "baseline/conflict.py": ("git's marks of a conflict in baseline files", "sides"),
    "baseline/entry.py": ("keys of entries in baseline files", "split_key"),
    "baseline/path.py": ("names of devices", "_slug"),
    "baseline/step_form.py": ("lines of baseline files", "_read_line"),
    "capture/compile_history.py": ("Dynamo's reasons", "break_of_reason _explanation"),
    "capture/compile_log.py": ("Dynamo's guards", "_why_again"),
    "capture/cupti_users.py": ("the profiler's messages", "emit"),
    "capture/gpu_lock.py": ("the note in the lock's file", "_holder"),
    "capture/inductor_code.py": ("code that Inductor generates", "_dtypes _defined"),
    "capture/reasons.py": ("CUDA's messages", "no_gpu _of_initializing of_device"),
    "capture/recording_file.py": ("the profiler's file", "_settle_marks"),
    "capture/torch_graphs.py": ("names of torch's ranges", "renamed"),
    "capture/triton_kernels.py": ("code of Triton's kernels", "triton_kernels"),
    "cli/__init__.py": ("argparse's usage", "_format_usage"),
    "cli/explain.py": ("tables of the documentation", "_stacked_rows"),
    "cli/doctor_checks/inquiry.py": ("paths in any text", "public"),
    "findings/compiling.py": ("names of Inductor's ranges", "_backward_not_compiled"),
    "findings/finding.py": ("what users write as a threshold", "with_thresholds"),
    "system/remote/addresses.py": ("addresses", "is_remote without_local_protocol"),
    "history/since.py": ("what users write as a condition", "read_condition"),
    "history/where.py": ("addresses that users write, and lines of /proc/mounts", "network_file_system where_of"),
    "limits/compile_limits.py": ("names of torch's ranges", "_in_compiled_code"),
    "limits/written.py": ("what users write as a limit", "read_limit_texts _read_value"),
    "reasons/articles.py": ("what stands for a field in an example", "_in_a_cell"),
    "reasons/wrong_calls.py": ("Python's messages", "call"),
    "recording/oddities.py": ("bytes of recordings", "repairs _thorough"),
    "recording/reader.py": ("msgspec's messages, bytes of recordings", "_uncut _fold_likely"),
    "recording/text.py": ("bytes of recordings", "head"),
    "report/analysis_json.py": ("characters that are no ASCII", "encoded"),
    "recording/writer.py": ("recordings", "_own_key"),
    "report/markdown.py": ("what would end a fence of Markdown, in any text", "fenced"),
    "report/ci.py": ("characters that commands of CI services need escaped", "_escape_data"),
    "testing/rank_ends.py": ("pytest's reports of skips", "_own_end"),
    "testing/ranks/launch.py": ("torchrun's log, and Python's of a fatal error", "statuses_of _last_lines"),
    "testing/ranks/stacks.py": ("Python's stacks", "_main_stack"),
    "testing/tolerance.py": ("what users write as a tolerance", "_number tolerance_in"),
    "text/__init__.py": (
        "commands of CI services, tracebacks and URLs in any text",
        "printable raised_line without_passwords",
    ),
    "text/cutting.py": ("first words in any text", "_half_of _without_beginning"),
    "text/documentation.py": ("tables of the documentation", "marker_help articles plain"),
    "text/of_pytest.py": ("pytest's reports of skips", "why_skipped"),
    "text/expressions.py": ("names of kernels and of calls, messages of the profiler", "contains"),
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
NEVER_SETS = {"text", "message", "sentence", "brief", "remedy"}
"""Those of them that hold nothing else."""
NO_SENTENCES = {"others", "shown", "where"}
"""Functions that make one and are called as variables are that hold something else."""
PROSE = re.compile(r"[A-Za-z]+ [a-z]+ [a-z]+")
GIVING = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.comprehension)
"""Nodes that give a variable a value."""
ASKED = (ast.Subscript, ast.Compare, ast.Call)
"""Nodes that may ask what stands in a text."""


@cache
def makers_of_sentences(source):
    """Return the functions and properties of a source that return words of ours: three in a row."""
    return frozenset(name for node, name in syntax.in_functions(source, ast.Return) if name and is_prose(node.value))


def is_prose(node):
    """Return whether an expression may be a text with three words in a row that stand in the source."""
    if isinstance(node, ast.IfExp):
        return is_prose(node.body) or is_prose(node.orelse)
    if isinstance(node, ast.BinOp):
        return is_prose(node.left) or is_prose(node.right)
    if isinstance(node, ast.JoinedStr):
        return PROSE.search("".join(written(part) or "\0" for part in node.values)) is not None
    return PROSE.search(written(node)) is not None


def taken_apart(source, makers=frozenset()):
    """Return the functions in which a source asks what stands in a sentence.

    A sentence is known by words with a blank, by its name, by the function that makes it (one of ``makers``, or of the
    source's own), and by the variable to which any of these is assigned.
    """
    sentences = {*SENTENCES, *makers, *makers_of_sentences(source)}
    known = defaultdict(lambda: sentences)
    for node, name in syntax.in_functions(source, *GIVING):
        if variables := variables_of(node, sentences):
            known[name] = known[name].union(variables)
    return {name for node, name in syntax.in_functions(source, *ASKED) if takes_apart(node, known[name])}


def variables_of(node, sentences):
    """Return the variable to which a node assigns a sentence, or each line of one."""
    if isinstance(node, ast.For | ast.comprehension) and isinstance(node.target, ast.Name):
        return [node.target.id] if called(lines_of(node.iter)) in sentences else []
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) or node.value is None:
        return []
    if not (is_prose(node.value) or called(node.value) in sentences):
        return []
    return [target.id for target in targets if isinstance(target, ast.Name) and not target.id.isupper()]


def whole_of(node):
    """Return the text whose words or lines an expression is; the expression itself where it is anything else."""
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return node.func.value if is_call and node.func.attr in ("split", "splitlines") else node


def lines_of(node):
    """Return of what an expression is the lines, all or some of them; None if it is anything else."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        return lines_of(node.value)
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return node.func.value if is_call and node.func.attr == "splitlines" else None


def takes_apart(node, sentences=SENTENCES):
    """Return whether a node is a question to a sentence, a regular expression over one, or what stands behind a place."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        # A text is cut at its end for want of room; what a slice begins behind is known by somebody.
        return isinstance(node.slice.lower, ast.Constant | ast.Call) and called(node.value) in sentences
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        text = called(whole_of(node.comparators[0]))
        # A set may be called "seen" as well, and is asked for what a variable holds.
        return written(node.left) != "\n" and text in (sentences if written(node.left) else NEVER_SETS)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    if node.func.attr in MATCHING and is_expression(node.func.value):
        at = MATCHING[node.func.attr] + (called(node.func.value) == "re")
        return len(node.args) > at and called(node.args[at]) in sentences
    words = written(*node.args[:1])
    if node.func.attr in TAKING_APART and node.args and is_constant(node.args[0]):
        return called(node.func.value) in sentences
    return (
        node.func.attr in TAKING_APART
        and words.strip("\n\0")
        and (words.strip() or node.func.attr != "replace")
        and (" " in words or called(node.func.value) in sentences)
    )


def written(node=None):
    """Return the text that stands in the source; empty where something else does."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def is_constant(node):
    """Return whether it is a constant of a module, by its name."""
    return isinstance(node, ast.Name) and node.id.isupper()


def is_expression(node):
    """Return whether it is the module of regular expressions, or one that was compiled: a constant."""
    return is_constant(node) or (isinstance(node, ast.Name) and node.id == "re")


def called(node):
    """Return what is asked about is called: the last name of an expression."""
    if isinstance(node, ast.Call):
        return called(node.args[0]) if node.args and called(node.func) == "str" else called(node.func)
    if isinstance(node, ast.Attribute):
        return called(node.value) if node.attr in {"lower", "strip", "lstrip", "rstrip", "text_of"} else node.attr
    return node.id if isinstance(node, ast.Name) else ""


def test_no_sentence_of_ours_is_taken_apart():
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    makers = set().union(*map(makers_of_sentences, sources.values())) - NO_SENTENCES
    found = {file: taken_apart(source, makers) for file, source in sources.items()}
    known = {file: set(functions.split()) for file, (_, functions) in FOREIGN.items()}
    assert {file: functions for file, functions in found.items() if functions and not file.startswith(NAMES)} == known


@pytest.mark.parametrize(
    "source",
    [
        'change, _, ratio = words.partition(", ")',
        'problem.text.partition("can be read: ")[2]',
        'result.message.removeprefix("not measured: ")',
        'if "Perfetto" in file.problem.text: pass',
        "if OPTION in problem.text: pass",
        "if self.source in message: pass",
        "if name not in verdict.text.split(): pass",
        'cut = message.index("(")',
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
        'shown = remedy.replace("unset it", "unset A")',
        'line = str(reason)\n    if line.startswith("not"): pass',
        'line = "a launch was lost"\n    cut = line.partition("not")',
        'if (line := reason.text) and "GPU" in line: pass',
        'headline().split(":")',
        'if "2 limits" in run.headline: pass',
        "if text.startswith(REMEDY): pass",
        'return any(line.startswith("  do: ") for line in text.splitlines()[22:])',
    ],
)
def test_what_takes_a_sentence_apart_is_found(source):
    assert "cut" in taken_apart(f"def cut():\n    {source}", makers={"headline"})


@pytest.mark.parametrize(
    "source",
    [
        'def made():\n    return "a launch was lost"',
        'def made():\n    return f"a launch was lost" if name else ""',
        'def made():\n    return start + "a launch was lost"',
    ],
)
def test_what_makes_a_sentence_is_found(source):
    assert makers_of_sentences(source) == {"made"}


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


OF_UNMEASURED = re.compile(r"(?:^|: )not measured: ")
"""How it begins in front of a reason that something is not measured."""
MAKERS_OF_UNMEASURED = {"reasons/error_texts.py"}


def test_that_something_is_not_measured_is_written_by_one_function():
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    writing = {file for file, source in sources.items() for node in syntax.nodes(source, ast.Constant) if begins(node)}
    assert writing == MAKERS_OF_UNMEASURED


def begins(node):
    """Return whether a text in the source begins so."""
    return OF_UNMEASURED.search(written(node)) is not None


ASKING = ("analysis", "findings", "kernels", "limits", "measuring", "profiles.py", "recording", "report", "testing")
"""The folders that read what a test asks for."""


def test_what_a_test_asks_for_wrongly_is_refused_with_a_reason():
    sources = (path for name in ASKING for path in [PACKAGE / name, *(PACKAGE / name).rglob("*.py")] if path.is_file())
    named = {path.relative_to(PACKAGE).as_posix(): path for path in sources}
    found = {name: refused_in_words(path.read_text()) for name, path in named.items()}
    assert {name: lines for name, lines in found.items() if lines} == {}


def refused_in_words(source):
    """Return the lines that make an error of what a test asks for out of a text, and not out of a reason."""
    calls = syntax.nodes(source, ast.Call)
    return [node.lineno for node in calls if called(node.func) == "UnknownLimit" or of_misuse(node)]


def of_misuse(call):
    """Return whether an error has a code of misuse, or that of another error whose text it may hold."""
    code = called(call.args[1]) if len(call.args) > 1 and called(call.func) == "TorchprofError" else ""
    return code == "code" or code in {misuse.name for misuse in MISUSES}


@pytest.mark.parametrize(
    "source",
    [
        'raise UnknownLimit(f"expected a share, got {value!r}")',
        'raise UnknownLimit(f"{name}: {problem.text}", problem.code)',
        "raise errors.UnknownLimit(message)",
        'raise TorchprofError(f"{call} takes a label", Code.FIXTURE_MISUSE)',
        'raise TorchprofError(f"{where}: {problem.text}", problem.code)',
    ],
)
def test_a_refusal_in_words_is_found(source):
    assert refused_in_words(source) == [1]


@pytest.mark.parametrize(
    "source",
    [
        "raise UnknownLimit.because(WrongValue(ValueForm.SHARE, repr(value)))",
        "raise problem.of_keyword(name, repr(value)) from None",
        'raise TorchprofError(f"{path} cannot be read", Code.BAD_OPTION)',
    ],
)
def test_a_refusal_with_a_reason_is_none_in_words(source):
    assert refused_in_words(source) == []


ERRORS_OF_OTHERS = {
    "cli/__init__.py": ("argparse's message", "error"),
    "report/account.py": ("a sentence of the catalogue itself", "sentence"),
    "testing/ranks/item.py": ("a line of a rank's report", "runtest"),
}
"""Which functions make one of a text that has been written elsewhere, and which text."""
MADE_OF_CAUSES = {"RefusedError", "_NoTraceError"}
"""Errors that are made of a cause, which is data."""


FOR_OTHERS = ("Contradiction", "NotPacked", "UsageError")
"""Errors that others show, or that are caught at once: they are made of a reason, or of its words."""


def test_errors_carry_reasons():
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    errors = errors_in(sources.values())
    found = {file: made_of_texts(source, errors) for file, source in sources.items()}
    known = {file: set(functions.split()) for file, (_, functions) in ERRORS_OF_OTHERS.items()}
    assert {file: functions for file, functions in found.items() if functions} == known, (
        "raise it by because(), with a reason that has the facts"
    )


def errors_in(sources):
    """Return what the errors of this package are called: `TorchprofError`, and the classes below it."""
    nodes = (node for source in sources for node in syntax.nodes(source, ast.ClassDef))
    classes = {node.name: {called(base) for base in node.bases} for node in nodes}
    errors = {"TorchprofError"}
    while more := {name for name, bases in classes.items() if bases & errors} - errors:
        errors |= more
    return frozenset(errors - MADE_OF_CAUSES)


def made_of_texts(source, errors):
    """Return the functions in which a source makes an error out of a text, or writes one with a code behind it."""
    return {name for call, name in syntax.in_functions(source, ast.Call) if call.args and is_of_text(call, errors)}


def is_of_text(call, errors):
    name, given = called(call.func), call.args[0]
    if name in ("NotMeasured", "not_measured"):  # They take a reason.
        return is_text(given)
    if name in FOR_OTHERS:
        return not all(map(holds_reason, call.args))
    if name == "coded":
        return any(isinstance(code, ast.Attribute) and called(code.value) == "Code" for code in call.args[1:])
    return name in errors or (name == "refuse" and is_text(call.args[-1]))


def holds_reason(node):
    """Return whether an expression is a reason that is made there, or the text of one, of an error, or of several in lines."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else called(node.func)
    return name in {"str", "join"} or name[:1].isupper()


def is_text(node):
    """Return whether an expression is a text, as far as can be seen there."""
    is_str = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str"
    is_asked = isinstance(node, ast.Attribute) and node.attr == "text"
    return isinstance(node, ast.JoinedStr | ast.BinOp) or written(node) != "" or is_str or is_asked


@pytest.mark.parametrize(
    "statement",
    [
        'raise TorchprofError(f"{path} cannot be read", Code.BAD_OPTION)',
        "raise errors.TorchprofError(problem)",
        'return Spilled(path, "it rained")',
        'raise Soaked("it rained")',
        'raise NotMeasured("it rained")',
        'raise NotMeasured(f"{path}: it rained")',
        "raise NotMeasured(problem.text)",
        'raise NotMeasured("it rained on " + path)',
        "raise not_measured(problem.text)",
        'raise pytest.UsageError("--one and --other exclude each other")',
        "raise pytest.UsageError(message)",
        "raise pytest.UsageError(coded(text, Code.BAD_OPTION))",
        'raise Contradiction(f"{test} was not measured, and has numbers")',
        'sys.stderr.write(coded("it rained", Code.BAD_OPTION))',
        'refuse("run", f"rank {rank}: {problem}")',
        'refuse("run", str(problem))',
        'refuse("run", problem.text)',
    ],
)
def test_an_error_that_is_made_of_a_text_is_found(statement):
    errors = errors_in(["class Soaked(Spilled): pass\nclass Spilled(TorchprofError): pass"])
    assert made_of_texts(f"def cut():\n    {statement}", errors) == {"cut"}


@pytest.mark.parametrize(
    "statement",
    [
        "raise TorchprofError.because(LeftOver(path))",
        "raise Spilled.because(LeftOver(path)) from None",
        "raise NotMeasured(OfRecording(path, reason))",
        "raise NotMeasured(self.reason)",
        "raise not_measured(LeftOver(path))",
        "raise pytest.UsageError(str(problem)) from None",
        "raise pytest.UsageError(str(LeftOver(path)))",
        'raise pytest.UsageError("\\n".join(problems))',
        "raise UsageError.because(LeftOver(path))",
        "raise Contradiction(LeftOver(path))",
        "return coded(printable_line(why.text), why.CODE)",
        'refuse("run", problem)',
        'refuse("run", OfRank(rank, problem.reason))',
        'raise ValueError(f"{text} is no number")',
    ],
)
def test_an_error_that_carries_a_reason_is_none_of_a_text(statement):
    errors = errors_in(["class Spilled(TorchprofError): pass"])
    assert made_of_texts(f"def cut():\n    {statement}", errors) == set()


# What may stand in a text that a fact holds, by the name of the field.
OF_CODE_AND_RECORDINGS = """
    absent after allowances allowed allowed_by before begins_step block branch breaks cache call calls carried category chain code codes collective
    collectives collectives_us command commit conditions constants cpu_waited_in cpu_waited_within device devices directions directions_us dtype dtype_elsewhere dtypes
    elsewhere entered facts family finding flags first full function gpus graph graphs group history idle_first innermost kernel kernels keys
    kinds label lacking launched_by limit limits longest longest_before mean_us module name named named_after names near new ops_us
    nodeid nodes not_counted noun number outcome numbers of_ops old op operator operators ops optimizer part pattern phase
    not_collected program range recompiles recorded repository reasons same second selector setting silent_after silent_before setup shapes sizes source status structure test
    tools unit unmatched users variable variables version cuda_of_torch within within_too worst_step written steps asked there
    argument column field got hook keyword known measurements namespace of plugin rank rule step suffix tests
    address beginning endings engine example fitting forms machine machines module modules option project projects protocols rules run runs store taken
    backend began branches date ended file_system record reference revision
"""
"""Names: of kernels, operators, types, tests, options, numbers, ranges; nouns; what users write."""
PATHS = "address into manifest path culprit differing file files folder line location lock other others places recording root silent"
OF_OTHERS = "error error_text last_lines note returned said"
"""Words of others: Python's of an exception, torch's, a plugin's, an earlier version's."""
SENTENCES_OF_OTHERS = {
    "AllowEntry.reason": "the user's",
    "BodySkipped.explanation": "the test's own, of its skip",
    "EndedItsRun.explanation": "Python's of an exception, where it is no error of ours",
    "EndedOnRank.explanation": "pytest's, where it is no reason",
    "EndedWithoutMeasuring.explanation": "pytest's, where it is no reason",
    "GraphBreakLine.explanation": "torch's",
    "RepeatFailed.problem": "Python's of an exception",
    "TestSkipped.explanation": "pytest's",
    "UnreadableVerdict.problem": "msgspec's",
    "WrongCall.problem": "Python's",
    "EndedBeforeTimes.message": "a result's, as reports have it",
    "ExportSkipped.because": "torch's",
    "FreshProcess.failure": "Python's, of an exception",
    "GraphBreakLine.why": "torch's",
    "RecompileLine.why": "torch's",
    "SkippedGraph.why": "torch's",
    "OtherFinding.title": "a plugin's",
    "OtherFinding.message": "a plugin's",
    "OtherFinding.remedy": "a plugin's",
    "Attempt.cudagraph_skip": "torch's",
    "Attempt.failure": "torch's",
    "Attempt.guard": "torch's",
    "Compilation.guard": "torch's",
    "GraphBreak.why": "torch's",
    "InductorGraph.cudagraph_skip": "torch's",
    "Recompile.why": "torch's",
}
NAMES_AND_VALUES = {
    **dict.fromkeys(
        ("AmbiguousToBaseline.baseline", "WorseThanBaseline.baseline"), "a file; or a branch, a commit and its day"
    ),
    "BaselineFailure.blamed": "a file",
    **dict.fromkeys(("BaselineFailure.gone", "NoBaseline.gone", "RunResults.gone"), "tests"),
    **dict.fromkeys(("EntriesDisused.became", "UnusedEntries.became"), "tests"),
    "BoundsContradict.least": "a limit as the user wrote it",
    "BoundsContradict.most": "a limit as the user wrote it",
    "BaselineFailure.run_of_branch": "a commit and its day",
    "Change.what": "a kernel, or a number",
    "DeviceOfRanks.kind": "a kind of device",
    **dict.fromkeys(("OtherDeviceUsed.first_device", "OtherDeviceUsed.second_device"), "a device"),
    **dict.fromkeys(("OtherSoftware.first_versions", "OtherSoftware.second_versions"), "software and its versions"),
    "UnitsSampled.side": "what a side is called",
    "FixOrAllow.tolerance": "names of numbers",
    **dict.fromkeys(("Commit.sha", "Reference.ref", "Reference.sha"), "a commit"),
    "RunResults.rootdir": "a path",
    "Failure.causes": "names of limits",
    "GivenTwice.entry": "an entry as the user wrote it",
    "Hotspot.subject": "a kernel or an operator",
    "Kept.allow_file": "a path",
    "Kept.with_lines": "a path",
    "MeantForEither.value": "a value as the user wrote it",
    "NeedsGpu.what": "a number",
    "OtherConditions.at_commit": "conditions of samples",
    "OtherConditions.here": "conditions of samples",
    "OfEntry.entry": "an entry as the user wrote it",
    "OfKeyword.value": "a value as the user wrote it",
    "Result.compile_us": "phases of a compilation",
    "Result.telling": "names of limits",
    "RankOfOtherTest.first_test": "a test",
    "OtherThreadNotDone.what": "a function that a thread or a pool was given",
    "RanOnOtherThread.what": "a function that a thread or a pool was given",
    "TooFewRecordings.wanted": "a number, or a pattern",
    "MergeSideUnreadable.side": "a side of a merge, as git calls it",
    "NoEvent.value": "what stands in the file",
    "NoNumberThere.value": "what stands in the file",
    "OddEvent.key": "an entry of an event",
    "OddEvent.value": "what stands in the file",
    "BadNotAfterGood.bad": "a commit",
    "BadNotAfterGood.good": "a commit",
    "BadNotAfterGood.parted_at": "a commit",
    "EarlierSchema.needed": "a revision of the schema",
    "RecordKeyTwice.key": "an entry of a record",
    "TooLittleMemory.value": "a value as the user wrote it",
    "WrongOption.value": "a value as the user wrote it",
    "StampTooLate.value": "what stands in the file",
    "UnmeasuredOnBranch.known_as": "a code",
    "Verdict.expected": "a value as the user wrote it",
    "WantedAndForbidden.entry": "an entry as the user wrote it",
    "WantedAndForbidden.forbidden": "a limit",
    "WantedAndForbidden.wanted": "a limit",
    "WrongCall.right": "a call",
    "Adoption.device_asked": "a device",
    "Annotation.scope": "a name that the code gives",
    "Arrows.finishes": "numbers of processes and threads",
    "Arrows.starts": "numbers of processes and threads",
    "Attempt.compile_id": "a number of Dynamo's",
    "Attempt.failed_at": "a file and a line",
    "Attempt.times_us": "phases of a compilation",
    "Captured.unsure": "operators",
    "CapturedNode.kind": "a kind of node",
    "CapturedNode.unsure": "operators",
    "CapturedRange.kind": "a kind of range",
    "CapturedRange.operands": "sizes and types",
    "ColdStart.time_us": "phases of a compilation",
    "Compilation.identity": "a number of Dynamo's",
    "CompileEvidence.entries": "numbers of Dynamo's",
    "CompileEvidence.of_torch": "numbers of Dynamo's",
    "CompileEvidence.time_us": "phases of a compilation",
    "SeenCompiledAgain.compile_id": "a number of Dynamo's",
    "Device.pid": "a process, as the recording has it",
    "Environment.clocks_mhz": "a setting or a version",
    "Environment.compute_capability": "a setting or a version",
    "Environment.cpu": "a setting or a version",
    "Environment.cuda": "a setting or a version",
    "Environment.driver": "a setting or a version",
    "Environment.gcn_arch": "a setting or a version",
    "Environment.gpu": "a setting or a version",
    "Environment.launches_wait": "a setting or a version",
    "Environment.matmul_precision": "a setting or a version",
    "Environment.platform": "a setting or a version",
    "Environment.python": "a setting or a version",
    "Environment.rocm": "a setting or a version",
    "Environment.torch": "a setting or a version",
    "Environment.triton": "a setting or a version",
    "FreshProcess.versions": "versions",
    "GeneratedKernel.unclear": "operators",
    "GivenUp.compiled": "numbers of Dynamo's",
    "GpuRanges.process": "a process, as the recording has it",
    "GpuRanges.stream": "a stream, as the recording has it",
    "GraphBreak.at": "a file and a line, or torch's words",
    "HandedOver.work": "functions that threads and pools were given",
    "InductorGraph.aten_calls": "operators",
    "InductorGraph.code_hash": "a hash",
    "InductorGraph.code_path": "a path",
    "InductorGraph.hash": "a hash",
    "InductorGraph.made_of": "numbers of Dynamo's",
    "Message.comms_id": "a number of the backend's",
    "Message.group_description": "a group's name",
    "Message.group_ranks": "ranks",
    "Metadata.clock": "a clock",
    "Metadata.device_asked": "a device",
    "Metadata.run_id": "a number of a run",
    "Metadata.sentinel": "a kernel",
    "Metadata.threads": "functions that threads and pools were given",
    "Metadata.triton_kernels": "kernels",
    "DataDependentJump.instruction": "what Dynamo calls an instruction",
    "RegionInside.inner": "a range",
    "RegionInside.outer": "a range",
    "StanceSet.stance": "a stance of torch.compile",
    "TensorLists.types": "types",
    "Timing.clock": "a clock",
    "Trace.header": "entries of the recording",
    "Trace.processes": "processes, as the recording has them",
    "Trace.streams": "streams, as the recording has them",
    "Trace.taken_for": "a device",
    "Trace.threads": "threads, as the recording has them",
    "Trace.unknown_work": "kernels",
    "UnderMode.mode": "a class of a mode",
    "_Before.frames": "counters of Dynamo's",
    "_Before.inductor": "counters of Inductor's",
}
"""Fields whose names do not tell that they hold names and values, and of what."""
IN_RECORDINGS = {
    "BaseUnmeasured.because": "why a commit lacks it, of earlier versions",
    "Comparison.disturbed": "what disturbed the machine, of earlier versions",
    "FromReport.explanation": "a result's message, as reports have it",
    "HistoryUnread.problem": "what is wrong with the history, of earlier versions",
    "RecordDamaged.problem": "what is wrong with the record, of earlier versions",
    "EndedItsRun.goal": "a point of the run, of earlier versions",
    "GpuInUse.holders": "which processes hold a lock, of earlier versions",
    "InsteadOfCompiling.what": "what kept Dynamo away, of earlier versions",
    "NoFittingCode.under": "a setting of torch.compile, of earlier versions",
    "NoRecordsInTorch.missing": "records of Dynamo's, in recordings of earlier versions",
    "NotCompiled.seen": "what kept Dynamo away, of earlier versions",
    "NotReadBack.cause": "why it cannot be read, of earlier versions",
    "RanUncompiled.under": "a setting of torch.compile, of earlier versions",
    "RankOutlasted.at": "a line, and a collective, of earlier versions",
    "RankStoodStill.at": "a line, and a collective, of earlier versions",
    "RankStoodStill.goal": "a point of the run, of earlier versions",
    "RankTooLate.goal": "a point of the run, of earlier versions",
    "OtherwiseOnRank.in_step": "a step, in reports of earlier versions",
    "TimeComparison.disturbed": "what disturbed the machine, of earlier versions",
    "Verdict.in_step": "a step, in reports of earlier versions",
    "WorstRank.in_step": "a step, in reports of earlier versions",
    "Batch.disturbed": "what disturbed the machine, of earlier versions",
    "CompileEvidence.eager_under": "settings of torch.compile, of earlier versions",
    "CompileEvidence.entered_under": "settings of torch.compile, of earlier versions",
    "CompileEvidence.seen_instead": "what kept Dynamo away, of earlier versions",
    "PhaseEnd.why": "pytest's words",
    "RunEnd.why": "Python's of an exception, where it is no error of ours",
    "GraphBreak.explanation": "torch's",
}
"""Words that stand so in recordings, baselines and reports which have to be read for good."""


OF_RUNS = """
    announced asked_by below collected compile_cache copy deselected etag findings following gone gpu idle key labels limits_missed member model
    nodeids of_majority passed path_hex readable replayed severity sources tests_of thresholds torch unanswerable unmeasurable url value worst writer
"""
"""Names and values in what processes of a run know of it and tell one another."""
WORDS_SHOWN = {
    "BriefFailure.text": "a failure as pytest shows it",
    "Conclusion.brief": "the text of an error, which has the facts",
    "Conclusion.in_one_line": "the text of an error, which has the facts",
    "FindingRow.title": "of a kind of finding, whose code stands beside it",
    "JobRow.why": "the words of the reason beside it",
    "NotJudged.why": "the words of the reason beside it",
    "OneLine.message": "a failure as pytest shows it",
    "ParentDifference.summary": "the words of the changes beside it",
}
"""Words of ours that are about to be shown, or stand in a report beside their facts."""
VALUES_OF_RUNS = {
    "Alike.values": "what files are grouped by",
    "Bisection.parent": "a commit",
    "Ending.raised_at": "a file and a line",
    "FamilyTime.library": "a library",
    "HandedBaselines.formers": "labels",
    "JobPlan.arguments": "of a command line",
    "Judgement.blamed": "a file and a line",
    "MeasuredTest.properties": "names and values for JUnit",
    "RunOptions.forced": "options of the marker",
    "RunOptions.ranks_scope": "a value of the ini key",
    "SearchEnd.ref": "a commit as the user named it",
    "SearchEnd.sha": "a commit",
    "Stack.lines": "Python's, of a stack",
}
"""Fields of these whose names do not tell that they hold names and values, and of what."""


def kinds_of_runs():
    """Return the structs in which the processes of a run keep what they know, and what they tell one another."""
    found = {kind for name in ("against", "fleet", "testing") for kind in structs_in(PACKAGE / name)}
    return {kind for kind in found if not issubclass(kind, Reason | Account)}


def structs_in(folder):
    """Yield the structs of all modules in a folder of the package."""
    for path in sorted(folder.rglob("*.py")):
        if path.name != "warm_process.py":  # It stands for itself, and imports nothing of the package.
            module = import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
            own = [kind for kind in vars(module).values() if getattr(kind, "__module__", None) == module.__name__]
            yield from (kind for kind in own if isinstance(kind, type) and issubclass(kind, msgspec.Struct))


def kinds_of_facts():
    """Return the kinds of reasons, findings, verdicts, what limits see, changes, results, and how these came out."""
    found = [
        *KINDS,
        *seen.KINDS,
        *evidence.KINDS,
        *collectives.KINDS,
        *no_gpu.KINDS,
        *uncompiled.KINDS,
        *uncompiled.SETTINGS,
        *compiler_events.KINDS,
        *fresh_processes.KINDS,
        *commit_gaps.KINDS,
        *unreadable.KINDS,
        *disturbances.KINDS,
        *nvml_silence.KINDS,
        *skips.KINDS,
        *search_facts.ANSWERS,
        *search_facts.KINDS,
        *below(Finding),
        Verdict,
    ]
    held = [module for folder in (trace, capture) for module in modules_of(folder)]
    of_run = (report, result, account, baseline_failure, records_left)
    for module in (*of_run, failure, change, comparison, cost, new_kernels, notes, time_comparison, *held):
        own = [kind for kind in vars(module).values() if getattr(kind, "__module__", None) == module.__name__]
        found += [kind for kind in own if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    return {kind for kind in found if kind.__module__.startswith("pytest_torchprof.")}


def modules_of(package):
    """Return the modules of a folder, of all folders in it."""
    return [import_module(module.name) for module in walk_packages(package.__path__, f"{package.__name__}.")]


def below(kind):
    return {one for sub in kind.__subclasses__() for one in (sub, *below(sub))}


MAPPING = re.compile(r"(?:dict|Mapping)\[.*\]")


def texts_of_runs(kinds):
    """Return what ``texts_of`` does of the structs of runs, whose mappings are from names to values."""
    return {text for text in texts_of(kinds, MAPPING) if text.partition(".")[2] not in OF_RUNS.split()}


def texts_of(kinds, without=None):
    """Return the fields that hold texts, as "Kind.field", but for those whose name says what may stand in them.

    ``without``: an expression for the parts of types in which texts are none.
    """
    known = {*OF_CODE_AND_RECORDINGS.split(), *PATHS.split(), *OF_OTHERS.split()}
    found = set()
    for kind in kinds:
        types = ChainMap(*(vars(base).get("__annotations__", {}) for base in kind.__mro__))
        shown = {name: without.sub("", types[name]) if without else types[name] for name in kind.__struct_fields__}
        held = {name for name in shown if re.search(r"\bstr\b", shown[name])}
        found |= {f"{kind.__name__}.{name}" for name in held - known}
    return found


def test_no_fact_holds_words_of_ours_but_those_that_are_listed():
    found = texts_of(kinds_of_facts())
    listed = {*SENTENCES_OF_OTHERS, *NAMES_AND_VALUES, *IN_RECORDINGS}
    of_runs = texts_of_runs(kinds_of_runs())
    assert found - listed == set(), (
        "a name, a path or words of others? say which above; words of ours are a nested kind"
    )
    assert listed - found - of_runs == set(), "these are gone"


def test_no_process_of_a_run_keeps_words_of_ours_but_those_that_are_listed():
    found = texts_of_runs(kinds_of_runs())
    listed = {*WORDS_SHOWN, *VALUES_OF_RUNS}
    assert found - listed - SENTENCES_OF_OTHERS.keys() == set(), "words of ours are a reason, a statement, or an enum"
    assert listed - found == set(), "these are gone"


def test_words_of_a_reason_stand_beside_it():
    with_reason = {kind.__name__ for kind in kinds_of_runs() if "reason" in kind.__struct_fields__}
    beside = {name.partition(".")[0] for name, why in WORDS_SHOWN.items() if "reason beside" in why}
    assert beside
    assert beside <= with_reason


def test_a_struct_of_a_run_that_holds_a_sentence_is_found():
    class Ended(msgspec.Struct):
        outcome: str
        by_name: dict[str, int]
        why: str = ""
        left: str | None = None

    assert texts_of_runs([Ended]) == {"Ended.why", "Ended.left"}


def test_a_fact_that_holds_a_sentence_is_found():
    class Cut(Reason, frozen=True):
        file: str
        because: str
        why: str | None = None

    assert texts_of([Cut]) == {"Cut.because", "Cut.why"}


def words_given(sources, fields):
    """Return where words of ours reach fields that hold others' alone, as "file:line" with the field.

    ``fields`` are written "Kind.field". What is given is followed through the parameters of functions that hand it on,
    through variables, and into functions that return it; so far as these can be told by their names.
    """
    named, calls = values_of(map(syntax.tree, sources.values())), defaultdict(list)
    for file, function in in_files(sources, *syntax.FUNCTIONS):
        inside = syntax.below(function)
        named[function.name].extend(node.value for node in inside if isinstance(node, ast.Return))
        for call in (node for node in inside if isinstance(node, ast.Call)):
            calls[called(call.func)].append((file, function, call))
    found, taking = set(), set()
    for file, kind in in_files(sources, ast.ClassDef):
        for name, place, field, default in declared(kind):
            if f"{name}.{field}" in fields:
                taking.add((name, place, field, f"{name}.{field}"))
                found |= {f"{file}:{line} {name}.{field}" for line in lines_of_words(default, None, named)}
    # Which argument of what is called is a field at last: its place, where it has one, and its name.
    left = deque(taking)
    while left:
        name, place, keyword, field = left.popleft()
        for file, function, call in calls[name]:
            for given in arguments_of(call, place, keyword):
                if any(lines_of_words(given, function, named)):
                    found.add(f"{file}:{call.lineno} {field}")
                further = {(function.name, *parameter, field) for parameter in handed_on(given, function)} - taking
                left.extend(further)
                taking |= further
    return sorted(found)


def in_files(sources, *kinds):
    """Yield the nodes of these kinds, each with its file."""
    yield from ((file, node) for file, source in sources.items() for node in syntax.nodes(source, *kinds))


def values_of(trees):
    """Return what the constants of modules are, by their names."""
    values = defaultdict(list)
    for node in (node for tree in trees for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if is_constant(target):
                values[target.id].append(node.value)
    return values


def declared(kind):
    """Yield the fields of a class: the class's name, the place, the field's name and what it is by default."""
    own = [one for one in kind.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
    yield from ((kind.name, place, one.target.id, one.value) for place, one in enumerate(own))


def arguments_of(call, place, keyword):
    at_its_place = [] if place is None else call.args[place : place + 1]
    return [*at_its_place, *(one.value for one in call.keywords if one.arg == keyword)]


def handed_on(node, function):
    """Yield the parameters of a function that an expression may be: the place of each, and its name."""
    arguments = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    by_name = [one.arg for one in function.args.kwonlyargs]
    for name in (one.id for one in choices(node) if isinstance(one, ast.Name)):
        if name in arguments:
            yield arguments.index(name) - (arguments[0] in ("self", "cls")), name
        elif name in by_name:
            yield None, name


def choices(node):
    """Yield what an expression may be: all of its alternatives."""
    if isinstance(node, ast.IfExp):
        yield from (*choices(node.body), *choices(node.orelse))
    elif isinstance(node, ast.BoolOp):
        yield from (one for value in node.values for one in choices(value))
    elif isinstance(node, ast.Tuple | ast.List):
        yield from (one for value in node.elts for one in choices(value))
    elif isinstance(node, ast.Call) and called(node.func) in ("str", "sub", "short_reason", "printable_line"):
        # These return what they are given, or a part of it.
        yield from (node, *(one for value in node.args[-1:] for one in choices(value)))
    elif node is not None:
        yield node


def lines_of_words(node, function, named, *, depth=2):
    """Yield the lines at which what an expression may be stands as a text, or is put together."""
    for one in choices(node):
        if isinstance(one, ast.JoinedStr | ast.BinOp) or written(one).strip():
            yield one.lineno
        elif isinstance(one, ast.Name) and function is not None:
            for value in assigned_to(one.id, function):
                yield from lines_of_words(value, None, named, depth=depth)
        is_made = is_constant(one) or (isinstance(one, ast.Call) and isinstance(one.func, ast.Name))
        for value in named[called(one)] if is_made and depth else ():
            yield from lines_of_words(value, None, named, depth=depth - 1)


def assigned_to(name, function):
    """Yield what a function assigns to a variable."""
    for node in syntax.below(function):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                yield node.value


OF_OTHERS_ALONE = {
    *(field for field, whose in SENTENCES_OF_OTHERS.items() if whose in ("torch's", "Python's, of an exception")),
    *("Break.reason", "Again.reason", "CudaGraphs.why", "CudaGraphSkipped.reasons", "NoKernelsRecorded.error"),
}
"""What torch and Python say, in words of their own; where they say nothing, a kind tells what is known."""


def test_what_others_say_is_said_by_them():
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    assert words_given(sources, OF_OTHERS_ALONE) == [], "words of ours are a nested kind"


KIND = "class Broke(Struct):\n    line: int\n    why: Event | str = Unknown()\n"


@pytest.mark.parametrize(
    "source",
    [
        'def made(at):\n    return Broke(at, "no reason given")',
        'def made(at):\n    return Broke(at, why=f"{at} ran inside")',
        'def made(at, said):\n    return Broke(at, said or "no reason given")',
        'def made(at, said):\n    return Broke(at, why="of data: " + said)',
        'def made(at, said):\n    why = said if at else "no reason given"\n    return Broke(at, why)',
        'def short(said):\n    return said or "no reason given"\ndef made(at, said):\n    return Broke(at, short(said))',
        'def broke(why, *, at):\n    return Broke(at, why)\ndef made(at):\n    return broke("dropped", at=at)',
        'GONE = "what was compiled is gone"\ndef made(at, said):\n    return Broke(at, said or GONE)',
        'class Log:\n    def made(self, at, why):\n        return Broke(at, why)\ndef made(log):\n    log.made(1, "gone")',
    ],
)
def test_words_of_ours_among_others_are_found(source):
    assert words_given({"it.py": KIND + source}, {"Broke.why"})


def test_a_default_in_words_is_found():
    source = 'class Broke(Struct):\n    line: int\n    why: str = "no reason given"'
    assert words_given({"it.py": source}, {"Broke.why"}) == ["it.py:3 Broke.why"]


@pytest.mark.parametrize(
    "source",
    [
        "def made(at, said):\n    return Broke(at, said)",
        "def made(at, said):\n    return Broke(at, NoReason() if said is None else said)",
        'def made(at, said):\n    return Broke(at, re.sub("^a", "", said))',
        'def made(at, said):\n    return Other(at, "no reason given")',
        'def made(at, said):\n    at = "a line"\n    return Broke(at, said)',
    ],
)
def test_words_of_others_alone_are_none_of_ours(source):
    assert words_given({"it.py": KIND + source}, {"Broke.why"}) == []


TESTS = Path(__file__).parent
PINNED = ("messages.txt", "findings.txt")
NO_WORDS = re.compile(r"`[^`]*`|<[^<>\n]*>|\[[^\[\]]*\]|[*?|\n:;()\0]|\\\\[dsw]")
"""Code, fields, codes, and where a pattern leaves something open: there a row of words ends."""
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
IN_ANY_SENTENCE = frozenset(
    [
        "a",
        "all",
        "an",
        "and",
        "any",
        "are",
        "as",
        "at",
        "be",
        "been",
        "but",
        "by",
        "can",
        "cannot",
        "could",
        "did",
        "do",
        "does",
        "each",
        "for",
        "from",
        "had",
        "has",
        "have",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "may",
        "no",
        "none",
        "nor",
        "not",
        "of",
        "on",
        "one",
        "or",
        "so",
        "than",
        "that",
        "the",
        "their",
        "them",
        "there",
        "these",
        "they",
        "this",
        "those",
        "to",
        "was",
        "were",
        "which",
        "who",
        "with",
    ]
)
"""Words that say nothing by themselves: of three in a row, two are to be others."""
COMMON = {
    "launched by aten": "what is not fused is listed so, too",
    "did you mean": "what is misspelled is refused so wherever it stands, in most places by no kind of reason",
    "a whole number": "the same of a value that is none",
    "expected at least": "the same of an empty list",
    **dict.fromkeys(("expected a share", "expected a number", "expected a duration"), "the same of what is expected"),
    "is given twice": "the same of an option",
    "is too short": "the same of a series in a history",
    "no file fits": "the same of a pattern of sources",
    "of several ranks": "what jobs are of: a fleet counts these",
    "the test was not": "the same of a test on a rank",
    "cannot both hold": "the same of two limits",
    "there is no such": "the same of a file, and of a commit",
    "a number of ranks": "what a record has",
    "are not in order": "the same of the rounds of a baseline",
    "of the same id": "the same of a test's record",
    "the same id": "what two records of a test have",
    "exclude each other": "the same of other options",
    "of an earlier version": "the same of a baseline, which is read all the same",
    "no kernel's name": "the same of what is declared of kernels",
    "no test judged": "recordings that none did are listed under a heading of their own",
    **dict.fromkeys(
        ("the kernels are the", "kernels are the same"), "a comparison says so of kernels that have other names"
    ),
    "monitor of CUPTI": "a name: what torch's own profiler for CUPTI is called",
    "CUPTI of CUDA": "a version, as the doctor has it",
    "a block that is": "the same of a block of the measured code",
    "graph break at": "the lines of a comparison say so of a place",
    **dict.fromkeys(
        ("take out the graph", "out the graph break", "the graph break at"), "the same where a fusion is asked for"
    ),
    "against the baseline": "what the lines of a comparison begin with",
    **dict.fromkeys(("torchprof baseline rename", "torchprof history push"), "a command"),
    "entries of tests that": "the same of those that a command removes",
    "of this run is": "the same of a run's tests",
    "blocks per SM": "a key of recordings",
}
"""Rows of words that catalogues share with others, and whose they are."""
COMPARING = {
    *(
        "fnmatch_lines",
        "no_fnmatch_line",
        "fnmatch_lines_random",
        "re_match_lines",
        "no_re_match_line",
        "raises",
        "warns",
    ),
    *MATCHING,
    *TAKING_APART,
}
"""What compares a text with its arguments, or begins with one of them."""
NAMING = {"id", "ids", "reason"}
"""Arguments that only name a case, or say why a test is skipped."""
ALLOWED = {
    "findings_on_recordings.py": "notes for people on why a finding is right: nothing is compared with them",
    "gpu/day": "what the questions of the GPU day print themselves",
    "reference_pages.py": "words of the pages that it writes",
    "test_findings_witness.py": "holds remedies against raw events: which ways a remedy names is no field of a finding",
    "test_mistakes.py": "words of a user's own error",
    "test_page_exact.py": "the page's own legend",
}
"""Files, or folders, and what is the same there as in a catalogue without being pinned."""


@cache
def rows_of_sentences(sentences, length):
    """Return all rows of so many words that the catalogues have: of each file the same are looked for."""
    return frozenset(row for words in rows_of_words(sentences) for row in each(words, length))


def rows_of_words(text):
    """Yield the words of a text, as far as they follow one another."""
    for part in NO_WORDS.sub("\0", text).split("\0"):
        yield re.findall(r"[\w'./=-]*\w", part.replace("\\", ""))


def each(words, length):
    """Yield each row of so many words that are none of code, and no numbers."""
    for row in zip(*(words[at:] for at in range(length)), strict=False):
        if all(map(is_word, row)):
            yield row


def is_word(word):
    return WORD.fullmatch(word) is not None


def literals(source):
    """Yield line and text of each literal that is no docstring; what an f-string fills in is a NUL."""
    inside = {id(node.value) for node in syntax.nodes(source, ast.Expr)}
    for node in syntax.nodes(source, ast.JoinedStr):
        inside |= {id(part) for part in node.values}
        yield node.lineno, "".join(written(part) or "\0" for part in node.values)
    for node in syntax.nodes(source, ast.Constant):
        if written(node) and id(node) not in inside:
            yield node.lineno, node.value


def compared(source):
    """Yield the literals with which a source compares: in assertions, patterns, cases of tests, and tables of cases."""
    for node in syntax.nodes(source, ast.Assert, ast.FunctionDef, ast.Call):
        if isinstance(node, ast.Assert):
            yield from without_names(node.test)
        elif isinstance(node, ast.FunctionDef):
            yield from (one for call in node.decorator_list for one in without_names(call))
        elif called(node.func) in COMPARING:
            yield from without_names(node)


def without_names(node):
    """Yield each literal below a node but those that name something."""
    if isinstance(node, ast.JoinedStr):
        yield node.lineno, "".join(written(part) or "\0" for part in node.values)
    elif written(node):
        yield node.lineno, node.value
    elif not (isinstance(node, ast.keyword) and node.arg in NAMING):
        for part in syntax.parts(node):
            yield from without_names(part)


def pinned(source, sentences):
    """Return what a source pins: the line of each literal that has four words of a sentence, and these.

    Three are enough in one that is compared, if it says little besides.
    """
    of_three = [(line, row) for line, text in compared(source) if " " in text for row in telling_rows(text, sentences)]
    of_four = [(line, row) for line, text in literals(source) if " " in text for row in rows_in(text, sentences, 4)]
    first = dict(reversed([*of_four, *of_three]))
    return [f"{line}: {' '.join(row)}" for line, row in sorted(first.items())]


def rows_in(text, sentences, length):
    """Yield the rows of so many words that a text shares with sentences alone."""
    known = rows_of_sentences(sentences, length)
    for words in rows_of_words(text):
        yield from (row for row in each(words, length) if row in known and " ".join(row) not in COMMON)


def telling_rows(text, sentences):
    """Yield those of three words of which two say something, and which are half of what stands there or more."""
    for words in rows_of_words(text):
        if sum(map(is_word, words)) <= 6:
            rows = rows_in(" ".join(words), sentences, 3)
            yield from (row for row in rows if sum(word.lower() not in IN_ANY_SENTENCE for word in row) > 1)


OWN_TESTS = {"test_messages.py", "test_findings_catalogue.py", "test_rename.py", "test_facts.py"}
"""Of the catalogues and of the words for a kernel's other name, and of what is asked here."""


def test_a_sentence_of_the_catalogues_is_pinned_in_their_own_tests_alone():
    sentences = "\n".join((TESTS / name).read_text() for name in PINNED)
    files = {path.relative_to(TESTS).as_posix(): path for path in TESTS.rglob("*.py") if path.name not in OWN_TESTS}
    found = {name: pinned(path.read_text(), sentences) for name, path in files.items() if not allowed(name)}
    assert {name: lines for name, lines in found.items() if lines} == {}, (
        "ask for the kind of reason and its facts (facts.py), or for the code"
    )


def allowed(name):
    return any(name == one or name.startswith(f"{one}/") for one in ALLOWED)


@pytest.mark.parametrize(
    "source",
    [
        'assert "has lost its last step" in text',
        'lines.fnmatch_lines(["*rank 1 has lost its last step*[[]lost-steps]*"])',
        'with raises(NotMeasured, match=f"{name} has lost its last step"): pass',
        'text = re.search(r"has lost its last step: \\d+", told)',
        'told = {"a": "has lost its last step"}',
    ],
)
def test_a_sentence_that_a_test_pins_is_found(source):
    assert pinned(source, "  rank 1 has lost its last step [lost-steps]\n") == ["1: has lost its last"]


@pytest.mark.parametrize(
    "source",
    [
        'assert "its last step" in text',
        'lines.fnmatch_lines(["*rank 1 *its last step*"])',
        'with raises(NotMeasured, match=f"{name} .* its last step"): pass',
        'assert text == "of two its last step"',
        '@pytest.mark.parametrize("said", ["its last step"])\ndef test_it(said): pass',
        '@case(says="its last step")\ndef code(): pass',
        'assert told(1).startswith(f"{name}: its last step (")',
    ],
)
def test_a_few_words_of_a_sentence_with_which_a_test_compares_are_found(source):
    assert pinned(source, "  rank 1 has lost its last step [lost-steps]\n") == ["1: its last step"]


@pytest.mark.parametrize(
    "source",
    [
        '"""A rank has lost its last step."""',
        'assert "rank 1 has lost" in text',
        'assert "[lost-steps]" in text',
        'lines.fnmatch_lines(["*has lost*its last*"])',
        "assert says(reason, LostSteps, rank=1)",
        'told = "its last step"',
        'assert "has lost its" in text',
        'assert "when it comes to its last step nobody knows more" in text',
        '@pytest.mark.parametrize("steps", [1], ids=["its last step"])\ndef test_it(steps): pass',
        '@pytest.mark.skipif(not steps, reason="needs its last step")\ndef test_it(): pass',
    ],
)
def test_facts_pin_no_sentence(source):
    assert pinned(source, "  rank 1 has lost its last step [lost-steps]\n") == []
