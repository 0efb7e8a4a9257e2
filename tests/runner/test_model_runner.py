"""A runner over a real model: drafts change how many tokens a step gives, never which."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from forebay.core.kv_spec import KVSpec
from forebay.core.sampling_params import SamplingParams
from forebay.core.step import SampledRequest, ScheduledRequest, SchedulerOutput, StepRecord
from forebay.models.decoder import Decoder
from forebay.models.families.registry import load_decoder
from forebay.ops.protocol import PlanLimits
from forebay.ops.registry import create_backend
from forebay.runner.model_runner import ModelRunner
from forebay.weights.checkpoint import open_checkpoint
from tests.support.shared import shared_path

PROMPT = [1, 403, 407, 261, 378]
LENGTH = 12


@pytest.fixture(scope="module", params=["reference", "native"])
def runner(request: pytest.FixtureRequest) -> Iterator[ModelRunner]:
    spec, weights = load_decoder(open_checkpoint(shared_path("models/stories260K/hf")))
    kv: KVSpec = spec.kv_spec(8, "f16")
    limits = PlanLimits(max_tokens=64, max_requests=4, max_logit_rows=64, max_model_len=64, num_blocks=16)
    made = ModelRunner(
        create_backend(request.param).compile(Decoder(spec, weights, 64), kv, limits), kv, spec.vocab_size
    )
    yield made
    made.close()


def step(runner: ModelRunner, token_ids: list[int], start: int, output_position: int, **more: Any) -> SampledRequest:
    values: dict[str, Any] = {"num_sampled": 1, "draft_token_ids": [], **more}
    request = ScheduledRequest(
        request_id="r", token_ids=token_ids, start=start, write_start=0, block_tables=([3, 0, 2, 1],), seed=9,
        output_position=output_position, sampling=SamplingParams(temperature=0.9, logprobs=2), child_index=0, tenant="",
        namespace="", **values,
    )  # fmt: skip
    record = StepRecord(
        step=0, profile_digest="", num_requests=1, num_prefill_tokens=0, num_decode_tokens=0, num_waiting=0,
        blocks_used=0, blocks_free=0, blocks_cached=0, blocks_promised=0, slack_slots=0,
    )  # fmt: skip
    return runner.execute(SchedulerOutput(step=0, requests=(request,), record=record)).requests[0]


def plain(runner: ModelRunner) -> list[int]:
    """One token a step."""
    tokens = step(runner, PROMPT, 0, 0).token_ids
    while len(tokens) < LENGTH:
        at = len(PROMPT) + len(tokens) - 1
        tokens = tokens + step(runner, tokens[-1:], at, len(tokens)).token_ids
    return tokens


def test_an_unfinished_prompt_gives_no_token(runner: ModelRunner) -> None:
    assert step(runner, PROMPT[:3], 0, 0, num_sampled=0) == SampledRequest(request_id="r", token_ids=[], logprobs=[])


def test_a_hidden_state_in_place_of_a_token(runner: ModelRunner) -> None:
    whole = step(runner, PROMPT, 0, 0, wants_hidden=True)
    assert (whole.token_ids, whole.logprobs, whole.error) == ([], None, None)
    state = np.frombuffer(whole.hidden or b"", "<f4")
    assert state.shape == (64,)
    assert np.isfinite(state).all()
    step(runner, PROMPT[:3], 0, 0, num_sampled=0)
    again = np.frombuffer(step(runner, PROMPT[3:], 3, 0, wants_hidden=True).hidden or b"", "<f4")
    np.testing.assert_allclose(again, state, rtol=0, atol=1e-5 * np.abs(state).max())
    assert step(runner, PROMPT, 0, 0).hidden is None


@pytest.mark.parametrize("right", [0, 1, 3])
def test_drafts_are_kept_while_they_equal_what_is_sampled(runner: ModelRunner, right: int) -> None:
    wanted = plain(runner)
    first = step(runner, PROMPT, 0, 0).token_ids
    drafts = wanted[1 : 1 + right] + [(wanted[1 + right] + 1) % 512, 5][: 3 - right]
    got = step(runner, first + drafts, len(PROMPT), 1, num_sampled=1 + len(drafts), draft_token_ids=drafts)
    assert got.token_ids == wanted[1 : 2 + right]
    assert got.logprobs is not None
    assert len(got.logprobs) == 1 + right
    assert all(len(entry.top) == 2 for entry in got.logprobs)
