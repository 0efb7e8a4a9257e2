"""Every error in OpenAI's shape: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import logging
import math

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from forebay.errors import ForebayError, InternalError, OverloadedError

logger = logging.getLogger(__name__)
_HTTP_CODES = {404: "not_found", 405: "method_not_allowed", 408: "body_timeout", 415: "unsupported_media_type"}


def error_body(error: ForebayError) -> bytes:
    return _encode(error.message, error.error_type, error.param, error.code)


def error_response(error: ForebayError) -> Response:
    """The HTTP answer for an error; 429 carries Retry-After in whole seconds."""
    headers = {}
    if isinstance(error, OverloadedError):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after)))
    if error.http_status in (413, 503):
        headers["connection"] = "close"
    return Response(error_body(error), error.http_status, headers, "application/json")


def as_forebay_error(error: Exception) -> ForebayError:
    """Anything unexpected becomes an InternalError that tells the client nothing of our insides."""
    if isinstance(error, ForebayError):
        return error
    return InternalError("internal error; the server's log has the details under this response's X-Request-Id")


async def on_forebay_error(request: Request, error: Exception) -> Response:
    """Also answers for unexpected errors; the gateway logs those."""
    if isinstance(error, InternalError):
        logger.error("%s %s: %s", request.method, request.url.path, error.message)
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
    return Response(body, status, error.headers, "application/json")


def _encode(message: str, error_type: str, param: str | None, code: str) -> bytes:
    return msgspec.json.encode({"error": {"message": message, "type": error_type, "param": param, "code": code}})
