"""Calls of fabric functions: which proxy they go to, and what their session's end makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from dgsf.core.options import parse_options
from dgsf.errors import (
    DoesNotFit,
    FunctionError,
    NoDevice,
    QueueFull,
    SessionLost,
    SessionRefused,
    StartDeadlineMissed,
)
from dgsf.wire.messages import Failure
from gateway.split import SplitPort
from proxy.losses import verdict


class Port:
    """Remembers the versions that it was asked about."""

    def __init__(self, number):
        self.number = number
        self.opened = []

    def number_for(self, version_id):
        return self.number

    def open(self, request):
        self.opened.append(request.version_id)
        return request


class Catalogue:
    """Knows versions by their options, and counts the questions."""

    def __init__(self, **attach):
        self.versions = {int(name[1:]): parse_options({"attach": value}) for name, value in attach.items()}
        self.asked = 0

    def known_version(self, version_id):
        self.asked += 1
        options = self.versions.get(version_id)
        return None if options is None else SimpleNamespace(options=options)


def test_near_calls_stay_inside_and_fabric_calls_leave():
    inside, apart, catalogue = Port(1), Port(2), Catalogue(v1="near", v2="fabric")
    split = SplitPort(inside, apart, catalogue)
    for version in (1, 2, 1, 2, 1):
        assert split.number_for(version) == version
        split.open(SimpleNamespace(version_id=version))
    assert (inside.opened, apart.opened) == ([1, 1, 1], [2, 2])
    assert catalogue.asked == 2, "each version is looked at once"


def test_a_version_that_is_not_known_now_is_asked_about_again():
    inside, apart, catalogue = Port(1), Port(2), Catalogue()
    split = SplitPort(inside, apart, catalogue)
    assert split.number_for(7) == 1
    catalogue.versions[7] = parse_options({"attach": "fabric"})
    assert split.number_for(7) == 2


@dataclass
class Ended:
    """A session that ended so."""

    failure: object


TOLD = Failure(FunctionError.code, "ValueError: the function's own words")


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (NoDevice("none"), "no_device"),
        (StartDeadlineMissed("waited 3 s for a device"), "start_deadline_missed"),
        (QueueFull("all slots are taken"), "queue_full"),
        (DoesNotFit("too large"), "does_not_fit"),
        (SessionLost("gone"), "session_lost"),
        (SessionRefused("it broke the protocol"), "function_error"),  # its own doing
        (None, "function_error"),
    ],
)
def test_what_ended_a_session_is_not_left_to_the_worker_to_tell(fault, code):
    assert verdict(TOLD, Ended(fault)).code == code


def test_a_success_stays_one_whatever_became_of_its_session():
    assert verdict(None, Ended(NoDevice())) is None


def test_without_a_session_a_worker_cannot_choose_a_code_to_its_advantage():
    assert verdict(Failure(NoDevice.code, "free of charge, please"), None).code == "function_error"
