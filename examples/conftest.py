"""What the examples share: compiling, if there is a compiler, and what takes a real GPU."""

import ctypes
import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch


@pytest.fixture
def compiled() -> Callable[..., Any]:
    """Return torch.compile, or skip: on the CPU Inductor needs a C++ compiler."""
    if not torch.cuda.is_available() and not shutil.which(os.environ.get("CXX", "g++")):
        pytest.skip("no C++ compiler: Inductor needs one (g++, or the one that CXX names) to compile for the CPU")
    return torch.compile


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known where the examples are run by themselves."""
    config.addinivalue_line("markers", "real_gpu(why): needs a real one; skipped on this project's simulated one")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what takes a real GPU before a rank is started for it, if the GPU is the one of tests/fakegpu."""
    simulated = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "fakegpu_reload")
    for item in items if simulated else ():
        if mark := item.get_closest_marker("real_gpu"):
            item.add_marker(pytest.mark.skip(reason=f"needs a real GPU: {mark.args[0]}"))
