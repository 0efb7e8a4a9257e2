"""Many streams at once, some of which leave: every other one gives its solo answer."""

from __future__ import annotations

import asyncio

import openai

from tests.support.server_process import ServeCommand, eventually

MODEL = "tiny-chat"
NUM_STREAMS = 18


async def _solo(client: openai.AsyncOpenAI, seed: int) -> str:
    made = await client.completions.create(model=MODEL, prompt=f"Story {seed}:", max_tokens=16, seed=seed)
    return made.choices[0].text


async def _streamed(client: openai.AsyncOpenAI, seed: int, *, leaves: bool) -> str:
    text = ""
    async with await client.completions.create(
        model=MODEL, prompt=f"Story {seed}:", max_tokens=16, seed=seed, stream=True
    ) as stream:
        async for chunk in stream:
            text += chunk.choices[0].text
            if leaves and text:
                break
    return text


def test_concurrent_streams_equal_solo_answers(server: ServeCommand) -> None:
    async def run() -> None:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            solo = [await _solo(client, seed) for seed in range(NUM_STREAMS)]
            streams = [_streamed(client, seed, leaves=seed % 3 == 0) for seed in range(NUM_STREAMS)]
            texts = await asyncio.gather(*streams)
        for seed, (text, whole) in enumerate(zip(texts, solo, strict=True)):
            assert whole.startswith(text) if seed % 3 == 0 else text == whole

    asyncio.run(run())
    assert eventually(lambda: server.metric('forebay_blocks{state="used"}') == 0)
    assert server.metric('forebay_blocks{state="promised"}') == 0
