"""The entry of a baseline: the kernels per step in launch order, numbers, times and environment of one measurement."""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, Struct, json
from msgspec.structs import replace

from pytest_torchprof.analysis.numbers import TABLE, middle
from pytest_torchprof.baseline.family_times import spent_by_family
from pytest_torchprof.kernels import names
from pytest_torchprof.reasons.disturbances import AnyDisturbance  # noqa: TC001 - msgspec reads the annotations
from pytest_torchprof.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_torchprof.analysis.analysis import Analysis
    from pytest_torchprof.devices.kinds import DeviceKind
    from pytest_torchprof.kernels.kernel import LaunchedKernel
    from pytest_torchprof.trace.metadata import Environment

STRUCTURAL: Final = frozenset({"gemm", "conv", "attention"})
"""Families whose kernels are distinguished by dtype and layout: their names change with tile, library and GPU."""

QUANTILES: Final = 20
"""The number of quantiles of the times that are kept: the least number of samples that are taken."""

Count = Annotated[int, Meta(ge=1)]


class KernelRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One distinct kernel, with the facts that a comparison needs."""

    name: str
    family: str | None = None
    """None if it is not known; older entries call some unknown kernels ``other`` or ``pointwise``."""
    dtype: str | None = None
    layout: str | None = None
    helper: str | None = None
    """The task of the kernel for another one ("split-k reduce"); None if it is no helper."""
    op: str | None = None
    """The operator that launched it."""
    operands: str | None = None
    """The operator's operands, if dtype and layout leave them open, in the form of `with_operands`."""

    @property
    def structure(self) -> tuple[str | None, ...]:
        """The facts that stay the same across software versions: family, dtype, layout."""
        return (self.family, self.dtype, self.layout, self.helper)

    @property
    def normal_name(self) -> str:
        """The name without the part that differs from run to run (Triton's index) and without template noise.

        An operator that is the kernel, if the CPU is the device, has the name of its variant that is not in place.
        """
        name = _normal_name(self.name)
        return name.removesuffix("_") if self.name == self.op and not name.endswith("__") else name

    @property
    def identity(self) -> tuple[str | None, ...]:
        """The facts that identify it: its structure for gemm, conv and attention, else normal name and dtype.

        Operands decide facts that these leave open. If nothing shows the operands of a product, only its own name
        identifies it.
        """
        if self.family not in STRUCTURAL:
            return (self.normal_name, self.dtype, self.operands)
        return (*self.structure, self.operands, names.without_index(self.name) if self.is_unspecific else None)

    @property
    def has_layout(self) -> bool:
        """Whether it has a layout: a GEMM does, but not with a vector, nor from Triton, which reads any stride."""
        decoded = names.decode(self.name)
        vector = "gemv" in decoded.stem or "dot" in decoded.stem
        return self.family == "gemm" and self.helper is None and decoded.library != "triton" and not vector

    @property
    def is_unspecific(self) -> bool:
        """Whether neither dtype, layout nor operands show the data that it works on."""
        if self.operands is not None or self.helper is not None:
            return False
        return self.dtype is None or (self.layout is None and self.has_layout)

    @property
    def short(self) -> str:
        """At most 60 printable characters that a person recognises."""
        decoded = replace(names.decode(self.name), family=self.family, dtype=self.dtype, layout=self.layout)
        return printable(decoded.short or self.name[:60])


class Times(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The untraced times of one measurement."""

    conditions: dict[str, str | int]
    """Machine, clock, cache, threads: if one of them differs, times cannot be compared."""
    samples: Count
    median_us: float
    quantiles_us: Annotated[tuple[float, ...], Meta(min_length=1)]
    """The middles of equal parts of the sorted samples."""
    disturbed: tuple[AnyDisturbance | str, ...] = ()
    """The disturbances of the machine during that time; earlier versions wrote texts."""
    confirmed: bool = True
    """Whether samples were taken twice, as is done before a test fails; not kept in a file."""


class RankEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The differences of another rank of a job from rank 0."""

    steps: tuple[tuple[KernelRecord, ...], ...] | None = None
    """The steps as in ``Entry``; None if it launches the same kernels as rank 0."""
    numbers: dict[str, int | None] = {}
    """The numbers that differ."""


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The entry of one measurement."""

    source: str
    """Hash of the test's source."""
    environment: dict[str, str | bool]
    steps: tuple[tuple[KernelRecord, ...], ...]
    """The distinct steps, as kernels in launch order."""
    numbers: dict[str, Annotated[int, Meta(ge=0, le=2**63 - 1)] | None]
    """The numbers that the code decides, each of the worst step; None for a gated number that was not known."""
    varying: dict[str, Annotated[float, Meta(ge=0)]]
    """The numbers that vary from run to run: medians over the steps; for families (``gemm_us``) the middle step's."""
    time: Times | None = None
    """Untraced times, if a test asked for them."""
    samples_hardware: bool = False
    """Whether the GPU's units were sampled too, at locked clocks: times are then not compared."""
    ranks: dict[str, RankEntry] = {}
    """By rank, from "1" on, its differences; empty if all ranks do the same, or if there is only one."""

    def of_rank(self, number: int) -> Entry:
        """Return the entry that the rank of this number is compared with."""
        own = self.ranks.get(str(number))
        if own is None:
            return self
        return replace(self, steps=own.steps or self.steps, numbers={**self.numbers, **own.numbers})

    def unlike(self, first: Entry, *, steps: bool) -> RankEntry | None:
        """Return how this entry of another rank differs from rank 0's; None without any difference.

        ``steps``: whether its kernels differ, which `compare` decides.
        """
        lacking = object()
        numbers = {name: value for name, value in self.numbers.items() if first.numbers.get(name, lacking) != value}
        if steps:
            return RankEntry(steps=self.steps, numbers={**numbers, "kernels": self.numbers["kernels"]})
        return RankEntry(numbers=numbers) if numbers else None

    @property
    def kernels(self) -> tuple[KernelRecord, ...]:
        """The distinct kernels, by first launch."""
        return tuple(dict.fromkeys(kernel for step in self.steps for kernel in step))

    def counts(self) -> tuple[int, ...]:
        """Return how often each of ``kernels`` is launched in the step that launches it most."""
        per_step = [Counter(step) for step in self.steps]
        return tuple(max(counts[kernel] for counts in per_step) for kernel in self.kernels)


def entry_of(profile: Analysis, *, source_hash: str) -> Entry:
    """Return the entry of ``profile``, which must be measured."""
    worst, median = profile.worst, profile.median
    counts = {number.name: getattr(worst, number.name) for number in TABLE if number.exact}
    varying = {number.name: getattr(median, number.name) for number in TABLE if not number.exact}
    varying.update(spent_by_family(profile))
    return Entry(
        source=source_hash,
        environment=facts_of(profile.trace.environment, profile.trace.device_kind),
        steps=tuple(dict.fromkeys(records(step.kernels) for step in profile.steps)),
        numbers=decided(counts, profile.trace.device_kind),
        varying={name: rounded(value) for name, value in varying.items() if value is not None},
        time=times_of(profile),
        samples_hardware=profile.trace.samples_hardware,
    )


def facts_of(environment: Environment, kind: DeviceKind) -> dict[str, str | bool]:
    """Return the facts that an entry keeps of the environment in which a device of this kind was measured."""
    known = {key: getattr(environment, key) for key in kind.environment}
    return {key: _plain_value(key, value) for key, value in known.items() if value is not None}


def decided(counts: Mapping[str, float | None], kind: DeviceKind) -> dict[str, int | None]:
    """Return the numbers that the code decides, as an entry of a device of this kind keeps them."""
    known = {number: counts.get(number.name) for number in TABLE if number.exact and number.needs not in kind.lacks}
    return {
        number.name: None if value is None else int(value)
        for number, value in known.items()
        if number.gated or value is not None
    }


def structure_hash(profile: Analysis) -> str:
    """Return 16 digits that stay the same while the distinct steps launch the same kernels in the same order.

    Kernels are the same as for a baseline: for GEMMs, convolutions and attention the dtype and layout count, for all
    others the name without the part that differs from run to run.
    """
    numbers: dict[tuple[str | None, ...], int] = {}
    number_of: dict[tuple[str, int, str | None], int] = {}
    steps: dict[tuple[int, ...], None] = {}
    for step in profile.steps:
        kernels = profile.launching.brief_kernels(step.part)
        keys = [(kernel.name, id(kernel.decoded), kernel.op) for kernel in kernels]
        # A large recording launches a few dozen kernels, each of them thousands of times.
        for key, kernel in dict(zip(keys, kernels, strict=True)).items():
            if key not in number_of:
                number_of[key] = numbers.setdefault(_record(kernel).identity, len(numbers))
        steps[tuple(map(number_of.__getitem__, keys))] = None
    # As if the identities were encoded step after step, each of them once.
    identities = list(map(json.encode, numbers))
    of_steps = [b"[%b]" % b",".join(map(identities.__getitem__, step)) for step in steps]
    return hashlib.sha256(b"[%b]" % b",".join(of_steps)).hexdigest()[:16]


def records(kernels: Iterable[LaunchedKernel]) -> tuple[KernelRecord, ...]:
    """Return a step's kernels as records for a comparison."""
    return tuple(map(_record, kernels))


def _record(kernel: LaunchedKernel) -> KernelRecord:
    decoded = kernel.decoded
    return KernelRecord(
        name=kernel.name,
        family=decoded.family,
        dtype=decoded.dtype,
        layout=decoded.layout,
        helper=decoded.helper,
        op=kernel.op,
        operands=decoded.operands,
    )


def times_of(profile: Analysis) -> Times | None:
    """Return the untraced times in a recording, those of all batches together; None if it has none."""
    metadata = profile.trace.metadata
    if metadata is None or metadata.timing is None or not metadata.timing.batches or metadata.environment is None:
        return None
    timing, environment, batches = metadata.timing, metadata.environment, metadata.timing.batches
    conditions = {
        "machine": environment.gpu or environment.cpu,
        "clock": timing.clock,
        "cache": timing.cache,
        "threads": timing.threads,
        "clocks": "locked by PM sampling" if profile.trace.samples_hardware else None,
    }
    return times(
        {name: value for name, value in conditions.items() if value is not None},
        [sample for batch in batches for sample in batch.samples_us],
        disturbed=tuple(dict.fromkeys(disturbance for batch in batches for disturbance in batch.disturbed)),
        confirmed=len(batches) > 1,
    )


def times(conditions: Mapping[str, str | int], samples: Sequence[float], **others: Any) -> Times:
    """Return the times that are kept for samples, in microseconds, taken under these conditions."""
    ordered = sorted(samples)
    middles = ((i + 0.5) / QUANTILES * len(ordered) - 0.5 for i in range(QUANTILES))
    return Times(
        conditions=dict(conditions),
        samples=len(ordered),
        median_us=_round_to_four_digits(middle(ordered)),
        quantiles_us=tuple(_round_to_four_digits(_interpolate(ordered, middle)) for middle in middles),
        **others,
    )


def key_of(nodeid: str, label: str | None) -> str:
    """Return the key of a measurement in its test file's baseline: the test id without the file, and the label.

    Two measurements never share a key: parentheses of a label are escaped, so that the last " (" begins the label.
    """
    test = nodeid.partition("::")[2] if "::" in nodeid else nodeid
    if label:
        escaped = re.sub(r"([\\()])", r"\\\1", label)
        return f"{test} ({escaped})"
    # A test id that looks as if it ended in a label gets an empty label.
    return f"{test} ()" if test.endswith(")") else test


def split_key(key: str) -> tuple[str, str | None]:
    """Return the test id (without the file) and the label of a key made by `key_of`."""
    if not key.endswith(")") or " (" not in key:
        return key, None
    test, _, label = key[:-1].rpartition(" (")
    return test, re.sub(r"\\(.)", r"\1", label) or None


def source_hash(source: str) -> str:
    """Return a hash of a test's source that ignores comments, blank lines, overall indentation and line ends."""
    lines = [line.rstrip() for line in textwrap.dedent(source.replace("\r\n", "\n")).splitlines()]
    code = "\n".join(line for line in lines if line and not line.lstrip().startswith("#"))
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _plain_value(key: str, value: object) -> str | bool:
    # "2.13.0+cu130" and "2.13.0+cpu" are the same torch; CUDA is kept separately.
    return value if isinstance(value, bool) else str(value).partition("+")[0] if key == "torch" else str(value)


def rounded(value: float) -> float:
    """Return a number that varies as an entry keeps it."""
    # More digits would be noise in a file that people review. Bytes stay whole.
    return value if isinstance(value, int) else _round_to_four_digits(value)


def _round_to_four_digits(value: float) -> float:
    return float(f"{value:.4g}")


def _interpolate(ordered: Sequence[float], position: float) -> float:
    position = min(max(position, 0.0), len(ordered) - 1.0)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


_normal_name = lru_cache(maxsize=4096)(names.normal_name)
