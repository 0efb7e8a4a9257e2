"""Server-sent events out of bytes that arrive in any pieces.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html, section 9.2.6, without `id` and `retry`.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_EVENT_BYTES = 2**20  # of one line, and of the data of one event
_BOM = b"\xef\xbb\xbf"


class SseError(ValueError):
    """The stream is no stream of events that we are willing to hold in memory."""


class SseEvent(NamedTuple):
    """`name` is b"" where the server gave none. Data lines are joined by line feeds."""

    name: bytes
    data: bytes


class EventSplitter:
    """Owns what of a stream has not become an event yet. An event that the end of the stream leaves open is dropped."""

    def __init__(self) -> None:
        self._line = bytearray()  # the beginning of a line whose end has not come
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._name = b""
        self._after_cr = False  # a LF that comes now belongs to the CR before it
        self._at_start = True

    def feed(self, piece: bytes) -> list[SseEvent]:
        """The events that end in this piece. Raises SseError if a line or an event grows over MAX_EVENT_BYTES."""
        if not piece:
            return []
        if self._after_cr:
            piece = piece.removeprefix(b"\n")
        events: list[SseEvent] = []
        # bytes.splitlines knows LF, CR and CRLF, as the source demands, and looks at each byte once
        for line in piece.splitlines(keepends=True):
            content = line.rstrip(b"\r\n")
            if self._line or len(content) == len(line):
                self._line += content
                if len(content) == len(line):
                    _check(len(self._line))
                    break  # only the last of splitlines has no end
                content = bytes(self._line)
                self._line.clear()
            _check(len(content))
            self._take(content, events)
        self._after_cr = piece.endswith(b"\r")
        return events

    def _take(self, line: bytes, events: list[SseEvent]) -> None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                events.append(SseEvent(self._name, b"\n".join(self._data)))
                self._data = []
                self._data_bytes = 0
            self._name = b""
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._hold(value)
        elif name == b"event":
            self._name = value
        elif name == b"error":  # llama.cpp once sent its errors as a field of this name
            self._name = b"error"
            self._hold(value)

    def _hold(self, value: bytes) -> None:
        self._data.append(value)
        self._data_bytes += len(value) + 1
        _check(self._data_bytes)


def _check(size: int) -> None:
    if size > MAX_EVENT_BYTES:
        raise SseError(f"an event of more than {MAX_EVENT_BYTES >> 20} MiB")
