"""However much fails, on a terminal of 80 columns and 24 lines what to do begins on the first screen."""

from __future__ import annotations

from itertools import chain

import pytest
from builder import TraceBuilder
from test_every_word import TABLE, recorded

from pytest_torchprof import load
from pytest_torchprof.limits import FailureLine, Screen, check_limits, error_for, read_limits

pytestmark = pytest.mark.any_torch

FIRST_SCREEN = 22
"""Lines of a terminal of 24, less the failure's title and the line of the prompt."""
MISSED = [limits for _, limits in TABLE]
CONTRADICTED = {"min_kernels", "ops"}
"""Keywords whose values in the table cannot be asked for beside those of others."""
BY_KEYWORD = {name: limits for limits in MISSED if len(limits) == 1 for name in limits if name not in CONTRADICTED}
CAME = [
    FailureLine(
        f"    + 2 x pointwise mul [{at}] fp32  model/layers/attention.py:{at} in forward",
        "came",
        subject=f"pointwise mul [{at}]",
        file_line=f"model/layers/attention.py:{at}",
    )
    for at in range(40)
]
BASELINE = [
    FailureLine("worse than tests/b.json", "headline", numbers="kernels 3 -> 83, launches 3 -> 83, copies 0 -> 4"),
    *CAME,
    FailureLine("look first at model/layers/attention.py:0", "remedy"),
    FailureLine("accept it: ", "remedy", command="pytest tests/test_it.py::test_it --torchprof-baseline=update"),
]


def lines_of(profile, limits, also=(), columns=80):
    """Return the lines of the failure on a terminal."""
    screen = Screen.of_columns(columns)
    verdicts = check_limits(profile, read_limits(limits))
    return str(error_for(verdicts, profile, profile.why_missed, also=also, screen=screen)).splitlines()


def above_what_to_do(lines, columns=80):
    """Return the lines of the terminal above the first remedy."""
    above = lines[: [line.startswith("  do: ") for line in lines].index(True)]
    return sum(max(1, -(-len(line) // columns)) for line in above)


def groups(size):
    """Return limits of each keyword together with those that follow it in the table, so many in all."""
    names = [*BY_KEYWORD, *BY_KEYWORD]
    return [
        dict(chain.from_iterable(BY_KEYWORD[name].items() for name in names[at : at + size]))
        for at in range(len(BY_KEYWORD))
    ]


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A step with forty kernels of long names, copies and waits, each from two places with long paths."""
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 30_000)
    for at in range(80):
        begin = 10 + 300 * at
        where = f"a_package_of_some_length/models/attention_{at}.py({at}): forward_of_a_block_with_a_long_name"
        builder.event("python_function", where, begin, 200)
        kernel = f"void at::native::elementwise_kernel_{at // 2}<4, {'T' * (at // 2)}Functor<float>>(int)"
        builder.launched(kernel, begin + 10, op=f"aten::an_operator_with_a_long_name_{at // 2}")
        builder.memcpy("DtoH", begin + 60, 10, builder.call("copy", begin + 50, 5), size=8)
        builder.sync(begin + 80, 40, what="stream sync")
    return load(builder.write(tmp_path_factory.mktemp("large") / "recording.json"))


LARGE = {
    "max_kernels": 0,
    "max_launches": 0,
    "max_memcpys": 0,
    "max_syncs": 0,
    "forbid_kernels": "*elementwise*",
    "only_kernels": "gemm",
    "max_gpu_time": "1 ns",
    "max_cpu_gpu_ratio": 0.001,
}


@pytest.mark.parametrize("also", [(), BASELINE], ids=["alone", "beside-a-baseline"])
@pytest.mark.parametrize("limits", MISSED, ids="-".join)
def test_what_to_do_about_each_limit_is_on_the_first_screen(tmp_path, limits, also):
    profile = recorded(tmp_path, graph="cuda_graph" in limits)
    assert above_what_to_do(lines_of(profile, limits, also)) < FIRST_SCREEN


@pytest.mark.parametrize("also", [(), BASELINE], ids=["alone", "beside-a-baseline"])
@pytest.mark.parametrize("size", range(2, 7))
def test_what_to_do_about_several_limits_is_on_the_first_screen(profile, size, also):
    above = {tuple(limits): above_what_to_do(lines_of(profile, limits, also)) for limits in groups(size)}
    assert {names: lines for names, lines in above.items() if lines >= FIRST_SCREEN} == {}


@pytest.mark.parametrize("also", [(), BASELINE], ids=["alone", "beside-a-baseline"])
@pytest.mark.parametrize("size", [1, 2, 3, 6, 8])
def test_neither_many_kernels_nor_long_names_and_paths_push_it_off_the_first_screen(large, size, also):
    names = [*LARGE, *LARGE]
    for at in range(len(LARGE)):
        lines = lines_of(large, {name: LARGE[name] for name in names[at : at + size]}, also)
        assert above_what_to_do(lines) < FIRST_SCREEN


@pytest.mark.parametrize("size", [1, 3, 6])
def test_on_half_the_columns_it_is_on_the_second_screen_at_the_latest(large, size):
    names = [*LARGE, *LARGE]
    for at in range(len(LARGE)):
        lines = lines_of(large, {name: LARGE[name] for name in names[at : at + size]}, BASELINE, columns=40)
        assert above_what_to_do(lines, 40) < 2 * FIRST_SCREEN


def test_a_baseline_by_itself_leaves_room_for_what_to_do(large):
    lines = str(error_for((), large, lambda _: (), also=BASELINE, screen=Screen.of_columns(80))).splitlines()
    asked = [at for at, line in enumerate(lines) if line.startswith("  do: ")]
    assert max(asked) < FIRST_SCREEN


@pytest.mark.parametrize("size", [1, 2, 3])
def test_below_each_of_a_few_limits_some_of_its_rows_are_shown(large, size):
    text = "\n".join(lines_of(large, dict([*LARGE.items()][2 : 2 + size])))
    for name in [*LARGE][2 : 2 + size]:
        below = text.partition(f"  {name}=")[2].splitlines()[1:]
        assert " x " in "\n".join(below[:2])
