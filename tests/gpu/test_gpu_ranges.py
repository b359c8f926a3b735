"""Limits within ranges of code that really runs on a GPU."""

from __future__ import annotations

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device; torch sees none"),
]

CODE = """
from pytest_torchprof import mark

x = torch.ones(64, 64, device="cuda", requires_grad=True)

def generate(reads=()):
    with torch.no_grad():
        for token in range(24):
            with mark("decode"):
                y = (x * 2).sum()
                if token in reads:
                    y.item()  # read
"""


@pytest.fixture
def run(run_tests):
    return lambda test: run_tests(CODE + test, in_process=False)


def place_of(pytester, code):
    lines = (pytester.path / "test_it.py").read_text().splitlines()
    return f"test_it.py:{next(n for n, text in enumerate(lines, 1) if code in text)}"


def test_one_item_in_occurrence_17_of_24_is_named_with_its_line(run, pytester):
    result = run("@pytest.mark.torchprof(ranges={'decode': {'max_syncs': 0}})\ndef test_it(): generate(reads=(16,))")
    result.assert_outcomes(failed=1)
    entered, read = place_of(pytester, "with mark"), place_of(pytester, "# read")
    result.stdout.fnmatch_lines(
        [f'*max_syncs=0 in "decode" *1 blocking call in occurrence 17 of 24 in step 1 of 5, {entered}', f"*{read} in *"]
    )


def test_kernels_waits_and_launches_hold_in_each_occurrence(run):
    limits = {"max_syncs": 0, "max_kernels": 2, "max_launches": 2, "kernels": {"*": 2}}
    run(f"@pytest.mark.torchprof(ranges={{'decode': {limits}}})\ndef test_it(): generate()").assert_outcomes(passed=1)


def test_a_backward_pass_counts_in_the_range_that_waits_for_it(run):
    result = run(
        """
def test_it(torchprof):
    def train():
        loss = (x * 2).sum()
        with mark("backward"):
            loss.backward()
        x.grad = None
    profile = torchprof(train)
    assert profile.kernels.count > 0
    assert all(len(one.kernels) > 0 for one in profile.ranges("backward"))
    profile.expect(ranges={"backward": {"min_kernels": 1, "max_syncs": 0}})
"""
    )
    result.assert_outcomes(passed=1)


def test_threads_that_have_the_id_of_one_that_has_ended_are_measured_right(run):
    result = run(
        """
from threading import Thread, get_ident

def train():
    with mark("forward"):
        loss = (x * 2).sum()
    with mark("backward"):
        loss.backward()
    x.grad = None

def test_it(torchprof):
    found, idents = [], []

    def measure(number):
        idents.append(get_ident())
        with torchprof.measure(str(number)) as block:
            for _ in block.steps():
                generate(reads=(0,))
        found.append([(len(one.kernels), one.syncs) for one in block.profile.ranges("decode")][:24])

    for number in range(4):
        thread = Thread(target=measure, args=(number,))
        thread.start()
        thread.join()
    assert len(set(idents)) < len(idents)
    assert found == [[(2, 1)] + [(2, 0)] * 23] * 4
    # Autograd's thread is made here, and takes the place of the last one.
    profile = torchprof(train)
    kernels = [[len(one.kernels) for one in profile.ranges(name)] for name in ("forward", "backward")]
    assert min(kernels[1]) > 0
    assert [sum(one) for one in zip(*kernels)] == [profile.kernels.count] * 5
"""
    )
    result.assert_outcomes(passed=1)
