"""Every public name explains itself: to help(), to inspect, to typing, in dir() and as text."""

from __future__ import annotations

import inspect
import pickle
import pydoc
import typing

import pytest
import torch
from msgspec import Struct

import pytest_torchprof
import pytest_torchprof.errors
from pytest_torchprof.limits.keywords import LimitsOfProfile
from pytest_torchprof.reasons.reason import Reason
from pytest_torchprof.reasons.unreadable import WhyUnreadable

pytestmark = pytest.mark.any_torch

PUBLIC = {name: getattr(pytest_torchprof, name) for name in dir(pytest_torchprof)}


def plain(member):
    """Return the function behind a property, a class method or a static method."""
    if isinstance(member, property):
        return member.fget
    return getattr(member, "__func__", member)


def members():
    """Yield the public names, and the public methods and properties of the classes among them."""
    for name, value in PUBLIC.items():
        yield name, value
        if inspect.isclass(value):
            for attribute, member in inspect.getmembers_static(value):
                if not attribute.startswith("_") and inspect.isfunction(plain(member)):
                    yield f"{name}.{attribute}", member


MEMBERS = dict(members())


@pytest.mark.parametrize("name", MEMBERS)
def test_its_annotations_can_be_read(name):
    # This package imports torch where it measures, reasons where there are some, and limits where they are judged; for
    # a name in an annotation it imports none of them.
    known = {
        "torch": torch,
        "Struct": Struct,
        "Reason": Reason,
        "WhyUnreadable": WhyUnreadable,
        "LimitsOfProfile": LimitsOfProfile,
    }
    typing.get_type_hints(plain(MEMBERS[name]), localns=known)


@pytest.mark.parametrize("name", [name for name, member in MEMBERS.items() if inspect.isroutine(plain(member))])
def test_its_signature_can_be_read(name):
    assert inspect.signature(plain(MEMBERS[name])) is not None


@pytest.mark.parametrize("name", PUBLIC)
def test_it_has_a_help_page(name):
    page = pydoc.render_doc(PUBLIC[name], renderer=pydoc.plaintext)
    assert (PUBLIC[name].__doc__ or "").split("\n")[0] in page


def test_help_lists_what_the_package_offers():
    page = pydoc.render_doc(pytest_torchprof, renderer=pydoc.plaintext)
    assert [name for name in PUBLIC if name not in page] == []


def test_help_fits_two_screens_of_80_columns():
    page = pydoc.render_doc(pytest_torchprof, renderer=pydoc.plaintext).splitlines()
    # The last section is the folder in which the package lies, which may be anywhere.
    page = page[: page.index("FILE")]
    assert max(map(len, page)) <= 80
    assert len(page) + len(["FILE", "its path", ""]) <= 60


def test_a_star_imports_nothing():
    names = {}
    exec("from pytest_torchprof import *", names)
    assert names.keys() <= {"__builtins__"}


def test_the_errors_are_those_of_a_module_of_their_own():
    errors = {name: value for name, value in PUBLIC.items() if getattr(value, "__module__", "").endswith(".errors")}
    assert sorted(errors) == sorted(pytest_torchprof.errors.__all__)
    assert all(value is getattr(pytest_torchprof.errors, name) for name, value in errors.items())
    assert pickle.loads(pickle.dumps(pytest_torchprof.UnknownLimit("no limit"))).text == "no limit"


def test_the_first_screen_of_help_shows_where_to_begin():
    first = pydoc.render_doc(pytest_torchprof, renderer=pydoc.plaintext).splitlines()[:30]
    assert [
        word for word in ("torchprof(model, x)", "load(path)", "LimitsMissed") if word not in "\n".join(first)
    ] == []


PARTS = {
    "Profile": lambda profile: profile,
    "StepProfile": lambda profile: profile.steps[0],
    "Kernels": lambda profile: profile.kernels,
    "Kernel": lambda profile: profile.kernels[0],
    "Numbers": lambda profile: profile.worst,
    "Compile": lambda profile: profile.compile,
    "Efficiency": lambda profile: profile.efficiency,
    "Trace": lambda profile: profile.trace,
    "Finding": lambda profile: profile.findings[0],
    "Rule": lambda profile: profile.rules[0],
}


@pytest.fixture(scope="module")
def small_profile():
    return pytest_torchprof.profile(torch.sin, torch.ones(3), device="cpu")


@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_a_profile_is_one_line(name, small_profile):
    shown = repr(PARTS[name](small_profile))
    assert shown.startswith(f"<{name}")
    assert len(shown.splitlines()) == 1
    assert len(shown) <= 160
