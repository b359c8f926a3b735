"""Fresh processes of the tests have at hand what takes long to import, and are told what Python would tell them."""

from __future__ import annotations

import os
import subprocess
import sys

import fresh
import pytest

pytestmark = pytest.mark.any_torch

SCRIPT = """
import json, os, sys
main = sys.modules["__main__"]
print(json.dumps([sys.argv, sys.path[0], os.getcwd(), __name__, __file__, __spec__, vars(main) is globals()]))
"""


def test_a_fork_has_at_hand_what_takes_long_to_import():
    """A server of forks goes on without what it could not import, and each fork would import torch again."""
    assert fresh.run_code("import sys; print('preloaded' in sys.modules)").stdout == "True\n"


def test_a_script_is_told_in_a_fork_what_python_tells_it(tmp_path):
    (folder := tmp_path / "scripts").mkdir()
    (folder / "script.py").write_text(SCRIPT)
    words = ("scripts/script.py", "-c", "3")
    by_python = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert fresh.run_python(*words, folder=tmp_path, environment=os.environ).stdout == by_python.stdout
