"""What all handlers of one server share."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from forebay.engine.async_engine import AsyncEngine
from forebay.errors import UnavailableError


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Limits of the HTTP face. Sizes in bytes, times in seconds."""

    max_body_bytes: int = 4 * 2**20
    body_timeout_s: float = 30.0
    write_timeout_s: float = 60.0
    drain_timeout_s: float = 30.0
    health_timeout_s: float = 10.0


@dataclass(slots=True, eq=False)
class ServerState:
    """Owned by the event loop. `idle` is set while no POST request is being served."""

    engine: AsyncEngine
    settings: ServerSettings
    draining: bool = False
    in_flight: int = 0
    started_at: int = field(default_factory=lambda: int(time.time()))
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
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
