"""docs/tools.md says of each format what the parsers do."""

from __future__ import annotations

import re

import pytest

from forebay.structured.tools.call_grammar import call_grammar
from forebay.structured.tools.registry import FORMATS
from forebay.structured.tools.request import Tool, parse_tool_choice
from tests.architecture.source import REPOSITORY
from tests.structured.tools.calls import parsed

TEXT = (REPOSITORY / "docs" / "tools.md").read_text("utf-8")
EXAMPLES = dict(re.findall(r"^### `(\w+)`\n.*?^````text\n(.*?)\n````$", TEXT, re.DOTALL | re.MULTILINE))
TOOLS = (Tool("get_weather"), Tool("get_time"))


def test_every_format_has_an_example() -> None:
    assert list(EXAMPLES) == list(FORMATS)


@pytest.mark.parametrize("name", list(FORMATS))
def test_examples_hold_the_call_they_speak_of(name: str) -> None:
    message = parsed(name, EXAMPLES[name], TOOLS)
    first = message.calls[0]
    assert (first.name, first.arguments, first.complete) == ("get_weather", '{"city": "Rome", "days": 3}', True)
    assert message.malformed == ()
    assert message.content in ("", "I look it up.")


def test_the_grammar_shown_is_the_grammar() -> None:
    shown = re.search(r"^```lark\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    assert shown
    source = call_grammar(FORMATS["hermes"].shape, parse_tool_choice("required", TOOLS[:1]))
    assert source is not None
    assert source.split() == shown[1].split()
