"""What the scheduler decides, in steps small enough to count by hand. The model's answers are given."""

from __future__ import annotations

from random import Random

import pytest

from forebay.core.clock import ManualClock
from forebay.core.request import FinishReason, Request, RequestStatus, WaitReason
from forebay.core.step import ModelOutput, SampledRequest, SchedulerOutput, Skipped, TokenLogprobs
from forebay.errors import ContextLengthError, InternalError, InvalidValueError, OverloadedError, ProfileError
from forebay.kvcache import BlockManager
from forebay.scheduler import Scheduler, SchedulerConfig, Update
from tests.kvcache.helpers import EOS, check_balance, kv_spec, request
from tests.scheduler.drive import Drive, Setup


class Engine:
    """Blocks of 4 slots, one full-attention group; every sampled token is 7 unless the test says otherwise."""

    def __init__(
        self,
        num_blocks: int = 64,
        *,
        prefix_cache: bool = True,
        overcommit: float = 1.0,
        token_budget: int = 16,
        chunk_size: int | None = None,
        max_requests: int = 8,
        max_waiting: int = 8,
        batching: str = "continuous",
        full_budget_decodes: int | None = None,
    ) -> None:
        config = SchedulerConfig(
            token_budget, chunk_size, max_requests, max_waiting, batching, full_budget_decodes=full_budget_decodes
        )
        self.clock = ManualClock()
        self.blocks = BlockManager(
            kv_spec(), num_blocks, prefix_cache=prefix_cache, overcommit=overcommit, chunk_size=config.max_chunk
        )
        self.scheduler = Scheduler(config, self.blocks, self.clock, "digest")

    def schedule(self) -> SchedulerOutput:
        scheduled = self.scheduler.schedule()
        assert scheduled is not None
        return scheduled

    def update(self, scheduled: SchedulerOutput, tokens: dict[str, list[int]] | None = None) -> list[Update]:
        answers = {r.request_id: [7] * min(1, r.num_sampled) for r in scheduled.requests} | (tokens or {})
        results = [SampledRequest(request_id=r.request_id, token_ids=answers[r.request_id]) for r in scheduled.requests]
        self.clock.advance(0.01)
        return self.scheduler.update(scheduled, ModelOutput(step=scheduled.step, requests=tuple(results)))

    def step(self, tokens: dict[str, list[int]] | None = None) -> list[Update]:
        return self.update(self.schedule(), tokens)


def shape(scheduled: SchedulerOutput) -> dict[str, tuple[int, int]]:
    """Request id -> (start, rows)."""
    return {r.request_id: (r.start, len(r.token_ids)) for r in scheduled.requests}


def test_nothing_to_do() -> None:
    engine = Engine()
    assert engine.scheduler.schedule() is None
    assert not engine.scheduler.has_work()


def test_a_prompt_goes_in_chunks_and_then_one_token_a_step() -> None:
    engine = Engine(chunk_size=6)
    a = request(prompt=range(1, 15), max_tokens=3)
    engine.scheduler.add([a])
    steps = []
    while engine.scheduler.has_work():
        scheduled = engine.schedule()
        item = scheduled.requests[0]
        steps.append((scheduled.step, item.start, len(item.token_ids), item.num_sampled, item.output_position))
        engine.update(scheduled)
    assert steps == [(0, 0, 6, 0, 0), (1, 6, 6, 0, 0), (2, 12, 2, 1, 0), (3, 14, 1, 1, 1), (4, 15, 1, 1, 2)]
    assert a.output_token_ids == [7, 7, 7]
    assert a.finish_reason is FinishReason.LENGTH
    check_balance(engine.blocks, [])


def test_decodes_go_first_then_running_prompts_then_new_ones() -> None:
    engine = Engine(token_budget=10)
    engine.scheduler.add([request("a", range(1, 5))])
    engine.step()
    engine.scheduler.add([request("b", range(20, 34))])
    engine.scheduler.add([request("c", range(40, 44))])
    scheduled = engine.schedule()
    assert shape(scheduled) == {"a": (4, 1), "b": (0, 9)}
    assert scheduled.record.skipped == (Skipped("c", "budget"),)
    assert (scheduled.record.num_decode_tokens, scheduled.record.num_prefill_tokens) == (1, 9)
    engine.update(scheduled)
    assert shape(engine.schedule()) == {"a": (5, 1), "b": (9, 5), "c": (0, 4)}


def test_priority_then_arrival_decides_who_is_next() -> None:
    engine = Engine(max_requests=1)
    arrivals = [("late", 0, 9), ("urgent", -1, 9), ("early", 0, 1), ("same", 0, 9)]
    for name, priority, arrival in arrivals:
        engine.scheduler.add([request(name, max_tokens=1, priority=priority, arrival_ns=arrival)])
    assert [engine.step()[0].request.request_id for _ in arrivals] == ["urgent", "early", "late", "same"]


def test_waiting_has_a_reason_and_nobody_overtakes() -> None:
    engine = Engine(num_blocks=4, max_requests=2)
    a, b, c = request("a", range(1, 5), 4), request("b", range(1, 9), 8), request("c", [1], 1)
    engine.scheduler.add([a])
    engine.scheduler.add([b])
    engine.scheduler.add([c])  # would fit, but b is before it
    scheduled = engine.schedule()
    assert shape(scheduled) == {"a": (0, 4)}
    assert scheduled.record.skipped == (Skipped("b", "kv"),)
    assert (b.wait_reason, c.wait_reason) == (WaitReason.KV, WaitReason.KV)
    assert (a.status, b.status) == (RequestStatus.RUNNING, RequestStatus.WAITING)
    assert (scheduled.record.blocks_used, scheduled.record.blocks_promised, scheduled.record.num_waiting) == (1, 1, 2)

    busy = Engine(max_requests=1)
    d = request("d")
    busy.scheduler.add([request("a")])
    busy.scheduler.add([d])
    busy.schedule()
    assert d.wait_reason is WaitReason.CAPACITY


def test_children_wait_for_the_prompt_of_their_sibling_and_fork() -> None:
    engine = Engine(prefix_cache=False, chunk_size=6)
    family = [request(f"p{i}", range(1, 11), 4, child_index=i, parent_id="p0" if i else None) for i in range(3)]
    engine.scheduler.add(family)
    engine.scheduler.add([request("other", range(50, 53))])
    first = engine.schedule()
    assert shape(first) == {"p0": (0, 6), "other": (0, 3)}
    assert first.record.skipped == (Skipped("p1", "sibling"), Skipped("p2", "sibling"))
    assert family[1].wait_reason is WaitReason.SIBLING
    engine.update(first)
    engine.step()
    third = engine.schedule()
    assert shape(third) == {"p0": (10, 1), "other": (4, 1), "p1": (8, 2), "p2": (8, 2)}
    tables = [r.block_tables[0] for r in third.requests if r.request_id != "other"]
    assert len({tuple(table[:2]) for table in tables}) == 1
    assert len({table[2] for table in tables}) == 3
    check_balance(engine.blocks, engine.scheduler.running)


@pytest.mark.parametrize("ended", ["waiting", "prompt half done", "finished at its first token"])
def test_children_outlive_their_sibling(ended: str) -> None:
    engine = Engine(prefix_cache=False, chunk_size=6)
    family = [request(f"p{i}", range(1, 11), 2, child_index=i, parent_id="p0" if i else None) for i in range(3)]
    engine.scheduler.add(family)
    if ended == "finished at its first token":
        engine.step()
        assert engine.step({"p0": [EOS]})[0].finished
    else:
        if ended == "prompt half done":
            engine.step()
        engine.scheduler.abort(["p0"])
    scheduled = engine.schedule()
    assert shape(scheduled) == {"p1": (0, 6)}  # the next child leads
    engine.scheduler.abort(["p1"])
    engine.update(scheduled)
    while engine.scheduler.has_work():
        engine.step()
    assert family[2].output_token_ids == [7, 7]
    check_balance(engine.blocks, [])


def test_it_stops_at_eos_unless_told_not_to() -> None:
    engine = Engine()
    stops, goes_on = request("a", max_tokens=3), request("b", max_tokens=3, ignore_eos=True)
    engine.scheduler.add([stops])
    engine.scheduler.add([goes_on])
    updates = engine.step({"a": [EOS], "b": [EOS]})
    assert [(u.new_token_ids, u.finished) for u in updates] == [([EOS], True), ([EOS], False)]
    assert stops.finish_reason is FinishReason.STOP
    assert stops.output_token_ids == [EOS]


def drafting(engine: Engine, drafts: list[int], max_tokens: int = 8) -> Request:
    a = request(prompt=range(1, 6), max_tokens=max_tokens)
    engine.scheduler.add([a])
    engine.step()
    a.draft_token_ids = drafts
    return a


def test_accepted_drafts_stay_and_rejected_ones_are_rewound() -> None:
    engine = Engine()
    a = drafting(engine, [11, 12, 13])
    scheduled = engine.schedule()
    item = scheduled.requests[0]
    assert (item.token_ids, item.start, item.num_sampled, item.output_position) == ([7, 11, 12, 13], 5, 4, 1)
    assert item.draft_token_ids == [11, 12, 13]
    assert scheduled.record.num_decode_tokens == 4
    assert len(engine.blocks.block_tables(a)[0]) == 3
    assert engine.update(scheduled, {"a": [11, 20]})[0].new_token_ids == [11, 20]
    assert a.output_token_ids == [7, 11, 20]
    assert (a.num_tokens, a.num_computed_tokens, a.draft_token_ids) == (8, 7, [])
    assert len(engine.blocks.block_tables(a)[0]) == 2
    assert shape(engine.schedule()) == {"a": (7, 1)}


def test_drafts_stop_at_max_tokens_and_eos() -> None:
    engine = Engine()
    a = drafting(engine, [11, 12, 13, 14], max_tokens=4)
    scheduled = engine.schedule()
    assert scheduled.requests[0].draft_token_ids == [11, 12]  # with the token after them the request is full
    update = engine.update(scheduled, {"a": [11, 12, 13]})[0]
    assert (update.finished, a.finish_reason, a.output_token_ids) == (True, FinishReason.LENGTH, [7, 11, 12, 13])
    engine = Engine()
    a = drafting(engine, [11, EOS, 13])
    update = engine.step({"a": [11, EOS, 13, 14]})[0]
    assert (update.new_token_ids, a.finish_reason) == ([11, EOS], FinishReason.STOP)
    check_balance(engine.blocks, [])


def test_drafts_leave_a_token_for_every_other_running_request() -> None:
    engine = Engine(token_budget=6)
    a = drafting(engine, [], max_tokens=50)
    engine.scheduler.add([request("b", range(30, 50))])
    engine.step()
    a.draft_token_ids = list(range(10, 20))
    assert {r.request_id: len(r.token_ids) for r in engine.schedule().requests} == {"a": 5, "b": 1}


def test_logprobs_are_cut_with_the_tokens() -> None:
    engine = Engine()
    drafting(engine, [11], max_tokens=2)
    scheduled = engine.schedule()
    assert scheduled.requests[0].draft_token_ids == []
    result = SampledRequest(request_id="a", token_ids=[3], logprobs=[TokenLogprobs(-0.5), TokenLogprobs(-1.0)])
    update = engine.scheduler.update(scheduled, ModelOutput(step=scheduled.step, requests=(result,)))[0]
    assert update.logprobs == [TokenLogprobs(-0.5)]


def test_a_hidden_state_ends_its_request_and_its_blocks_stay_in_the_cache() -> None:
    engine = Engine(num_blocks=2, chunk_size=6)
    engine.scheduler.add([request("a", range(1, 9), max_tokens=0, wants_hidden=True)])
    first = engine.schedule()
    assert (first.requests[0].num_sampled, first.requests[0].wants_hidden) == (0, False)
    assert engine.update(first) == []
    last = engine.schedule()
    assert (shape(last), last.requests[0].wants_hidden) == ({"a": (6, 2)}, True)
    result = SampledRequest(request_id="a", token_ids=[], hidden=b"1234")
    (update,) = engine.scheduler.update(last, ModelOutput(step=1, requests=(result,)))
    assert (update.finished, update.new_token_ids, update.hidden) == (True, [], b"1234")
    assert engine.blocks.usage().cached == 2  # the last block too
    check_balance(engine.blocks, [])


def test_a_prompt_without_an_output_may_fill_the_cache() -> None:
    engine = Engine(num_blocks=2)
    with pytest.raises(ContextLengthError, match="at most 8 tokens"):
        engine.scheduler.add([request("a", range(1, 10), max_tokens=0, wants_hidden=True)])
    engine.scheduler.add([request("a", range(1, 9), max_tokens=0, wants_hidden=True)])
    (update,) = engine.step()
    assert update.error == "the model runner gave no hidden state"


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (SampledRequest(request_id="a", token_ids=[], error_code="numerics", error="a NaN"), "a NaN"),
        (SampledRequest(request_id="other", token_ids=[1]), "returned nothing"),
        (SampledRequest(request_id="a", token_ids=[]), "sampled 0 tokens for 1 rows"),
        (SampledRequest(request_id="a", token_ids=[1, 2]), "sampled 2 tokens for 1 rows"),
    ],
)
def test_an_error_ends_its_request_only(result: SampledRequest, message: str) -> None:
    engine = Engine()
    a, b = request("a"), request("b", range(20, 25))
    engine.scheduler.add([a])
    engine.scheduler.add([b])
    scheduled = engine.schedule()
    results = (result, SampledRequest(request_id="b", token_ids=[5]))
    updates = engine.scheduler.update(scheduled, ModelOutput(step=0, requests=results))
    assert message in (updates[0].error or "")
    assert updates[0].error_code == (result.error_code or "internal_error")
    assert (updates[0].finished, a.finish_reason) == (True, FinishReason.ERROR)
    assert (updates[1].new_token_ids, updates[1].error) == ([5], None)
    assert engine.blocks.usage().cached == 0  # what a broken step wrote is not kept
    check_balance(engine.blocks, [b])


def test_drafts_accepted_against_the_samples_are_an_error() -> None:
    engine = Engine()
    drafting(engine, [11, 12])
    assert "differ from its samples" in (engine.step({"a": [11, 13, 14]})[0].error or "")


def test_abort_between_schedule_and_update_drops_the_result() -> None:
    engine = Engine()
    a, b = request("a"), request("b", range(20, 25))
    engine.scheduler.add([a])
    engine.scheduler.add([b])
    scheduled = engine.schedule()
    assert engine.scheduler.abort(["a", "a", "nobody"]) == [a]
    again = request("a", range(20, 25))  # the id is free again, and the old result is not for it
    engine.scheduler.add([again])
    assert [u.request for u in engine.update(scheduled)] == [b]
    assert (a.output_token_ids, again.output_token_ids) == ([], [])
    engine.scheduler.abort(["a", "b"])
    assert not engine.scheduler.has_work()
    check_balance(engine.blocks, [])


def test_overcommit_is_paid_by_the_latest_who_keeps_its_tokens() -> None:
    engine = Engine(num_blocks=4, overcommit=2.0, prefix_cache=False)
    a, b = request("a", range(1, 8), 8), request("b", range(11, 18), 8)
    engine.scheduler.add([a])
    engine.scheduler.add([b])
    engine.step()
    engine.step()
    scheduled = engine.schedule()  # both want a third block
    assert shape(scheduled) == {"a": (8, 1)}
    assert scheduled.record.preempted == ("b",)
    assert scheduled.record.skipped == (Skipped("b", "kv"),)
    assert (b.status, b.wait_reason, b.num_computed_tokens) == (RequestStatus.PREEMPTED, WaitReason.KV, 0)
    assert b.output_token_ids == [7, 7]
    engine.update(scheduled)
    while not a.finish_reason:
        engine.step()
    scheduled = engine.schedule()
    assert shape(scheduled) == {"b": (0, 9)}  # prompt and output, and then on
    engine.update(scheduled)
    while engine.scheduler.has_work():
        engine.step()
    assert b.output_token_ids == [7] * 8
    assert engine.scheduler.counts.preemptions == 1
    kinds = [e.kind for e in engine.scheduler.events.take("b")]
    assert kinds.count("admitted") == 2
    check_balance(engine.blocks, [])


def test_preempted_requests_take_no_place_in_the_queue() -> None:
    engine = Engine(num_blocks=4, overcommit=2.0, prefix_cache=False, max_waiting=2)
    engine.scheduler.add([request("a", range(1, 8), 8), request("b", range(11, 18), 8)])
    for _ in range(3):
        engine.step()
    preempted = engine.scheduler.get("b")
    assert preempted is not None
    assert preempted.status is RequestStatus.PREEMPTED
    engine.scheduler.add([request("c"), request("d")])
    assert engine.scheduler.counts.waiting == 3
    with pytest.raises(OverloadedError, match="max_waiting=2"):
        engine.scheduler.add([request("e")])


def test_a_draft_is_never_worth_a_preemption() -> None:
    engine = Engine(num_blocks=4, overcommit=2.0, prefix_cache=False)
    a, b = request("a", range(1, 7), 10), request("b", range(11, 17), 8)
    engine.scheduler.add([a])
    engine.scheduler.add([b])
    engine.step()
    a.draft_token_ids = [1, 2, 3, 4]
    scheduled = engine.schedule()
    assert shape(scheduled) == {"a": (6, 1), "b": (6, 1)}
    assert scheduled.record.preempted == ()


@pytest.mark.parametrize(
    ("decodes", "prompt_tokens"), [(1, 31), (2, 30), (3, 21), (4, 16), (7, 9), (8, 8), (12, 5), (20, 4)]
)
def test_prompts_shrink_as_more_requests_wait_for_them(decodes: int, prompt_tokens: int) -> None:
    """Budget 32, whole beside 2 decodes: 64 / n beside n, but an eighth of the budget, which is 4, always."""
    engine = Engine(200, token_budget=32, max_requests=32, max_waiting=32, full_budget_decodes=2)
    for i in range(decodes):
        engine.scheduler.add([request(f"d{i}", [i + 1], 9)])
    engine.step()
    engine.scheduler.add([request("running", range(1, 60), 1)])
    assert shape(engine.schedule())["running"] == (0, prompt_tokens)


def test_static_batching_runs_a_batch_to_its_end() -> None:
    engine = Engine(batching="static", token_budget=4, max_requests=2)
    a, b, c = request("a", range(1, 7), 1), request("b", range(11, 14), 3), request("c", [1], 1)
    for r in (a, b, c):
        engine.scheduler.add([r])
    first = engine.schedule()
    assert shape(first) == {"a": (0, 4)}
    assert first.record.skipped == (Skipped("b", "budget"), Skipped("c", "capacity"))  # b is in the batch, c is not
    engine.update(first)
    while not b.finish_reason:
        scheduled = engine.schedule()
        assert "c" not in shape(scheduled)
        assert c.wait_reason is WaitReason.BATCH
        engine.update(scheduled)
    assert shape(engine.schedule()) == {"c": (0, 1)}


def test_a_full_queue_says_when_to_come_back() -> None:
    engine = Engine(max_requests=1, max_waiting=1)
    engine.scheduler.add([request("a", range(1, 11), 10)])
    with pytest.raises(OverloadedError, match="max_waiting=1 requests are waiting") as unmeasured:
        engine.scheduler.add([request("b")])
    assert unmeasured.value.retry_after == 1.0
    scheduled = engine.schedule()
    engine.clock.advance(0.09)
    engine.update(scheduled)  # 10 tokens in 100 ms, and 30 tokens per request:
    engine.scheduler.add([request("b", range(1, 11), 10)])
    with pytest.raises(OverloadedError) as measured:
        engine.scheduler.add([request("c", range(1, 31), 20)])
    assert measured.value.retry_after == pytest.approx(0.3)
    assert engine.scheduler.get("c") is None


def test_what_can_never_fit_is_refused_with_what_would() -> None:
    engine = Engine(num_blocks=8)
    with pytest.raises(ContextLengthError, match=r"max_tokens=30 after .* 5 tokens .* that fits is 27") as error:
        engine.scheduler.add([request(max_tokens=30)])
    assert error.value.param == "max_tokens"
    with pytest.raises(ContextLengthError, match=r"prompt has 32 tokens .* at most 31"):
        engine.scheduler.add([request(prompt=range(32), max_tokens=1)])
    engine.scheduler.add([request(max_tokens=27)])


def test_add_takes_all_children_or_none() -> None:
    engine = Engine(max_waiting=2)
    engine.scheduler.add([request("a")])
    for bad in ([request("a")], [request("b", [])], [request("b", max_tokens=0)], [request(f"n{i}") for i in range(3)]):
        with pytest.raises(InvalidValueError):
            engine.scheduler.add(bad)
    with pytest.raises(OverloadedError):
        engine.scheduler.add([request("b"), request("c")])
    assert (engine.scheduler.counts.waiting, engine.scheduler.get("b")) == (1, None)


def test_an_interrupted_step_is_computed_again() -> None:
    engine = Engine(chunk_size=8)
    a = request(prompt=range(1, 11))
    engine.scheduler.add([a])
    engine.step()
    first = engine.schedule()
    engine.scheduler.drop_step()
    again = engine.schedule()
    assert again.step == first.step + 1
    assert again.requests == first.requests
    engine.update(again)
    assert a.output_token_ids == [7]


def test_calls_out_of_turn_are_errors() -> None:
    engine = Engine()
    engine.scheduler.add([request()])
    scheduled = engine.schedule()
    with pytest.raises(InternalError, match="before update"):
        engine.scheduler.schedule()
    with pytest.raises(InternalError, match="results of step 5"):
        engine.scheduler.update(scheduled, ModelOutput(step=5, requests=()))
    engine.update(scheduled)
    with pytest.raises(InternalError, match="the last step is 0"):
        engine.update(scheduled)
    with pytest.raises(ProfileError, match="token_budget must be at least 1"):
        SchedulerConfig(token_budget=0)
    with pytest.raises(ProfileError, match="continuous"):
        SchedulerConfig(batching="other")
    with pytest.raises(InternalError, match="chunk_size=512"):
        Scheduler(SchedulerConfig(), BlockManager(kv_spec(), 4, prefix_cache=True, chunk_size=8), engine.clock, "")


def test_events_tell_the_life_of_a_request() -> None:
    engine = Engine(chunk_size=4)
    engine.scheduler.add([request(max_tokens=2)])
    while engine.scheduler.has_work():
        engine.step()
    events = [(e.kind, e.t_ns // 10**6, e.step, e.value, e.detail) for e in engine.scheduler.events.take("a")]
    assert events == [
        ("queued", 0, 0, 0, ""),
        ("admitted", 0, 0, 2, "cached=0"),
        ("chunk", 0, 0, 4, ""),
        ("chunk", 10, 1, 1, ""),
        ("token", 20, 1, 0, ""),
        ("token", 30, 2, 1, ""),
        ("finished", 30, 2, 2, "length"),
    ]


def test_the_same_calls_give_the_same_steps() -> None:
    def outputs() -> list[SchedulerOutput]:
        drive, seen = Drive(Setup(overcommit=1.5, windows=(None, 5)), Random(3)), []
        for i in range(30):
            drive.add(list(range(1, 2 + i % 9)), 1 + i % 3, 9, i % 2, "")
            drive.draft()
            scheduled = drive.scheduler.schedule()
            assert scheduled is not None
            seen.append(scheduled)
            drive.scheduler.update(scheduled, drive.model.execute(scheduled))
        return seen

    assert outputs() == outputs()
