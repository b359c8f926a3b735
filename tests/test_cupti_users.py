"""Who else may hold CUPTI: ``torchprof doctor`` names what is loaded as soon as Python starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys

COMMAND = [sys.executable, "-c", "from pytest_torchprof.cli import main; raise SystemExit(main())", "doctor", "--json"]


NAMES = {"jaxlib": "JAX (jax.profiler)", "triton.profiler": "Proton (triton.profiler)"}


def test_the_doctor_names_them(tmp_path):
    loaded = "".join(f"sys.modules[{module!r}] = types.ModuleType('it')\n" for module in NAMES)
    (tmp_path / "sitecustomize.py").write_text(f"import sys, types\n{loaded}")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "KINETO_USE_DAEMON": "1"}
    done = subprocess.run(COMMAND, env=environ, capture_output=True, text=True, timeout=500, check=False)
    said = [one["text"] for one in json.loads(done.stdout)["answers"] if one["check"] == "environment"]
    for name in NAMES.values():
        assert f"{name} is loaded as soon as Python starts, and CUPTI serves one profiler at a time" in said
    assert any(text.startswith("KINETO_USE_DAEMON=1: a daemon, such as dynolog,") for text in said)
