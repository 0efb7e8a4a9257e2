"""One HTTP/1.1 connection: a request goes out, its response comes in piece by piece, each with the time it came.

The time is taken first thing in data_received, so that no work of ours is measured as the server's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import NamedTuple, Protocol, cast

import httptools

MAX_SILENT_BYTES = 256 * 1024  # received without a byte of body: headers, interim responses, chunk extensions, trailers
_READ_HEADERS = frozenset({"content-type", "location", "retry-after"})


class Ending(Enum):
    """How a response ended."""

    COMPLETE = auto()  # at the end of its body
    CLOSED = auto()  # the server closed the connection before that (or to say that)
    EXPIRED = auto()  # it took longer than the limit
    STOPPED = auto()  # its sink wanted no more
    BROKEN = auto()  # it is not HTTP/1.1 as we asked for it
    UNREACHABLE = auto()  # there was no connection at all


class Ended(NamedTuple):
    how: Ending
    at_ns: int
    detail: str = ""


class Sink(Protocol):
    """Who takes a response. Names of headers are lower case; only those that a client here reads are kept."""

    def head(self, status: int, headers: Mapping[str, str], first_byte_ns: int) -> None: ...

    def body(self, data: bytes, now_ns: int) -> float | None:
        """Seconds that the rest may take from now on: 0 to hang up, None for no change."""


class Connection(asyncio.Protocol):
    """Plays one exchange after another. After each, `reusable` says whether another may follow.

    A sink that raises has a bug: what it raised comes out of the future that `begin` made.
    """

    def __init__(self, on_closed: Callable[[Connection], None]) -> None:
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._resume_timer: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[Ended] = self._loop.create_future()
        self.exchanges = 0
        self.received = False  # anything of the current response
        self.reusable = True

    def begin(self, request: bytes, sink: Sink, *, limit_s: float, read_bytes_per_s: float | None = None) -> int:
        """Send `request`; return the moment (ns) it was given to the socket. `self.ended` is the future of its end."""
        assert self._transport is not None
        assert self._parser is None, "one exchange at a time"
        self.exchanges += 1
        self.ended = self._loop.create_future()
        self.received = False
        self.reusable = False  # until the response says so
        self._sink = sink
        self._read_bytes_per_s = read_bytes_per_s
        self._headers: dict[str, str] = {}
        self._silent_bytes = 0
        self._keeps_alive = self._complete = self._stopped = False
        self._parser = httptools.HttpResponseParser(self)
        self._timer = self._loop.call_later(limit_s, self._expire)
        sent_ns = time.monotonic_ns()
        self._transport.write(request)
        return sent_ns

    def close(self) -> None:
        """At once, with nothing flushed."""
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        if self._parser is None:  # nobody asked: the server has given up on this connection
            self.close()
            return
        self._now_ns = now_ns
        self.received = True
        self._silent_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._broken("the server switches to another protocol")
        except httptools.HttpParserCallbackError as error:
            self._raise(error.__context__ or error)
        except httptools.HttpParserError as error:
            self._broken(f"not HTTP/1.1: {error}")
        if self._parser is None:
            return
        if self._stopped:
            self._end(Ending.STOPPED)
        elif self._complete:
            self.reusable = self._keeps_alive and self._read_bytes_per_s is None
            self._end(Ending.COMPLETE)
        elif self._silent_bytes > MAX_SILENT_BYTES:
            self._broken(f"more than {MAX_SILENT_BYTES >> 10} KiB of headers")
        elif self._read_bytes_per_s is not None:
            self._pause(len(data) / self._read_bytes_per_s)

    def connection_lost(self, error: Exception | None) -> None:
        self.reusable = False
        if self._parser is not None:
            when = "in the middle of the response" if self.received else "before the response"
            self._end(Ending.CLOSED, f"connection closed {when}" + (f": {error}" if error else ""))
        if self._resume_timer is not None:
            self._resume_timer.cancel()
        self._transport = None
        self._on_closed(self)

    # httptools.HttpResponseParser

    def on_message_begin(self) -> None:
        if self._complete:  # more than one response to one request
            self._keeps_alive = False
        else:
            self._first_byte_ns = self._now_ns

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.lower().decode("latin-1")
        if key in _READ_HEADERS:
            self._headers[key] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._complete or self._parser is None:
            return
        status = self._parser.get_status_code()
        if status >= 200:
            self._keeps_alive = self._parser.should_keep_alive()
            self._sink.head(status, self._headers, self._first_byte_ns)

    def on_body(self, data: bytes) -> None:
        self._silent_bytes = 0
        if self._stopped or self._complete:
            return
        limit_s = self._sink.body(data, self._now_ns)
        if limit_s is None:
            return
        if limit_s > 0:
            self._limit(limit_s)
        else:
            self._stopped = True

    def on_message_complete(self) -> None:
        if self._parser is not None and self._parser.get_status_code() >= 200:
            self._complete = True
        else:
            self._headers = {}  # an interim response; the real one follows

    # how it ends

    def _limit(self, limit_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(limit_s, self._expire)

    def _expire(self) -> None:
        self._now_ns = time.monotonic_ns()
        self._end(Ending.EXPIRED, "no end of the answer within the limit")

    def _broken(self, detail: str) -> None:
        if self._stopped or self._complete:  # what was wanted has come; what follows it does not matter
            self._keeps_alive = False
        else:
            self._end(Ending.BROKEN, detail)

    def _end(self, how: Ending, detail: str = "") -> None:
        self._leave()
        at_ns = time.monotonic_ns() if how is Ending.CLOSED else self._now_ns
        if not self.ended.done():
            self.ended.set_result(Ended(how, at_ns, detail))

    def _raise(self, error: BaseException) -> None:
        self._leave()
        if not self.ended.done():
            self.ended.set_exception(error)

    def _leave(self) -> None:
        self._parser = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.reusable:
            self.close()

    # a reader slower than the server

    def _pause(self, seconds: float) -> None:
        if self._transport is not None:
            self._transport.pause_reading()
            self._resume_timer = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
