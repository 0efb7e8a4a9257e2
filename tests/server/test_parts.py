"""A message as blocks or items, from text as models write it, however it is cut."""

from __future__ import annotations

import pytest

from forebay.server.anthropic.conversation import conversation
from forebay.server.anthropic.requests import CountTokensBody
from forebay.server.parts import Part, PartKind, PartRow, parts_of
from forebay.structured.reasoning import REASONING_FORMATS
from forebay.structured.tools.deltas import Delta, collect, merged
from forebay.structured.tools.message import MessageFormat
from forebay.structured.tools.registry import tool_format
from forebay.structured.tools.request import parse_tool_request

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
BROKEN = '<tool_call>\n{"name": "f", "arguments": {"a": '
WANTS = parse_tool_request([{"type": "function", "function": {"name": "f"}}], "auto")
TEXTS = [
    "Just text.\n\nAnd more.",
    f"<think>\nso\n</think>\n\nI look.\n{CALL}\nDone,\nI think.\n{CALL}",
    f"{CALL}\n{CALL}",
    f"I look.\n{BROKEN}",
    "<think>\nnever closed",
    "",
]


def deltas_of(text: str, step: int) -> list[Delta]:
    parser = MessageFormat(tool_format("hermes"), REASONING_FORMATS[0]).parser("", WANTS.choice, "r")
    found: list[Delta] = []
    for at in range(0, len(text), step):
        found += parser.push(text[at : at + step], 1)
    return [*found, *parser.finish()]


def shown(parts: list[Part]) -> list[tuple[PartKind, int, str, str | None, bool]]:
    return [(part.kind, part.index, part.text, part.call and part.call.name, part.complete) for part in parts]


@pytest.mark.parametrize("text", TEXTS)
def test_the_cut_does_not_matter(text: str) -> None:
    whole = parts_of(merged(deltas_of(text, len(text) + 1)))
    for step in (1, 2, 7):
        row = PartRow()
        steps = list(row.read(deltas_of(text, step)))
        steps += row.close()
        assert shown(row.parts) == shown(whole)
        for part in row.parts:
            own = [(kind.value, piece) for kind, other, piece in steps if other is part]
            assert (own[0], own[-1]) == (("begin", ""), ("end", ""))
            assert "".join(piece for _, piece in own) == part.text


def test_kinds_keep_their_order() -> None:
    kinds = [part.kind.value for part in parts_of(deltas_of(TEXTS[1], 3))]
    assert kinds == ["reasoning", "text", "call", "text", "call"]


@pytest.mark.parametrize("text", TEXTS)
def test_texts_joined_by_line_breaks_are_the_content(text: str) -> None:
    """Which is how blocks that are sent back are read."""
    deltas = deltas_of(text, 5)
    texts = [part.text for part in parts_of(deltas) if part.kind is PartKind.TEXT]
    assert "\n".join(texts) == collect(deltas).content
    blocks = [{"type": "text", "text": text} for text in texts]
    body = CountTokensBody(model="m", messages=[{"role": "assistant", "content": blocks}])
    assert conversation(body) == [{"role": "assistant", "content": collect(deltas).content}]
