"""A recording that was edited says so where it is judged; older ones, which have no digest, say nothing."""

from __future__ import annotations

import gzip
import json

import pytest
from builder import own_recording

from pytest_torchprof.cli import main

pytestmark = pytest.mark.any_torch

TEST = """
import pytest, torch

@pytest.mark.torchprof(device="cpu", steps=2, max_kernels=2)
def test_sin():
    torch.ones(8).sin()
"""
WARNING = "was changed since it was recorded"


@pytest.fixture
def saved(pytester):
    """Return the recording of a test, and what judges it: a replay's output."""
    pytester.makepyfile(test_it=TEST)
    pytester.runpytest("--torchprof-save=kept")
    (path,) = (pytester.path / "kept").iterdir()
    return path, lambda *options: pytester.runpytest("--torchprof-replay=kept", "-Walways", *options)


def rewrite(path, change):
    path.write_bytes(gzip.compress(change(gzip.decompress(path.read_bytes()))))


def check(path):
    return main(["check", str(path), "--limit", "max_kernels=5"])


def test_what_was_recorded_says_nothing(saved, capsys):
    path, replay = saved
    assert check(path) == 0
    assert capsys.readouterr().err == ""
    assert WARNING not in replay().stdout.str()


def test_packing_it_again_or_not_at_all_changes_nothing(saved, capsys):
    path, _ = saved
    text = gzip.decompress(path.read_bytes())
    plain = path.with_name("plain.json")
    plain.write_bytes(text)
    parts = path.with_name("parts.json.gz")
    parts.write_bytes(gzip.compress(text[:1000]) + gzip.compress(text[1000:]))
    rewrite(path, bytes)
    for file in (path, plain, parts):
        assert check(file) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"aten::sin", b"aten::cos"),
        lambda text: text.replace(b'"warmup":3', b'"warmup":4'),
        lambda text: json.dumps(json.loads(text)).encode(),
        lambda text: text.replace(b'"digest":[', b'"digest":[1'),
    ],
)
@pytest.mark.parametrize("packed", [True, False])
def test_what_was_edited_is_told_and_judged_all_the_same(saved, capsys, change, packed):
    path, replay = saved
    rewrite(path, change)
    if not packed:
        plain = path.with_name(path.name.removesuffix(".gz"))
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
        path = plain
    assert check(path) == 0
    assert capsys.readouterr().err == f"torchprof check: warning: {path} {WARNING}\n"
    result = replay()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"*TorchprofWarning: *{path.name} {WARNING}"])
    replay("-Werror").assert_outcomes(passed=1)


def test_one_without_a_digest_says_nothing(saved, tmp_path, capsys):
    path, _ = saved

    def without(text):
        document = json.loads(text)
        del document["torchprof"]["digest"]
        return json.dumps(document).encode()

    rewrite(path, without)
    assert check(path) == 0
    assert check(own_recording({"k": 1}).write(tmp_path / "t.json.gz")) == 0
    assert capsys.readouterr().err == ""
