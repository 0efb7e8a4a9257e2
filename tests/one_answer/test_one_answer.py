"""One answer: the same tokens and the same bits of every log-probability, however the work is done.

The baseline runs every request alone, without a prefix cache. Each case changes how work is done and nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forebay import LLM
from forebay.core.outputs import GenerateResult
from forebay.ops.native import supported_isas
from tests.one_answer.answers import Answer, Seen, answers, first_difference, sampled, seen
from tests.support.prompts import mixed_prompts

NUM_PROMPTS = 24
MAX_TOKENS = 16
BASE: dict[str, Any] = {
    "backend.name": "native",
    "model.max_model_len": 1024,
    "kv.num_blocks": 4096,
    "kv.prefix_cache": False,
    "scheduler.max_requests": 64,
    "scheduler.full_budget_decodes": 64,
}
CASES: dict[str, dict[str, Any]] = {
    "all at once": {},
    "chunks of 16": {"scheduler.chunk_size": 16},
    "chunks of 64": {"scheduler.chunk_size": 64},
    "chunks of 512": {"scheduler.token_budget": 1024, "scheduler.chunk_size": 512},
    "one thread": {"backend.threads": 1},
    "two threads": {"backend.threads": 2},
    "prompts that shrink": {"scheduler.full_budget_decodes": 3},
    "blocks of 32": {"kv.block_size": 32},
    "blocks of 24": {"kv.block_size": 24},
    "avx2": {"backend.isa": "avx2"},
}
PREEMPTED: dict[str, Any] = {"kv.num_blocks": 128, "scheduler.overcommit": 6.0}
CHUNKS = {"chunks of 16": 16, "chunks of 64": 64, "chunks of 512": 512}


def requests() -> tuple[list[str], list[Any]]:
    """Every prompt greedy and at temperature 0.8."""
    prompts = mixed_prompts(NUM_PROMPTS)
    samplings = [sampled(seed, temperature, MAX_TOKENS) for temperature in (0.0, 0.8) for seed in range(NUM_PROMPTS)]
    return prompts + prompts, samplings


def run(path: Path, settings: dict[str, Any], *, times: int = 1) -> tuple[list[list[Answer]], Seen]:
    prompts, samplings = requests()
    with LLM(path, **(BASE | settings)) as llm:
        results: list[GenerateResult] = []
        for _ in range(times):
            results = llm.generate(prompts, samplings)
        return answers(results), seen(llm, results)


@pytest.fixture(scope="module")
def alone(smollm2_path: Path) -> list[list[Answer]]:
    prompts, samplings = requests()
    with LLM(smollm2_path, **BASE) as llm:
        results = [llm.generate(p, s)[0] for p, s in zip(prompts, samplings, strict=True)]
        assert seen(llm, results).largest_step == 1
    assert len({a.token_ids for (a,) in answers(results)}) > NUM_PROMPTS, "the prompts do not tell answers apart"
    return answers(results)


@pytest.mark.parametrize("case", CASES)
def test_equal_to_alone(case: str, smollm2_path: Path, alone: list[list[Answer]]) -> None:
    isa = CASES[case].get("backend.isa", "generic")
    if isa not in supported_isas():
        pytest.skip(f"this processor has no {isa}")
    got, what = run(smollm2_path, CASES[case])
    assert not first_difference(alone, got)
    assert what.largest_step >= 20
    if case in CHUNKS:
        assert what.largest_chunk == CHUNKS[case]


def test_the_generic_kernels_equal_the_others(smollm2_path: Path, alone: list[list[Answer]]) -> None:
    """A few short prompts: without vector instructions each token takes long."""
    prompts, samplings = requests()
    few = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))[:4]
    with LLM(smollm2_path, **(BASE | {"backend.isa": "generic"})) as llm:
        results = llm.generate([prompts[i] for i in few], [samplings[i] for i in few])
        assert seen(llm, results).largest_step == len(few)
    assert not first_difference([alone[i] for i in few], answers(results))


def test_equal_with_a_cold_prefix_cache(smollm2_path: Path, alone: list[list[Answer]]) -> None:
    got, _ = run(smollm2_path, {"kv.prefix_cache": True})
    assert not first_difference(alone, got)


def test_equal_with_a_warm_prefix_cache(smollm2_path: Path, alone: list[list[Answer]]) -> None:
    got, what = run(smollm2_path, {"kv.prefix_cache": True, "scheduler.chunk_size": 48}, times=2)
    assert not first_difference(alone, got)
    assert what.cached_tokens > 1000


@pytest.mark.parametrize("prefix_cache", [False, True])
def test_equal_after_preemption(prefix_cache: bool, smollm2_path: Path, alone: list[list[Answer]]) -> None:
    got, what = run(smollm2_path, PREEMPTED | {"kv.prefix_cache": prefix_cache})
    assert not first_difference(alone, got)
    assert what.preemptions > 0
