"""What a node of a CUDA graph is annotated with in recordings of others: the scope and the modules of its capture.

torch's ``mark_kernels`` keeps one annotation of each node: of scopes inside one another, the name of the innermost.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHOUT = "without annotation (in CUDA graphs)"
"""The row of what carries none, where others do."""
_PLACE = "in CUDA graphs)"
# As Inductor calls the modules that a kernel was generated from: "L.layers.0.fc1 + L.layers.0.act".
_MODULES = re.compile(r"L(?:\.\w+)*(?: \+ L(?:\.\w+)*)*")
_BETWEEN = " + "
_OPERATOR = re.compile(r"\w+::\w+(?:\.\w+)?")


class Annotation(NamedTuple):
    """What one node carries."""

    scope: str | None
    """The name of the innermost ``mark_kernels`` around its capture."""
    modules: tuple[str, ...]
    """Paths of the modules that it was captured in, ``layers.0.attention``; several of a kernel that was fused."""
    backward: bool = False
    """Whether it is of the backward pass of what is named."""

    @property
    def range(self) -> str | None:
        """What the scope is called among ranges."""
        return None if self.scope is None else self._placed(self.scope)

    @property
    def module_rows(self) -> Iterator[tuple[str, bool]]:
        """The modules and those that hold them, and of each whether it is one of them."""
        rows: dict[str, bool] = {}
        for path in self.modules:
            parts = path.split(".")
            for length in range(1, len(parts) + 1):
                holder = ".".join(parts[:length])
                rows[holder] = rows.get(holder, False) or length == len(parts)
        return ((self._placed(name), own) for name, own in rows.items())

    @property
    def operator(self) -> str | None:
        """The operator that the scope is called after, ``aten::mm``; it is around the launch, maybe not innermost."""
        return self.scope if self.scope is not None and _OPERATOR.fullmatch(self.scope) else None

    @property
    def place(self) -> str:
        """Where it is, for people to read."""
        return _BETWEEN.join(self.modules) or self.scope or ""

    def _placed(self, name: str) -> str:
        return f"{name} ({'backward, ' * self.backward}{_PLACE}"


def is_of_graphs(row: str) -> bool:
    """Return whether a row has such a name, which no range of the CPU has."""
    return row.endswith(_PLACE)


def annotation(scope: str | None, module: str | None, *, backward: bool) -> Annotation | None:
    """Return what was written of a node, None where that names nothing."""
    if module is not None:
        return Annotation(scope, (module,), backward)
    if scope is None:
        return None
    return Annotation(scope, tuple(scope.split(_BETWEEN)) if _MODULES.fullmatch(scope) else (), backward)
