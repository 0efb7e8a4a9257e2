"""The input of a call that broke off is what Anthropic's own client makes of its pieces."""

from __future__ import annotations

from typing import Any

import pytest
from jiter import from_json

from forebay.server.anthropic.partial_input import tool_input

WHOLE = '{"city":"Ro\\"me, {x}","days": 30, "a":[1,{"b":true,"c":[null,"x"]}], "n":-1.5e3,"u":"\\u00e9","":{}}'


@pytest.mark.parametrize("length", range(1, len(WHOLE) + 1))
def test_every_beginning_of_an_object(length: int) -> None:
    broken: Any = from_json(WHOLE[:length].encode(), partial_mode=True) if _can_end(WHOLE[:length]) else None
    found = tool_input(WHOLE[:length])
    if broken is not None:
        assert found == broken
    assert isinstance(found, dict)


def _can_end(text: str) -> bool:
    """Whether the client can read it: half a number, such as `-` or `1.5e`, it cannot."""
    try:
        from_json(text.encode(), partial_mode=True)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("text", ["", "null", "[1]", "x", '"x"', "}", "{]", '{"a":1}}', '{"a" b', '{"a":x}', "{,}"])
def test_what_is_no_object_is_an_object_all_the_same(text: str) -> None:
    assert isinstance(tool_input(text), dict)


def test_the_whole() -> None:
    assert tool_input(WHOLE)["a"] == [1, {"b": True, "c": [None, "x"]}]
    assert tool_input('{"days": 5') == {"days": 5}
    assert tool_input('{"days": 5, "ci') == {"days": 5}
