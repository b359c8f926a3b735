"""Looks for inputs that break a promise of ``target``, guided by which lines of the package they reach.

``python tests/fuzz/fuzz_borders.py CORPUS -max_total_time=60`` takes libFuzzer's options. What it finds lies in the
current folder as ``crash-*``, ``oom-*`` or ``timeout-*``; mended, it goes to ``found/``, where an ordinary test tries it.
"""

from __future__ import annotations

import json
import random
import sys
from functools import partial
from hashlib import sha1
from importlib import import_module
from pathlib import Path

import atheris

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "pytest_torchprof"
# They import torch or pytest, and no file of somebody else's reaches them but through the others; alembic runs env.py.
NOT_REACHED = {"capture", "doctor_checks", "testing", "plugin.py", "env.py"}

with atheris.instrument_imports(include=["pytest_torchprof"]):
    sys.path[:0] = [str(HERE), str(PACKAGE.parent)]
    for source in sorted(PACKAGE.rglob("*.py")):
        place = source.relative_to(PACKAGE.parent)
        if not NOT_REACHED.intersection(place.parts) and source.name != "doctor.py":
            import_module(".".join(place.with_suffix("").parts).removesuffix(".__init__"))
    import target

WATCHED = 5
"""How many times as long everything takes where each line is watched."""
BOUNDS = ("-rss_limit_mb=1500", "-timeout=200", "-max_len=200000")
# What stands in a place of a document that it should not, or that something is made of.
VALUES = (
    *(None, True, 0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**400, 1e308, 0.1, 5e-324),
    *(
        "",
        "1",
        "-1",
        "1e999999",
        "NaN",
        "\ud800",
        "\x1b[31m\x07",
        "\u202e",
        "::error::x",
        "##[group]",
        "x" * 500,
        "../x",
    ),
    *(
        "kernel",
        "cpu_op",
        "user_annotation",
        "ProfilerStep#0",
        "cudaLaunchKernel",
        "cudaGraphLaunch",
        "aten::mm",
        "end",
    ),
    *([], [1], {}, {"a": 1}, [[]], [{}]),
)


def places(value: object) -> list[tuple[object, object]]:
    """Return every (container, key) in a document."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inside in pairs for place in ((value, key), *places(inside))]


def with_a_place_changed(document: object, rng: random.Random) -> object:
    """Change, copy or remove what is in one place of a document."""
    if not (found := places(document)):
        return rng.choice(VALUES)
    container, key = rng.choice(found)
    way = rng.randrange(4)
    if way == 0:
        del container[key]
    elif way == 1:
        source, other = rng.choice(found)
        container[key] = json.loads(json.dumps(source[other])) if other in source or isinstance(source, list) else None
    elif way == 2 and isinstance(container, list):
        container.insert(key, rng.choice(VALUES))
    else:
        container[key] = rng.choice(VALUES)
    return document


def mutate(data: bytes, most: int, seed: int) -> bytes:
    """Change the document in an input, where it is one; else, and at times, its bytes as libFuzzer does."""
    rng = random.Random(seed)
    if rng.random() < 0.6:
        try:
            changed = json.dumps(with_a_place_changed(json.loads(data[1:]), rng)).encode()
        except (ValueError, RecursionError, IndexError):
            pass
        else:
            if len(changed) < most:
                return data[:1] + changed
    return atheris.Mutate(data, most)


def main() -> None:
    corpus = next((Path(word) for word in sys.argv[1:] if not word.startswith("-")), None)
    if corpus is not None:
        corpus.mkdir(parents=True, exist_ok=True)
        for seed in target.seeds(HERE.parent):
            (corpus / sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
    atheris.Setup(
        [sys.argv[0], *BOUNDS, *sys.argv[1:]], partial(target.try_one, watched=WATCHED), custom_mutator=mutate
    )
    atheris.Fuzz()


main()
