"""A step while it is being chosen; becomes a SchedulerOutput."""

from __future__ import annotations

from typing import NamedTuple

from forebay.core.request import Request, WaitReason
from forebay.core.step import ScheduledRequest, SchedulerOutput, Skipped, StepRecord
from forebay.kvcache.block_manager import BlockManager
from forebay.observe.events import EventLog
from forebay.scheduler.token_budget import TokenBudget


class Rows(NamedTuple):
    """A request's rows in the step: `num_tokens` known tokens, then the first `num_drafts` of its drafts."""

    request: Request
    num_tokens: int
    num_drafts: int


class StepBuilder:
    """step: its id. budget: tokens left. rows: what was chosen, by request id, in order."""

    def __init__(self, step: int, token_budget: int, now_ns: int) -> None:
        self.step = step
        self.now_ns = now_ns
        self.budget = TokenBudget(token_budget)
        self.rows: dict[str, Rows] = {}
        self.skipped: list[Skipped] = []
        self.preempted: list[str] = []

    def put(self, rows: Rows) -> None:
        self.rows[rows.request.request_id] = rows

    def drop(self, request: Request) -> None:
        """The request was preempted: its rows, if it has any, leave the step again."""
        self.preempted.append(request.request_id)
        rows = self.rows.pop(request.request_id, None)
        if rows is not None:
            self.budget.give_back(rows.num_tokens + rows.num_drafts)

    def skip(self, request: Request, reason: WaitReason | None) -> None:
        """The request could have run; None says that the token budget was spent."""
        self.skipped.append(Skipped(request.request_id, "budget" if reason is None else reason.value))

    def build(self, blocks: BlockManager, events: EventLog, num_waiting: int, profile_digest: str) -> SchedulerOutput:
        scheduled, num_decode_tokens, num_tokens = [], 0, 0
        for request, num_known, num_drafts in self.rows.values():
            scheduled.append(_scheduled(request, num_known, num_drafts, blocks))
            num_tokens += num_known + num_drafts
            if num_known == 1 and request.output_token_ids:
                num_decode_tokens += 1 + num_drafts
            else:
                events.record(request.request_id, "chunk", self.now_ns, self.step, num_known + num_drafts)
        usage = blocks.usage()
        record = StepRecord(
            step=self.step,
            profile_digest=profile_digest,
            num_requests=len(scheduled),
            num_prefill_tokens=num_tokens - num_decode_tokens,
            num_decode_tokens=num_decode_tokens,
            num_waiting=num_waiting,
            blocks_used=usage.used,
            blocks_free=usage.free,
            blocks_cached=usage.cached,
            blocks_promised=usage.promised,
            slack_slots=usage.slack_slots,
            skipped=tuple(self.skipped),
            preempted=tuple(self.preempted),
            start_ns=self.now_ns,
        )
        return SchedulerOutput(step=self.step, requests=tuple(scheduled), record=record)


def _scheduled(request: Request, num_known: int, num_drafts: int, blocks: BlockManager) -> ScheduledRequest:
    start = request.num_computed_tokens
    stop = start + num_known
    complete = stop == request.num_known_tokens
    scored_start, scored = max(start, request.num_scored_tokens), list[int]()
    if request.num_unscored_tokens:
        scored = request.prompt_token_ids[scored_start + 1 : stop + 1]
    return ScheduledRequest(
        request_id=request.request_id,
        token_ids=request.tokens(start, stop + num_drafts),
        start=start,
        write_start=request.write_start,
        block_tables=blocks.block_tables(request),
        num_sampled=1 + num_drafts if complete else 0,
        output_position=len(request.output_token_ids),
        sampling=request.sampling,
        seed=request.seed,
        child_index=request.child_index,
        tenant=request.tenant,
        namespace=request.namespace,
        end_token_ids=request.end_token_ids,
        history=request.history,
        guide=request.guide,
        scored_token_ids=scored,
        scored_row=scored_start - start if scored else 0,
        wants_hidden=request.wants_hidden and complete,
        adapter=request.adapter,
        draft_token_ids=request.draft_token_ids[:num_drafts],
    )
