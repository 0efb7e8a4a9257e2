"""GET /v1/models and /v1/models/{model} in Anthropic's shape: the one model that is served."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from forebay.errors import InvalidValueError
from forebay.server.openai.parse import check_model, shorten
from forebay.server.reply import json_reply
from forebay.server.state import ServerState

MAX_PAGE = 1000
CURSORS = ("after_id", "before_id")
LIFECYCLES = ("active", "deprecated", "retired")


async def list_models(state: ServerState, request: Request) -> Response:
    """A page of models. Raises InvalidValueError for a wrong page size or lifecycle, NotFoundError for a cursor that is
    no model."""
    limit = request.query_params.get("limit", "20")
    if not (limit.isascii() and limit.isdigit() and len(limit) < 5 and 1 <= int(limit) <= MAX_PAGE):
        raise InvalidValueError(f"limit must be an integer from 1 to {MAX_PAGE}, got {shorten(limit)}", param="limit")
    cursors = [request.query_params[name] for name in CURSORS if name in request.query_params]
    for cursor in cursors:
        check_model(cursor, state.model_name)
    stages = request.query_params.getlist("lifecycle[]") + request.query_params.getlist("lifecycle")
    for stage in stages:
        if stage not in LIFECYCLES:
            raise InvalidValueError(
                f"lifecycle must be one of {', '.join(LIFECYCLES)}, got {shorten(stage)}", param="lifecycle"
            )
    excluded = bool(stages) and "active" not in stages
    page = [] if cursors or excluded else [_card(state)]  # nothing comes before or after the only one
    ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
    return json_reply({"data": page, "has_more": False, **ends})


async def get_model(state: ServerState, request: Request) -> Response:
    """Raises NotFoundError for any other name."""
    check_model(request.path_params["model"], state.model_name)
    return json_reply(_card(state))


def _card(state: ServerState) -> dict[str, Any]:
    info = state.engine.info
    return {
        "type": "model",
        "id": info.model_name,
        "display_name": info.model_name,
        "created_at": "1970-01-01T00:00:00Z",  # theirs for "not known"
        "lifecycle": "active",
        "max_input_tokens": info.max_model_len,
        "max_tokens": info.max_model_len - 1,
    }
