"""One generation that the scheduler tracks."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from forebay.core.guide import Guide
from forebay.core.sampling_params import SamplingParams
from forebay.core.token_history import TokenHistory


class RequestStatus(enum.Enum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


class FinishReason(enum.StrEnum):
    STOP = "stop"  # end-of-sequence token, stop token or stop string
    LENGTH = "length"  # max_tokens reached
    ABORT = "abort"  # cancelled
    ERROR = "error"  # this request failed; the message says why


class WaitReason(enum.StrEnum):
    CAPACITY = "capacity"  # max_requests are running
    KV = "kv"  # blocks for prompt + max_tokens cannot be promised yet
    GRAMMAR = "grammar"  # its grammar is being compiled
    SIBLING = "sibling"  # a child of n > 1 waits for its sibling's prompt
    BATCH = "batch"  # static batching waits for the whole batch to end


@dataclass(slots=True, eq=False)
class Request:
    """State of one request inside the engine. Tokens, not phases:

    num_tokens          prompt + output + draft tokens known so far
    num_computed_tokens tokens whose KV is written; a step moves it towards num_tokens
    num_cached_tokens   of those, how many came from the prefix cache at first admission
    end_token_ids       end-of-sequence and stop tokens: either ends the output
    wants_hidden        no output: max_tokens is 0, and the prompt's last row gives its final hidden state
    A request with n > 1 is n requests: child index 0 computes the prompt, the others fork its blocks.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams
    max_tokens: int
    seed: int
    end_token_ids: frozenset[int]
    namespace: str
    tenant: str = ""
    adapter: str | None = None
    priority: int = 0
    wants_hidden: bool = False
    child_index: int = 0
    parent_id: str | None = None  # request id of child 0; None for child 0 itself
    arrival_ns: int = 0
    output_token_ids: list[int] = field(default_factory=list)
    draft_token_ids: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    write_start: int = 0  # KV of positions below this is already stored and is not written again
    history: TokenHistory | None = None  # of a request with penalties
    guide: Guide | None = None  # of a request with a grammar
    num_scored_tokens: int = 0  # of the prompt, with a log-probability that was reported
    num_preemptions: int = 0
    status: RequestStatus = RequestStatus.WAITING
    wait_reason: WaitReason | None = None
    finish_reason: FinishReason | None = None

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_token_ids) + len(self.output_token_ids) + len(self.draft_token_ids)

    @property
    def num_known_tokens(self) -> int:
        """num_tokens without the drafts."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    @property
    def max_total_tokens(self) -> int:
        """Prompt + max_tokens: what is promised at admission."""
        return len(self.prompt_token_ids) + self.max_tokens

    @property
    def num_unscored_tokens(self) -> int:
        """Tokens of the prompt whose log-probability is wanted and not reported; child 0 reports for all."""
        if self.sampling.prompt_logprobs is None or self.child_index:
            return 0
        return len(self.prompt_token_ids) - 1 - self.num_scored_tokens

    def tokens(self, start: int, stop: int) -> list[int]:
        """Token ids of positions [start, stop) over prompt, output and draft."""
        num_prompt = len(self.prompt_token_ids)
        if stop <= num_prompt:
            return self.prompt_token_ids[start:stop]
        tail = self.output_token_ids + self.draft_token_ids if self.draft_token_ids else self.output_token_ids
        if start >= num_prompt:
            return tail[start - num_prompt : stop - num_prompt]
        return self.prompt_token_ids[start:] + tail[: stop - num_prompt]
