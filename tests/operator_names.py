"""The operators that the package knows without torch, with those of the installed one: ``python tests/operator_names.py``."""

from __future__ import annotations

from pathlib import Path

import torch

from pytest_torchprof.kernels import operator_names

FILE = Path(operator_names.__file__).with_name("operators.txt")

if __name__ == "__main__":
    assert torch.distributed.is_available(), "a build with all of torch's own libraries"
    known = set(FILE.read_text(encoding="ascii").split()) if FILE.exists() else set()
    known -= {schema.name for schema in torch._C._jit_get_all_schemas()}
    FILE.write_text("\n".join(sorted(known | operator_names.registered())) + "\n", encoding="ascii")
