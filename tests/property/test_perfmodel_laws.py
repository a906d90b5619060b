"""What must hold for every recording and every link."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dgsf.core.perfmodel import Command, Link, Recording, choose_attach, predict

times = st.floats(0, 1e4)
sizes = st.integers(0, 10**6)


@st.composite
def commands(draw):
    sync = draw(st.booleans())
    return Command(draw(times), draw(sizes), draw(sizes) if sync else 0, sync, draw(times))


recordings = st.lists(commands(), max_size=30).map(Recording)
links = st.builds(
    Link,
    round_trip_us=times,
    bytes_per_us=st.floats(1, 1e5),
    window=st.integers(0, 8),
    outstanding_reads=st.integers(0, 8),
    command_us=st.floats(0, 50),
    sync_us=st.floats(0, 50),
    serve_us=st.floats(0, 50),
    hold_us=st.floats(0, 500),
)
ALMOST = 1 + 1e-9


@given(recordings, links, times)
def test_more_latency_is_never_faster(recording, link, more):
    slower = replace(link, round_trip_us=link.round_trip_us + more)
    assert predict(recording, link).total_us <= predict(recording, slower).total_us * ALMOST


@given(recordings, links, st.floats(1, 100))
def test_more_bandwidth_is_never_slower(recording, link, factor):
    wider = replace(link, bytes_per_us=link.bytes_per_us * factor)
    assert predict(recording, wider).total_us <= predict(recording, link).total_us * ALMOST


@given(recordings)
def test_a_link_that_costs_nothing_is_native(recording):
    assert predict(recording, Link(0.0)).total_us == predict(recording).total_us


@given(recordings, links)
def test_remoted_is_at_least_native_and_at_least_each_part(recording, link):
    remoted, native = predict(recording, link), predict(recording)
    assert remoted.total_us * ALMOST >= native.total_us
    assert remoted.total_us * ALMOST >= max(native.device_us, native.guest_us)


@given(recordings, links, st.integers(1, 7))
def test_a_wider_window_is_never_slower(recording, link, window):
    narrow, wide = replace(link, window=window), replace(link, window=window + 1)
    assert predict(recording, wide).total_us <= predict(recording, narrow).total_us * ALMOST


@given(recordings, links, st.floats(1, 5))
def test_the_choice_follows_the_limit(recording, link, most):
    choice = choose_attach(recording, link, most)
    assert (choice.attach == "fabric") == (choice.slowdown <= most)
    assert choice.reason
