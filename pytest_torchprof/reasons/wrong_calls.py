"""Calls with arguments that nothing takes: misuse like any other, though Python refuses them before our code runs."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from pytest_torchprof.reasons.errors import TorchprofError

if TYPE_CHECKING:
    from collections.abc import Callable

    _Object = TypeVar("_Object")
    _Returned = TypeVar("_Returned")
    _Arguments = ParamSpec("_Arguments")
    _Method = Callable[Concatenate[_Object, _Arguments], _Returned]


def refusing_wrong_calls(
    title: str, example: str, noted: Callable[[_Object, str, TorchprofError], TorchprofError]
) -> Callable[[_Method[_Object, _Arguments, _Returned]], _Method[_Object, _Arguments, _Returned]]:
    """Let a method raise TorchprofError for arguments that it does not take: an expected failure hides a TypeError.

    ``title`` is the call as users name it, ``example`` one that is right; ``noted`` lets the object know of the error,
    and returns it.
    """

    def refusing(method: _Method[_Object, _Arguments, _Returned]) -> _Method[_Object, _Arguments, _Returned]:
        @wraps(method)
        def call(self: _Object, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Returned:
            __tracebackhide__ = True  # what the method raises has frames of its own
            try:
                return method(self, *args, **kwargs)
            except TypeError as problem:
                if problem.__traceback__ is None or problem.__traceback__.tb_next is not None:
                    # The method has begun: the error is one of the code that it calls.
                    raise
                # Python names the class, "Torchprof.measure() missing 1 required ...".
                what = str(problem).partition("() ")[2]
                from pytest_torchprof.reasons.misuse import WrongCall  # noqa: PLC0415 - for what is refused alone

                refused = TorchprofError.because(WrongCall(title, what, example))
            raise noted(self, title, refused)

        return call

    return refusing
