"""The scheduler: which tokens of which requests the next step computes, and what its results mean for them.

There are no phases. A request has num_tokens known and num_computed_tokens written; a step moves the second towards the
first, one token for a request that decodes, a chunk for one whose prompt (or, after a preemption, output) is behind.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from forebay.core.clock import Clock
from forebay.core.request import FinishReason, Request, RequestStatus, WaitReason
from forebay.core.step import ModelOutput, SampledRequest, ScheduledRequest, SchedulerOutput, TokenLogprobs
from forebay.errors import InternalError, InvalidValueError
from forebay.kvcache.block_manager import BlockManager
from forebay.observe.events import EventLog
from forebay.scheduler.admission import Admission
from forebay.scheduler.config import SchedulerConfig
from forebay.scheduler.policy import Policy, PriorityPolicy, Ranking
from forebay.scheduler.preemption import choose_victim, preempt
from forebay.scheduler.step_builder import Rows, StepBuilder


@dataclass(slots=True)
class Update:
    """What a step gave one request. error_code, error and error_param come with finished and request.finish_reason
    ERROR."""

    request: Request
    new_token_ids: list[int]
    logprobs: list[TokenLogprobs] | None
    finished: bool
    prompt_logprobs: Sequence[TokenLogprobs] = ()
    hidden: bytes | None = None
    error_code: str | None = None
    error: str | None = None
    error_param: str | None = None


@dataclass(frozen=True, slots=True)
class SchedulerCounts:
    """running, waiting: requests now. preemptions, steps: since the start."""

    running: int
    waiting: int
    preemptions: int
    steps: int


class Scheduler:
    """Owns all live requests. Calls alternate: schedule, (run the model), update; add and abort may come at any time.

    Finished requests are forgotten; their events stay in `events` until taken.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        blocks: BlockManager,
        clock: Clock,
        profile_digest: str,
        events: EventLog | None = None,
        policy: Policy | None = None,
    ) -> None:
        if blocks.chunk_size is not None and blocks.chunk_size < config.max_chunk:
            raise InternalError(f"chunk_size={config.max_chunk} is above the block manager's {blocks.chunk_size}")
        self._config = config
        self._max_chunk = config.max_chunk
        self._blocks = blocks
        self._clock = clock
        self._profile_digest = profile_digest
        self.events = EventLog() if events is None else events
        self._rank = Ranking(PriorityPolicy() if policy is None else policy)
        self._admission = Admission(config.max_waiting, blocks, self._rank)
        self._requests: dict[str, Request] = {}
        self._running: list[Request] = []  # in rank order
        self._in_flight: dict[str, Request] | None = None  # of the step whose results are awaited
        self._next_step = 0
        self._num_preemptions = 0

    # --- requests come and go ---------------------------------------------------------------------------------------

    def add(self, requests: Sequence[Request]) -> None:
        """Queue the children of one AddRequest, all or none.

        Raises InvalidValueError, ContextLengthError (it can never fit), OverloadedError (the queue is full)."""
        for request in requests:
            if request.request_id in self._requests:
                raise InvalidValueError(
                    f"request_id={request.request_id!r} is in use; choose another", param="request_id"
                )
        self._admission.check(requests, self._requests.values())
        now = self._clock.now_ns()
        for request in requests:
            self._requests[request.request_id] = request
            self._rank.enter(request)
            self._admission.put(request)
            self.events.record(request.request_id, "queued", now, self._next_step)

    def abort(self, request_ids: Iterable[str]) -> list[Request]:
        """End these requests now, whatever they are doing, and free their blocks; unknown ids are ignored. Results of a
        step in flight are dropped for them. Returns those that were live."""
        aborted = [self._requests[i] for i in dict.fromkeys(request_ids) if i in self._requests]
        now = self._clock.now_ns()
        for request in aborted:
            self._finish(request, FinishReason.ABORT, now, self._next_step)
        return aborted

    def fail(self, request: Request) -> None:
        """End a live request with an error, outside of a step."""
        self._finish(request, FinishReason.ERROR, self._clock.now_ns(), self._next_step)

    def get(self, request_id: str) -> Request | None:
        """A live request."""
        return self._requests.get(request_id)

    def has_work(self) -> bool:
        return bool(self._requests)

    @property
    def running(self) -> tuple[Request, ...]:
        """The admitted requests in rank order; a proposer sets their draft_token_ids between steps."""
        return tuple(self._running)

    @property
    def counts(self) -> SchedulerCounts:
        return SchedulerCounts(len(self._running), len(self._admission.waiting), self._num_preemptions, self._next_step)

    # --- choosing a step --------------------------------------------------------------------------------------------

    def schedule(self) -> SchedulerOutput | None:
        """The next step: one token for every request that decodes, then chunks for the running ones that are behind,
        then new requests, within the token budget. None if there is nothing to do, or not yet."""
        if self._in_flight is not None:
            raise InternalError(f"schedule() before update() of step {self._next_step - 1}")
        if not self._requests:
            return None
        step = StepBuilder(self._next_step, self._config.token_budget, self._clock.now_ns())
        may_admit = self._config.batching == "continuous" or not self._running
        self._extend_running(step)
        self._admit_waiting(step, may_admit)
        if not step.rows and not self._running and all(map(_is_compiling, self._admission.waiting)):
            return None
        if not step.rows:
            raise InternalError(
                f"no request can run: {len(self._running)} running, {len(self._admission.waiting)} waiting"
            )
        self._in_flight = {request_id: rows.request for request_id, rows in step.rows.items()}
        self._next_step += 1
        return step.build(self._blocks, self.events, len(self._admission.waiting), self._profile_digest)

    def _extend_running(self, step: StepBuilder) -> None:
        backlogs = [(_backlog(request), request) for request in self._running]
        behind = [pair for pair in backlogs if pair[0] > 1]
        decoding = [pair for pair in backlogs if pair[0] <= 1]
        self._extend_each(step, decoding, len(behind))
        step.budget.limit(self._config.prompt_tokens(len(decoding)))
        self._extend_each(step, behind, 0)

    def _extend_each(self, step: StepBuilder, requests: Sequence[tuple[int, Request]], others: int) -> None:
        """In order, each with its backlog; `others` running requests come after them."""
        others += len(requests)
        for backlog, request in requests:
            others -= 1
            if request.status is RequestStatus.RUNNING:  # else it was preempted for one before it
                self._extend(step, request, backlog, others)

    def _extend(self, step: StepBuilder, request: Request, backlog: int, others: int) -> None:
        """Give a running request its rows and blocks. `others`: running requests that have yet to get a token."""
        chunk = step.budget.take(min(backlog, self._max_chunk))
        if chunk == 0:
            step.skip(request, None)
            return
        drafts = 0
        if request.draft_token_ids and chunk == backlog:
            drafts = self._take_drafts(step, request, chunk, others)
        while not self._blocks.append(request, request.num_computed_tokens + chunk + drafts):
            if drafts:  # a guess is never worth a preemption
                step.budget.give_back(drafts)
                request.draft_token_ids, drafts = [], 0
            elif self._preempt_worst(step) is request:
                step.budget.give_back(chunk)
                return
        step.put(Rows(request, chunk, drafts))

    def _take_drafts(self, step: StepBuilder, request: Request, chunk: int, others: int) -> int:
        """Drafts get what the other running requests leave, and none beyond the last token that could be wanted."""
        wanted = min(
            len(request.draft_token_ids),
            self._max_chunk - chunk,
            step.budget.left - others,
            request.max_tokens - len(request.output_token_ids) - 1,
        )
        drafts = step.budget.take(wanted)
        request.draft_token_ids = request.draft_token_ids[:drafts]
        return drafts

    def _preempt_worst(self, step: StepBuilder) -> Request:
        if len(self._running) == 1:
            raise InternalError(f"request {self._running[0].request_id} does not fit an empty KV cache")
        victim = choose_victim(self._running)
        self._running.remove(victim)
        self.events.record(victim.request_id, "preempted", step.now_ns, step.step, victim.num_computed_tokens)
        preempt(victim, self._blocks)
        self._admission.put(victim)
        self._num_preemptions += 1
        step.drop(victim)
        return victim

    def _admit_waiting(self, step: StepBuilder, may_admit: bool) -> None:
        """Admit from the head of the queue. Nobody overtakes, but who waits for sibling or grammar lets others by."""
        if not self._admission.waiting:
            return
        leaders = {_family(request): request for request in reversed(self._running)}
        skipped: list[tuple[Request, WaitReason | None]] = []
        for request in self._admission.waiting.copy():
            reason = self._closed(step, may_admit)
            if reason is None and self._config.batching == "continuous" and step.budget.left == 0:
                skipped.append((request, None))
                break
            reason = reason or self._try_admit(step, request, leaders.get(_family(request)))
            if reason is None:
                leaders.setdefault(_family(request), request)
            else:
                skipped.append((request, reason))
                if reason not in (WaitReason.SIBLING, WaitReason.GRAMMAR):
                    break
        for request, reason in skipped:
            step.skip(request, reason)
        self._admission.explain(skipped)

    def _closed(self, step: StepBuilder, may_admit: bool) -> WaitReason | None:
        """Why nobody at all can be admitted in this step."""
        if not may_admit:
            return WaitReason.BATCH
        if step.preempted:
            return WaitReason.KV
        return WaitReason.CAPACITY if len(self._running) >= self._config.max_running else None

    def _try_admit(self, step: StepBuilder, request: Request, leader: Request | None) -> WaitReason | None:
        """Promise blocks, reuse what is computed, and start; or say why not. `leader`: the first running sibling."""
        if _is_compiling(request):
            return WaitReason.GRAMMAR
        fresh = request.num_preemptions == 0
        if leader is not None and fresh and leader.num_computed_tokens < leader.num_prompt_tokens:
            if self._config.batching == "continuous":
                return WaitReason.SIBLING
            leader = None  # a static batch is admitted once; its children compute the prompt themselves
        if not self._blocks.promise(request):
            return WaitReason.KV
        forkable = leader is not None and fresh and not request.num_unscored_tokens
        forked = leader is not None and forkable and self._blocks.fork(leader, request) > 0
        reused = request.write_start if forked else self._blocks.match_prefix(request)
        self._admission.remove(request)
        insort(self._running, request, key=self._rank)
        request.status, request.wait_reason = RequestStatus.RUNNING, None
        self.events.record(
            request.request_id,
            "admitted",
            step.now_ns,
            step.step,
            self._blocks.num_promised(request),
            f"{'forked' if forked else 'cached'}={reused}",
        )
        self._extend(step, request, _backlog(request), others=0)
        return None

    # --- taking the results -----------------------------------------------------------------------------------------

    def update(self, scheduled: SchedulerOutput, model: ModelOutput) -> list[Update]:
        """Apply the results of the step in flight. Returns an Update for every request that got anything or ended, in
        step order."""
        if self._in_flight is None or not scheduled.step == model.step == self._next_step - 1:
            raise InternalError(
                f"update() of step {scheduled.step} with results of step {model.step}; "
                f"the last step is {self._next_step - 1}"
            )
        in_flight, self._in_flight = self._in_flight, None
        results = {result.request_id: result for result in model.requests}
        now = self._clock.now_ns()
        updates = []
        for item in scheduled.requests:
            request = in_flight[item.request_id]
            if request.status is RequestStatus.RUNNING:  # else it was aborted meanwhile
                update = self._apply(request, item, results.get(item.request_id), now, scheduled.step)
                if update is not None:
                    updates.append(update)
        self._admission.throughput.add(scheduled.num_tokens, now - scheduled.record.start_ns)
        return updates

    def drop_step(self) -> None:
        """Forget the step in flight, which was interrupted and has no results; the next one computes it again."""
        in_flight, self._in_flight = self._in_flight or {}, None
        for request in in_flight.values():
            if request.status is RequestStatus.RUNNING:
                request.draft_token_ids = []
                self._blocks.truncate(request, max(request.num_computed_tokens, request.write_start))

    def _apply(
        self, request: Request, item: ScheduledRequest, result: SampledRequest | None, now: int, step: int
    ) -> Update | None:
        fault = _fault(item, result)
        if result is None or fault is not None:
            code, param = (None, None) if result is None else (result.error_code, result.error_param)
            return self._failed(request, now, step, code or InternalError.code, str(fault), param)
        request.num_scored_tokens += len(result.prompt_logprobs)
        if item.num_sampled == 0:
            self._advance(request, item, item.start + len(item.token_ids))
            scored = result.prompt_logprobs
            return Update(request, [], None, False, scored) if scored else None
        tokens, reason = _until_stop(request, result.token_ids)
        if request.guide is not None and not request.guide.accept(tokens):
            error = request.guide.error or InternalError("a token was sampled that the grammar does not allow")
            return self._failed(request, now, step, error.code, error.message, error.param)
        first = len(request.output_token_ids)
        request.output_token_ids.extend(tokens)
        if request.history is not None:
            request.history.add(tokens)
        request.draft_token_ids = []
        for index in range(first, first + len(tokens)):
            self.events.record(request.request_id, "token", now, step, index)
        kept = max(len(tokens), 1)  # one row is no draft, whether a token came of it or a hidden state
        self._advance(request, item, item.start + len(item.token_ids) - item.num_sampled + kept)
        if reason is not None:
            self._finish(request, reason, now, step)
        logprobs = None if result.logprobs is None else result.logprobs[: len(tokens)]
        return Update(request, tokens, logprobs, reason is not None, result.prompt_logprobs, result.hidden)

    def _failed(self, request: Request, now: int, step: int, code: str, error: str, param: str | None) -> Update:
        self._finish(request, FinishReason.ERROR, now, step)
        return Update(request, [], None, True, error_code=code, error=error, error_param=param)

    def _advance(self, request: Request, item: ScheduledRequest, num_computed: int) -> None:
        if num_computed < item.start + len(item.token_ids):  # rewind rejected drafts
            self._blocks.truncate(request, num_computed)
        request.num_computed_tokens = num_computed
        self._blocks.commit(request, num_computed)

    def _finish(self, request: Request, reason: FinishReason, now: int, step: int) -> None:
        if request.status is RequestStatus.RUNNING:
            self._running.remove(request)
            self._blocks.free(request)
        else:
            self._admission.remove(request)
        del self._requests[request.request_id]
        self._rank.leave(request)
        request.status, request.finish_reason, request.wait_reason = RequestStatus.FINISHED, reason, None
        request.draft_token_ids = []
        self.events.record(request.request_id, "finished", now, step, len(request.output_token_ids), reason.value)


def _backlog(request: Request) -> int:
    """Known tokens whose KV is not written; drafts come on top."""
    return request.num_known_tokens - request.num_computed_tokens


def _is_compiling(request: Request) -> bool:
    return request.guide is not None and not request.guide.ready


def _family(request: Request) -> str:
    """What the children of one AddRequest have in common."""
    return request.parent_id or request.request_id


def _until_stop(request: Request, token_ids: list[int]) -> tuple[list[int], FinishReason | None]:
    """The tokens that count (one that ends the output does), and why the request ends with them."""
    room = request.max_tokens - len(request.output_token_ids)
    for index, token in enumerate(token_ids[:room]):
        if token in request.end_token_ids:
            return token_ids[: index + 1], FinishReason.STOP
    return token_ids[:room], FinishReason.LENGTH if len(token_ids) >= room else None


def _fault(item: ScheduledRequest, result: SampledRequest | None) -> str | None:
    """What is wrong with a result: the model's own error, or one that does not fit what was asked."""
    if result is None:
        return "the model runner returned nothing for this request"
    if result.error is not None:
        return result.error
    if len(result.prompt_logprobs) != len(item.scored_token_ids):
        return f"the model runner scored {len(result.prompt_logprobs)} of {len(item.scored_token_ids)} prompt tokens"
    if item.wants_hidden:
        return "the model runner gave no hidden state" if result.hidden is None or result.token_ids else None
    count = len(result.token_ids)
    if not min(1, item.num_sampled) <= count <= item.num_sampled:
        return f"the model runner sampled {count} tokens for {item.num_sampled} rows"
    if item.draft_token_ids and result.token_ids[:-1] != item.draft_token_ids[: count - 1]:
        return "the model runner accepted drafts that differ from its samples"
    return None
