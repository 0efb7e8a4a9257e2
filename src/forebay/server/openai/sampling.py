"""From a typed body to SamplingParams, naming the client's own field in every error."""

from __future__ import annotations

from forebay.core.sampling_params import MAX_LOGPROBS, SamplingParams
from forebay.errors import InvalidValueError
from forebay.server.openai.parse import shorten
from forebay.server.openai.requests import ChatBody, CompletionBody


def completion_sampling(body: CompletionBody) -> SamplingParams:
    return _sampling(body, body.max_tokens, body.logprobs)


def chat_sampling(body: ChatBody) -> SamplingParams:
    """Raises InvalidValueError for `top_logprobs` without `logprobs` and for two different token limits."""
    top = body.top_logprobs
    if top is not None and not body.logprobs:
        raise InvalidValueError(
            "top_logprobs needs logprobs: true; set it or leave top_logprobs out", param="top_logprobs"
        )
    if top is not None and not 0 <= top <= MAX_LOGPROBS:
        raise InvalidValueError(
            f"top_logprobs must be an integer from 0 to {MAX_LOGPROBS}, got {shorten(top)}", param="top_logprobs"
        )
    limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    if body.max_tokens not in (None, limit):
        raise InvalidValueError(
            f"max_tokens is {body.max_tokens} and max_completion_tokens is {limit}; give one of them",
            param="max_tokens",
        )
    if body.max_completion_tokens is not None and body.max_completion_tokens < 1:
        raise InvalidValueError(
            f"max_completion_tokens must be an integer of at least 1, got {body.max_completion_tokens}",
            param="max_completion_tokens",
        )
    return _sampling(body, limit, (top or 0) if body.logprobs else None)


def include_usage(body: ChatBody | CompletionBody) -> bool:
    """Whether a usage chunk is wanted. Raises InvalidValueError for stream_options without stream."""
    if body.stream_options is None:
        return False
    if not body.stream:
        raise InvalidValueError(
            "stream_options is only allowed with stream: true; set it or leave stream_options out",
            param="stream_options",
        )
    return body.stream_options.include_usage


def _sampling(body: ChatBody | CompletionBody, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        min_p=body.min_p,
        seed=body.seed,
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop),
        n=body.n,
        logprobs=logprobs,
        ignore_eos=body.ignore_eos,
    )
