"""What is done in the day, step by step, the most decisive first."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path

from questions import NEWER, QUESTIONS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


@dataclass(frozen=True)
class Step:
    """A process, and for how long it may run; its name is a path that a part of the day begins."""

    name: str
    python: tuple[str, ...]
    """Python's words."""
    limit_s: int
    environment: dict[str, str] = field(default_factory=dict)
    asks: str = ""
    needs_cupti: bool = False
    """Whether a CUPTI newer than torch's own, which was brought along, takes its place."""

    @property
    def log(self) -> str:
        """The name of its files."""
        return self.name.replace("/", "-")

    def is_asked_for(self, parts: list[str]) -> bool:
        """Whether one of the parts is this step or holds it; without parts, all are."""
        return not parts or any(self.name == part or self.name.startswith(f"{part}/") for part in parts)


def steps(*, quick: bool) -> list[Step]:
    """Return all steps in their order."""
    return [_machine(), *_questions(quick=quick), *_doctor(quick=quick), *_tests(), _examples(quick=quick)]


_MACHINE = """
import os, platform, shutil, subprocess
print(platform.platform(), os.cpu_count(), "CPUs", flush=True)
for words in (["nvidia-smi"], ["nvidia-smi", "-q"], ["free", "-g"], ["df", "-h"]):
    if shutil.which(words[0]):
        print("$", *words, flush=True)
        subprocess.run(words)
from importlib.metadata import distributions
found = {}
for one in distributions():
    found.setdefault(one.name, one.version)  # the first one is what is imported
print(*sorted(f"{name}=={version}" for name, version in found.items()), sep="\\n")
"""


def _machine() -> Step:
    return Step("machine", ("-c", _MACHINE), 45)


def _questions(*, quick: bool) -> list[Step]:
    options = ["--quick"] if quick else []
    return [
        Step(
            "/".join(filter(None, ("questions", question.name, variant.replace(" ", "-")))),
            (str(HERE / "questions.py"), question.name, variant, *options),
            question.limit_s,
            question.environments.get(variant, {}),
            question.asks,
            variant == NEWER,
        )
        for question in QUESTIONS.values()
        for variant in question.variants
    ]


_COMMAND = "from pytest_torchprof.cli import main; raise SystemExit(main())"


def _doctor(*, quick: bool) -> list[Step]:
    return [Step("doctor", ("-c", _COMMAND, "doctor"), 10 if quick else 150)]


# What settles most claims, and what the others rest on.
_FIRST = ("capture", "validity", "failures", "waits", "triton", "ranges", "every_word", "findings", "explaining")


def _tests() -> list[Step]:
    there = {path.stem.removeprefix("test_gpu_"): path for path in (ROOT / "tests/gpu").glob("test_gpu_*.py")}
    ordered = [*_FIRST, *sorted(there.keys() - set(_FIRST))]
    return [
        Step(f"tests/{name}", _pytest(str(there[name].relative_to(ROOT)), f"tests-{name}", "-m", "gpu"), 240)
        for name in ordered
    ]


def _examples(*, quick: bool) -> Step:
    path = "examples/test_cuda_graph.py" if quick else "examples"
    saved = ("--torchprof-save=recordings/examples", "--torchprof-report=examples.html")
    return Step("examples", _pytest(path, "examples", *saved), 240)


def _pytest(path: str, log: str, *options: str) -> tuple[str, ...]:
    """Return the words for one run; plugins that happen to be installed, and what they warn of, have no part in it."""
    wanted = {"torchprof", "xdist", "xdist.looponfail"}
    others = sorted({one.name for one in entry_points(group="pytest11")} - wanted)
    unloaded = (word for name in (*others, "cacheprovider") for word in ("-p", f"no:{name}"))
    words = ("-m", "pytest", path, "-q", "-ra", "--durations=5", "-W", "default", f"--junitxml=logs/{log}.xml")
    return (*words, *unloaded, *options)
