"""What all handlers of one server share."""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import dataclass, field

from forebay.engine.async_engine import AsyncEngine
from forebay.errors import SetupError, UnavailableError
from forebay.server.auth import ApiKeys
from forebay.server.cors import ANY
from forebay.structured.tools.message import MessageFormat, message_format


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Limits and guards of the HTTP face. Sizes in bytes, times in seconds.

    api_keys: None asks nobody for a key; `serve` then listens on this machine only, unless `no_auth`.
    local_only: answer only to names of this machine (head.check_host); `serve` sets it where it asks for no key.
    cors_origins: whose pages may read answers (cors.parse_origins). tls: serve https with this (tls.load_tls).
    Raises SetupError for guards that contradict each other.
    """

    max_body_bytes: int = 4 * 2**20
    max_headers: int = 100
    max_head_bytes: int = 32 * 2**10
    body_timeout_s: float = 30.0
    head_timeout_s: float = 30.0
    write_timeout_s: float = 60.0
    tool_format: str | None = None
    drain_timeout_s: float = 30.0
    health_timeout_s: float = 10.0
    api_keys: ApiKeys | None = None
    no_auth: bool = False
    local_only: bool = False
    cors_origins: tuple[str, ...] = ()
    tls: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        if self.api_keys is None:
            return
        if self.no_auth:
            raise SetupError("--no-auth and --api-keys contradict each other; give one of them", param="no_auth")
        if ANY in self.cors_origins:
            raise SetupError(
                f"--cors-origin {ANY} would let every web page use an API key it gets hold of; name the origins",
                param="cors_origin",
            )


@dataclass(slots=True, eq=False)
class ServerState:
    """Owned by the event loop. `idle` is set while no POST request is being served."""

    engine: AsyncEngine
    settings: ServerSettings
    draining: bool = False
    in_flight: int = 0
    started_at: int = field(default_factory=lambda: int(time.time()))
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    message_format: MessageFormat = field(init=False)  # how the model writes tool calls and reasoning

    def __post_init__(self) -> None:
        tokenizer = self.engine.tokenizer
        self.message_format = message_format(tokenizer.tool_template, tokenizer, self.settings.tool_format)
        self.idle.set()

    @property
    def model_name(self) -> str:
        return self.engine.info.model_name

    @property
    def fingerprint(self) -> str:
        """The profile digest, shortened, as OpenAI's `system_fingerprint`."""
        return f"fp_{self.engine.info.profile_digest[:12]}"

    def enter(self) -> None:
        self.in_flight += 1
        self.idle.clear()

    def leave(self) -> None:
        self.in_flight -= 1
        if not self.in_flight:
            self.idle.set()


def draining_error() -> UnavailableError:
    return UnavailableError("the server is shutting down and takes no new requests; use another replica")
