"""uvicorn's HTTP/1.1 with limits on the head of a request (request line and headers), and on trailers.

With httptools uvicorn has none: it keeps a head of any size while it arrives, waits for its end forever, and adds
trailers to the headers. Heads that have arrived are checked in the gateway, which can answer as usual; here end those
that do not end by themselves.
"""

from __future__ import annotations

import asyncio
import enum
import http
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from forebay.errors import ForebayError, RequestError
from forebay.server.errors import error_body
from forebay.server.head import head_too_large
from forebay.server.state import ServerSettings


class _Place(enum.Enum):
    """Where in the stream of requests a connection stands."""

    BETWEEN = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()  # trailers too


class LimitedHttp(HttpToolsProtocol):
    """One connection. What the parser must keep until it is complete has at most `max_head_bytes` (and one read);
    a head has `head_timeout_s` from its first byte, the first one from the connection."""

    def __init__(self, *args: Any, settings: ServerSettings, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._settings = settings
        self._place = _Place.BETWEEN
        self._stage = 0  # goes up when a head begins, when it ends, and with every piece of a body
        self._stage_bytes = 0  # that have come since
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unwatch()

    def data_received(self, data: bytes) -> None:
        # the stage that all of `data` belongs to, unless it leads beyond
        stage = self._stage + (self._place is _Place.BETWEEN)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._place is not _Place.BETWEEN and self._stage == stage:
            self._stage_bytes += len(data)
            if self._stage_bytes > self._settings.max_head_bytes:
                self._refuse(head_too_large(self._settings))
                return
        self._watch()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._place = _Place.HEAD
        self._next_stage()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._place is _Place.HEAD:  # nobody reads trailers
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._place = _Place.BODY
        self._next_stage()
        super().on_headers_complete()
        if (
            self.parser.should_upgrade()
        ):  # to nothing we speak: it is answered as it is, and then the parser is at its end
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._next_stage()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._place = _Place.BETWEEN
        super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """A stranger could fill the log: uvicorn warns with every packet that follows."""

    def send_400_response(self, msg: str) -> None:
        self._refuse(RequestError("this is not a valid HTTP/1.1 request; check what the client sends"))

    def _next_stage(self) -> None:
        self._stage += 1
        self._stage_bytes = 0

    @property
    def _busy(self) -> bool:
        """A request is being answered; its own limits of time hold."""
        return self.cycle is not None and not self.cycle.response_complete

    def _watch(self) -> None:
        """A clock runs while nothing is being answered: from the first byte (or the connection) to the head's end."""
        if self._busy:
            self._unwatch()
        elif self._timer is None:
            self._timer = self.loop.call_later(self._settings.head_timeout_s, self._late)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, error: ForebayError) -> None:
        """Answer around the application, unless an answer is under way, and end the connection."""
        if not self._busy:
            body = error_body(error)
            head = (
                f"HTTP/1.1 {error.http_status} {http.HTTPStatus(error.http_status).phrase}\r\n"
                f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()
