"""What is asked of a request's head, request line and headers. See http_protocol for heads that never end."""

from __future__ import annotations

import re

from starlette.types import Scope

from forebay.errors import HeadersTooLargeError, RequestError
from forebay.server.auth import OPEN_PATHS
from forebay.server.state import ServerSettings

_THIS_MACHINE = re.compile(rb"(localhost|[a-z0-9-]+\.localhost|127(\.\d{1,3}){3}|\[::1\])\.?(:\d*)?", re.IGNORECASE)


def check_head(scope: Scope, settings: ServerSettings) -> None:
    """Raises HeadersTooLargeError for more headers or bytes than the settings allow."""
    headers, limit = scope["headers"], settings.max_headers
    if len(headers) > limit:
        raise HeadersTooLargeError(f"the request has {len(headers)} headers and may have {limit}; send fewer")
    size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    size += sum(len(name) + len(value) + 4 for name, value in headers)  # ": " and the line's end
    if size > settings.max_head_bytes:
        raise head_too_large(settings)


def check_host(scope: Scope, settings: ServerSettings) -> None:
    """Raises RequestError for a request to a name that is not this machine's own, if `local_only`.

    A page on the web can have its own name lead to 127.0.0.1 (DNS rebinding) and then reads answers as if they were its
    own server's; its browser still sends that name.
    """
    if not settings.local_only or scope["path"] in OPEN_PATHS:
        return
    for name, value in scope["headers"]:
        if name == b"host" and not _THIS_MACHINE.fullmatch(value.strip()):
            shown = value.decode("latin-1")[:100]
            raise RequestError(
                f"this server asks for no key and answers to localhost only, not to {shown!r}; start it with "
                "--api-keys to be reached by other names, or with --no-auth"
            )


def head_too_large(settings: ServerSettings) -> HeadersTooLargeError:
    return HeadersTooLargeError(
        f"request line and headers have more than {settings.max_head_bytes} bytes together; send shorter ones"
    )
