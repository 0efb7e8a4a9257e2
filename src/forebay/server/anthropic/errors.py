"""Errors in Anthropic's shape: {"type": "error", "error": {"type", "message"}}."""

from __future__ import annotations

from typing import Any

from starlette.types import Scope

PATH = "/v1/messages"
VERSION_HEADER = "anthropic-version"

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_STATUSES = {503: 529}  # theirs for "not now": the same client, unchanged, knows that it may try again


def is_anthropic(scope: Scope) -> bool:
    """Whether a request comes from a client of this face: it asks for messages, or says which version it speaks."""
    path: str = scope["path"]
    if path == PATH or path.startswith(f"{PATH}/"):
        return True
    return any(name == VERSION_HEADER.encode() for name, _ in scope["headers"])


def status_of(status: int) -> int:
    """Anthropic's HTTP status for one of ours."""
    return _STATUSES.get(status, status)


def error_object(status: int, message: str) -> dict[str, Any]:
    """The body of an error with one of our HTTP statuses. 499 is an operator's doing, so none of the client's."""
    status = status_of(status)
    other = "invalid_request_error" if 400 <= status < 499 else "api_error"
    return {"type": "error", "error": {"type": _TYPES.get(status, other), "message": message}}
