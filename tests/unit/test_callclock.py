"""The file of an executor's clock, as it is read while it grows."""

from __future__ import annotations

from array import array

from dgsf.remoting.executor.callclock import ClockReader, Took


def test_only_what_is_new_is_read_and_half_a_call_waits_for_its_rest(tmp_path):
    path = tmp_path / "clock"
    words = array("q", [1, 10, 2, 2, 20, 3, 3, 30, 4]).tobytes()
    path.write_bytes(words[:56])  # two calls, and of the third its number only
    reader = ClockReader(path)
    assert reader.new() == {1: Took(10, 2), 2: Took(20, 3)}
    assert reader.new() == {}
    path.write_bytes(words)
    assert reader.new() == {3: Took(30, 4)}
