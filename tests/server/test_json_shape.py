"""What a JSON body may be made of: counted as a parser would, in no more time than the bytes deserve."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.errors import RequestError
from forebay.server.json_shape import _PIECE, MAX_CONTAINERS, MAX_NESTING, MAX_STRINGS, MAX_VALUES, check_shape

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def depth_of(value: Any) -> int:
    """Levels of arrays and objects."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max(map(depth_of, inner), default=0) + isinstance(value, dict | list)


def nest(value: Any, wrap: str) -> Any:
    for kind in wrap:
        value = {"a": value, "b[": "]{"} if kind == "{" else [1, value, []]
    return value


def deepest_of(data: bytes) -> int:
    """Levels that a parser meets which stops at the first fault, or later."""
    depth = deepest = 0
    in_string = escaped = False
    for char in data.decode():
        if in_string:
            escaped, in_string = char == "\\" and not escaped, escaped or char != '"'
        elif char == "\\":
            break  # no JSON
        else:
            in_string = char == '"'
            depth += (char in "[{") - (char in "]}")
            deepest = max(deepest, depth)
    return deepest


@settings(max_examples=300, deadline=None)
@given(JSON, st.integers(0, 80).flatmap(lambda n: st.text("[{", min_size=n, max_size=n)), st.booleans())
def test_nesting_is_counted_as_a_parser_would(inner: Any, wrap: str, spaced: bool) -> None:
    value = nest(inner, wrap)
    data = json.dumps(value, indent=1 if spaced else None, ensure_ascii=spaced).encode()
    if depth_of(value) <= MAX_NESTING:
        check_shape(data)
    else:
        with pytest.raises(RequestError, match="nests JSON too deeply"):
            check_shape(data)


@pytest.mark.parametrize(
    "text", ["[" * 99, '"' * 99, "\\" * 99, '\\"[' * 99, "[\\", '"]{"', "\u005b", 'a\\\\"[["', "," * 2 * MAX_VALUES]
)
def test_strings_may_hold_anything(text: str) -> None:
    for ensure_ascii in (False, True):
        check_shape(json.dumps({text: [text, {text: text}]}, ensure_ascii=ensure_ascii).encode())


@settings(max_examples=500, deadline=None)
@given(st.text('[{]}":,\\1', max_size=400))
def test_what_passes_is_no_danger_to_a_parser(text: str) -> None:
    data = b"[" * MAX_NESTING + text.encode()
    try:
        check_shape(data)
    except RequestError:
        return
    assert deepest_of(data) <= MAX_NESTING


@settings(max_examples=300, deadline=None)
@given(st.text('["\\', max_size=40), st.integers(0, 40))
def test_it_does_not_matter_where_a_piece_ends(text: str, before_end: int) -> None:
    tail = text.encode() + b"[" * (MAX_NESTING - 10)
    body = b'"' + b"a" * (_PIECE - 1 - before_end) + tail
    if deepest_of(b'"' + tail) <= MAX_NESTING:
        check_shape(body)
    else:
        with pytest.raises(RequestError, match="nests JSON too deeply"):
            check_shape(body)


def test_escapes_are_limited() -> None:
    check_shape(b'"' + b"\\n" * MAX_VALUES + b'"')
    with pytest.raises(RequestError, match=f"{MAX_VALUES} values or escapes"):
        check_shape(b'"' + b"\\n" * (MAX_VALUES + 1) + b'"')


def listed(item: bytes, count: int) -> bytes:
    return b"[" + b",".join([item] * count) + b"]"


@pytest.mark.parametrize(
    ("item", "limit"), [(b"1", MAX_VALUES + 1), (b"{}", MAX_CONTAINERS - 1), (b'"a"', MAX_STRINGS), (b"[]", 2**15 - 1)]
)
def test_values_are_limited(item: bytes, limit: int) -> None:
    """The array around them is one too, and has a comma less."""
    check_shape(listed(item, limit))
    with pytest.raises(RequestError, match=f"{MAX_CONTAINERS} arrays and objects, {MAX_STRINGS} strings and"):
        check_shape(listed(item, limit + 1))


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 2**22,
        b"[" * 2**21 + b"]" * 2**21,
        b"[]," * 2**20,
        b"]" * 2**22,
        b'\\"' * 2**21,
        b'"' * 2**22,
        b'"ab",' * 2**20,
        b"\\" * 2**22,
        (b"[" * 60 + b"]" * 60) * 2**15,
    ],
    ids=["open", "deep", "flat", "shut", "escaped", "quotes", "words", "backslashes", "towers"],
)
def test_no_body_takes_long_to_check(body: bytes) -> None:
    """Each of 4 MB, the largest by default; the limit is far above what they take, and far below what recursion or
    backtracking would."""
    began = time.process_time()
    with contextlib.suppress(RequestError):
        check_shape(body)
    assert time.process_time() - began < 1
