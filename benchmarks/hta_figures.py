"""What HolisticTraceAnalysis says about recordings, for the tests that agree with it.

    python benchmarks/hta_figures.py ../shared/traces/*.json.gz > tests/hta_figures.json

in an environment with HolisticTraceAnalysis (0.5.0 was used). Recordings that it cannot read are left out.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from math import isnan
from pathlib import Path


def figures(path: str) -> dict[str, object]:
    """Return idle time per stream by category, the temporal breakdown, and the launch statistics, in microseconds.

    ``overlap`` is the share of communication that computing hides, in percent, None without communication.
    """
    from hta.trace_analysis import TraceAnalysis  # noqa: PLC0415 - where it is missing, each file says so

    analysis = TraceAnalysis(trace_files={0: path}, trace_dir="/")
    rows, _ = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
    idle: dict[str, dict[str, float]] = {}
    for row in rows.itertuples():
        idle.setdefault(str(int(row.stream)), {})[row.idle_category] = float(row.idle_time)
    time = analysis.get_temporal_breakdown(visualize=False).iloc[0]
    overlap = float(analysis.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"].iloc[0])
    launches = analysis.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)[0]
    return {
        "idle": idle,
        "time": [float(time[name]) for name in ("idle_time(us)", "compute_time(us)", "non_compute_time(us)")],
        "overlap": None if isnan(overlap) else overlap,
        "launches": [
            len(launches),
            *(float(launches[name].sum()) for name in ("cpu_duration", "gpu_duration", "launch_delay")),
        ],
    }


def main() -> None:
    """Print the figures of the named files as JSON."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    found = {}
    for path in sys.argv[1:]:
        try:
            found[Path(path).name.removesuffix(".json.gz")] = figures(path)
        except Exception as problem:  # noqa: BLE001 - what it cannot read, in any way, is left out and said
            sys.stderr.write(f"{path}: {type(problem).__name__}: {problem}\n")
    sys.stdout.write(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
