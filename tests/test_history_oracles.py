"""Steps of times beside those that others find: asv's algorithm and ruptures, of the extra named oracles."""

from __future__ import annotations

import itertools
import math
import random
import re
from pathlib import Path

import pytest

from pytest_torchprof.history.steps import steps_of

pytestmark = pytest.mark.any_torch

ROOT = Path(__file__).parents[1]


def random_series(seed):
    """Return values with up to three clear steps, and where these are."""
    chosen = random.Random(seed)
    cuts = sorted(chosen.sample(range(40, 200, 40), chosen.randrange(4)))
    levels = list(itertools.accumulate(chosen.choice((-0.1, 0.1, 0.15)) for _ in range(len(cuts) + 1)))
    return [levels[sum(cut <= at for cut in cuts)] + chosen.gauss(0, 0.01) for at in range(240)], cuts


@pytest.mark.parametrize("seed", range(5))
def test_clear_steps_are_where_ruptures_has_them(seed):
    ruptures = pytest.importorskip("ruptures", reason="needs ruptures: the extra named oracles")
    import numpy as np

    values, cuts = random_series(seed)
    theirs = ruptures.Pelt(model="l2", min_size=3, jump=1).fit(np.array(values)).predict(pen=0.003)
    assert [step.at for step in steps_of(values).steps] == theirs[:-1]
    assert [round(cut / 40) * 40 for cut in theirs[:-1]] == cuts


@pytest.mark.parametrize("seed", range(5))
def test_clear_steps_are_where_asv_has_them(seed):
    step_detect = pytest.importorskip("asv.step_detect", reason="needs asv: the extra named oracles")
    values, cuts = random_series(seed)
    theirs = [left for left, *_ in step_detect.detect_steps([math.exp(value) for value in values])][1:]
    ours = [step.at for step in steps_of(values).steps]
    assert len(ours) == len(theirs) == len(cuts)
    assert all(abs(our - their) <= 1 for our, their in zip(ours, theirs, strict=True))


def extras_needed():
    """Yield each file of tests of which some are skipped without an extra of their own, and that extra."""
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        for extra in sorted(set(re.findall(r"""reason="needs [^"]*: the extra named (\w+)\"""", file.read_text()))):
            yield file.name, extra


@pytest.mark.skipif(not (ROOT / ".ci").is_dir(), reason="an unpacked package has no .ci")
@pytest.mark.parametrize(("file", "extra"), [*extras_needed()])
def test_what_is_skipped_without_an_extra_is_run_where_continuous_integration_installs_it(file, extra):
    script = (ROOT / ".ci/run").read_text()
    installed, _, behind = script.rpartition("pip install ")
    assert installed
    extras = re.search(r"'\.\[([a-z,]+)\]'", behind)[1].split(",")
    assert extra in extras
    assert f"tests/{file}" in behind
