"""Responses that end the work when the client goes away: server-sent events, and plain ones that take long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from forebay.errors import ForebayError, InternalError
from forebay.server.errors import as_forebay_error, error_body

logger = logging.getLogger(__name__)
T = TypeVar("T")

DONE = b"data: [DONE]\n\n"  # how OpenAI's streams end


def error_event(error: ForebayError) -> bytes:
    """How OpenAI's streams end that fail."""
    return b"data: " + error_body(error) + b"\n\n"


def named_event(name: str, data: object) -> bytes:
    """A server-sent event with a name. Source: WHATWG HTML, server-sent events."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """Run `work`; if the client disconnects first, cancel it, wait until it has cleaned up and return None.

    The body must have been read: every further ASGI message but a disconnect is ignored.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        # also reached when this request itself is cancelled (shutdown)
        for running in (task, watch):
            running.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class AnswerResponse(Response):
    """A JSON response whose body is computed while watching for a disconnect."""

    def __init__(self, answer: Callable[[], Coroutine[Any, Any, bytes]], headers: Mapping[str, str]) -> None:
        super().__init__(None, 200, dict(headers), "application/json")
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await until_disconnect(receive, self._answer())
        if body is not None:
            self.body = body
            self.headers["content-length"] = str(len(body))
            await super().__call__(scope, receive, send)


class EventStream(Response):
    """Server-sent events from an async generator of complete events (bytes ending in a blank line).

    done: what follows the last event. failed: what ends the stream instead after an error. An error before the first
    event has its own HTTP status, because headers are sent with that event. The generator is closed in every case. A
    client that stays connected but takes nothing for `write_timeout_s` is cut off.
    """

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        headers: Mapping[str, str],
        *,
        write_timeout_s: float,
        done: bytes = DONE,
        failed: Callable[[ForebayError], bytes] = error_event,
    ) -> None:
        self._events = events
        self._write_timeout_s = write_timeout_s
        self._done = done
        self._failed = failed
        super().__init__(
            None, 200, {**headers, "cache-control": "no-store", "x-accel-buffering": "no"}, "text/event-stream"
        )
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await until_disconnect(receive, self._pump(send))

    async def _pump(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            first = await anext(events)
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                async with _Patience(self._write_timeout_s) as patience:
                    await patience.during(send(_part(first)))
                    async for event in events:
                        await patience.during(send(_part(event)))
                last = self._done
            except TimeoutError:
                logger.warning("a client took no data for %g s; its stream is closed", self._write_timeout_s)
                raise
            except Exception as error:
                if isinstance(error, InternalError) or not isinstance(error, ForebayError):
                    logger.exception("a stream failed")
                last = self._failed(as_forebay_error(error))
        await send({"type": "http.response.body", "body": last, "more_body": False})


def _part(event: bytes) -> Message:
    return {"type": "http.response.body", "body": event, "more_body": True}


class _Patience:
    """`async with` around many awaits: TimeoutError when one that is made through `during` takes longer than `limit_s`.
    One timer serves them all, where a timeout of its own for each would cost as much as writing an event does."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._timeout = asyncio.timeout(None)
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None  # when the await in progress began

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._timer = self._loop.call_later(self._limit_s, self._look)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._timer.cancel()
        await self._timeout.__aexit__(kind, value, tb)

    async def during(self, work: Awaitable[None]) -> None:
        self._since = self._loop.time()
        await work
        self._since = None

    def _look(self) -> None:
        now = self._loop.time()
        due = (now if self._since is None else self._since) + self._limit_s
        if due <= now:
            self._timeout.reschedule(now)
        else:
            self._timer = self._loop.call_at(due, self._look)
