"""Reasons that lie in how a test asks: for what cannot be meant, or in a way in which nothing can be measured."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.text.suggestions import keyword_advice


class NoSuchLimit(Reason, frozen=True):
    """A keyword is no limit."""

    CODE = Code.UNKNOWN_KEYWORD
    ADVICE = "write the nearest name, which the text has"

    name: str
    near: str | None
    """The name that is meant."""
    names: tuple[str, ...]
    """Some that are a little like it, where none is near."""

    @property
    def sentence(self) -> str:
        return f"{self.name!r} is no limit; {keyword_advice(self.near, self.names)}"


class OptionOfMarker(Reason, frozen=True):
    """A keyword of the marker is given to one measurement."""

    CODE = Code.UNKNOWN_KEYWORD
    MEANING = "it says how the whole test is measured"
    ADVICE = "give it to the marker"
    SENTENCE = "{name!r} is no limit of one measurement; put it in the marker"

    name: str


class SettingAlone(Reason, frozen=True):
    """A setting is given without a limit that it is about."""

    CODE = Code.LONE_SETTING
    ADVICE = "give the limit too, or leave the keyword out"

    name: str
    limits: tuple[str, ...]

    @property
    def sentence(self) -> str:
        several = len(self.limits) > 1
        counts = f"{' and '.join(self.limits)} {'count' if several else 'counts'}"
        return f"{self.name} changes what {counts}; give {'one of them' if several else self.limits[0]} too"


class BoundsContradict(Reason, frozen=True):
    """A lower bound is above the upper bound on the same number."""

    CODE = Code.CONTRADICTION
    ADVICE = "raise the upper bound, or lower the other"
    SENTENCE = "{most} and {least} cannot both hold"

    most: str
    """The upper bound, as it is written."""
    least: str


class WantedAndForbidden(Reason, frozen=True):
    """The same is required and forbidden."""

    CODE = Code.CONTRADICTION
    ADVICE = "take it out of one of them"
    SENTENCE = "{entry} stands in {wanted} and in {forbidden}, which cannot both hold"

    entry: str
    wanted: str
    forbidden: str


class CollectiveSends(Reason, frozen=True):
    """No byte may be sent, and a collective is required that sends some."""

    CODE = Code.CONTRADICTION
    ADVICE = "leave one of them out"
    SENTENCE = "max_comm_bytes=0 and {collective!r} in collectives, which sends something, cannot both hold"

    collective: str


class FusedAndNot(Reason, frozen=True):
    """Operators are to be in one kernel, and in none together."""

    CODE = Code.CONTRADICTION
    ADVICE = "take the operators out of one of them"

    ops: tuple[str, ...]

    @property
    def sentence(self) -> str:
        return f"{' and '.join(self.ops)} stand together in fused and in not_fused, which cannot both hold"


class DeviceOfRanks(Reason, frozen=True):
    """One GPU is asked for, and a job of which each rank takes its own."""

    CODE = Code.CONTRADICTION
    SENTENCE = "device={device!r} is one GPU, and with ranks={ranks} each rank takes its own: write device={kind!r}"
    ADVICE = "ask for the kind of device alone"

    device: str
    ranks: int
    kind: str


class WarmBoundCold(Reason, frozen=True):
    """A compilation with warm caches is bounded, and only one with cold caches is measured."""

    CODE = Code.CONTRADICTION
    SENTENCE = (
        "compile_cache='cold' measures no warm caches, and max_compile_time has a bound on them: "
        "write compile_cache='warm', which measures both"
    )
    ADVICE = "write `compile_cache='warm'`"


class CachesOfRanks(Reason, frozen=True):
    """Cold or warm caches take a process of their own, and the test runs in a job of ranks."""

    CODE = Code.CONTRADICTION
    SENTENCE = "compile_cache={phase!r} takes a process of its own, and ranks={ranks} a job"
    REMEDY = "measure the compilation in a test without ranks"

    phase: str
    ranks: int


class MeantForEither(Reason, frozen=True):
    """A keyword may be meant for the measurement, or for the measured function."""

    CODE = Code.CONTRADICTION
    SENTENCE = (
        "{keyword}={value} may be meant for the measurement or for the measured function, which has a parameter of "
        "that name. Bind that one: functools.partial(function, {keyword}=...)"
    )
    ADVICE = "bind the function's own to it, with `functools.partial`"

    keyword: str
    value: str


class UnknownKeyword(Reason, frozen=True):
    """The marker has a keyword that there is not."""

    CODE = Code.UNKNOWN_KEYWORD
    ADVICE = "write the nearest name, which the text has"

    name: str
    near: str | None
    """The name that is meant."""
    names: tuple[str, ...]
    """Some that are a little like it, where none is near."""

    @property
    def sentence(self) -> str:
        return f"unknown keyword {self.name!r}; {keyword_advice(self.near, self.names)}"


class PositionalValue(Reason, frozen=True):
    """The marker has a value without a keyword."""

    CODE = Code.POSITIONAL_ARGUMENT
    SENTENCE = "the torchprof marker takes keywords only, got {got}"
    REMEDY = "write e.g. max_kernels=5"

    got: str


class NothingToJudge(Reason, frozen=True):
    """No limit is given to a call that judges limits alone."""

    CODE = Code.BAD_USAGE
    FOR_THE_DOCTOR = False
    SENTENCE = 'judge() expects a limit: judge(function, x, limits={{"max_kernels": 1}})'
    ADVICE = "give it a limit"


class NoDeviceOfKind(Reason, frozen=True):
    """A recording is to be taken for one of a device of a kind that there is not."""

    CODE = Code.NO_SUCH_DEVICE
    FOR_THE_DOCTOR = False
    SENTENCE = "device: expected {known:or}, got {got}"
    ADVICE = "name one of those in the text"

    known: tuple[str, ...]
    got: str
