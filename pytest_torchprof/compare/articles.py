"""The articles on changes: ``torchprof explain`` prints one, a page of messages in docs/ holds all."""

from __future__ import annotations

from inspect import cleandoc
from typing import TYPE_CHECKING, Final

from pytest_torchprof.baseline.entry import KernelRecord
from pytest_torchprof.compare.change import Change
from pytest_torchprof.compare.change_words import CATALOGUE, change_words
from pytest_torchprof.text.documentation import Article, table

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = "messages-failures"
CHAPTER: Final = "changes"
_ABOUT: Final = """
    What differs from a baseline, from another commit or from another recording is listed as changes: in a failure, in
    `torchprof diff`, on the page of a report, and in JSON, which names the kind of each. In a failure `+` is more, `-`
    is less, and `~` is a kernel in place of another.
    """
_FUSION_LOST: Final = """
    *fusion lost* stands behind a change of a kernel that carried several operators, which several kernels carry now.
    Those are `added`, `changed` or have a higher `count`. `torchprof explain graph-break` and
    `torchprof explain unfused-pointwise` say what to do.
    """
_TITLES: Final = ("for example", "what it means", "what to do")

_ADD: Final = KernelRecord(name="aten::add", family="pointwise", dtype="fp32", op="aten::add")
_GELU: Final = KernelRecord(name="aten::gelu", family="pointwise", dtype="fp32", op="aten::gelu")
_GEMM: Final = KernelRecord(
    name="nvjet_tst_128x64_64x6_2x1_v_bz_TNT", family="gemm", dtype="bf16", layout="tn", op="aten::mm"
)
_OTHER_TILE: Final = KernelRecord(
    name="nvjet_tst_128x128_64x6_2x1_v_bz_TNT", family="gemm", dtype="bf16", layout="tn", op="aten::mm"
)
_FP32: Final = KernelRecord(name="ampere_sgemm_128x64_tn", family="gemm", dtype="fp32", layout="tn", op="aten::mm")
_FUSED: Final = KernelRecord(name="triton_poi_fused_add_gelu_0", family="pointwise")
_EXAMPLES: Final = (
    Change(kind="added", what=_ADD.short, after=(_ADD,)),
    Change(kind="removed", what=_ADD.short, before=(_ADD,)),
    Change(kind="count", what=_ADD.short, old=1, new=2, after=(_ADD,)),
    Change(kind="changed", what=_FP32.short, before=(_GEMM,), after=(_FP32,)),
    Change(kind="renamed", what=_OTHER_TILE.short, before=(_GEMM,), after=(_OTHER_TILE,)),
    Change(kind="replaced", what=_FUSED.short, before=(_ADD, _GELU), after=(_FUSED,)),
    Change(kind="reordered", what=_ADD.short, times=2),
    Change(kind="number", what="syncs", old=1, new=2),
)


def articles() -> Iterator[Article]:
    """Yield the article of all changes, then that of each kind, and that of a lost fusion."""
    rows = {change.kind: _cells(change) for change in _EXAMPLES}
    all_of_them = table(("kind", *_TITLES), [(f"`{kind}`", *cells) for kind, cells in rows.items()])
    about, lost = (("", *cleandoc(text).split("\n")) for text in (_ABOUT, _FUSION_LOST))
    yield Article(CHAPTER, PAGE, (*about, "", *all_of_them, *lost))
    # A terminal prints no title in front of the first cell.
    yield from (Article(kind, PAGE, table(("", *_TITLES), [("", *cells)])) for kind, cells in rows.items())
    yield Article("fusion-lost", PAGE, lost)


def _cells(example: Change) -> tuple[str, str, str]:
    row = CATALOGUE[example.kind]
    return f"`{change_words(example)}`", row.meaning, row.remedy
