"""Which limits on kernels are not measured, and by which kernels: on recordings, and on models of transformers.

``python benchmarks/not_known.py FOLDER`` asks each recording in a folder for the families that limits are mostly about;
``--models`` measures small models instead, made from their configurations, on the CPU. A limit counts that is not
measured because a kernel's family is not known, whatever else the recording lacks.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pytest_torchprof import TorchprofError, attention, communication, conv, family, gemm, load, profile
from pytest_torchprof.kernels.reply import ask
from pytest_torchprof.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_torchprof import Profile
    from pytest_torchprof.kernels.kernel import Kernel

QUESTIONS = {
    "gemm": gemm(),
    "conv": conv(),
    "attention": attention(),
    "communication": communication(),
    "pointwise": family("pointwise"),
    "reduction": family("reduction"),
    "normalization": family("normalization"),
    "softmax": family("softmax"),
    "copy": family("copy"),
}
"""What tests forbid, count, or allow alone."""
MODELS = [
    "albert",
    "bert",
    "big_bird",
    "bigbird_pegasus",
    "biogpt",
    "blenderbot",
    "bloom",
    "camembert",
    "convbert",
    "convnext",
    "ctrl",
    "data2vec-text",
    "deberta",
    "deberta-v2",
    "dinov2",
    "distilbert",
    "electra",
    "ernie",
    "esm",
    "falcon",
    "flaubert",
    "fnet",
    "funnel",
    "gemma",
    "gemma2",
    "gpt2",
    "gpt_bigcode",
    "gpt_neo",
    "gpt_neox",
    "gptj",
    "layoutlm",
    "led",
    "llama",
    "lxmert",
    "mamba",
    "marian",
    "mistral",
    "mixtral",
    "mobilebert",
    "mpnet",
    "mpt",
    "nystromformer",
    "olmo",
    "olmo2",
    "opt",
    "phi",
    "pythia",
    "qwen2",
    "qwen3",
    "rembert",
    "resnet",
    "roberta",
    "roformer",
    "stablelm",
    "starcoder2",
    "swin",
    "t5",
    "vit",
    "xglm",
    "xlm-roberta",
    "xlnet",
    "yoso",
]
SMALL = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embedding_size", "d_embed"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "num_key_value_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "d_ff", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "hidden_dim"), 128),
    "vocab_size": 128,
    "head_dim": 16,
    "image_size": 32,
    "patch_size": 8,
}


def not_known(found_in: Profile) -> dict[str, Counter[str]]:
    """Return by question the kernels whose family does not tell, by their names as tables show them."""
    kernels = [kernel for step in found_in.steps for kernel in step.kernels if kernel.family is None]
    found = {name: ask(kernels, question.verdict).not_known for name, question in QUESTIONS.items()}
    return {name: Counter(map(_shown, unknown)) for name, unknown in found.items() if unknown}


def _shown(kernel: Kernel) -> str:
    return kernel.decoded.short or kernel.name[:60]


def _told(title: str, found: dict[str, Counter[str]], total: int) -> Iterator[str]:
    if not found:
        return
    yield f"{title} ({counted(total, 'kernel')}): {', '.join(found)}"
    names = Counter[str]()
    for counts in found.values():
        names |= counts
    yield from (f"    {count:>5} x {name}" for name, count in names.most_common(8))


def recordings(folder: Path) -> Iterator[tuple[str, Profile]]:
    """Yield the recordings of a folder by name."""
    for path in sorted(folder.glob("*.json*")):
        try:
            found = load(path)
        except TorchprofError:
            continue
        yield path.name.partition(".")[0], found


def models(names: Iterable[str]) -> Iterator[tuple[str, Profile]]:
    """Yield a profile of one forward pass of each model that can be made small and needs nothing but ids or pixels."""
    for name in names:
        try:
            call = _model(name)
            with torch.no_grad():
                yield name, profile(call, device="cpu", warmup=1, steps=1)
        except Exception as problem:  # noqa: BLE001 - of sixty models some need more than a small configuration
            print(f"{name}: left out: {type(problem).__name__}: {str(problem).splitlines()[0][:90]}")


def _model(name: str) -> Callable[[], object]:
    transformers: Any = import_module("transformers")  # Recordings are read without it.
    transformers.logging.set_verbosity_error()
    made = transformers.CONFIG_MAPPING[name]()
    config = transformers.CONFIG_MAPPING[name](**{word: value for word, value in SMALL.items() if hasattr(made, word)})
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config).eval()
    given = {"input_ids": torch.randint(2, 100, (1, 16))}
    if model.main_input_name == "pixel_values":
        given = {"pixel_values": torch.randn(1, 3, 32, 32)}
    elif getattr(config, "is_encoder_decoder", False):
        given["decoder_input_ids"] = given["input_ids"]
    return lambda: model(**given)


def main() -> None:
    """Print for each recording or model the limits that are not measured, and a sum."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--models", nargs="*", metavar="NAME", help="model types of transformers; all below by default")
    words = parser.parse_args()
    warnings.simplefilter("ignore")
    each = recordings(words.folder) if words.folder is not None else models(words.models or MODELS)
    asked = open_questions = touched = count = 0
    for title, measured in each:
        total = sum(len(step.kernels) for step in measured.steps)
        if not total:
            continue
        found = not_known(measured)
        count += 1
        asked += len(QUESTIONS)
        open_questions += len(found)
        touched += bool(found)
        print(*_told(title, found, total), sep="\n", end="\n" if found else "")
    print(f"{open_questions} of {asked} limits are not measured, in {touched} of {count} recordings")


if __name__ == "__main__":
    main()
