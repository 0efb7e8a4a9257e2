"""The two values scheduler and runner exchange: what to compute, and what came of it.

gc=False: the collector need not look at values that every step makes anew and that can be in no cycle.
"""

from __future__ import annotations

import msgspec

from forebay.core.guide import Guide
from forebay.core.sampling_params import SamplingParams
from forebay.core.token_history import TokenHistory


class ScheduledRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request's share of a step.

    token_ids: the tokens at positions [start, start + len(token_ids)), drafts last.
    write_start: KV of positions below it is in the cache already; those rows compute and write nothing.
    block_tables: for each KV group the block id of every block_size positions from 0 up to the last
      token of this step; -1 where a sliding window has let a block go.
    num_sampled: how many of the last rows are sampled: 0 for an unfinished prompt, else 1 + drafts.
    output_position: index in the output of the first token to be sampled (keys the random draw).
    end_token_ids: what ends the output, and may not be sampled before sampling.min_tokens.
    history: prompt and output so far, if there are penalties. guide: what allows the next token, if there is a grammar.
    scored_token_ids: tokens of the prompt whose log-probability the rows from scored_row on give, each the next one.
    wants_hidden: the sampled row gives its final hidden state, and no token.
    """

    request_id: str
    token_ids: list[int]
    start: int
    write_start: int
    block_tables: tuple[list[int], ...]
    num_sampled: int
    output_position: int
    sampling: SamplingParams
    seed: int
    child_index: int
    tenant: str
    namespace: str
    end_token_ids: frozenset[int] = frozenset()
    history: TokenHistory | None = None
    guide: Guide | None = None
    scored_token_ids: list[int] = msgspec.field(default_factory=list)
    scored_row: int = 0
    wants_hidden: bool = False
    adapter: str | None = None
    draft_token_ids: list[int] = msgspec.field(default_factory=list)


class Skipped(msgspec.Struct, frozen=True, gc=False):
    """A candidate that did not enter the step, and why (a WaitReason or "budget")."""

    request_id: str
    reason: str


class StepRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a step looked like; the source of every step metric. Blocks count over all KV groups."""

    step: int
    profile_digest: str
    num_requests: int
    num_prefill_tokens: int
    num_decode_tokens: int
    num_waiting: int
    blocks_used: int
    blocks_free: int  # never written or freed, not reachable by the prefix cache
    blocks_cached: int  # nobody uses them, the prefix cache can still hit them
    blocks_promised: int  # reserved by running requests, not yet taken
    slack_slots: int  # slots of used blocks that hold no token
    skipped: tuple[Skipped, ...] = ()
    preempted: tuple[str, ...] = ()
    start_ns: int = 0
    end_ns: int = 0


class SchedulerOutput(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One step, as a value: everything a runner needs, nothing it could change."""

    step: int
    requests: tuple[ScheduledRequest, ...]
    record: StepRecord

    @property
    def num_tokens(self) -> int:
        return self.record.num_prefill_tokens + self.record.num_decode_tokens


class TokenLogprobs(msgspec.Struct, frozen=True, gc=False):
    """Natural log-probabilities at one output position: the sampled token's, and the best ones (id, value) in order."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class SampledRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a step gave one request: no tokens for an unfinished prompt.

    prompt_logprobs: one for each of scored_token_ids.
    hidden: the final hidden state of the last row, if it was wanted: float32, little-endian.
    error: why there is nothing, such as a NaN in its row; error_code, a code of errors.py, comes with it, and
    error_param, if a field of the request is to blame.
    """

    request_id: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs] = msgspec.field(default_factory=list)
    hidden: bytes | None = None
    error_code: str | None = None
    error: str | None = None
    error_param: str | None = None


class ModelOutput(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    step: int
    requests: tuple[SampledRequest, ...]
