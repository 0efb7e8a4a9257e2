"""Cross-origin requests: which web pages may read this server's answers. WHATWG Fetch, section 3.3 (CORS protocol).

A key travels in a header that a page sets itself, never in a cookie, so Access-Control-Allow-Credentials is never sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forebay.errors import RequestError, SetupError
from forebay.server.errors import error_response

ANY = "*"
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([^\s/?#@:*A-Z]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_HEADER_NAMES = re.compile(rb"[\w!#$%&'*+.^`|~, -]{1,2048}")
_METHODS = b"GET, POST"
_EXPOSED = b"x-request-id, x-forebay-profile, x-forebay-seed, x-forebay-max-tokens, retry-after"
_MAX_AGE_S = b"600"

_Headers = list[tuple[bytes, bytes]]


def parse_origins(given: Iterable[str]) -> tuple[str, ...]:
    """Origins as browsers write them, or "*". Raises SetupError."""
    return tuple(_checked(text) for text in given)


def _checked(text: str) -> str:
    found = _ORIGIN.fullmatch(text)
    if text != ANY and found is None:
        raise SetupError(
            f"--cors-origin must be * or SCHEME://HOST[:PORT] in lower case and without a path, such as "
            f"https://chat.example.com, got {text[:100]!r}",
            param="cors_origin",
        )
    if found and found[3] and found[3] == _DEFAULT_PORTS.get(found[1]):
        raise SetupError(
            f"--cors-origin {text}: browsers leave out the default port; give {text.rpartition(':')[0]}",
            param="cors_origin",
        )
    return text


class Cors:
    """An ASGI layer that answers preflights and marks answers for the pages of `origins`.

    A preflight never carries a key, so this layer stands outside of what asks for one; it tells nothing but whether an
    origin is allowed.
    """

    def __init__(self, app: ASGIApp, origins: tuple[str, ...]) -> None:
        self._app = app
        self._origins = frozenset(origin.encode() for origin in origins)
        self._any = ANY in origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        origin = headers.get(b"origin")
        if scope["method"] == "OPTIONS" and origin and b"access-control-request-method" in headers:
            await self._preflight(origin, headers)(scope, receive, send)
            return

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._marks(origin)]
            await send(message)

        await self._app(scope, receive, send_marked)

    def _marks(self, origin: bytes | None) -> _Headers:
        """Headers of an answer that is not a preflight's."""
        marks = [] if self._any else [(b"vary", b"Origin")]  # of every answer: a cache must not mix them up
        if origin and (allowed := self._allowed(origin)):
            marks += [(b"access-control-allow-origin", allowed), (b"access-control-expose-headers", _EXPOSED)]
        return marks

    def _allowed(self, origin: bytes) -> bytes | None:
        if self._any:
            return ANY.encode()
        return origin if origin in self._origins else None

    def _preflight(self, origin: bytes, headers: dict[bytes, bytes]) -> Response:
        allowed = self._allowed(origin)
        if allowed is None:
            shown = origin.decode("latin-1")[:100]
            answer = error_response(RequestError(f"pages of {shown!r} may not call this server; see --cors-origin"))
        else:
            answer = Response(status_code=204)
            answer.raw_headers += [
                (b"access-control-allow-origin", allowed),
                (b"access-control-allow-methods", _METHODS),
                (b"access-control-max-age", _MAX_AGE_S),
            ]
            asked = headers.get(b"access-control-request-headers", b"")
            if _HEADER_NAMES.fullmatch(asked):  # whatever the page wants to send: clients send many of their own
                answer.raw_headers.append((b"access-control-allow-headers", asked))
        answer.raw_headers.append((b"vary", b"Origin, Access-Control-Request-Headers"))
        return answer
