"""Faults of the device and its driver: torch meets them as it would meet the real ones."""

from __future__ import annotations

import ctypes

import pytest
import torch

pytestmark = pytest.mark.simulated_gpu

OK, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, INSUFFICIENT_SIZE, GPU_IS_LOST = 0, 3, 4, 6, 7, 15

WRONG = """
    def wrong(body):
        try:
            body()
            torch.cuda.synchronize()
        except (RuntimeError, AssertionError) as error:
            return f"{type(error).__name__}: {error}".splitlines()[0]
        return None

    def some():
        torch.ones(8, device="cuda").sin()
"""


def test_a_kernel_breaks_the_context_for_good(process):
    said = process(
        WRONG,
        """
        before = wrong(some)
        x = torch.ones(8, device="cuda")
        print(json.dumps([before, wrong(lambda: x.cos()), wrong(some), wrong(lambda: x.cpu())]))
        """,
        FAIL_KERNEL="cos_kernel",
    )
    assert said[0] is None
    assert all("illegal memory access" in one for one in said[1:])


def test_the_kernel_that_fails_can_be_a_later_one(process):
    said = process(
        WRONG,
        """
        x = torch.ones(8, device="cuda")
        print(json.dumps([wrong(lambda: x.cos()) for _ in range(3)]))
        """,
        FAIL_KERNEL="cos_kernel:2",
        FAIL_CODE=719,
    )
    assert said[0] is None
    assert all("unspecified launch failure" in one for one in said[1:])


def test_a_small_device_runs_out_of_memory_in_the_middle_and_goes_on(process):
    said = process(
        WRONG,
        """
        big = lambda: torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
        print(json.dumps([wrong(some), wrong(big), wrong(some)]))
        """,
        MEM_GB=0.25,
    )
    assert (said[0], said[2]) == (None, None)
    assert "out of memory" in said[1]


def test_a_device_vanishes(process):
    said = process(
        WRONG,
        """
        import ctypes
        nvml, handle = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
        ask = lambda: nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
        x = torch.ones(8, device="cuda")
        there = [wrong(lambda: x.sin()), ask()]
        for _ in range(20):
            wrong(lambda: x.sin())
        count = ctypes.c_int()
        code = ctypes.CDLL(None).cudaGetDeviceCount(ctypes.byref(count))
        print(json.dumps([there, wrong(lambda: x.sin()), code, count.value, ask()]))
        """,
        LOST_AFTER=10,
        COUNT=1,
    )
    there, error, code, count, nvml = said
    assert there == [None, OK]
    assert "busy or unavailable" in error
    assert (code, count, nvml) == (0, 1, GPU_IS_LOST)


SEEN = """
    import warnings
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        seen = torch.cuda.is_available()
    print(json.dumps([seen, torch.cuda.device_count() if seen else 0, wrong(some), *(str(one.message) for one in told)]))
"""


def test_no_device_is_left(process):
    seen, count, error, *_ = process(WRONG, SEEN, COUNT=0)
    assert (seen, count) == (False, 0)
    assert "no CUDA-capable device" in error or "No CUDA GPUs" in error


@pytest.mark.parametrize(
    ("code", "text"), [(35, "driver"), (802, "system not yet initialized"), (999, "unknown error")]
)
def test_a_driver_that_does_not_fit_shows_no_device(process, code, text):
    seen, count, *told = process(WRONG, SEEN, INIT_ERROR=code)
    assert (seen, count) == (False, 0)
    assert any(text in one for one in told)


@pytest.mark.parametrize(("code", "text"), [(46, "busy or unavailable"), (2, "out of memory"), (214, "ECC")])
def test_a_device_that_is_there_refuses_a_context(process, code, text):
    seen, count, error = process(WRONG, SEEN, INIT_ERROR=code)
    assert (seen, count > 0) == (True, True)
    assert text in error


# ----------------------------------------------------------------------------------------------------------------------
# NVML


@pytest.fixture
def nvml():
    return lambda: ctypes.CDLL("libnvidia-ml.so.1")


def handle_of(library, uuid):
    handle = ctypes.c_void_p()
    code = library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle))
    return code, handle


def running(library, handle, name="nvmlDeviceGetComputeRunningProcesses_v3"):
    count = ctypes.c_uint(0)
    return getattr(library, name)(handle, ctypes.byref(count), None), count.value


def test_the_device_of_torch_is_that_of_nvml_and_this_process_uses_it(nvml):
    torch.ones(1, device="cuda")
    code, handle = handle_of(nvml(), f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    assert code == OK
    assert running(nvml(), handle)[0] == INSUFFICIENT_SIZE
    assert running(nvml(), handle)[1] >= 1


def test_nvml_is_absent(nvml, fault):
    fault(NVML="absent")
    with pytest.raises(OSError, match=r"libnvidia-ml\.so\.1: cannot open shared object file"):
        nvml()


def test_an_old_nvml_lacks_what_came_later(nvml, fault):
    fault(NVML="old")
    assert not hasattr(nvml(), "nvmlDeviceGetComputeRunningProcesses_v3")
    assert hasattr(nvml(), "nvmlDeviceGetComputeRunningProcesses")
    assert hasattr(nvml(), "nvmlDeviceGetCurrentClocksThrottleReasons")


def test_a_new_nvml_lacks_what_was_dropped(nvml, fault):
    fault(NVML="new")
    assert not hasattr(nvml(), "nvmlDeviceGetCurrentClocksThrottleReasons")
    assert hasattr(nvml(), "nvmlDeviceGetCurrentClocksEventReasons")


def test_nvml_refuses_one_question_or_all(nvml, fault):
    fault(NVML_ERROR=f"nvmlDeviceGetComputeRunningProcesses_v3:{NO_PERMISSION}")
    assert running(nvml(), ctypes.c_void_p(1))[0] == NO_PERMISSION
    assert nvml().nvmlInit_v2() == OK
    fault(NVML_ERROR="18")
    assert nvml().nvmlInit_v2() == 18


def test_nvml_lists_other_processes_or_none_at_all(nvml, fault):
    torch.ones(1, device="cuda")
    before = running(nvml(), ctypes.c_void_p(1))[1]
    fault(NVML_PROCESSES="2")
    assert running(nvml(), ctypes.c_void_p(1))[1] == before + 2
    fault(NVML_PROCESSES="none")
    assert running(nvml(), ctypes.c_void_p(1)) == (OK, 0)


def test_nvml_tells_what_slows_the_clocks(nvml, fault):
    fault(NVML_THROTTLE="0x24")
    reasons = ctypes.c_ulonglong()
    assert nvml().nvmlDeviceGetCurrentClocksEventReasons(ctypes.c_void_p(1), ctypes.byref(reasons)) == OK
    assert reasons.value == 0x24


def test_a_slice_of_a_device_is_named_mig_and_tells_no_clocks(process):
    said = process(
        """
        import ctypes
        nvml, handle, mhz = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), ctypes.c_uint()
        p = torch.cuda.get_device_properties(0)
        found = [
            nvml.nvmlDeviceGetHandleByUUID(f"{kind}-{p.uuid}".encode(), ctypes.byref(handle)) for kind in ("GPU", "MIG")
        ]
        print(json.dumps([p.name, found, nvml.nvmlDeviceGetClockInfo(handle, 1, ctypes.byref(mhz))]))
        """,
        MIG=1,
    )
    assert said == ["NVIDIA H100 80GB HBM3 MIG 1g.10gb", [NOT_FOUND, OK], NOT_SUPPORTED]
