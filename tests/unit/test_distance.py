"""How far devices are: smoothing of what was measured, what is told, and the way of a session's question."""

from dgsf.clock import ManualClock
from dgsf.core.distance import Distances, Measured, way_us
from proxy.echo import Echo


def test_shorter_is_believed_at_once_and_longer_little_by_little():
    distances = Distances()
    for us in (900.0, 100.0, 180.0):
        distances.saw(1, 1, us)
    assert distances.known() == {1: (1, 110.0)}
    for _ in range(60):
        distances.saw(1, 1, 1000.0)
    assert 990 < distances.known()[1][1] <= 1000
    distances.saw(1, 2, 5000.0)
    assert distances.known() == {1: (2, 5000.0)}, "a new life may be somewhere else"


def test_a_link_that_may_be_busy_brings_a_figure_down_and_never_up():
    distances = Distances()
    distances.saw(1, 2, 2741.0)
    for us in (5454.0, 90.0, 3000.0):
        distances.at_most(1, 2, us)
    assert distances.known() == {1: (2, 90.0)}
    distances.at_most(1, 1, 5.0)
    assert distances.known() == {1: (2, 90.0)}, "a late answer of an earlier life"


def test_only_what_is_new_or_clearly_different_is_told():
    distances = Distances()
    distances.saw(1, 1, 100.0)
    distances.saw(2, 1, 50.0)
    news = distances.news()
    assert news == {1: (1, 100.0), 2: (1, 50.0)}
    distances.told(news)
    distances.saw(1, 1, 95.0)
    distances.saw(2, 1, 20.0)
    assert distances.news() == {2: (1, 20.0)}


def measured(us, host=False, proxy=1, near=True, sessions=True):
    return Measured(proxy, host, us, near, sessions)


def test_the_way_is_to_the_device_and_what_the_host_is_farther_than_a_neighbour():
    assert way_us([]) is None and way_us([measured(80.0, host=True)]) is None
    assert way_us([measured(100.0)]) == 100
    assert way_us([measured(100.0), measured(90.0, host=True)]) == 100, "all on one machine"
    far_host = [measured(100.0), measured(1090.0, host=True, near=False)]
    assert way_us(far_host) == 100 + 990
    far_device = [measured(1100.0, near=False), measured(90.0, host=True)]
    assert way_us(far_device) == 1100
    nothing_near = [measured(500.0, near=False), measured(400.0, host=True, near=False)]
    assert way_us(nothing_near) == 900


def test_proxies_with_sessions_count_and_others_stand_in():
    other = measured(10.0, proxy=2, sessions=False)
    assert way_us([other]) == 10
    assert way_us([other, measured(300.0), measured(500.0, proxy=3)]) == 400
    assert way_us([other, measured(300.0, host=True)]) == 10, "a host alone says nothing of devices"


def test_of_several_echoes_the_quickest_counts_and_no_other_is_taken():
    clock, sent, heard = ManualClock(), [], []
    echo = Echo(clock, lambda: sent.append(1), heard.append, echoes=3)
    echo.start()
    for us in (700, 40, 90):
        clock.advance(us)
        assert echo.pong()
    assert (len(sent), heard) == (3, [40])
    assert not echo.pong(), "nobody asked"


def test_an_echo_that_is_stopped_takes_what_is_on_its_way_and_asks_no_more():
    clock, sent, heard = ManualClock(), [], []
    echo = Echo(clock, lambda: sent.append(1), heard.append)
    echo.start()
    echo.stop()
    clock.advance(50)
    assert echo.pong() and not echo.pong()
    assert (len(sent), heard) == (1, [50])
