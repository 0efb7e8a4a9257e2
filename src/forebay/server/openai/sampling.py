"""From a typed body to SamplingParams, naming the client's own field in every error."""

from __future__ import annotations

import msgspec

from forebay.core.grammar_spec import GrammarSpec
from forebay.core.sampling_params import MAX_LOGPROBS, MAX_N, SamplingParams
from forebay.errors import InvalidValueError
from forebay.server.naming import Names, naming
from forebay.server.openai.parse import shorten
from forebay.server.openai.requests import ChatBody, CompletionBody, SamplingBody
from forebay.server.openai.structured import grammar_of


def completion_sampling(body: CompletionBody) -> SamplingParams:
    """`best_of` becomes the engine's n, and a max_tokens of 0 a 1 that nobody sees.

    Raises InvalidValueError for a best_of below n, and for one above n as a stream."""
    if body.max_tokens == 0 and body.min_tokens > 0:
        raise InvalidValueError(
            f"min_tokens is {body.min_tokens} and max_tokens is 0; ask for fewer at least or more at most",
            param="min_tokens",
        )
    sampling = _sampling(body, body.max_tokens or (None if body.max_tokens is None else 1), body.logprobs)
    if body.echo and body.logprobs is not None:
        sampling = msgspec.structs.replace(sampling, prompt_logprobs=body.logprobs)
    if body.best_of is None or body.best_of == body.n:
        return sampling
    if not body.n < body.best_of <= MAX_N:
        raise InvalidValueError(
            f"best_of must be an integer from n={shorten(body.n)} to {MAX_N}, got {shorten(body.best_of)}",
            param="best_of",
        )
    if body.stream:
        raise InvalidValueError(
            "best_of above n cannot be streamed: which completions are best is known at the end; leave out best_of or "
            "stream",
            param="best_of",
        )
    return msgspec.structs.replace(sampling, n=body.best_of, logprobs=sampling.logprobs or 0)


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
    with naming(chat_names(body)):
        return _sampling(body, limit, (top or 0) if body.logprobs else None)


def chat_names(body: ChatBody) -> Names:
    """What the client called the engine's fields."""
    return {} if body.max_completion_tokens is None else {"max_tokens": "max_completion_tokens"}


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
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop)
    return sampling_of(body, grammar_of(body), max_tokens=max_tokens, stop=stop, n=body.n, logprobs=logprobs)


def sampling_of(
    body: SamplingBody,
    grammar: GrammarSpec | None,
    *,
    max_tokens: int | None,
    stop: tuple[str, ...] = (),
    n: int = 1,
    logprobs: int | None = None,
) -> SamplingParams:
    """What a body of any face says, with the fields whose names differ between them."""
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        min_p=body.min_p,
        typical_p=body.typical_p,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        repetition_penalty=body.repetition_penalty,
        logit_bias=_biases(body.logit_bias),
        allowed_token_ids=None if body.allowed_token_ids is None else tuple(body.allowed_token_ids),
        bad_token_ids=tuple(body.bad_token_ids),
        grammar=grammar,
        min_tokens=body.min_tokens,
        seed=body.seed,
        stop=stop,
        stop_token_ids=tuple(body.stop_token_ids),
        include_stop_str_in_output=body.include_stop_str_in_output,
        skip_special_tokens=body.skip_special_tokens,
        n=n,
        logprobs=logprobs,
        ignore_eos=body.ignore_eos,
    )


def _biases(given: dict[str, float]) -> dict[int, float]:
    """JSON's keys are strings. Raises InvalidValueError for one that is no token id."""
    for key in given:
        if not (key.isascii() and key.isdigit() and len(key) < 10):
            raise InvalidValueError(
                f"every key of logit_bias must be a token id, got {shorten(key)}", param="logit_bias"
            )
    return {int(key): bias for key, bias in given.items()}
