"""Responses that end the work when the client goes away: server-sent events, and plain ones that take long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forebay.errors import ForebayError, InternalError
from forebay.server.errors import as_forebay_error, error_body

logger = logging.getLogger(__name__)
T = TypeVar("T")

DONE = b"data: [DONE]\n\n"


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

    Headers are sent with the first event, so an error before it has its own HTTP status. A later error becomes an
    event of its own, and the stream ends without [DONE]. The generator is closed in every case. A client that stays
    connected but takes nothing for `write_timeout_s` is cut off.
    """

    def __init__(
        self, events: AsyncGenerator[bytes, None], headers: Mapping[str, str], *, write_timeout_s: float
    ) -> None:
        self._events = events
        self._write_timeout_s = write_timeout_s
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
                await self._write(send, first)
                async for event in events:
                    await self._write(send, event)
                last = DONE
            except TimeoutError:
                logger.warning("a client took no data for %g s; its stream is closed", self._write_timeout_s)
                raise
            except Exception as error:
                if isinstance(error, InternalError) or not isinstance(error, ForebayError):
                    logger.exception("a stream failed")
                last = b"data: " + error_body(as_forebay_error(error)) + b"\n\n"
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _write(self, send: Callable[[dict[str, Any]], Awaitable[None]], event: bytes) -> None:
        async with asyncio.timeout(self._write_timeout_s):
            await send({"type": "http.response.body", "body": event, "more_body": True})
