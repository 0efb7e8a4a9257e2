"""Kinds other than JSON Schema: objects, patterns, choices, Lark, GBNF, structural tags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import InvalidValueError
from forebay.structured import check
from tests.structured.support import CALL, EOS, TURN, accepts, allowed, compiled, feed, spec
from tests.support.shared import shared_path

CALL_SCHEMA = {
    "type": "object",
    "properties": {"x": {"type": "integer"}},
    "required": ["x"],
    "additionalProperties": False,
}


def structural(*structures: dict[str, Any], triggers: list[str]) -> str:
    return json.dumps({"type": "structural_tag", "structures": structures, "triggers": triggers})


def test_any_object() -> None:
    grammar = compiled("json_object")
    assert accepts(grammar, '{"a":[1,{"b":null}],"c":"é"}')
    assert not accepts(grammar, "[]")
    assert not accepts(grammar, '{"a":1')


@pytest.mark.parametrize("choices", [["yes", "no"], ["a", "ab", "abc"], ['"', "/", "\\", "é😀", " x "], ["</s>"]])
def test_choices(choices: list[str]) -> None:
    grammar = compiled("choice", choices)
    assert [c for c in choices if not accepts(grammar, c)] == []
    assert not accepts(grammar, choices[0] + "x")
    assert not accepts(grammar, "")


def test_thousands_of_choices() -> None:
    choices = [f"item {i} of the list" for i in range(5000)]
    grammar = compiled("choice", choices)
    assert accepts(grammar, choices[4321])
    assert not accepts(grammar, "item 5000 of the list")


LARK = """
// a comment with %directive and "quotes
start: "call(" ARGUMENT ("," ARGUMENT)* ")" tail?
ARGUMENT: /[a-z"\\/]+/
tail: %json {"type": "object", "properties": {"d": {"type": "string", "format": "date"}}, "required": ["d"],
"additionalProperties": false} """


def test_lark_with_a_schema_inside() -> None:
    grammar = compiled("grammar", LARK)
    assert accepts(grammar, 'call(a"/b,c)')
    assert accepts(grammar, 'call(a){"d":"2024-02-29"}')
    assert not accepts(grammar, 'call(a){"d":"2023-02-29"}')
    assert not accepts(grammar, 'call(a){"d": "2024-02-29"}')
    assert not accepts(grammar, "call()")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ('start: %json {"not": {}}', "line 1: %json at /not: not cannot be enforced"),
        ('start: "a"\nb: %json {"x-guidance": {"lenient": true}}', "line 2: %json at /x-guidance"),
        ('%llguidance {"no_forcing": true}\nstart: "a"', "may be set"),
        ("start[max_tokens=3]: /a*/", "max_tokens"),
        ("start[temperature = 0.5]: /a*/", "temperature"),
        ('start: b\nb[stop=""]: /a*/', "stop"),
        ("start: <[3]>", "by number"),
        ("start: </s>", "ends the output"),
        ("start: @other", "no other grammar"),
        ("%override start: /a/", "%override"),
        ('start: %lark { start: "a" }', "%lark"),
        ('start: "a', "does not end"),
        ("rule: /a/", "no start rule"),
        ("start: missing", "cannot be enforced"),
        ('{"grammars": [{"json_schema": {"not": {}}}]}', "cannot be enforced"),
        ("\n".join(["start: /a/", *(f"r{i}: /a/" for i in range(2001))]), "more than 2000 rules"),
        ("root ::= missing", "GBNF"),
        ("root ::= " + "(" * 3000, "nested too deeply|GBNF"),
    ],
    ids=lambda v: v[:24],
)
def test_grammars_are_refused_by_name_and_line(source: str, reason: str) -> None:
    with pytest.raises(InvalidValueError, match=reason) as caught:
        compiled("grammar", source, param="guided_grammar")
    assert caught.value.param == "guided_grammar"


def test_gbnf_is_carried_over() -> None:
    grammar = compiled("grammar", 'root ::= "x" [0-9]+ (" " item)*\nitem ::= "a" | "b/c" # comment\n')
    assert accepts(grammar, "x12 a b/c")
    assert not accepts(grammar, "x a")


@pytest.mark.parametrize("name", ["chess", "english", "japanese", "json", "json_arr", "list"])
def test_grammars_of_llama_cpp(name: str) -> None:
    source = shared_path(f"structured/grammars/gbnf/{name}.gbnf").read_text()
    grammar = compiled("grammar", source)
    sample = {
        "json": '{"a": [1, true]}', "json_arr": '[\n1,\n"x"]', "list": "- one\n- two\n",
        "chess": "1. e4 e5\n2. d4 d5\n", "english": "Hello.", "japanese": "こんにちは",
    }[name]  # fmt: skip
    assert accepts(grammar, sample), name


def test_no_case_of_xgrammar_is_accepted_wrongly() -> None:
    """Their cases of patterns and grammars, by their verdict: what compiles here accepts nothing that they refuse."""
    path: Path = shared_path("structured/grammars/xgrammar_accept_cases.json")
    kinds = {"regex": "regex", "ebnf": "grammar"}
    elsewhere = "test_custom_root_rule"  # its start is not the rule "root"; the extract has lost that
    cases = [c for c in json.loads(path.read_text()) if c["kind"] in kinds and not c["xgrammar_only_syntax"]]
    cases = [c for c in cases if elsewhere not in c["test"]]
    wrong, right, missed = [], 0, []
    for case in cases:
        try:
            grammar = compiled(kinds[case["kind"]], case["grammar"])
        except InvalidValueError:
            continue
        got = accepts(grammar, case["input"])
        if got == case["accept"]:
            right += 1
        else:
            (wrong if got else missed).append((case["test"], case["grammar"], case["input"]))
    assert wrong == []
    assert right > 10 * len(missed), missed


def test_structural_tags() -> None:
    source = structural(
        {"begin": "<fn=foo>", "schema": CALL_SCHEMA, "end": "</fn>"},
        {"begin": "<fn=bar>", "schema": {"type": "null"}, "end": "</fn>"},
        {"begin": "[tool]", "schema": True, "end": ""},
        triggers=["<fn=", "[tool]"],
    )
    grammar = compiled("structural_tag", source)
    for text in (
        "", "hello < world", "x<fn=foo>{\"x\":1}</fn> and\n<fn=bar>null</fn>!", "[tool]{}",
            "[tool][1] then <fn=bar>null</fn>",
    ):  # fmt: skip
        assert accepts(grammar, text), text
    for text in ("x<fn=", "<fn=baz>", '<fn=foo>{"x":"1"}</fn>', '<fn=foo>{"x":1}', "<fn=bar>{}</fn>", "[tool]"):
        assert not accepts(grammar, text), text


def test_structural_tags_with_special_tokens() -> None:
    source = structural({"begin": "<|call|>f:", "schema": CALL_SCHEMA, "end": "<|call|>"}, triggers=["<|call|>"])
    matcher = compiled("structural_tag", source).matcher()
    feed(matcher, b"text ")
    assert CALL in allowed(matcher)
    feed(matcher, [CALL])
    assert allowed(matcher) == {ord("f")}
    feed(matcher, b'f:{"x":1}')
    assert allowed(matcher) == {CALL}
    feed(matcher, [CALL])
    assert {EOS, TURN} <= allowed(matcher)
    spelled = compiled("structural_tag", source).matcher()
    feed(spelled, b"<|call|> is only text")  # its letters are not the token
    assert spelled.is_complete


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ('{"structures": [], "triggers": ["a"]}', "/structures: must be a list"),
        ('{"format": {}}', "/format: the \"format\" form"),
        ('{"structures": [{"begin": "<a>"}], "triggers": ["<b"]}', "/structures/0/begin: .* begins with none"),
        ('{"structures": [{"begin": "<a>", "schema": {"not": {}}}], "triggers": ["<a"]}', "/structures/0/schema/not"),
        ('{"structures": [{"begin": "<a>", "more": 1}], "triggers": ["<a"]}', "/structures/0/more: unknown field"),
        ('{"structures": [{"begin": "<a>", "end": "</s>"}], "triggers": ["<a"]}', "ends the output"),
        ('{"structures": [{"begin": "x<|call|>"}], "triggers": ["x<|call|>"]}', "may only begin with one"),
    ],
)  # fmt: skip
def test_structural_tags_are_refused_where_they_are_wrong(source: str, reason: str) -> None:
    with pytest.raises(InvalidValueError, match=reason):
        compiled("structural_tag", source)


@pytest.mark.parametrize(
    ("kind", "source", "reason"),
    [
        ("choice", "[]", "list of 1 to"),
        ("choice", '["a", 3]', "at /1: a choice is a string"),
        ("choice", "x", "not JSON"),
        ("regex", "(", "without its"),
        ("regex", "\ud800", "surrogate"),
    ],
)
def test_a_front_end_can_check_without_a_model(kind: str, source: str, reason: str) -> None:
    with pytest.raises(InvalidValueError, match=reason):
        check(spec(kind, source, param="guided"))
