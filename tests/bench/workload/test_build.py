"""Whole workloads: the same specification is the same load, and what came of it is said."""

from __future__ import annotations

import json
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forebay.bench.plan import Workload
from forebay.bench.workload.build import WorkloadSpec, build_workload
from forebay.errors import BenchError
from forebay.tokenizer import Tokenizer
from tests.bench.workload.test_text import as_ids
from tests.support.shared import shared_path
from tests.tokenizer.vocabularies import gguf_tokenizer


def spec(**changed: Any) -> WorkloadSpec:
    """Of a small closed loop unless something else says when."""
    given: dict[str, Any] = {"requests": 20, "input": "40", "output": "8"}
    when: dict[str, Any] = {} if {"arrivals", "trace"} & changed.keys() else {"concurrency": 2}
    return WorkloadSpec(**(given | when | changed))


def trace_spec(name: str, **changed: Any) -> WorkloadSpec:
    return WorkloadSpec(trace=shared_path(f"traces/{name}"), **changed)


def prompt_counts(tokenizer: Tokenizer, workload: Workload) -> list[tuple[int | None, int]]:
    return [(turn.prompt_tokens, len(as_ids(tokenizer, turn.prompt))) for turn in workload.turns()]


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"token_ids": False},
        {"endpoint": "chat"},
        {"arrivals": "poisson:4"},
        {"input": "lognormal:60,0.5", "output": "1..30"},
        {"endpoint": "chat", "turns": "1..4", "think_s": 2, "input": "5..30"},
        {"cancel_share": 0.5, "slow_share": 0.5},
        {"shared_prefix": 20},
    ],
)
def test_equal_specifications_are_equal_loads_and_others_are_not(smollm2: Tokenizer, changed: dict[str, Any]) -> None:
    first, again = (build_workload(spec(**changed), smollm2) for _ in range(2))
    assert first == again
    assert first.digest == again.digest
    others = [
        build_workload(spec(**changed | {"seed": 1}), smollm2),
        build_workload(spec(**changed | {"requests": 21}), smollm2),
        build_workload(spec(**changed | {"output": "9"}), smollm2),
        build_workload(spec(**changed | {"fixed_output": False}), smollm2),
        build_workload(spec(**changed | {"text": shared_path("prompts/ulysses.md.gz")}), smollm2),
        build_workload(spec(**changed, **{} if "arrivals" in changed else {"concurrency": 3}), smollm2)
        if "arrivals" not in changed
        else build_workload(spec(**changed | {"arrivals": "poisson:5"}), smollm2),
    ]
    assert len({workload.digest for workload in (first, *others)}) == 1 + len(others)


def test_another_tokenizer_is_another_load(smollm2: Tokenizer) -> None:
    assert build_workload(spec(), smollm2).digest != build_workload(spec(), gguf_tokenizer("gpt-2")).digest


@pytest.mark.parametrize("changed", [{}, {"token_ids": False}, {"endpoint": "chat"}, {"input": "31..80"}])
def test_every_prompt_is_as_long_as_it_says_and_begins_like_no_other(
    smollm2: Tokenizer, changed: dict[str, Any]
) -> None:
    workload = build_workload(spec(requests=150, **changed), smollm2)
    counts = prompt_counts(smollm2, workload)
    assert all(said == counted for said, counted in counts)
    own = [as_ids(smollm2, p[0]["content"] if isinstance(p[0], dict) else p) for p in prompts(workload)]
    assert len({tuple(ids[:16]) for ids in own}) == 150


def prompts(workload: Workload) -> list[Any]:
    return [turn.prompt for turn in workload.turns()]


def test_a_closed_loop_has_no_times_and_an_open_one_has_rising_ones(smollm2: Tokenizer) -> None:
    closed = build_workload(spec(), smollm2)
    assert closed.concurrency == 2
    assert {session.at_s for session in closed.sessions} == {None}
    opened = build_workload(spec(arrivals="poisson:10", requests=50), smollm2)
    times = [session.at_s or 0.0 for session in opened.sessions]
    assert opened.concurrency is None
    assert times == sorted(times)
    assert 3 < times[-1] < 8


def test_how_many_requests_there_are(smollm2: Tokenizer) -> None:
    def number(**changed: Any) -> int:
        return build_workload(WorkloadSpec(input="8", output="1", **changed), smollm2).num_requests

    assert number(concurrency=1) == 100
    assert number(arrivals="poisson:5") == 100
    assert number(arrivals="at-once") == 100
    assert number(arrivals="constant:5", duration_s=4) == 20
    assert number(arrivals="constant:5", duration_s=4, requests=7) == 7
    assert 50 < number(arrivals="steps:5,10@5") < 100
    assert number(arrivals="steps:5,10@5", requests=12) == 12


def test_bodies_and_outputs(smollm2: Tokenizer) -> None:
    (turn,) = build_workload(spec(requests=1), smollm2).turns()
    assert turn.body == {"temperature": 0, "ignore_eos": True}
    assert turn.max_tokens == 8
    (turn,) = build_workload(spec(requests=1, fixed_output=False), smollm2).turns()
    assert turn.body == {"temperature": 0}


def test_some_clients_hang_up_and_some_read_slowly(smollm2: Tokenizer) -> None:
    workload = build_workload(
        spec(requests=40, cancel_share=0.25, slow_share=0.1, slow_bytes_per_s=64, output="5..9"), smollm2
    )
    cancelled = [turn for turn in workload.turns() if turn.cancel_after_tokens is not None]
    assert len(cancelled) == workload.spec["made"]["cancelled"] == 10
    assert all(1 <= (turn.cancel_after_tokens or 0) < turn.max_tokens for turn in cancelled)
    slow = [turn.read_bytes_per_s for turn in workload.turns() if turn.read_bytes_per_s is not None]
    assert slow == [64] * 4
    without = build_workload(spec(requests=40, output="5..9"), smollm2)
    assert prompts(workload) == prompts(without)  # only that is changed


def test_sessions_fit_the_context_and_say_what_was_left_out(smollm2: Tokenizer) -> None:
    chosen = spec(endpoint="chat", turns="1..6", input="10..40", output="20", think_s=3, max_model_len=220, requests=40)
    workload = build_workload(chosen, smollm2)
    made = workload.spec["made"]
    numbers = [len(session.turns) for session in workload.sessions]
    assert made["sessions"] == 40
    assert made["requests"] == sum(numbers) == workload.num_requests
    assert made["dropped_turns"] > 0
    assert max(numbers) > 2
    unlimited = build_workload(replace(chosen, max_model_len=None), smollm2)
    assert unlimited.num_requests == sum(numbers) + made["dropped_turns"]
    pauses = [turn.think_s for session in unlimited.sessions for turn in session.turns[1:]]
    assert 2 < sum(pauses) / len(pauses) < 4.5


def test_lengths_that_do_not_fit_are_cut_and_counted_or_refused(smollm2: Tokenizer) -> None:
    workload = build_workload(
        spec(requests=200, input="lognormal:60,1", output="lognormal:60,1", max_model_len=150), smollm2
    )
    assert workload.spec["made"]["clipped"] > 20
    assert all((turn.prompt_tokens or 0) + turn.max_tokens <= 150 for turn in workload.turns())
    with pytest.raises(BenchError, match="do not fit"):
        build_workload(spec(input="100..200", max_model_len=150), smollm2)


def test_azure_lengths_and_times_are_those_of_the_trace(smollm2: Tokenizer) -> None:
    workload = build_workload(trace_spec("azure2023/conv.csv", requests=4, scale_rate=2, endpoint="chat"), smollm2)
    turns = list(workload.turns())
    assert [(turn.prompt_tokens, turn.max_tokens) for turn in turns] == [(374, 44), (396, 109), (879, 55), (91, 16)]
    assert all(said == counted for said, counted in prompt_counts(smollm2, workload))
    times = [session.at_s for session in workload.sessions]
    assert times == pytest.approx([0, 2.15729, 2.270944, 2.355211], abs=1e-5)
    assert workload.spec["made"]["trace_kind"] == "azure"
    closed = build_workload(trace_spec("azure2023/conv.csv", requests=4, concurrency=2, endpoint="chat"), smollm2)
    assert prompts(closed) == prompts(workload)
    assert {session.at_s for session in closed.sessions} == {None}


def test_what_a_trace_loses_is_counted(smollm2: Tokenizer) -> None:
    chosen = trace_spec(
        "servegen/deepseek_r1_20min_2rps.jsonl.gz", window="60:120", endpoint="chat", max_output=500, max_model_len=1024
    )
    counts = build_workload(chosen, smollm2).spec["made"]["trace_rows"]
    assert counts["read"] == 2982
    assert counts["in_window"] == counts["kept"] + counts["dropped"]
    assert min(counts["kept"], counts["dropped"], counts["clipped"], counts["raised"]) > 0
    raised = build_workload(replace(chosen, endpoint="completions"), smollm2).spec["made"]["trace_rows"]["raised"]
    assert raised == 0  # a prompt of ids can be as short as the trace says


def test_a_mooncake_trace_shares_prefixes(smollm2: Tokenizer) -> None:
    chosen = trace_spec("mooncake/conversation_trace.jsonl.gz", requests=60, scale_length=1 / 32, max_model_len=1024)
    workload = build_workload(chosen, smollm2)
    made = workload.spec["made"]
    assert all(said == counted for said, counted in prompt_counts(smollm2, workload))
    seen: set[tuple[int, ...]] = set()
    shared = 0
    for prompt in prompts(workload):  # by the tokens themselves, a block of 16 at a time
        chains = [tuple(prompt[: end + 16]) for end in range(0, len(prompt) - 15, 16)]
        shared += 16 * sum(chain in seen for chain in chains)
        seen.update(chains)
    total = made["input_tokens"]["sum"]
    assert 0.03 < made["prefix_sharing"] < 0.6
    assert abs(made["prefix_sharing"] - shared / total) < 0.02  # the last, partial block is not in `chains`
    for changed in ({"endpoint": "chat"}, {"token_ids": False}, {"shared_prefix": 5}):
        (name,) = changed
        with pytest.raises(BenchError, match=f"trace and {name}: a mooncake trace"):
            build_workload(replace(chosen, **changed), smollm2)


def test_the_specification_and_what_came_of_it_stand_in_the_workload(smollm2: Tokenizer) -> None:
    text = shared_path("prompts/ulysses.md.gz")
    workload = build_workload(spec(input="10..90", output="3", text=text, shared_prefix=4), smollm2)
    said = json.loads(msgspec.json.encode(workload.spec))
    assert said == workload.spec
    assert said["text"] == str(text)
    assert said.keys() == {field.name for field in fields(WorkloadSpec)} | {"made"}
    lengths = sorted(turn.prompt_tokens or 0 for turn in workload.turns())
    made = said["made"]
    assert made["input_tokens"]["sum"] == sum(lengths)
    assert made["input_tokens"]["mean"] == sum(lengths) / 20
    assert lengths[9] <= made["input_tokens"]["p50"] <= lengths[10]
    assert lengths[17] <= made["input_tokens"]["p95"] <= lengths[19]
    assert made["output_tokens"] == {"sum": 60, "mean": 3, "p50": 3, "p95": 3}
    assert made["prefix_sharing"] == 4 * 19 / sum(lengths)
    assert (made["text_passes"], made["repeats"]) == (1, 0)


def test_what_prompts_share_is_said(smollm2: Tokenizer) -> None:
    def sharing(tokenizer: Tokenizer = smollm2, **changed: Any) -> float:
        made: dict[str, float] = build_workload(spec(**changed), tokenizer).spec["made"]
        return made["prefix_sharing"] * 20 * 40 / 19

    assert sharing() == sharing(token_ids=False) == 0
    assert sharing(shared_prefix=10) == pytest.approx(10)
    assert sharing(endpoint="chat") == pytest.approx(24)  # SmolLM2's system message
    assert sharing(gguf_tokenizer("llama-spm"), token_ids=False) == pytest.approx(1)  # BOS


def test_buckets_are_mixed_by_their_shares(smollm2: Tokenizer) -> None:
    chosen = WorkloadSpec(mix="short_chat=0.5,needle=0.25,streaming_heavy=0.25", requests=12, arrivals="constant:3")
    workload = build_workload(chosen, smollm2)
    assert workload.spec["made"]["buckets"] == {"short_chat": 6, "needle": 3, "streaming_heavy": 3}
    assert [session.at_s for session in workload.sessions] == [i / 3 for i in range(12)]
    assert build_workload(chosen, smollm2).digest == workload.digest


CONFLICTS = [
    ({"arrivals": "poisson:1", "concurrency": 2}, "arrivals and concurrency exclude"),
    ({"arrivals": "poisson:1", "trace": Path("t")}, "arrivals and trace exclude"),
    ({}, "nothing says when requests are sent; give arrivals, concurrency or trace"),
    ({"concurrency": 2, "duration_s": 5.0}, "concurrency and duration_s exclude"),
    ({"trace": Path("t"), "duration_s": 5.0}, "trace and duration_s exclude"),
    ({"trace": Path("t"), "concurrency": 2, "scale_rate": 2.0}, "concurrency and scale_rate exclude"),
    ({"trace": Path("t"), "mix": "needle"}, "trace and mix exclude"),
    ({"trace": Path("t"), "input": "5"}, "trace and input exclude"),
    ({"trace": Path("t"), "turns": "2", "endpoint": "chat"}, "trace and turns exclude"),
    ({"concurrency": 2, "mix": "needle", "output": "5"}, "mix and output exclude"),
    ({"concurrency": 2, "mix": "needle", "endpoint": "chat"}, "mix and endpoint exclude"),
    ({"concurrency": 2, "window": "0:5"}, "window says nothing without trace"),
    ({"concurrency": 2, "scale_length": 0.5}, "scale_length says nothing without trace"),
    ({"concurrency": 2, "think_s": 1.0}, "think_s says nothing without turns"),
    ({"concurrency": 2, "turns": "3"}, "turns: sessions of several turns are chats"),
    ({"concurrency": 0}, "concurrency must be from 1 to 65536, got 0"),
    ({"concurrency": 1, "requests": 0}, "requests must be from 1"),
    ({"concurrency": 1, "cancel_share": 1.5}, "cancel_share must be from 0 to 1, got 1.5"),
    ({"concurrency": 1, "slow_share": float("nan")}, "slow_share must be from 0 to 1, got nan"),
    ({"concurrency": 1, "seed": -1}, "seed must be from 0"),
    ({"arrivals": "poisson:1", "duration_s": float("inf")}, "duration_s must be from 0.001"),
    ({"concurrency": 1, "endpoint": "responses"}, "endpoint 'responses' is unknown; there are completions, chat"),
    ({"concurrency": 1, "trace": Path("t"), "trace_kind": "vidur"}, "trace_kind 'vidur' is unknown"),
]


@pytest.mark.parametrize(("changed", "words"), CONFLICTS)
def test_contradictions_name_both_fields(smollm2: Tokenizer, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(BenchError) as caught:
        build_workload(WorkloadSpec(**changed), smollm2)
    assert str(caught.value).startswith(words)


IMPOSSIBLE = [
    ({"endpoint": "chat", "input": "5"}, "input from 5 tokens: the least possible here is 31"),
    ({"shared_prefix": 50, "input": "50"}, "input from 50 tokens: the least possible here is 51"),
    ({"input": "x"}, "input 'x': 'x' is no length"),
    ({"output": "0"}, "output '0'"),
    ({"arrivals": "poisson:x"}, "arrivals 'poisson:x': rate 'x'"),
    ({"arrivals": "poisson:0.001", "duration_s": 0.01}, "arrivals 'poisson:0.001': nothing arrives in that time"),
    ({"text": Path("/nothing")}, "text '/nothing' cannot be read"),
    ({"endpoint": "chat", "turns": "1..20000"}, "turns '1..20000': a session has at most 10000"),
    ({"input": "9000000", "requests": 100}, "the prompts have 900000000 tokens together"),
]


@pytest.mark.parametrize(("changed", "words"), IMPOSSIBLE)
def test_what_cannot_be_made_is_refused_with_the_field(smollm2: Tokenizer, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(BenchError) as caught:
        build_workload(spec(**changed), smollm2)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("requests", "changed"), [(1000, {}), (500, {"token_ids": False}), (500, {"endpoint": "chat"})]
)
def test_building_takes_less_than_three_seconds(smollm2: Tokenizer, requests: int, changed: dict[str, Any]) -> None:
    started = time.process_time()
    workload = build_workload(WorkloadSpec(requests=requests, concurrency=8, **changed), smollm2)
    assert time.process_time() - started < 3
    assert workload.num_requests == requests
