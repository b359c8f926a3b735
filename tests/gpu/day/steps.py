"""What is done in the day, step by step: first what is open, and of that the most decisive."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import leaving_out
from claims import ROOT, open_steps
from questions import NEWER, QUESTIONS

HERE = Path(__file__).resolve().parent


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
    alone: bool = False
    """Whether nothing else may run on this machine meanwhile: it takes times, or looks for others on the GPU."""
    measures: bool = False
    """Whether it measures with the plugin, which holds the GPU's lock meanwhile."""
    keeps: str = ""
    """The folder of recordings in which what the plugin counts is counted by hand as well."""

    @property
    def log(self) -> str:
        """The name of its files."""
        return self.name.replace("/", "-")

    def is_asked_for(self, parts: list[str]) -> bool:
        """Whether one of the parts is this step or holds it; without parts, all are."""
        return not parts or any(self.name == part or self.name.startswith(f"{part}/") for part in parts)

    @property
    def tells(self) -> bool:
        """Whether it is a run of pytest's, which tells what each of its tests says."""
        return "told" in self.python

    @property
    def is_open(self) -> bool:
        """Whether docs/gpu-checks.md waits for what it says."""
        return any(self.is_asked_for([name]) for name in open_steps())


def steps(*, quick: bool) -> list[Step]:
    """Return all steps in their order: what device this is, then what one GPU has yet to say, then the rest."""
    (versions, *questions) = _questions(quick=quick)
    rest = [
        *questions,
        _models(quick=quick),
        *_doctor(quick=quick),
        *_tests(),
        _false_alarms(quick=quick),
        _examples(quick=quick),
    ]
    return [_machine(), versions, *sorted(rest, key=lambda step: not step.is_open)]


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
            question.alone,
            question.measures,
        )
        for question in QUESTIONS.values()
        for variant in question.variants
    ]


_COMMAND = "from pytest_torchprof.cli import main; raise SystemExit(main())"


def _doctor(*, quick: bool) -> list[Step]:
    return [Step("doctor", ("-c", _COMMAND, "doctor"), 10 if quick else 150, alone=True, measures=True)]


# What settles most claims, and what the others rest on.
_FIRST = ("capture", "validity", "failures", "waits", "triton", "ranges", "every_word", "findings", "explaining")
# Of times are `times` and what bounds the code of `findings`; the doctor of `doctor` looks for others on the GPU.
_ALONE = frozenset({"times", "findings", "doctor"})


def _tests() -> list[Step]:
    there = {path.stem.removeprefix("test_gpu_"): path for path in (ROOT / "tests/gpu").glob("test_gpu_*.py")}
    ordered = [*_FIRST, *sorted(there.keys() - set(_FIRST))]
    return [
        Step(
            f"tests/{name}",
            _pytest(str(there[name].relative_to(ROOT)), "-m", "gpu"),
            240,
            alone=name in _ALONE,
            measures=True,
        )
        for name in ordered
    ]


def _models(*, quick: bool) -> Step:
    some = ("-k", "streams or fp8 or llama_reads") if quick else ()
    words = _pytest("tests/gpu/day/models.py", "-m", "gpu", *some, "--torchprof-save=recordings/models")
    return Step("models", words, 240, measures=True, keeps="models")


def _examples(*, quick: bool) -> Step:
    """Return the step of the examples; their report is about times, and max-autotune chooses by them."""
    path = "examples/test_cuda_graph.py" if quick else "examples"
    words = _pytest(path, "--torchprof-save=recordings/examples", "--torchprof-report=examples.html")
    return Step("examples", words, 240, alone=True, measures=True, keeps="examples")


def _false_alarms(*, quick: bool) -> Step:
    processes, rounds = ("2", "1") if quick else ("4", "4")
    words = ("benchmarks/false_alarms.py", "--device", "cuda", "--processes", processes, "--rounds", rounds)
    return Step("benchmarks/false_alarms", words, 150, alone=True, measures=True)


def _pytest(path: str, *options: str) -> tuple[str, ...]:
    """Return the words for one run, which tells what each test says when it says it."""
    words = ("-m", "pytest", path, "-q", "-ra", "--durations=5", "-W", "default")
    return (*words, *leaving_out.words(), *options)
