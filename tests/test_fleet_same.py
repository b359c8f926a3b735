"""The benchmark that judges the same recordings in several ways: the same summary and records, byte for byte."""

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
WAYS = ["kills"]
"""The other ways are compared with the whole by test_fleet and test_fleet_processes, where judges are killed too."""


def test_a_run_whose_driver_is_killed_comes_to_the_same(tmp_path):
    for number in range(5):
        own_recording({"one": number + 1}).write(tmp_path / f"{number}.json.gz")
    recordings = [*map(str, tmp_path.iterdir()), *map(str, sorted((ROOT / "tests/recordings").glob("*.json.gz"))[:3])]
    script = ROOT / "benchmarks" / "fleet_same.py"
    command = [sys.executable, str(script), *recordings, "--files", "50", "--kills", "1", "--ways", *WAYS]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^local .* 50 files listed: 30 judged", done.stdout, re.MULTILINE)
    assert "2 quarantined" in done.stdout
    assert re.findall(r"^(\w+) .*, the same$", done.stdout, re.MULTILINE) == WAYS
