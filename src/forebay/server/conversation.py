"""A conversation on its way from a body to an answer: the same in every face that has messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from forebay.core.sampling_params import SamplingParams
from forebay.server.answer import Answer, Wording
from forebay.server.body import read_json_body
from forebay.server.generation import Generation, prepare
from forebay.server.naming import Names, Paths, naming
from forebay.server.openai.answer import counting_refusals
from forebay.server.speech import Speech
from forebay.server.state import ServerState
from forebay.server.tenants import tenant_of
from forebay.tokenizer import ChatPrompt


@dataclass(frozen=True, slots=True)
class Face:
    """How a face names things. kind: prefix of its response ids (see `prepare`). conversation: its field of that.
    names, paths: of other fields."""

    kind: str
    conversation: str = "messages"
    names: Names = field(default_factory=dict)
    paths: Paths = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """All that a body says.

    prompt: rendered by the chat template, which has written the special tokens. sampling: as the body has it; `speech`
    adds what calls and reasoning need. names: of the engine's fields, beyond those of the face.
    """

    prompt: ChatPrompt
    sampling: SamplingParams
    speech: Speech
    stream: bool
    wording: Callable[[Generation], Wording]
    cache_salt: str | None = None
    names: Names = field(default_factory=dict)


async def converse(
    state: ServerState, request: Request, face: Face, read: Callable[[ServerState, bytes], Asked]
) -> Response:
    """Answer a conversation, whole or as server-sent events. `read` parses the body, in a thread."""
    received_ns = state.engine.now_ns()
    with naming(face.names, paths=face.paths), counting_refusals(state):
        body = await read_json_body(request, state.settings)
        # a chat template can take long on any body
        asked, sampling = await asyncio.to_thread(_read, state, body, read)
    generation = await prepare(
        state,
        face.kind,
        [asked.prompt],
        sampling,
        received_ns,
        tenant_of(request),
        cache_salt=asked.cache_salt,
        field=face.conversation,
        names={**face.names, **asked.names},
        add_special_tokens=False,
    )
    answer = Answer(state, generation, asked.wording(generation), asked.speech.readers(generation))
    return answer.response(stream=asked.stream)


def _read(state: ServerState, body: bytes, read: Callable[[ServerState, bytes], Asked]) -> tuple[Asked, SamplingParams]:
    asked = read(state, body)
    return asked, asked.speech.held(asked.sampling)
