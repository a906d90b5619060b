"""Names of nodes and devices, and how long a leader may believe in its lease."""

from __future__ import annotations

from dgsf.core.devices import parse_devices
from dgsf.core.leadership import Term
from dgsf.core.topology import NodeNames, places


def test_devices_are_named_by_node_and_kind():
    found = places("id1", "box", parse_devices("cpu:2,sim:A100:1"))
    assert [place.name for place in found] == ["box/cpu0", "box/cpu1", "box/sim-A100-0"]
    assert {place.node_id for place in found} == {"id1"}


def test_a_second_node_of_the_same_name_gets_a_piece_of_its_id():
    names = NodeNames()
    assert names.name_of("aaaaaaaa", "box") == "box"
    assert names.name_of("bbbbbbbb", "box") == "box-bbbbbb"
    assert names.name_of("aaaaaaaa", "box") == "box", "the first keeps its name"


def test_a_node_that_comes_back_under_a_new_id_gets_its_old_name():
    names = NodeNames([("aaaaaaaa", "box")])
    names.keep({"cccccccc"})
    assert names.name_of("cccccccc", "box") == "box"


def test_a_successor_knows_the_names_that_were_given():
    names = NodeNames([("aaaaaaaa", "box-aaaaaa"), ("bbbbbbbb", "box")])
    assert names.name_of("aaaaaaaa", "box") == "box-aaaaaa"


def test_a_leader_stops_believing_a_fifth_early_counted_from_before_its_renewal():
    term = Term(epoch=3, ttl_us=3_000_000, sent_us=1_000_000)
    assert term.holds(1_000_000 + 2_399_999)
    assert not term.holds(1_000_000 + 2_400_000)


def test_a_renewal_never_takes_time_back():
    term = Term(3, 3_000_000, 5_000_000)
    assert term.renewed(6_000_000).until_us == 8_400_000
    assert term.renewed(4_000_000).until_us == term.until_us
