"""Where a test's baseline lies: beside the test or mirrored, one file per test module and device."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_torchprof.baseline import baseline_path, device_slug
from pytest_torchprof.trace.metadata import Environment

pytestmark = pytest.mark.any_torch

ROOT = Path("/repo")


def test_a_baseline_lies_beside_the_test_file_by_default():
    found = baseline_path(ROOT / "tests/test_mlp.py", ROOT, "nvidia-h200-sm90", None)
    assert found == ROOT / "tests/__torchprof__/test_mlp.nvidia-h200-sm90.json"


def test_a_baseline_folder_mirrors_the_path_below_the_root():
    found = baseline_path(ROOT / "tests/unit/test_mlp.py", ROOT, "cpu-x86_64", Path("/kept"))
    assert found == Path("/kept/tests/unit/test_mlp.cpu-x86_64.json")


def test_a_test_file_outside_the_root_stays_inside_the_baseline_folder():
    outside = baseline_path(Path("/other/test_mlp.py"), ROOT / "a", "cpu-x86_64", Path("/kept"))
    assert outside == Path("/kept/__up__/__up__/other/test_mlp.cpu-x86_64.json")
    lookalike = baseline_path(ROOT / "a/__up__/__up__/other/test_mlp.py", ROOT / "a", "cpu-x86_64", Path("/kept"))
    assert lookalike != outside
    dotted = baseline_path(ROOT / "a/../../other/test_mlp.py", ROOT, "cpu-x86_64", Path("/kept"))
    assert dotted == Path("/kept/__up__/other/test_mlp.cpu-x86_64.json")


def test_a_link_to_the_root_is_the_root(tmp_path):
    (tmp_path / "real/tests").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    found = baseline_path(tmp_path / "link/tests/test_a.py", tmp_path / "real", "cpu-x86_64", Path("/kept"))
    assert found == Path("/kept/tests/test_a.cpu-x86_64.json")


NAMES = (
    "test_a.py",
    "test_a.md",
    "test_a",
    "test_a-0123456789.py",
    "test a.py",
    "test_a\n.py",
    "test_größe.py",
    "..py",
    "...py",
    ".py",
    "x" * 250 + ".py",
    "x" * 251 + ".py",
    "ß" * 120 + ".py",
    "con:1.py",
    "test_a.sm90.py",
)


def test_names_of_any_shape_stay_in_the_folder_are_short_and_differ():
    found = [
        baseline_path(ROOT / name, ROOT, slug, None) for name in NAMES for slug in ("nvidia-h200-sm90", "cpu-x86_64")
    ]
    assert {path.parent for path in found} == {ROOT / "__torchprof__"}
    assert len({path.name for path in found}) == len(found)
    assert max(len(path.name.encode()) for path in found) < 240
    assert all(path.name.isprintable() and not path.name.startswith(".") for path in found)


@given(name=st.text(min_size=1).filter(lambda text: "/" not in text and "\0" not in text and text not in {".", ".."}))
def test_no_name_or_slug_leaves_the_folder(name):
    assert baseline_path(ROOT / name, ROOT, name, None).parent == ROOT / "__torchprof__"
    assert baseline_path(ROOT / name, ROOT, f"../{name}/..", Path("/kept")).parent == Path("/kept")


@pytest.mark.parametrize(
    ("environment", "slug"),
    [
        ({"gpu": "NVIDIA H200", "compute_capability": "9.0"}, "nvidia-h200-sm90"),
        ({"gpu": "NVIDIA A100-SXM4-80GB", "compute_capability": "8.0"}, "nvidia-a100-sxm4-80gb-sm80"),
        ({"gpu": "NVIDIA GB10", "compute_capability": "12.1"}, "nvidia-gb10-sm121"),
        ({"gpu": "AMD Instinct MI300X", "compute_capability": "9.4", "rocm": "6.4"}, "amd-instinct-mi300x-gfx94"),
        ({"gpu": "AMD Instinct MI300X", "gcn_arch": "gfx942:sramecc+:xnack-"}, "amd-instinct-mi300x-gfx942"),
        ({"gpu": "NVIDIA H200"}, "nvidia-h200"),
        ({"gpu": None, "platform": "Linux-x86_64"}, "cpu-x86_64"),
        ({"gpu": None, "platform": "Darwin-arm64"}, "cpu-aarch64"),
        ({"gpu": None, "platform": "Windows-AMD64"}, "cpu-x86_64"),
    ],
)
def test_a_device_is_its_product_name_with_the_full_compute_capability(environment, slug):
    assert device_slug(Environment(**environment)) == slug


def test_a_recording_that_does_not_tell_its_machine_is_taken_for_this_one():
    assert device_slug(Environment()).startswith("cpu-")


def test_device_names_are_no_paths_and_short():
    slug = device_slug(Environment(gpu="../../" + "x" * 300, compute_capability="9.0"))
    assert "/" not in slug
    assert "." not in slug
    assert len(slug) < 100
    assert slug != device_slug(Environment(gpu="../../" + "x" * 301, compute_capability="9.0"))
