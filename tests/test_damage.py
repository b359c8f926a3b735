"""Whatever is done to a file: a result or an error of the documented classes, on the command line exit status 2."""

from __future__ import annotations

import gzip
import json
from contextlib import redirect_stderr, redirect_stdout, suppress
from copy import deepcopy
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from builder import own_recording
from facts import why_unreadable
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pytest_torchprof import TorchprofError, load
from pytest_torchprof.cli import main
from pytest_torchprof.reasons.unreadable import NoObjectsEnd
from pytest_torchprof.recording.writer import write_metadata
from pytest_torchprof.trace.metadata import Metadata

pytestmark = pytest.mark.any_torch

HOLDS, MISSED, UNKNOWN, UNREADABLE = 0, 1, 3, 2

# What stands in a place of a file that it should not.
values = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        [0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 10**400, 1e308, -1e308, 0.1, 5e-324]
    ),
    st.sampled_from(
        ["", "k", "1", "-1", "1e999999", "NaN", "\ud800", "\x1b[31m", "x" * 500, "ProfilerStep#1", "kernel"]
    ),
    st.sampled_from([[], [1], {}, {"a": 1}, [[]], [{}]]),
)
numbers = st.sampled_from(["NaN", "Infinity", "-inf", "1e999999999", "1E-999999999", "-0", "0.1e1", "9" * 5000, "1.5"])


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) in a document."""
    inside = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [place for key, one in inside for place in ((value, key), *places(one))]


@st.composite
def damaged(draw, document: Any) -> bytes:
    """Return the document with a few places changed, and then perhaps the text of it."""
    document = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(1, 3))):
        found = places(document)
        if not found:
            break
        container, key = found[draw(st.integers(0, len(found) - 1))]
        if draw(st.booleans()):
            container[key] = deepcopy(draw(values))
        elif isinstance(container, list):
            container.insert(key, deepcopy(draw(values)))
        else:
            del container[key]
    text = json.dumps(document, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        end = at + draw(st.integers(0, 20))
        text = text[:at] + draw(st.one_of(numbers.map(str.encode), st.binary(max_size=4))) + text[end:]
    return text


def run(*words: str) -> tuple[int, str]:
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(list(words))
    return status, err.getvalue()


RECORDING = own_recording({"gemm": 2, "k": 1}).document()
often = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


@often
@given(damaged(RECORDING), st.booleans(), st.sampled_from([[], ["--json"], ["--by", "op"], ["--by", "range"]]))
def test_a_damaged_recording_is_a_result_or_an_error_that_is_documented(text, packed, way):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        path.write_bytes(gzip.compress(text) if packed else text)
        with suppress(TorchprofError):
            load(path).expect(max_kernels=5, forbid_kernels="gemm", max_gpu_time=1.0, forbid="hotspot")
        status, errors = run("analyze", *way, str(path))
        assert status in (HOLDS, UNREADABLE)
        assert bool(errors) == (status == UNREADABLE)
        status, _ = run("check", str(path), "--limit", "max_kernels=5", "--limit", "forbid_kernels=gemm")
        assert status in (HOLDS, MISSED, UNREADABLE, UNKNOWN)
        status, _ = run("diff", str(path), str(path))
        assert status in (HOLDS, MISSED, UNREADABLE, UNKNOWN)


BASELINE = (Path(__file__).parent / "baselines_before" / "schema_2" / "test_steps.cpu-x86_64.json").read_text()


@often
@given(damaged(json.loads(BASELINE)))
@example(BASELINE.replace('"launches": 0', f'"launches": {10**400}').encode())  # No float, and shown as one.
def test_a_damaged_baseline_is_shown_or_refused(text):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "__torchprof__" / "test_steps.cpu-x86_64.json"
        path.parent.mkdir()
        path.write_bytes(text)
        for words in (["baseline", "list"], ["baseline", "show"], ["diff", str(path)]):
            status, errors = run(*words, str(path))
            assert status in (HOLDS, UNREADABLE)
            assert bool(errors) == (status == UNREADABLE)


def test_a_file_that_does_not_end_as_an_object_gets_no_key_of_ours(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [')
    with path.open("r+b") as file:
        assert why_unreadable(lambda: write_metadata(file, Metadata(steps=1))) == NoObjectsEnd(str(path))
    assert path.read_text() == '{"traceEvents": ['
