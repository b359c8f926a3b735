"""The annotation of a CUDA graph's node in recordings of others: the scope and the modules of its capture.

torch's ``mark_kernels`` keeps one annotation of each node, the name of the innermost scope.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHOUT = "without annotation (in CUDA graphs)"
"""The row of work without an annotation, beside work that has one."""
_PLACE = "in CUDA graphs)"
# Inductor's names of the modules that a kernel was generated from: "L.layers.0.fc1 + L.layers.0.act".
_MODULES = r"L(?:\.\w+)*(?: \+ L(?:\.\w+)*)*"
_BETWEEN = " + "
_OPERATOR = r"\w+::\w+(?:\.\w+)?"


class Annotation(Struct, frozen=True):
    """The annotation of one node."""

    scope: str | None
    """The name of the innermost ``mark_kernels`` around its capture."""
    modules: tuple[str, ...]
    """The paths of the modules in which it was captured, ``layers.0.attention``; a fused kernel has several."""
    backward: bool = False
    """Whether it belongs to the backward pass of the named scope or modules."""

    @property
    def range(self) -> str | None:
        """The name of the scope among ranges; None without a scope."""
        return None if self.scope is None else self._placed(self.scope)

    @property
    def module_rows(self) -> Iterator[tuple[str, bool]]:
        """The rows of its modules and of those that contain them, each with whether it is one of its own."""
        rows: dict[str, bool] = {}
        for path in self.modules:
            parts = path.split(".")
            for length in range(1, len(parts) + 1):
                holder = ".".join(parts[:length])
                rows[holder] = rows.get(holder, False) or length == len(parts)
        return ((self._placed(name), own) for name, own in rows.items())

    @property
    def operator(self) -> str | None:
        """The operator after which the scope is named, ``aten::mm``; it encloses the launch, perhaps around others."""
        return self.scope if self.scope is not None and re.fullmatch(_OPERATOR, self.scope) else None

    @property
    def place(self) -> str:
        """Its modules, or else its scope, for people to read."""
        return _BETWEEN.join(self.modules) or self.scope or ""

    def _placed(self, name: str) -> str:
        return f"{name} ({'backward, ' * self.backward}{_PLACE}"


def is_of_graphs(row: str) -> bool:
    """Return whether a row has the name of an annotation, which no range of the CPU has."""
    return row.endswith(_PLACE)


def annotation(scope: str | None, module: str | None, *, backward: bool) -> Annotation | None:
    """Return the annotation that was written for a node; None if it names neither scope nor module."""
    if module is not None:
        return Annotation(scope, (module,), backward)
    if scope is None:
        return None
    return Annotation(scope, tuple(scope.split(_BETWEEN)) if re.fullmatch(_MODULES, scope) else (), backward)
