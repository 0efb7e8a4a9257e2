"""Throughput in process: a closed loop through the Python API, seen by the engine's own events."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from forebay.bench.client.observer import NoObserver, Observer
from forebay.bench.facts import new_result
from forebay.bench.machine_load import Meter
from forebay.bench.metrics import ServedRecord, by_bucket, summarize
from forebay.bench.plan import Turn, Workload
from forebay.bench.reconcile import step_series
from forebay.bench.record import RequestRecord
from forebay.bench.result import Result
from forebay.bench.serve import Measured, described
from forebay.bench.slo import SLO
from forebay.core.outputs import GenerateResult
from forebay.core.sampling_params import SamplingParams
from forebay.errors import BenchError, RequestError
from forebay.llm import LLM
from forebay.observe.latency import RequestTimes
from forebay.observe.recorder import Recorder
from forebay.profile import Profile

BOUNDARY = "in_process"
# Of the latest steps so many are kept; a step of a small model takes about a millisecond.
MAX_STEPS = 2**18
_SAMPLING = frozenset(SamplingParams.__struct_fields__) - {"max_tokens", "n", "logprobs"}


def open_llm(profile: Profile) -> LLM:
    """An LLM whose recorder keeps every step of a measurement. Raises SetupError subclasses."""
    return LLM(profile=profile, progress=True, recorder=Recorder(ring_size=MAX_STEPS))


def measure_offline(
    llm: LLM,
    workloads: Sequence[Workload],
    *,
    warmup: Workload | None = None,
    slo: SLO | None = None,
    seed: int = 0,
    label: str = "",
    observer: Observer | None = None,
) -> Result:
    """One run per workload, each from an empty prefix cache. warmup: played first and not counted.

    Latencies count from the moment a request's place became free. Raises BenchError for a workload that needs a server
    (an open loop, several turns, clients that hang up or read slowly), or with a request that cannot run.
    """
    for workload in (*workloads, *((warmup,) if warmup else ())):
        check_closed_loop(workload)
    if warmup is not None:
        play(llm, warmup)
    measured = [_run_once(llm, workload, observer) for workload in workloads]
    runs = [one.records for one in measured]
    ended_ns = max(record.end_ns for records in runs for record in records)
    return new_result(
        "offline",
        label=label,
        seed=seed,
        loads=[one.run.load for one in measured],
        in_process=True,
        target=target_of(llm),
        workload=described(workloads, warmup),
        slo=None if slo is None else str(slo),
        summary=summarize(runs, slo=slo, boundary=BOUNDARY, seed=seed),
        buckets=by_bucket(runs, slo=slo, boundary=BOUNDARY, seed=seed),
        steps=step_series(llm.recorder.last(), measured[0].run.started_ns, ended_ns),
        runs=[one.run for one in measured],
    )


def _run_once(llm: LLM, workload: Workload, observer: Observer | None) -> Measured:
    llm.reset_prefix_cache()
    with Meter() as meter:
        records = play(llm, workload, observer)
    return Measured.of(records, meter.facts())


def play(llm: LLM, workload: Workload, observer: Observer | None = None) -> tuple[RequestRecord, ...]:
    """Run a workload once; records in order of the workload, with absolute times. Raises BenchError."""
    check_closed_loop(workload)
    watching = observer or NoObserver()
    requests = [_Request.of(llm, session.turns[0]) for session in workload.sessions]
    if not requests:
        raise BenchError("the workload has no request; raise --requests")
    intended: list[int] = []

    def prompts() -> Iterator[str | list[int]]:
        for index, request in enumerate(requests):
            intended.append(time.monotonic_ns())
            watching.sent(index, 0)
            yield request.prompt

    records: dict[int, RequestRecord] = {}
    try:
        for index, result in llm.run(prompts(), (r.sampling for r in requests), concurrency=workload.concurrency):
            records[index] = record_of(index, requests[index].turn, intended[index], result)
            _watch(watching, records[index])
    except RequestError as error:
        raise BenchError(f"a request of the workload cannot run: {error.message}") from error
    return tuple(records[index] for index in range(len(requests)))


def record_of(index: int, turn: Turn, intended_ns: int, result: GenerateResult) -> RequestRecord:
    """What the events of a result's only completion say. headers_ns is None: there are none."""
    (completion,) = result.completions
    times = {event.kind: event.t_ns for event in completion.events}
    tokens = tuple(event.t_ns for event in completion.events if event.kind == "token")
    return ServedRecord(
        index=index,
        session=index,
        bucket=turn.bucket,
        queue_s=RequestTimes.of(completion.events).queue,
        intended_ns=intended_ns,
        sent_ns=times["received"],
        token_ns=tokens,
        token_counts=(1,) * len(tokens),
        counted_by="chunks",
        end_ns=times["finished"],
        planned_prompt_tokens=turn.prompt_tokens,
        planned_output_tokens=turn.max_tokens,
        prompt_tokens=len(result.prompt_token_ids),
        cached_tokens=completion.num_cached_tokens,
        output_tokens=len(tokens),
        finish_reason=completion.finish_reason,
        response_id=result.request_id,
        output_digest=hashlib.sha256(completion.text.encode()).hexdigest(),
        correct=None if turn.expected is None else turn.expected in completion.text,
    )


def target_of(llm: LLM) -> dict[str, Any]:
    """What the document says of the engine that was measured."""
    info = llm.info
    return {
        "model": info.model_name,
        "profile": info.profile_digest,
        "answer_class": info.answer_class,
        "max_model_len": info.max_model_len,
        "settings": dict(info.resolved),
    }


def check_closed_loop(workload: Workload) -> None:
    """Raises BenchError if there is something in it that only a server can be given."""
    if workload.concurrency is None:
        raise BenchError(
            "in process there is a closed loop only: give --concurrency, or load a server with `forebay bench serve`"
        )
    if any(len(session.turns) != 1 for session in workload.sessions):
        raise BenchError("sessions of several turns need a server: use --turns 1, or `forebay bench serve`")
    if any(turn.cancel_after_tokens is not None or turn.read_bytes_per_s is not None for turn in workload.turns()):
        raise BenchError("clients that hang up or read slowly need a server: use `forebay bench serve`")


@dataclass(frozen=True, slots=True)
class _Request:
    turn: Turn
    prompt: str | list[int]
    sampling: SamplingParams

    @classmethod
    def of(cls, llm: LLM, turn: Turn) -> _Request:
        unknown = next((name for name in turn.body if name not in _SAMPLING), None)
        if unknown is not None:
            raise BenchError(f"request field {unknown!r} needs a server: use `forebay bench serve`", param=unknown)
        try:
            given = {"temperature": 0, **turn.body, "max_tokens": turn.max_tokens}  # greedy, as the client over HTTP
            sampling = msgspec.convert(given, SamplingParams)
        except (msgspec.ValidationError, RequestError) as error:
            raise BenchError(f"a request of the workload is wrong: {error}") from error
        return cls(turn, _prompt(llm, turn), sampling)


def _prompt(llm: LLM, turn: Turn) -> str | list[int]:
    """Messages become token ids here, for rendering them is the server's part."""
    match turn.prompt:
        case str() as text:
            return text
        case [int(), *_] as token_ids:
            return [token for token in token_ids if isinstance(token, int)]
        case messages:
            if llm.tokenizer.chat_template is None:
                raise BenchError(f"{llm.info.model_name} has no chat template; use --endpoint completions")
            rendered = llm.tokenizer.render_chat([m for m in messages if isinstance(m, dict)])
            return llm.tokenizer.encode(rendered, add_special_tokens=False)


def _watch(observer: Observer, record: RequestRecord) -> None:
    """In process a request is seen when it has ended; the display is told what a client would have seen."""
    for index, (now, before) in enumerate(zip(record.token_ns, (record.intended_ns, *record.token_ns), strict=False)):
        if index == 0:
            observer.first_token((now - before) / 1e9)
        else:
            observer.tokens((now - before) / 1e9, 1)
    observer.ended(record)
