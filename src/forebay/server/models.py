"""GET /v1/models and /v1/models/{model}, in the shape of the face whose client asks."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from forebay.server.anthropic import models as anthropic
from forebay.server.anthropic.errors import is_anthropic
from forebay.server.openai import models as openai
from forebay.server.state import ServerState


async def list_models(state: ServerState, request: Request) -> Response:
    """The served model, with its context length; in Anthropic's shape for a request with `anthropic-version`."""
    answer = anthropic.list_models if is_anthropic(request.scope) else openai.list_models
    return await answer(state, request)


async def get_model(state: ServerState, request: Request) -> Response:
    """Raises NotFoundError for any other name."""
    answer = anthropic.get_model if is_anthropic(request.scope) else openai.get_model
    return await answer(state, request)
