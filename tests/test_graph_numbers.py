"""Kernels of CUDA graphs under wrong correlation ids: never judged, and not taken for lost ones."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from facts import says

from pytest_torchprof import NotMeasured, load
from pytest_torchprof.reasons.lost_work import SharedGraphNumbers, StrayGraphNumbers

pytestmark = pytest.mark.any_torch

GRAPH, NODES = 3, 3
AFTER = "CUPTI before CUDA 13.1 Update 1 numbers graphs wrongly"


def recording(tmp_path, number_of, *, own=True, steps=3, shared=False, told=True, **header):
    """Return steps of one replay and one launch each; ``number_of`` tells from a replay's ids which its kernels bear."""
    builder = TraceBuilder()
    if own:
        builder.own(steps=steps)
    before = 50
    for step in range(steps):
        at = 1000 * step
        builder.step(step, at, 900)
        launch = builder.graph_launch(at + 10)
        call = builder.events[-1]["args"]
        between = builder.launch(at + 50)
        builder.kernel("k", at + 500, 5, between)
        number = number_of(launch, before, between)
        for node in range(NODES):
            ids = {"graph id": GRAPH, "graph node id": (GRAPH << 32) + node}
            builder.kernel("g", at + 100 + 10 * node, 5, number, **(ids if told else {}))
        if shared:
            call["correlation"] = number
        before = launch
    builder.metadata |= header
    return load(builder.write(tmp_path / "t.json"))


def right(launch, before, between):
    return launch


def of_the_replay_before(launch, before, between):
    return before


def of_the_next_call(launch, before, between):
    return between


def of_one_call(launch, before, between):
    return 77


def of_no_call(launch, before, between):
    return launch + 100_000


@pytest.mark.parametrize("own", [True, False])
def test_right_numbers_are_measured(tmp_path, own):
    assert recording(tmp_path, right, own=own).why_not is None


@pytest.mark.parametrize(
    ("number_of", "strays", "empty"),
    [(of_the_replay_before, 3, 1), (of_the_next_call, 9, 3), (of_no_call, 9, 3)],
)
def test_kernels_under_other_numbers_are_not_measured_and_not_called_lost(tmp_path, number_of, strays, empty):
    profile = recording(tmp_path, number_of)
    assert says(profile.doubt, StrayGraphNumbers, strays=strays, empty=empty, launches=3)
    assert AFTER in profile.why_not
    assert profile.why_not.endswith("pip install 'nvidia-cuda-cupti>=13.1.115' [wrong-graph-numbers]")


@pytest.mark.parametrize("number_of", [of_the_next_call, of_no_call])
def test_in_somebody_elses_recording_too(tmp_path, number_of):
    assert AFTER in recording(tmp_path, number_of, own=False).why_not


@pytest.mark.parametrize("number_of", [of_the_replay_before, of_the_next_call, of_no_call])
def test_where_the_file_does_not_say_what_a_graph_ran_too(tmp_path, number_of):
    """As kineto wrote before 2026."""
    assert AFTER in recording(tmp_path, number_of, told=False).why_not
    assert recording(tmp_path, right, told=False).why_not is None


@pytest.mark.parametrize("own", [True, False])
def test_launches_that_share_a_number_are_not_measured(tmp_path, own):
    """All kernels would be the last launch's, and a limit on an earlier step or range would hold of nothing."""
    profile = recording(tmp_path, of_one_call, own=own, shared=True)
    assert says(profile.doubt, SharedGraphNumbers, shared=3, launches=3)
    with pytest.raises(NotMeasured, match="wrong-graph-numbers"):
        profile.expect(max_kernels=100)


@pytest.mark.parametrize("version", [24, 130000, 130001, 130100])
@pytest.mark.parametrize(
    ("number_of", "shared", "kind"),
    [(of_the_next_call, False, StrayGraphNumbers), (of_one_call, True, SharedGraphNumbers)],
)
def test_the_cupti_that_recorded_it_is_named_with_the_newer_one_where_it_is_known_for_it(
    tmp_path, number_of, shared, kind, version
):
    doubt = recording(tmp_path, number_of, shared=shared, cupti_version=version).doubt
    assert says(doubt, kind, cupti=version)
    assert f"(API {version})" in doubt.sentence
    assert "nvidia-cuda-cupti>=13.1.115" in doubt.remedy


@pytest.mark.parametrize("version", [130101, 130202])
def test_a_cupti_that_is_not_known_for_it_is_not_to_be_replaced(tmp_path, version):
    doubt = recording(tmp_path, of_the_next_call, cupti_version=version).doubt
    assert says(doubt, StrayGraphNumbers, cupti=version)
    assert f"(API {version})" in doubt.sentence
    assert "nvidia-cuda-cupti" not in doubt.text


@pytest.mark.parametrize("header", [{}, {"cupti_version": "13.0"}, {"cupti_version": None}, {"cupti_version": 0}])
def test_a_cupti_that_the_recording_does_not_tell_is_not_guessed(tmp_path, header):
    doubt = recording(tmp_path, of_the_next_call, **header).doubt
    assert says(doubt, StrayGraphNumbers, cupti=None)
    assert AFTER in doubt.sentence


def test_one_launch_whose_kernels_are_lost_is_lost(tmp_path):
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 900)
    builder.graph_launch(10)
    builder.kernel("k", 100, 5, builder.launch(50))
    assert "[lost-kernels]" in load(builder.write(tmp_path / "t.json")).why_not


def test_kernels_of_graphs_from_before_somebody_elses_window_are_no_wrong_numbers(tmp_path):
    """Replays were queued when it began, and the last one in it had not run when it ended."""
    builder = TraceBuilder()
    builder.step(0, 0, 900)
    for node in range(NODES):
        builder.kernel("g", 5 + 10 * node, 5, 50, **{"graph id": GRAPH, "graph node id": (GRAPH << 32) + node})
    builder.graph_launch(10)
    builder.kernel("k", 100, 5, builder.launch(50))
    assert AFTER not in load(builder.write(tmp_path / "t.json")).why_not


@pytest.mark.parametrize("told", [True, False])
def test_a_graph_that_is_lost_beside_a_kernel_of_an_unrecorded_call_is_lost(tmp_path, told):
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 900)
    for at in (10, 20, 30):
        launch = builder.graph_launch(at)
    ids = {"graph id": GRAPH, "graph node id": GRAPH << 32} if told else {}
    builder.kernel("g", 60, 5, launch, **ids)
    builder.kernel("cooperative", 100, 5, launch + 1)
    assert "[lost-kernels]" in load(builder.write(tmp_path / "t.json")).why_not
