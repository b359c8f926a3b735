"""What pytest's runs of the day are told of plugins: what happens to be installed has no part in them."""

from __future__ import annotations

from importlib.metadata import entry_points

_WANTED = {"torchprof", "xdist", "xdist.looponfail"}


def words() -> tuple[str, ...]:
    """Return the options that load no other plugins, and the one that tells what each test says."""
    others = sorted({one.name for one in entry_points(group="pytest11")} - _WANTED)
    return (*(word for name in (*others, "cacheprovider") for word in ("-p", f"no:{name}")), "-p", "told")
