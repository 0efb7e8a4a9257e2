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
from forebay.core.step import TokenLogprobs
from forebay.errors import ContextLengthError
from forebay.server.body import LONG_BODY, off_loop, read_json_body
from forebay.server.generation import Generation, Usage, prepare, run
from forebay.server.naming import Names
from forebay.server.openai.answer import Choice, best_of_each, counting_refusals, gather, respond, response_head
from forebay.server.openai.fields import COMPLETION_FIELDS
from forebay.server.openai.logprobs import CompletionLogprobs, joined
from forebay.server.openai.parse import check_model, check_token_ids, parse, parse_prompts
from forebay.server.openai.requests import CompletionBody
from forebay.server.openai.sampling import completion_sampling, include_usage
from forebay.server.openai.structured import is_constrained
from forebay.server.state import ServerState
from forebay.server.tenants import tenant_of


class _Read(NamedTuple):
    """All that a body says. n: completions to give of each prompt, of the sampling.n that are generated."""

    prompts: list[str | list[int]]
    sampling: SamplingParams
    names: Names
    n: int
    logprobs_wanted: bool
    echo: bool
    silent: bool
    stream: bool
    usage_wanted: bool
    cache_salt: str | None


async def completions(state: ServerState, request: Request) -> Response:
    """Complete one or several prompts, whole or as server-sent events."""
    received_ns = state.engine.now_ns()
    with counting_refusals(state):
        raw = await read_json_body(request, state.settings)
        body = await off_loop(lambda: parse(raw, CompletionBody, COMPLETION_FIELDS), long=len(raw) > LONG_BODY)
        # the check of a grammar can take long on any body
        read = await off_loop(lambda: _read(state, body), long=len(raw) > LONG_BODY or is_constrained(body))
    generation = await prepare(
        state,
        "cmpl",
        read.prompts,
        read.sampling,
        received_ns,
        tenant_of(request),
        cache_salt=read.cache_salt,
        names=read.names,
        silent=read.silent,
    )
    answer = _Answer(state, generation, read)
    return respond(state, generation, answer.whole, answer.events() if read.stream else None)


def _read(state: ServerState, body: CompletionBody) -> _Read:
    check_model(body.model, state.model_name)
    sampling = completion_sampling(body)
    prompts = parse_prompts(body.prompt, sampling.n)
    for i, prompt in enumerate(prompts):
        if not isinstance(prompt, str):
            _check_ids(state, prompt, "prompt" if len(prompts) == 1 else f"prompt[{i}]")
    return _Read(
        prompts=prompts,
        sampling=sampling,
        names={"n": "best_of"} if sampling.n != body.n else {},
        n=body.n,
        logprobs_wanted=body.logprobs is not None,
        echo=body.echo,
        silent=body.max_tokens == 0,
        stream=body.stream,
        usage_wanted=include_usage(body),
        cache_salt=body.cache_salt,
    )


def _check_ids(state: ServerState, ids: list[int], path: str) -> None:
    limit = state.engine.info.max_model_len
    if len(ids) >= limit:  # before anything looks at each of a million ids
        raise ContextLengthError(
            f"{path} has {len(ids)} tokens and the context length is {limit}: shorten it to {limit - 1} or fewer",
            param=path,
        )
    check_token_ids(ids, state.engine.tokenizer.vocab_size, path)


class _Echo:
    """The prompts of a generation as the beginnings of their choices."""

    def __init__(self, state: ServerState, generation: Generation, read: _Read) -> None:
        self._tokenizer = state.engine.tokenizer
        self._generation = generation
        self._skip = read.sampling.skip_special_tokens
        self._scores: list[list[TokenLogprobs | None]] = [[None] for _ in generation.requests]
        self._scored = read.logprobs_wanted
        self._given = read.prompts
        self.texts = [
            prompt if isinstance(prompt, str) else self._tokenizer.decode(prompt, skip_special_tokens=self._skip)
            for prompt in read.prompts
        ]

    def add(self, chunk: CompletionChunk) -> None:
        self._scores[chunk.index // self._generation.n] += chunk.prompt_logprobs

    def text(self, choice: int) -> str:
        return self.texts[choice // self._generation.n]

    def logprobs(self, choice: int) -> dict[str, Any] | None:
        """Complete once the choice has a token."""
        if not self._scored:
            return None
        prompt = choice // self._generation.n
        ids = self._generation.requests[prompt].prompt_token_ids
        if isinstance(self._given[prompt], str):  # as it was sent: with special tokens it spells, not with those added
            spelled = ids[len(self._tokenizer.encode("")) :]
            wording = CompletionLogprobs(self._tokenizer, shown_token_ids=spelled)
        else:
            wording = CompletionLogprobs(self._tokenizer, skip_special_tokens=self._skip)
        return wording.of(ids, self._scores[prompt])


class _Answer:
    """The response to one request, whole or as events."""

    def __init__(self, state: ServerState, generation: Generation, read: _Read) -> None:
        self._state = state
        self._generation = generation
        self._read = read
        self._usage = Usage(generation)
        self._head = response_head(state, generation, "text_completion")
        self._echo = _Echo(state, generation, read) if read.echo else None
        self._wording: list[CompletionLogprobs] = []
        if read.logprobs_wanted:
            self._wording = [self._wording_of(choice) for choice in range(generation.num_choices)]

    def _wording_of(self, choice: int) -> CompletionLogprobs:
        return CompletionLogprobs(
            self._state.engine.tokenizer,
            self._generation.requests[choice // self._generation.n].prompt_token_ids,
            skip_special_tokens=self._read.sampling.skip_special_tokens,
            start=len(self._echo.text(choice)) if self._echo else 0,
        )

    def _text(self, text: str) -> str:
        return "" if self._generation.silent else text

    def _logprobs(self, chunk: CompletionChunk) -> dict[str, Any] | None:
        if self._echo:
            self._echo.add(chunk)
        if not self._wording or self._generation.silent:
            return None
        return self._wording[chunk.index].of(chunk.token_ids, chunk.logprobs or ())

    def _choice(self, index: int, choice: Choice) -> dict[str, Any]:
        text, logprobs = self._text(choice.text), choice.logprobs
        if self._echo:
            text = self._echo.text(choice.index) + text
            echoed = self._echo.logprobs(choice.index)
            logprobs = logprobs if echoed is None else [echoed, *logprobs]
        return {
            "text": text,
            "index": index,
            "logprobs": joined(logprobs) if logprobs else None,
            "finish_reason": "length" if self._generation.silent else choice.finish_reason,
        }

    async def whole(self) -> bytes:
        found = await gather(self._state, self._generation, self._usage, self._logprobs)
        best = best_of_each(found, self._generation.n, self._read.n)
        choices = [self._choice(index, choice) for index, choice in enumerate(best)]
        return msgspec.json.encode(self._head | {"choices": choices, "usage": self._usage.as_dict()})

    async def events(self) -> AsyncGenerator[bytes, None]:
        """One event per chunk; everything but the changing parts is written once. An echo is the first of a choice."""
        encode = msgspec.json.encode
        head = b"data: " + encode(self._head)[:-1]
        tail = b',"usage":null}\n\n' if self._read.usage_wanted else b"}\n\n"
        form = b'%b,"choices":[{"text":%b,"index":%d,"logprobs":%b,"finish_reason":%b}]%b'
        to_echo = set(range(self._generation.num_choices)) if self._echo else set[int]()
        async with aclosing(run(self._state, self._generation)) as chunks:
            async for chunk in chunks:
                self._usage.add(chunk)
                logprobs = self._logprobs(chunk)
                if self._echo and chunk.index in to_echo and chunk.token_ids:
                    to_echo.remove(chunk.index)
                    text, echoed = self._echo.text(chunk.index), self._echo.logprobs(chunk.index)
                    yield form % (head, encode(text), chunk.index, encode(echoed), b"null", tail)
                text, reason = self._text(chunk.text), chunk.finish_reason
                if not (text or reason or (logprobs and chunk.token_ids)):
                    continue
                shown = encode("length" if reason and self._generation.silent else reason)
                yield form % (head, encode(text), chunk.index, encode(logprobs), shown, tail)
        if self._read.usage_wanted:
            yield b'%b,"choices":[],"usage":%b}\n\n' % (head, encode(self._usage.as_dict()))
