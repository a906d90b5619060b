"""Counters as plain integers, and their Prometheus form when somebody asks.

Counting a request costs two dictionary steps; the collector turns numbers into metrics only on a scrape.
Every metric carries this process's id, because several gateways share one port.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Counters:
    """What this gateway has done."""

    __slots__ = ("answers", "buckets", "call_seconds", "in_flight")

    def __init__(self) -> None:
        self.answers: dict[tuple[str, int], int] = {}
        self.in_flight = 0
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.call_seconds = 0.0

    def answered(self, route: str, status: int) -> None:
        key = (route, status)
        self.answers[key] = self.answers.get(key, 0) + 1

    def called(self, seconds: float) -> None:
        self.call_seconds += seconds
        self.buckets[bisect_left(BOUNDS, seconds)] += 1


class GatewayCollector(Collector):
    """Reads the counters at a scrape."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._gateway = str(os.getpid())

    def collect(self) -> Iterable[Metric]:
        answers = CounterMetricFamily(
            "dgsf_gateway_requests", "HTTP requests answered", labels=["gateway", "route", "status"]
        )
        for (route, status), count in sorted(self._counters.answers.items()):
            answers.add_metric([self._gateway, route, str(status)], count)
        in_flight = GaugeMetricFamily("dgsf_gateway_in_flight", "HTTP requests being handled", labels=["gateway"])
        in_flight.add_metric([self._gateway], self._counters.in_flight)
        return answers, in_flight, self._seconds()

    def _seconds(self) -> Metric:
        family = HistogramMetricFamily(
            "dgsf_gateway_call_seconds", "time of invokes from request to answer", labels=["gateway"]
        )
        total, buckets = 0, []
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self._counters.buckets, strict=True):
            total += count
            buckets.append((bound, float(total)))
        family.add_metric([self._gateway], buckets, self._counters.call_seconds)
        return family


def exposition(counters: Counters, others: Sequence[Collector]) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in (GatewayCollector(counters), *others):
        registry.register(collector)
    return generate_latest(registry)
