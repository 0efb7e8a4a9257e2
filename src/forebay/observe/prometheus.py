"""The metrics table as Prometheus text exposition, through a registry of our own (never the global one)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from forebay.observe.metrics import METRICS, Histogram, Metric, Metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsCollector(Collector):
    """Reads a Metrics at scrape time; nothing is copied between scrapes."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            if metric.kind == "histogram":
                yield _histogram(metric, self._metrics.histograms[metric.name])
            else:
                family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
                values = family(metric.name, metric.help, labels=metric.labels)
                for labels, value in self._metrics.values[metric.name].items():
                    values.add_metric(labels, value)
                yield values


def _histogram(metric: Metric, histogram: Histogram) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help)
    bounds = [*(str(bound) for bound in histogram.bounds), "+Inf"]
    family.add_metric((), list(zip(bounds, accumulate(histogram.counts), strict=True)), histogram.total)
    return family


def registry_of(metrics: Metrics) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MetricsCollector(metrics))
    return registry


def render(metrics: Metrics) -> bytes:
    """The text exposition of all metrics, with content type CONTENT_TYPE."""
    return generate_latest(registry_of(metrics))
