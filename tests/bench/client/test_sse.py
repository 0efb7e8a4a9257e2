"""Events come out the same however their bytes arrive."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forebay.bench.client.sse import MAX_EVENT_BYTES, EventSplitter, SseError, SseEvent


def split(*pieces: bytes) -> list[SseEvent]:
    splitter = EventSplitter()
    return [event for piece in pieces for event in splitter.feed(piece)]


def reference(stream: bytes) -> list[SseEvent]:
    """The algorithm of the standard, word for word, over the whole stream."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = text.split(b"\n")[:-1]  # what follows the last line end is no line yet
    events, name, data = [], b"", b""
    for line in lines:
        if not line:
            if data:
                events.append(SseEvent(name, data[:-1]))
            name, data = b"", b""
        elif not line.startswith(b":"):
            field, _, value = line.partition(b":")
            value = value[1:] if value.startswith(b" ") else value
            if field == b"data":
                data += value + b"\n"
            elif field == b"event":
                name = value
    return events


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_what_servers_send(end: bytes) -> None:
    lines = [
        b": keep-alive",
        b"",
        b"data: {}",
        b"",
        b"event: error",
        b"data:a",
        b"data",
        b"data:  b",
        b"id: 1",
        b"",
        b"",
    ]
    assert split(end.join(lines)) == [SseEvent(b"", b"{}"), SseEvent(b"error", b"a\n\n b")]


def test_an_error_field_is_an_error_event() -> None:
    assert split(b'error: {"code":500}\n\n') == [SseEvent(b"error", b'{"code":500}')]


def test_an_event_that_never_ends_is_none() -> None:
    assert split(b"data: a\n") == []


LINES = [
    b"",
    b"data: y",
    b"data",
    b"data:",
    b"data:  z",
    b"event: error",
    b": x",
    "data: ä€😀".encode(),
    b"\xef\xbb\xbfdata: b",
    b"id",
]
PARTS = st.lists(st.sampled_from(LINES) | st.sampled_from([b"\n", b"\r", b"\r\n"]), max_size=30)


@given(PARTS, st.lists(st.integers(0, 10**6), max_size=12))
@example([b"data: y", b"\r\n", b"data", b"\r\n", b"\r\n"], [])
def test_any_split_gives_the_same_events(parts: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(parts)
    places = sorted(cut % (len(stream) + 1) for cut in cuts)
    assert split(*(stream[a:b] for a, b in itertools.pairwise([0, *places, len(stream)]))) == reference(stream)
    assert split(*(bytes([byte]) for byte in stream)) == reference(stream)


@pytest.mark.parametrize(
    "pieces",
    [
        [b"data: "] + [b"x" * 4096] * (MAX_EVENT_BYTES // 4096 + 1),
        [b": " + b"x" * MAX_EVENT_BYTES],
        [b"data: " + b"x" * 1000 + b"\n"] * (MAX_EVENT_BYTES // 1000 + 1),
    ],
    ids=["line", "comment", "event"],
)
def test_what_grows_without_end_is_refused(pieces: list[bytes]) -> None:
    with pytest.raises(SseError):
        split(*pieces)


def test_time_is_linear_in_bytes() -> None:
    """A megabyte that comes byte by byte in one line takes about as long as one in many short lines."""

    def took(stream: bytes) -> float:
        splitter = EventSplitter()
        began = time.process_time()
        for byte in range(0, len(stream), 4):
            splitter.feed(stream[byte : byte + 4])
        return time.process_time() - began

    size = MAX_EVENT_BYTES // 2
    short = took(b"data: x\n" * (size // 8))
    assert took(b"data: " + b"x" * size) < 4 * short
