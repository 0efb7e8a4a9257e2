"""From records of requests to the figures of a document. Each latency is what observe/latency.py says it is.

| figure | of | definition |
|---|---|---|
| latencies (ttft, itl, tpot, e2e, queue, send_lag) | completed requests | see RequestTimes; send_lag: sent - intended |
| duration | all requests | first intended send to last end, summed over runs |
| request_rate | completed requests | their number / duration |
| tokens, and rates of tokens | requests that did not fail | what the server counted, else what was planned / duration |
| goodput | completed requests within the SLO | their number / duration |
| slo_attained | all but cancelled requests | share that completed within the SLO; a failure is a miss |

A request cancelled on purpose got what it wanted, so its tokens count; those of a failed one are of no use to anybody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat, zip_longest
from typing import Any

import msgspec

from forebay.bench.record import Failure, FailureKind, RequestRecord
from forebay.bench.result import Distribution, Interval, Summary
from forebay.bench.slo import SLO
from forebay.bench.statistics import MIN_REQUESTS, Group, distribution, mean_interval_over_runs, share_interval
from forebay.core.request import FinishReason
from forebay.errors import BenchError, OverloadedError, RequestAbortedError, RequestError
from forebay.observe.latency import RequestTimes
from forebay.observe.recorder import RequestLine

CLIENT_SEND, SERVER_RECEIVE = "client_send", "server_receive"
MAX_TOKENS = 2**24  # of one request; a document that says more is damaged
LATENCIES = ("ttft", "itl", "tpot", "e2e", "queue")
_RATES = {"request_rate": "completed", "output_token_rate": "output", "total_token_rate": "total", "goodput": "good"}

Runs = Sequence[Sequence[RequestRecord]]


class ServedRecord(RequestRecord, frozen=True, kw_only=True):
    """A record made from a server's events, which also know the time in the queue. queue_s: None if never admitted."""

    queue_s: float | None = None


def times_of(record: RequestRecord) -> RequestTimes:
    """Latencies from the intended send. A chunk of k tokens is one gap and k - 1 gaps of 0.

    Raises BenchError for a record whose columns contradict each other.
    """
    counts = record.token_counts
    if len(counts) != len(record.token_ns) or (counts and (min(counts) < 0 or sum(counts) > MAX_TOKENS)):
        raise BenchError(
            f"record {record.index}: token_counts must give 0 to {MAX_TOKENS} tokens for each of "
            f"{len(record.token_ns)} chunks; measure again"
        )
    token_ns = list(chain.from_iterable(map(repeat, record.token_ns, counts)))
    queue = record.queue_s if isinstance(record, ServedRecord) else None
    return RequestTimes.between(record.intended_ns, token_ns, record.end_ns, queue=queue)


def shifted(record: RequestRecord, by_ns: int) -> RequestRecord:
    """The same record with all its times later by `by_ns`: relative to absolute with a run's started_ns, and back."""
    return msgspec.structs.replace(
        record,
        intended_ns=record.intended_ns + by_ns,
        sent_ns=record.sent_ns + by_ns,
        headers_ns=None if record.headers_ns is None else record.headers_ns + by_ns,
        token_ns=tuple(time_ns + by_ns for time_ns in record.token_ns),
        end_ns=record.end_ns + by_ns,
    )


def duration_s(records: Sequence[RequestRecord]) -> float:
    """Of one run: from the first intended send to the last end of any request; 0 without requests."""
    if not records:
        return 0.0
    return (max(record.end_ns for record in records) - min(record.intended_ns for record in records)) / 1e9


def latencies_of(records: Iterable[RequestRecord]) -> dict[str, list[Group]]:
    """For each of LATENCIES the values of each completed request that has any: one, but as many as gaps for itl."""
    return _grouped([times_of(record) for record in records if record.completed])


def rates_of(records: Sequence[RequestRecord], duration_s: float, slo: SLO | None = None) -> dict[str, float]:
    """request_rate, output_token_rate, total_token_rate and, with an SLO, goodput of one run; 0 if it took no time."""
    counts = _counts(records, slo)
    return {name: _rate(counts[what], duration_s) for name, what in _RATES.items() if what in counts}


def summarize(runs: Runs, *, slo: SLO | None = None, boundary: str = CLIENT_SEND, seed: int = 0) -> Summary:
    """The metrics of all runs together (see the head of this file).

    runs: the records of each; times of one run count from one origin. boundary: what `intended_ns` is in them; where it
    is the server's, there is no send lag. seed: of the bootstrap. Rates have intervals from 3 runs on, over runs.
    Raises BenchError for a damaged record.
    """
    return _summary(runs, [duration_s(run) for run in runs], slo, boundary, seed)


def by_bucket(runs: Runs, *, slo: SLO | None = None, boundary: str = CLIENT_SEND, seed: int = 0) -> dict[str, Summary]:
    """A summary for each bucket of the workload, in order of appearance. Durations are those of the whole runs, so that
    the rates of all buckets add up to the rate of the whole."""
    durations = [duration_s(run) for run in runs]
    names = dict.fromkeys(record.bucket for run in runs for record in run)
    return {
        name: _summary(
            [[record for record in run if record.bucket == name] for run in runs], durations, slo, boundary, seed
        )
        for name in names
    }


def figures_of(summary: Summary) -> dict[str, Any]:
    """A summary as the flat figures of a row; an absent latency is absent."""
    row: dict[str, Any] = {
        "output_token_rate": summary.output_token_rate,
        "request_rate": summary.request_rate,
        "total_token_rate": summary.total_token_rate,
        "completed": summary.completed,
        "failed": sum(summary.failures.values()),
    }
    for latency in ("ttft", "itl", "tpot", "e2e"):
        found: Distribution | None = getattr(summary, f"{latency}_s")
        if found is not None:
            row |= {f"{latency}_{figure}_s": getattr(found, figure) for figure in ("p50", "p95", "p99")}
    if summary.slo_attained is not None:
        row |= {"goodput": summary.goodput, "slo_attained": summary.slo_attained}
    return row


def best_share(records: Sequence[RequestRecord], slo: SLO) -> float:
    """The largest share within the SLO that fewer requests a second could bring: what those had that met no other one.
    Where others met, with the benefit of the doubt (the upper end of the share's interval). 0 if none completed."""
    if not any(record.completed for record in records):
        return 0.0
    judged = sum(not record.cancelled for record in records)
    alone = [record for record in _alone(records) if not record.cancelled]
    held = sum(record.completed and slo.holds(times_of(record)) for record in alone)
    if len(alone) == judged:
        return held / judged
    interval = share_interval(held, len(alone))
    return 1.0 if interval is None or len(alone) < MIN_REQUESTS else interval[1]


def _alone(records: Sequence[RequestRecord]) -> Iterator[RequestRecord]:
    """Those that had ended when the next one was meant to be sent, and began when all before had ended."""
    ordered = sorted(records, key=lambda record: record.intended_ns)
    ended_ns = 0
    for record, following in zip_longest(ordered, ordered[1:]):
        if ended_ns <= record.intended_ns and (following is None or record.end_ns <= following.intended_ns):
            yield record
        ended_ns = max(ended_ns, record.end_ns)


def server_records(lines: Iterable[RequestLine]) -> tuple[ServedRecord, ...]:
    """What a server recorded of each completion, as records with boundary server_receive and absolute times.

    intended = sent = received; a chunk is a token; the end is `finished`, or the last event of one that never got
    there. An aborted completion is cancelled; any reason but stop and length is a failure. A refusal that left no
    event has no time and is left out: it never was at the engine.
    """
    return tuple(_served(index, line) for index, line in enumerate(line for line in lines if line.events))


def _summary(runs: Runs, durations: Sequence[float], slo: SLO | None, boundary: str, seed: int) -> Summary:
    records = [record for run in runs for record in run]
    completed = [record for record in records if record.completed]
    per_run = [_counts(run, slo) for run in runs]
    counts = {name: sum(run[name] for run in per_run) for name in (per_run[0] if per_run else _counts([], slo))}
    duration = sum(durations)
    judged = sum(not record.cancelled for record in records)
    checked = [record.correct for record in records if record.correct is not None]
    return Summary(
        boundary=boundary,
        duration_s=duration,
        requests=len(records),
        completed=len(completed),
        cancelled=sum(record.cancelled for record in records),
        failures=_failures(records),
        prompt_tokens=counts["total"] - counts["output"],
        cached_tokens=sum(record.cached_tokens or 0 for record in records if record.failure is None),
        output_tokens=counts["output"],
        request_rate=_rate(counts["completed"], duration),
        output_token_rate=_rate(counts["output"], duration),
        total_token_rate=_rate(counts["total"], duration),
        goodput=_rate(counts["good"], duration) if slo is not None else None,
        slo_attained=counts["good"] / judged if slo is not None and judged else None,
        correct=sum(checked) / len(checked) if checked else None,
        counted_by=dict(sorted(Counter(record.counted_by for record in completed).items())),
        intervals=_rate_intervals(per_run, durations),
        **_distributions(completed, boundary, seed),
    )


def _distributions(completed: Sequence[RequestRecord], boundary: str, seed: int) -> dict[str, Distribution | None]:
    """The fields of Summary that are distributions, by name."""
    groups = {f"{name}_s": some for name, some in latencies_of(completed).items()}
    if boundary != SERVER_RECEIVE:
        groups["send_lag_s"] = [[(record.sent_ns - record.intended_ns) / 1e9] for record in completed]
    return {name: distribution(some, seed) for name, some in groups.items()}


def _grouped(times: Sequence[RequestTimes]) -> dict[str, list[Group]]:
    groups: dict[str, list[Group]] = {name: [] for name in LATENCIES}
    for one in times:
        if one.itl:
            groups["itl"].append(one.itl)
        for name, value in (("ttft", one.ttft), ("tpot", one.tpot), ("e2e", one.e2e), ("queue", one.queue)):
            if value is not None:
                groups[name].append((value,))
    return groups


def _counts(records: Sequence[RequestRecord], slo: SLO | None) -> dict[str, int]:
    """What the rates of one run count; "good" only with an SLO."""
    output = sum(record.output_tokens for record in records if record.failure is None)
    prompt = sum(_prompt_tokens(record) for record in records if record.failure is None)
    counts = {"completed": sum(record.completed for record in records), "output": output, "total": prompt + output}
    if slo is not None:
        counts["good"] = sum(slo.holds(times_of(record)) for record in records if record.completed)
    return counts


def _prompt_tokens(record: RequestRecord) -> int:
    return (record.planned_prompt_tokens or 0) if record.prompt_tokens is None else record.prompt_tokens


def _rate(count: float, duration: float) -> float:
    return count / duration if duration > 0 else 0.0


def _rate_intervals(per_run: Sequence[Mapping[str, int]], durations: Sequence[float]) -> dict[str, Interval]:
    found = {}
    for name, what in _RATES.items():
        if per_run and what in per_run[0]:
            rates = [_rate(run[what], duration) for run, duration in zip(per_run, durations, strict=True)]
            interval = mean_interval_over_runs(rates, durations)
            if interval is not None:
                found[name] = (max(0.0, interval[0]), interval[1])
    return found


def _failures(records: Iterable[RequestRecord]) -> dict[str, int]:
    counts = Counter(record.failure.kind for record in records if record.failure is not None)
    return {kind.value: counts[kind] for kind in FailureKind if counts[kind]}


def _served(index: int, line: RequestLine) -> ServedRecord:
    times = RequestTimes.of(line.events)
    token_ns = tuple(event.t_ns for event in line.events if event.kind == "token")
    received_ns, end_ns = _first(line, "received", 0), _first(line, "finished", -1)
    failed = line.reason not in (FinishReason.STOP, FinishReason.LENGTH, *_ABORTED)
    return ServedRecord(
        index=index,
        session=index,
        intended_ns=received_ns,
        sent_ns=received_ns,
        token_ns=token_ns,
        token_counts=(1,) * len(token_ns),
        end_ns=end_ns,
        planned_output_tokens=len(token_ns),
        prompt_tokens=line.num_prompt_tokens,
        cached_tokens=line.num_cached_tokens,
        output_tokens=len(token_ns),
        finish_reason=line.reason,
        response_id=line.request_id,
        cancelled=line.reason in _ABORTED,
        failure=Failure(kind=_failure_kind(line.reason, bool(token_ns)), detail=line.reason) if failed else None,
        queue_s=times.queue,
    )


_ABORTED = (FinishReason.ABORT.value, RequestAbortedError.label)


def _first(line: RequestLine, kind: str, otherwise: int) -> int:
    return next((event.t_ns for event in line.events if event.kind == kind), line.events[otherwise].t_ns)


def _failure_kind(label: str, begun: bool) -> FailureKind:
    """What a client saw of an error with this label, given whether tokens had gone out."""
    if begun:
        return FailureKind.STREAM_ERROR
    if label == OverloadedError.label:
        return FailureKind.OVERLOADED
    kinds: list[type[RequestError]] = [RequestError, *RequestError.__subclasses__()]
    return FailureKind.CLIENT_ERROR if label in {kind.label for kind in kinds} else FailureKind.SERVER_ERROR
