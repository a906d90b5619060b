"""Short names at a terminal mean one thing or are refused."""

from __future__ import annotations

import pytest

from dgsf.core.lookup import find_named
from dgsf.errors import NotFound

NAMES = ["vm/cpu0", "vm/cpu1", "vm/cpu10", "big/A100-0", "far/cpu0"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("vm/cpu0", "vm/cpu0"),
        ("vm/cpu1", "vm/cpu1"),
        ("cpu1", "vm/cpu1"),
        ("A100-0", "big/A100-0"),
        ("b", "big/A100-0"),
        ("A100", "big/A100-0"),
    ],
)
def test_what_fits_one_is_that_one(wanted: str, found: str) -> None:
    assert find_named(wanted, NAMES, "device", "dgsf devices") == found


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("cpu0", "more than one device: far/cpu0, vm/cpu0"),
        ("cpu", "more than one device: far/cpu0, vm/cpu0, vm/cpu1, vm/cpu10;"),
        ("vm/", "more than one device"),
        ("vm/cpo0", "did you mean 'vm/cpu0'"),
        ("nothing", "see 'dgsf devices'"),
        ("", "see 'dgsf devices'"),
    ],
)
def test_what_fits_none_or_many_is_refused_with_help(wanted: str, words: str) -> None:
    with pytest.raises(NotFound, match=words):
        find_named(wanted, NAMES, "device", "dgsf devices")
