"""Answers as bits, and engines whose only difference is how the work is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forebay import LLM, SamplingParams
from forebay.core.outputs import Completion, GenerateResult
from forebay.core.step import TokenLogprobs


@dataclass(frozen=True)
class Answer:
    """Token ids, and the raw bits of every log-probability (sampled token's first, then the best ones')."""

    text: str
    token_ids: tuple[int, ...]
    logprob_bits: tuple[tuple[int, ...], ...]
    top_ids: tuple[tuple[int, ...], ...]
    finish_reason: str
    prompt_bits: tuple[tuple[int, ...], ...] = ()


def answer(completion: Completion, prompt_logprobs: Sequence[TokenLogprobs | None] = ()) -> Answer:
    logprobs = completion.logprobs or []
    return Answer(
        text=completion.text,
        token_ids=tuple(completion.token_ids),
        logprob_bits=tuple(_bits([entry.logprob, *(value for _, value in entry.top)]) for entry in logprobs),
        top_ids=tuple(tuple(token for token, _ in entry.top) for entry in logprobs),
        finish_reason=completion.finish_reason,
        prompt_bits=tuple(
            _bits([entry.logprob, *(value for _, value in entry.top)]) for entry in prompt_logprobs if entry is not None
        ),
    )


def _bits(values: list[float]) -> tuple[int, ...]:
    return tuple(np.array(values, np.float32).view(np.uint32).tolist())


def answers(results: Sequence[GenerateResult]) -> list[list[Answer]]:
    return [[answer(c, result.prompt_logprobs or ()) for c in result.completions] for result in results]


def first_difference(wanted: list[list[Answer]], got: list[list[Answer]]) -> str:
    """Where two runs part, for the message of a failing test; empty if they do not."""
    for request, (one, other) in enumerate(zip(wanted, got, strict=True)):
        for child, (a, b) in enumerate(zip(one, other, strict=True)):
            for position, pair in enumerate(zip(a.token_ids, b.token_ids, strict=False)):
                if pair[0] != pair[1]:
                    return f"request {request} child {child}: token {pair[1]} for {pair[0]} at position {position}"
            for position, bits in enumerate(zip(a.logprob_bits, b.logprob_bits, strict=False)):
                if bits[0] != bits[1]:
                    return f"request {request} child {child}: log-probability bits differ at position {position}"
            if a != b:
                return f"request {request} child {child}: {b} for {a}"
    return ""


@dataclass(frozen=True)
class Seen:
    """What an engine did, so that a test can assert that it is not vacuous."""

    largest_step: int  # requests in one step
    largest_chunk: int  # tokens of the largest step
    preemptions: int
    cached_tokens: int
    aborted: int  # completions
    answer_class: str


def seen(llm: LLM, results: Sequence[GenerateResult]) -> Seen:
    records = llm.recorder.last()
    return Seen(
        largest_step=max(record.num_requests for record in records),
        largest_chunk=max(
            event.value for r in results for c in r.completions for event in c.events if event.kind == "chunk"
        ),
        preemptions=sum(len(record.preempted) for record in records),
        cached_tokens=sum(c.num_cached_tokens for r in results for c in r.completions),
        aborted=int(llm.metrics.value("forebay_requests_finished", "abort")),
        answer_class=llm.info.answer_class,
    )


def sampled(seed: int, temperature: float, max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=temperature, seed=seed, max_tokens=max_tokens, logprobs=3, ignore_eos=True)
