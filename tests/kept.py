"""What is imported stays, so the garbage collector need not look through it, in tests and in their forks."""

from __future__ import annotations

import atexit
import gc

# Libraries that count what they have handed out complain of what is kept until the end.
atexit.register(gc.unfreeze)

count = gc.get_freeze_count
"""How many objects are kept."""


def keep() -> None:
    """Keep all that is there now.

    Who measures is not told: it would look through all of it, which takes a second, for code that was compiled before and that no
    test measures.
    """
    gc.collect()
    gc.freeze()
    gc.get_freeze_count = int
