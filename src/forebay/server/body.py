"""Reading a JSON request body within its limits of type, size and time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from forebay.errors import BodyTooLargeError, RequestAbortedError
from forebay.server.state import ServerSettings

# A refused body is still read (and dropped) up to this multiple of the limit, so that the client gets to the answer.
_DISCARD_FACTOR = 8
# Larger bodies could hold the event loop for more than a millisecond, so a thread reads them.
LONG_BODY = 16 * 2**10

T = TypeVar("T")


async def off_loop(work: Callable[[], T], *, long: bool) -> T:
    """The result of `work`, which runs in a thread if it may take long."""
    return await asyncio.to_thread(work) if long else work()


async def read_json_body(request: Request, settings: ServerSettings) -> bytes:
    """The whole body. Raises BodyTooLargeError, HTTPException 408 and 415, RequestAbortedError if the client left."""
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(
            415, f"Content-Type must be application/json, got {content_type[:80]!r}; set it and send a JSON object"
        )
    try:
        async with asyncio.timeout(settings.body_timeout_s):
            return await _read(request, settings.max_body_bytes)
    except TimeoutError:
        raise HTTPException(
            408,
            f"the body did not arrive within {settings.body_timeout_s:g} s; send it in one go",
            {"connection": "close"},
        ) from None


async def _read(request: Request, limit: int) -> bytes:
    parts: list[bytes] = []
    size, more = 0, True
    while more and size <= limit * _DISCARD_FACTOR:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise RequestAbortedError("the client closed the connection before the body was complete")
        part: bytes = message.get("body", b"")
        size += len(part)
        more = message.get("more_body", False)
        if size <= limit:
            parts.append(part)
    if size > limit:
        raise BodyTooLargeError(f"the body is larger than {limit} bytes; send a shorter prompt or raise --max-body-mib")
    return b"".join(parts)
