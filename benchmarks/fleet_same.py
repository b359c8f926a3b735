"""The same recordings by every way to run a fleet: the same summary and records, byte for byte.

    python benchmarks/fleet_same.py RECORDING... [--files 2000] [--kills 20] [--ways shards dask futures kills]

The files are copies of the recordings with other names and time stamps; every 25th is damaged. They are judged by
processes of this machine, which is what the others are compared with; by eight shards; by Dask's local cluster with two
workers, of which one is killed on the way; by an executor of concurrent.futures; and by processes of this machine where
the driver or its processes are killed at random moments, each time followed by the same command; a run that came to its
end is compared, and the next one begins anew, until there were so many kills. Prints a line for each way, and ends with
1 if one comes to something else.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OURS = "import sys\nfrom pytest_torchprof.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
FACTORY = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

def processes():
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))
"""
TIME_STAMP = re.compile(rb'("ts": ?)(\d+)')
SHARDS = 8


def written(recordings: list[str], files: int, folder: Path) -> None:
    """Write copies with other names and time stamps; every 25th is cut off, or no recording."""
    packed = [Path(recording).read_bytes() for recording in recordings]
    texts = [gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content for content in packed]
    for number in range(files):

        def later(match: re.Match[bytes], days: int = number) -> bytes:
            return match[1] + str(int(match[2]) + days * 86_400_000_000).encode()

        content = gzip.compress(TIME_STAMP.sub(later, texts[number % len(texts)]), 1)
        if number % 25 == 24:
            content = content[: len(content) // 2] if number % 2 else gzip.compress(b'{"models": []}')
        file = folder / f"model{number % 20}" / f"{number}.json.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


class Runs:
    """Runs of the same command into several folders."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "ours.py").write_text(OURS, encoding="utf-8")
        (folder / "fleet_same_factory.py").write_text(FACTORY, encoding="utf-8")
        paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    def start(self, into: str, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(self._folder / "ours.py"), "fleet", "run", str(self._folder / "files")]
        command += ["--into", str(self._folder / into), "--limit", "max_syncs=5", "--jobs", "2", *words]
        log = (self._folder / f"{into}.log").open("ab")
        return subprocess.Popen(command, stdout=log, stderr=log, env=self._environment)

    def finish(self, into: str, *words: str) -> None:
        self.ended(into, self.start(into, *words))

    def ended(self, into: str, driver: subprocess.Popen[bytes]) -> None:
        """Wait for the end of a command that nobody has killed."""
        if (status := driver.wait()) not in (0, 1, 3):
            raise SystemExit(f"{into}: exit status {status}: {(self._folder / f'{into}.log').read_text()}")

    def content(self, into: str) -> list[bytes]:
        return [(self._folder / into / name).read_bytes() for name in ("summary.json", "records.jsonl")]

    def shards(self) -> None:
        for number in range(1, SHARDS + 1):
            self.finish("shards", "--shard", f"{number}/{SHARDS}")
        self.finish("shards")

    def dask(self) -> None:
        driver = self.start("dask", "--engine", "dask")
        # Once a part is there, the workers are judging.
        while driver.poll() is None and not any((self._folder / "dask" / "parts").glob("*.part.jsonl")):
            time.sleep(0.1)
        workers = [pid for pid in descendants(driver.pid) if "spawn_main" in command_of(pid)]
        killed = workers[-1:]
        kill(killed)
        status = driver.wait()
        print(f"{'':10}one of {len(workers)} processes of the cluster was killed, exit status {status}")

    def futures(self) -> None:
        self.finish("futures", "--engine", "futures:fleet_same_factory:processes")

    def kills(self, count: int, longest_s: float) -> bool:
        """Kill so many times, at any moment of a run, and return whether each run came to the same in the end."""
        chance = random.Random(31)
        hits = runs = same = 0
        while hits < count:
            driver = self.start("kills")
            try:
                # Also what is left at last, or nothing, takes the time of the start.
                driver.wait(chance.uniform(0.1, longest_s))
            except subprocess.TimeoutExpired:
                below = descendants(driver.pid)
                # The driver alone, one of its processes, or all of them.
                whom = [[driver.pid], chance.sample(below, min(1, len(below))), [driver.pid, *below]][hits % 3]
                kill(whom)
                hits += bool(whom)
                if driver.pid in whom:
                    driver.wait()
                    continue
            self.ended("kills", driver)
            runs, same = runs + 1, same + self.ends_well()
        self.finish("kills")
        runs, same = runs + 1, same + self.ends_well()
        print(f"{'':10}{hits} kills in {runs} runs, of which {same} came to the same")
        return same == runs

    def ends_well(self) -> bool:
        """Whether a run that was disturbed has come to the same; the next one begins anew."""
        same = self.content("kills") == self.content("local")
        shutil.rmtree(self._folder / "kills")
        return same


def descendants(pid: int) -> list[int]:
    pids = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            own = list(map(int, thread.read_text().split()))
            pids += [*own, *(below for child in own for below in descendants(child))]
    return pids


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", nargs="+")
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--ways", nargs="*", default=["shards", "dask", "futures", "kills"])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written(asked.recordings, asked.files, folder / "files")
        runs = Runs(folder)
        began = time.monotonic()
        runs.finish("local")
        took_s = time.monotonic() - began
        whole = runs.content("local")
        census = next(line for line in (folder / "local.log").read_text().splitlines() if " listed: " in line)
        print(f"{'local':10}{took_s:7.1f} s, {census}", flush=True)
        wrong = 0
        for way in asked.ways:
            began = time.monotonic()
            if way == "kills":
                same = runs.kills(asked.kills, took_s)
            else:
                {"shards": runs.shards, "dask": runs.dask, "futures": runs.futures}[way]()
                same = runs.content(way) == whole
            wrong += not same
            print(f"{way:10}{time.monotonic() - began:7.1f} s, {'the same' if same else 'SOMETHING ELSE'}", flush=True)
    raise SystemExit(int(wrong > 0))


if __name__ == "__main__":
    main()
