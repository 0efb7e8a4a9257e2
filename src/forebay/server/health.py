"""GET /health, /ready, /version and /metrics."""

from __future__ import annotations

from importlib import metadata

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from forebay.errors import UnavailableError
from forebay.observe import prometheus
from forebay.server.state import ServerState


async def health(state: ServerState, request: Request) -> Response:
    """200 if the engine loop answered a ping just now. Raises EngineDeadError or UnavailableError otherwise."""
    await state.engine.health(state.settings.health_timeout_s)
    return _json({"status": "ok"})


async def ready(state: ServerState, request: Request) -> Response:
    """200 if new requests are taken: healthy and not draining."""
    if state.draining:
        raise UnavailableError("the server is shutting down and takes no new requests; use another replica")
    return await health(state, request)


async def version(state: ServerState, request: Request) -> Response:
    info = state.engine.info
    return _json(
        {
            "version": package_version(),
            "model": info.model_name,
            "profile": info.profile_digest,
            "answer_class": info.answer_class,
        }
    )


async def metrics(state: ServerState, request: Request) -> Response:
    return Response(prometheus.render(state.engine.metrics), headers={"content-type": prometheus.CONTENT_TYPE})


def package_version() -> str:
    """The installed version; a source tree that was never installed has none."""
    try:
        return metadata.version("forebay")
    except metadata.PackageNotFoundError:
        return "0+source"


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
