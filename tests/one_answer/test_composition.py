"""The composition matrix: every pair of features gives the tokens that the request alone gives.

A feature is semantic (it changes what is asked, so the plain run asks it too) or it only changes how the work is done.
A new feature adds a row.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from forebay import LLM, SamplingParams
from forebay.core.grammar_spec import GrammarKind, GrammarSpec
from forebay.core.outputs import Completion, CompletionChunk, GenerateResult
from forebay.core.reasoning_spec import ReasoningSpec
from forebay.engine.output_processor import merged
from forebay.errors import InvalidValueError
from tests.one_answer.answers import Answer, Seen, answers, first_difference, seen
from tests.support.shared import shared_path

PLAIN: dict[str, Any] = {"model.max_model_len": 128, "kv.num_blocks": 512, "kv.block_size": 8, "kv.prefix_cache": False}
STORIES = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park.",
    "Tom and Ben were friends. One day they went to the zoo to see the big animals and",
    "The old dog was sad because",
    "Once upon a time, there was a little girl named Lily. She loved to sing",
)


@dataclass(frozen=True)
class Feature:
    """sampling: what it asks of a request. served: what is served, also in the plain run. settings: how it makes the
    engine work. happened: proof that it did."""

    sampling: dict[str, Any] = field(default_factory=dict)
    served: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    rounds: int = 1
    neighbours: bool = False  # others are in the batch, and are aborted half way
    happened: Callable[[Seen, list[list[Answer]]], bool] = lambda seen, got: True


REASONING = ReasoningSpec(begin_token_id=508, end_token_id=509, inside=True, budget=8, closing_token_ids=(509,))
FEATURES: dict[str, Feature] = {
    "n": Feature({"n": 3}, happened=lambda s, got: all(len(children) == 3 for children in got)),
    "stop": Feature(
        {"stop": (" but", " mom"), "stop_token_ids": (407,)},
        happened=lambda s, got: any(a.finish_reason == "stop" for r in got for a in r),
    ),
    "seed": Feature({"seed": 4321, "temperature": 1.1}),
    "filters": Feature({"temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "typical_p": 0.95, "seed": 5}),
    "changed logits": Feature(
        {
            "repetition_penalty": 1.3,
            "presence_penalty": 0.4,
            "frequency_penalty": 0.3,
            "logit_bias": {403: 2.0},
            "bad_token_ids": (432, 426),
            "min_tokens": 40,
        },
        happened=lambda s, got: all(len(a.token_ids) >= 40 and not {432, 426} & {*a.token_ids} for r in got for a in r),
    ),
    "logprobs": Feature({"logprobs": 5}, happened=lambda s, got: all(a.logprob_bits for r in got for a in r)),
    "grammar": Feature(
        {"grammar": GrammarSpec(kind=GrammarKind.REGEX, source=r"( [A-Za-z]{2,9}[,.]?){6,40}"), "temperature": 0.8},
        # beside reasoning the grammar holds from its end on, which is a bracket here
        happened=lambda s, got: all(re.fullmatch(r"[A-Za-z ,.]*", a.text.rpartition("]")[2]) for r in got for a in r),
    ),
    "reasoning": Feature(
        {
            "reasoning": ReasoningSpec(
                begin_token_id=508, end_token_id=509, inside=True, budget=8, closing_token_ids=(509,)
            )
        },
        happened=lambda s, got: all(a.token_ids[8:9] in ((509,), ()) for r in got for a in r),
    ),
    "prompt logprobs": Feature(
        {"prompt_logprobs": 2}, happened=lambda s, got: all(len(a.prompt_bits) > 5 for r in got for a in r)
    ),
    "prefix cache": Feature(
        settings={"kv.prefix_cache": True},
        rounds=2,
        happened=lambda s, got: s.cached_tokens > 0 or bool(got[0][0].prompt_bits),
    ),
    "preemption": Feature(
        settings={"kv.num_blocks": 17, "scheduler.overcommit": 12.0}, happened=lambda s, got: s.preemptions > 0
    ),
    "chunking": Feature(settings={"scheduler.chunk_size": 5}, happened=lambda s, got: s.largest_chunk <= 5),
    "int8 KV": Feature(served={"kv.dtype": "int8"}, happened=lambda s, got: "/kv-int8/" in s.answer_class),
    "int4 weights": Feature(
        served={"model.weights": "int4"}, happened=lambda s, got: "/weights-q4_1:forebay-" in s.answer_class
    ),
    "abort of a neighbour": Feature(neighbours=True, happened=lambda s, got: s.aborted > 0 and s.largest_step >= 4),
}


def run(settings: dict[str, Any], sampling: SamplingParams, *, rounds: int = 1, neighbours: bool = False,
        alone: bool = False) -> tuple[list[list[Answer]], Seen]:  # fmt: skip
    with LLM(shared_path("models/stories260K/hf"), **settings) as llm:
        for _ in range(rounds):
            if neighbours:
                results = beside_neighbours(llm, sampling)
            else:
                results = [llm.generate(p, sampling)[0] for p in STORIES] if alone else llm.generate(STORIES, sampling)
        assert llm.stats()["blocks"]["used"] == 0
        return answers(results), seen(llm, results)


def beside_neighbours(llm: LLM, sampling: SamplingParams) -> list[GenerateResult]:
    """All stories at once; the neighbours in their batch are aborted one by one, while every story is half way."""
    others = [llm.stream(prompt, SamplingParams(temperature=0, max_tokens=90)) for prompt in STORIES[:3]]
    for other in others:
        next(other)  # it is running now
    streams = [llm.stream(prompt, sampling) for prompt in STORIES]
    begun = []
    for stream, other in itertools.zip_longest(streams, others):
        begun.append(next(stream))
        if other is not None:
            other.close()
    return [whole([first, *stream]) for first, stream in zip(begun, streams, strict=True)]


def whole(chunks: list[CompletionChunk]) -> GenerateResult:
    """What `generate` would have returned for the chunks of a stream."""
    children: dict[int, list[CompletionChunk]] = defaultdict(list)
    for chunk in chunks:
        children[chunk.index].append(chunk)
    fields = [msgspec.structs.asdict(merged(children[index])) for index in sorted(children)]
    scores, *_ = [f.pop("prompt_logprobs") for f in fields]
    return GenerateResult(
        request_id="",
        prompt_token_ids=[],
        completions=[Completion(**{name: f[name] for name in Completion.__struct_fields__}) for f in fields],
        seed=0,
        prompt_logprobs=[None, *scores] if scores else None,
    )


def pairs() -> Sequence[tuple[str, str]]:
    return list(itertools.combinations(FEATURES, 2))


@pytest.mark.parametrize(("first", "second"), pairs())
def test_pair(first: str, second: str) -> None:
    a, b = FEATURES[first], FEATURES[second]
    asked = {"temperature": 0.0, "max_tokens": 60, "seed": 1} | a.sampling | b.sampling
    if {first, second} == {"stop", "grammar"}:
        with pytest.raises(InvalidValueError, match="exclude each other"):
            SamplingParams(**asked)
        return
    sampling = SamplingParams(**asked)
    plain = PLAIN | a.served | b.served
    wanted, _ = run(plain, sampling, alone=True)
    got, what = run(
        plain | a.settings | b.settings,
        sampling,
        rounds=max(a.rounds, b.rounds),
        neighbours=a.neighbours or b.neighbours,
    )
    assert not first_difference(wanted, got)
    assert a.happened(what, got), f"{first} did not happen: {what}"
    assert b.happened(what, got), f"{second} did not happen: {what}"
