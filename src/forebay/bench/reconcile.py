"""A server's record laid beside what a client saw of the same requests: where the time went between the two boundaries.

    intended   sent    received  tokenized  queued   admitted    first token          last token    client's end
       |---1----|---2-----|----3----|----4----|---5-----|-----6-----|----------8----------|-----9------|
                                                                    |--7--| client saw it

Stretches 1 to 6, 8 and 9 follow each other and add up to the client's E2E, to the nanosecond; 1 to 7 add up to its
TTFT. `admitted` is the first admission. A preemption lies in the stretch where it happened: before the first token in
6, after it in 8, with the time until the request was admitted again.

Both clocks must be CLOCK_MONOTONIC of one machine. A server's clock that is ahead or behind by more than the time a
message takes shows in most requests as a request received before it was sent, or a token seen before it was sampled;
such a record is refused. A smaller difference cannot be told from the network, and moves time between stretches 2, 7
and 9.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from forebay.bench.record import RequestRecord
from forebay.bench.result import Reconciled, StepSeries
from forebay.bench.statistics import distribution
from forebay.core.step import StepRecord
from forebay.errors import BenchError
from forebay.observe.recorder import RequestLine

LAG = "intended -> sent (client)"
TRANSIT = "sent -> received (network, HTTP, parse)"
TOKENIZE = "received -> tokenized"
HANDOVER = "tokenized -> queued (to the engine)"
WAITING = "queued -> admitted (waiting)"
PREFILL = "admitted -> first token (prefill)"
EMIT = "first token -> client saw it (emit, detokenize, network)"
DECODE = "first token -> last token (decode)"
END = "last token -> client saw the end"

STRETCHES = (LAG, TRANSIT, TOKENIZE, HANDOVER, WAITING, PREFILL, EMIT, DECODE, END)
TTFT_STRETCHES = (LAG, TRANSIT, TOKENIZE, HANDOVER, WAITING, PREFILL, EMIT)  # these add up to TTFT
E2E_STRETCHES = (LAG, TRANSIT, TOKENIZE, HANDOVER, WAITING, PREFILL, DECODE, END)  # these add up to E2E


def reconcile(client: Sequence[RequestRecord], server: Iterable[RequestLine]) -> Reconciled:
    """Match completed requests by response id (see matched_lines) and give each stretch as a distribution.

    client: records with absolute times. unmatched: completed requests of which the server's record holds no whole life.
    Raises BenchError if the record is of another machine or clock.
    """
    completed = [record for record in client if record.completed]
    lines = matched_lines(completed, server)
    found = [stretches_of(record, lines.get(record.response_id or "", [])) for record in completed]
    matched = [stretches for stretches in found if stretches is not None]
    _check_clock(matched)
    distributions = {
        name: distribution([(stretches[name] / 1e9,) for stretches in matched if name in stretches], seed=0)
        for name in STRETCHES
    }
    return Reconciled(
        matched=len(matched),
        unmatched=len(completed) - len(matched),
        stretches={name: one for name, one in distributions.items() if one is not None},
    )


def matched_lines(client: Iterable[RequestRecord], server: Iterable[RequestLine]) -> dict[str, list[RequestLine]]:
    """The completions of each response id: one, but all children of n > 1, and all `<id>-<i>` of several prompts."""
    found: dict[str, list[RequestLine]] = {one.response_id: [] for one in client if one.response_id is not None}
    for line in server:
        base, _, suffix = line.request_id.rpartition("-")
        if line.request_id in found:
            found[line.request_id].append(line)
        elif suffix.isdecimal() and base in found:
            found[base].append(line)
    return found


def other_requests(client: Sequence[RequestRecord], server: Iterable[RequestLine]) -> int:
    """How many requests of somebody else the server had while the client's ran. client: with absolute times; one that
    has no id may be any of the server's."""
    began = min((one.intended_ns for one in client), default=0)
    ended = max((one.end_ns for one in client), default=0)
    own = {one.response_id for one in client}
    others = {
        line.request_id
        for line in server
        if line.events
        and line.events[0].t_ns <= ended
        and line.events[-1].t_ns >= began
        and not {line.request_id, line.request_id.rpartition("-")[0]} & own
    }
    return max(0, len(others) - sum(one.response_id is None for one in client))


def stretches_of(record: RequestRecord, lines: Sequence[RequestLine]) -> dict[str, int] | None:
    """The stretches of one request in ns; None if no completion of it has a whole life up to its first token.

    Of several completions, the one with the first token is followed up to there, and the last token is that of them
    all. Tokens the engine sampled after the client's end do not count: a stop string ends the answer a step or two
    before the engine hears of it. A client that saw no token (the answer was an end of text) has no stretch EMIT.
    """
    lives = [life for life in map(_life, lines) if life is not None]
    if not lives:
        return None
    received, tokenized, queued, admitted, first = min(lives, key=lambda life: life[-1])
    tokens = [event.t_ns for line in lines for event in line.events if event.kind == "token"]
    last = max((t_ns for t_ns in tokens if t_ns <= record.end_ns), default=first)
    seen = next((at for at, count in zip(record.token_ns, record.token_counts, strict=False) if count), None)
    stretches = {
        LAG: record.sent_ns - record.intended_ns,
        TRANSIT: received - record.sent_ns,
        TOKENIZE: tokenized - received,
        HANDOVER: queued - tokenized,
        WAITING: admitted - queued,
        PREFILL: first - admitted,
        DECODE: last - first,
        END: record.end_ns - last,
    }
    return stretches if seen is None else {**stretches, EMIT: seen - first}


def step_series(steps: Sequence[StepRecord], started_ns: int, ended_ns: int | None = None) -> StepSeries:
    """Steps as columns, in order of their start: those that start in [started_ns, ended_ns]. Records of a resting
    engine, which hold no request, are left out."""
    kept = sorted(
        (
            step
            for step in steps
            if step.num_requests and step.start_ns >= started_ns and (ended_ns is None or step.start_ns <= ended_ns)
        ),
        key=lambda step: step.start_ns,
    )
    return StepSeries(
        start_s=[(step.start_ns - started_ns) / 1e9 for step in kept],
        duration_s=[(step.end_ns - step.start_ns) / 1e9 for step in kept],
        requests=[step.num_requests for step in kept],
        prefill_tokens=[step.num_prefill_tokens for step in kept],
        decode_tokens=[step.num_decode_tokens for step in kept],
        waiting=[step.num_waiting for step in kept],
        blocks_used=[step.blocks_used for step in kept],
        blocks_cached=[step.blocks_cached for step in kept],
        blocks_promised=[step.blocks_promised for step in kept],
        blocks_free=[step.blocks_free for step in kept],
        slack_slots=[step.slack_slots for step in kept],
    )


def _life(line: RequestLine) -> tuple[int, int, int, int, int] | None:
    """The first of each boundary up to the first token; None if one is missing."""
    first: dict[str, int] = {}
    for event in line.events:
        first.setdefault(event.kind, event.t_ns)
    try:
        return first["received"], first["tokenized"], first["queued"], first["admitted"], first["token"]
    except KeyError:
        return None


def _check_clock(matched: Sequence[dict[str, int]]) -> None:
    """By the median, so that one late timestamp of a busy client condemns nobody."""
    for name, what in ((TRANSIT, "received before they were sent"), (EMIT, "answered before the token was sampled")):
        found = [stretches[name] for stretches in matched if name in stretches]
        middle = statistics.median(found) if found else 0
        if middle < 0:
            raise BenchError(
                f"server record: most requests were {what} (by {-middle / 1e9:.6f} s), so it is of another machine or "
                "clock; reconcile needs the --record file of a server on the client's machine, since its last boot"
            )
