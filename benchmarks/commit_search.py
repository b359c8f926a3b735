"""What `torchprof bisect` takes beside a `git bisect run` written by hand, with the same test: CPU time, and Pythons.

Both search 32 commits for the one that added a kernel. By hand a script runs pytest at each commit that git chooses.
The command measures both ends too, the commit that it finds and its parent once more, and exports each one's files.

    python benchmarks/commit_search.py

What it found is in docs/how-it-works.md.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

COMMITS = 32
FIRST_BAD = 21
CODE = "import torch\n\n# {number}\n\ndef wave(x):\n    return torch.sin(x){more}\n"
TEST = """
import pytest, torch
import waves

x = torch.ones(8, 8)

@pytest.mark.torchprof(device="cpu", max_kernels=1)
def test_wave():
    waves.wave(x)
"""
# Beside the path of every Python that is started: it leaves a file for each of them.
COUNTER = "import os\nopen(os.path.join(os.environ['STARTED'], str(os.getpid())), 'w').close()\n"
SOMEONE = ("-c", "user.name=someone", "-c", "user.email=someone@example.com")
COMMAND = "import sys; from pytest_torchprof.cli import main; sys.exit(main())"


def main() -> None:
    """Search both ways, and print what each took."""
    import torch  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as name:
        repository = Path(name, "repository")
        make(repository)
        (counter := Path(name, "counter")).mkdir()
        (counter / "sitecustomize.py").write_text(COUNTER, encoding="utf-8")
        pytest = [sys.executable, "-m", "pytest", "-q", "test_waves.py"]
        command = [sys.executable, "-c", COMMAND, "bisect", "--limit", "max_kernels=1", "test_waves.py"]
        # What compiles Python's files, and pytest's asserts, is not to be counted.
        subprocess.run(pytest, cwd=repository, check=False, capture_output=True, env=environment())
        subprocess.run(["git", "bisect", "start", "main", "first"], cwd=repository, check=True, capture_output=True)
        by_hand = measured(["git", "bisect", "run", *pytest], repository, counter)
        subprocess.run(["git", "bisect", "reset"], cwd=repository, check=True, capture_output=True)
        ours = measured([*command, "--good", "first"], repository, counter)
    sys.stdout.write(
        f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, torch {torch.__version__}\n"
        f"{COMMITS} commits{'':<15}   user CPU  Pythons\n"
        f"git bisect run by hand   {by_hand[0]:7.1f} s  {by_hand[1]:7}\n"
        f"torchprof bisect         {ours[0]:7.1f} s  {ours[1]:7}\n"
        f"ratio                    {ours[0] / by_hand[0]:9.2f}\n"
    )


def make(repository: Path) -> None:
    """Make the commits, and the test beside them."""
    repository.mkdir()
    git = ["git", *SOMEONE]
    subprocess.run([*git, "init", "--quiet", "--initial-branch=main"], cwd=repository, check=True)
    (repository / ".gitignore").write_text("__pycache__\n.pytest_cache\n.torchprof\n", encoding="utf-8")
    for number in range(COMMITS + 1):
        code = CODE.format(number=number, more=".cos()" if number >= FIRST_BAD else "")
        (repository / "waves.py").write_text(code, encoding="utf-8")
        subprocess.run([*git, "add", "--all"], cwd=repository, check=True)
        subprocess.run([*git, "commit", "--quiet", "--message", str(number)], cwd=repository, check=True)
        if number == 0:
            subprocess.run([*git, "tag", "first"], cwd=repository, check=True)
    (repository / "test_waves.py").write_text(TEST, encoding="utf-8")


def environment(**more: str) -> dict[str, str]:
    """Return a user's: with bytecode kept, and no counter."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | more


def measured(words: list[str], repository: Path, counter: Path) -> tuple[float, int]:
    """Return what a command takes with all that it starts: seconds of user CPU time, and how many Pythons."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with tempfile.TemporaryDirectory() as started:
        path = os.pathsep.join([str(counter), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        told = environment(PYTHONPATH=path, STARTED=started)
        done = subprocess.run(words, cwd=repository, env=told, capture_output=True, text=True, check=False)
        pythons = len([*Path(started).iterdir()])
    if "first bad commit" not in done.stdout:  # Of both, in their own words.
        sys.exit(done.stdout + done.stderr)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, pythons


if __name__ == "__main__":
    main()
