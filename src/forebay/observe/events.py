"""What happened to each request, as plain records. Every reported latency is derived from these."""

from __future__ import annotations

from forebay.core.messages import Event


class EventLog:
    """Events of live requests, in the order they were recorded."""

    def __init__(self) -> None:
        self._events: dict[str, list[Event]] = {}

    def record(self, request_id: str, kind: str, t_ns: int, step: int = -1, value: int = 0, detail: str = "") -> None:
        """Add one event; see core.messages.Event for the kinds and what `value` means."""
        event = Event(kind=kind, t_ns=t_ns, step=step, value=value, detail=detail)
        events = self._events.get(request_id)
        if events is None:
            self._events[request_id] = [event]
        else:
            events.append(event)

    def take(self, request_id: str) -> tuple[Event, ...]:
        """All events of a request that has ended; the log forgets them. Empty if there are none."""
        return tuple(self._events.pop(request_id, ()))

    def __len__(self) -> int:
        """Requests with events that nobody has taken yet."""
        return len(self._events)
