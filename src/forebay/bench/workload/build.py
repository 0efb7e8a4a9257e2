"""From a specification to a Workload. The same specification, seed and tokenizer give the same digest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from forebay.bench.plan import Session, Turn, Workload
from forebay.bench.workload.arrivals import parse_arrivals
from forebay.bench.workload.blocks import BlockText
from forebay.bench.workload.buckets import Desk, mixed, parse_mix
from forebay.bench.workload.lengths import PairLengths, parse_lengths
from forebay.bench.workload.prompts import PromptMaker, body
from forebay.bench.workload.sessions import SessionPlan, fitting_turns, make_session, think_times, turn_overhead
from forebay.bench.workload.spec import DEFAULT_REQUESTS, WorkloadSpec, check_spec
from forebay.bench.workload.text import TextSource
from forebay.bench.workload.traces import Selected, Selection, parse_window, read_trace, select_rows
from forebay.errors import BenchError
from forebay.tokenizer import Tokenizer

__all__ = ["WorkloadSpec", "build_workload"]

MAX_TURNS = 10_000  # of one session
MAX_TOKENS = 1 << 26  # of all prompts together; they are held in memory

# each kind of choice has its own random numbers, so that one more of the one does not change the others
_ARRIVALS, _LENGTHS, _BUCKETS, _TURNS, _PAUSES, _CANCELS, _SLOW = range(1, 8)


@dataclass(slots=True)
class _Bench:
    """What the parts of one build share. `made`: what came of the specification, for the result document."""

    spec: WorkloadSpec
    tokenizer: Tokenizer
    source: TextSource
    made: dict[str, Any] = field(default_factory=dict)

    def rng(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.spec.seed, purpose])

    def maker(self) -> PromptMaker:
        spec = self.spec
        return PromptMaker(
            self.tokenizer, self.source, spec.endpoint, token_ids=spec.token_ids, shared_prefix=spec.shared_prefix
        )


def build_workload(spec: WorkloadSpec, tokenizer: Tokenizer) -> Workload:
    """Everything that will be sent, and when. tokenizer: the served model's.

    `Workload.spec` is the specification and, under "made", what came of it: sessions, requests, input_tokens and
    output_tokens (sum, mean, p50, p95), cancelled, slow, text_passes, repeats (short prompts that begin like another),
    prefix_sharing (share of tokens that an earlier prompt has begun with; not for a mix) and, where they apply, clipped
    (lengths), dropped_turns, buckets, trace_kind and trace_rows.
    Raises BenchError for fields that contradict each other, for files that cannot be read and for lengths that cannot
    be made, naming the field.
    """
    check_spec(spec)
    bench = _Bench(spec, tokenizer, TextSource(tokenizer, seed=spec.seed, path=spec.text))
    if spec.trace is not None:
        sessions = _from_trace(bench)
    else:
        times = _times(bench)
        sessions = (_from_mix if spec.mix is not None else _from_lengths)(bench, len(times))
        sessions = [_timed(session, at_s) for session, at_s in zip(sessions, times, strict=True)]
    sessions = _slowed(bench, _cancelled(bench, sessions))
    made = {**bench.made, **_totals(sessions), "text_passes": bench.source.passes, "repeats": bench.source.repeated}
    return Workload(sessions=tuple(sessions), concurrency=spec.concurrency, spec={**spec.plain(), "made": made})


def _times(bench: _Bench) -> Sequence[float | None]:
    """When each session starts; None in a closed loop."""
    spec = bench.spec
    if spec.arrivals is None:
        return [None] * (spec.requests or DEFAULT_REQUESTS)
    arrivals = parse_arrivals(spec.arrivals)
    bounded = spec.requests is not None or spec.duration_s is not None or arrivals.end_s is not None
    requests = spec.requests if bounded else DEFAULT_REQUESTS
    if arrivals.kind == "at-once":
        requests = requests or DEFAULT_REQUESTS
    times = arrivals.offsets(bench.rng(_ARRIVALS), requests=requests, duration_s=spec.duration_s)
    if not times:
        raise BenchError(f"arrivals {spec.arrivals!r}: nothing arrives in that time; raise the rate or duration_s")
    return times


def _from_trace(bench: _Bench) -> list[Session]:
    spec = bench.spec
    assert spec.trace is not None
    trace = read_trace(spec.trace, spec.trace_kind)
    if trace.block_tokens is not None:
        _check_blocks(spec)
    maker = bench.maker()
    choice = Selection(
        window_s=None if spec.window is None else parse_window(spec.window),
        limit=spec.requests,
        scale_rate=spec.scale_rate,
        scale_length=spec.scale_length,
        max_input=spec.max_input,
        max_output=spec.max_output,
        min_input=1 if trace.block_tokens else maker.least,
        max_model_len=spec.max_model_len,
    )
    chosen = select_rows(trace, choice)
    _check_total(sum(row.input_tokens for row in chosen.rows), "window, requests or scale_length")
    bench.made |= {"trace_kind": trace.kind, "trace_rows": chosen.counts}
    turns = _block_turns(bench, chosen) if chosen.block_tokens else _row_turns(bench, chosen, maker)
    at = [None if spec.concurrency else row.at_s for row in chosen.rows]
    return [Session(turns=(turn,), at_s=at_s) for turn, at_s in zip(turns, at, strict=True)]


def _check_blocks(spec: WorkloadSpec) -> None:
    for name, wanted in (("endpoint", "completions"), ("token_ids", True), ("shared_prefix", 0)):
        if getattr(spec, name) != wanted:
            raise BenchError(
                f"trace and {name}: a mooncake trace gives prompts as token ids with the prefixes it says, so {name} "
                f"must be {wanted!r}; leave {name} out"
            )


def _block_turns(bench: _Bench, chosen: Selected) -> list[Turn]:
    blocks = BlockText(bench.tokenizer, bench.source, chosen.block_tokens or 0)
    turns = [_turn(bench.spec, blocks.prompt(row), row.input_tokens, row.output_tokens) for row in chosen.rows]
    bench.made["prefix_sharing"] = blocks.shared_tokens / blocks.tokens
    return turns


def _row_turns(bench: _Bench, chosen: Selected, maker: PromptMaker) -> list[Turn]:
    bench.made["prefix_sharing"] = _prefix_sharing(maker.shared, [row.input_tokens for row in chosen.rows])
    return [_turn(bench.spec, maker.of(row.input_tokens), row.input_tokens, row.output_tokens) for row in chosen.rows]


def _turn(spec: WorkloadSpec, prompt: Any, prompt_tokens: int, output: int) -> Turn:
    return Turn(prompt=prompt, prompt_tokens=prompt_tokens, max_tokens=output, body=body(ignore_eos=spec.fixed_output))


def _from_mix(bench: _Bench, count: int) -> list[Session]:
    assert bench.spec.mix is not None
    rng = bench.rng(_BUCKETS)
    desk = Desk(
        tokenizer=bench.tokenizer,
        source=bench.source,
        rng=rng,
        max_model_len=bench.spec.max_model_len,
        fixed_output=bench.spec.fixed_output,
    )
    buckets = mixed(parse_mix(bench.spec.mix), count, rng)
    bench.made["buckets"] = {bucket.name: buckets.count(bucket) for bucket in buckets}
    return [Session(turns=(bucket.make(bucket, desk),)) for bucket in buckets]


def _from_lengths(bench: _Bench, count: int) -> list[Session]:
    spec, maker = bench.spec, bench.maker()
    several = spec.changed("turns")
    plans = _planned(bench, count, around=maker.least - 1 if several else 0, least=1 if several else maker.least)
    _check_total(sum(sum(plan.inputs) for plan in plans), "requests or input")
    overhead = turn_overhead(bench.tokenizer) if several else 0
    turns = [fitting_turns(plan, overhead, spec.max_model_len) for plan in plans]
    bench.made["dropped_turns"] = sum(len(plan.inputs) for plan in plans) - sum(turns)
    bench.made["prefix_sharing"] = _prefix_sharing(maker.shared, [plan.inputs[0] for plan in plans])
    return [
        make_session(plan, maker, ignore_eos=spec.fixed_output, turns=kept)
        for plan, kept in zip(plans, turns, strict=True)
    ]


def _planned(bench: _Bench, count: int, *, around: int, least: int) -> list[SessionPlan]:
    """Draw the lengths of all sessions. around: tokens of the first prompt that `input` does not count."""
    spec = bench.spec
    turns = parse_lengths(spec.turns, "turns")
    if turns.kind != "lognormal" and turns.high > MAX_TURNS:
        raise BenchError(f"turns {spec.turns!r}: a session has at most {MAX_TURNS}; ask for fewer")
    lengths = PairLengths(
        parse_lengths(spec.input, "input"),
        parse_lengths(spec.output, "output"),
        least=least,
        limit=None if spec.max_model_len is None else spec.max_model_len - around,
    )
    rng, pauses = bench.rng(_LENGTHS), bench.rng(_PAUSES)
    plans, clipped = [], 0
    for number in turns.draw(bench.rng(_TURNS), count):
        number = min(number, MAX_TURNS)
        (first, *later), outputs, changed = lengths.draw(rng, number)
        plans.append(SessionPlan((around + first, *later), outputs, think_times(pauses, spec.think_s, number)))
        clipped += changed
    bench.made["clipped"] = clipped
    return plans


def _check_total(tokens: int, remedy: str) -> None:
    if tokens > MAX_TOKENS:
        raise BenchError(f"the prompts have {tokens} tokens together, more than {MAX_TOKENS}; lower {remedy}")


def _prefix_sharing(shared: int, inputs: Sequence[int]) -> float:
    """Share of all (first) prompts' tokens that an earlier prompt has begun with too."""
    return shared * (len(inputs) - 1) / sum(inputs)


def _timed(session: Session, at_s: float | None) -> Session:
    return msgspec.structs.replace(session, at_s=at_s)


def _cancelled(bench: _Bench, sessions: list[Session]) -> list[Session]:
    """Let some sessions hang up during their last turn, after at least one token and before the end."""
    rng, share = bench.rng(_CANCELS), bench.spec.cancel_share

    def cancelled(turn: Turn) -> Turn:
        if turn.max_tokens < 2:
            return turn
        return msgspec.structs.replace(turn, cancel_after_tokens=int(rng.integers(1, turn.max_tokens)))

    chosen = _chosen(rng, len(sessions), share)
    return [
        _replaced(session, {len(session.turns) - 1}, cancelled) if i in chosen else session
        for i, session in enumerate(sessions)
    ]


def _slowed(bench: _Bench, sessions: list[Session]) -> list[Session]:
    """Let some requests be read slowly."""
    speed = bench.spec.slow_bytes_per_s
    chosen = _chosen(bench.rng(_SLOW), sum(len(session.turns) for session in sessions), bench.spec.slow_share)
    first, slowed = 0, []
    for session in sessions:
        which = {i for i in range(len(session.turns)) if first + i in chosen}
        slowed.append(_replaced(session, which, lambda turn: msgspec.structs.replace(turn, read_bytes_per_s=speed)))
        first += len(session.turns)
    return slowed


def _chosen(rng: np.random.Generator, count: int, share: float) -> set[int]:
    """A random choice of round(share * count) of the first `count` numbers."""
    return {int(i) for i in rng.permutation(count)[: round(share * count)]}


def _replaced(session: Session, which: set[int], change: Callable[[Turn], Turn]) -> Session:
    if not which:
        return session
    turns = tuple(change(turn) if i in which else turn for i, turn in enumerate(session.turns))
    return msgspec.structs.replace(session, turns=turns)


def _totals(sessions: Sequence[Session]) -> dict[str, Any]:
    """Planned lengths. Prompts of later turns are not known before; input counts those that are."""
    turns = [turn for session in sessions for turn in session.turns]
    return {
        "sessions": len(sessions),
        "requests": len(turns),
        "input_tokens": _described([turn.prompt_tokens for turn in turns if turn.prompt_tokens is not None]),
        "output_tokens": _described([turn.max_tokens for turn in turns]),
        "cancelled": sum(turn.cancel_after_tokens is not None for turn in turns),
        "slow": sum(turn.read_bytes_per_s is not None for turn in turns),
    }


def _described(lengths: Sequence[int]) -> dict[str, float]:
    p50, p95 = (float(value) for value in np.percentile(lengths, (50, 95)))
    return {"sum": sum(lengths), "mean": sum(lengths) / len(lengths), "p50": p50, "p95": p95}
