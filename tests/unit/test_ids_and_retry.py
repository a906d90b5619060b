"""Call ids, keys, retries, rendezvous and prices."""

import pickle

import pytest

from dgsf import errors
from dgsf.core.pricing import cost_nano
from dgsf.core.rendezvous import ranked
from dgsf.core.retry import try_again
from dgsf.ids import CallIds, key_digest, key_id_of, minted_at_ms, new_api_key, proxy_number


def test_call_ids_are_version_7_in_order_and_carry_time_and_proxy():
    ids = CallIds()
    minted = [ids.mint(proxy_number=41, now_ms=1_700_000_000_000) for _ in range(10_000)]
    assert minted == sorted(minted)
    assert len(set(minted)) == len(minted)
    assert all(one.version == 7 and proxy_number(one) == 41 for one in minted)
    assert minted_at_ms(minted[0]) == 1_700_000_000_000


def test_a_clock_that_goes_back_does_not_disorder_ids():
    ids = CallIds()
    assert ids.mint(now_ms=2_000) < ids.mint(now_ms=1_000)


def test_a_key_has_a_public_part_and_hides_its_secret():
    key = new_api_key()
    assert key_id_of(key.text) == key.key_id
    assert key.text not in repr(key)
    assert key.digest == key_digest(key.text)


@pytest.mark.parametrize("text", ["", "dgsf", "dgsf__x", "other_a_b", "dgsf_a_"])
def test_what_is_no_key_has_no_key_id(text):
    assert key_id_of(text) is None


def test_retries_count_attempts_after_the_first():
    assert try_again("function_error", 1, 1)
    assert not try_again("function_error", 2, 1)
    assert not try_again("function_error", 1, 0)


@pytest.mark.parametrize("code", ["cancelled", "result_not_json", "function_load_error", "queue_full"])
def test_what_cannot_get_better_is_not_tried_again(code):
    assert not try_again(code, 1, 5)


def test_a_lost_proxy_moves_only_its_own_functions():
    members = [f"proxy-{number}" for number in range(5)]
    before = {key: ranked(str(key), members)[0] for key in range(1000)}
    after = {key: ranked(str(key), members[:-1])[0] for key in range(1000)}
    moved = {key for key in before if before[key] != after[key]}
    assert moved == {key for key, owner in before.items() if owner == members[-1]}
    assert all(120 < sum(owner == member for owner in before.values()) < 280 for member in members)


def test_costs_are_whole_and_never_negative():
    assert cost_nano(1234, 7) == 8638
    with pytest.raises(ValueError, match="negative"):
        cost_nano(-1, 1)


def test_every_error_has_its_own_code_and_survives_pickling():
    table = errors.all_errors()
    assert len(table) > 30
    for code, kind in table.items():
        error = pickle.loads(pickle.dumps(kind("told", name="x")))
        assert (type(error), error.code, error.message, error.details) == (kind, code, "told", {"name": "x"})


def test_messages_default_to_the_docstring():
    assert str(errors.QueueFull()) == "The function's queue is full; try again after the given time."
