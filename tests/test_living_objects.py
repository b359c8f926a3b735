"""Objects that nobody keeps a list of are found where gc.freeze() hides them, and nothing is kept alive by looking."""

from __future__ import annotations

import fresh
import pytest

pytestmark = pytest.mark.any_torch

BEGIN = """
import contextvars, gc, kept, sys, threading, weakref
from pytest_torchprof.capture.living_objects import living_holders

gc.get_freeze_count = kept.count
gc.disable()

class Held:
    pass

def count():
    return len(living_holders(Held, Held))
"""
CASES = {
    "of a module": "module_s = Held(); gc.freeze(); assert count() == 1",
    "of a function that runs": "def f():\n own = Held(); gc.freeze(); assert count() == 1\nf()",
    "of another thread": (
        "go, done = threading.Event(), threading.Event()\n"
        "def f():\n own = Held(); go.set(); done.wait()\n"
        "thread = threading.Thread(target=f); thread.start(); go.wait(); gc.freeze(); assert count() == 1; done.set()"
    ),
    "of a context variable": "v = contextvars.ContextVar('v'); v.set(Held()); gc.freeze(); assert count() == 1",
    "of a body with a mapping of its own": (
        "class Odd:\n"
        " def __init__(self): self.d = {}\n"
        " def __getitem__(self, name): return self.d[name]\n"
        " def __setitem__(self, name, value): self.d[name] = value\n"
        "exec('own = Held(); gc.freeze(); n = count()', globals(), odd := Odd())\nassert odd.d['n'] == 1"
    ),
    "frozen since the last look": "one = Held(); gc.freeze(); count(); two = Held(); gc.freeze(); assert count() == 2",
    "not frozen": "gc.freeze(); later = Held(); assert count() == 1",
    "in a fork that begins anew": (
        "from pytest_torchprof.capture import living_objects\n"
        "gc.freeze(); sys.orig_argv = [*sys.orig_argv]; living_objects._reachable = None; later = Held(); "
        "assert count() == 1"
    ),
    "what is deleted afterwards goes": (
        "def f():\n own = Held(); gone = weakref.ref(own); gc.freeze(); assert count() == 1; del own; assert gone() is None\n"
        "f()\ndef g():\n own = Held(); count(); return weakref.ref(own)\nassert g()() is None"
    ),
    "what a user has asked for stays": "def f():\n a = 3; mine = locals(); gc.freeze(); count(); assert mine['a'] == 3\nf()",
    "nothing holds what was asked about": (
        "def f(): pass\nbefore = sys.getrefcount(f); gc.freeze(); living_holders(f, type(Held().__init__))\n"
        "assert sys.getrefcount(f) == before"
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_objects_are_found_wherever_they_are_held(case):
    done = fresh.run_code(BEGIN + CASES[case])
    assert done.returncode == 0, done.stderr
