"""The engine in its own process, as asyncio code uses it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import aclosing
from typing import Any, Literal

import pytest
import zmq

from forebay import LLM, AsyncLLM, SamplingParams
from forebay.core.messages import EngineOutputs
from forebay.core.outputs import CompletionChunk
from forebay.engine.async_engine import AsyncEngine
from forebay.errors import (
    ContextLengthError,
    EngineDeadError,
    ForebayError,
    InternalError,
    InvalidValueError,
    ModelSourceError,
    OverloadedError,
    ProfileError,
    RequestAbortedError,
    UnavailableError,
)
from forebay.executor.faults import Fault
from forebay.profile import load_profile
from tests.engine.conftest import stories_profile

GREEDY = SamplingParams(temperature=0.0, max_tokens=24)
ENDLESS = SamplingParams(temperature=0.0, max_tokens=240, ignore_eos=True)
LONG = SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True)
PROMPTS = ["Once upon a time", "Lily and Tom", "The dog", "One day, a big"]


async def read(
    engine: AsyncEngine, prompt: str | list[int], sampling: SamplingParams = GREEDY
) -> list[CompletionChunk]:
    return [chunk async for chunk in engine.generate(prompt, sampling)]


async def outcome(engine: AsyncEngine, prompt: str, sampling: SamplingParams) -> ForebayError | None:
    """The error a request ended with."""
    try:
        await read(engine, prompt, sampling)
    except ForebayError as error:
        return error
    return None


async def settled(engine: AsyncEngine) -> dict[str, Any]:
    """The engine's own counts, once it has handled everything that was sent before."""
    return await engine.control("stats")


async def pinging(engine: AsyncEngine) -> None:
    while True:  # pings that come before the step that hangs are answered
        await engine.health(1.0)


def process_of(engine: AsyncEngine) -> subprocess.Popen[bytes]:
    process = engine._client._process
    assert process is not None
    return process


def test_many_at_once_equal_the_inline_engine(runner: asyncio.Runner, engine: AsyncEngine, llm: LLM) -> None:
    async def together() -> list[list[CompletionChunk]]:
        return await asyncio.gather(*(read(engine, prompt) for prompt in PROMPTS * 3))

    answers = runner.run(together())
    wanted = [result.completions[0] for result in llm.generate(PROMPTS, GREEDY)] * 3
    assert ["".join(chunk.text for chunk in chunks) for chunks in answers] == [completion.text for completion in wanted]
    assert all(chunks[-1].finish_reason == "length" for chunks in answers)
    assert engine.info.answer_class == llm.info.answer_class


def test_closing_the_generator_aborts_in_the_same_tick(runner: asyncio.Runner, engine: AsyncEngine) -> None:
    async def leave() -> None:
        chunks = engine.generate(PROMPTS[0], ENDLESS)
        async with aclosing(chunks):
            assert (await anext(chunks)).token_ids
        # no wait between: the abort was sent before this call, and the engine takes messages in order
        stats = await settled(engine)
        assert stats["requests"]["running"] == stats["blocks"]["used"] == stats["events"] == 0
        assert engine.num_open == 0

    runner.run(leave())


def test_a_cancelled_reader_aborts(runner: asyncio.Runner, engine: AsyncEngine) -> None:
    async def cancel() -> None:
        chunks = engine.generate(PROMPTS[0], ENDLESS, request_id="mine")
        first = await anext(chunks)
        reader = asyncio.ensure_future(anext(chunks))
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert first.token_ids
        assert (await settled(engine))["requests"]["running"] == 0

    runner.run(cancel())


def test_errors_of_one_request(runner: asyncio.Runner, engine: AsyncEngine) -> None:
    async def all_errors() -> None:
        with pytest.raises(ContextLengthError, match="300 tokens"):
            await read(engine, [1] * 300)
        with pytest.raises(InvalidValueError, match="got 512"):
            await read(engine, [512])
        chunks = engine.generate(PROMPTS[0], ENDLESS, request_id="twice")
        await anext(chunks)
        with pytest.raises(InvalidValueError, match="'twice' is in use"):
            await anext(engine.generate(PROMPTS[0], GREEDY, request_id="twice"))
        engine.abort("twice")
        with pytest.raises(RequestAbortedError, match="operator"):
            async for _ in chunks:
                pass
        with pytest.raises(InternalError, match="unknown control op 'dance'"):
            await engine.control("dance")
        assert await outcome(engine, PROMPTS[0], GREEDY) is None

    runner.run(all_errors())


def test_long_texts_are_tokenized_beside_the_loop(runner: asyncio.Runner, engine: AsyncEngine) -> None:
    async def prepare() -> None:
        text = "Once upon a time " * 200
        with pytest.raises(ContextLengthError):
            await engine.prepare(text, GREEDY)

    runner.run(prepare())


def test_a_slow_reader_gets_merged_chunks(runner: asyncio.Runner, engine: AsyncEngine) -> None:
    async def slow() -> None:
        whole = await read(engine, PROMPTS[0])
        chunks = engine.generate(PROMPTS[0], GREEDY, request_id="slow")
        first = await anext(chunks)
        await read(engine, PROMPTS[1], SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True))  # meanwhile
        rest = [chunk async for chunk in chunks]
        assert len(rest) == 1
        assert first.text + rest[0].text == "".join(chunk.text for chunk in whole)
        assert len(first.token_ids + rest[0].token_ids) == 24
        assert rest[0].finish_reason == "length"

    runner.run(slow())


def test_a_third_leaves_half_way_and_nobody_else_notices(runner: asyncio.Runner, engine: AsyncEngine, llm: LLM) -> None:
    prompts = [f"{prompt} {i}" for i in range(12) for prompt in PROMPTS]

    async def visit(index: int) -> str:
        text = ""
        async with aclosing(engine.generate(prompts[index], GREEDY)) as chunks:
            async for chunk in chunks:
                text += chunk.text
                if index % 3 == 0 and len(text) > 20:
                    break
        return text

    async def crowd() -> list[str]:
        return await asyncio.gather(*map(visit, range(len(prompts))))

    texts = runner.run(crowd())
    for prompt_text, (index, result) in zip(texts, enumerate(llm.generate(prompts, GREEDY)), strict=True):
        assert result.text.startswith(prompt_text) if index % 3 == 0 else result.text == prompt_text
    stats = runner.run(settled(engine))
    assert stats["blocks"]["used"] == stats["blocks"]["promised"] == stats["events"] == engine.num_open == 0


def test_stop_strings_across_the_wire(runner: asyncio.Runner, engine: AsyncEngine, llm: LLM) -> None:
    whole = llm.generate(PROMPTS[0], GREEDY)[0].text
    stopping = SamplingParams(temperature=0.0, max_tokens=200, stop=(whole[10:17],), n=2)
    chunks = runner.run(read(engine, PROMPTS[0], stopping))
    for child in (0, 1):
        own = [chunk for chunk in chunks if chunk.index == child]
        assert "".join(chunk.text for chunk in own) == whole[: whole.index(whole[10:17])]
        assert own[-1].finish_reason == "stop"
        assert own[-1].events[-1].kind == "finished"
    assert runner.run(settled(engine))["requests"]["running"] == 0


def test_health_and_gauges(runner: asyncio.Runner, engine: AsyncEngine) -> None:
    runner.run(engine.health())
    runner.run(settled(engine))
    assert engine.metrics.value("forebay_requests_running") == 0
    assert engine.metrics.value("forebay_blocks", "used") == 0
    assert engine.metrics.value("forebay_steps") == engine.recorder.last(1)[0].step + 1 > 20


def test_noise_on_the_input_and_signals_are_survived(runner: asyncio.Runner, engine: AsyncEngine) -> None:
    async def disturb() -> None:
        engine._client._sink.send(b"\xc1 not a message")
        engine._client._sink.send(b"")
        for number in (signal.SIGINT, signal.SIGTERM):  # a Ctrl-C goes to the whole group; the parent decides
            process_of(engine).send_signal(number)
        await engine.health()
        assert await outcome(engine, PROMPTS[0], GREEDY) is None

    runner.run(disturb())


@pytest.mark.parametrize("kind", ["kill", "lose"])
def test_death_ends_every_open_request_at_once(kind: Literal["kill", "lose"]) -> None:
    async def die() -> None:
        engine = await AsyncEngine.start(stories_profile(), fault=Fault(kind=kind, at=4))
        errors = await asyncio.gather(*(outcome(engine, prompt, ENDLESS) for prompt in PROMPTS))
        says = "was killed by SIGKILL" if kind == "kill" else "its executor is lost"
        assert all(type(error) is EngineDeadError and says in str(error) for error in errors)
        assert engine.dead.is_set()
        for later in (engine.health(), read(engine, "x"), engine.control("stats")):
            with pytest.raises(EngineDeadError):
                await later
        await engine.drain(1.0)
        await engine.close()
        assert process_of(engine).returncode == (-signal.SIGKILL if kind == "kill" else 1)

    asyncio.run(die())


def test_a_fault_while_reading_is_a_death_too() -> None:
    """Whatever goes wrong on this side of the wire, nobody waits for ever."""

    async def run() -> None:
        engine = await AsyncEngine.start(stories_profile())

        def broken(message: EngineOutputs) -> None:
            deadline = time.monotonic() + 10
            while not engine._client._source.get(zmq.EVENTS) & zmq.POLLIN:  # the next message waits as this one fails
                assert time.monotonic() < deadline
            raise RuntimeError("cannot take this")

        engine._client.attach(broken, engine._on_death)
        assert isinstance(await asyncio.wait_for(outcome(engine, PROMPTS[0], ENDLESS), 30), EngineDeadError)
        assert engine.dead.is_set()
        await engine.close()

    asyncio.run(run())


def test_a_failed_step_is_not_a_death() -> None:
    async def fail() -> None:
        engine = await AsyncEngine.start(stories_profile(), fault=Fault(kind="raise", at=3))
        error = await outcome(engine, PROMPTS[0], ENDLESS)
        assert type(error) is InternalError
        assert "step 3 failed" in error.message
        assert await outcome(engine, PROMPTS[0], GREEDY) is None
        assert (await settled(engine))["blocks"]["used"] == 0
        await engine.close()
        assert process_of(engine).returncode == 0
        assert not engine.dead.is_set()

    asyncio.run(fail())


def test_a_hanging_step_is_reported_by_health(capfd: pytest.CaptureFixture[str]) -> None:
    async def hang() -> None:
        engine = await AsyncEngine.start(stories_profile(), fault=Fault(kind="hang", at=2), hang_limit_s=0.2)
        waiting = asyncio.create_task(outcome(engine, PROMPTS[0], ENDLESS))
        with pytest.raises(EngineDeadError, match=r"did not answer within 1 s.*last finished step is 1"):
            await pinging(engine)
        await engine._client.kill()
        assert type(await waiting) is UnavailableError

    asyncio.run(hang())
    log = capfd.readouterr().err
    assert "a step has been running for" in log
    assert "faults.py" in log  # where it hangs


def test_what_a_hanging_engine_has_not_read_is_bounded() -> None:
    async def flood() -> None:
        engine = await AsyncEngine.start(stories_profile(max_requests=1, max_waiting=2), fault=Fault(kind="hang", at=2))
        waiting = asyncio.create_task(outcome(engine, PROMPTS[0], ENDLESS))
        with pytest.raises(EngineDeadError):
            await pinging(engine)
        left = engine.generate(PROMPTS[0], GREEDY)  # counts until the engine has ended it, read or not
        reader = asyncio.ensure_future(anext(left))
        await asyncio.wait({reader}, timeout=0)
        reader.cancel()
        await asyncio.wait({reader})
        assert isinstance(await asyncio.wait_for(outcome(engine, PROMPTS[0], SamplingParams(n=2)), 10), OverloadedError)
        last = asyncio.create_task(outcome(engine, PROMPTS[0], GREEDY))
        await asyncio.wait({last}, timeout=0)
        refused = await asyncio.wait_for(outcome(engine, PROMPTS[0], GREEDY), 10)
        assert isinstance(refused, OverloadedError)
        assert refused.retry_after != 1.0  # measured
        assert engine.metrics.value("forebay_requests_refused", "overloaded") == 2
        await engine._client.kill()
        assert {type(await waiting), type(await last)} == {UnavailableError}

    asyncio.run(flood())


def test_drain() -> None:
    async def drain() -> None:
        engine = await AsyncEngine.start(stories_profile())
        running = [engine.generate(PROMPTS[0], sampling) for sampling in (GREEDY, LONG)]
        for chunks in running:
            await anext(chunks)
        draining = asyncio.create_task(engine.drain(60.0))
        await asyncio.wait({draining}, timeout=0)  # let it begin
        with pytest.raises(UnavailableError, match="draining"):
            await read(engine, "x")
        texts = [[chunk.finish_reason async for chunk in chunks] for chunks in running]
        assert [reasons[-1] for reasons in texts] == ["length", "length"]
        assert await draining
        await engine.close()

    asyncio.run(drain())


def test_drain_has_a_bound() -> None:
    async def drain() -> None:
        engine = await AsyncEngine.start(stories_profile())
        chunks = engine.generate(PROMPTS[0], ENDLESS)
        await anext(chunks)
        assert not await engine.drain(0.0)
        with pytest.raises(RequestAbortedError, match="drain timeout"):
            async for _ in chunks:
                pass
        assert (await settled(engine))["blocks"]["used"] == 0
        await engine.close()
        with pytest.raises(UnavailableError, match="closed"):
            await engine.health()

    asyncio.run(drain())


def test_closing_ends_what_is_open() -> None:
    async def close() -> None:
        engine = await AsyncEngine.start(stories_profile())
        waiting = asyncio.create_task(outcome(engine, PROMPTS[0], ENDLESS))
        await engine.health()
        await engine.close()
        assert type(await waiting) is UnavailableError
        assert not engine.dead.is_set()
        assert not engine._client._folder.exists()

    asyncio.run(close())


def test_a_start_that_cannot_work_says_why() -> None:
    missing = load_profile(None, {"source": "/no/such/model.gguf"})
    with pytest.raises(ModelSourceError, match=r"/no/such/model\.gguf"):
        asyncio.run(AsyncEngine.start(missing))
    with pytest.raises(ProfileError, match="max_model_len = 4096"):  # found out by the engine process
        asyncio.run(AsyncEngine.start(stories_profile(max_model_len=4096)))
    with pytest.raises(ProfileError, match="log level must be one of"):
        asyncio.run(AsyncEngine.start(stories_profile(), log_level="loud"))


def test_a_start_can_be_cancelled() -> None:
    async def cancel() -> None:
        starting = asyncio.create_task(AsyncEngine.start(stories_profile()))
        await asyncio.wait({starting}, timeout=0)  # let it begin
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(cancel())


PARENT = """
import asyncio, contextlib, sys
from forebay import SamplingParams
from forebay.engine.async_engine import AsyncEngine
from forebay.errors import EngineDeadError
from forebay.executor.faults import Fault
from tests.engine.conftest import stories_profile

async def main():
    fault = Fault(kind="hang", at=0) if sys.argv[1] == "hanging" else None
    engine = await AsyncEngine.start(stories_profile(), fault=fault)
    chunks = asyncio.ensure_future(anext(engine.generate("x", SamplingParams())))
    with contextlib.suppress(EngineDeadError):
        await engine.health(0.5)
    print(engine._client._process.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("state", ["idle", "hanging"])
def test_no_orphan_is_left(state: str) -> None:
    stories_profile()
    parent = subprocess.Popen([sys.executable, "-c", PARENT, state], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    child = os.pidfd_open(pid)
    parent.kill()
    parent.wait()
    asyncio.run(_ended(child))
    os.close(child)


async def _ended(pidfd: int) -> None:
    """Return when the process has ended: its pidfd becomes readable."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(pidfd, ended.set)
    await asyncio.wait_for(ended.wait(), 10)


def test_async_llm() -> None:
    async def use() -> None:
        llm = AsyncLLM(profile=stories_profile())
        with pytest.raises(UnavailableError, match="not started"):
            await llm.generate("x")
        async with llm:
            results = await asyncio.gather(*(llm.generate(prompt, GREEDY) for prompt in PROMPTS))
            text = ""
            async for chunk in llm.stream(PROMPTS[0], GREEDY):
                text += chunk.text
            assert results[0].text == text
            assert [len(result.completions[0].token_ids) for result in results] == [24] * 4

    asyncio.run(use())
