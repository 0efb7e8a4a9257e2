"""One answer, of embeddings: the bits of a prompt's embedding alone, however else the work is done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from forebay import LLM, SamplingParams
from forebay.ops.native import supported_isas
from tests.support.shared import shared_path

BASE: dict[str, Any] = {
    "backend.name": "native",
    "model.max_model_len": 256,
    "kv.num_blocks": 512,
    "kv.block_size": 8,
    "kv.prefix_cache": False,
}
STORY = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she "
PROMPTS = [STORY[:cut] for cut in (1, 5, 16, 24, 40, 57, 73, 90, 108)] + [
    "The old dog was sad because",
    STORY * 3,
    "Tom and Ben were friends. One day they went to the zoo to see the big animals and " * 3,
]
OTHERS = ["A big red car", "Lily and her mom", "One day, a bird", "The sun was"]
NEIGHBOURS = SamplingParams(temperature=1.0, seed=3, max_tokens=60, ignore_eos=True)
PREEMPTED: dict[str, Any] = {"kv.num_blocks": 32, "scheduler.overcommit": 6.0, "scheduler.chunk_size": 4}
CASES: dict[str, dict[str, Any]] = {
    "together": {},
    "chunks of 5": {"scheduler.chunk_size": 5},
    "chunks of 16": {"scheduler.chunk_size": 16},
    "few tokens in a step": {"scheduler.token_budget": 24, "scheduler.max_requests": 24},
    "one thread": {"backend.threads": 1},
    "three threads": {"backend.threads": 3},
    "blocks of 24": {"kv.block_size": 24},
    "generic": {"backend.isa": "generic"},
    "avx2": {"backend.isa": "avx2"},
    "prefix cache": {"kv.prefix_cache": True},
    "prefix cache, chunks of 7": {"kv.prefix_cache": True, "scheduler.chunk_size": 7},
    "preemption": PREEMPTED,
    "preemption, prefix cache": PREEMPTED | {"kv.prefix_cache": True},
}
FORMATS: dict[str, dict[str, Any]] = {
    "stored": {},
    "int8 KV": {"kv.dtype": "int8"},
    "int4 weights": {"model.weights": "int4"},
}


def model(**settings: Any) -> LLM:
    return LLM(shared_path("models/stories260K/hf"), **(BASE | settings))


def bits(embeddings: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(row) for row in embeddings.view(np.uint32).tolist()]


@pytest.fixture(scope="module", params=FORMATS)
def alone(request: pytest.FixtureRequest) -> tuple[dict[str, Any], list[tuple[int, ...]]]:
    """What is served, and each prompt's bits."""
    served = FORMATS[request.param]
    with model(**served) as llm:
        found = [bits(llm.embed(prompt))[0] for prompt in PROMPTS]
        assert max(record.num_requests for record in llm.recorder.last()) == 1
    assert len(set(found)) == len(PROMPTS)
    return served, found


@pytest.mark.parametrize("case", CASES)
def test_equal_to_alone(case: str, alone: tuple[dict[str, Any], list[tuple[int, ...]]]) -> None:
    """Twice, among requests that generate."""
    served, wanted = alone
    settings = CASES[case]
    if settings.get("backend.isa", "generic") not in supported_isas():
        pytest.skip(f"this processor has no {settings['backend.isa']}")
    with model(**served, **settings) as llm:
        for _ in range(2):
            neighbours = [llm.stream(prompt, NEIGHBOURS) for prompt in OTHERS]
            for neighbour in neighbours:
                next(neighbour)  # it is running now
            got = bits(llm.embed(PROMPTS))
            assert [index for index, pair in enumerate(zip(got, wanted, strict=True)) if pair[0] != pair[1]] == []
            for neighbour in neighbours:
                neighbour.close()
        assert llm.stats()["blocks"]["used"] == 0
        check_it_happened(case, llm)


def check_it_happened(case: str, llm: LLM) -> None:
    records = llm.recorder.last()
    most = max(record.num_requests for record in records)
    assert most > len(PROMPTS) if case == "together" else most > 2
    if "chunk" in case:
        tokens = max(record.num_prefill_tokens / record.num_requests for record in records if record.num_requests)
        assert tokens <= CASES[case]["scheduler.chunk_size"]
    if "prefix cache" in case:
        assert llm.metrics.value("forebay_cached_tokens") > 100
    preempted = {request_id for record in records for request_id in record.preempted}
    # an embedding's id ends in the number of its prompt
    assert any("-" in request_id for request_id in preempted) == ("preemption" in case)


@pytest.mark.parametrize("dimensions", [1, 7, 63])
def test_fewer_dimensions(dimensions: int) -> None:
    with model() as llm:
        one_by_one = [bits(llm.embed(prompt, dimensions))[0] for prompt in PROMPTS]
        assert bits(llm.embed(PROMPTS, dimensions)) == one_by_one
