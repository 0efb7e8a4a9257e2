from __future__ import annotations

import msgspec
import pytest

from forebay.bench.metrics import shifted, times_of
from forebay.bench.reconcile import (
    E2E_STRETCHES,
    EMIT,
    STRETCHES,
    TTFT_STRETCHES,
    matched_lines,
    reconcile,
    step_series,
    stretches_of,
)
from forebay.bench.record import Failure, FailureKind, RequestRecord
from forebay.errors import BenchError
from forebay.observe.recorder import RequestLine
from tests.bench.test_metrics import MS, line, record
from tests.observe.test_metrics import record as step_record

LIFE = (("received", 3), ("tokenized", 7), ("queued", 15), ("admitted", 31), ("token", 63), ("token", 190),
        ("finished", 190))  # fmt: skip
SEEN = record(0, (127, 254), 300, response_id="cmpl-1")  # sent at 1 ms


def seconds(one: RequestRecord, lines: list[RequestLine]) -> dict[str, float]:
    return {name: some.mean for name, some in reconcile([one], lines).stretches.items()}


def test_where_the_time_of_a_request_went() -> None:
    found = reconcile([SEEN], [line(*LIFE)])
    assert (found.matched, found.unmatched) == (1, 0)
    assert list(found.stretches) == list(STRETCHES)
    assert {name: some.mean for name, some in found.stretches.items()} == {
        "intended -> sent (client)": 0.001,
        "sent -> received (network, HTTP, parse)": 0.002,
        "received -> tokenized": 0.004,
        "tokenized -> queued (to the engine)": 0.008,
        "queued -> admitted (waiting)": 0.016,
        "admitted -> first token (prefill)": 0.032,
        "first token -> client saw it (emit, detokenize, network)": 0.064,
        "first token -> last token (decode)": 0.127,
        "last token -> client saw the end": 0.110,
    }


PREEMPTED_LATE = (*LIFE[:5], ("preempted", 64), ("admitted", 150), ("chunk", 150), *LIFE[5:])
PREEMPTED_EARLY = (*LIFE[:3], ("admitted", 16), ("chunk", 16), ("preempted", 20), *LIFE[3:])


@pytest.mark.parametrize("life", [LIFE, PREEMPTED_LATE, PREEMPTED_EARLY], ids=["usual", "late", "early"])
def test_stretches_add_up_to_the_clients_latencies_to_the_nanosecond(life: tuple[tuple[str, int], ...]) -> None:
    odd = msgspec.structs.replace(shifted(SEEN, 1), end_ns=300 * MS + 777, token_ns=(127 * MS + 13, 254 * MS + 1))
    found = stretches_of(odd, [line(*life)])
    assert found is not None
    assert sum(found[name] for name in E2E_STRETCHES) == odd.end_ns - odd.intended_ns
    assert sum(found[name] for name in TTFT_STRETCHES) == odd.token_ns[0] - odd.intended_ns
    assert sum(found[name] for name in E2E_STRETCHES) / 1e9 == times_of(odd).e2e
    assert sum(found[name] for name in TTFT_STRETCHES) / 1e9 == times_of(odd).ttft
    assert min(found.values()) >= 0


def test_a_preemption_lies_where_it_happened() -> None:
    assert seconds(SEEN, [line(*PREEMPTED_LATE)]) == seconds(SEEN, [line(*LIFE)])  # in the decode, which took as long
    early = seconds(SEEN, [line(*PREEMPTED_EARLY)])
    assert early["queued -> admitted (waiting)"] == 0.001
    assert early["admitted -> first token (prefill)"] == 0.047


def test_what_has_no_counterpart_is_counted() -> None:
    other = record(0, (100,), 200, response_id="cmpl-2")
    nameless = record(0, (100,), 200)
    refused = line(("received", 3), ("tokenized", 4), reason="stop", request_id="cmpl-2")
    failed = record(0, (100,), 200, response_id="cmpl-1", failure=Failure(kind=FailureKind.CUT))
    stranger = line(*LIFE, request_id="cmpl-9")
    found = reconcile([SEEN, other, nameless, failed], [line(*LIFE), refused, stranger])
    assert (found.matched, found.unmatched) == (1, 2)
    nothing = reconcile([SEEN], [])
    assert (nothing.matched, nothing.unmatched, nothing.stretches) == (0, 1, {})


def test_all_completions_of_a_response_are_one_request() -> None:
    """The second choice has the first token, the second prompt the last."""
    choice = line(("received", 3), ("tokenized", 7), ("queued", 15), ("admitted", 20), ("token", 40), ("finished", 50),
                  child_index=1)  # fmt: skip
    prompt = line(*LIFE[:5], ("token", 250), request_id="cmpl-1-1")
    lines = matched_lines([SEEN], [line(*LIFE), choice, prompt, line(*LIFE, request_id="cmpl-1-x")])
    assert lines == {"cmpl-1": [line(*LIFE), choice, prompt]}
    found = stretches_of(SEEN, lines["cmpl-1"])
    assert found is not None
    assert found["admitted -> first token (prefill)"] == 20 * MS
    assert found["last token -> client saw the end"] == 50 * MS
    assert sum(found[name] for name in E2E_STRETCHES) == SEEN.end_ns - SEEN.intended_ns


def test_an_answer_without_text_has_no_stretch_to_its_first_token() -> None:
    silent = record(0, (), 300, response_id="cmpl-1")
    found = stretches_of(silent, [line(*LIFE)])
    assert found is not None
    assert EMIT not in found
    assert sum(found.values()) == 300 * MS


def test_tokens_after_the_end_do_not_count() -> None:
    """A stop string ended the answer; the engine went on until it heard of it."""
    early = record(0, (127,), 150, response_id="cmpl-1")
    found = stretches_of(early, [line(*LIFE)])
    assert found is not None
    assert (found["first token -> last token (decode)"], found["last token -> client saw the end"]) == (0, 87 * MS)


@pytest.mark.parametrize("offset_ms", [-3_600_000, -3, 65, 3_600_000])
def test_a_record_of_another_clock_is_refused(offset_ms: int) -> None:
    """Here a request took 2 ms to the server and a token 64 ms back: no more than that can hide."""
    foreign = line(*((kind, ms + offset_ms) for kind, ms in LIFE))
    with pytest.raises(BenchError, match="another machine or clock"):
        reconcile([SEEN], [foreign])
    assert reconcile([SEEN], [line(*((kind, ms - 2) for kind, ms in LIFE))]).matched == 1


def test_one_late_timestamp_is_no_other_clock() -> None:
    late = msgspec.structs.replace(SEEN, sent_ns=4 * MS, response_id="cmpl-2")
    third = msgspec.structs.replace(SEEN, response_id="cmpl-3")
    lines = [line(*LIFE, request_id=f"cmpl-{number}") for number in (1, 2, 3)]
    found = reconcile([SEEN, late, third], lines)
    assert found.stretches["sent -> received (network, HTTP, parse)"].min == -0.001


def test_steps_as_columns_of_the_window() -> None:
    steps = [
        step_record(start_ns=3000 * MS, end_ns=3500 * MS, num_requests=2),
        step_record(start_ns=2000 * MS, end_ns=2250 * MS),
        step_record(start_ns=1999 * MS, end_ns=2000 * MS),
        step_record(start_ns=2500 * MS, end_ns=2500 * MS, num_requests=0),
        step_record(start_ns=4001 * MS, end_ns=4500 * MS),
    ]
    found = step_series(steps, 2000 * MS, 4000 * MS)
    assert (found.start_s, found.duration_s, found.requests) == ([0.0, 1.0], [0.25, 0.5], [3, 2])
    assert (found.prefill_tokens, found.decode_tokens, found.waiting) == ([100, 100], [2, 2], [5, 5])
    assert (found.blocks_used, found.blocks_free, found.blocks_cached) == ([10, 10], [20, 20], [30, 30])
    assert (found.blocks_promised, found.slack_slots) == ([4, 4], [6, 6])
    assert len(step_series(steps, 2000 * MS).start_s) == 3
    assert step_series([], 0).start_s == []
