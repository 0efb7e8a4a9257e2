"""The engine as asyncio code sees it: the front end of an engine process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

from forebay.core.clock import Clock, MonotonicClock
from forebay.core.messages import Abort, AddRequest, EngineInfo, EngineOutputs
from forebay.core.outputs import CompletionChunk
from forebay.core.sampling_params import SamplingParams
from forebay.engine.client import EngineClient
from forebay.engine.embedding import hidden_requests
from forebay.engine.frontend import FrontEnd, TextModel
from forebay.engine.input_processor import LONG_TEXT, Prompt
from forebay.errors import EngineDeadError, ForebayError, OverloadedError, UnavailableError
from forebay.observe.metrics import Metrics
from forebay.observe.recorder import Recorder
from forebay.profile import Profile, values
from forebay.scheduler.admission import Throughput
from forebay.tokenizer import ChatPrompt, Tokenizer
from forebay.weights.sources import resolve_source

T = TypeVar("T")

HEALTH_TIMEOUT_S = 10.0
CONTROL_TIMEOUT_S = 60.0
ABORT_GRACE_S = 5.0


class AsyncEngine:
    """Get one from `await AsyncEngine.start(profile)`; use it in that event loop only.

    dead: an asyncio.Event, set when the engine process ended unasked; every open request then ends with
    EngineDeadError.
    """

    def __init__(self, client: EngineClient, front: FrontEnd, clock: Clock) -> None:
        self._client = client
        self._front = front
        self._clock = clock
        self._draining = False
        self._idle = asyncio.Event()  # no request is open in the engine
        self._idle.set()
        self.dead = client.dead
        client.attach(self._on_outputs, self._on_death)

    @classmethod
    async def start(
        cls,
        profile: Profile,
        *,
        clock: Clock | None = None,
        recorder: Recorder | None = None,
        progress: bool = False,
        **options: Any,
    ) -> AsyncEngine:
        """Fetch the model if need be, start the engine process, and return when it is ready.

        recorder: where steps and requests are recorded. options: log_level, hang_limit_s, fault (see SpawnOptions).
        Raises SetupError subclasses for a profile or model that cannot be served, EngineDeadError if the process ends.
        """
        clock = clock or MonotonicClock()
        path = await _in_daemon_thread(lambda: resolve_source(profile.model.source, progress=progress))
        client = EngineClient()
        try:
            # the process loads weights while this one reads the tokenizer
            info, model = await asyncio.gather(
                client.start(values(profile), **options), asyncio.to_thread(TextModel.load, path)
            )
        except BaseException:
            await client.kill()
            raise
        return cls(client, FrontEnd.build(model, info, clock, recorder), clock)

    @property
    def info(self) -> EngineInfo:
        return self._front.info

    @property
    def tokenizer(self) -> Tokenizer:
        return self._front.tokenizer

    @property
    def metrics(self) -> Metrics:
        """Current values of every metric; `observe.prometheus.render` turns them into text."""
        return self._front.metrics

    @property
    def recorder(self) -> Recorder:
        return self._front.recorder

    def now_ns(self) -> int:
        """The clock of all events."""
        return self._clock.now_ns()

    @property
    def num_open(self) -> int:
        """Requests the engine has not ended yet."""
        return self._front.outputs.num_open

    async def generate(
        self,
        prompt: Prompt,
        sampling: SamplingParams,
        *,
        request_id: str | None = None,
        tenant: str = "",
        cache_salt: str = "",
        received_ns: int | None = None,
        add_special_tokens: bool = True,
    ) -> AsyncGenerator[CompletionChunk, None]:
        """Chunks of the n completions of a prompt as they come; `index` says whose.

        Closing the generator aborts the request. A reader that falls behind gets several steps merged in one chunk.
        Requests reuse each other's cached prefix if tenant and cache_salt are equal.
        Raises RequestError subclasses, OverloadedError, UnavailableError, EngineDeadError, RequestAbortedError,
        InternalError.
        """
        request = await self.prepare(
            prompt,
            sampling,
            request_id=request_id,
            tenant=tenant,
            cache_salt=cache_salt,
            received_ns=received_ns,
            add_special_tokens=add_special_tokens,
        )
        async with aclosing(self.stream(request)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def prepare(
        self,
        prompt: Prompt,
        sampling: SamplingParams,
        *,
        request_id: str | None = None,
        tenant: str = "",
        cache_salt: str = "",
        received_ns: int | None = None,
        add_special_tokens: bool = True,
    ) -> AddRequest:
        """Tokenize and check a request without sending it: its prompt length, max_tokens and seed are in the result.

        Raises InvalidValueError, ContextLengthError; UnavailableError while draining; EngineDeadError.
        """
        received_ns = self._clock.now_ns() if received_ns is None else received_ns
        inputs = self._front.inputs
        try:
            self._check_open()
            if _length(prompt) > LONG_TEXT:
                ids = await asyncio.to_thread(inputs.tokenize, prompt, add_special_tokens=add_special_tokens)
            else:
                ids = inputs.tokenize(prompt, add_special_tokens=add_special_tokens)
            return inputs.request(
                ids, sampling, request_id=request_id, tenant=tenant, cache_salt=cache_salt, received_ns=received_ns
            )
        except ForebayError as error:
            self.metrics.refused(error.label)
            raise

    async def stream(self, request: AddRequest) -> AsyncGenerator[CompletionChunk, None]:
        """Send a prepared request and give its chunks; `generate` is `prepare` and this."""
        self._check_open()
        self._check_room(request.sampling.n)
        wakeup = _Wakeup()
        stream = self._front.outputs.open(request, wakeup.ring)
        self._idle.clear()
        try:
            self._client.send(request)
            while True:
                for chunk in stream.take():
                    yield chunk
                if stream.done:
                    return
                if not stream.ready:
                    await wakeup.next()
        finally:
            self._send_abort(self._front.outputs.close(request.request_id), "client")

    async def prepare_hidden(
        self,
        prompts: Sequence[Prompt],
        *,
        field: str = "prompts",
        add_special_tokens: bool = True,
        request_id: str | None = None,
        tenant: str = "",
        cache_salt: str = "",
        received_ns: int | None = None,
    ) -> list[AddRequest]:
        """Tokenize and check prompts whose final hidden state is wanted (see engine/embedding.py); nothing is sent yet.

        Raises InvalidValueError, ContextLengthError; UnavailableError while draining; EngineDeadError.
        """
        work = partial(
            hidden_requests,
            self._front.inputs,
            prompts,
            field=field,
            add_special_tokens=add_special_tokens,
            request_id=request_id,
            tenant=tenant,
            cache_salt=cache_salt,
            received_ns=self._clock.now_ns() if received_ns is None else received_ns,
        )
        try:
            self._check_open()
            is_long = sum(map(_length, prompts)) > LONG_TEXT
            return await asyncio.to_thread(work) if is_long else work()
        except ForebayError as error:
            self.metrics.refused(error.label)
            raise

    async def hidden_states(self, requests: Sequence[AddRequest]) -> list[bytes]:
        """Send prepared requests, no more of them at a time than may run, and give the hidden state of each.

        The first error is raised and ends the others, as cancelling does. Raises what `stream` raises.
        """
        coming, found = iter(enumerate(requests)), [b""] * len(requests)

        async def work() -> None:
            for index, request in coming:
                async with aclosing(self.stream(request)) as chunks:
                    async for chunk in chunks:
                        found[index] = chunk.hidden or b""

        tasks = [asyncio.create_task(work()) for _ in range(min(len(requests), self.info.max_requests))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return found

    def abort(self, request_id: str, reason: str = "operator") -> None:
        """End a request from outside: its reader gets RequestAbortedError. An unknown id is ignored."""
        self._send_abort([request_id], reason)

    async def control(self, op: str, *, timeout_s: float = CONTROL_TIMEOUT_S, **args: Any) -> dict[str, Any]:
        """A control call (see core.messages.Control), answered between two steps."""
        return await self._client.call(op, args, timeout_s)

    async def health(self, timeout_s: float = HEALTH_TIMEOUT_S) -> None:
        """Return if the engine loop answers a ping in time; else raise EngineDeadError saying what is known."""
        try:
            await self._client.call("ping", {}, timeout_s)
        except TimeoutError:
            last = self.recorder.last(1)
            seen = f"its last finished step is {last[0].step}" if last else "it has finished no step"
            raise EngineDeadError(
                f"the engine loop did not answer within {timeout_s:g} s: a step hangs or takes longer ({seen})"
            ) from None

    async def drain(self, timeout_s: float) -> bool:
        """Take no new requests (UnavailableError) and wait for those that run; abort what is left after `timeout_s`.

        Returns whether all of them finished by themselves. The engine stays up until `close`.
        """
        self._draining = True
        if await _within(timeout_s, self._idle):
            return True
        self._send_abort(self._front.outputs.open_ids(), "drain timeout")
        await _within(ABORT_GRACE_S, self._idle)
        return False

    async def close(self) -> None:
        """End the engine process; requests that are still open end with UnavailableError."""
        self._draining = True
        await self._client.close()
        self.recorder.close()

    def _check_open(self) -> None:
        self._client.check()
        if self._draining:
            raise UnavailableError("the engine is draining and takes no new requests; send them to another replica")

    def _check_room(self, n: int) -> None:
        """The engine counts only what it has read; this bounds what waits unread while a step takes long or hangs."""
        limit = self.info.max_requests + self.info.max_waiting
        if self._front.outputs.num_children + n <= limit:
            return
        throughput = Throughput()
        for record in self.recorder.last():
            throughput.add(record.num_prefill_tokens + record.num_decode_tokens, record.end_ns - record.start_ns)
        retry_after = throughput.retry_after(n, self._front.outputs.lengths())
        self.metrics.refused(OverloadedError.label)
        raise OverloadedError(
            f"max_requests + max_waiting = {limit} requests are open already; retry in {retry_after:.1f} s",
            retry_after=retry_after,
        )

    def _send_abort(self, request_ids: list[str], reason: str) -> None:
        if request_ids and self._client.alive:
            self._client.send(Abort(request_ids=request_ids, reason=reason))

    def _on_outputs(self, message: EngineOutputs) -> None:
        self._send_abort(self._front.outputs.process(message), "stop")
        if self.num_open == 0:
            self._idle.set()

    def _on_death(self, error: ForebayError) -> None:
        self._front.outputs.fail_all(error)
        self._idle.set()


class _Wakeup:
    """What an asyncio.Event is to one waiter, at half the price: this happens once per token."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung: asyncio.Future[None] = self._loop.create_future()

    def ring(self) -> None:
        if not self._rung.done():
            self._rung.set_result(None)

    def next(self) -> asyncio.Future[None]:
        """Done at the next ring."""
        self._rung = self._loop.create_future()
        return self._rung


async def _in_daemon_thread(call: Callable[[], T]) -> T:
    """`asyncio.to_thread` for what may take minutes: the end of the program does not wait for it."""
    result: Future[T] = Future()

    def run() -> None:
        result.set_running_or_notify_cancel()
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="forebay-fetch", daemon=True).start()
    return await asyncio.wrap_future(result)


async def _within(timeout_s: float, event: asyncio.Event) -> bool:
    """Whether `event` is set within the time."""
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return False
    return True


def _length(prompt: Prompt) -> int:
    """Characters or token ids."""
    return len(prompt.text if isinstance(prompt, ChatPrompt) else prompt)
