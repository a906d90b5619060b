"""How far ahead calls are sent and when another worker is wanted."""

from dgsf.core.scaling import RunTime, RunTimes, depth, more_workers, pack


def seen(*run_us):
    run_time = RunTime()
    for us in run_us:
        run_time.saw(us)
    return run_time


def test_an_unknown_function_gets_one_call_at_a_time():
    assert depth(RunTime(), 64) == 1
    assert pack(RunTime(), 64) == 1


def test_short_calls_are_sent_ahead_up_to_the_limit():
    assert depth(seen(*[20] * 100), 64) == 64
    assert depth(seen(*[200] * 100), 64) == 10


def test_long_calls_are_never_sent_ahead():
    assert depth(seen(*[50_000] * 10), 64) == 1


def test_one_long_call_among_short_ones_stops_sending_ahead_at_once():
    run_time = seen(*[20] * 1000, 100_000)
    assert depth(run_time, 64) == 1


def test_the_first_burst_of_an_unknown_function_asks_for_a_worker_per_call():
    assert more_workers(5, 0, 0, 0, 0, RunTime()) == 5
    assert more_workers(5, 0, 0, 3, 0, RunTime()) == 2


def test_max_workers_is_kept():
    assert more_workers(5, 1, 1, 0, 2, RunTime()) == 1
    assert more_workers(5, 2, 2, 0, 2, RunTime()) == 0


def test_no_queue_wants_no_worker():
    assert more_workers(0, 9, 1, 0, 0, seen(50_000)) == 0


def test_short_calls_share_one_worker_until_the_backlog_is_worth_another():
    quick = seen(*[20] * 100)
    assert more_workers(10, 64, 1, 0, 0, quick) == 0
    assert more_workers(1000, 64, 1, 0, 0, quick) == 1


def test_a_known_quick_function_without_workers_starts_just_one():
    quick = seen(*[20] * 100)
    assert more_workers(50, 0, 0, 0, 0, quick) == 1
    assert more_workers(50, 0, 0, 1, 0, quick) == 0


def test_run_times_are_told_of_the_type_that_ran_last_and_never_mixed():
    times = RunTimes()
    assert times.latest == (0.0, "")
    for _ in range(10):
        times.saw("slow", 2_000_000)
        times.saw("fast", 1_000_000)
    assert times.latest == (1.0, "fast")
    times.saw("slow", 2_000_000)
    assert times.latest == (2.0, "slow")
