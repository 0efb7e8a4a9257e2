from __future__ import annotations

from forebay.core.messages import Event
from forebay.observe.events import EventLog


def test_events_come_back_in_order_once() -> None:
    log = EventLog()
    log.record("a", "received", 5)
    log.record("b", "received", 6)
    log.record("a", "token", 7, step=3, value=1, detail="x")
    assert log.take("a") == (
        Event(kind="received", t_ns=5),
        Event(kind="token", t_ns=7, step=3, value=1, detail="x"),
    )
    assert log.take("a") == ()
    assert len(log) == 1
