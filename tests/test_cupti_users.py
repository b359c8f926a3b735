"""Who else may hold CUPTI: ``torchprof doctor`` names what is loaded as soon as Python starts."""

from __future__ import annotations

import re
from importlib.util import find_spec

import fresh
import pytest
import torch
from builder import own_recording

from pytest_torchprof.reasons.capturing import NothingHeld
from pytest_torchprof.reasons.catalogue import from_plain
from pytest_torchprof.reasons.composed import CuptiUser, WithOthersInCupti

LOOK = """
from pytest_torchprof.cli.doctor_checks import CHECKS, answers
for answer in answers(check for check in CHECKS if check.name == "environment"):
    print(answer.text)
"""

NAMES = {
    "jaxlib": CuptiUser.JAX,
    "triton.profiler": CuptiUser.PROTON,
    "torch.profiler._cuspy.core": CuptiUser.CUSPY,
}


def test_the_doctor_names_them():
    loaded = "".join(f"sys.modules[{module!r}] = types.ModuleType('it')\n" for module in NAMES)
    said = fresh.run_code(f"import sys, types\n{loaded}{LOOK}").stdout.splitlines()
    for name in NAMES.values():
        assert any(f"{name} is loaded as soon as Python starts" in text for text in said)


@pytest.mark.parametrize("user", CuptiUser)
def test_a_reason_of_an_earlier_version_names_them_in_words(user):
    reason = WithOthersInCupti(NothingHeld(), (CuptiUser.JAX, user))
    assert from_plain({**reason.to_plain(), "users": [str(CuptiUser.JAX), str(user)]}) == reason


def test_the_doctor_names_a_daemon_that_may_start_profilers():
    # In a fork: when it is imported, Kineto waits for a daemon that is not there.
    said = fresh.run_code(LOOK, KINETO_USE_DAEMON="1").stdout
    assert said.startswith("KINETO_USE_DAEMON=1: ")
    assert "dynolog" in said


@pytest.mark.parametrize(("version", "module"), [("2.13.", "_cupti_monitor"), ("2.15.", "_cuspy.core")])
def test_torchs_own_monitor_is_the_module_that_is_looked_for(version, module):
    if not torch.__version__.startswith(version):
        pytest.skip(f"needs torch {version}*")
    assert find_spec(f"torch.profiler.{module}") is not None
    code = f"import sys, types; sys.modules['torch.profiler.{module}'] = types.ModuleType('it')\n"
    look = "from pytest_torchprof.capture.cupti_users import loaded; print(len(loaded()))"
    assert fresh.run_code(code + look).stdout.strip() == "1"


def test_torch_alone_is_no_other_user():
    look = "import torch.profiler; from pytest_torchprof.capture.cupti_users import loaded; print(loaded())"
    assert fresh.run_code(look).stdout.strip() == "[]"


UNAVAILABLE = """
import sys

def produce(folder):
    from torch.profiler._cuspy.observers.base import CuspyObserver
    # As a profiler with CuspyConfig makes one, where cupti-python is not installed. It then exports nothing.
    sys.modules["cupti"] = None
    assert not CuspyObserver([]).available
    {also}

@cpu
def test_it(torchprof):
    torchprof.adopt(produce, timeout=0.1, files={files})

@cpu
def test_after_it(torchprof):
    torchprof.adopt(lambda folder: None, timeout=0.1)
"""
RECORDS = "__import__('shutil').copy({recording!r}, folder)"


@pytest.mark.skipif(torch.__version__ < (2, 15), reason="has no CuspyConfig")
@pytest.mark.parametrize("files", [1, 2])
def test_a_recording_that_torchs_own_monitor_did_not_make_is_told_with_why(run_tests, tmp_path, files):
    recording = own_recording({"k": 2}).write(tmp_path / "t.json")
    also = RECORDS.format(recording=str(recording)) if files == 2 else ""
    result = run_tests(UNAVAILABLE.format(also=also, files=files), "-rN", in_process=False)
    result.assert_outcomes(failed=2)
    text = " ".join(result.stdout.str().split())
    there = "1 recording is there" if files == 2 else "0 recordings are there"
    (why,) = re.findall(rf"\(CuspyConfig\) could not register \((.*?)\), and .*? export: {there} after 0\.1 s; ", text)
    assert re.fullmatch(r"(No module named|import of) .*(numpy|cupti).*", why)
    # What came before is not blamed for what is missing later.
    assert "no recording (.json or .json.gz) was left there" in text
