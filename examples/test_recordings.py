"""A recording is a file: made on one machine, judged on another, by the same limits.

``pytest examples --torchprof-save=DIR`` kept the recordings used here; ``tests/recordings/README.md`` says on what
device.
"""

from pathlib import Path

import pytest

from pytest_torchprof import LimitsMissed, NotMeasured, Profile, load

RECORDINGS = Path(__file__).parents[1] / "tests" / "recordings"


def recording(test: str) -> Profile:
    (path,) = RECORDINGS.glob(f"*.{test}.*.json.gz")
    return load(path)


def test_numbers_and_kernels_of_a_training_step() -> None:
    profile = recording("test_before_attention_is_written_out")
    assert len(profile.steps) == 2
    assert profile.kernels.matching("bmm").count == profile.ops["aten::bmm"]
    print(profile.table(top=5))  # noqa: T201  (pytest -rP shows it)


def test_limits_are_tried_on_it_in_no_time() -> None:
    profile = recording("test_before_attention_is_written_out")
    profile.expect(ops="aten::softmax", min_kernels=50)
    with pytest.raises(LimitsMissed, match="max_kernels=50"):
        profile.expect(max_kernels=50)


def test_what_it_does_not_hold_is_not_measured() -> None:
    profile = recording("test_before_attention_is_written_out")
    with pytest.raises(NotMeasured, match="min_mfu"):
        profile.expect(min_mfu=0.1)


def test_before_and_after_are_compared() -> None:
    before = recording("test_before_attention_is_written_out")
    after = recording("test_after_attention_is_one_operator")
    print(before.diff(after))  # noqa: T201
    assert after.kernels.count < before.kernels.count
