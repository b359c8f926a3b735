"""What limits of every kind come to on recordings, and which verdicts another version of the package changes.

``python benchmarks/verdicts.py FOLDER > now.json`` judges the recordings of a folder, each also as one of the CPU. With
``PYTHONPATH`` set to the checkout of another version the same command says what that one judges, and
``python benchmarks/verdicts.py --changed before.json now.json`` lists the verdicts that differ, with the reason of the
later one.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_torchprof import (
    LimitsMissed,
    NotMeasured,
    TorchprofError,
    attention,
    communication,
    conv,
    family,
    gemm,
    library,
    load,
    triton,
)
from pytest_torchprof.findings import RULES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FAMILIES = (
    *("gemm", "conv", "attention", "pointwise", "reduction", "normalization", "softmax"),
    *("optimizer", "copy", "index", "sort", "rng", "communication", "other"),
)
PATTERNS: list[Any] = [
    *map(family, FAMILIES),
    *FAMILIES,
    *(gemm(dtype=dtype) for dtype in ("fp32", "tf32", "bf16", "fp16", "fp64")),
    *(gemm(layout="tn"), gemm(layout="nn"), gemm(tensor_core=False), gemm(op="mm"), gemm(op="linear")),
    *(conv(op="conv2d"), attention(fused=False), attention(version=2), communication("all_reduce")),
    *(family("pointwise", dtype="fp32"), family("reduction", dtype="fp64"), triton(), triton("poi"), triton("user")),
    *map(library, ("cublas", "cutlass", "cudnn", "aten", "triton", "nccl")),
    *("fp64", "bf16", "gelu", "triton_*", "*gemm*", "elementwise", "re:^void at::native", "cublas", "nccl", "re:."),
]
OPERATORS = ["aten::mm", "aten::addmm", "aten::copy_", "aten::item", "aten::cat", "aten::linear", "mm", "layer_norm"]
AT_MOST = (
    *("kernels", "launches", "memcpys", "memsets", "syncs", "gpu_time", "cpu_gpu_ratio", "peak_memory", "comm_bytes"),
    *("exposed_communication", "graph_breaks", "recompiles", "fallbacks", "compile_time"),
)
AT_LEAST = ("min_kernels", "min_gpu_utilization", "min_sm_efficiency", "min_mfu", "min_overlap")
ASKED: list[dict[str, Any]] = [
    *({f"max_{name}": value} for name in AT_MOST for value in (0, 10**12)),
    *({name: value} for name in AT_LEAST for value in (0, 1)),
    *({"max_syncs": 0, "waits": "all"}, {"max_syncs": 0, "allow_syncs": "aten::item"}, {"cuda_graph": True}),
    *({word: one} for word in ("forbid_kernels", "only_kernels", "kernels") for one in PATTERNS),
    *({"kernels": {one: 0}} for one in PATTERNS),
    *({word: one} for word in ("ops", "forbid_ops") for one in OPERATORS),
    *({"fused": ["add", "mul"]}, {"not_fused": ["add", "mul"]}, {"collectives": "all_reduce"}),
    *({"collectives": {"all_reduce": 0}}, {"ranges": {"forward": {"max_kernels": 0}}}),
    *({"forbid": rule.code} for rule in RULES),
]


def judged(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield recordings with what each limit comes to, and with the numbers of the worst step."""
    for path in sorted(folder.glob("*.json.gz")):
        for device in (None, "cpu"):
            title = path.name.partition(".json")[0] + (", as of the CPU" if device else "")
            try:
                profile = load(path, device=device)
                numbers = profile.worst
            except TorchprofError as error:
                yield title, {"load": f"refused: {error}"}
                continue
            verdicts = {str(limits): _verdict(profile, limits) for limits in ASKED}
            yield title, verdicts | {name: str(getattr(numbers, name)) for name in numbers.__struct_fields__}


def _verdict(profile: Any, limits: dict[str, Any]) -> str:
    try:
        profile.expect(**limits)
    except (LimitsMissed, NotMeasured, TorchprofError) as error:
        kinds = {LimitsMissed: "missed", NotMeasured: "not measured"}
        return f"{kinds.get(type(error), 'refused')}: {error}"
    return "holds"


def changed(before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield limits with the recordings on which they come to something else, and one reason."""
    found: dict[tuple[str, str, str], dict[str, str]] = defaultdict(dict)
    for title in sorted(before.keys() & now.keys()):
        for limits in before[title].keys() & now[title].keys():
            was, reason = before[title][limits].partition(":")[0], now[title][limits]
            if was != (is_now := reason.partition(":")[0]):
                found[was, is_now, limits][title] = reason
    for (was, is_now, limits), reasons in sorted(found.items()):
        yield f"{was} -> {is_now}: {limits}: {', '.join(reasons)}"
        yield from (f"    {line}" for line in next(iter(reasons.values())).splitlines()[2:6])


def main() -> None:
    """Print the verdicts as JSON, or those that differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--changed", nargs=2, type=Path, metavar=("BEFORE", "NOW"))
    words = parser.parse_args()
    warnings.simplefilter("ignore")
    if words.changed:
        before, now = (json.loads(path.read_text()) for path in words.changed)
        print(*changed(before, now), sep="\n")
    elif words.folder:
        json.dump(dict(judged(words.folder)), sys.stdout, indent=1)
    else:
        parser.error("a folder of recordings, or two files of verdicts to compare")


if __name__ == "__main__":
    main()
