"""Chunks put together again into whole completions."""

from __future__ import annotations

from collections.abc import Iterable

from forebay.core.messages import AddRequest
from forebay.core.outputs import Completion, CompletionChunk, GenerateResult
from forebay.core.step import TokenLogprobs
from forebay.engine.output_processor import merged


class Collector:
    """Gathers the chunks of one request until every completion has its finish_reason."""

    def __init__(self, request: AddRequest) -> None:
        self._request = request
        self._chunks: dict[int, list[CompletionChunk]] = {i: [] for i in range(request.sampling.n)}

    def add(self, chunks: Iterable[CompletionChunk]) -> None:
        for chunk in chunks:
            self._chunks[chunk.index].append(chunk)

    def result(self) -> GenerateResult:
        return GenerateResult(
            request_id=self._request.request_id,
            prompt_token_ids=self._request.prompt_token_ids,
            completions=[_completion(chunks) for chunks in self._chunks.values()],
            seed=self._request.seed,
            prompt_logprobs=self._prompt_logprobs(),
        )

    def _prompt_logprobs(self) -> list[TokenLogprobs | None] | None:
        if self._request.sampling.prompt_logprobs is None:
            return None
        return [None, *(entry for chunk in self._chunks[0] for entry in chunk.prompt_logprobs)]


def _completion(chunks: list[CompletionChunk]) -> Completion:
    whole = merged(chunks)
    return Completion(
        index=whole.index,
        text=whole.text,
        token_ids=whole.token_ids,
        logprobs=whole.logprobs,
        finish_reason=str(whole.finish_reason),
        num_cached_tokens=whole.num_cached_tokens,
        events=whole.events,
        hidden=whole.hidden,
    )
