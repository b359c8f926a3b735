"""A call that copies and left no copy in the recording: limits on copies are not measured."""

from __future__ import annotations

import gzip
import json
from functools import partial

import pytest
from builder import TraceBuilder
from facts import says, why_not

from pytest_torchprof import NotMeasured, load
from pytest_torchprof.reasons.lost_work import LostCopies

pytestmark = pytest.mark.any_torch


def recording(fill, *, own=True):
    """Return a recording of one step, in which ``fill`` puts calls behind a kernel."""
    builder = TraceBuilder()
    if own:
        builder.own(steps=1)
    builder.step(0, 0, 900)
    builder.launched("k", 10)
    fill(builder)
    builder.sync(1100, 50)
    return builder


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("name", ["cudaMemcpyAsync", "cudaMemcpy", "cudaMemcpy2DAsync", "cuMemcpyHtoDAsync_v2"])
def test_a_copy_that_was_lost_keeps_no_limit_on_copies(tmp_path, name, own):
    found = load(recording(lambda builder: builder.call(name, 100, 30), own=own).write(tmp_path / "t.json"))
    for limits in ({"max_memcpys": 0}, {"max_memcpys": 9}, {"max_memcpys": 0, "allow_memcpys": "HtoD"}):
        assert says(why_not(partial(found.expect, **limits)), LostCopies, calls=1, first=name)
    assert (found.memcpys, found.memcpys_h2d, found.memcpy_bytes) == (None, None, None)
    found.expect(max_kernels=1, max_launches=1, max_memsets=0)


def test_calls_that_fill_or_lie_outside_of_the_steps_change_nothing(tmp_path):
    def fill(builder):
        builder.call("cudaMemsetAsync", 100, 30)
        builder.call("cudaMemcpyAsync", 1000, 30)

    load(recording(fill).write(tmp_path / "t.json")).expect(max_memcpys=0, max_memsets=0)


def test_what_a_capture_holds_runs_later(tmp_path):
    def fill(builder):
        builder.call("cudaStreamBeginCapture", 100, 10)
        builder.call("cudaMemcpyAsync", 120, 10)
        builder.call("cudaStreamEndCapture", 140, 10)

    load(recording(fill).write(tmp_path / "t.json")).expect(max_memcpys=0)


def test_a_copy_dropped_from_a_real_recording_is_missing(shared_trace, tmp_path):
    whole = shared_trace("h100_bert_small")
    content = json.loads(gzip.decompress(whole.read_bytes()))
    content["traceEvents"] = [one for one in content["traceEvents"] if one.get("cat") != "gpu_memcpy"]
    cut = tmp_path / "cut.json"
    cut.write_text(json.dumps(content))
    load(whole).expect(max_memcpys=1)
    with pytest.raises(NotMeasured, match="lost-copies"):
        load(cut).expect(max_memcpys=1)
