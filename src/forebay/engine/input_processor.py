"""From what a user asks to what the engine takes: token ids, resolved max_tokens and seed, the cache namespace."""

from __future__ import annotations

import hashlib
import secrets
import uuid

import msgspec

from forebay.core.clock import Clock
from forebay.core.messages import AddRequest, EngineInfo
from forebay.core.sampling_params import SamplingParams
from forebay.errors import ContextLengthError, InvalidValueError
from forebay.tokenizer import ChatPrompt, Tokenizer

Prompt = str | list[int] | ChatPrompt

# above this many characters tokenizing takes longer than an event loop should be held (about a millisecond)
LONG_TEXT = 2048

_NO_SAMPLING = SamplingParams(temperature=0.0)  # of a request that generates nothing


def new_request_id() -> str:
    return uuid.uuid4().hex


class InputProcessor:
    """Stateless apart from what it was built with; `tokenize` and `hidden_request` may run in any thread."""

    def __init__(self, tokenizer: Tokenizer, info: EngineInfo, model_digest: str, clock: Clock) -> None:
        self._tokenizer = tokenizer
        self._info = info
        self._model_digest = model_digest
        self._clock = clock

    def tokenize(self, prompt: Prompt, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text, or the checked ids themselves. Raises InvalidValueError for an empty prompt or an id
        that tokenizer or model do not have, ContextLengthError for a text that no tokenizing could make fit."""
        return self._token_ids(prompt, add_special_tokens, self._info.max_model_len - 1)

    def _token_ids(self, prompt: Prompt, add_special_tokens: bool, most: int) -> list[int]:
        if isinstance(prompt, str | ChatPrompt):
            self._check_size(prompt if isinstance(prompt, str) else prompt.text, most)
            token_ids = self._tokenizer.encode(prompt, add_special_tokens=add_special_tokens)
        elif not isinstance(prompt, list | tuple):
            raise InvalidValueError(f"prompt must be text or a list of token ids, got {prompt!r:.80}", param="prompt")
        else:
            token_ids = list(prompt)
        # text too: a tokenizer may know tokens that the model was never resized for
        vocab_size = min(self._tokenizer.vocab_size, self._info.vocab_size)
        wrong = next((i for i in token_ids if type(i) is not int or not 0 <= i < vocab_size), None)
        if wrong is not None:
            raise InvalidValueError(
                f"prompt token ids must be integers from 0 to {vocab_size - 1}, got {wrong!r:.80}", param="prompt"
            )
        if not token_ids:
            raise InvalidValueError("prompt is empty; it must have at least one token", param="prompt")
        return token_ids

    def hidden_request(
        self,
        prompt: Prompt,
        *,
        add_special_tokens: bool = True,
        request_id: str | None = None,
        tenant: str = "",
        cache_salt: str = "",
        received_ns: int | None = None,
    ) -> AddRequest:
        """The message that asks for the final hidden state of a prompt's last token. Nothing follows it, so a prompt
        may fill the context. Raises as `tokenize` does, and InvalidValueError for an empty text."""
        if prompt == "":
            raise InvalidValueError("an empty text has no embedding; give at least one character", param="prompt")
        most = self._info.max_model_len
        token_ids = self._token_ids(prompt, add_special_tokens, most)
        self._check_length(len(token_ids), most)
        owner = (tenant, cache_salt)
        return self._message(token_ids, _NO_SAMPLING, request_id, owner, received_ns, max_tokens=0, wants_hidden=True)

    def request(
        self,
        token_ids: list[int],
        sampling: SamplingParams,
        *,
        request_id: str | None = None,
        tenant: str = "",
        cache_salt: str = "",
        received_ns: int | None = None,
    ) -> AddRequest:
        """The message for the engine. Raises ContextLengthError if prompt + max_tokens can never fit, and
        InvalidValueError for an n that can never be queued, a request id that could be a child's, token ids that the
        model does not have, and lists that leave no token to choose."""
        if ":" in (request_id or ""):
            raise InvalidValueError(
                f"request_id must not contain ':', got {request_id!r:.80}; it separates the ids of children",
                param="request_id",
            )
        if sampling.n > self._info.max_waiting:
            raise InvalidValueError(
                f"n={sampling.n} is more than the waiting queue holds; use n <= {self._info.max_waiting} or raise "
                "max_waiting",
                param="n",
            )
        self._check_token_ids(sampling)
        max_tokens = self._max_tokens(len(token_ids), sampling.max_tokens)
        if sampling.min_tokens > max_tokens:
            raise InvalidValueError(
                f"min_tokens is {sampling.min_tokens}, but at most {max_tokens} tokens can be generated here; ask for "
                "fewer",
                param="min_tokens",
            )
        return self._message(token_ids, sampling, request_id, (tenant, cache_salt), received_ns, max_tokens=max_tokens)

    def _message(
        self,
        token_ids: list[int],
        sampling: SamplingParams,
        request_id: str | None,
        owner: tuple[str, str],
        received_ns: int | None,
        *,
        max_tokens: int,
        wants_hidden: bool = False,
    ) -> AddRequest:
        now_ns, (tenant, cache_salt) = self._clock.now_ns(), owner
        return AddRequest(
            request_id=request_id or new_request_id(),
            prompt_token_ids=token_ids,
            sampling=sampling,
            max_tokens=max_tokens,
            seed=secrets.randbits(63) if sampling.seed is None else sampling.seed,
            namespace=self._namespace(tenant, cache_salt, adapter=None),
            eos_token_ids=sorted(self._tokenizer.eos_token_ids),
            tenant=tenant,
            wants_hidden=wants_hidden,
            received_ns=now_ns if received_ns is None else received_ns,
            tokenized_ns=now_ns,
        )

    def _check_token_ids(self, sampling: SamplingParams) -> None:
        listed = {
            "logit_bias": sampling.logit_bias,
            "allowed_token_ids": sampling.allowed_token_ids or (),
            "bad_token_ids": sampling.bad_token_ids,
            "stop_token_ids": sampling.stop_token_ids,
        }
        vocab_size = self._info.vocab_size
        for name, ids in listed.items():
            wrong = next((i for i in ids if i >= vocab_size), None)
            if wrong is not None:
                raise InvalidValueError(
                    f"{name} must hold token ids from 0 to {vocab_size - 1}, got {wrong}", param=name
                )
        if sampling.allowed_token_ids is None or not sampling.min_tokens:
            return
        ends = set(sampling.stop_token_ids) | (set() if sampling.ignore_eos else self._tokenizer.eos_token_ids)
        if set(sampling.allowed_token_ids) <= ends | set(sampling.bad_token_ids):
            raise InvalidValueError(
                f"allowed_token_ids leaves nothing but ends of the output, and min_tokens is {sampling.min_tokens}; "
                "allow another token or leave min_tokens out",
                param="allowed_token_ids",
            )

    def _check_size(self, text: str, most: int) -> None:
        """Tokenizing megabytes takes seconds; a text of that many bytes is known to be too long without it."""
        longest = self._tokenizer.longest
        if longest is not None and len(text) > most:
            self._check_length(len(text.encode(errors="replace")) // longest, most, "at least ")

    def _check_length(self, tokens: int, most: int, about: str = "") -> None:
        if tokens > most:
            raise ContextLengthError(
                f"the prompt has {about}{tokens} tokens and the context length is {self._info.max_model_len}: shorten "
                f"the prompt to {most} tokens or fewer",
                param="prompt",
            )

    def _max_tokens(self, num_prompt: int, asked: int | None) -> int:
        limit = self._info.max_model_len
        left = limit - num_prompt
        self._check_length(num_prompt, limit - 1)
        if asked is None:
            return min(left, self._info.default_max_tokens)
        if asked > left:
            raise ContextLengthError(
                f"the prompt has {num_prompt} tokens and max_tokens is {asked}, together {num_prompt + asked}, but the "
                f"context length is {limit}: ask for at most {left} tokens or shorten the prompt",
                param="max_tokens",
            )
        return asked

    def _namespace(self, tenant: str, cache_salt: str, adapter: str | None) -> str:
        """Root of the block hash chain: everything that changes hidden states or trust."""
        parts = (tenant, cache_salt, self._model_digest, self._tokenizer.digest, adapter, self._info.answer_class)
        return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()
