"""The explanations of errors: of what users write, of files, of other commits, and of stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.explained import Explained

if TYPE_CHECKING:
    from collections.abc import Mapping

ERRORS: Final[Mapping[str, Explained]] = {
    "usage-errors": Explained(
        """
        The marker, the fixture, an option or the command line says something that it cannot mean. A marker or an
        option that cannot be read stops the run before the first test, with exit code 4 and the nearest valid name;
        the command ends with exit status 2.
        """,
    ),
    Code.UNKNOWN_KEYWORD: Explained(
        """
        The marker, a selector's threshold or a measured block was given a keyword that does not exist. The text
        names the nearest one; all of them are in [limits](limits.md). Keywords that say how to measure (`warmup`,
        `steps`, `device`, ...) belong in the marker, not in a single `torchprof.measure(...)`.
        """,
    ),
    Code.BAD_VALUE: Explained(
        """
        A keyword has a value of the wrong type, or outside its range. The text says what is expected;
        [limits](limits.md) has an example of each.
        """,
        remedy="write what the text says is expected",
    ),
    Code.BAD_PATTERN: Explained(
        """
        A pattern could match no kernel or operator: an empty text, an invalid regular expression, a selector
        written as a text or not called (`kernels=gemm` instead of `kernels=gemm()`), a keyword or value that a
        selector does not know, the name of a copy or of a runtime call. As it stands it would never match, and a
        limit that forbids it would always hold. So are spellings that no recording has: several names in one text
        (`"gemm, conv"`), blanks around a name, quotes in it, a number that only a table gives (`pointwise fill
        [2]`), `torch.clamp_min`, `aten.clamp_min`, `aten::mm.default`, `nn.Linear`, a namespace alone (`aten::`).
        In a live test, so is an operator that torch does not have in a namespace that it has. The text names the
        spelling that is meant, or the nearest operator; a library's own operators are known once it is imported.
        """,
        remedy="write what the text says is expected",
    ),
    Code.POSITIONAL_ARGUMENT: Explained(
        """
        `@pytest.mark.torchprof(5)`: the marker takes keywords only. Write `max_kernels=5`.
        """,
    ),
    Code.CONTRADICTION: Explained(
        """
        Two limits of one test cannot both hold, whatever runs: `min_kernels=3, max_kernels=2`, or a pattern that is
        both required and forbidden.
        """,
    ),
    Code.LONE_SETTING: Explained(
        """
        A keyword that changes what a limit counts was given without that limit: `allow_syncs` without `max_syncs`.
        A keyword in the marker may have its limit in `torchprof.measure(...)`, and the other way round;
        `profile.expect(...)` takes none from the marker, so write both there.
        """,
    ),
    Code.FIXTURE_MISUSE: Explained(
        """
        The `torchprof` fixture was used in a way in which nothing could be measured correctly: one measurement
        inside another, no function to call, a label twice, no label, arguments that a call does not take,
        `m.steps()` outside its block or twice, `m.profile` before the block's end, the fixture requested with
        `getfixturevalue()` while the test runs. The text says which, and what to write.
        """,
    ),
    Code.NO_JOB: Explained(
        """
        `torchprof.ranks` was used in a test that runs in no job of several ranks, in a job whose launcher does not
        say where ranks meet, or where torch.distributed cannot start the process group. `ranks=2` in the marker
        [starts a job](ranks.md#tests-of-several-ranks) for the test; `torchrun --nproc-per-node 2 -m pytest` runs
        all tests in one.
        """,
    ),
    Code.BAD_OPTION: Explained(
        """
        An option on pytest's command line or in the ini file has a value that it does not take, names a file where
        a folder belongs, or excludes another option. The format of a report follows from its suffix.
        """,
    ),
    Code.BAD_USAGE: Explained(
        """
        There are arguments on `torchprof`'s command line that do not belong there. `torchprof COMMAND --help` lists
        those that do.
        """,
        remedy="write what the text says is expected",
    ),
    Code.NO_SUCH_DEVICE: Explained(
        """
        `device="cuda:7"` where torch sees fewer GPUs, or a device of a kind that cannot be measured.
        """,
    ),
    Code.NOT_IN_RECORDING: Explained(
        """
        The recording has no step or range of that name, or one of its steps does not have it. torch.compile drops
        ranges inside the code that it compiles ([ranges](limits.md#ranges)).
        """,
    ),
    "unreadable-recording": Explained(
        """
        A recording that cannot be read is refused with its path and the reason; `torchprof` exits with 2. In a
        folder of recordings, valid JSON files without `traceEvents` (what other tools leave beside traces) are
        passed over. Everything else there counts: a trace that is cut off, damaged or newer is an error, since
        passing over it would judge fewer recordings than there are.
        """,
    ),
    Code.RECORDING_MISSING: Explained(
        """
        There is no such file, or no trace in the folder; or the recording of a measurement is gone because its test
        has ended. Keep recordings with `--torchprof-save=DIR`, or with `profile.save()` in the test itself.
        """,
    ),
    Code.RECORDING_UNREADABLE: Explained(
        """
        The system does not allow the file to be read: permissions, a broken disk, a network folder that is gone.
        The text ends with the system's reason.
        """,
    ),
    Code.RECORDING_CUT_OFF: Explained(
        """
        The file ends in the middle: the program that wrote it was killed, the disk was full, or a copy was
        interrupted. Record or copy it again.
        """,
    ),
    Code.RECORDING_DAMAGED: Explained(
        """
        The file is not valid JSON, its gzip data cannot be unpacked, or an event has a name or a time that no
        profiler writes. If its `torchprof` key holds values of a wrong type, it was changed. Record or copy it
        again.
        """,
    ),
    Code.RECORDING_TOO_LARGE: Explained(
        """
        The file is larger than [any recording](how-it-works.md#what-is-refused), and the text says what it has too
        much of. Record fewer steps, or without stacks.
        """,
    ),
    Code.RECORDING_NEWER: Explained(
        """
        It was recorded by a newer version of this plugin, with a schema that this version does not know. Upgrade
        pytest-torchprof.
        """,
    ),
    Code.NO_RECORDING: Explained(
        """
        It is a folder, is empty, or is something other than a trace of torch.profiler. That includes a file in
        Perfetto's own format, which torch can write since 2.14 if the name contains `.pftrace`: write it again with
        `profiler.export_chrome_trace("trace.json.gz")`.
        """,
    ),
    Code.RECORDING_NOT_WRITTEN: Explained(
        """
        A recording cannot be kept where it should be: the folder cannot be written, the disk is full, or a label
        contains half of a character.
        """,
    ),
    Code.RECORDING_NOT_FETCHED: Explained(
        """
        `torchprof open` hands a recording out once, and Perfetto's page did not ask for it in time. Open the link
        that the command prints in a browser on the same machine. From another machine, forward the port: `ssh -L
        9001:127.0.0.1:9001 HOST`.
        """,
    ),
    Code.PORT_IN_USE: Explained(
        """
        `torchprof open` needs port 9001, the only one from which Perfetto's page may read. Something else is using
        it: `trace_processor --httpd`, or another `torchprof open`. End that, or write the trace with `torchprof
        export --lanes` and drag it into the page.
        """,
    ),
    Code.REPLAY_MISSING: Explained(
        """
        `--torchprof-replay=DIR` judges kept recordings, and the folder has none for this test, label and rank. The
        text has the command that records it.
        """,
    ),
    Code.REPLAY_MISMATCH: Explained(
        """
        The recording in the replay's folder belongs to another test or label, or to the CPU although the test asks
        for a GPU. Record it again.
        """,
    ),
    Code.REPLAY_UNUSED: Explained(
        """
        No test has judged any recording in the replay's folder: a green run would mean nothing, so the run fails.
        Check which tests were selected, and the folder.
        """,
    ),
    "unreadable-baseline": Explained(
        """
        A baseline that cannot be read fails the tests that are compared with it, and is left as it is.
        """,
    ),
    Code.BASELINE_UNREADABLE: Explained(
        """
        There is no such file, or the system does not allow it to be read. The text ends with the system's reason.
        """,
    ),
    Code.BASELINE_DAMAGED: Explained(
        """
        The file is cut off, is not JSON, or does not have the form of a baseline, for example after an edit by
        hand. Restore it from version control, or delete it and write it anew with `--torchprof-baseline=update`.
        """,
    ),
    Code.BASELINE_MERGED: Explained(
        """
        A merge left its markers in the file. `torchprof baseline resolve` takes each entry from the side that
        changed it, and [lists what both changed](baselines.md#two-branches). If one side was written by an older
        version, take one side as a whole (`git checkout --theirs FILE`), or write the file anew.
        """,
    ),
    Code.BASELINE_NEWER: Explained(
        """
        It was written by a newer version of this plugin. Upgrade pytest-torchprof.
        """,
    ),
    Code.BASELINE_NOT_WRITTEN: Explained(
        """
        The folder cannot be written, or another process has held its lock for two minutes. The old contents are
        unchanged.
        """,
    ),
    "another-commit": Explained(
        """
        `--torchprof-against` compares with another commit ([against.md](against.md)). If that cannot begin, pytest
        ends with exit code 4.
        """,
    ),
    Code.NO_REPOSITORY: Explained(
        """
        There is no git on the PATH, the folder is not in a working tree of git, or the tests lie outside the
        repository. Start pytest in the repository that contains the tests.
        """,
    ),
    Code.UNKNOWN_REF: Explained(
        """
        Git knows no commit of this name. In a shallow clone, such as CI makes, the text has the `git fetch` that
        brings it; on GitHub Actions `fetch-depth: 2` of `actions/checkout` brings the base of a pull request,
        `HEAD^`.
        """,
    ),
    Code.OBJECT_MISSING: Explained(
        """
        Files of the commit are not available: its submodule's commit or its git-lfs object is not in this clone,
        and the plugin asks no server. The text has the command that brings it.
        """,
    ),
    Code.INSTALL_FAILED: Explained(
        """
        The command of `--torchprof-against-install` failed, and the text ends with what it said. If it failed at
        the other commit, nothing is measured there.
        """,
    ),
    Code.OTHER_CODE: Explained(
        """
        What was measured is not the side's own code. `--torchprof-against-install="pip install -e ."` installs each
        side in an environment of its own; where the package lies in a folder that nothing puts on the path, such as
        `packages/a/src`, pytest's setting `pythonpath` names it. If a folder of `testpaths` holds code too, call the
        one with tests `tests`.
        """,
    ),
    Code.IGNORED_FILE: Explained(
        """
        It is a compiled part that is built in place, for example, or local settings.
        """,
    ),
    Code.NOTHING_COMPARED: Explained(
        """
        No test was measured on both sides, so a green run would mean nothing. Check which tests were selected, and
        what the run says about the base: the first tests of a project have nothing to be compared with.
        """,
    ),
    Code.NO_ANCESTOR: Explained(
        """
        `torchprof bisect` searches between a good commit and a bad one that comes after it. The text says how the
        two are related instead: exchanged, on branches that parted, or cut off in a shallow clone.
        """,
    ),
    Code.NO_TEST: Explained(
        """
        Pytest finds no test of this name, and the text ends with what pytest said. Name the test as you would for
        `pytest`, from the folder you are in: `tests/test_mlp.py::test_block`.
        """,
    ),
    Code.REPORT_NOT_WRITTEN: Explained(
        """
        A report, the step summary of GitHub Actions or the output of `torchprof` cannot be written. The run fails,
        since whoever reads the report would miss it; all verdicts stand.
        """,
    ),
    "fleet": Explained(
        """
        `torchprof fleet run` quarantines a file that it cannot judge, and goes on with the others: see
        [Judge many recordings](fleet.md). A quarantined file never counts as a pass. Files that cannot be read have
        the codes of [unreadable recordings](#unreadable-recording).
        """,
    ),
    "history": Explained(
        """
        `torchprof history` could not read what it was asked for; [History](history.md) says what it needs. No verdict
        of a test depends on a history, unless a branch in it [is the baseline](history.md#a-branch-as-the-baseline).
        """,
    ),
    Code.BAD_RECORD: Explained(
        """
        A file is no record of a run, is cut off, is larger than any record, was written by a newer version, belongs to
        [another project](history.md#one-history-one-project) or to one that is not known, or has the id of another
        record that is there. It is refused and named, and all others count.
        """,
        remedy="copy or import the record again, or remove the file",
    ),
    Code.NO_HISTORY: Explained(
        """
        The store is not there, or it has no run of the branch or no test of the name that was asked for.
        `torchprof history log STORE TEST --branch NAME` takes both as the runs have recorded them. Of tests that are
        [judged by a branch](history.md#a-branch-as-the-baseline) it says which run of it there is not.
        """,
    ),
    Code.UNUSABLE_STORE: Explained(
        """
        The store of a history cannot be reached, read or written, and the text says why: a server that does not
        answer, a folder without permission, an SQLite file on a network file system, a library that is not installed,
        or a schema of another version, with the line that upgrades it. A run's record then waits in
        `.torchprof/outbox`, and `torchprof history push STORE` sends it. The text never has a password.
        """,
    ),
}
