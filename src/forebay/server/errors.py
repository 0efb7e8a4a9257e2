"""Every error in OpenAI's shape, {"error": {"message", "type", "param", "code"}}, or in the other face's that asked."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forebay.errors import AuthenticationError, ForebayError, InternalError, OverloadedError
from forebay.server.anthropic.errors import error_object, is_anthropic, status_of

logger = logging.getLogger(__name__)
_HTTP_CODES = {404: "not_found", 405: "method_not_allowed", 408: "body_timeout", 415: "unsupported_media_type"}


class _ErrorResponse(Response):
    """`body` is OpenAI's; which face asked is known only when the response meets its request."""

    def __init__(self, body: bytes, status: int, headers: Mapping[str, str] | None, message: str) -> None:
        super().__init__(body, status, headers, "application/json")
        self._message = message

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if is_anthropic(scope):
            self.body = msgspec.json.encode(error_object(self.status_code, self._message))
            self.headers["content-length"] = str(len(self.body))
            self.status_code = status_of(self.status_code)
        await super().__call__(scope, receive, send)


def error_body(error: ForebayError) -> bytes:
    return _encode(error.message, error.error_type, error.param, error.code)


def error_response(error: ForebayError) -> Response:
    """The HTTP answer for an error; 429 carries Retry-After in whole seconds, 401 says how to authenticate."""
    headers: dict[str, str] = {}
    if isinstance(error, OverloadedError):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after)))
    if isinstance(error, AuthenticationError):
        headers["www-authenticate"] = 'Bearer realm="forebay"'
    if error.http_status in (413, 503):
        headers["connection"] = "close"
    return _ErrorResponse(error_body(error), error.http_status, headers, error.message)


def as_forebay_error(error: Exception) -> ForebayError:
    """Anything unexpected becomes an InternalError that tells the client nothing of our insides."""
    if isinstance(error, ForebayError):
        return error
    return InternalError("internal error; the server's log has the details under this response's X-Request-Id")


async def on_forebay_error(request: Request, error: Exception) -> Response:
    """Also answers for unexpected errors; the gateway logs those."""
    if isinstance(error, InternalError):
        logger.error("%s %.300r: %s", request.method, request.url.path, error.message)
    return error_response(as_forebay_error(error))


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Starlette's own errors (no such route, wrong method) and ours that have no class in the tree."""
    assert isinstance(error, HTTPException)
    status, path = error.status_code, request.url.path
    message = str(error.detail)
    if status == 404:
        message = f"no such path: {path[:200]}; GET /openapi.json lists all"
    elif status == 405:
        allowed = (error.headers or {}).get("Allow", "another method")
        message = f"{request.method} is not allowed on {path[:200]}; use {allowed}"
    error_type = "not_found_error" if status == 404 else "invalid_request_error"
    body = _encode(message, error_type, None, _HTTP_CODES.get(status, "invalid_request"))
    return _ErrorResponse(body, status, error.headers, message)


def _encode(message: str, error_type: str, param: str | None, code: str) -> bytes:
    return msgspec.json.encode({"error": {"message": message, "type": error_type, "param": param, "code": code}})
