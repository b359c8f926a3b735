"""HTML reports for tests, and what is in them without a browser."""

from __future__ import annotations

import base64
import json
import re
import zlib
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

from pytest_torchprof.report import RunResults
from pytest_torchprof.report.account import FromReport
from pytest_torchprof.report.html_report import render
from pytest_torchprof.report.result import Outcome, Result, decode

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = (
    "</script><img src=x onerror=window.pwned=1>",
    "<style>*{display:none}</style>",
    "--><!--<script>window.pwned=1</script>",
    "\x1b[31m\x00bell\x07",
    "right \u202eot tfel\u2069 \u200f\u2028",
    "{{script}}{{policy}}",
    "lone \udc80 surrogate",
    "n" * 100_000,
    '" onmouseover="window.pwned=1',
)
SUMMARY = {"kernels": 5, "launches": 5, "gpu_busy_us": 1234.5, "cpu_gpu_ratio": 0.7, "graph_breaks": 0}


def launching(name: str) -> dict[str, Any]:
    """Return a comparison with a baseline, as JSON values, by which a kernel of this name came."""
    kernel = {"name": name, "family": "other", "op": name}
    return {"verdict": "changed", "changes": [{"kind": "added", "what": name, "after": [kernel]}]}


def result(number: int = 0, *, name: str = "", **more: Any) -> Result:
    """Return a measurement of a run as a test leaves it; ``more`` are JSON values."""
    nodeid = f"tests/test_model.py::{name or f'test_{number}'}"
    summary = {**SUMMARY, "kernels": number % 7, "worst": {**SUMMARY, "kernels": number % 7}}
    limit = {
        "limit": "max_kernels",
        "expected": "4",
        "number": 5,
        "status": "missed",
        "seen": [{"seen": "number-seen", "number": "kernels", "value": 5}],
        "in_step": {"step": 1, "steps": number},
        "evidence": [{"evidence": "line-in-words", "said": "2 x gemm fp32 tn addmm   46.1 ms  aten::addmm"}],
    }
    kernels = [
        {
            "name": f"kernel_{i}",
            "count": 3,
            "time_us": 10.0 * i + number,
            "min_us": 1.0,
            "max_us": 9.0,
            "ops": ["aten::mm"],
        }
        for i in range(8)
    ]
    found = {
        "nodeid": nodeid,
        "outcome": Outcome.PASSED,
        "summary": summary,
        "limits": [limit],
        "kernels": kernels,
        "environment": {"torch": "2.14", "gpu": "NVIDIA H200"},
    }
    account = [FromReport(more.pop("message")).to_plain()] if "message" in more else []
    (made,) = decode([{**found, "account": account, **more}])
    return made


def write(path: Path, *results: Result, **more: Any) -> Path:
    """Write the report of a run with these results."""
    path.write_text(render(RunResults(results=results, **more)), encoding="utf-8", errors="backslashreplace")
    return path


class Page(HTMLParser):
    """The elements of a page and what it carries."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str | None, str] = {}
        """The content of each script by its id; None is the one that runs."""
        self.style = ""
        self.words = ""
        """All that is shown without a script."""
        self._inside: tuple[str, str | None] | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside = (tag, dict(attrs).get("id"))

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002 - the name is the base class's
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside is None:
            self.words += data
        elif self._inside[0] == "style":
            self.style += data
        else:
            self.scripts[self._inside[1]] = self.scripts.get(self._inside[1], "") + data

    @property
    def tags(self) -> set[str]:
        """The names of all elements."""
        return {tag for tag, _ in self.elements}

    @property
    def policy(self) -> dict[str, str]:
        """The directives of the security policy."""
        (content,) = [attrs["content"] for _, attrs in self.elements if attrs.get("http-equiv")]
        return dict(re.split(" ", one.strip(), maxsplit=1) for one in str(content).split(";"))

    def unpacked(self, name: str) -> bytes:
        """What is carried under this id."""
        return zlib.decompress(base64.b64decode(self.scripts[name]))

    @property
    def details(self) -> list[dict[str, Any]]:
        """What is told of each measurement."""
        names = [name for name in self.scripts if name and name.startswith("details-")]
        return [one for name in names for one in json.loads(self.unpacked(name))]
