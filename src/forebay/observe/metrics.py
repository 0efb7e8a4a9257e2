"""All metrics in one table, and the values behind them, derived from Events and StepRecords only.

Nothing here knows Prometheus (see prometheus.py) and nothing times anything itself: a latency is the distance between
two events of one request. The front end owns one `Metrics` and feeds it what the engine sends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from forebay.core.messages import Event, RequestOutput
from forebay.core.step import StepRecord
from forebay.observe.latency import RequestTimes

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
TOKENS = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0)

_GRAMMAR_RESULTS = {"stop": "parsed", "length": "truncated"}

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table. `labels` are label names; `buckets` are upper bounds of a histogram."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


# fmt: off
METRICS: tuple[Metric, ...] = (
    Metric("forebay_requests_received", "counter", "requests", "Requests the front end passed to the engine"),
    Metric("forebay_requests_finished", "counter", "requests", "Finished completions, by finish reason", ("reason",)),
    Metric("forebay_requests_refused", "counter", "requests", "Requests refused before they ran, by error", ("label",)),
    Metric("forebay_prompt_tokens", "counter", "tokens", "Prompt tokens of finished completions"),
    Metric("forebay_cached_tokens", "counter", "tokens", "Of those, tokens that came from the prefix cache"),
    Metric("forebay_generated_tokens", "counter", "tokens", "Output tokens sampled"),
    Metric("forebay_prefill_tokens", "counter", "tokens", "Tokens computed to catch up: prompts and recomputation"),
    Metric("forebay_decode_tokens", "counter", "tokens", "Tokens computed to decode"),
    Metric("forebay_steps", "counter", "steps", "Steps of the engine loop"),
    Metric("forebay_preemptions", "counter", "requests", "Times a running request was preempted"),
    Metric("forebay_skipped", "counter", "requests", "Times a candidate did not enter a step, by reason", ("reason",)),
    Metric("forebay_requests_running", "gauge", "requests", "Requests in the latest step; 0 when idle"),
    Metric("forebay_requests_waiting", "gauge", "requests", "Requests waiting at the latest step"),
    Metric("forebay_blocks", "gauge", "blocks", "KV blocks that are used, free, cached, promised", ("state",)),
    Metric("forebay_slack_slots", "gauge", "slots", "Slots of used KV blocks that hold no token"),
    Metric("forebay_grammar_outputs", "counter", "requests", "Outputs of grammars: parsed, truncated", ("result",)),
    Metric("forebay_grammar_seconds", "histogram", "seconds", "From a grammar asked for to compiled", (), SECONDS),
    Metric("forebay_step_seconds", "histogram", "seconds", "Duration of a step", (), SECONDS),
    Metric("forebay_step_tokens", "histogram", "tokens", "Tokens computed by a step", (), TOKENS),
    Metric("forebay_queue_seconds", "histogram", "seconds", "From queued to first admitted", (), SECONDS),
    Metric("forebay_ttft_seconds", "histogram", "seconds", "From received to first token", (), SECONDS),
    Metric("forebay_itl_seconds", "histogram", "seconds", "Gap between consecutive output tokens", (), SECONDS),
    Metric("forebay_tpot_seconds", "histogram", "seconds", "Mean time per output token after the first", (), SECONDS),
    Metric("forebay_e2e_seconds", "histogram", "seconds", "From received to finished", (), SECONDS),
)
# fmt: on


class Histogram:
    """Counts per bucket (the last one is unbounded) and the sum of what was observed."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Metrics:
    """Current values of every metric in METRICS. Owned and fed by one front end, in one thread."""

    def __init__(self) -> None:
        self.values: dict[str, dict[Labels, float]] = {m.name: {} for m in METRICS if m.kind != "histogram"}
        self.histograms = {m.name: Histogram(m.buckets) for m in METRICS if m.kind == "histogram"}
        for metric in METRICS:
            if metric.kind != "histogram" and not metric.labels:
                self.values[metric.name][()] = 0.0

    def value(self, name: str, *labels: str) -> float:
        """A counter or gauge (0 if these labels were never seen)."""
        return self.values[name].get(labels, 0.0)

    def received(self) -> None:
        self._add("forebay_requests_received", 1)

    def refused(self, label: str) -> None:
        """A request that never reached the scheduler, or that the scheduler turned away (an error's `label`)."""
        self._add("forebay_requests_refused", 1, label)

    def output(self, output: RequestOutput) -> None:
        """Tokens of a step, as they arrive."""
        self._add("forebay_generated_tokens", len(output.token_ids))

    def finished(self, reason: str, num_prompt_tokens: int, num_cached_tokens: int, events: Iterable[Event]) -> None:
        """The end of one completion. `reason` is a FinishReason value."""
        self._add("forebay_requests_finished", 1, reason)
        self._add("forebay_prompt_tokens", num_prompt_tokens)
        self._add("forebay_cached_tokens", num_cached_tokens)
        times = RequestTimes.of(events)
        if times.grammar is not None:
            self.histograms["forebay_grammar_seconds"].observe(times.grammar)
            if reason in _GRAMMAR_RESULTS:
                self._add("forebay_grammar_outputs", 1, _GRAMMAR_RESULTS[reason])
        for name, value in (("queue", times.queue), ("ttft", times.ttft), ("tpot", times.tpot), ("e2e", times.e2e)):
            if value is not None:
                self.histograms[f"forebay_{name}_seconds"].observe(value)
        for gap in times.itl:
            self.histograms["forebay_itl_seconds"].observe(gap)

    def step(self, record: StepRecord) -> None:
        """One step record: counters grow, gauges take its numbers. A record of no requests only sets the gauges."""
        if record.num_requests:
            self._count_step(record)
        for reason in record.skipped:
            self._add("forebay_skipped", 1, reason.reason)
        self._set("forebay_requests_running", record.num_requests)
        self._set("forebay_requests_waiting", record.num_waiting)
        self._set("forebay_slack_slots", record.slack_slots)
        for state in ("used", "free", "cached", "promised"):
            self._set("forebay_blocks", getattr(record, f"blocks_{state}"), state)

    def _count_step(self, record: StepRecord) -> None:
        self._add("forebay_steps", 1)
        self._add("forebay_prefill_tokens", record.num_prefill_tokens)
        self._add("forebay_decode_tokens", record.num_decode_tokens)
        self._add("forebay_preemptions", len(record.preempted))
        self.histograms["forebay_step_seconds"].observe((record.end_ns - record.start_ns) / 1e9)
        self.histograms["forebay_step_tokens"].observe(record.num_prefill_tokens + record.num_decode_tokens)

    def _add(self, name: str, amount: float, *labels: str) -> None:
        values = self.values[name]
        values[labels] = values.get(labels, 0.0) + amount

    def _set(self, name: str, value: float, *labels: str) -> None:
        self.values[name][labels] = float(value)
