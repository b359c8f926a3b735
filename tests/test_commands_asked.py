"""What a command is asked wrongly arrives as data: which argument it is, which value it has, what was expected."""

from __future__ import annotations

import json

import pytest
from builder import own_recording
from facts import says, why_command_refused
from histories import launched, run_of

from pytest_torchprof.history.stores import store_at
from pytest_torchprof.history.where import where_of
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.command_line import (
    AllowedForNoReason,
    ArgumentTooMany,
    DeviceNotAsked,
    NameTooLong,
    Needed,
    NoSuchScript,
    NotGiven,
    OptionsExclude,
    OptionTakes,
    OwnKernelsAlone,
    SaysDevice,
    UnknownWord,
    VerdictsOfNothing,
    WordOf,
    WrongOption,
    WrongUsage,
)
from pytest_torchprof.reasons.command_line_fleet import NoQuantity, Quantity, TooLittleMemory
from pytest_torchprof.reasons.composed import OfKeyword
from pytest_torchprof.reasons.files_asked import (
    FileNotRead,
    FolderAndFile,
    NeitherTestNorFile,
    NoBaselineBelow,
    NoGpuWorkToDraw,
    NoTestFileYet,
    RanksOfNoFolder,
    RenamedToItself,
    RenamedUnlike,
    SeveralRecordings,
    StacksNotRecorded,
)
from pytest_torchprof.reasons.history_asked import (
    NoDate,
    NoHistory,
    NoSuchForm,
    NoSuchRun,
    NoSuchTest,
    NotMeasuredThere,
    TooFewDigits,
)
from pytest_torchprof.reasons.history_asked_notes import (
    NameOfNoTest,
    NoRecordOfProject,
    NoRemote,
    NothingOfId,
    OneForMany,
    TextLength,
)
from pytest_torchprof.reasons.reports import EarlierReport, FileNotWritten, NewerReport, NoReport, OtherReportForm

pytestmark = pytest.mark.any_torch

LONG = "x" * 5000
TEST = "test_a.py::test_a"
REPORT = {"schema": 1, "results": []}
VERDICT = {"limit": "", "expected": "1", "status": "holds"}
REPORTS = {
    "report.json": REPORT,
    "newer.json": {**REPORT, "schema": 99},
    "other.json": {**REPORT, "results": [7]},
    "broken.json": None,
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return a folder with a recording, another one in a folder, reports, and a history of one run."""
    monkeypatch.chdir(tmp_path)
    own_recording({"one": 3}, steps=1).write(tmp_path / "a.json")
    (tmp_path / "both").mkdir()
    own_recording({"one": 3}, steps=1).write(tmp_path / "both" / "a.json")
    for name, content in REPORTS.items():
        (tmp_path / name).write_text('{"results"' if content is None else json.dumps(content))
    store_at(where_of("kept", tmp_path)).add(run_of(0, launched(TEST, {"one": 1})))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "kind", "facts"),
    [
        ("frob", UnknownWord, {"what": WordOf.COMMAND, "name": "frob"}),
        ("check a.json --limt 1", UnknownWord, {"what": WordOf.OPTION, "name": "--limt", "near": "--limit"}),
        ("explain max_kernel", UnknownWord, {"what": WordOf.EXPLANATION, "near": "max_kernels"}),
        ("check a.json b.json", ArgumentTooMany, {"argument": "b.json"}),
        ("check a.json", NotGiven, {"needed": Needed.LIMIT}),
        ("check a.json --limit own_kernels={'one':'pointwise'}", OwnKernelsAlone, {}),
        ("check both --limit max_kernels=1", SeveralRecordings, {"path": "both", "recordings": 1}),
        ("run", NotGiven, {"needed": Needed.PROGRAM}),
        ("run --json a.py", VerdictsOfNothing, {}),
        ("run none.py", NoSuchScript, {"path": "none.py"}),
        ("bisect test_a.py", NotGiven, {"needed": Needed.LIMIT_OR_CHANGED}),
        ("bisect --changed test_a.py", NotGiven, {"needed": Needed.GOOD_COMMIT}),
        ("analyze both --ranks --step 1", OptionsExclude, {"option": "--ranks", "other": "--step"}),
        ("analyze a.json --ranks", RanksOfNoFolder, {"path": "a.json"}),
        ("analyze a.json --threshold frob=1", OfKeyword, {"keyword": "--threshold"}),
        ("export a.json --lanes --by module", OptionsExclude, {"option": "--lanes", "other": "--by", "fitting": ()}),
        ("export a.json --collapsed --by stack", StacksNotRecorded, {"asked": "stack"}),
        ("export a.json --lanes -o none/a.json", FileNotWritten, {"path": "none/a.json"}),
        ("diff both a.json", FolderAndFile, {"folder": "both"}),
        ("diff a.json none.json", FileNotRead, {"path": "none.json", "is_missing": True}),
        ("report report.json -o a.html --device cpu", DeviceNotAsked, {"source": SaysDevice.REPORT}),
        ("report newer.json -o a.html", NewerReport, {"path": "newer.json", "schema": 99}),
        ("report a.json -o a.json/a.html", FileNotWritten, {"path": "a.json/a.html"}),
        ("allow --from none.json --reason known", FileNotRead, {"path": "none.json", "is_missing": True}),
        ("allow --from broken.json --reason known", NoReport, {"path": "broken.json"}),
        ("allow --from other.json --reason known", OtherReportForm, {"path": "other.json"}),
        ("allow --from report.json --reason=", AllowedForNoReason, {}),
        ("baseline list both", NoBaselineBelow, {"path": "both"}),
        ("baseline rename test_a.py test_b.py::test_b", RenamedUnlike, {}),
        ("baseline rename test_a.py test_a.py", RenamedToItself, {}),
        ("baseline rename test_a.py:: test_b.py", NeitherTestNorFile, {"written": "test_a.py::"}),
        ("baseline rename test_a.py test_b.py", NoTestFileYet, {}),
        ("fleet run a.json --into out --memory few", NoQuantity, {"quantity": Quantity.SIZE, "got": "few"}),
        ("fleet run a.json --into out --timeout x", NoQuantity, {"quantity": Quantity.DURATION, "got": "x"}),
        ("fleet run a.json --into out --memory 1MiB", TooLittleMemory, {"value": "1MiB"}),
        ("fleet run a.json --into out --timeout 0", WrongOption, {"expected": OptionTakes.SOME_TIME}),
        ("fleet report out -o a.txt", WrongOption, {"value": "a.txt", "expected": OptionTakes.PAGE_OR_ROWS}),
        ("history changes none", NoHistory, {}),
        ("history changes kept --since May", NoDate, {"written": "May"}),
        ("history changes kept --fail-on time", WrongOption, {"expected": OptionTakes.JUDGED}),
        ("history log kept test_a.py::test_b", NoSuchTest, {"near": TEST}),
        (f"history log kept {TEST} --machine abacus", NotMeasuredThere, {"machine": "abacus"}),
        ("history export kept --as .xml", NoSuchForm, {"name": ".xml"}),
        ("history prune kept", NotGiven, {"needed": Needed.RUNS_TO_PRUNE}),
        ("history prune kept --keep 0", WrongOption, {"expected": OptionTakes.RUNS_KEPT}),
        ("history prune kept --run abc", TooFewDigits, {"beginning": "abc", "least": 4, "of_run": True}),
        ("history prune kept --run zzzz", NoSuchRun, {"beginning": "zzzz"}),
        ("history note kept abc known", TooFewDigits, {"of_run": False}),
        ("history note kept zzzz known", NothingOfId, {"or_commit": True}),
        ("history accept kept zzzz known", NothingOfId, {"or_commit": False}),
        ("history alias kept test_a.py test_b.py", NameOfNoTest, {"name": "test_a.py", "is_file": True}),
        ("history alias kept tests other", NameOfNoTest, {"name": "tests", "is_file": False}),
        ("history alias kept test_a.py::* test_b.py::test_b", OneForMany, {}),
        ("history alias kept --project here there", NoRemote, {"argument": "OLD", "address": "here"}),
        (
            "history alias kept --project github.com/a/b github.com/a/c",
            NoRecordOfProject,
            {"project": "github.com/a/b"},
        ),
    ],
)
def test_what_a_command_is_asked_wrongly_is_in_its_error(here, words, kind, facts):
    assert says(why_command_refused(*words.split(" ")), kind, **facts)


def test_a_remark_of_blanks_alone_has_no_character(here):
    assert says(why_command_refused("history", "note", "kept", "zzzz", "  "), TextLength, argument="TEXT", characters=0)


def test_a_report_whose_verdicts_have_no_limit_is_of_an_earlier_version(here):
    result = {"nodeid": TEST, "outcome": "passed", "limits": [VERDICT]}
    (here / "earlier.json").write_text(json.dumps({**REPORT, "results": [result]}))
    refused = why_command_refused("report", "earlier.json", "-o", "a.html")
    assert says(refused, EarlierReport, path="earlier.json"), refused


def test_nothing_of_a_gpu_is_to_be_drawn(here):
    own_recording({"one": 3}, steps=1, device="cpu").write(here / "cpu.json")
    assert says(why_command_refused("export", "cpu.json", "--collapsed", "--weight", "gpu"), NoGpuWorkToDraw)


def test_a_path_that_no_file_can_have_is_named():
    assert says(why_command_refused("baseline", "diff", LONG, LONG), NameTooLong, path=LONG)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("check a.json postgresql://me:secret@host/db", ArgumentTooMany),
        ("check a.json --postgresql://me:secret@host/db", UnknownWord),
    ],
)
def test_a_password_is_in_no_reason(words, kind):
    refused = why_command_refused(*words.split(" "))
    assert says(refused, kind)
    assert "secret" not in json.dumps(refused.to_plain())


def test_the_help_is_named_behind_what_is_wrong_with_the_usage():
    refused = why_command_refused("check", "a.json")
    assert isinstance(refused, WrongUsage)
    assert (refused.command, refused.code) == ("torchprof check", Code.BAD_USAGE)
    words_of_argparse = why_command_refused("check")
    assert isinstance(words_of_argparse, WrongUsage)
    assert words_of_argparse.why.code == Code.BAD_USAGE
