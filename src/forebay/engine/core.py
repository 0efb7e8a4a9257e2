"""The engine loop's body: one step is five verbs."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from forebay.core.clock import Clock
from forebay.core.messages import AddRequest, Control, ControlReply, EngineInfo, EngineOutputs, RequestOutput
from forebay.core.request import FinishReason, Request
from forebay.core.step import ModelOutput, SampledRequest, SchedulerOutput, StepRecord, TokenLogprobs
from forebay.core.token_history import TokenHistory
from forebay.engine.ids import child_id
from forebay.errors import (
    EngineDeadError,
    ForebayError,
    InternalError,
    InvalidValueError,
    OverloadedError,
    UnavailableError,
)
from forebay.executor.base import Executor
from forebay.kvcache import BlockManager
from forebay.observe.events import EventLog
from forebay.scheduler import Scheduler, Update
from forebay.structured.guide import GuideMaker, MadeGuide

logger = logging.getLogger(__name__)


class EngineCore:
    """Owns scheduler, executor and clock of one model. Runs in one thread; inline in LLM, alone in its process behind
    AsyncEngine. Takes and gives messages only (core/messages.py)."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        blocks: BlockManager,
        executor: Executor,
        clock: Clock,
        events: EventLog,
        info: EngineInfo,
        guides: GuideMaker,
    ) -> None:
        self.info = info
        self._guides = guides
        self._scheduler = scheduler
        self._blocks = blocks
        self._executor = executor
        self._clock = clock
        self._events = events
        self._open: dict[str, tuple[str, int]] = {}  # the scheduler's request id -> (AddRequest's id, child index)
        self._compiling: list[tuple[Request, MadeGuide]] = []  # requests that wait for their grammar
        self._draining = False
        self._at_rest = False  # the record of being idle has been emitted
        self.stopping = False  # set by the "shutdown" control: the loop should end

    def step(self) -> EngineOutputs | None:
        """Schedule, execute (which samples), update, emit. None when there is nothing to do.

        Raises EngineDeadError when a step failed and the executor cannot go on.
        """
        scheduled = self._scheduler.schedule()
        if scheduled is None:
            return self._rest()
        model = self._execute(scheduled)
        updates = self._scheduler.update(scheduled, model)
        return self._emit(scheduled, updates)

    def has_work(self) -> bool:
        return self._scheduler.has_work()

    def add(self, message: AddRequest) -> list[RequestOutput]:
        """Queue the n children of a request. Returns [] or, when it is refused, one error output per child."""
        children = self._children(message)
        try:
            self._check(children)
            for child in children:
                self._events.record(child.request_id, "received", message.received_ns)
                self._events.record(child.request_id, "tokenized", message.tokenized_ns)
            guided = self._guide(children)
            self._scheduler.add(children)
        except ForebayError as error:
            return [self._error_output(message.request_id, child, error) for child in children]
        self._open.update({c.request_id: (message.request_id, c.child_index) for c in children})
        self._compiling += guided
        return []

    @property
    def is_compiling(self) -> bool:
        """A grammar that a request waits for is on its way; nothing announces it."""
        return bool(self._compiling)

    def collect(self) -> list[RequestOutput]:
        """Let the requests go on whose grammar is compiled, and end those whose grammar could not be."""
        waiting = [(request, guide) for request, guide in self._compiling if request.finish_reason is None]
        done = [(request, guide) for request, guide in waiting if guide.collect()]
        self._compiling = [pair for pair in waiting if pair not in done]
        outputs = []
        for request, guide in done:
            error = guide.error
            if error is None and request.sampling.grammar is not None:
                self._events.record(request.request_id, "compiled", self._clock.now_ns())
            if error is not None:
                self._scheduler.fail(request)
                outputs.append(
                    self._last_output(
                        request, [], None, error_code=error.code, error=error.message, error_param=error.param
                    )
                )
        return outputs

    def abort(self, request_ids: Iterable[str], reason: str = "client") -> list[RequestOutput]:
        """End requests in any state and give their blocks back. Ids are AddRequest ids (all children) or child ids;
        ids that are unknown or have just finished are ignored."""
        wanted = set(request_ids)
        ids = [own for own, (parent, _) in self._open.items() if own in wanted or parent in wanted]
        return [
            self._last_output(request, [], None, error_code=None, error=f"aborted ({reason})")
            for request in self._scheduler.abort(ids)
        ]

    def control(self, message: Control) -> ControlReply:
        """Answer one control call; an unknown op or a failing one is an error in the reply, never an exception."""
        ops: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "ping": lambda _: {"now_ns": self._clock.now_ns()},
            "stats": lambda _: self._stats(),
            "drain": self._drain,
            "reset_prefix_cache": lambda _: {"done": self._blocks.reset_prefix_cache()},
            "dump": lambda _: self._dump(),
            "shutdown": lambda _: self._shutdown(),
        }
        op = ops.get(message.op)
        if op is None:
            error = f"unknown control op {message.op!r}; known are {', '.join(ops)}"
            return ControlReply(call_id=message.call_id, error=error)
        try:
            return ControlReply(call_id=message.call_id, result=op(message.args))
        except Exception as error:
            logger.exception("control %s failed", message.op)
            return ControlReply(call_id=message.call_id, error=str(error))

    def close(self) -> None:
        self._executor.close()
        self._guides.close()

    def _children(self, message: AddRequest) -> list[Request]:
        ids = [child_id(message.request_id, index) for index in range(message.sampling.n)]
        sampling = message.sampling
        ends = frozenset(sampling.stop_token_ids) | (set() if sampling.ignore_eos else set(message.eos_token_ids))
        return [
            Request(
                request_id=own,
                prompt_token_ids=message.prompt_token_ids,
                sampling=sampling,
                max_tokens=message.max_tokens,
                seed=message.seed,
                end_token_ids=ends,
                history=TokenHistory(message.prompt_token_ids) if sampling.has_penalties else None,
                namespace=message.namespace,
                tenant=message.tenant,
                adapter=message.adapter,
                priority=message.priority,
                wants_hidden=message.wants_hidden,
                child_index=index,
                parent_id=None if index == 0 else ids[0],
                arrival_ns=message.received_ns,
            )
            for index, own in enumerate(ids)
        ]

    def _check(self, children: list[Request]) -> None:
        if self._draining:
            raise UnavailableError("the engine is draining and takes no new requests; send them to another replica")
        used = next((child.request_id for child in children if child.request_id in self._open), None)
        if used is not None:
            raise InvalidValueError(f"request_id {used!r} is in use; choose another", param="request_id")

    def _guide(self, children: list[Request]) -> list[tuple[Request, MadeGuide]]:
        """Give each child its guide, if anything holds its output."""
        sampling = children[0].sampling
        if sampling.grammar is None and sampling.reasoning is None:
            return []
        guides = self._guides.guides(sampling, children[0].end_token_ids, len(children))
        for child, guide in zip(children, guides, strict=True):
            child.guide = guide
            if sampling.grammar is not None:
                detail = " ".join(msgspec.structs.astuple(self._guides.contract(sampling.grammar)))
                self._events.record(child.request_id, "grammar", self._clock.now_ns(), detail=detail)
        return list(zip(children, guides, strict=True))

    def _execute(self, scheduled: SchedulerOutput) -> ModelOutput:
        """What came of a step. One that failed is an error for each of its requests, if the executor can go on."""
        try:
            return self._executor.execute(scheduled).result()
        except Exception as error:
            reason = f"step {scheduled.step} failed: {type(error).__name__}: {error}"
            logger.error(reason, exc_info=error)
            if not self._executor.usable:
                raise EngineDeadError(f"{reason}; its executor is lost") from error
            failed = [
                SampledRequest(request_id=r.request_id, token_ids=[], error_code=InternalError.code, error=reason)
                for r in scheduled.requests
            ]
            return ModelOutput(step=scheduled.step, requests=tuple(failed))
        except BaseException:  # a Ctrl-C in a script or notebook: the engine stays usable
            self._scheduler.drop_step()
            raise

    def _emit(self, scheduled: SchedulerOutput, updates: list[Update]) -> EngineOutputs:
        self._at_rest = False
        return EngineOutputs(
            outputs=tuple([self._update_output(update) for update in updates]),
            record=msgspec.structs.replace(scheduled.record, end_ns=self._clock.now_ns()),
        )

    def _update_output(self, update: Update) -> RequestOutput:
        request = update.request
        if update.finished:
            return self._last_output(
                request,
                update.new_token_ids,
                update.logprobs,
                prompt_logprobs=tuple(update.prompt_logprobs),
                hidden=update.hidden,
                error_code=update.error_code,
                error=update.error,
                error_param=update.error_param,
            )
        parent, index = self._open[request.request_id]
        return RequestOutput(
            request_id=parent,
            child_index=index,
            token_ids=update.new_token_ids,
            logprobs=update.logprobs,
            prompt_logprobs=tuple(update.prompt_logprobs),
            num_cached_tokens=request.num_cached_tokens,
        )

    def _rest(self) -> EngineOutputs | None:
        """Once after the last step: a record of no requests, so that gauges tell the truth about an idle engine."""
        if self._at_rest:
            return None
        self._at_rest = True
        usage, counts, now_ns = self._blocks.usage(), self._scheduler.counts, self._clock.now_ns()
        record = StepRecord(
            step=counts.steps - 1,
            profile_digest=self.info.profile_digest,
            num_requests=0,
            num_prefill_tokens=0,
            num_decode_tokens=0,
            num_waiting=counts.waiting,
            blocks_used=usage.used,
            blocks_free=usage.free,
            blocks_cached=usage.cached,
            blocks_promised=usage.promised,
            slack_slots=usage.slack_slots,
            start_ns=now_ns,
            end_ns=now_ns,
        )
        return EngineOutputs(outputs=(), record=record)

    def _last_output(
        self,
        request: Request,
        token_ids: list[int],
        logprobs: list[TokenLogprobs] | None,
        *,
        prompt_logprobs: tuple[TokenLogprobs, ...] = (),
        hidden: bytes | None = None,
        error_code: str | None,
        error: str | None,
        error_param: str | None = None,
    ) -> RequestOutput:
        """The last that a request, which has its finish_reason, has to say; it carries its events."""
        assert request.finish_reason is not None
        parent, index = self._open.pop(request.request_id)
        return RequestOutput(
            request_id=parent,
            child_index=index,
            token_ids=token_ids,
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            hidden=hidden,
            finish_reason=request.finish_reason.value,
            num_cached_tokens=request.num_cached_tokens,
            events=self._events.take(request.request_id),
            error_code=error_code,
            error=error,
            error_param=error_param,
        )

    def _error_output(self, request_id: str, child: Request, error: ForebayError) -> RequestOutput:
        """A refusal: the scheduler does not know this request."""
        return RequestOutput(
            request_id=request_id,
            child_index=child.child_index,
            token_ids=[],
            finish_reason=FinishReason.ERROR.value,
            events=() if child.request_id in self._open else self._events.take(child.request_id),
            error_code=error.code,
            error=error.message,
            error_param=error.param,
            retry_after=error.retry_after if isinstance(error, OverloadedError) else 0.0,
        )

    def _drain(self, args: dict[str, Any]) -> dict[str, Any]:
        self._draining = bool(args.get("on", True))
        return {"draining": self._draining, "open": len(self._open)}

    def _shutdown(self) -> dict[str, Any]:
        self.stopping = True
        return {}

    def _stats(self) -> dict[str, Any]:
        """Counts of requests and blocks now."""
        return {
            "requests": dataclasses.asdict(self._scheduler.counts),
            "blocks": dataclasses.asdict(self._blocks.usage()),
            "events": len(self._events),
            "draining": self._draining,
        }

    def _dump(self) -> dict[str, Any]:
        """Every open request as the scheduler sees it."""
        requests = [self._scheduler.get(own) for own in self._open]
        return {"open": [_described(request) for request in requests if request is not None], **self._stats()}


def _described(request: Request) -> dict[str, Any]:
    return {
        "request_id": request.request_id,
        "status": request.status.value,
        "wait_reason": None if request.wait_reason is None else request.wait_reason.value,
        "num_prompt_tokens": request.num_prompt_tokens,
        "num_output_tokens": len(request.output_token_ids),
        "num_computed_tokens": request.num_computed_tokens,
        "num_cached_tokens": request.num_cached_tokens,
        "num_preemptions": request.num_preemptions,
        "max_tokens": request.max_tokens,
        "tenant": request.tenant,
    }
