"""Keep-warm in a proxy, over a virtual clock: what stays, what goes, and what is started ahead."""

import os
import subprocess
import sys
import time

import pytest

from dgsf.config import Settings, load_settings
from dgsf.core.loads import LoadTimes
from dgsf.core.shadow import DEVICE, Room, Slot
from dgsf.core.warmth import LENT_S, SETTLED_S, Ahead, Release, Warm, Warmth, allowed_s
from dgsf.errors import ConfigError

STEP_S = 0.5


class Proxy:
    """Workers under a `Warmth`; calls run for a moment on a worker of their function, started if there is none."""

    def __init__(self, slots=4):
        self.warmth = Warmth(slots, 1.0, 60.0)
        self.now = 0.0
        self.workers = {}
        self.cold = 0
        self.ahead = []
        self._made = 0

    def start(self, function, device):
        self._made += 1
        self.workers[self._made] = Warm(self._made, function, device, self.now)

    def call(self, function, device=1):
        mine = [each for each in self.workers.values() if each.function == function]
        if not mine:
            self.cold += 1
            self.start(function, device)
        else:
            self.workers[mine[0].key] = Warm(mine[0].key, function, mine[0].device, self.now)
        self.look({function: {1}})

    def look(self, reached=None):
        for order in self.warmth.look(list(self.workers.values()), reached or {}, self.now):
            if isinstance(order, Release):
                del self.workers[order.key]
            else:
                self.workers.pop(order.displaces, None)
                self.ahead.append((self.now, order))
                self.start(order.function, order.device or 1)

    def wait(self, seconds):
        until = self.now + seconds
        while self.now < until:
            self.now += STEP_S
            self.look()

    @property
    def functions(self):
        return {each.function for each in self.workers.values()}


def test_a_function_that_is_called_often_stays_and_one_that_is_not_goes():
    proxy = Proxy()
    for _ in range(40):
        proxy.call("often")
        proxy.wait(20)
    assert proxy.cold == 1
    proxy.wait(6 * 3600)
    assert not proxy.workers


def test_a_worker_just_used_is_left_alone_even_without_any_budget():
    proxy = Proxy()
    proxy.warmth.budget.spent = 1e9
    proxy.call("once")
    proxy.wait(SETTLED_S - STEP_S)
    assert proxy.functions == {"once"}
    proxy.wait(2 * STEP_S)
    assert not proxy.workers


def test_a_regular_function_is_started_shortly_before_its_call_and_not_kept_between():
    proxy = Proxy()
    for _ in range(12):
        proxy.call("hourly")
        proxy.wait(3600)
    assert proxy.cold <= 6, "after a few calls it is always there in time"
    at, order = proxy.ahead[-1]
    assert order == Ahead("hourly", None) and 0 < proxy.now - at < 60
    assert proxy.warmth.budget.spent < 3600, "in eleven hours"


def test_free_slots_of_a_working_device_get_what_is_expected_next():
    proxy = Proxy(slots=2)
    for _ in range(100):
        proxy.call("hot")
        proxy.wait(10)
    proxy.workers.clear()
    proxy.start("busy", 7)
    proxy.workers[proxy._made] = Warm(proxy._made, "busy", 7, None)
    proxy.look()
    assert [order for _, order in proxy.ahead] == [Ahead("hot", 7)]
    proxy.wait(300)
    assert len(proxy.workers) == 2 and len(proxy.ahead) == 1


def test_an_idle_worker_gives_its_place_to_a_function_that_is_expected_much_sooner():
    proxy = Proxy(slots=2)
    for _ in range(100):
        proxy.call("hot")
        proxy.wait(10)
    proxy.workers.clear()
    proxy.start("rare", 7)
    rare = proxy._made
    proxy.start("busy", 7)
    proxy.workers[proxy._made] = Warm(proxy._made, "busy", 7, None)
    proxy.look()
    assert [order for _, order in proxy.ahead] == [Ahead("hot", 7, displaces=rare)]
    assert proxy.functions == {"hot", "busy"}


def test_devices_looked_at_together_do_not_each_start_the_same_worker():
    proxy = Proxy(slots=2)
    for _ in range(100):
        proxy.call("hot")
        proxy.wait(10)
    proxy.workers.clear()
    for device in (7, 8, 9):
        proxy.start("busy", device)
        proxy.workers[proxy._made] = Warm(proxy._made, "busy", device, None)
    proxy.look()
    assert [order for _, order in proxy.ahead if order.function == "hot"] == [Ahead("hot", 7)]


def test_an_order_that_could_not_be_done_is_said_again_at_the_next_look():
    proxy = Proxy(slots=2)
    for _ in range(100):
        proxy.call("hot")
        proxy.wait(10)
    busy = [Warm(1, "busy", 7, None)]
    found = []
    for again in (False, True):
        if again:
            proxy.warmth.again(7)
        found.append([proxy.warmth.look(busy, {}, proxy.now + STEP_S * n) for n in range(1, 3)])
        proxy.now += 2 * STEP_S
    assert found == [[[Ahead("hot", 7)], []], [[Ahead("hot", 7)], []]]


def test_the_victim_is_who_is_expected_latest_and_nobody_while_another_device_is_worth_it():
    proxy = Proxy(slots=2)
    for _ in range(60):
        for function in ("hot", "warm"):
            proxy.call(function)
        proxy.wait(5)
    proxy.call("rare")
    proxy.wait(SETTLED_S)
    workers = [Warm(1, "hot", 1, proxy.now - 1), Warm(2, "rare", 1, proxy.now - 1)]
    assert proxy.warmth.victim(workers, {1, 2}, proxy.now) is None, "warm would use another device"
    proxy.warmth.budget.spent = 1e9
    assert proxy.warmth.victim(workers, {1, 2}, proxy.now) == 2
    assert proxy.warmth.victim(workers, {1}, proxy.now) == 1
    assert proxy.warmth.victim(workers, (), proxy.now) is None
    assert proxy.warmth.victim([Warm(1, "hot", 1, None)], {1}, proxy.now) is None, "a busy one is nobody's victim"


def test_a_load_time_is_learned_for_each_function_and_a_stranger_goes_by_the_mean():
    loads = LoadTimes(1.0)
    assert loads.of("f") == 1.0 and loads.alike
    for _ in range(40):
        loads.saw("slow", 20.0)
    loads.saw("quick", 0.5)
    assert loads.of("slow") == pytest.approx(20, rel=0.1)
    assert loads.of("quick") < 15 < loads.of("stranger") < 20
    loads.forget("slow")
    assert loads.of("slow") == loads.mean_s


def test_a_regular_function_that_loads_slowly_is_started_earlier():
    loads, starts = LoadTimes(1.0), {}
    for load_s in (1.0, 30.0):
        warmth = Warmth(4, loads, 60.0)
        for _ in range(50):
            loads.saw("hourly", load_s)
        for number in range(8):
            warmth.look([], {"hourly": {1}}, number * 3600.0)
        looks = [7 * 3600.0 + second for second in range(1, 3600)]
        starts[load_s] = next(at for at in looks if warmth.look([], {}, at))
    assert starts[1.0] - starts[30.0] == pytest.approx(29, abs=2)


def test_a_look_over_a_thousand_functions_expects_once_and_takes_a_few_milliseconds(monkeypatch):
    warmth, now = Warmth(8, 1.0, 60.0), 0.0
    for number in range(1000):
        now += 0.01
        warmth._policy.saw(f"f{number}", 0, now)
    expected, expect = [], warmth._policy.expect
    monkeypatch.setattr(warmth._policy, "expect", lambda *args: expected.append(args) or expect(*args))
    workers = [Warm(number, f"f{number}", number // 8, now) for number in range(64)]
    took = []
    for _ in range(5):
        now += SETTLED_S + 1
        begun = time.process_time()
        warmth.look(workers, {}, now)
        took.append(time.process_time() - begun)
    assert len(expected) == 5
    assert min(took) < 0.02, "half of that where nothing else runs"


def test_a_function_that_is_not_called_any_more_is_forgotten_and_one_that_is_stays():
    warmth = Warmth(4, 1.0, 60.0)
    for number in range(20):
        warmth.look([], {f"once{number}": {1}}, 1.0)
    for day in range(30):
        warmth.look([], {"daily": {1}}, 86_400.0 * (day + 1))
    warmth.look([], {}, 86_400.0 * 30 + 3 * 3600)
    policy = warmth._policy
    assert policy.model.functions == ["daily"] and policy.model.rows == {"daily": 0}
    assert set(policy.rhythm._last) == set(policy._runs._own) == {"daily"}
    now = 86_400.0 * 30 + 4 * 3600
    assert policy.model._popular_then(now) * 604_800 == pytest.approx(policy.model._memory[0, -1] * 604_800, rel=0.05)


def test_who_is_expected_latest_makes_room_first():
    proxy = Proxy()
    for _ in range(30):
        proxy.call("hot")
        proxy.wait(5)
    proxy.call("rare")
    rates = dict(zip(proxy.workers, proxy.warmth.rates(list(proxy.workers.values()), proxy.now), strict=True))
    by_function = {proxy.workers[key].function: rate for key, rate in rates.items()}
    assert by_function["hot"] > by_function["rare"]


def test_calls_that_end_between_two_looks_or_within_one_are_told_to_the_policy(monkeypatch):
    proxy, ended = Proxy(), []
    monkeypatch.setattr(proxy.warmth._policy, "ended", lambda function, now: ended.append((function, now)))
    proxy.warmth.look([Warm(1, "long", 1, None)], {"long": {1}}, 10.0)
    proxy.warmth.look([Warm(1, "long", 1, None), Warm(2, "short", 1, 10.2)], {"short": {1, 2}}, 10.5)
    assert ended == [("short", 10.5)] * 2
    proxy.warmth.look([Warm(1, "long", 1, 10.9)], {}, 11.0)
    assert ended[2:] == [("long", 11.0)]


def test_the_budget_is_what_the_fixed_rule_would_have_cost():
    proxy = Proxy()
    for _ in range(20):
        proxy.call("f")
        proxy.wait(300)
    fixed = 20 * 60
    assert proxy.warmth.budget.allowed == pytest.approx(allowed_s(fixed), abs=0.05 * fixed)
    assert proxy.warmth.budget.spent <= LENT_S + 1.1 * fixed


def test_what_is_lent_at_the_start_is_paid_back():
    allowed = [allowed_s(fixed) - fixed for fixed in range(0, 100_000, 100)]
    assert allowed[0] == LENT_S
    assert allowed == sorted(allowed, reverse=True)
    assert allowed[-1] == 0


def test_in_a_full_pool_the_budget_is_no_more_than_its_devices():
    warmth, now = Warmth(2, 1.0, 60.0), 0.0
    warmth.there_is({"": Room(devices=1, parts=DEVICE)})
    for number in range(200):  # eight functions take turns in two slots
        now += STEP_S
        busy = [f"f{(number + place) % 8}" for place in range(2)]
        warmth.look([Warm(place, name, 1, None) for place, name in enumerate(busy)], {name: {1} for name in busy}, now)
    assert warmth.budget.allowed == pytest.approx(allowed_s(199 * STEP_S))


def test_a_worker_that_has_made_way_before_the_look_counts_on_the_device_it_was_last_seen_on():
    warmth, slot = Warmth(2, 1.0, 60.0), Slot.one_of(2, "T4")
    warmth.there_is({"T4": Room(devices=1, parts=DEVICE)})
    warmth.look([Warm(1, "f", 1, None, slot), Warm(2, "g", 1, None, slot)], {"f": {1}, "g": {1}}, 0.0)
    warmth.look([Warm(3, "h", 1, None, slot), Warm(2, "g", 1, None, slot)], {"f": {1}, "h": {1}}, 1.0)
    warmth.look([], {}, 2.0)
    assert warmth.budget.allowed == allowed_s(2)


@pytest.mark.parametrize(
    ("text", "seconds"), [("learned", None), ("fixed", 60.0), ("fixed:7.5", 7.5), ("fixed:86400", 86_400.0)]
)
def test_the_rule_is_read_from_the_settings(text, seconds):
    assert load_settings({"DGSF_KEEP_WARM": text}).fixed_idle_seconds == seconds


@pytest.mark.parametrize(
    "text", ["", "warm", "learned:5", "learned:", "fixed:", "fixed:-1", "fixed:x", "fixed:0", "fixed:nan", "fixed:1e9"]
)
def test_a_rule_that_makes_no_sense_stops_the_start(text):
    with pytest.raises(ConfigError, match="DGSF_KEEP_WARM="):
        load_settings({"DGSF_KEEP_WARM": text})


def test_learned_is_the_default():
    assert Settings().fixed_idle_seconds is None


def test_two_runs_of_the_same_calls_are_the_same_whatever_the_order_of_sets():
    """Names of functions are hashed with another seed in each process."""
    script = (
        "from dgsf.core.warmth import Warmth\n"
        "warmth = Warmth(2, 1.0, 60.0)\n"
        "for at in range(60): warmth.look([], {f'f{n}': {1} for n in range(at % 7, at % 7 + 9)}, 25.0 * at)\n"
        "print(warmth.budget.allowed, warmth._shadow._instances)\n"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in "123"
    }
    assert len(told) == 1
