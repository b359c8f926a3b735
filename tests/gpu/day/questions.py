"""What only a GPU can answer, asked of torch.profiler itself; nothing of pytest-torchprof is involved but in `tools`.

    python questions.py NAME VARIANT [--quick]    ask one, in this process; JSON lines, a sentence and its figures each

A question is a generator: what it has said stands, whatever becomes of the rest.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    Said = Iterator[tuple[str, Any]]


@dataclass(frozen=True)
class Question:
    """One question; it is asked in a process of its own for each of its variants."""

    name: str
    asks: str
    where: str
    """The module with a function of the question's name, which is given the variant and whether to be quick."""
    limit_s: int
    variants: tuple[str, ...] = ("",)
    environments: dict[str, dict[str, str]] = field(default_factory=dict)
    """What must be in the environment when a variant's process starts."""
    alone: bool = False
    """Whether what others do on this machine would change the answer: it is about times, or idle ones, or very much."""
    measures: bool = False
    """Whether it measures with the plugin, which holds the GPU's lock meanwhile."""


EXPANDABLE, ASYNC = "expandable segments", "cudaMallocAsync"
NEWER = "newer CUPTI"

# The most decisive first.
QUESTIONS = {
    question.name: question
    for question in (
        Question("versions", "Which libraries are these, and what do they write about a kernel?", "about", 60),
        Question(
            "graph_numbers",
            "Which correlation ids do the kernels of CUDA graphs have, session after session?",
            "graphs",
            90,
            ("", NEWER),
        ),
        Question(
            "first_session",
            "Are kernels seen after a first session of this kind?",
            "sessions_asked",
            60,
            ("cpu", "legacy", "empty", "for graphs", "gpu"),
        ),
        Question(
            "head", "Which kernels does a session lose, by idle time before it?", "sessions_asked", 90, alone=True
        ),
        Question(
            "driver_calls", "Does each call of the driver have its event, and its kernel or its refusal?", "calls", 60
        ),
        Question(
            "common_calls", "Which calls, waits and copies does common code make, under which operators?", "calls", 120
        ),
        Question(
            "graph_modes", "Which calls does compiled code make while its CUDA graphs come to be?", "compiled", 120
        ),
        Question("compiled_backward", "Are all kernels of a compiled backward pass in their step?", "compiled", 120),
        Question(
            "pdl", "How far do kernels overlap that are launched as dependent (launch_pdl)?", "pdl", 60, alone=True
        ),
        Question(
            "tools",
            "Under another tool, is a test measured right, or not measured?",
            "tools",
            90,
            ("ncu", "nsys", "compute-sanitizer"),
            measures=True,
        ),
        Question("threads", "Do correlation ids follow the order of the calls, over threads too?", "calls", 60),
        Question(
            "allocators",
            "Which calls do the allocators make, and are all of them told from launches?",
            "calls",
            60,
            ("", EXPANDABLE, ASYNC),
            {
                EXPANDABLE: {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
                ASYNC: {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
            },
        ),
        Question(
            "attached",
            "What do launches cost before, in and after a session?",
            "sessions_asked",
            60,
            ("", "TEARDOWN_CUPTI"),
            alone=True,
        ),
        Question("frees", "How long does memory take that goes back while the GPU is busy?", "calls", 60, alone=True),
        Question("names", "What are the kernels of products, attention, convolution and others called?", "names", 180),
        Question("spread", "How much do kernel times differ between sessions?", "sessions_asked", 60, alone=True),
        Question("clocks", "Does work begin before its launch, in a long session?", "sessions_asked", 120, alone=True),
        Question(
            "many",
            "Does a session of very many launches lose its end, and does torch say so?",
            "about",
            180,
            alone=True,
        ),
    )
}


def main(name: str, variant: str, *options: str) -> None:
    """Ask; what is raised is an answer too."""
    question = QUESTIONS[name]
    ask = getattr(import_module(question.where), name)
    for sentence, figures in ask(variant, quick="--quick" in options):
        sys.stdout.write(json.dumps({"says": sentence, "figures": figures}, default=str) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
    # Destructors that run at the end of a process may crash on a broken device, when all has been said.
    sys.stdout.flush()
    os._exit(0)
