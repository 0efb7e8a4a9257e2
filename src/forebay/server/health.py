"""GET /health, /ready, /version and /metrics."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from forebay.observe import prometheus
from forebay.server.reply import json_reply
from forebay.server.state import ServerState, draining_error
from forebay.version import package_version


async def health(state: ServerState, request: Request) -> Response:
    """200 if the engine loop answered a ping just now. Raises EngineDeadError or UnavailableError otherwise."""
    await state.engine.health(state.settings.health_timeout_s)
    return json_reply({"status": "ok"})


async def ready(state: ServerState, request: Request) -> Response:
    """200 if new requests are taken: healthy and not draining."""
    if state.draining:
        raise draining_error()
    return await health(state, request)


async def version(state: ServerState, request: Request) -> Response:
    info = state.engine.info
    return json_reply(
        {
            "version": package_version(),
            "model": info.model_name,
            "profile": info.profile_digest,
            "answer_class": info.answer_class,
            "settings": info.resolved,
        }
    )


async def metrics(state: ServerState, request: Request) -> Response:
    return Response(prometheus.render(state.engine.metrics), headers={"content-type": prometheus.CONTENT_TYPE})
