"""What NVML tells, asked of drivers built for it: what a driver does not tell is not known, and never "undisturbed"."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import fresh
import pytest
from msgspec import convert

from pytest_torchprof.reasons.disturbances import (
    AnyDisturbance,
    Brake,
    NothingKnown,
    OthersUnknown,
    SlowdownUnknown,
    SlowedDown,
    UsedByOthers,
)
from pytest_torchprof.reasons.nvml_silence import AskerNotListed, QuestionRefused, QuestionUnknown

COMPILER = shutil.which(os.environ.get("CC", "gcc"))
pytestmark = [
    pytest.mark.any_torch,
    pytest.mark.skipif(COMPILER is None, reason="needs a C compiler, to build a driver's library"),
    pytest.mark.skipif(sys.platform != "linux", reason="the library is a Linux one"),
]
UUID = "GPU-11111111-2222-3333-4444-555555555555"
ONLY_COUNTED = (Brake.BOARD_LIMIT, Brake.RELIABILITY_LIMIT)

# The least that every driver has: one board, of which the handle is 1.
BASE = """
#include <string.h>
#include <unistd.h>
typedef unsigned long long u64;
typedef struct { unsigned pid; u64 used; unsigned gi, ci; } Process;
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
const char* nvmlErrorString(int code) { return code == 3 ? "Not Supported" : code == 4 ? "Insufficient Permissions" : "Other"; }
int nvmlSystemGetDriverVersion(char* text, unsigned room) { strncpy(text, "570.86.15", room); return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  if (strcmp(uuid, KNOWN)) return 6;
  *handle = (void*)HANDLE;
  return 0;
}
"""
CLOCKS = """
int nvmlDeviceGetClockInfo(void* board, unsigned kind, unsigned* mhz) { if (board != (void*)1) return 2; *mhz = 1000 + kind; return 0; }
int nvmlDeviceGetMaxClockInfo(void* board, unsigned kind, unsigned* mhz) { if (board != (void*)1) return 2; *mhz = 2000 + kind; return 0; }
"""
REASONS = """
int nvmlDeviceGetCurrentClocksEventReasons(void* board, u64* bits) { if (board != (void*)1) return 2; *bits = %s; return 0; }
"""
HELD_BACK = """
int nvmlDeviceGetViolationStatus(void* board, unsigned policy, u64* found) {
  static u64 asked; found[0] = 1; found[1] = policy == %s ? ++asked : 7; return 0;
}
"""
PROCESSES = """
int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, Process* found) {
  unsigned room = *count, pids[] = {%s};
  *count = sizeof pids / sizeof *pids;
  if (handle != (void*)HANDLE) return 4;
  if (room < *count) return 7;
  for (unsigned i = 0; i < *count; i++) found[i].pid = pids[i];
  return 0;
}
"""
QUIET = BASE + CLOCKS + REASONS % "1" + HELD_BACK % "99" + PROCESSES % "getpid()"
REFUSED = "int {}(void) {{ return 3; }}\n"

ASK = """
import ctypes, json, sys
import pynvml
from pytest_torchprof.capture import nvml
library, uuid, *removed = sys.argv[1:]
driver = ctypes.CDLL(library)
for name in removed:
    delattr(pynvml, name)
with nvml.watched(uuid) as disturbances:
    disturbed = [fact.to_plain() for fact in disturbances()]
told = [nvml.driver_version(), nvml.clocks_mhz(uuid)]
print(json.dumps([disturbed, *map(nvml.value_or_none, told)]))
"""


@pytest.fixture
def ask(tmp_path):
    """Return a function that gives what is told with a driver's library: disturbances, driver version, clocks."""

    def ask(source, *removed, known=UUID, handle=1):
        (tmp_path / "nvml.c").write_text(source)
        library = tmp_path / "libnvidia-ml.so.1"
        defines = [f'-DKNOWN="{known}"', f"-DHANDLE={handle}L"]
        # By this name it is found, once it is loaded.
        named = ["-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-o", str(library)]
        subprocess.run([COMPILER, *defines, *named, str(tmp_path / "nvml.c")], check=True)
        done = fresh.run_code(ASK, str(library), UUID, *removed, LD_PRELOAD="")
        assert done.returncode == 0, done.stderr
        disturbed, *others = json.loads(done.stdout)
        return convert(disturbed, list[AnyDisturbance]), *others

    return ask


def test_a_gpu_of_ones_own_that_runs_at_full_speed_is_undisturbed(ask):
    disturbed, driver, clocks = ask(QUIET)
    assert disturbed == []
    assert driver == "570.86.15"
    assert (clocks["sm"], clocks["sm_max"], clocks["memory"]) == (1001, 2001, 1002)


@pytest.mark.parametrize(
    ("bits", "brakes"),
    [
        ("0x4", [Brake.POWER_LIMIT]),
        ("0x8", [Brake.HARDWARE]),
        ("0x10", [Brake.OTHER_GPUS]),
        ("0x20", [Brake.TEMPERATURE]),
        ("0x40", [Brake.HARDWARE_TEMPERATURE]),
        ("0x80", [Brake.POWER_SUPPLY]),
        ("0x84", [Brake.POWER_LIMIT, Brake.POWER_SUPPLY]),
    ],
)
def test_what_takes_speed_away_is_told(ask, bits, brakes):
    assert ask(QUIET.replace("*bits = 1", f"*bits = {bits}"))[0] == [SlowedDown(brake) for brake in brakes]


@pytest.mark.parametrize(("policy", "brake"), [("3", Brake.BOARD_LIMIT), ("5", Brake.RELIABILITY_LIMIT)])
def test_a_limit_that_is_only_counted_is_told_where_its_count_has_grown(ask, policy, brake):
    assert ask(QUIET.replace("== 99", f"== {policy}"))[0] == [SlowedDown(brake)]


def test_another_process_on_the_gpu_is_told_and_this_one_is_not(ask):
    one, two = (QUIET.replace("{getpid()}", "{" + pids + "}") for pids in ("7, getpid()", "7, getpid(), 8"))
    assert ask(one)[0] == [UsedByOthers(1)]
    assert ask(two)[0] == [UsedByOthers(2)]


@pytest.mark.parametrize("pids", ["7, 8", ""])
def test_where_this_process_is_not_in_the_list_nobody_knows_about_others(ask, pids):
    assert ask(QUIET.replace("{getpid()}", "{" + pids + "}"))[0] == [OthersUnknown(AskerNotListed())]


def test_hundreds_of_processes_are_counted(ask):
    others = ", ".join(str(70000 + i) for i in range(200))
    many = QUIET.replace("getpid()}", f"getpid(), {others}}}")
    assert ask(many)[0] == [UsedByOthers(200)]


def test_what_the_driver_does_not_support_is_not_known(ask):
    names = ("CurrentClocksEventReasons", "ViolationStatus", "ComputeRunningProcesses_v3", "ClockInfo", "MaxClockInfo")
    disturbed, _, clocks = ask(BASE + "".join(REFUSED.format(f"nvmlDeviceGet{name}") for name in names))
    assert disturbed == [
        SlowdownUnknown(QuestionRefused("nvmlDeviceGetCurrentClocksEventReasons", "Not Supported", 3)),
        SlowdownUnknown(QuestionRefused("nvmlDeviceGetViolationStatus", "Not Supported", 3), ONLY_COUNTED),
        OthersUnknown(QuestionRefused("nvmlDeviceGetComputeRunningProcesses_v3", "Not Supported", 3)),
    ]
    assert clocks is None


def test_a_driver_that_lacks_all_these_functions_raises_nothing(ask):
    disturbed, driver, clocks = ask(BASE)
    assert disturbed == [
        SlowdownUnknown(QuestionUnknown("nvmlDeviceGetCurrentClocksEventReasons")),
        SlowdownUnknown(QuestionUnknown("nvmlDeviceGetViolationStatus"), ONLY_COUNTED),
        OthersUnknown(QuestionUnknown("nvmlDeviceGetComputeRunningProcesses_v3")),
    ]
    assert (driver, clocks) == ("570.86.15", None)


def test_older_names_of_the_functions_are_asked_where_the_driver_has_no_newer(ask):
    older = QUIET.replace("ClocksEventReasons", "ClocksThrottleReasons").replace("Processes_v3", "Processes_v2")
    assert ask(older)[0] == []
    assert ask(older.replace("*bits = 1", "*bits = 4"))[0] == [SlowedDown(Brake.POWER_LIMIT)]


def test_names_that_the_bindings_have_lost_or_do_not_have_yet_are_no_error(ask):
    lost = "nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetComputeRunningProcesses_v2"
    assert ask(QUIET, *lost)[0] == []
    disturbed, _, _ = ask(BASE, *lost)
    assert disturbed[0] == SlowdownUnknown(QuestionUnknown("nvmlDeviceGetCurrentClocksEventReasons"))
    newer = "nvmlDeviceGetCurrentClocksEventReasons"
    assert ask(QUIET.replace("ClocksEventReasons", "ClocksThrottleReasons"), newer)[0] == []


# A slice has processes of its own; clocks, their reasons and limits are its board's.
SLICE = "int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* mig, void** board) { *board = (void*)1; return mig != (void*)5; }\n"


def test_a_mig_slice_is_found_by_its_uuid_and_its_board_is_asked_for_its_speed(ask):
    disturbed, _, clocks = ask(
        QUIET.replace("*bits = 1", "*bits = 4") + SLICE, known=UUID.replace("GPU", "MIG"), handle=5
    )
    assert disturbed == [SlowedDown(Brake.POWER_LIMIT)]
    assert clocks["sm"] == 1001


def test_a_gpu_that_nvml_does_not_know_is_not_known(ask):
    disturbed, _, clocks = ask(QUIET, known="GPU-another")
    assert disturbed == [NothingKnown(QuestionRefused("nvmlDeviceGetHandleByUUID", "Not Found", 6))]
    assert clocks is None


def test_a_library_that_does_not_begin_is_not_known(ask):
    disturbed, driver, clocks = ask(
        QUIET.replace(
            "int nvmlInitWithFlags(unsigned flags) { return 0; }", "int nvmlInitWithFlags(unsigned flags) { return 9; }"
        )
    )
    assert disturbed == [NothingKnown(QuestionRefused("nvmlInit", "Driver Not Loaded", 9))]
    assert (driver, clocks) == (None, None)
