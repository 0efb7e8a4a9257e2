"""build_app: the routes of the HTTP face, as one ASGI application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from forebay.engine.async_engine import AsyncEngine
from forebay.errors import ForebayError
from forebay.server import health
from forebay.server.anthropic.messages import count_tokens, messages
from forebay.server.anthropic.requests import CountTokensBody, MessagesBody
from forebay.server.errors import on_forebay_error, on_http_exception
from forebay.server.gateway import Gateway
from forebay.server.models import get_model, list_models
from forebay.server.openai.chat import chat_completions
from forebay.server.openai.completions import completions
from forebay.server.openai.embeddings import embeddings
from forebay.server.openai.requests import ChatBody, CompletionBody, DetokenizeBody, EmbeddingBody, TokenizeBody
from forebay.server.openai.responses.create import compact, create_response, input_tokens, stored_response
from forebay.server.openai.responses.requests import InputTokensBody, ResponseBody
from forebay.server.openai.tokenize import detokenize, tokenize
from forebay.server.openapi import RESPONSES, openapi_document, operation
from forebay.server.state import ServerSettings, ServerState
from forebay.version import package_version

Handler = Callable[[ServerState, Request], Awaitable[Response]]

# method, path, handler, type of the body, what it does
ROUTES: tuple[tuple[str, str, Handler, type[msgspec.Struct] | None, str], ...] = (
    ("POST", "/v1/completions", completions, CompletionBody, "Complete prompts."),
    ("POST", "/v1/chat/completions", chat_completions, ChatBody, "Answer a conversation."),
    ("POST", "/v1/embeddings", embeddings, EmbeddingBody, "Embed texts."),
    ("POST", "/v1/responses", create_response, ResponseBody, "Answer a conversation; nothing is stored."),
    ("POST", "/v1/responses/input_tokens", input_tokens, InputTokensBody, "Tokens of such a conversation."),
    ("POST", "/v1/responses/compact", compact, None, "Always 404: not implemented."),
    ("GET", "/v1/responses/{response_id}", stored_response, None, "Always 404: responses are not stored."),
    ("DELETE", "/v1/responses/{response_id}", stored_response, None, "Always 404: responses are not stored."),
    ("GET", "/v1/responses/{response_id}/input_items", stored_response, None, "Always 404, as above."),
    ("POST", "/v1/responses/{response_id}/cancel", stored_response, None, "Always 404, as above."),
    ("POST", "/v1/messages", messages, MessagesBody, "Answer a conversation, in Anthropic's words."),
    ("POST", "/v1/messages/count_tokens", count_tokens, CountTokensBody, "Tokens of such a conversation."),
    ("GET", "/v1/models", list_models, None, "The served model, with its context length."),
    ("GET", "/v1/models/{model:path}", get_model, None, "The served model by name."),
    ("POST", "/tokenize", tokenize, TokenizeBody, "Token ids of a text or a conversation."),
    ("POST", "/detokenize", detokenize, DetokenizeBody, "The text of token ids."),
    ("GET", "/health", health.health, None, "Does the engine loop answer?"),
    ("GET", "/ready", health.ready, None, "Are new requests taken?"),
    ("GET", "/version", health.version, None, "Version, model, profile digest and answer class."),
    ("GET", "/metrics", health.metrics, None, "Prometheus text exposition."),
)


def build_app(engine: AsyncEngine, settings: ServerSettings | None = None) -> Gateway:
    """The ASGI application over a started engine. The caller closes the engine."""
    state = ServerState(engine=engine, settings=settings or ServerSettings())
    app = FastAPI(
        title="Forebay",
        version=package_version(),
        docs_url=None,  # both pages load their scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={
            ForebayError: on_forebay_error,
            HTTPException: on_http_exception,
            Exception: on_forebay_error,
        },
    )
    for method, path, handler, body, summary in ROUTES:
        app.add_api_route(
            path,
            _endpoint(state, handler),
            methods=[method],
            name=handler.__name__,
            summary=summary,
            description=handler.__doc__,
            response_class=Response,
            openapi_extra=operation(body),
            responses=RESPONSES,
        )
    bodies = [body for *_, body, _ in ROUTES if body is not None]
    guarded = state.settings.api_keys is not None
    app.openapi = lambda: openapi_document(app, bodies, guarded)  # type: ignore[method-assign]  # FastAPI's documented way to extend the document
    return Gateway(app, state)


def _endpoint(state: ServerState, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await handler(state, request)

    return endpoint
