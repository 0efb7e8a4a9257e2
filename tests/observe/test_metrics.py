from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from forebay.core.messages import Event, RequestOutput
from forebay.core.step import Skipped, StepRecord
from forebay.observe.metrics import METRICS, Metrics
from forebay.observe.prometheus import render

MS = 1_000_000


def record(**changes: object) -> StepRecord:
    values: dict[str, object] = {
        "step": 7, "profile_digest": "d", "num_requests": 3, "num_prefill_tokens": 100, "num_decode_tokens": 2,
        "num_waiting": 5, "blocks_used": 10, "blocks_free": 20, "blocks_cached": 30, "blocks_promised": 4,
        "slack_slots": 6, "skipped": (Skipped("r:0", "kv"), Skipped("s:0", "kv")), "preempted": ("q:0",),
        "start_ns": 0, "end_ns": 20 * MS,
    }  # fmt: skip
    return StepRecord(**{**values, **changes})  # type: ignore[arg-type]  # the values above have these types


def life(*facts: tuple[str, int]) -> tuple[Event, ...]:
    return tuple(Event(kind=kind, t_ns=ms * MS) for kind, ms in facts)


LIFE = life(("received", 0), ("tokenized", 1), ("queued", 2), ("admitted", 12), ("chunk", 12),
            ("token", 30), ("token", 40), ("token", 60), ("finished", 61))  # fmt: skip


def test_a_step_counts_and_sets_gauges() -> None:
    metrics = Metrics()
    metrics.step(record())
    metrics.step(record(num_requests=0, num_waiting=0, blocks_used=0, skipped=(), start_ns=9, end_ns=9))
    assert metrics.value("forebay_steps") == 1  # the record of an idle engine is no step
    assert metrics.value("forebay_prefill_tokens") == 100
    assert metrics.value("forebay_preemptions") == 1
    assert metrics.value("forebay_skipped", "kv") == 2
    assert metrics.value("forebay_requests_running") == 0
    assert metrics.value("forebay_blocks", "used") == 0
    assert metrics.value("forebay_blocks", "cached") == 30


def test_exposition_holds_every_metric_of_the_table() -> None:
    metrics = Metrics()
    metrics.received()
    metrics.refused("overloaded")
    metrics.output(RequestOutput(request_id="r", child_index=0, token_ids=[1, 2, 3]))
    metrics.finished("stop", 11, 8, LIFE)
    metrics.step(record())
    families = {family.name: family for family in text_string_to_metric_families(render(metrics).decode())}
    assert set(families) == {metric.name for metric in METRICS}
    assert all(families[metric.name].documentation == metric.help for metric in METRICS)
    samples = {(s.name, tuple(s.labels.values())): s.value for family in families.values() for s in family.samples}
    assert samples["forebay_requests_finished_total", ("stop",)] == 1
    assert samples["forebay_generated_tokens_total", ()] == 3
    assert samples["forebay_ttft_seconds_bucket", ("0.05",)] == 1
    assert samples["forebay_ttft_seconds_bucket", ("0.025",)] == 0
    assert samples["forebay_itl_seconds_count", ()] == 2
    assert samples["forebay_e2e_seconds_sum", ()] == 0.061
    assert samples["forebay_blocks", ("cached",)] == 30


def test_two_engines_do_not_share_numbers() -> None:
    one, other = Metrics(), Metrics()
    one.received()
    assert b"forebay_requests_received_total 0.0" in render(other)
