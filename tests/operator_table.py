"""The table of torch's operators that the package brings, made from torch: ``python tests/operator_table.py``.

What is a view, pointwise or a reduction torch says itself, in an operator's schema and tags. The other families follow from
the words of its name, by the rules below. Which operators work for themselves although they call others is measured
(``--measure``, some minutes): torch's own tests of all operators run under the profiler.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path
from textwrap import fill

import operator_shares
import torch

from pytest_torchprof.devices import cpu_operators
from pytest_torchprof.kernels.names.operators import canonical

FILE = Path(cpu_operators.__file__)
SPACES = ("aten", "mkldnn", "mkldnn_prepacked", "onednn", "quantized", "sparse", "mkl")
SEVERAL = "several"
# The first rule that a name fits decides, before what torch's tags say.
RULES = {
    "other": r"linalg_(?:check_errors|vander)|fft_.*|thnn_(?:fused|diff).*|lu_unpack|i?stft|coalesce|validate_.*",
    # Recurrent layers, and whatever solves or factors in blocks, with LAPACK or without.
    SEVERAL: r"linalg_(?!vecdot|multi_dot|matmul|vector_norm|norm|matrix_norm|_powsum|cross|diagonal).*"
    r"|(?:lstm|gru|rnn|quantized_(?:lstm|gru|rnn)|mkldnn_rnn).*|lu_.*|cholesky.*|svd|qr|geqrf|orgqr|ormqr"
    r"|triangular_solve|matrix_exp.*|spsolve",
    "": r".*(?:prepack|unpack|_pack_|pack_gemm|quantize_weight|choose_qparams|test_|cudnn|miopen|mps|sdp_choice).*"
    r"|is_.*|sorted|size_.*",
    "attention": r".*(?:attention|multi_head).*",
    "conv": r"(?!.*reorder).*conv(?!ert).*",
    "softmax": r".*softmax.*",
    "normalization": r".*(?:(?:batch|layer|group|instance|rms|weight)_?norm|renorm).*",
    "optimizer": r"fused_(?:adam|adamw|sgd|adagrad)",
    "gemm": r"(?!reorder)(?:.*_)?(?:mm|bmm|addmm|baddbmm|addbmm|hspmm|smm|sspaddmm|mv|addmv|addr|ger|outer|inner|dot|vdot|vecdot"
    r"|matmul|q?linear|bilinear|trilinear)(?:_.*)?",
    "sort": r".*(?:sort|topk|kthvalue|unique|searchsorted|bucketize).*",
    "reduction": r".*_pool(?:\d|_).*|max_unpool.*|(?:.*_)?(?:cum(?:sum|prod|max|min)|logcumsumexp|median|mode|nanmedian"
    r"|bincount|hist\w*|c?dist|pdist|trace|norm)(?:_.*)?|equal|count_nonzero|(?:nll|ctc)_loss.*|.*_loss(?:2d.*)?"
    r"|segment_reduce.*|binary_cross_entropy|.*_loss_forward|powsum|sparse_(?:csr_)?(?:sum|prod).*|hash_tensor",
    "index": r"(?:.*_)?(?:index|gather|scatter|embedding|take|put|nonzero|masked_select|sparse_mask)(?:_.*)?"
    r"|(?:select|slice|diagonal|as_strided)_scatter|isin|convert_indices.*",
    "copy": r"(?:to_)?copy|copy_.*|.*_copy|clone|contiguous|cat|cat_relu|stack|chunk_cat|concat\w*|repeat\w*|tile|flip|roll"
    r"|rot90|.*_pad_?\d?(?:d|nd).*|.*_padded_.*|im2col|col2im|unfold_backward|pixel_\w+|.*channel_shuffle|block_diag"
    r"|diag_embed|(?:select|slice|diagonal)_backward|to_(?:dense|sparse|mkldnn).*|pin_memory|int_repr|spdiags"
    r"|mkldnn_(?:reshape|transpose|reorder\w+)|reorder_.*",
    "pointwise": r"fill|zero|full|ones|zeros|arange|range|linspace|logspace|eye|tri[lu]|tri[lu]_indices|complex|polar"
    r"|glu|glu_.*|hardswish|prelu\w*|log_sigmoid.*|fill_diagonal|masked_scale|cast_.*|quantize_per.*|dequantize.*"
    r"|fake_quantize.*|fused_moving_avg_obs.*|floor_divide|q?(?:add|mul)(?:_(?:relu|out|scalar\w*))*|amp_.*"
    r"|.*_loss_backward|binary_cross_entropy_(?:backward|with_logits)|linalg_cross|hardtanh.*|threshold.*|conj_physical"
    r"|(?:bartlett|blackman|hamming|hann|kaiser)_window|relu6?|elu.*|celu|gelu.*|sigmoid|logit|.*bias_rescale_qkv"
    r"|dirichlet_grad|standard_gamma_grad|modf|.*upsample.*|grid_sampler.*",
    "rng": r"philox_.*|sobol_engine_draw",
}
TAGS = {"pointwise": "pointwise", "reduction": "reduction", "nondeterministic_seeded": "rng"}


def family(name: str, tags: dict[str, set[str]]) -> str | None:
    """Return the family of an operator, by its canonical name; None where neither torch nor a rule says it."""
    for found, rule in RULES.items():
        if re.fullmatch(rule, name):
            return found or None
    told = [TAGS[tag] for tag in TAGS if tag in tags[name]]
    if told:
        # An operator that is both (max of one tensor or two) reduces where it is a kernel of its own.
        return "reduction" if "reduction" in told else told[0]
    forward = re.sub(r"_(?:backward|forward|jvp|functional)$", "", name)
    return None if forward == name else family(forward, tags)


def of_torch() -> tuple[dict[str, list[str]], list[str]]:
    """Return the operators of each family, and those that are views."""
    tags: dict[str, set[str]] = defaultdict(set)
    views = set()
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space not in SPACES or not re.match(r"[a-z_]", name):
            continue
        told = torch._C._get_operation_overload(schema.name, schema.overload_name)
        found = {tag.name for tag in told[2]} if told else set()
        tags[canonical(name)] |= found
        aliases = [one.alias_info for one in schema.returns]
        if "inplace_view" in found or any(one is not None and not one.is_write for one in aliases):
            views.add(name)
    families: dict[str, list[str]] = defaultdict(list)
    for name in sorted(tags):
        if name and (found := family(name, tags)):
            families[found].append(name)
    return dict(families), sorted(views)


def measured() -> list[str]:
    """Return the operators that are not counted, although they keep much of their time for themselves."""
    found = [operator_shares.kept_by(make(), name) for name, make in operator_shares.cases().items()]
    return sorted(name.partition("::")[2] for name in operator_shares.worst(found))


def text(alone: list[str]) -> str:
    """Return the module; ``alone`` are the operators that were found to work for themselves."""
    families, views = of_torch()
    several = families.pop(SEVERAL)

    def block(words: list[str]) -> str:
        return fill(" ".join(words), 118, break_long_words=False, break_on_hyphens=False)

    rows = "".join(f'    "{name}": """\n{block(families[name])}\n""",\n' for name in sorted(families))
    return f'''"""Properties of the operators of torch {torch.__version__.partition("+")[0]}, by torch and its tests; written by ``tests/operator_table.py``."""

from __future__ import annotations

from typing import Final

TORCH: Final = "{torch.__version__.partition("+")[0]}"
FAMILIES: Final = {{
{rows}}}
"""By canonical names, without the marks of in-place, private and foreach variants."""
SEVERAL: Final = """
{block(several)}
"""
"""By the same names: operators that multiply matrices besides other work, all of which is a single event."""
VIEWS: Final = """
{block(views)}
"""
ALONE: Final = """
{block(alone)}
"""
"""Operators that spend more than a third of their time outside the operators that they call: each is one kernel."""
'''


if __name__ == "__main__":
    more = measured() if "--measure" in sys.argv[1:] else []
    FILE.write_text(text(sorted({name.rstrip("_") for name in (*cpu_operators.ALONE.split(), *more)})))
