"""The proxy's numbers for Prometheus: read when somebody looks, never counted on the path of a call."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from proxy.local import LocalProxy


class ProxyCollector(Collector):
    """Queues, workers and commits of one proxy."""

    def __init__(self, proxy: LocalProxy) -> None:
        self._proxy = proxy

    def collect(self) -> Iterator[Metric]:
        lanes = list(self._proxy.lanes.values())
        gauges = {
            "dgsf_proxy_functions": ("function versions with a queue or a worker here", len(lanes)),
            "dgsf_proxy_waiting_calls": ("calls that wait for a worker", sum(len(lane.queue) for lane in lanes)),
            "dgsf_proxy_running_calls": ("calls given to a worker", sum(lane.running for lane in lanes)),
            "dgsf_proxy_workers": ("warm workers", sum(len(lane.links) for lane in lanes)),
            "dgsf_proxy_starting_workers": ("workers being started", sum(lane.starting for lane in lanes)),
            "dgsf_proxy_store_available": ("1 if outcomes can be committed", int(self._proxy.recorder.available)),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(name, text, value=value)
        recorder = self._proxy.recorder
        yield CounterMetricFamily("dgsf_proxy_ended_calls", "calls that have ended", value=recorder.ended)
        yield CounterMetricFamily("dgsf_proxy_commits", "group commits", value=recorder.commits)
        trips = GaugeMetricFamily("dgsf_proxy_round_trip_us", "measured way to a device and back", labels=["device"])
        for device, (_, us) in self._proxy.distances.known().items():
            trips.add_metric([str(device)], us)
        yield trips
        kept = self._proxy.keeping.counts
        yield CounterMetricFamily(
            "dgsf_proxy_workers_not_kept", "idle workers given up by keep-warm", value=kept.released
        )
        yield CounterMetricFamily("dgsf_proxy_workers_ahead", "workers started ahead of a call", value=kept.ahead)
        yield CounterMetricFamily(
            "dgsf_proxy_workers_ahead_used", "workers started ahead that then got a call", value=kept.ahead_used
        )
