"""The messages between a front end and the engine process: the list of them is the process diagram.

Front end -> engine: AddRequest, Abort, Control.   Engine -> front end: Ready, EngineOutputs, ControlReply, Dead.
All are msgspec structs, sent as msgpack over ZMQ. Keep this file to definitions.
"""

from __future__ import annotations

from typing import Any

import msgspec

from forebay.core.sampling_params import SamplingParams
from forebay.core.step import StepRecord, TokenLogprobs


class AddRequest(msgspec.Struct, frozen=True, kw_only=True, tag="add"):
    """A tokenized request. `max_tokens` and `seed` are resolved; n > 1 becomes n children in the engine.

    wants_hidden: nothing is generated (max_tokens is 0); the final hidden state of the prompt's last token is wanted.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams
    max_tokens: int
    seed: int
    namespace: str
    eos_token_ids: list[int] = msgspec.field(default_factory=list)
    tenant: str = ""
    adapter: str | None = None
    priority: int = 0
    wants_hidden: bool = False
    received_ns: int = 0
    tokenized_ns: int = 0


class Abort(msgspec.Struct, frozen=True, kw_only=True, tag="abort"):
    request_ids: list[str]
    reason: str = "client"


class Control(msgspec.Struct, frozen=True, kw_only=True, tag="control"):
    """Handled between steps. op: "ping", "stats", "drain", "reset_prefix_cache", "dump", "shutdown"."""

    call_id: int
    op: str
    args: dict[str, Any] = msgspec.field(default_factory=dict)


ToEngine = AddRequest | Abort | Control


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a front end must know of the engine it talks to."""

    model_name: str
    max_model_len: int
    num_blocks: int
    block_size: int
    vocab_size: int  # token ids the model has a row for; its tokenizer may know fewer or more
    hidden_size: int  # width of a hidden state
    profile_digest: str
    answer_class: str
    default_max_tokens: int
    max_requests: int
    max_waiting: int
    resolved: dict[str, str] = msgspec.field(default_factory=dict)  # setting -> "value (reason)"


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    info: EngineInfo


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One fact in the life of a request. Everything that is ever reported about time is derived from these.

    kind: received, tokenized, grammar, compiled, queued, admitted, chunk, token, preempted, finished. `step` is the
    step it belongs to (-1 before the engine). `value`: tokens in the chunk, index of the token, or blocks promised.
    """

    kind: str
    t_ns: int
    step: int = -1
    value: int = 0
    detail: str = ""


class RequestOutput(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one step gave one request (child `child_index` of `request_id`).

    prompt_logprobs: of the next tokens of the prompt, if they were asked for.
    hidden: final hidden state of the last token of the prompt, if it was asked for: float32, little-endian.
    finish_reason: a FinishReason value, on the last output only; `events` come with it.
    error_code / error / error_param: set with finish_reason "error" (see errors.error_named).
    """

    request_id: str
    child_index: int
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    hidden: bytes | None = None
    finish_reason: str | None = None
    num_cached_tokens: int = 0
    events: tuple[Event, ...] = ()
    error_code: str | None = None
    error: str | None = None
    error_param: str | None = None
    retry_after: float = 0.0


class EngineOutputs(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="outputs"):
    """All outputs of one step, in one message."""

    outputs: tuple[RequestOutput, ...]
    record: StepRecord | None = None


class ControlReply(msgspec.Struct, frozen=True, kw_only=True, tag="reply"):
    call_id: int
    result: dict[str, Any] = msgspec.field(default_factory=dict)
    error: str | None = None


class Dead(msgspec.Struct, frozen=True, kw_only=True, tag="dead"):
    """The engine's last words."""

    error_code: str
    error: str


FromEngine = Ready | EngineOutputs | ControlReply | Dead
