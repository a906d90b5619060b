"""What is said of a pool that has nothing for a call now."""

import pytest
from test_placing import GIB, Held, lease, row, want

from proxy.lacking import takes_work, what_lacks, withheld


def seen(rows, leases=(), **changes):
    placing = Held().placing
    return placing.request(want("f", **changes)), placing.outlook(rows, leases)


def test_lost_and_suspect_devices_may_come_back_but_those_of_an_operator_do_not():
    def by_wish(*states):
        return withheld(*seen([row(number, state=state) for number, state in enumerate(states)]))

    assert by_wish("draining") and by_wish("draining", "quarantined")
    assert not by_wish("draining", "lost") and not by_wish("suspect")
    assert not by_wish(), "a pool without any device is one that starts"


def test_the_state_of_a_function_host_is_not_that_of_a_device():
    rows = [row(1), row(2, kind="host", state="lost")]
    request, outlook = seen(rows, types=("host",))
    assert not takes_work(request, outlook)
    assert "no function host takes work now (1 lost)" in what_lacks(request, outlook)
    assert takes_work(*seen(rows))


@pytest.mark.parametrize(
    ("pool", "changes", "told"),
    [
        ([], {}, "the pool has no device (any)"),
        ([row(1, state="lost")], {"types": ("A100", "cpu")}, "no device (A100 or cpu) takes work now (1 lost)"),
        ([row(1, slots=2)], {}, "all 2 slots of device (any) are taken"),
        ([row(1)], {"memory_bytes": 7 * GIB}, "2 slots of device (any) are free, but at most 6.0 GiB"),
        ([row(1, info={"cpus": 2})], {"cpu_milli": 2000}, "are free, but not 2 processors beside them"),
    ],
)
def test_what_is_full_is_named_with_the_way_out(pool, changes, told):
    leases = [lease(1, slot, "g", cpu_milli=500) for slot in range(2)]
    words = what_lacks(*seen(pool, leases, **changes))
    assert told in words and ("see 'dgsf" in words or "lower" in words)
