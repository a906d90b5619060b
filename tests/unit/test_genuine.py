"""Devices with dummy values are for those who ask for them by their type."""

from uuid import UUID

from test_placing import Held, row, want

from dgsf.core.consolidation import HeldSlot, next_move
from dgsf.core.genuine import in_words, said_of_dummies, spelled_out
from dgsf.core.options import parse_options
from dgsf.core.placement import could_ever_fit
from dgsf.core.placement.consolidate import MoveRules
from dgsf.store.views import pool_views, view_of
from proxy.lacking import what_lacks

DUMMY = {"options": {"values": "dummy"}}


def sim(number, **changes):
    return row(number, kind="sim", **{"type": "A100", "info": DUMMY} | changes)


def accepts(gpu, device):
    placing = Held().placing
    return could_ever_fit(placing.request(want("f", types=parse_options({"gpu": gpu}).worker_types)), view_of(device))


def test_only_the_name_of_its_type_finds_a_device_with_dummy_values():
    assert accepts("A100", sim(1)) and accepts(["T4", "a100"], sim(1))
    assert not accepts("any", sim(1)) and not accepts(["T4", "any"], sim(1)) and not accepts("sim", sim(1))
    computing = [row(1), row(2, kind="cuda"), sim(3, info={}), sim(4, info={"options": {"values": "real"}})]
    assert all(accepts("any", device) for device in computing)


def test_what_was_asked_for_is_told_as_it_was_asked():
    types = spelled_out(("T4", "any"))
    assert in_words(types) == "T4 or any"
    placing = Held().placing
    told = what_lacks(placing.request(want("f", types=types)), placing.outlook([], []))
    assert "device (T4 or any)" in told


def test_a_pool_of_dummies_says_how_to_have_one():
    views = [view_of(sim(1)), view_of(row(2, kind="host"))]
    assert "gpu='A100'" in said_of_dummies("none", spelled_out(("any",)), views)
    assert said_of_dummies("none", ("T4",), views) == "none"
    assert said_of_dummies("too large", spelled_out(("any",)), [*views, view_of(row(3))]) == "too large"


def test_no_session_is_moved_from_values_to_dummies_to_free_a_device():
    held = [HeldSlot(number, 1, 3600.0, UUID(int=number)) for number in (1, 2)]

    def order(*rows):
        return next_move(pool_views(rows, []), held, MoveRules(), 9)

    assert order(sim(1, info={}), sim(2, info={})) is not None and order(sim(1), sim(2)) is not None
    assert order(sim(1), sim(2, info={})) is None
