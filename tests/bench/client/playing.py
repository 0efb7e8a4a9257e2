"""Playing turns against a server, and finding their records again."""

from __future__ import annotations

from typing import Any

from forebay.bench.client.load import Endpoint, Observer, run_load
from forebay.bench.plan import Session, Turn, Workload
from forebay.bench.record import RequestRecord
from tests.support.fake_openai import FakeServer


def turn_of(key: str, **fields: Any) -> Turn:
    """A turn that gets the scripts of `key`."""
    chosen = {"prompt": "one two three", "prompt_tokens": 3, "max_tokens": 8, "bucket": key, **fields}
    return Turn(**{**chosen, "body": {"user": key, **chosen.get("body", {})}})


def workload_of(*sessions: Session | Turn, concurrency: int | None = None) -> Workload:
    made = tuple(part if isinstance(part, Session) else Session(turns=(part,)) for part in sessions)
    return Workload(sessions=made, concurrency=concurrency)


def run(
    server: FakeServer, *sessions: Session | Turn, concurrency: int | None = None, observer: Observer | None = None,
    **endpoint: Any,
) -> tuple[RequestRecord, ...]:  # fmt: skip
    chosen = Endpoint(**{"base_url": server.url, "model": "m", "timeout_s": 20.0, **endpoint})
    return run_load(workload_of(*sessions, concurrency=concurrency), chosen, observer)


def ask(server: FakeServer, key: str, **fields: Any) -> RequestRecord:
    (record,) = run(server, turn_of(key, **fields))
    return record
