"""Questions to git, and the export of a commit's files into a folder of ours.

Nothing of the user's repository is written: no reference, no index, no list of worktrees, not even by a run that is
killed. So this is no ``git worktree``, which registers itself there, but a small repository of its own that borrows
the other one's objects: tools that read a version from tags, and tests that look for a ``.git``, find theirs.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from pytest_torchprof.against.own_files import free_path, is_behind_link
from pytest_torchprof.reasons.commits_asked import (
    BranchAndTag,
    CommitOfRemote,
    NoCommitNamed,
    NoCommitWithText,
    NoSuchCommit,
    NotInShallowClone,
)
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.reasons.git_refusals import ChangesUntold, NoGit, NoWorkingTree, words_of_git
from pytest_torchprof.reasons.starting import FilesRefused, LfsObjectMissing, SubmoduleLacksCommit, SubmoduleNotHere
from pytest_torchprof.system.processes import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_torchprof.reasons.reason import Reason

# They are set if git calls a hook that calls pytest, and would lead every call below to the user's index.
# GIT_CONFIG_COUNT stays: it is how CI says which folders are safe.
HOOKS_VARIABLES: Final = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
    *("GIT_COMMON_DIR", "GIT_PREFIX", "GIT_NAMESPACE", "GIT_CONFIG", "GIT_CONFIG_PARAMETERS"),
)
# No hook runs, no daemon starts, no file beside our index is written, and we look for LFS objects ourselves: its filter
# would ask a server.
_QUIET: Final = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false", "core.splitIndex=false"),
    *(
        "index.sparse=false",
        "gc.auto=0",
        "maintenance.auto=false",
        "submodule.recurse=false",
        "advice.detachedHead=false",
    ),
    *("filter.lfs.smudge=", "filter.lfs.process=", "filter.lfs.required=false"),
)
_LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/v1\n"
_SUBMODULE: Final = "160000"


class GitRefused(Exception):
    """A command of git failed."""

    def __init__(self, error: str, status: int | None) -> None:
        """Make the error of what git wrote, and of its status; None where another process ended it."""
        super().__init__(words_of_git(error, status))
        self.error, self.status = error, status


def git_command(folder: Path, *arguments: str) -> list[str]:
    """Return a command of git in a folder that calls no hook and starts no daemon."""
    settings = [argument for setting in _QUIET for argument in ("-c", setting)]
    return ["git", *settings, "-C", str(folder), *arguments]


def git_environment(**more: str) -> dict[str, str]:
    """Return the environment in which git never prompts and sees no repository but that of its folder."""
    inherited = {name: value for name, value in os.environ.items() if name not in HOOKS_VARIABLES}
    return {**inherited, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **more}


def ask_git(folder: Path, *arguments: str, **environment: str) -> str:
    """Return the output of a command of git; GitRefused with its errors if it fails."""
    try:
        done = run(git_command(folder, *arguments), env=git_environment(**environment))
    except (FileNotFoundError, NotADirectoryError):
        raise TorchprofError.because(NoGit()) from None
    if done.status:
        raise GitRefused(done.errors.strip(), done.status)
    return done.output


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCommit:
    """One commit, as a person recognizes it."""

    sha: str
    author: str
    date: str
    subject: str

    @property
    def short(self) -> str:
        """The short hash for texts."""
        return self.sha[:7]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """The repository that the tests belong to."""

    top: Path
    """The root of the working tree."""

    @classmethod
    def around(cls, folder: Path) -> Repository:
        """Return the repository of a folder; TorchprofError if there is none, or no working tree."""
        try:
            top = ask_git(folder, "rev-parse", "--show-toplevel").removesuffix("\n")
        except GitRefused as refused:
            raise TorchprofError.because(NoWorkingTree(str(folder), refused.error, refused.status)) from None
        return cls(top=Path(top))

    def commit(self, reference: str, option: str = "--torchprof-against") -> str:
        """Return the full hash of the commit that an option names; TorchprofError if there is none."""
        if reference.startswith(":/"):  # The youngest commit with a text: the rest of the reference.
            return self._commit_by_text(reference, option)
        self._refuse_two_meanings(reference, option)
        try:
            # A range such as "main...", as git diff takes it: the point where the branches parted.
            if reference.endswith("..."):
                return ask_git(self.top, "merge-base", "--", reference.removesuffix("..."), "HEAD").strip()
            name = f"{reference}^{{commit}}"
            return ask_git(self.top, "rev-parse", "--verify", "--quiet", "--end-of-options", name).strip()
        except GitRefused as refused:
            raise TorchprofError.because(self._why_unknown(reference, option, refused)) from None

    def _commit_by_text(self, reference: str, option: str) -> str:
        try:
            return ask_git(self.top, "rev-parse", "--verify", "--quiet", "--end-of-options", reference).strip()
        except GitRefused:
            raise TorchprofError.because(NoCommitWithText(option, reference, str(self.top))) from None

    def _refuse_two_meanings(self, reference: str, option: str) -> None:
        """Raise TorchprofError if a name is that of a branch and of a tag at another commit: git would take the tag."""
        name = re.split(r"\.\.\.$|[~^@]", reference, maxsplit=1)[0]
        both = (f"refs/heads/{name}", f"refs/tags/{name}")
        listed = ask_git(self.top, "for-each-ref", "--format=%(refname) %(*objectname) %(objectname)", *both)
        # For a tag with a message the first hash is its commit's; all others have a single hash.
        commits = {line.split()[0]: line.split()[1] for line in listed.splitlines() if line.split()[0] in both}
        if len(set(commits.values())) > 1:
            raise TorchprofError.because(BranchAndTag(option, reference, name))

    def _why_unknown(self, reference: str, option: str, refused: GitRefused) -> Reason:
        """Return why there is no such commit here, and how to get it."""
        if not reference.strip():
            return NoCommitNamed(option, reference)
        name = reference.removesuffix("...").partition("~")[0].partition("^")[0]
        branch = name.removeprefix("origin/")
        if self.is_shallow:
            is_head = name in ("HEAD", "@")
            deepen = "--unshallow" if is_head or reference.endswith("...") else "--depth=1"
            wanted = "" if is_head else f" {branch}:refs/remotes/origin/{branch}"
            command = f"git fetch {deepen} origin{wanted}"
            return NotInShallowClone(option, reference, command, None if is_head else f"origin/{branch}")
        remote = f"origin/{branch}"
        if name != remote and self.has_commit(remote):
            return CommitOfRemote(option, reference, remote)
        return NoSuchCommit(option, reference, str(self.top), refused.error, refused.status)

    def has_commit(self, name: str) -> bool:
        """Return whether it holds a commit of this name."""
        try:
            ask_git(self.top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        except GitRefused:
            return False
        return True

    @property
    def is_shallow(self) -> bool:
        """Whether it is a clone that holds the last commits only."""
        return ask_git(self.top, "rev-parse", "--is-shallow-repository").strip() == "true"

    @property
    def is_dirty(self) -> bool:
        """Whether the working tree differs from its commit: changed, staged or new files that are not ignored.

        New files count whatever ``status.showUntrackedFiles`` says, and submodules whatever their ``ignore`` does.
        Raises TorchprofError if git does not know, as with a broken submodule.
        """
        seen = ("--untracked-files=normal", "--ignore-submodules=none", "--no-renames")
        try:
            return bool(ask_git(self.top, "status", "--porcelain", *seen))
        except GitRefused as refused:
            raise TorchprofError.because(ChangesUntold(str(self.top), refused.error, refused.status)) from None

    @property
    def head(self) -> str | None:
        """The commit that is checked out; None before the first commit."""
        try:
            return ask_git(self.top, "rev-parse", "--verify", "--quiet", "HEAD").strip()
        except GitRefused:
            return None

    @property
    def branch(self) -> str | None:
        """The branch that is checked out; None if a commit is."""
        try:
            return ask_git(self.top, "symbolic-ref", "--quiet", "--short", "HEAD").strip()
        except GitRefused:
            return None

    def descends(self, commit: str, ancestor: str) -> bool:
        """Return whether ``commit`` is ``ancestor`` or comes after it."""
        try:
            ask_git(self.top, "merge-base", "--is-ancestor", ancestor, commit)
        except GitRefused:
            return False
        return True

    def first_parents(self, branch: str) -> tuple[str, ...]:
        """Return the first commit of a branch, its child on it, and so on; empty if there is no such branch."""
        try:
            shas = ask_git(self.top, "rev-list", "--first-parent", "--reverse", "--end-of-options", branch, "--")
        except GitRefused:
            return ()
        return tuple(shas.split())

    def distance(self, ancestor: str, commit: str) -> int:
        """Return the number of commits after ``ancestor`` up to ``commit``."""
        return int(ask_git(self.top, "rev-list", "--count", f"{ancestor}..{commit}"))

    def branch_point(self, first: str, second: str) -> str | None:
        """Return the commit where two histories parted; None if they have nothing in common here."""
        try:
            return ask_git(self.top, "merge-base", first, second).strip()
        except GitRefused:
            return None

    def parent(self, commit: str) -> str | None:
        """Return the first parent of a commit; None if it has none here."""
        parents = ask_git(self.top, "rev-list", "--parents", "--max-count=1", commit).split()[1:2]
        return parents[0] if parents else None

    def named(self, commit: str) -> NamedCommit:
        """Return a commit with its author, date and title."""
        shown = ask_git(
            self.top, "log", "--max-count=1", "--no-show-signature", "--format=%H%n%an <%ae>%n%aI%n%s", commit
        )
        sha, author, date, subject = shown.rstrip("\n").split("\n")
        return NamedCommit(sha=sha, author=author, date=date, subject=subject)

    def files(self) -> Iterator[str]:
        """Yield the files of the working tree, tracked or not, that are not ignored, by their path below its root.

        Files of submodules are among them, and links themselves, but nothing that lies behind a link.
        """
        listed = ask_git(self.top, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        is_link = cache(lambda folder: (self.top / folder).is_symlink())
        for name in filter(None, dict.fromkeys(listed.split("\0"))):
            path = self.top / name
            # If a link has replaced a folder, git still names the files that it tracks there.
            if any(map(is_link, PurePosixPath(name).parents[:-1])):
                continue
            if path.is_symlink() or path.is_file():
                yield name
            elif (path / ".git").exists():
                yield from (f"{name}/{below}" for below in Repository(top=path).files())

    def ignored(self) -> tuple[str, ...]:
        """Return the paths that git ignores in the working tree: files, and folders with a slash at their end."""
        listed = ask_git(self.top, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
        return tuple(filter(None, listed.split("\0")))

    def changed(self, sha: str) -> Iterator[str]:
        """Yield the paths of files that differ between the working tree and a commit, new ones too.

        Files of submodules are among them.
        """
        arguments = ("--name-only", "-z", "--no-renames", "--no-ext-diff", "--ignore-submodules=none")
        for name in filter(None, ask_git(self.top, "diff", *arguments, sha, "--").split("\0")):
            if not (self.top / name / ".git").exists():
                yield name
            elif commit := ask_git(self.top, "ls-tree", sha, "--", name).partition("\t")[0].split()[2:]:
                yield from (f"{name}/{below}" for below in Repository(top=self.top / name).changed(commit[0]))
        others = ask_git(self.top, "ls-files", "-z", "--others", "--exclude-standard")
        yield from filter(None, others.split("\0"))

    def content(self, sha: str, name: str) -> bytes | None:
        """Return the content of a file at a commit; None if it has no such file."""
        try:
            return os.fsencode(ask_git(self.top, "cat-file", "blob", f"{sha}:{name}"))
        except GitRefused:
            return None

    def files_of(self, sha: str) -> Iterator[str]:
        """Yield the files of a commit, without those of submodules."""
        yield from filter(None, ask_git(self.top, "ls-tree", "-r", "-z", "--name-only", "--full-tree", sha).split("\0"))

    @property
    def worktrees(self) -> tuple[Path, ...]:
        """The roots of all working trees that the repository has."""
        listed = ask_git(self.top, "worktree", "list", "--porcelain").splitlines()
        return tuple(Path(line.removeprefix("worktree ")) for line in listed if line.startswith("worktree "))


def tracked_files(tree: Path) -> list[str]:
    """Return the files of a folder that ``export`` has made, those of submodules too, by their paths below it."""
    files: list[str] = []
    for name in filter(None, ask_git(tree, "ls-files", "-z").split("\0")):
        if (tree / name / ".git").exists():
            files.extend(f"{name}/{below}" for below in tracked_files(tree / name))
        elif (tree / name).is_symlink() or not (tree / name).is_dir():
            files.append(name)
    return files


def export(repository: Repository, sha: str, tree: Path) -> None:
    """Put the files of a commit, with those of its submodules, into an empty folder, as a repository of its own.

    Raises TorchprofError if an object is missing, such as a submodule's or one of LFS.
    """
    try:
        _check_out(repository.top, sha, tree)
    except GitRefused as refused:
        raise TorchprofError.because(FilesRefused(sha[:7], str(repository.top), str(refused))) from None
    _fill_pointers(repository.top, sha, tree)
    for name, commit in _submodules(tree).items():
        _export_submodule(repository, name, commit, tree)


def _check_out(source: Path, sha: str, tree: Path) -> None:
    tree.mkdir(parents=True, exist_ok=True)
    own = tree / ".git"
    borrow(source, sha, own)
    tags = ask_git(source, "for-each-ref", "--format=%(objectname) %(refname)", "refs/tags")
    (own / "packed-refs").write_bytes(os.fsencode(tags))
    # With the settings of the user's repository: sparse checkouts, line ends, filters, promised objects.
    folder = ask_git(source, "rev-parse", "--absolute-git-dir").removesuffix("\n")
    in_tree = {"GIT_DIR": folder, "GIT_WORK_TREE": str(tree), "GIT_INDEX_FILE": str(own / "index")}
    ask_git(tree, "read-tree", "-m", "-u", sha, **in_tree)


def borrow(source: Path, sha: str, own: Path) -> None:
    """Make a repository in a folder, ``.git`` or one without files, that has another one's objects and a commit.

    ``git clone --shared`` will not do: it copies the objects of a shallow clone that references reach, lacks a commit
    that was fetched by its hash, and names the user's repository as a remote, to which a test could push.
    """

    def path_of(name: str) -> Path:
        return source / ask_git(source, "rev-parse", "--git-path", name).removesuffix("\n")

    form = ask_git(source, "rev-parse", "--show-object-format").strip()
    bare, folder = ([], own.parent) if own.name == ".git" else (["--bare"], own)
    folder.mkdir(parents=True, exist_ok=True)
    ask_git(folder, "init", "--quiet", *bare, "--template=", f"--object-format={form}")
    (own / "objects" / "info").mkdir(exist_ok=True)
    (own / "objects" / "info" / "alternates").write_bytes(os.fsencode(f"{path_of('objects').resolve()}\n"))
    if (shallow := path_of("shallow")).is_file():
        (own / "shallow").write_bytes(shallow.read_bytes())
    (own / "HEAD").write_text(f"{sha}\n", encoding="ascii")


def _submodules(tree: Path) -> Mapping[str, str]:
    """Return the commits of the submodules of an exported folder, by path."""
    entries = (entry.partition("\t") for entry in ask_git(tree, "ls-files", "--stage", "-z").split("\0"))
    return {path: stage.split()[1] for stage, _, path in entries if stage.startswith(_SUBMODULE)}


def _export_submodule(repository: Repository, name: str, commit: str, tree: Path) -> None:
    source = repository.top / name
    if not (source / ".git").exists():
        if source.is_dir() and not any(source.iterdir()):
            return  # It is not checked out here either: both sides do without it.
        raise TorchprofError.because(SubmoduleNotHere(name))
    try:
        ask_git(source, "cat-file", "-e", f"{commit}^{{commit}}")
    except GitRefused:
        raise TorchprofError.because(SubmoduleLacksCommit(name, commit)) from None
    # On a file system that ignores case, a link of the commit may be in the way.
    export(Repository(top=source), commit, free_path(tree, name))


def _fill_pointers(source: Path, sha: str, tree: Path) -> None:
    """Replace pointers to LFS objects by the objects, from the store of the user's repository."""
    try:
        names = ask_git(tree, "ls-files", "-z", "--", ":(attr:filter=lfs)").split("\0")
    except GitRefused:  # If attributes cannot be queried, no file has this one.
        return
    pointers = [name for name in names if name and not is_behind_link(tree, name) and _is_pointer(tree / name)]
    if not pointers:
        return
    store = source / ask_git(source, "rev-parse", "--git-common-dir").removesuffix("\n") / "lfs" / "objects"
    for name in pointers:
        digest = (tree / name).read_text(encoding="ascii").partition("sha256:")[2][:64]
        held = store / digest[:2] / digest[2:4] / digest
        if held.is_file():
            (tree / name).write_bytes(held.read_bytes())
        elif not _is_pointer(source / name):
            raise TorchprofError.because(LfsObjectMissing(name, sha))


def _is_pointer(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_LFS_POINTER)) == _LFS_POINTER
