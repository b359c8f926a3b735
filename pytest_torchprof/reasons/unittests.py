"""Reasons why a test of unittest has no fixture."""

from __future__ import annotations

from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.reason import Reason


class NoFixtureOfClass(Reason, frozen=True):
    """The fixture is used in setUpClass, which belongs to no test."""

    CODE = Code.FIXTURE_MISUSE
    ADVICE = "measure in a test, or in `setUp`"
    SENTENCE = "a measurement belongs to one test, and setUpClass to none: use self.torchprof in setUp or in a test"


class NoFixtureInTestCase(Reason, frozen=True):
    """A class of unittest's uses the fixture, and does not ask for it."""

    CODE = Code.FIXTURE_MISUSE
    ADVICE = 'put `@pytest.mark.usefixtures("torchprof")` at the class'
    SENTENCE = (
        'self.torchprof is the fixture from setUp on, in a class with @pytest.mark.usefixtures("torchprof"); the '
        "marker torchprof alone measures the whole body"
    )
