"""However a text is cut, the same deltas come of it; and no marker is ever content."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.structured.reasoning import ReasoningFormat, ReasoningSplitter
from forebay.structured.tools.deltas import ArgumentsDelta, CallEnded, CallStarted, ContentDelta, Delta, collect, merged
from forebay.structured.tools.message import MessageParser
from forebay.structured.tools.registry import FORMATS
from forebay.structured.tools.request import Tool
from tests.structured.tools.calls import RENDERERS, cut, deltas_of, new_parser

TOOLS = (Tool("f", parameters={"type": "object", "properties": {"a": {}, "b": {}}}), Tool("get_time"))
NAMES = list(FORMATS)
SIZES = st.lists(st.integers(0, 9), max_size=60)
ARGUMENTS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    ),
)
CALLS = st.lists(st.tuples(st.sampled_from(["f", "get_time"]), ARGUMENTS), min_size=1, max_size=3)
CHANNELS = ("assistant", "analysis", "commentary", "final", " to=functions.f", "json", "Hello")


def fragments(name: str) -> st.SearchStrategy[str]:
    """Texts of the format's markers, pieces of calls and anything else, in any order."""
    whole = RENDERERS[name]([("f", {"a": "x"})])
    parts = [
        *FORMATS[name].markers,
        whole,
        whole[:-3],
        whole[3:],
        '{"name": "f", ',
        '"arguments": {',
        '"parameters": {',
        "}",
    ]
    parts += [
        "[",
        "]",
        "f(",
        "a=",
        "'x'",
        ")",
        ",",
        '"',
        "\\",
        "\n",
        " ",
        "words ",
        "function",
        "```json\n",
        "{",
        "1",
        "é",
    ]
    parts += CHANNELS if name == "harmony" else ()
    return st.lists(st.sampled_from(parts) | st.text(max_size=3), max_size=14).map("".join)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_any_text_gives_the_same_deltas_however_it_is_cut(name: str, data: st.DataObject) -> None:
    text = data.draw(fragments(name))
    whole = deltas_of(new_parser(name, TOOLS), [text])
    assert deltas_of(new_parser(name, TOOLS), list(text)) == whole
    assert deltas_of(new_parser(name, TOOLS), cut(text, data.draw(SIZES))) == whole
    check_order(whole)


@pytest.mark.parametrize("name", NAMES)
@given(calls=CALLS, sizes=SIZES)
def test_calls_are_found_however_they_are_cut(
    name: str, calls: list[tuple[str, dict[str, object]]], sizes: list[int]
) -> None:
    message = collect(deltas_of(new_parser(name, TOOLS), cut(RENDERERS[name](calls), sizes)))
    assert [(call.name, json.loads(call.arguments)) for call in message.calls] == calls
    assert (message.content, message.malformed) == ("", ())
    assert all(call.complete for call in message.calls)


def check_order(deltas: list[Delta]) -> None:
    """A call's deltas come in order, one call after another; complete calls hold one JSON object."""
    open_call: int | None = None
    num_calls = 0
    for delta in deltas:
        match delta:
            case CallStarted(index=index):
                assert open_call is None
                assert index == num_calls
                open_call, num_calls = index, num_calls + 1
            case ArgumentsDelta(index=index, text=text):
                assert text
                assert index == open_call
            case CallEnded(index=index):
                assert index == open_call
                open_call = None
            case _:
                assert open_call is None
    assert open_call is None
    for call in collect(deltas).calls:
        if call.complete:
            assert isinstance(json.loads(call.arguments), dict)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_content_never_holds_a_marker(name: str, data: st.DataObject) -> None:
    markers = FORMATS[name].markers
    whole = RENDERERS[name]([("f", {"a": "x"})])
    parts = data.draw(st.lists(st.sampled_from([*markers, whole, "words ", "{", "}", "\n", "a < b"]), max_size=10))
    message = collect(deltas_of(new_parser(name, TOOLS), ["".join(parts)]))
    assert [marker for marker in markers if marker in message.content] == []
    assert [marker for found in message.malformed for marker in markers if marker in found.text] == []


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_little_is_held_back_outside_calls(name: str, data: st.DataObject) -> None:
    """Plain words come out at once, but for white space and what may become a marker."""
    text = data.draw(st.text("abc \n", min_size=1, max_size=30))
    parser = new_parser(name, TOOLS)
    if name == "harmony":
        parser.push("<|channel|>final<|message|>")
    shown = "".join(delta.text for delta in parser.push(text) if isinstance(delta, ContentDelta))
    assert shown == text.rstrip()


@given(
    parts=st.lists(
        st.sampled_from(["<think>", "</think>", "<thi", "nk>", "</", "\n", " ", "words", "<tool_call>", "é"]),
        max_size=10,
    ),
    sizes=SIZES,
    inside=st.booleans(),
)
def test_reasoning_and_calls_together(parts: list[str], sizes: list[int], inside: bool) -> None:
    text = "".join(parts) + RENDERERS["hermes"]([("f", {"a": 1})])

    def read(pieces: list[str]) -> list[Delta]:
        splitter = ReasoningSplitter(ReasoningFormat("<think>", "</think>"), inside=inside)
        parser = MessageParser(splitter, new_parser("hermes", TOOLS))
        found = [delta for piece in pieces for delta in parser.push(piece)]
        return merged([*found, *parser.finish()])

    whole = read([text])
    assert read(cut(text, sizes)) == whole
    assert read(list(text)) == whole
