"""The history of this repository's own examples: measured at commits of it, each in a working tree of its own.

    python benchmarks/own_history.py STORE [--commits 20]

Every commit has its examples run by the plugin as it stands here, on the device that this machine has, so that a change
is one of the examples or of what they call, and not one of how the plugin counts. Measured are the commits that
changed a file of examples, and others evenly between them. torchprof history page STORE -o PAGE then draws it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[1]
EXAMPLES = ":(glob)examples/*.py"


def git(*words: str) -> str:
    """Return what git prints of this repository."""
    return subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True, check=True).stdout


def chosen(number: int) -> list[str]:
    """Return so many commits, oldest first: all that changed an example, as far as there is room, and others evenly."""
    changed = git("rev-list", "--first-parent", "--reverse", "HEAD", "--", EXAMPLES).split()
    line = git("rev-list", "--first-parent", "--reverse", f"{changed[0]}..HEAD").split()
    kept = {changed[0], *evenly(changed, number - 2), line[-1]}
    others = [sha for sha in line if sha not in kept]
    return [sha for sha in [changed[0], *line] if sha in {*kept, *evenly(others, number - len(kept))}]


def evenly(commits: list[str], number: int) -> list[str]:
    """Return so many of the commits, at even distances."""
    if len(commits) <= number:
        return commits
    return [commits[(2 * at + 1) * len(commits) // (2 * number)] for at in range(number)]


def measure(sha: str, store: Path, tree: Path) -> None:
    """Add a record of the examples of one commit to the store."""
    git("worktree", "add", "--detach", str(tree), sha)
    try:
        # Nothing but the examples is the commit's: neither its settings of pytest nor its plugin.
        (settings := tree.with_suffix(".ini")).write_text("[pytest]\n")
        words = ("-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(settings), f"--rootdir={tree}")
        files = [str(file) for file in sorted(tree.glob("examples/test_*.py"))]
        variables = {**os.environ, "PYTHONPATH": str(HERE), "CI_COMMIT_REF_NAME": "main"}
        done = subprocess.run(
            [sys.executable, *words, f"--torchprof-history={store}", *files],
            cwd=tree,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        print(f"{sha[:7]}: {done.stdout.strip().splitlines()[-1:]}", flush=True)
    finally:
        git("worktree", "remove", "--force", str(tree))


def main() -> None:
    """Measure the examples at each of the commits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--commits", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for sha in chosen(options.commits):
            measure(sha, options.store.absolute(), Path(folder, sha[:12]))


if __name__ == "__main__":
    main()
