"""The facts on a graph's nodes in torch's execution trace of its capture: the operators and ranges around each.

Form 1.1.1-chakra.0.0.4, of torch 2.15.0. Times are not in it: entries are numbered as they begin, and that order is
all that is kept.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from pytest_torchprof.analysis.compilation import FX_GRAPH
from pytest_torchprof.analysis.launches import REGIONS
from pytest_torchprof.devices.cpu import operator_work
from pytest_torchprof.devices.kinds import OperatorWork
from pytest_torchprof.devices.range_names import PLUGIN
from pytest_torchprof.trace.captured_graphs import CapturedGraph, CapturedNode, CapturedRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_MARK = f"{PLUGIN}captured "
_DISPATCH = "PythonDispatchMode"
# The compiler says in which ranges compiled code runs; that is not repeated for each replay.
_NOT_SHOWN = ("[pytorch|", _DISPATCH, _MARK, FX_GRAPH, *REGIONS)
_NOT_SHOWN_SUFFIX = " (dynamo_timed)"
_USERS_RANGE = 7
"""``RecordScope::USER_SCOPE``."""
_TENSOR = re.compile(r"Tensor\((.+)\)")
# A node of autograd's own, which launches by operators alone; those of functions in Python have no number.
_AUTOGRADS = re.compile(r"(?:autograd::engine::evaluate_function: )?(?:\w+Backward\d+|torch::autograd::AccumulateGrad)")


class Described(NamedTuple):
    """The driver's description of a node that runs something on the GPU."""

    number: int
    """The number by which recordings know the node, without that of its graph."""
    kind: str
    kernel: str | None
    """The kernel's name, as recordings have it."""


def mark_name(number: int, *, begins: bool) -> str:
    """Return the name of the range that says where a call begins or has ended."""
    return f"{_MARK}{number} {'begins' if begins else 'ends'}"


class Call(Struct, kw_only=True):
    """A call of an operator during a capture, with the nodes made in it and since the last call."""

    before: tuple[int, ...] = ()
    inside: tuple[int, ...] = ()
    modules: tuple[tuple[int, str], ...] = ()
    """The calls of modules around it, each with a number of its own, from the outermost."""
    line: str = ""

    def end(self, made: tuple[int, ...]) -> None:
        """Take the nodes that were made in it."""
        self.inside = made


def read_capture(
    text: bytes, calls: Sequence[Call], described: Callable[[int], Described | None]
) -> CapturedGraph | None:
    """Return the captured graph with its known nodes; None if the trace does not have the marks of all calls.

    The last call is the end of the capture. ``described`` describes a node; None for one that runs nothing on the GPU.
    """
    capture = _Capture(json.loads(text)["nodes"], calls)
    if not capture.complete:
        return None
    kernels: dict[str, int] = {}
    nodes = [
        CapturedNode(
            node=known.number,
            kind=known.kind,
            at=at,
            kernel=None if known.kernel is None else kernels.setdefault(known.kernel, len(kernels)),
            unsure=unsure,
        )
        for made, at, unsure in capture.made()
        for known in map(described, made)
        if known is not None
    ]
    modules = sorted(capture.modules(), key=lambda module: (module.begin, -module.end))
    return CapturedGraph(
        graphs=(),
        ranges=(*capture.ranges(sorted(node.at for node in nodes)), *modules, *capture.lines()),
        nodes=tuple(nodes),
        kernels=tuple(kernels),
    )


class _Capture:
    """The entries of a trace, by number. An entry begins at an instant of its own, and ends at that of its last."""

    def __init__(self, entries: Sequence[dict[str, Any]], calls: Sequence[Call]) -> None:
        self._entries = {entry["id"]: entry for entry in sorted(entries, key=lambda entry: entry["id"])}
        self._calls = calls
        self._parent = {
            number: entry["ctrl_deps"] for number, entry in self._entries.items() if entry["ctrl_deps"] in self._entries
        }
        for entry in list(self._entries.values()):
            self._restore_users_range(entry)
        self._order = list(self._entries)
        self._at = {number: 2 * index for index, number in enumerate(self._order, 1)}
        self._last = dict.fromkeys(self._entries, 0)
        for number in reversed(self._entries):
            self._last[number] = max(self._last[number], number)
            if (around := self._parent.get(number)) is not None:
                self._last[around] = max(self._last[around], self._last[number])
        self._marks = {
            entry["name"]: number for number, entry in self._entries.items() if entry["name"].startswith(_MARK)
        }
        self._begins = [self._marks.get(mark_name(i, begins=True)) for i in range(len(calls))]
        self._ends = [self._marks.get(mark_name(i, begins=False)) for i in range(len(calls) - 1)]

    @property
    def complete(self) -> bool:
        """Whether all calls left their marks."""
        return None not in self._begins and None not in self._ends

    def _restore_users_range(self, entry: dict[str, Any]) -> None:
        """Replace the entry of a mode by what it was called for, if that is a user's range, which outlasts the call.

        torch ends entries in the order of a stack, whichever it was.
        """
        around = self._entries.get(entry["ctrl_deps"])
        is_users = self._is_users(entry) and not entry["name"].startswith(_MARK)
        if is_users and around is not None and around["name"] == _DISPATCH:
            self._entries[around["id"]] = {**entry, "id": around["id"], "ctrl_deps": around["ctrl_deps"]}
            self._entries[entry["id"]] = {**around, "id": entry["id"], "ctrl_deps": entry["ctrl_deps"]}

    @staticmethod
    def _is_users(entry: dict[str, Any]) -> bool:
        return any(attribute["name"] == "scope" and attribute["value"] == _USERS_RANGE for attribute in entry["attrs"])

    def _around(self, number: int) -> list[int]:
        """Return the entries around an entry, innermost first."""
        outer = []
        while (around := self._parent.get(number, number)) != number:
            outer.append(around)
            number = around
        return outer

    def _name(self, number: int) -> str:
        return str(self._entries[number]["name"])

    def _is_shown(self, number: int) -> bool:
        """Return whether an entry is an operator or range of the program; one that calls itself at once counts once.

        Under a mode, such as Inductor's, all operators do.
        """
        name = self._name(number)
        if name.startswith(_NOT_SHOWN) or name.endswith(_NOT_SHOWN_SUFFIX):
            return False
        names = map(self._name, self._around(number))
        return next((around for around in names if not around.startswith(_NOT_SHOWN)), None) != name

    def _launches(self, number: int) -> bool:
        """Return whether an entry may launch something itself."""
        name = self._name(number)
        if self._is_users(self._entries[number]) or _AUTOGRADS.fullmatch(name) or not self._is_shown(number):
            return False
        return not name.startswith("aten::") or operator_work(name) is not OperatorWork.NOTHING

    def _between(self, first: int, last: int) -> list[int]:
        """Return the entries that began after ``first`` and before ``last``."""
        return self._order[bisect_right(self._order, first) : bisect_left(self._order, last)]

    @cache  # noqa: B019 - as long as this object lives
    def _outermost_and_common(self, call: int) -> tuple[int, frozenset[int]]:
        """Return the outermost entry around a call that was not open at the end of the last, and those that were."""
        begins = self._begins[call] or 0
        ended = self._ends[call - 1] if call else None
        common = frozenset(() if ended is None else self._around(ended)).intersection(self._around(begins))
        new = [number for number in (begins, *self._around(begins)) if number not in common and number in self._parent]
        # The thread's own entry encloses everything that it does.
        inside = [number for number in new if not self._name(number).startswith("[pytorch|")]
        return (inside or [begins])[-1], common

    def made(self) -> Iterator[tuple[tuple[int, ...], int, tuple[str, ...]]]:
        """Yield nodes, the instant at which they were made, and the operators that may have launched them."""
        for i, call in enumerate(self._calls):
            if call.before:
                outermost, _ = self._outermost_and_common(i)
                yield call.before, self._at[outermost] - 1, self._possible_launchers(i)
            if call.inside:
                begins, ends = self._begins[i] or 0, self._ends[i] or 0
                operator = self._parent[begins]
                within = [number for number in self._between(begins, ends) if operator in self._around(number)]
                yield (
                    call.inside,
                    self._at[ends],
                    _distinct(self._name(number) for number in within if self._launches(number)),
                )

    def _possible_launchers(self, call: int) -> tuple[str, ...]:
        """Return the operators that may have launched the nodes made between the last call and this one.

        Of the entries around a call only operators that are not torch's own launch something before they are
        dispatched.
        """
        _, common = self._outermost_and_common(call)
        begins, ended = self._begins[call] or 0, (self._ends[call - 1] if call else None) or 0
        around = set(self._around(begins))
        alone = [number for number in self._between(ended, begins) if number not in around]
        paths = [*around, *(self._around(ended) if ended else ())]
        foreign = [number for number in paths if number not in common and not self._name(number).startswith("aten::")]
        return _distinct(self._name(number) for number in (*alone, *foreign) if self._launches(number))

    def ranges(self, made: Sequence[int]) -> Iterator[CapturedRange]:
        """Yield the user's ranges, and the operators around nodes: no others run in a replay."""
        for number in self._entries:
            users = self._is_users(self._entries[number])
            index = bisect_left(made, self._at[number])
            holds = index < len(made) and made[index] <= self._at[self._last[number]]
            if (users or holds) and self._is_shown(number):
                yield CapturedRange(
                    name=self._name(number),
                    begin=self._at[number],
                    end=self._at[self._last[number]],
                    kind="range" if users else "operator",
                    operands=None if users else _operands(self._entries[number]["inputs"]),
                )

    def modules(self) -> Iterator[CapturedRange]:
        """Yield the calls of modules, as far as operators were called in them."""
        running: dict[tuple[int, str], tuple[int, int]] = {}
        for i, call in enumerate(self._calls):
            for module in [module for module in running if module not in call.modules]:
                begin, end = running.pop(module)
                yield CapturedRange(name=module[1], begin=begin, end=end, kind="module")
            ends = self._ends[i] if i < len(self._ends) else None
            for module in call.modules:
                begin = running[module][0] if module in running else self._at[self._outermost_and_common(i)[0]]
                running[module] = begin, self._at[ends or 0]

    def lines(self) -> Iterator[CapturedRange]:
        """Yield from which node on the user's code is on a line, and in which modules; open if no call made them."""
        for i, call in enumerate(self._calls[:-1]):
            at = self._at[self._outermost_and_common(i)[0]]
            if call.before:
                yield CapturedRange(name=", ", begin=at - 1, end=at - 1, kind="line")
            modules = ".".join(name for _, name in call.modules)
            yield CapturedRange(name=f"{call.line}, {modules}", begin=at, end=at, kind="line")


def _distinct(names: Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _operands(inputs: dict[str, Any]) -> tuple[str, str, str]:
    """Return dims, types and strides as a recording has them, in JSON."""
    types = [_type(str(kind)) for kind in inputs["types"]]
    # A recording holds only tensors here.
    dims, strides = (
        [value if "Tensor" in str(kind) else [] for value, kind in zip(inputs[name], inputs["types"], strict=True)]
        for name in ("shapes", "strides")
    )
    return json.dumps(dims), json.dumps(types), json.dumps(strides)


def _type(kind: str) -> str:
    if (tensor := _TENSOR.fullmatch(kind)) is not None:
        return tensor[1]
    if kind.startswith("GenericList[Tensor"):
        return "TensorList"
    return "Scalar" if kind in ("Int", "Double", "Bool") else ""
