"""EngineCore by itself: messages in, messages out, a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from forebay.core.messages import AddRequest, Control, RequestOutput
from forebay.core.sampling_params import SamplingParams
from forebay.engine.core import EngineCore
from forebay.errors import EngineDeadError
from forebay.executor.faults import Fault

MakeCore = Callable[..., EngineCore]
GREEDY = SamplingParams(temperature=0.0, ignore_eos=True)


def add(request_id: str, prompt: list[int], max_tokens: int = 6, n: int = 1) -> AddRequest:
    sampling = SamplingParams(temperature=0.0, ignore_eos=True, n=n)
    return AddRequest(request_id=request_id, prompt_token_ids=prompt, sampling=sampling, max_tokens=max_tokens, seed=1,
                      namespace="test", received_ns=1, tokenized_ns=1)  # fmt: skip


def run(core: EngineCore) -> list[RequestOutput]:
    """Step until there is nothing to do."""
    outputs: list[RequestOutput] = []
    while (message := core.step()) is not None:
        outputs += message.outputs
    return outputs


def tokens(outputs: Iterable[RequestOutput], request_id: str, child: int = 0) -> list[int]:
    return [t for o in outputs if (o.request_id, o.child_index) == (request_id, child) for t in o.token_ids]


def stats(core: EngineCore) -> dict[str, Any]:
    return core.control(Control(call_id=0, op="stats")).result


def assert_empty(core: EngineCore) -> None:
    """Nothing is left of any request: no blocks, no promises, no events."""
    now = stats(core)
    assert (now["blocks"]["used"], now["blocks"]["promised"], now["blocks"]["slack_slots"]) == (0, 0, 0)
    assert (now["requests"]["running"], now["requests"]["waiting"], now["events"]) == (0, 0, 0)


def test_a_request_from_add_to_finish(make_core: MakeCore) -> None:
    core = make_core(chunk_size=4)
    assert core.add(add("a", [1, 403, 407, 261, 378, 432])) == []
    assert core.has_work()
    outputs = run(core)
    assert len(tokens(outputs, "a")) == 6
    last = outputs[-1]
    assert (last.finish_reason, last.request_id, last.child_index) == ("length", "a", 0)
    assert all(o.events == () and o.finish_reason is None for o in outputs[:-1])
    kinds = [event.kind for event in last.events]
    assert kinds == ["received", "tokenized", "queued", "admitted", "chunk", "chunk", *["token"] * 6, "finished"]
    assert [event.value for event in last.events if event.kind == "chunk"] == [4, 2]
    assert_empty(core)


def test_idle_is_told_once(make_core: MakeCore) -> None:
    core = make_core()
    first = core.step()
    assert first is not None
    assert first.record is not None
    assert (first.outputs, first.record.num_requests, first.record.blocks_free) == ((), 0, 128)
    assert core.step() is None
    core.add(add("a", [1, 403]))
    messages = []
    while (message := core.step()) is not None:
        messages.append(message)
    records = [message.record for message in messages if message.record is not None]
    assert [record.num_requests for record in records] == [1] * 6 + [0]
    assert records[-1].blocks_used == 0


def test_children_share_a_prompt_and_end_apart(make_core: MakeCore) -> None:
    core = make_core()
    core.add(add("a", [1, 403, 407, 261, 378, 432, 383, 286, 261], n=3))
    outputs = run(core)
    assert tokens(outputs, "a", 0) == tokens(outputs, "a", 1) == tokens(outputs, "a", 2)  # greedy
    assert {(o.child_index, o.finish_reason) for o in outputs if o.finish_reason} == {(i, "length") for i in range(3)}
    assert_empty(core)


@pytest.mark.parametrize(
    ("ids", "left"), [(["a"], set()), (["a:1"], {0, 2}), (["a:0", "a:2"], {1}), (["?"], {0, 1, 2})]
)
@pytest.mark.parametrize("steps", [0, 1, 2, 4])
def test_abort_of_a_request_or_a_child_at_any_time(
    make_core: MakeCore, ids: list[str], left: set[int], steps: int
) -> None:
    core = make_core(chunk_size=4)
    core.add(add("a", [1, 403, 407, 261, 378, 432, 383, 286, 261], n=3))
    core.add(add("b", [1, 300, 301]))
    alone = make_core()
    alone.add(add("b", [1, 300, 301]))
    outputs = [output for _ in range(steps) if (message := core.step()) for output in message.outputs]
    aborted = core.abort(ids)
    assert {o.child_index for o in aborted} == {0, 1, 2} - left
    assert all(o.finish_reason == "abort" and o.events[-1].kind == "finished" for o in aborted)
    outputs += run(core)
    assert {o.child_index for o in outputs if o.request_id == "a" and o.finish_reason == "length"} == left
    assert tokens(outputs, "b") == tokens(run(alone), "b")
    assert core.abort(["a", "b"]) == []
    assert_empty(core)


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_an_end_token_ends_unless_it_is_to_be_ignored(make_core: MakeCore, ignore_eos: bool) -> None:
    core = make_core()
    core.add(add("a", [1, 403, 407]))
    wanted = tokens(run(core), "a")
    sampling = SamplingParams(temperature=0.0, ignore_eos=ignore_eos)
    core.add(msgspec.structs.replace(add("b", [1, 403, 407]), sampling=sampling, eos_token_ids=[wanted[2]]))
    outputs = run(core)
    assert tokens(outputs, "b") == (wanted if ignore_eos else wanted[:3])
    assert outputs[-1].finish_reason == ("length" if ignore_eos else "stop")


def test_refusals_are_outputs(make_core: MakeCore) -> None:
    core = make_core(max_waiting=2, num_blocks=4, max_model_len=32)
    assert core.add(add("a", [1, 2, 3], n=2)) == []
    full = core.add(add("b", [1, 2, 3], n=2))
    assert [(o.child_index, o.finish_reason, o.error_code, o.retry_after > 0) for o in full] == [
        (0, "error", "overloaded", True),
        (1, "error", "overloaded", True),
    ]
    assert [event.kind for event in full[0].events] == ["received", "tokenized"]
    (twice,) = core.add(add("a", [1, 2]))
    assert (twice.error_code, twice.events) == ("invalid_value", ())  # and the events of the running one stay its own
    (long,) = core.add(add("c", list(range(1, 30)), max_tokens=20))
    assert (long.error_code, long.error_param) == ("context_length_exceeded", "max_tokens")
    assert {(o.error_code, o.error_param) for o in core.add(add("d", [1, 2], n=3))} == {("invalid_value", "n")}
    assert len(tokens(run(core), "a", 1)) == 6
    assert_empty(core)


def test_a_failed_step_ends_its_requests_and_no_other(make_core: MakeCore) -> None:
    core = make_core(fault=Fault(kind="raise", at=2), max_requests=1)
    core.add(add("a", [1, 403, 407]))
    core.add(add("b", [1, 403, 407]))
    outputs = run(core)
    failed = next(o for o in outputs if o.request_id == "a" and o.finish_reason)
    assert (failed.finish_reason, failed.error_code) == ("error", "internal_error")
    assert failed.error is not None
    assert "step 2 failed: RuntimeError: injected fault" in failed.error
    assert failed.events[-1].kind == "finished"
    healthy = make_core()
    healthy.add(add("b", [1, 403, 407]))
    assert tokens(outputs, "b") == tokens(run(healthy), "b")
    assert_empty(core)


def test_a_lost_executor_ends_the_engine(make_core: MakeCore) -> None:
    core = make_core(fault=Fault(kind="lose", at=0))
    core.add(add("a", [1, 403]))
    with pytest.raises(EngineDeadError, match="step 0 failed"):
        core.step()


def test_an_interrupted_step_is_computed_again(make_core: MakeCore) -> None:
    core, calm = (make_core(fault=fault) for fault in (Fault(kind="interrupt", at=2), None))
    for one in (core, calm):
        one.add(add("a", [1, 403, 407]))
    outputs = [output for _ in range(2) if (message := core.step()) for output in message.outputs]
    with pytest.raises(KeyboardInterrupt):
        core.step()
    assert tokens(outputs + run(core), "a") == tokens(run(calm), "a")
    assert_empty(core)


def test_control(make_core: MakeCore) -> None:
    core = make_core()
    core.add(add("a", [1, 403, 407], n=2))
    core.step()
    dump = core.control(Control(call_id=4, op="dump"))
    assert dump.call_id == 4
    assert [r["request_id"] for r in dump.result["open"]] == ["a:0", "a:1"]
    assert dump.result["open"][0]["status"] == "running"
    unknown = core.control(Control(call_id=5, op="dance"))
    assert unknown.error is not None
    assert "known are ping, stats" in unknown.error
    assert core.control(Control(call_id=6, op="ping")).result == {"now_ns": 1}

    assert core.control(Control(call_id=7, op="drain")).result == {"draining": True, "open": 2}
    (refused,) = core.add(add("b", [1, 2]))
    assert refused.error_code == "unavailable"
    assert len(tokens(run(core), "a", 1)) == 6  # what was there finishes
    core.control(Control(call_id=8, op="drain", args={"on": False}))
    assert core.add(add("b", [1, 2])) == []

    assert not core.stopping
    core.control(Control(call_id=9, op="shutdown"))
    assert core.stopping


@pytest.mark.parametrize("backend", ["reference", "native"])
def test_drafts_of_one_request_fill_a_step(make_core: MakeCore, backend: str) -> None:
    """A request with drafts samples more rows than there are requests."""
    plain, drafting = (make_core(max_requests=1, token_budget=8, **{"backend.name": backend}) for _ in range(2))
    for core in (plain, drafting):
        core.add(add("a", [1, 403, 407], max_tokens=12))
    wanted = tokens(run(plain), "a")
    outputs = [output for _ in range(2) if (message := drafting.step()) for output in message.outputs]
    (running,) = drafting._scheduler.running
    done = len(running.output_token_ids)
    running.draft_token_ids = wanted[done : done + 7]
    message = drafting.step()
    assert message is not None
    assert message.outputs[0].token_ids == wanted[done : done + 8]
    assert tokens([*outputs, *message.outputs, *run(drafting)], "a") == wanted


def test_prefix_cache_reset(make_core: MakeCore) -> None:
    core = make_core()
    prompt = [1, 403, 407, 261, 378, 432, 383, 286, 261, 376]
    cached = []
    for request_id in ("a", "b", "c"):
        if request_id == "c":
            assert core.control(Control(call_id=1, op="reset_prefix_cache")).result == {"done": True}
        core.add(add(request_id, prompt))
        cached.append(run(core)[-1].num_cached_tokens)
    assert cached == [0, 8, 0]
