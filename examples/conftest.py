"""What the examples share: compiling, if there is a compiler."""

import os
import shutil
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
