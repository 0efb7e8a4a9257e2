"""The outermost ASGI layer: what every request must pass, and what is true of every response."""

from __future__ import annotations

import logging
import re
import uuid

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forebay.errors import ForebayError
from forebay.server.auth import authenticate
from forebay.server.cors import Cors
from forebay.server.errors import as_forebay_error, error_response
from forebay.server.head import check_head, check_host
from forebay.server.state import ServerState, draining_error
from forebay.server.tenants import set_tenant

logger = logging.getLogger(__name__)
_SANE_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}")


class Gateway:
    """Adds X-Request-Id and X-Forebay-Profile to every response, lets in what has a key, finds its tenant, refuses POST
    while draining, counts what is in flight, and turns anything unexpected into a 500 of the usual shape."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app = app
        self.state = state
        self._profile = state.engine.info.profile_digest.encode()
        origins = state.settings.cors_origins
        self._inner: ASGIApp = Cors(self._admit, origins) if origins else self._admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"unsupported ASGI scope {scope['type']!r}")
        request_id = _request_id(scope)
        # Anthropic's clients look for the id without the x
        added = [(b"x-request-id", request_id), (b"request-id", request_id), (b"x-forebay-profile", self._profile)]
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        try:
            await self._inner(scope, receive, send_with_headers)
        except Exception as error:
            logger.exception("request %s: %s %.300r failed", request_id.decode(), scope["method"], scope["path"])
            if not started:
                await error_response(as_forebay_error(error))(scope, receive, send_with_headers)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(scope)
        except ForebayError as error:
            self.state.engine.metrics.refused(error.label)
            await error_response(error)(scope, receive, send)
            return
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        self.state.enter()
        try:
            await self._app(scope, receive, send)
        finally:
            self.state.leave()

    def _check(self, scope: Scope) -> None:
        """In this order, so that a caller without a key learns nothing else."""
        check_head(scope, self.state.settings)
        check_host(scope, self.state.settings)
        set_tenant(scope, authenticate(scope, self.state.settings.api_keys))
        if self.state.draining and scope["method"] == "POST":
            raise draining_error()


def _request_id(scope: Scope) -> bytes:
    """The client's X-Request-Id if it is short and plain, else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value):
            return bytes(value)
    return uuid.uuid4().hex.encode()
