"""What requests say against their own figures: the server did something else than it was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from forebay.bench.plan import Turn, Workload
from forebay.bench.reconcile import other_requests
from forebay.bench.record import RequestRecord
from forebay.bench.result import Reconciled
from forebay.observe.recorder import RequestLine

MAX_DEVIATION = 0.02  # of the planned tokens: a server may add a token to a prompt that we do not know of
MAX_CACHED_SHARE = 0.01  # of prompt tokens that should be new

Asked = Sequence[tuple[Turn, RequestRecord]]


def doubts(workloads: Sequence[Workload], runs: Sequence[Sequence[RequestRecord]]) -> list[str]:
    """Reasons against the figures of these runs, one for each workload until it was interrupted; empty for none."""
    asked = [pair for workload, records in zip(workloads, runs, strict=False) for pair in _asked(workload, records)]
    completed = [(turn, record) for turn, record in asked if record.completed]
    reasons = (
        _nothing_completed([record for _, record in asked]),
        _other_prompts([record for _, record in completed]),
        _other_answers(completed),
        _found_cached(workloads, [record for _, record in asked]),
    )
    return [reason for reason in reasons if reason is not None]


def record_doubts(
    records: Sequence[RequestRecord], lines: Iterable[RequestLine], reconciled: Reconciled
) -> Iterator[str]:
    """Reasons against a server's view. records: with absolute times."""
    if reconciled.unmatched and not reconciled.matched:
        yield "the server's record holds none of these requests; name the one that this server writes"
    others = other_requests(records, lines)
    if others:
        yield f"the server answered {others} other requests meanwhile; let nobody else use it and measure again"


def _asked(workload: Workload, records: Sequence[RequestRecord]) -> Asked:
    turns = list(workload.turns())
    return [(turns[record.index], record) for record in records]


def _nothing_completed(records: Sequence[RequestRecord]) -> str | None:
    failures = [record.failure for record in records if record.failure is not None]
    if not failures or any(record.completed for record in records):
        return None
    return f"no request completed; the first failed with {failures[0].kind.value}: {failures[0].detail}"


def _other_prompts(records: Sequence[RequestRecord]) -> str | None:
    pairs = [
        (record.planned_prompt_tokens, record.prompt_tokens)
        for record in records
        if record.planned_prompt_tokens is not None and record.prompt_tokens is not None
    ]
    if (found := _deviation(pairs)) is None:
        return None
    return f"the server counted {found} as prompts; is --tokenizer the served model's own?"


def _other_answers(asked: Asked) -> str | None:
    """An answer may end early unless it was asked to go on, but not late."""
    pairs = [
        (turn.max_tokens, record.output_tokens)
        for turn, record in asked
        if turn.body.get("ignore_eos") or record.output_tokens > turn.max_tokens
    ]
    if (found := _deviation(pairs)) is None:
        return None
    return f"the server counted {found} as answers; if it knows no ignore_eos, measure with --no-fixed-output"


def _deviation(pairs: Sequence[tuple[int, int]]) -> str | None:
    """In words, if it is large. pairs: tokens that were planned, and that were counted."""
    planned, counted = sum(plan for plan, _ in pairs), sum(count for _, count in pairs)
    if sum(abs(plan - count) for plan, count in pairs) <= MAX_DEVIATION * planned:
        return None
    differ = sum(plan != count for plan, count in pairs)
    return f"{counted} tokens where {planned} were planned ({differ} of {len(pairs)} requests differ)"


def _found_cached(workloads: Sequence[Workload], records: Sequence[RequestRecord]) -> str | None:
    """New prompts that the server knew already. A mix and sessions say nothing of sharing."""
    sharing = [workload.spec.get("made", {}).get("prefix_sharing") for workload in workloads]
    if None in sharing or any(len(session.turns) > 1 for workload in workloads for session in workload.sessions):
        return None
    prompt = sum(record.prompt_tokens or record.planned_prompt_tokens or 0 for record in records)
    cached = sum(record.cached_tokens or 0 for record in records)
    # the first prompt shares with nobody, but the warm-up may have brought what the prompts share
    least = min(workload.num_requests for workload in workloads)
    if cached <= (max(sharing) * least / max(least - 1, 1) + MAX_CACHED_SHARE) * prompt:
        return None
    return (
        f"the server had {cached} of {prompt} prompt tokens in its prefix cache, more than these prompts share; an "
        "earlier run had the same seed: give another --seed"
    )
