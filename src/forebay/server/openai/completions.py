"""POST /v1/completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from forebay.core.outputs import CompletionChunk
from forebay.core.sampling_params import SamplingParams
from forebay.errors import ContextLengthError
from forebay.server.body import off_loop, read_json_body
from forebay.server.generation import Generation, Usage, prepare, run
from forebay.server.openai.answer import counting_refusals, gather, respond, response_head
from forebay.server.openai.fields import COMPLETION_FIELDS
from forebay.server.openai.logprobs import CompletionLogprobs
from forebay.server.openai.parse import check_model, check_token_ids, parse, parse_prompts
from forebay.server.openai.requests import CompletionBody
from forebay.server.openai.sampling import completion_sampling, include_usage
from forebay.server.state import ServerState


class _Read(NamedTuple):
    """All that a body says."""

    prompts: list[str | list[int]]
    sampling: SamplingParams
    stream: bool
    usage_wanted: bool


async def completions(state: ServerState, request: Request) -> Response:
    """Complete one or several prompts, whole or as server-sent events."""
    received_ns = state.engine.now_ns()
    with counting_refusals(state):
        body = await read_json_body(request, state.settings)
        read = await off_loop(len(body), lambda: _read(state, body))
    generation = await prepare(state, "cmpl", read.prompts, read.sampling, received_ns)
    answer = _Answer(state, generation)
    return respond(state, generation, answer.whole, answer.events(read.usage_wanted) if read.stream else None)


def _read(state: ServerState, raw: bytes) -> _Read:
    body = parse(raw, CompletionBody, COMPLETION_FIELDS)
    check_model(body.model, state.model_name)
    prompts = parse_prompts(body.prompt, body.n)
    for i, prompt in enumerate(prompts):
        if not isinstance(prompt, str):
            _check_ids(state, prompt, "prompt" if len(prompts) == 1 else f"prompt[{i}]")
    return _Read(prompts, completion_sampling(body), body.stream, include_usage(body))


def _check_ids(state: ServerState, ids: list[int], path: str) -> None:
    limit = state.engine.info.max_model_len
    if len(ids) >= limit:  # before anything looks at each of a million ids
        raise ContextLengthError(
            f"{path} has {len(ids)} tokens and the context length is {limit}: shorten it to {limit - 1} or fewer",
            param=path,
        )
    check_token_ids(ids, state.engine.tokenizer.vocab_size, path)


class _Answer:
    """The response to one request, whole or as events."""

    def __init__(self, state: ServerState, generation: Generation) -> None:
        self._state = state
        self._generation = generation
        self._usage = Usage(generation)
        self._head = response_head(state, generation, "text_completion")
        self._wording: list[CompletionLogprobs] = []
        if generation.logprobs:
            prompts = (request.prompt_token_ids for request in generation.requests for _ in range(generation.n))
            self._wording = [CompletionLogprobs(state.engine.tokenizer, prompt) for prompt in prompts]

    def _logprobs(self, chunk: CompletionChunk) -> dict[str, Any] | None:
        return self._wording[chunk.index].of(chunk) if self._wording else None

    async def whole(self) -> bytes:
        choices = [
            {
                "text": choice.text,
                "index": choice.index,
                "logprobs": choice.joined_logprobs(),
                "finish_reason": choice.finish_reason,
            }
            for choice in await gather(self._state, self._generation, self._usage, self._logprobs)
        ]
        return msgspec.json.encode(self._head | {"choices": choices, "usage": self._usage.as_dict()})

    async def events(self, usage_wanted: bool) -> AsyncGenerator[bytes, None]:
        """One event per chunk; everything but the changing parts is written once."""
        encode = msgspec.json.encode
        head = b"data: " + encode(self._head)[:-1]
        tail = b',"usage":null}\n\n' if usage_wanted else b"}\n\n"
        async with aclosing(run(self._state, self._generation)) as chunks:
            async for chunk in chunks:
                self._usage.add(chunk)
                if not (chunk.text or chunk.finish_reason or self._wording):
                    continue
                logprobs, reason = encode(self._logprobs(chunk)), encode(chunk.finish_reason)
                parts = (head, encode(chunk.text), chunk.index, logprobs, reason, tail)
                yield b'%b,"choices":[{"text":%b,"index":%d,"logprobs":%b,"finish_reason":%b}]%b' % parts
        if usage_wanted:
            yield b'%b,"choices":[],"usage":%b}\n\n' % (head, encode(self._usage.as_dict()))
