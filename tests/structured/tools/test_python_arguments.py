from __future__ import annotations

import ast
import io
import json
import tokenize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.structured.tools.python_arguments import PythonArguments
from tests.structured.tools.calls import cut

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.text("abcdefgh_", min_size=1, max_size=6)


def convert(pieces: list[str], positional: tuple[str, ...] = ()) -> tuple[str, bool, bool]:
    """(JSON, done, broken)"""
    arguments = PythonArguments(positional)
    text = ""
    for piece in pieces:
        arguments.feed(piece)
        text += arguments.take()
    return text, arguments.done, arguments.broken


@given(arguments=st.dictionaries(NAMES, VALUES, max_size=4), sizes=st.lists(st.integers(0, 7), max_size=30))
def test_python_spelling_becomes_the_same_json(arguments: dict[str, object], sizes: list[int]) -> None:
    """json.dumps's own text, so streamed and whole arguments look alike; floats stay spelled as they were."""
    text = ", ".join(f"{key}={value!r}" for key, value in arguments.items()) + ")"
    whole = convert([text])
    assert whole == (json.dumps(arguments, ensure_ascii=False), True, False)
    assert convert(cut(text, sizes)) == whole


@given(arguments=st.dictionaries(NAMES, VALUES, max_size=4))
def test_json_spelling_is_read_as_well(arguments: dict[str, object]) -> None:
    text = ", ".join(f"{key}={json.dumps(value)}" for key, value in arguments.items()) + ")"
    result, done, _ = convert([text])
    assert done
    assert json.loads(result) == arguments


@given(literal=st.text("\\'\"nxuU01a7\n{} ", max_size=12), quote=st.sampled_from(["'", '"', "'''", '"""']))
@pytest.mark.filterwarnings("ignore:invalid")  # Python keeps the backslash
def test_strings_mean_what_python_says(literal: str, quote: str) -> None:
    source = f"{quote}{literal}{quote}"
    try:
        tokens = [t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.STRING]
        value = ast.literal_eval(source)
    except (SyntaxError, ValueError, tokenize.TokenError):
        return
    if len(tokens) == 1 and isinstance(value, str):  # two side by side Python would join
        result, done, _ = convert([f"a={source})"])
        assert done
        assert json.loads(result) == {"a": value}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (")", {}),
        (" )", {}),
        ("a=1,)", {"a": 1}),
        ("a = [1, 2,], b={'x': 1,})", {"a": [1, 2], "b": {"x": 1}}),
        ("a=(1, 2), b=(), c=(3), d=((4,), (5)))", {"a": [1, 2], "b": [], "c": 3, "d": [[4], 5]}),
        ("a=0x1F, b=1_000, c=1., d=.5, e=-2e3, f=+7)", {"a": 31, "b": 1000, "c": 1.0, "d": 0.5, "e": -2000.0, "f": 7}),
        ("a={1: 'x', True: 'y', None: 'z', 1.5: 'w'})", {"a": {"1": "x", "true": "y", "null": "z", "1.5": "w"}}),
        (r"a='\x41\101\u00e9\U0001F600\ud83d\ude00\q')", {"a": "AA\xe9\U0001f600\U0001f600\\q"}),
        ("a='''it's''')", {"a": "it's"}),
        ("a='', b=\"\")", {"a": "", "b": ""}),
        ("a='two\nlines')", {"a": "two\nlines"}),
        ("from=true, class=null)", {"from": True, "class": None}),
        ("a=1, a=2)", {"a": 2}),
    ],
)
def test_spellings(text: str, expected: dict[str, object]) -> None:
    for pieces in ([text], list(text)):
        result, done, broken = convert(pieces)
        assert (done, broken) == (True, False)
        assert json.loads(result) == expected


def test_arguments_without_a_name_take_those_of_the_tool() -> None:
    assert convert(["'f.txt', 3, mode='w')"], ("path", "lines", "mode")) == (
        '{"path": "f.txt", "lines": 3, "mode": "w"}',
        True,
        False,
    )
    assert convert(["True)"], ("all",)) == ('{"all": true}', True, False)
    assert convert(["'x')"]) == ("{", False, True)  # which name would it be?
    assert convert(["a=1, 2)"], ("a", "b"))[2]  # after a named one, as Python has it
    assert convert(["1, 2)"], ("a",))[2]


@pytest.mark.parametrize(
    "text",
    ["a=f(1))", "a=1+2)", "a={1, 2})", "a=b'x')", "a='x' 'y')", "a=-float('inf'))", "a=x)", "a=)", "a)", "=1)", "a=1e)",
     "a='\\xg1')", "a='\\U00110000')", "a=[1 2])", "a={[1]: 2})", "a={'x' 1})", "a=]", "a=1;", "1nf)"],
)  # fmt: skip
def test_what_json_cannot_say_is_broken(text: str) -> None:
    whole = convert([text])
    assert whole[1:] == (False, True)
    assert convert(list(text)) == whole
    json_so_far = whole[0]
    assert json_so_far.startswith("{")


def test_json_comes_as_the_text_comes() -> None:
    arguments = PythonArguments()
    pieces = []
    for piece in ["city='Ro", "me', da", "ys=3", ", x=(1", ", 2))"]:
        arguments.feed(piece)
        pieces.append(arguments.take())
    assert pieces == ['{"city": "Ro', 'me"', ', "days": ', '3, "x": ', "[1, 2]}"]
