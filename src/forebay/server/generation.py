"""A parsed request on its way through the engine: prepared prompts in, indexed chunks out."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec

from forebay.core.messages import AddRequest
from forebay.core.outputs import CompletionChunk
from forebay.core.sampling_params import SamplingParams
from forebay.engine.input_processor import Prompt
from forebay.errors import InvalidValueError
from forebay.server.naming import Names, naming
from forebay.server.state import ServerState
from forebay.server.tenants import Tenant

# 53 bits survive every JSON reader that keeps numbers as doubles.
SEED_BITS = 53


@dataclass(frozen=True, slots=True)
class Generation:
    """What one HTTP request asks of the engine: `n` completions of every prompt.

    Choice index = prompt index * n + child index. Seed and max_tokens of every request are decided. silent: nothing
    that is generated is given (max_tokens: 0; the engine makes one token and nobody sees it).
    """

    id: str
    requests: list[AddRequest]
    n: int
    logprobs: bool
    silent: bool = False

    @property
    def num_choices(self) -> int:
        return len(self.requests) * self.n

    @property
    def num_prompt_tokens(self) -> int:
        return sum(len(request.prompt_token_ids) for request in self.requests)

    def headers(self) -> dict[str, str]:
        """What was decided for the client: the seed, and max_tokens per prompt."""
        return {
            "x-forebay-seed": str(self.requests[0].seed),
            "x-forebay-max-tokens": ", ".join(str(0 if self.silent else r.max_tokens) for r in self.requests),
        }


async def prepare(
    state: ServerState,
    kind: str,
    prompts: Sequence[Prompt],
    sampling: SamplingParams,
    received_ns: int,
    tenant: Tenant,
    *,
    cache_salt: str | None = None,
    field: str = "prompt",
    names: Names | None = None,
    add_special_tokens: bool = True,
    silent: bool = False,
) -> Generation:
    """Tokenize and check every prompt, decide seed and max_tokens; nothing is sent yet.

    kind: prefix of the response id, with a dash after it if it does not end in an underscore. cache_salt: the client's
    field of that name. field: what the client calls a prompt, names: and other fields, for errors.
    Raises InvalidValueError, ContextLengthError, UnavailableError, EngineDeadError.
    """
    _check_room(state, len(prompts), sampling.n, field)
    if sampling.seed is None:
        sampling = msgspec.structs.replace(sampling, seed=secrets.randbits(SEED_BITS))
    id_ = f"{kind}{'' if kind.endswith('_') else '-'}{secrets.token_hex(16)}"
    requests = []
    for i, prompt in enumerate(prompts):
        with naming(names or {}, prompt=field if len(prompts) == 1 else f"{field}[{i}]"):
            request = await state.engine.prepare(
                prompt,
                sampling,
                request_id=id_ if len(prompts) == 1 else f"{id_}-{i}",
                tenant=tenant.name,
                cache_salt=tenant.salt(cache_salt),
                received_ns=received_ns,
                add_special_tokens=add_special_tokens,
            )
        requests.append(request)
    return Generation(id=id_, requests=requests, n=sampling.n, logprobs=sampling.logprobs is not None, silent=silent)


def _check_room(state: ServerState, num_prompts: int, n: int, field: str) -> None:
    """Refuse what even an idle queue cannot take: trying again would never help."""
    room = state.engine.info.max_waiting
    if num_prompts > 1 and num_prompts * n > room:
        raise InvalidValueError(
            f"{field} has {num_prompts} prompts, with n={n} that is {num_prompts * n} completions and the queue holds "
            f"{room}: send at most {max(1, room // n)} prompts at a time",
            param=field,
        )


def run(state: ServerState, generation: Generation) -> AsyncGenerator[CompletionChunk, None]:
    """Chunks of all choices as they come; `index` is the choice. Closing it aborts what still runs; an error of one
    prompt ends all."""
    if len(generation.requests) == 1:
        return state.engine.stream(generation.requests[0])
    return _interleaved([_stream(state, request, i * generation.n) for i, request in enumerate(generation.requests)])


async def _stream(state: ServerState, request: AddRequest, first_choice: int) -> AsyncGenerator[CompletionChunk, None]:
    async with aclosing(state.engine.stream(request)) as chunks:
        async for chunk in chunks:
            yield msgspec.structs.replace(chunk, index=first_choice + chunk.index)


async def _interleaved(streams: list[AsyncGenerator[CompletionChunk, None]]) -> AsyncGenerator[CompletionChunk, None]:
    """Chunks of all streams in order of arrival. The first error is raised; closing closes every stream."""
    # one at a time per stream: a reader that falls behind is the engine's to merge, not ours to buffer
    queue: asyncio.Queue[CompletionChunk | Exception | None] = asyncio.Queue(maxsize=len(streams))

    async def pump(stream: AsyncGenerator[CompletionChunk, None]) -> None:
        try:
            async with aclosing(stream):
                async for item in stream:
                    await queue.put(item)
            await queue.put(None)
        except Exception as error:
            await queue.put(error)

    tasks = [asyncio.create_task(pump(stream)) for stream in streams]
    try:
        running = len(tasks)
        while running:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class Usage:
    """Token counts of one HTTP request. A prompt counts once however many completions it has."""

    generation: Generation
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cached: dict[int, int] = field(default_factory=dict)  # prompt index -> tokens found in the prefix cache

    def add(self, chunk: CompletionChunk) -> None:
        """chunk: as `run` gives it."""
        if not self.generation.silent:
            self.completion_tokens += len(chunk.token_ids)
        prompt, child = divmod(chunk.index, self.generation.n)
        if child == 0:
            self.cached[prompt] = chunk.num_cached_tokens

    @property
    def cached_tokens(self) -> int:
        return sum(self.cached.values())

    def as_dict(self) -> dict[str, object]:
        prompt_tokens = self.generation.num_prompt_tokens
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }
