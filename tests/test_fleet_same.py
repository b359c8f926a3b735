"""The same recordings by every way to run a fleet, whatever is killed: the same summary and records, byte for byte."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from builder import own_recording

pytestmark = [
    pytest.mark.any_torch,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes as Linux shows them"),
]
ROOT = Path(__file__).parents[1]
WAYS = ["futures", "kills"]
"""All but shards and Dask, which test_fleet and test_fleet_processes compare with the whole: they would be most of the processes."""


def test_every_way_comes_to_the_same_whatever_is_killed(tmp_path):
    for number in range(5):
        own_recording({"one": number + 1}).write(tmp_path / f"{number}.json.gz")
    recordings = [*map(str, tmp_path.iterdir()), *map(str, sorted((ROOT / "tests/recordings").glob("*.json.gz"))[:3])]
    script = ROOT / "benchmarks" / "fleet_same.py"
    command = [sys.executable, str(script), *recordings, "--files", "60", "--kills", "3", "--ways", *WAYS]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^local .* 60 files listed: 37 judged", done.stdout, re.MULTILINE)
    assert "2 quarantined" in done.stdout
    assert re.findall(r"^(\w+) .*, the same$", done.stdout, re.MULTILINE) == WAYS
