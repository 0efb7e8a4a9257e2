"""Drives scheduler + BlockManager + toy model and checks every promise after every step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

import msgspec

from forebay.core.clock import ManualClock
from forebay.core.messages import Event
from forebay.core.request import FinishReason, Request, RequestStatus
from forebay.core.step import ModelOutput, SampledRequest, SchedulerOutput
from forebay.errors import ContextLengthError, ForebayError, OverloadedError
from forebay.kvcache import BlockManager
from forebay.scheduler import Scheduler, SchedulerConfig, Update
from tests.kvcache.helpers import check_balance, kv_spec, request
from tests.scheduler.toy_model import VOCAB, ToyModel, hidden_of, prefix_hashes, solo


@dataclass(frozen=True)
class Setup:
    windows: tuple[int | None, ...] = (None,)
    block_size: int = 4
    num_blocks: int = 12
    prefix_cache: bool = True
    overcommit: float = 1.0
    token_budget: int = 16
    chunk_size: int | None = None
    max_requests: int = 6
    max_waiting: int = 12
    batching: str = "continuous"
    priorities: bool = True
    full_budget_decodes: int | None = None


class Drive:
    """`rng` decides what the caller leaves open: contents of drafts, victims of aborts."""

    def __init__(self, setup: Setup, rng: Random) -> None:
        self.setup, self.rng = setup, rng
        self.clock = ManualClock()
        config = SchedulerConfig(
            setup.token_budget, setup.chunk_size, setup.max_requests, setup.max_waiting, setup.batching,
            full_budget_decodes=setup.full_budget_decodes,
        )  # fmt: skip
        kv = kv_spec(setup.windows, setup.block_size)
        self.blocks = BlockManager(
            kv,
            setup.num_blocks,
            prefix_cache=setup.prefix_cache,
            overcommit=setup.overcommit,
            chunk_size=config.max_chunk,
        )
        self.scheduler = Scheduler(config, self.blocks, self.clock, "digest")
        self.model = ToyModel(kv, self.blocks, self.scheduler.get)
        self.live: dict[str, Request] = {}
        self.admitted: dict[str, int] = {}  # request id -> steps since its first admission
        self.owed: dict[str, dict[str, Request]] = {}  # request id -> who may go before it, and itself
        self.outputs: dict[str, list[int]] = {}
        self.seen: Counter[str] = Counter()
        self.num_added = self.interrupted = 0

    def add(self, prompt: list[int], n: int, max_tokens: int, priority: int, namespace: str) -> None:
        """max_tokens 0: the hidden state of the prompt is wanted."""
        n = n if max_tokens else 1
        self.clock.advance(0.001)
        self.num_added += 1
        parent = f"r{self.num_added}"
        children = [
            request(
                f"{parent}-{i}",
                prompt,
                max_tokens,
                namespace=namespace,
                child_index=i,
                seed=self.num_added % 5,
                priority=priority if self.setup.priorities else 0,
                arrival_ns=self.clock.now_ns(),
                parent_id=f"{parent}-0" if i else None,
                ignore_eos=self.num_added % 3 == 0,
                wants_hidden=max_tokens == 0,
            )
            for i in range(n)
        ]
        try:
            self.scheduler.add(children)
        except ForebayError as error:
            self._check_refusal(error, n, len(prompt) + max_tokens)
        else:
            self.live.update((child.request_id, child) for child in children)
            self.outputs.update((child.request_id, []) for child in children)
            assert self._num_new() <= self.setup.max_waiting

    def _num_new(self) -> int:
        """Requests that wait and have never run."""
        return sum(r.status is RequestStatus.WAITING for r in self.live.values())

    def _check_refusal(self, error: ForebayError, n: int, total: int) -> None:
        largest = self.blocks.largest_total_tokens()
        if isinstance(error, OverloadedError):
            assert self._num_new() + n > self.setup.max_waiting
            assert error.retry_after > 0
        elif isinstance(error, ContextLengthError):
            assert largest is not None
            assert total > largest
        else:
            assert error.param == "n"
            assert n > self.setup.max_waiting
        self.seen[error.label] += 1

    def draft(self) -> None:
        """Give running requests drafts, some of which are right."""
        for running in self.scheduler.running:
            right = solo(running)[len(running.output_token_ids) :][: self.rng.randrange(5)]
            wrong = [self.rng.randrange(VOCAB) for _ in range(self.rng.randrange(3))]
            running.draft_token_ids = right + wrong

    def abort(self) -> None:
        ids = self.rng.sample(sorted(self.live), min(len(self.live), self.rng.choice([1, 1, 2])))
        aborted = self.scheduler.abort([*ids, "unknown"])
        assert [r.request_id for r in aborted] == ids
        for gone in aborted:
            assert gone.finish_reason is FinishReason.ABORT
            assert self._events(gone)[-1].detail == "abort"
            self.seen[f"abort {'admitted' if gone.request_id in self.admitted else 'waiting'}"] += 1
            self._forget(gone.request_id)
        self.check()

    def reset(self) -> None:
        assert self.blocks.reset_prefix_cache() is self.setup.prefix_cache
        assert self.blocks.usage().cached == 0
        self.check()

    def step(self, *, abort_in_flight: bool = False, fault: bool = False) -> None:
        scheduled = self.scheduler.schedule()
        assert (scheduled is None) == (not self.live)
        if scheduled is None:
            return
        self._check_step(scheduled)
        output = self.model.execute(scheduled)
        self.clock.advance(0.01)
        if abort_in_flight:
            self.abort()
        if fault:
            output = self._with_fault(output)
        drafts = {item.request_id: len(item.draft_token_ids) for item in scheduled.requests}
        for update in self.scheduler.update(scheduled, output):
            self.seen["rewound"] += len(update.new_token_ids) <= drafts[update.request.request_id]
            self._take(update)
        self.check()

    def interrupted_step(self) -> None:
        """The model wrote some KV, but nobody knows the results."""
        scheduled = self.scheduler.schedule()
        if scheduled is not None:
            self._check_step(scheduled)
            self.model.execute(scheduled)
            self.scheduler.drop_step()
            self.interrupted += 1
            self.seen["interrupted"] += 1
            self.check()

    def run_until_idle(self) -> None:
        while self.live:
            self.step()
        assert not self.scheduler.has_work()
        check_balance(self.blocks, [])
        assert len(self.scheduler.events) == 0

    def check(self) -> None:
        running = self.scheduler.running
        check_balance(self.blocks, running)
        assert self.scheduler.counts.running + self.scheduler.counts.waiting == len(self.live)
        assert {r.request_id for r in running} == {i for i, r in self.live.items() if r.status is RequestStatus.RUNNING}
        assert len(running) <= self.setup.max_requests
        for r in running:
            assert r.num_computed_tokens < r.num_tokens

    def _check_step(self, scheduled: SchedulerOutput) -> None:
        record = scheduled.record
        assert scheduled.step == record.step
        assert 0 < scheduled.num_tokens <= self.setup.token_budget
        assert scheduled.num_tokens == record.num_prefill_tokens + record.num_decode_tokens
        assert record.num_requests == len(scheduled.requests)
        assert all(len(item.token_ids) <= (self.setup.chunk_size or 10**9) for item in scheduled.requests)
        assert msgspec.json.decode(msgspec.json.encode(scheduled), type=SchedulerOutput) == scheduled
        assert self.setup.overcommit > 1.0 or not record.preempted
        assert not set(record.preempted) & {item.request_id for item in scheduled.requests}
        self._check_order(scheduled)
        self.seen["steps"] += 1
        self.seen["preempted"] += len(record.preempted)
        self.seen.update(skipped.reason for skipped in record.skipped)
        self.seen["let go"] += any(-1 in table for item in scheduled.requests for table in item.block_tables)
        self.seen["nothing written"] += any(item.write_start > item.start for item in scheduled.requests)
        self._check_progress()

    def _check_order(self, scheduled: SchedulerOutput) -> None:
        """The best ranked moves, nobody one token behind is left out, and only the worst ranked are preempted."""
        moved = {item.request_id for item in scheduled.requests}
        running = self.scheduler.running
        assert running[0].request_id in moved
        behind_by_one = [r for r in running if r.num_tokens - len(r.draft_token_ids) - r.num_computed_tokens == 1]
        assert moved >= {r.request_id for r in behind_by_one if r.output_token_ids}
        for request_id in scheduled.record.preempted:
            assert _rank(self.live[request_id]) > max(map(_rank, running))

    def _check_progress(self) -> None:
        """The best ranked of the admitted requests moves at least one token a step and loses nothing, so a request is
        done at the latest when everyone at its rank or better could have moved through all tokens one by one.
        Priorities let a newcomer in front, which can cost a preempted request its progress once per preemption."""
        for running in self.scheduler.running:
            if running.request_id not in self.admitted:
                self.admitted[running.request_id] = 0
                self.owed[running.request_id] = {}
                self.seen["cached tokens"] += running.num_cached_tokens
        for request_id, steps in self.admitted.items():
            waiting = self.live[request_id]
            before = self.owed[request_id]
            before.update((r.request_id, r) for r in self.live.values() if _rank(r) <= _rank(waiting))
            lives = 1 + (max(r.num_preemptions for r in before.values()) if self.setup.priorities else 0)
            assert steps <= self.interrupted + lives * sum(r.max_total_tokens for r in before.values())
            self.admitted[request_id] = steps + 1

    def _take(self, update: Update) -> None:
        request_id = update.request.request_id
        self.seen["drafts accepted"] += len(update.new_token_ids) > 1
        self.outputs[request_id] += update.new_token_ids
        assert update.request.output_token_ids == self.outputs[request_id]
        expected = solo(update.request)
        if not update.finished:
            assert self.outputs[request_id] == expected[: len(self.outputs[request_id])]
            assert len(self.outputs[request_id]) < len(expected)
            return
        events = self._events(update.request)
        if update.error is not None:
            assert update.request.finish_reason is FinishReason.ERROR
            self.seen["error"] += 1
        else:
            assert self.outputs[request_id] == expected
            assert [e.value for e in events if e.kind == "token"] == list(range(len(expected)))
            if update.request.wants_hidden:
                hashes = prefix_hashes(update.request.namespace, update.request.prompt_token_ids)
                assert update.hidden == hidden_of(hashes)
                self.seen["hidden"] += 1
            self.seen["finished"] += 1
            self.seen["resumed"] += update.request.num_preemptions > 0
            self.seen["forked"] += any(e.detail.startswith("forked=") for e in events)
        self._forget(request_id)

    def _events(self, ended: Request) -> tuple[Event, ...]:
        events = self.scheduler.events.take(ended.request_id)
        kinds = [e.kind for e in events]
        assert kinds[0] == "queued"
        assert kinds[-1] == "finished"
        assert kinds.count("admitted") - kinds.count("preempted") in (0, 1)
        assert kinds.count("preempted") == ended.num_preemptions
        assert [e.t_ns for e in events] == sorted(e.t_ns for e in events)
        assert [e.step for e in events] == sorted(e.step for e in events)
        return events

    def _forget(self, request_id: str) -> None:
        for known in (self.live, self.admitted, self.owed):
            known.pop(request_id, None)

    def _with_fault(self, output: ModelOutput) -> ModelOutput:
        broken = self.rng.randrange(len(output.requests))
        results = list(output.requests)
        results[broken] = SampledRequest(
            request_id=results[broken].request_id, token_ids=[], error_code="numerics", error="a NaN"
        )
        return ModelOutput(step=output.step, requests=tuple(results))


def _rank(r: Request) -> tuple[int, int, int]:
    return (r.priority, r.arrival_ns, r.child_index)
