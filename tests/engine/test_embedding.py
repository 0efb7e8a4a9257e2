"""Embeddings: hidden states through the engine, inline and in its own process, and what becomes of them."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

from forebay import LLM, AsyncLLM, SamplingParams
from forebay.engine.async_engine import AsyncEngine
from forebay.engine.embedding import check_dimensions, embedding
from forebay.errors import ContextLengthError, InvalidValueError, RequestAbortedError, RequestError, UnavailableError
from forebay.ops.tensor import F32Array
from tests.engine.conftest import stories_profile
from tests.support.shared import shared_path

TEXTS = ["Once upon a time", "The old dog was sad because", "Lily and Tom went to the park.", "Once upon a time"]
HIDDEN_SIZE = 64


def bits(x: F32Array) -> list[int]:
    return np.ascontiguousarray(x).view(np.uint32).ravel().tolist()


def lengths(x: F32Array) -> F32Array:
    return np.sqrt((x.astype(np.float64) ** 2).sum(axis=1))


def test_an_embedding_has_length_1_and_the_bits_of_exact_sums() -> None:
    hidden = np.array([3.0, 4.0, 1e-20, -12.0], "<f4")
    assert embedding(hidden.tobytes(), 4).tolist() == [np.float32(x) for x in (3 / 13, 4 / 13, 1e-20 / 13, -12 / 13)]
    assert embedding(hidden.tobytes(), 2).tolist() == [np.float32(0.6), np.float32(0.8)]
    rng = np.random.default_rng(1)
    for _ in range(20):
        x = rng.standard_normal(1024).astype(np.float32)
        exact = math.sqrt(math.fsum(float(v) ** 2 for v in rng.permutation(x)))  # whatever the order
        assert bits(embedding(x.tobytes(), 1024)) == bits((x.astype(np.float64) / exact).astype(np.float32))
    assert embedding(np.zeros(4, "<f4").tobytes(), 3).tolist() == [0, 0, 0]
    assert np.abs(embedding(np.full(4, 3e38, "<f4").tobytes(), 4) - 0.5).max() == 0


def test_dimensions() -> None:
    assert (check_dimensions(None, 64), check_dimensions(64, 64), check_dimensions(1, 64)) == (64, 64, 1)
    wrong: list[Any] = [0, 65, -1, 2.0, True, "8"]
    for dimensions in wrong:
        with pytest.raises(InvalidValueError, match="from 1 to 64") as caught:
            check_dimensions(dimensions, 64)
        assert caught.value.param == "dimensions"


def test_embeddings_equal_transformers(llm: LLM) -> None:
    """Both in float32, added in other orders: about 1e-6 apart."""
    model = hf.AutoModel.from_pretrained(shared_path("models/stories260K/hf")).float().eval()
    got = llm.embed(TEXTS)
    assert (got.shape, got.dtype) == ((4, HIDDEN_SIZE), np.float32)
    for text, row in zip(TEXTS, got, strict=True):
        with torch.no_grad():
            hidden = model(torch.tensor([llm.tokenizer.encode(text)])).last_hidden_state[0, -1]
        np.testing.assert_allclose(row, (hidden / hidden.norm()).numpy(), rtol=0, atol=2e-5)
    np.testing.assert_allclose(lengths(got), 1, rtol=0, atol=1e-6)


def test_fewer_dimensions_are_the_first_ones_at_length_1(llm: LLM) -> None:
    whole, some = llm.embed(TEXTS), llm.embed(TEXTS, 8)
    np.testing.assert_allclose(some, whole[:, :8] / lengths(whole[:, :8])[:, None], rtol=0, atol=1e-6)
    np.testing.assert_allclose(lengths(some), 1, rtol=0, atol=1e-6)


def test_one_prompt_token_ids_and_none(llm: LLM) -> None:
    whole = llm.embed(TEXTS)
    ids = llm.tokenizer.encode(TEXTS[0])
    for one in (TEXTS[0], ids, [ids]):
        np.testing.assert_allclose(llm.embed(one), whole[:1], rtol=0, atol=1e-5)
    assert llm.embed([]).shape == (0, HIDDEN_SIZE)
    bare = llm.embed(TEXTS[0], add_special_tokens=False)
    np.testing.assert_allclose(bare, llm.embed(ids[1:]), rtol=0, atol=1e-5)
    assert np.abs(bare - whole[:1]).max() > 1e-3


def test_a_prompt_may_fill_the_context(llm: LLM) -> None:
    limit = llm.info.max_model_len
    assert llm.embed([403] * limit).shape == (1, HIDDEN_SIZE)
    with pytest.raises(ContextLengthError, match=f"has {limit + 1} tokens .* to {limit} tokens or fewer") as caught:
        llm.embed([[1], [403] * (limit + 1)])
    assert caught.value.param == "prompts[1]"
    with pytest.raises(ContextLengthError, match="at least"):
        llm.embed("word " * 100_000)


prompts__param__message = [
    ("", "prompts", "an empty text has no embedding"),
    (["a", ""], "prompts[1]", "an empty text has no embedding"),
    ([[1], []], "prompts[1]", "at least one token"),
    ([[512]], "prompts", "from 0 to 511, got 512"),
    ([1, -1], "prompts", "got -1"),
]


@pytest.mark.parametrize(("prompts", "param", "message"), prompts__param__message)
def test_wrong_prompts(llm: LLM, prompts: Any, param: str, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        llm.embed(prompts)
    assert caught.value.param == param


def test_the_record_of_an_embedding(llm: LLM) -> None:
    """It has no token, its prompt is counted, and every block comes back."""
    before = {name: llm.metrics.value(name) for name in ("forebay_generated_tokens", "forebay_prompt_tokens")}
    llm.embed(TEXTS[0])
    assert llm.metrics.value("forebay_generated_tokens") == before["forebay_generated_tokens"]
    assert llm.metrics.value("forebay_prompt_tokens") == before["forebay_prompt_tokens"] + 5
    assert llm.stats()["blocks"]["used"] == llm.stats()["blocks"]["promised"] == 0


def test_a_closed_llm_embeds_nothing() -> None:
    llm = LLM(profile=stories_profile())
    llm.close()
    with pytest.raises(UnavailableError, match="closed"):
        llm.embed("a")


def test_the_engine_process_gives_what_the_inline_engine_gives(
    runner: asyncio.Runner, engine: AsyncEngine, llm: LLM
) -> None:
    """More prompts than run at a time, beside one that generates."""
    prompts = TEXTS * 40

    async def together() -> list[bytes]:
        chunks = engine.generate(TEXTS[0], SamplingParams(max_tokens=200, ignore_eos=True))
        await anext(chunks)
        hidden = await engine.hidden_states(await engine.prepare_hidden(prompts))
        await chunks.aclose()
        return hidden

    hidden = runner.run(together())
    assert len(prompts) > engine.info.max_requests
    got = np.stack([embedding(row, HIDDEN_SIZE) for row in hidden])
    np.testing.assert_allclose(got, llm.embed(prompts), rtol=0, atol=1e-5)


def test_async_llm() -> None:
    async def embedded() -> tuple[F32Array, F32Array, F32Array]:
        async with AsyncLLM(profile=stories_profile()) as llm:
            return await llm.embed(TEXTS), await llm.embed(TEXTS[0], 8), await llm.embed([])

    many, one, none = asyncio.run(embedded())
    assert (many.shape, one.shape, none.shape) == ((4, HIDDEN_SIZE), (1, 8), (0, HIDDEN_SIZE))


def test_an_error_or_a_cancellation_ends_all(runner: asyncio.Runner, engine: AsyncEngine) -> None:
    async def aborted() -> None:
        requests = await engine.prepare_hidden([[403] * 256] * 30)
        task = asyncio.ensure_future(engine.hidden_states(requests))
        await asyncio.sleep(0)  # the tasks are made
        await asyncio.sleep(0)  # and have sent their requests
        engine.abort(requests[3].request_id)
        with pytest.raises(RequestAbortedError):
            await task
        assert (await settled())["running"] == 0

    async def cancelled() -> None:
        requests = await engine.prepare_hidden([[403] * 256] * 30)
        task = asyncio.ensure_future(engine.hidden_states(requests))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert engine.num_open > 0
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await settled())["running"] == 0

    async def settled() -> dict[str, Any]:
        stats = await engine.control("stats")
        assert stats["blocks"]["used"] == stats["blocks"]["promised"] == 0
        return dict(stats["requests"])

    runner.run(aborted())
    runner.run(cancelled())


def test_refusals_are_counted(runner: asyncio.Runner, engine: AsyncEngine) -> None:
    before = engine.metrics.value("forebay_requests_refused", InvalidValueError.label)
    with pytest.raises(InvalidValueError):
        runner.run(engine.prepare_hidden(["a", ""], field="input"))
    assert engine.metrics.value("forebay_requests_refused", InvalidValueError.label) == before + 1
