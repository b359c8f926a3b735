"""What editors and type checkers are told of the keywords: all of them, with what each takes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest
import torch
from cookbook_samples import BLOCKS

import pytest_torchprof
from pytest_torchprof import Limits, MarkerKeywords
from pytest_torchprof.limits import LIMITS, settings_of
from pytest_torchprof.testing.marker_options import MARKER_OPTIONS
from pytest_torchprof.text.documentation import articles

pytestmark = pytest.mark.any_torch

ROOT = Path(__file__).parents[1]
WORDS = {limit.name for limit in LIMITS} | settings_of(LIMITS).keys()

PREAMBLE = f"""
from typing import Any
import pytest
import pytest_torchprof
from pytest_torchprof import {", ".join(dir(pytest_torchprof))}
found: Profile
torchprof: Torchprof
names: list[str]
counts: dict[str, int]
more: dict[str, Any]
"""
RIGHT = """
found.expect(kernels=names, ops=counts)
found.expect(kernels=[gemm(layout="tn"), "triton_*"], only_kernels={gemm(), conv()}, forbid_kernels="copy")
found.expect(kernels={"a": 1, gemm(): (1, 3)})
found.expect(kernels={"*fused_qk_rmsnorm*": 48})
found.expect(fused=[["add", "mul"], ["sum"]], cuda_graph=0.5, max_gpu_time=0.25, max_peak_memory=1 << 20)
torchprof.measure("decode", max_kernels=5)
torchprof.limits(max_kernels=5)
pytest_torchprof.profile(print, 1, "a", steps=5, device="cpu", max_kernels=5).expect(max_syncs=0)
pytest_torchprof.measure(max_kernels=5)
STRICT: Limits = {"max_graph_breaks": 0, "kernels": [gemm()]}
found.expect(**STRICT)
MARKED: MarkerKeywords = {"max_kernels": 5, "device": "cpu", "record": ["modules"], "tolerance": {"time": 0.1}}
marked = pytest.mark.torchprof(**MARKED)
found.expect(**more)  # A limit of another plugin.
"""
BLOCK = "def block(x: Any) -> Any:\n    return compiled(x)\n"
WRONG = """
found.expect(max_kernel=5)  # type: ignore[call-arg]
found.expect(max_kernels="5")  # type: ignore[arg-type]
found.expect(kernels=[1])  # type: ignore[list-item]
found.expect(kernels=gemm)  # type: ignore[arg-type]
found.expect(kernels={"a": "1"})  # type: ignore[dict-item]
found.expect(cuda_graph="some")  # type: ignore[arg-type]
found.expect(fused=[1])  # type: ignore[list-item]
torchprof.measure("decode", max_sync=0)  # type: ignore[call-arg]
torchprof.limits(device="cpu")  # type: ignore[call-arg]
pytest_torchprof.profile(print, 1, max_kernel=5)  # type: ignore[call-arg]
pytest_torchprof.measure(max_kernels=None)  # type: ignore[arg-type]
wrong: Limits = {"max_graph_break": 0}  # type: ignore[typeddict-unknown-key]
wrong_too: MarkerKeywords = {"names": "all"}  # type: ignore[typeddict-item]
"""


# To read torch takes minutes, and what others lack is not ours.
SETTINGS = """
[mypy]
strict = True
disallow_subclassing_any = False
disallow_untyped_decorators = False
ignore_missing_imports = True
[mypy-torch.*]
follow_imports = skip
"""


def check(folder: Path, *sources: str) -> str:
    """Return what mypy says of these modules; torch and packages that are not installed are anything to it."""
    pytest.importorskip("mypy")
    files = [folder / f"checked_{number}.py" for number in range(len(sources))]
    for file, source in zip(files, sources, strict=True):
        file.write_text(source)
    (folder / "mypy.ini").write_text(SETTINGS)
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", *(file.name for file in files)]
    environment = os.environ | {"MYPYPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return ran.stdout + ran.stderr


def test_every_limit_is_typed_and_nothing_else():
    assert Limits.__annotations__.keys() == WORDS
    assert typing.get_type_hints(MarkerKeywords, localns={"torch": torch}).keys() == WORDS | MARKER_OPTIONS


def test_a_type_checker_takes_what_is_right_and_refuses_what_is_wrong(tmp_path):
    """And takes every example of the documentation, and the cookbook's tests for a GPU."""
    calls = [f"found.expect({example})" for example in examples()]
    assert len(calls) == len(WORDS)
    typed = f"from typing import Any\ncompiled: Any\nx: Any\n{BLOCK}\n{typed_example()}"
    assert "Success: no issues" in check(
        tmp_path, PREAMBLE + RIGHT + WRONG, PREAMBLE + "\n".join(calls), typed, *BLOCKS
    )


def examples():
    """Yield the example of each limit, as its row in the documentation has it."""
    for article in articles():
        if article.page == "limits" and article.word in WORDS:
            titles, _, row = ([cell.strip() for cell in line[1:-1].split(" | ")] for line in article.lines[:3])
            yield dict(zip(titles, row, strict=True))["example"].strip("`")


def typed_example():
    """Return the documentation's example of limits that are typed."""
    page = (ROOT / "docs" / "limits.md").read_text()
    return re.search(r"<!-- example: typed -->\n```python\n(.*?)```", page, re.DOTALL)[1]


def test_the_documentations_example_runs(run_tests):
    run_tests(f"block = torch.compile(torch.sin, backend='eager')\n{typed_example()}").assert_outcomes(passed=1)
