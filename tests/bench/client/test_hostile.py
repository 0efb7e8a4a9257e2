"""Whatever bytes come, an answer ends as a record that can be written down."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from forebay.bench.client.answer import AnswerReader
from forebay.bench.client.connection import Ended, Ending
from forebay.bench.client.observer import NoObserver
from tests.bench.client.playing import turn_of

ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, 0, -1, 2**60, 2**70, 1.5, True, "", "x", "\ud83d", [], [[]], {}, {"x": 1}, "stop"]
)
NAMES = [
    "id", "object", "choices", "usage", "error", "text", "delta", "finish_reason", "logprobs", "token_ids", "content",
    "reasoning_content", "tool_calls", "function", "name", "arguments", "tokens", "completion_tokens", "prompt_tokens",
    "prompt_tokens_details", "cached_tokens", "message",
]  # fmt: skip
JSON = st.recursive(
    ODD, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
)
CHOICE = st.fixed_dictionaries(
    {}, optional={"text": ODD, "delta": JSON, "finish_reason": ODD, "logprobs": JSON, "token_ids": JSON}
)
CHUNK = st.fixed_dictionaries({}, optional={"choices": st.lists(CHOICE, max_size=2), "usage": JSON, "id": ODD})


def event_of(chunk: Any) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


PIECE = st.one_of(
    CHUNK.map(event_of),
    JSON.map(event_of),
    st.binary(max_size=20),
    st.sampled_from(
        [b"data: [DONE]\n\n", b"event: error\n", b"\n\n", b"data: ", event_of({"choices": [{"text": "a"}]})]
    ),
)


@given(st.lists(PIECE, max_size=8), st.sampled_from([200, 204, 307, 404, 500]), st.booleans(), st.sampled_from(Ending))
def test_no_bytes_break_the_reader(pieces: list[bytes], status: int, streams: bool, how: Ending) -> None:
    reader = AnswerReader(turn_of("any", cancel_after_tokens=3), 0, NoObserver())
    reader.head(status, {"content-type": "text/event-stream" if streams else "text/html"}, 1)
    for now_ns, piece in enumerate(pieces, start=2):
        if reader.body(piece, now_ns) == 0:
            break
    counted = reader.counted()
    failure = reader.failure(Ended(how, 100))
    assert (failure is None) == (reader.finish_ns is not None or reader.cancelled_ns is not None) or failure
    whole = (counted, failure, reader.usage, reader.digest(), reader.said, reader.response_id, reader.finish_reason)
    assert msgspec.json.encode(whole)
    assert all(count > 0 for count in counted.token_counts)
