"""GET /v1/models and /v1/models/{model}: the one model that is served."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from forebay.server.openai.parse import check_model
from forebay.server.reply import json_reply
from forebay.server.state import ServerState


async def list_models(state: ServerState, request: Request) -> Response:
    return json_reply({"object": "list", "data": [_card(state)]})


async def get_model(state: ServerState, request: Request) -> Response:
    """Raises NotFoundError for any other name."""
    check_model(request.path_params["model"], state.model_name)
    return json_reply(_card(state))


def _card(state: ServerState) -> dict[str, Any]:
    info = state.engine.info
    return {
        "id": info.model_name,
        "object": "model",
        "created": state.started_at,
        "owned_by": "forebay",
        "max_model_len": info.max_model_len,
    }
