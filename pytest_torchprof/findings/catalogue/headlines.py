"""The headline of a recording, in one or two sentences: a row for each kind of recording.

The first sentence says what the numbers mean, the second where to look; it is of the events that are named with it.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (the types of fields, which msgspec looks up)
from typing import ClassVar, Final, Literal, Self

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from pytest_torchprof.findings.events import Events  # noqa: TC001  (the type of a field, which msgspec looks up)
from pytest_torchprof.findings.finding import WORTH_TELLING
from pytest_torchprof.reasons import decoding  # noqa: TC001  (as above)
from pytest_torchprof.reasons.wording import worded_of
from pytest_torchprof.text import all_of, counted
from pytest_torchprof.text.units import show_us

Meanwhile = Literal["set_up", "recaptured", "loading", "queued", "silent"]
"""What went on while a GPU idled: something done once, a graph captured again, loading, a wait of what was launched, or
no event."""

MUCH_SET_UP: Final = 0.25
"""The share of the idle time from which on work that is done once comes before everything else."""

_MOST_NAMED: Final = 3


class Headline(Struct, frozen=True, kw_only=True, tag_field="headline"):
    """The headline of a recording, shown before everything else; times in microseconds, shares 0..1."""

    WHAT: ClassVar[str]
    WHERE: ClassVar[str] = ""

    events: Events | None = None
    """The events that the second sentence is about."""

    @property
    def what(self) -> str:
        """The first sentence: what the numbers mean."""
        return self.words(self.WHAT)

    @property
    def where(self) -> str:
        """Where to look; empty where there is nothing to look at."""
        return self.words(self.WHERE)

    @property
    def message(self) -> str:
        """Both sentences."""
        return f"{self.what} {self.where}".rstrip()

    def words(self, sentence: str) -> str:
        """Return a sentence with the facts put in."""
        return worded_of(self, sentence)

    def in_words(self) -> dict[str, object]:
        """Return it as people read it in JSON, with its facts."""
        kind, facts = str(self.__struct_config__.tag), to_builtins(self)
        known = {name: fact for name, fact in facts.items() if name not in ("headline", "events")}
        return {"headline": kind, "message": self.message, "facts": known}


class NotMeasuredHeadline(Headline, frozen=True, kw_only=True, tag="not-measured"):
    """The numbers cannot be believed, or are not known."""

    WHAT = "Not measured: {reason}"

    reason: decoding.AnyReason


class _OfWindow(Headline, frozen=True, kw_only=True):
    """The facts about the time from the first step's start to the end of the steps and of the GPU's work."""

    window_us: float
    share: float
    """The share of that time; with several GPUs, the mean."""
    devices: int
    """How many GPUs worked."""
    longest_us: float
    """The longest event or gap."""
    name: str
    """The name of the kernel or operator that ran."""
    source: str | None = None
    """The user's line, where stacks were recorded."""

    @property
    def subject(self) -> str:
        """The device, or all of them together."""
        return "The GPU" if self.devices == 1 else f"Each of {counted(self.devices, 'GPU')}"

    @property
    def mean(self) -> str:
        """Words for a mean, where there are several GPUs."""
        return "" if self.devices == 1 else ", in the mean"

    @property
    def at(self) -> str:
        """The user's line, where it is known."""
        return "" if self.source is None else f" at {self.source}"


class _MayCommunicate:
    """A device that may spend much of the time with nothing but communication."""

    __slots__ = ()
    _TALKED: ClassVar[str] = ", and spent another {communicating_share:percent} only communicating"
    communicating_share: float | None

    @property
    def talked(self) -> str:
        """The words for a device that only communicated for much of the time; empty if it did not."""
        return "" if self.communicating_share is None else worded_of(self, self._TALKED)


class GpuIdled(_MayCommunicate, _OfWindow, frozen=True, kw_only=True, tag="gpu-idled"):
    """The GPU had nothing to do for much of the time."""

    WHAT = "{subject} idled {share:percent} of {window_us:us}{mean}{own}{talked}{why}."
    WHERE = "{first}, {longest_us:us}, {side}{passed}."
    _NOT_SURE: ClassVar[str] = (
        "{subject} appears idle for {share:percent} of {window_us:us}{mean}{own}{talked}, but this is uncertain: for "
        "{queued_us:us} of this time the next operation had already been launched and was waiting, or the recording "
        "lacks what ran meanwhile."
    )
    _FIRST: ClassVar[str] = "The longest gap"
    _OF_MANY: ClassVar[str] = "The longest of {gaps:gap}"
    _BESIDES: ClassVar[str] = "The longest gap, {once_us:us}, was one-time set-up; the longest that was not"
    _OWN: ClassVar[str] = ", not counting {profiler_us:us} in which the profiler handled its own buffers"
    _ONCE: ClassVar[str] = (
        "; {set_up_us:us} of the idle time was one-time set-up: the program was not yet warm when the recording began"
    )
    _RECAPTURED: ClassVar[str] = (
        "; {recaptured_us:us} of the idle time was spent re-capturing the same CUDA graph in {recaptures:call} to "
        "{recaptured_in:list}, which began {began} after the start"
    )
    _LATE: ClassVar[str] = "; {late_us:us} of the idle time was spent waiting for launches{aside}{loading}{silent}"
    _LOADING: ClassVar[str] = ", {loading_us:us} of it while data was being loaded"
    _SILENT: ClassVar[str] = ", for {silent_us:us} of which the recording shows no CPU activity"
    _LATE_ONCE: ClassVar[str] = "{late_once_us:us} of it in one-time set-up"
    _SLOWED: ClassVar[str] = "inflated by recording Python functions"
    _SIDE: ClassVar[Mapping[bool, str]] = {False: "comes before {name}{at}", True: "comes after {name}{at}"}
    _OPENING: ClassVar[str] = "comes before the first operation{of_step} ({name})"
    _OF_STEP: ClassVar[str] = " of {begins_step}"
    _PASSED: ClassVar[Mapping[Meanwhile, str]] = {
        "set_up": "; most of it was one-time set-up",
        "recaptured": "; most of it passed in one of these calls",
        "loading": "; most of it passed while data was being loaded",
        "queued": ", which had already been launched",
        "silent": "; for most of it the recording shows no CPU activity",
    }

    gaps: int = 0
    """How many gaps all devices have together."""
    is_last: bool = False
    """Whether the gap comes after the last operation rather than before one."""
    begins: bool = False
    """Whether the operation after the gap is the first of its step."""
    begins_step: str | None = None
    """The name of that step, where there are several."""
    profiler_us: float = 0.0
    """For how long it idled while the profiler handled its own buffers, which is not counted; the mean of several."""
    set_up_us: float = 0.0
    """How long it idled while something was done that is done only once; with several GPUs, the mean."""
    once_us: float | None = None
    """The longest gap of all, where most of it went into what is done once and the rest of the time did not."""
    communicating_share: float | None = None
    """The share in which it did nothing but communicate, where that is much; with several GPUs, the mean."""
    queued_us: float = 0.0
    """How long it idled before operations that had already been launched; with several GPUs, the mean."""
    late_us: float = 0.0
    """How long it idled because the next operation had not been launched yet; with several GPUs, the mean."""
    late_once_us: float | None = None
    """For how long of that something was done that is done once, where that is long enough to be seen."""
    stacks: bool = False
    """Whether Python's functions were recorded, which slows the CPU."""
    loading_us: float | None = None
    """How much of that time went into loading data, where that is long."""
    silent_us: float | None = None
    """For how much of that time nothing is recorded, where that is most of it."""
    recaptured_us: float = 0.0
    """How long it idled while a CUDA graph was captured again; with several GPUs, the mean."""
    recaptured_from_us: tuple[float, ...] = ()
    """When each of the calls began that captured it again, from the first step's start on."""
    recaptured_in: tuple[str, ...] = ()
    """The operators that were called."""
    meanwhile: Meanwhile | None = None
    """The activity during most of the longest gap; None if no events show any."""

    @property
    def what(self) -> str:
        return self.words(self._NOT_SURE if self._is_most(self.queued_us) else self.WHAT)

    @property
    def side(self) -> str:
        """On which side of which operation the gap is.

        Where it is the time until a step's first operation is launched, that operation's line is none to look at.
        """
        return self.words(self._OPENING if self.begins else self._SIDE[self.is_last])

    @property
    def of_step(self) -> str:
        """Which of several steps begins with it."""
        return "" if self.begins_step is None else self.words(self._OF_STEP)

    @property
    def own(self) -> str:
        """The profiler's own time, where that is enough to be seen."""
        return self.words(self._OWN) if self.profiler_us >= WORTH_TELLING * self.window_us else ""

    @property
    def first(self) -> str:
        """Which gap it is: of many, where it is a small part of them; and the longest one, where that is another."""
        if self.once_us is not None:
            return self.words(self._BESIDES)
        is_one_of_many = self.gaps > 1 and self.longest_us < 0.25 * self.share * self.window_us
        return self.words(self._OF_MANY) if is_one_of_many else self._FIRST

    @property
    def why(self) -> str:
        """The cause of most of it, or of much where that is the cold start's."""
        ways = (
            (self._is_most(self.recaptured_us), self._RECAPTURED),
            (self.set_up_us >= MUCH_SET_UP * self.share * self.window_us, self._ONCE),
            (self._is_most(self.late_us), self._LATE),
        )
        return self.words(next((way for is_so, way in ways if is_so), ""))

    @property
    def recaptures(self) -> int:
        """How many calls captured a graph again."""
        return len(self.recaptured_from_us)

    @property
    def began(self) -> str:
        """When the first of them began."""
        return all_of([show_us(each) for each in self.recaptured_from_us], _MOST_NAMED)

    def _is_most(self, spent_us: float) -> bool:
        return spent_us >= 0.5 * self.share * self.window_us

    @property
    def aside(self) -> str:
        """The part of that time that would be absent from warm steps, or from a recording without Python."""
        there = (
            (self.late_once_us is not None, self._LATE_ONCE),
            (self.stacks, self._SLOWED),
        )
        inside = "; ".join(self.words(way) for is_there, way in there if is_there)
        return f" ({inside})" if inside else ""

    @property
    def loading(self) -> str:
        """How much of that went into loading data, where that is long."""
        return "" if self.loading_us is None else self.words(self._LOADING)

    @property
    def silent(self) -> str:
        """For how much of that nothing is recorded, where that is most of it."""
        return "" if self.silent_us is None else self.words(self._SILENT)

    @property
    def passed(self) -> str:
        """The activity in the longest gap, where that is known."""
        return "" if self.meanwhile is None else self._PASSED[self.meanwhile]


class GpuHeldUp(_OfWindow, frozen=True, kw_only=True, tag="gpu-held-up"):
    """The recording begins while the GPU works on what came before it, and most of it is spent with that."""

    WHAT = (
        "For {held_us:us} of {window_us:us} nothing of the GPU is recorded: its next operation was launched, and "
        "waited for work from before the recording."
    )
    WHERE = "That operation is {name}{at}; a longer recording, or a synchronization before it, would show the rest."

    held_us: float
    """How long it waited."""


class GpuCommunicated(_OfWindow, frozen=True, kw_only=True, tag="gpu-communicated"):
    """The GPU did nothing but communicate for much of the time."""

    WHAT = "{subject} did nothing but communicate for {share:percent} of {window_us:us}{mean}{idled}{late}."
    WHERE = "The longest collective, {longest_us:us}, is {name}{at}."
    _IDLED: ClassVar[str] = ", and idled for another {idle_share:percent}{held}"
    _LATE: ClassVar[str] = (
        "; its collectives took {beyond_usual_us:us} longer than they would at the speed of the fastest quarter of "
        "them, which suggests that another rank was late"
    )
    _HELD: ClassVar[str] = ", most of it while the CPU seems to have been held up"

    idle_share: float | None = None
    """The share in which it idled, where that is much; with several GPUs, the mean."""
    held_us: float | None = None
    """For how long of that the CPU seems to have been held up, where that is most of it; the mean of several."""
    beyond_usual_us: float | None = None
    """How much longer collectives took than the fastest quarter of their kind; empty if it is not most of the time."""

    @property
    def without_guess(self) -> Self:
        """It without what one recording suggests of other ranks, where these are known."""
        return replace(self, beyond_usual_us=None)

    @property
    def idled(self) -> str:
        """The words for a GPU that idled for much of the time; empty if it did not."""
        return "" if self.idle_share is None else self.words(self._IDLED)

    @property
    def held(self) -> str:
        """The words for a CPU that was held up for most of that time; empty if it was not."""
        return "" if self.held_us is None else self._HELD

    @property
    def late(self) -> str:
        """The words for time that mostly looks like waiting for another rank; empty if it does not."""
        return "" if self.beyond_usual_us is None else self.words(self._LATE)


class GpuBusy(_OfWindow, frozen=True, kw_only=True, tag="gpu-busy"):
    """The GPU worked nearly all of the time."""

    WHAT = "{subject} was busy {share:percent} of {window_us:us}{mean}{backlog}."
    _BACKLOG: ClassVar[str] = ", including {earlier_share:percent} with work that was launched before the steps"
    WHERE = "{name} takes {name_share:percent} of the kernel time; its longest call{by}{at}."
    _LAUNCHED: ClassVar[str] = ", {longest_us:us}, was launched by {launcher}"
    _TAKES: ClassVar[str] = " takes {longest_us:us}"

    name_share: float
    """Its share of the time of all kernels."""
    op: str | None = None
    """The operator that launched the longest call."""
    in_graph: bool = False
    """Whether a CUDA graph launched it, which tells no operator."""
    earlier_share: float | None = None
    """In which it only worked on what was launched before the steps, where that is to be seen; of several GPUs the
    mean."""

    @property
    def backlog(self) -> str:
        """Words for work that belongs to no step, where there is much of it."""
        return "" if self.earlier_share is None else self.words(self._BACKLOG)

    @property
    def by(self) -> str:
        """Who launched it, where that is known."""
        return self.words(self._TAKES if self.launcher is None else self._LAUNCHED)

    @property
    def launcher(self) -> str | None:
        """The operator or the graph that launched it; None where neither is known."""
        return self.op or ("a CUDA graph" if self.in_graph else None)


class IdleDevice(Headline, frozen=True, kw_only=True, tag="nothing-ran"):
    """The device did nothing."""

    WHAT = "Nothing {ran} in {window_us:us}."
    WHERE = "{longest}"
    _LONGEST: ClassVar[str] = "The longest operator, {longest_us:us}, is {name}."

    window_us: float
    of_gpu: bool
    longest_us: float = 0.0
    name: str | None = None
    """The longest operator; None without any."""

    @property
    def ran(self) -> str:
        """The verb for a device's work."""
        return "ran on a GPU" if self.of_gpu else "was computed"

    @property
    def longest(self) -> str:
        """The longest operator, where there is any."""
        return "" if self.name is None else self.words(self._LONGEST)


class CpuComputed(_MayCommunicate, Headline, frozen=True, kw_only=True, tag="cpu-computed"):
    """The CPU is the device, and its operators are the kernels."""

    WHAT = "The CPU computed for {share:percent} of {window_us:us}{talked}."
    WHERE = "{name} takes {name_share:percent} of the kernel time; its longest call takes {longest_us:us}{at}."

    window_us: float
    share: float
    """The share of that time in which an operator computed on any thread."""
    longest_us: float
    name: str
    name_share: float
    """Its share of the time of all operators that compute."""
    communicating_share: float | None = None
    """The share in which a collective ran while no operator computed, where that is much."""
    source: str | None = None

    @property
    def at(self) -> str:
        """The user's line, where it is known."""
        return "" if self.source is None else f", at {self.source}"
