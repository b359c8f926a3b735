"""Why something is not measured: a catalogue of reasons, each a class with its code, its sentence and what to do.

A reason is made where the fact is known, and put into words where somebody reads it.
"""

from pytest_torchprof.reasons.reason import Reason, Verbatim

__all__ = ["Reason", "Verbatim"]
