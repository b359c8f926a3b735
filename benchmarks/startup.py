"""What having the plugin installed costs a pytest run without a torchprof test.

Runs pytest over one empty test with the plugin and without it (``-p no:torchprof``), turn by turn, and prints the
medians and their difference in milliseconds. Other plugins are left out of both.

    python benchmarks/startup.py [RUNS]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

DEFAULT_RUNS = 15


def run_ms(folder: str, *options: str) -> float:
    """Return how long one pytest process takes, in milliseconds."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, folder]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1000


def main() -> None:
    """Measure and print."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_RUNS
    times: dict[str, list[float]] = {"without": [], "with": []}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_empty.py").write_text("def test_empty(): pass\n")
        for turn in range(runs + 1):
            for kind, options in (("without", ()), ("with", ("-p", "pytest_torchprof.plugin"))):
                took = run_ms(folder, *options)
                if turn:  # The first round fills the caches of bytecode.
                    times[kind].append(took)
    without, having = median(times["without"]), median(times["with"])
    print(f"without the plugin {without:7.1f} ms")
    print(f"with the plugin    {having:7.1f} ms")
    print(f"difference         {having - without:7.1f} ms   (medians of {runs} runs each, turn by turn)")


if __name__ == "__main__":
    main()
