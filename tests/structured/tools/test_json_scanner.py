from __future__ import annotations

import json
from typing import NoReturn

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forebay.structured.tools.json_scanner import JsonScanner
from tests.structured.tools.calls import cut

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def scan(pieces: list[str]) -> tuple[int, bool, bool]:
    """(characters read, done, broken)"""
    scanner = JsonScanner()
    used = 0
    for piece in pieces:
        used += scanner.feed(piece)
        if scanner.done or scanner.broken:
            break
    return used, scanner.done, scanner.broken


def refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


@given(value=VALUES, indent=st.sampled_from([None, 0, 2]), ascii_only=st.booleans(), after=st.text(max_size=5))
def test_it_ends_where_the_value_ends(value: object, indent: int | None, ascii_only: bool, after: str) -> None:
    text = json.dumps([value], indent=indent, ensure_ascii=ascii_only)
    assert scan([text + after]) == (len(text), True, False)


@given(
    text=st.text('{}[]",: \n\\tu0aA1-.eEtruefalsn\x07é', max_size=12),
    sizes=st.lists(st.integers(0, 3), max_size=8),
)
@example(text='{"a":1,}', sizes=[])
@example(text="[01]", sizes=[])
@example(text='"\\u12g4"', sizes=[])
@example(text='"a\nb"', sizes=[])
def test_it_accepts_what_is_json_and_nothing_else(text: str, sizes: list[int]) -> None:
    """An array around the text, so that its end is not in doubt."""
    wrapped = f"[{text}]"
    used, done, _ = scan([wrapped])
    assert (done and used == len(wrapped)) == is_json(wrapped)
    assert scan(cut(wrapped, sizes))[1:] == scan([wrapped])[1:]


@pytest.mark.parametrize("scalar", ["1", "-0.5e+3", "true", "null"])
def test_a_bare_scalar_ends_with_the_next_character(scalar: str) -> None:
    assert scan([scalar]) == (len(scalar), False, False)
    assert scan([scalar, ","]) == (len(scalar), True, False)


@pytest.mark.parametrize("text", ["}", "[}", '{"a" 1', '{"a":}', "[1 2", "nul,", "+1,", '"\\x', "{1", "[1,]", "é"])
def test_broken_is_told_at_once(text: str) -> None:
    assert scan([text])[2]
