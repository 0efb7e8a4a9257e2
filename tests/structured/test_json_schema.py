"""Every keyword of a schema is enforced, an annotation, or refused where it stands."""

from __future__ import annotations

import json
from typing import Any

import pytest

from forebay.errors import InvalidValueError
from forebay.structured import GrammarLimits, check
from forebay.structured.json_schema import rewrite_schema
from forebay.structured.json_schema.keywords import ANNOTATIONS, ENFORCED, FOREIGN, IDENTIFIERS, REFUSED
from forebay.structured.limits import DEFAULT_LIMITS
from forebay.structured.refusal import Refusal, json_pointer
from tests.structured.support import accepts, compiled_schema, schema_spec, spec

OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}

# what makes a refused keyword mean something
COMPANY: dict[str, dict[str, Any]] = {
    "if": {"then": {}}, "then": {"if": {}}, "else": {"if": {}}, "minContains": {"contains": {}},
        "maxContains": {"contains": {}},
    "unevaluatedProperties": {"allOf": [{}]}, "unevaluatedItems": {"allOf": [{}]},
}  # fmt: skip

# schema, pointer, a word of the reason
REFUSALS: list[tuple[Any, str, str]] = [
    *(({keyword: {"type": "object"}, **COMPANY.get(keyword, {})}, f"/{keyword}",
        "cannot be enforced") for keyword in sorted(REFUSED)),
    *(({keyword: True}, f"/{keyword}", "cannot be enforced") for keyword in sorted(FOREIGN)),
    ({"allOf": [{"properties": {"x/y": {"items": {"not": {}}}}}]}, "/allOf/0/properties/x~1y/items/not",
        "must not match"),
    ({"$defs": {"a": {"if": {}, "else": {}}}, "anyOf": [{"$ref": "#/$defs/a"}]}, "/$defs/a/if", "must not match"),
    ({"propertys": {}}, "/propertys", "did you mean 'properties'"),
    ({"maxLenght": 3}, "/maxLenght", "did you mean 'maxLength'"),
    ({"tpye": "string"}, "/tpye", "did you mean 'type'"),
    ({"additional_properties": False}, "/additional_properties", "did you mean 'additionalProperties'"),
    ({"type": "object", "patternProperties": {"a": {}}, "propertyNames": {"pattern": "a"}}, "/propertyNames",
        "cannot be enforced"),
    ({"properties": {"a": {}}, "propertyNames": {"pattern": "a"}}, "/propertyNames", "cannot be enforced"),
    ({"propertyNames": {"$ref": "#/$defs/none"}}, "/propertyNames/$ref", "leads nowhere"),
    ({"const": "a\0"}, "/const", "U+0000"),
    ({"enum": ["b", {"a\0": ["\x7f"]}]}, "/enum", "U+007F"),
    ({"oneOf": [{"type": "integer"}, {"type": ["string", "number"]}]}, "/oneOf", "alternatives 0 and 1"),
    ({"items": {"oneOf": [{"const": 1}, {"const": 2}, {"enum": [3, 1.0]}]}}, "/items/oneOf", "alternatives 0 and 2"),
    ({"oneOf": [{"$ref": "#/$defs/t"}, {"$ref": "#/$defs/t"}],
        "$defs": {"t": {"type": "object", "properties": {"t": {"$ref": "#/$defs/t"}}}}}, "/oneOf",
            "alternatives 0 and 1"),
    ({"properties": {f"p{i}": {} for i in range(65)}, "minProperties": 1}, "/minProperties", "more than 64"),
    ({"properties": {"a": {}}, "maxProperties": 1}, "/maxProperties", "all of properties are required"),
    ({"type": "any"}, "/type", "must be one or more of"),
    ({"type": []}, "/type", "must be one or more of"),
    ({"properties": []}, "/properties", "object of schemas"),
    ({"items": 3}, "/items", "must be an object or true or false"),
    ({"required": "a"}, "/required", "list of names"),
    ({"uniqueItems": True}, "/uniqueItems", "does not remember"),
    ({"uniqueItems": True, "maxItems": 2}, "/uniqueItems", "does not remember"),
    ({"minProperties": 2}, "/minProperties", "counted"),
    ({"minItems": -1}, "/minItems", "integer from 0"),
    ({"maxLength": 1.5}, "/maxLength", "integer from 0"),
    ({"maxItems": 10**9}, "/maxItems", "integer from 0"),
    ({"format": "date-times"}, "/format", "not checked here"),
    ({"type": "integer", "format": "int16"}, "/format", "not checked here"),
    ({"pattern": "(?=a)"}, "/pattern", "look-around"),
    ({"patternProperties": {"(a": {}}}, "/patternProperties/(a", "without its"),
    ({"patternProperties": {"[ab]": {}, "[a-b]": {}, r"\x61": {}, "a": {}}}, "/patternProperties", "mean the same"),
    ({"minimum": 2**53 + 2}, "/minimum", "2^53"),
    ({"const": 2**60}, "/const", "2^53"),
    ({"enum": [{"a": [1e300]}]}, "/enum", "2^53"),
    ({"maximum": 1.2345e-20}, "/maximum", "digits"),
    ({"minimum": "3"}, "/minimum", "must be a number"),
    ({"minimum": 3, "maximum": 2}, "/", "no number is between"),
    ({"exclusiveMinimum": True, "minimum": 1}, "/exclusiveMinimum", "must be a number"),
    ({"multipleOf": 0}, "/multipleOf", "above 0"),
    ({"multipleOf": 0.07}, "/multipleOf", "digits"),
    ({"allOf": [{"multipleOf": 65537}, {"multipleOf": 65539}]}, "/", "combined exactly"),
    ({"enum": []}, "/enum", "one value or more"),
    ({"anyOf": []}, "/anyOf", "must not be empty"),
    ({"anyOf": {}}, "/anyOf", "list of schemas"),
    ({"$ref": "other.json#/a"}, "/$ref", "never fetched"),
    ({"$ref": "http://127.0.0.1/x"}, "/$ref", "never fetched"),
    ({"$ref": "#name"}, "/$ref", "a name"),
    ({"$ref": "#/$defs/none"}, "/$ref", "leads nowhere"),
    ({"$ref": 3}, "/$ref", "must be a string"),
    ({"$ref": "#"}, "/", "refers back to itself"),
    ({"anyOf": [{"type": "null"}, {"$ref": "#"}]}, "/", "refers back to itself"),
    ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "/", "no finite value"),
    ({"properties": {"a": {"$ref": "#/$defs/x"}},
        "$defs": {"x": {"type": "array", "items": {"$ref": "#/$defs/x"}, "minItems": 1}}}, "/", "no finite value"),
    ({"$id": "http://a/", "properties": {"b": {"$id": "http://b/", "properties": {"c": {"$ref": "#"}}}}},
        "/properties/b/$id", "changes where"),
    ({"$ref": "#/$defs/b/$defs/c", "$defs": {"b": {"$id": "b", "$defs": {"c": {"items": {"$ref": "#"}}}}}},
        "/$defs/b/$id", "changes where"),
    ({"type": "integer", "maximum": 2**60 + 1}, "/maximum", "2^53"),
    ({"$schema": "http://json-schema.org/draft-03/schema#"}, "/$schema", "unknown draft"),
    ({"$schema": "https://json-schema.org/draft/2020-12/schema", "items": [{}]}, "/items", "prefixItems"),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [{}]}, "/", "not a keyword of draft-07"),
    ({"properties": {"a": {"$schema": "http://json-schema.org/draft-03/schema#"}}}, "/properties/a/$schema",
        "unknown draft"),
    ({"items": {"$schema": "https://json-schema.org/draft/2020-12/schema", "properties": {"a": {"items": [{}]}}}},
        "/items/properties/a/items", "prefixItems"),
    (False, "/", "nothing matches"),
    (3, "/", "must be an object or true or false"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "pointer", "reason"), REFUSALS, ids=lambda v: json.dumps(v)[:50])
def test_refuses_what_it_cannot_enforce_and_says_where(schema: Any, pointer: str, reason: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        check(schema_spec(schema, param="response_format.json_schema.schema"))
    assert caught.value.param == "response_format.json_schema.schema"
    assert f" at {pointer}: " in caught.value.message
    assert reason in caught.value.message


def test_every_keyword_of_the_standard_has_a_verdict() -> None:
    """The keywords of draft 2020-12 and those that older drafts had: none passes in silence."""
    standard = """
        $id $schema $ref $anchor $dynamicRef $dynamicAnchor $vocabulary $comment $defs prefixItems items contains
        additionalProperties properties patternProperties dependentSchemas propertyNames if then else allOf anyOf
        oneOf not unevaluatedItems unevaluatedProperties type const enum multipleOf maximum exclusiveMaximum minimum
        exclusiveMinimum maxLength minLength pattern maxItems minItems uniqueItems maxContains minContains
        maxProperties minProperties required dependentRequired title description default deprecated readOnly
        writeOnly examples format contentEncoding contentMediaType contentSchema additionalItems dependencies
        $recursiveRef $recursiveAnchor definitions id
    """
    openapi = {"discriminator"}
    assert (
        set(standard.split()) | openapi
        == {"$defs", "definitions"} | IDENTIFIERS | ENFORCED | ANNOTATIONS | REFUSED.keys()
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"not": False}, {"if": {"type": "string"}}, {"then": False}, {"minContains": 3}, {"dependencies": {}},
            {"nullable": False},
        {"propertyNames": {}}, {"readonly": True}, {"x-order": 3}, {"_format": "date"}, {"links": []},
        {"contentMediaType": "image/png"}, {"$anchor": "here"}, {"discriminator": {"propertyName": "kind"}},
            {"javaType": "int"},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_what_forbids_nothing_is_taken(schema: Any) -> None:
    assert rewrite_schema({"type": "integer", **schema}, DEFAULT_LIMITS) == {"type": "integer"}


def test_unknown_keywords_are_few_and_not_in_strict_schemas() -> None:
    with pytest.raises(Refusal, match="more than 500 different unknown"):
        rewrite_schema({"items": {f"x-{i}": 1 for i in range(501)}}, DEFAULT_LIMITS)
    with pytest.raises(InvalidValueError, match="at /x-a: unknown keyword"):
        check(schema_spec({**OBJECT, "x-a": 1}, strict=True))


def test_annotations_go_and_references_lead_to_defs() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#", "$id": "http://example.com/tree.json", "title": "Tree",
        "definitions": {"a/b~": {"type": "integer", "description": "x"}, "unused": {"not": {}}},
        "type": "object",
        "properties": {
            "n": {"$ref": "#/definitions/a~1b~0"},
            "m": {"$ref": "http://example.com/tree.json#/definitions/a%2Fb~0".replace("%2F", "~1")},
            "tree": {"$ref": "#", "default": {}},
            "pair": {"type": "array", "items": [{"type": "null"}], "additionalItems": False, "uniqueItems": False},
        },
    }  # fmt: skip
    number, tree = {"$ref": "#/$defs/d0"}, {"$ref": "#/$defs/d1"}
    body = {
        "type": "object",
        "properties": {
            "n": number,
            "m": number,
            "tree": tree,
            "pair": {"type": "array", "prefixItems": [{"type": "null"}], "items": False},
        },
    }
    assert rewrite_schema(schema, DEFAULT_LIMITS) == {**body, "$defs": {"d1": body, "d0": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": ["null", "boolean"]}, ["null", "true"], ["1", '"x"', "{}"]),
        ({"enum": ["a", 1, {"b": [None, 2.5]}]}, ['"a"', "1", '{"b":[null,2.5]}'], ['"b"', '{"b":[null]}', "2"]),
        ({"const": "</s>"}, ['"</s>"'], ['"<s>"']),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}, ["[1]", "[1,2]"],
            ["[]", "[1,2,3]", '["a"]']),
        ({"prefixItems": [{"const": 1}], "items": False, "type": "array"}, ["[]", "[1]"], ["[2]", "[1,1]"]),
        ({"type": "array", "uniqueItems": True, "maxItems": 1}, ["[]", "[1]"], ["[1,1]"]),
        (OBJECT, ['{"a":"x"}'], ["{}", '{"a":1}', '{"a":"x","b":1}', '{"a": "x"}', '{"a":"x"} ']),
        ({"type": "object", "additionalProperties": {"type": "null"}, "minProperties": 1}, ['{"k":null}'],
            ["{}", '{"k":1}']),
        ({"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
            ["{}", '{"xa":1,"xb":2}'], ['{"xa":"1"}', '{"a":1}']),
        ({"type": "object", "maxProperties": 1, "additionalProperties": True}, ["{}", '{"a":1}'], ['{"a":1,"b":2}']),
        ({"type": "string", "minLength": 2, "maxLength": 2}, ['"ab"', '"é😀"', '"\\n\\""'], ['"a"', '"abc"', '""']),
        ({"type": "string", "pattern": "^a", "format": "email"}, ['"a@b.c"'], ['"b@b.c"', '"a"']),
        ({"pattern": "^a", "type": ["string", "integer"]}, ['"a"', "3"], ['"b"']),
        ({"allOf": [{"minimum": 2}, {"maximum": 3}], "type": "integer"}, ["2", "3"], ["1", "4"]),
        ({"anyOf": [{"type": "null"}, {"const": 1}]}, ["null", "1"], ["2"]),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, ['"x"', "null"], ["1"]),
        ({"$ref": "#/$defs/x", "maximum": 4, "$defs": {"x": {"type": "integer", "minimum": 3}}}, ["3", "4"],
            ["2", "5"]),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 3,
            "exclusiveMinimum": True}, ["4"], ["3"]),
        ({"type": "object", "properties": {"t": {"$ref": "#"}}, "additionalProperties": False},
            ["{}", '{"t":{"t":{}}}'], ['{"t":1}']),
        ({"properties": {"a": False}, "type": "object"}, ["{}", '{"b":1}'], ['{"a":1}']),
        ({"type": "object", "properties": {"a\0b": {"const": 1}}, "required": ["a\0b"]}, ['{"a\\u0000b":1}'],
            ['{"ab":1}']),
        ({"properties": {"a": {}}, "unevaluatedProperties": False, "type": "object"}, ["{}", '{"a":1}'], ['{"b":1}']),
        ({"prefixItems": [{}], "unevaluatedItems": False, "type": "array"}, ["[]", "[1]"], ["[1,1]"]),
        ({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "properties": {"b": {"const": 1}, "c": {}}},
            ["{}", '{"b":1,"a":2}'], ['{"c":1}', '{"b":2}', '{"d":1}']),
        ({"type": "object", "propertyNames": {"$ref": "#/$defs/n"}, "additionalProperties": {"const": 1},
            "$defs": {"n": {"type": "string", "pattern": "^x"}}}, ["{}", '{"x":1,"xy":1}'], ['{"y":1}', '{"x":2}']),
        ({"type": "object", "propertyNames": {"maxLength": 1}, "required": ["a"]}, ['{"a":1,"b":1}'],
            ['{"a":1,"bb":1}', "{}"]),
        ({"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": False, "minProperties": 1},
            ['{"a":1}', '{"b":1}', '{"a":1,"b":2}'], ["{}"]),
        ({"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": False, "maxProperties": 1},
            ["{}", '{"a":1}', '{"b":1}'], ['{"a":1,"b":2}']),
        ({"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": False, "maxProperties": 2},
            ["{}", '{"a":1,"b":2}'], ['{"c":1}']),
        ({"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "discriminator": {"propertyName": "t"},
            "$defs": {k: {"type": "object", "properties": {"t": {"const": k}, k: {"type": "integer"}},
                "required": ["t", k]} for k in "ab"}}, ['{"t":"a","a":1}', '{"t":"b","b":1}'],
                    ['{"t":"a","b":1}', '{"t":"c"}', "{}"]),
        ({"type": "object", "oneOf": [{"properties": {"a": {"const": k}}, "required": ["a"]} for k in (1, 2)]},
            ['{"a":1}', '{"a":2}'], ['{"a":3}', "{}", "1"]),
        ({"oneOf": [{"maximum": 1, "type": "number"}, {"exclusiveMinimum": 1, "type": "number"}]}, ["1", "1.5"],
            ['"x"']),
        ({"$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"a": {"$id": "#here", "$ref": "#/definitions/n"}}, "type": "object",
                "definitions": {"n": {"id": "x", "type": "null"}}}, ['{"a":null}'], ['{"a":1}']),
        ({"type": "array",
            "items": {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 3,
                "exclusiveMinimum": True}}, ["[4]"], ["[3]"]),
        ({"type": "integer", "format": "int32"}, [str(2**31 - 1), str(-(2**31))], [str(2**31), str(-(2**31) - 1)]),
        ({"type": "integer", "format": "int64", "minimum": 2**60}, [str(2**60), str(2**62 + 1)],
            [str(2**60 - 1), str(2**63)]),
        (
            {"properties": {"a": {}, "b": {}, "c": {}}, "required": ["c"], "minProperties": 2},
            ['{"a":1,"c":1}', '{"b":1,"c":1}', '{"c":1,"d":1}', '{"a":1,"b":1,"c":1,"d":1}', "1"],
            ["{}", '{"c":1}', '{"a":1}', '{"a":1,"b":1}'],
        ),
        ({"oneOf": [{"const": "x"}, {"const": 1}], "anyOf": [{"type": "string"}, {"type": "null"}]}, ['"x"'],
            ["1", "null"]),
    ],
    ids=lambda v: json.dumps(v)[:40],
)  # fmt: skip
def test_enforces_what_it_takes(schema: Any, good: list[str], bad: list[str]) -> None:
    grammar = compiled_schema(schema)
    assert [text for text in good if not accepts(grammar, text)] == []
    assert [text for text in bad if accepts(grammar, text)] == []


def test_a_property_cannot_hide_behind_another_spelling_of_its_name() -> None:
    """With free escapes "\\u0061" would be an additional property to a grammar, and "a" to whoever reads the JSON."""
    grammar = compiled_schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    assert accepts(grammar, '{"a":1,"b":"x"}')
    assert not accepts(grammar, '{"a":1,"\\u0061":"x"}')
    assert not accepts(grammar, '{"a":1,"a":"x"}')


def test_white_space_cannot_go_on_for_ever() -> None:
    for schema in ({}, {"type": "object"}, {"type": "array"}, OBJECT):
        grammar = compiled_schema(schema)
        for text in (" ", "{ ", "[ ", '{"a" ', '{"a": ', '{"a":"x" ', '{"a":"x", ', "[1 ", "\n"):
            matcher = grammar.matcher()
            assert not all(matcher.accept(byte) for byte in text.encode()), (schema, text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ('{"type": NaN}', "not a number"),
        ('{"type": "string", "type": "null"}', "stands twice"),
        ("[" * 5000, "deep"),
        ('{"items":' * 200 + "{}" + "}" * 200, "deep"),
        ('{"const": "\\ud800"}', "surrogate"),
        (json.dumps({"title": "x" * 600_000}), "bytes"),
        (json.dumps({"enum": list(range(30_000))}), "more than 20000 values"),
        (json.dumps({"anyOf": [{}] * 30_000}), "more than 20000 subschemas"),
    ],
    ids=lambda v: v[:20],
)
def test_a_hostile_document_is_refused_before_it_costs_anything(text: str, reason: str) -> None:
    with pytest.raises(InvalidValueError, match=reason):
        check(spec("json_schema", text))


STRICT_REFUSALS = [
    ({"type": "array"}, "/", "root"),
    ({"anyOf": [OBJECT], "type": "object"}, "/", "root"),
    ({"type": "object", "properties": {}}, "/additionalProperties", "additionalProperties: false"),
    ({**OBJECT, "required": []}, "/required", "'a'"),
    ({**OBJECT, "properties": {"a": {"type": ["object", "null"]}}}, "/properties/a/additionalProperties", "false"),
]


@pytest.mark.parametrize(("schema", "pointer", "reason"), STRICT_REFUSALS, ids=lambda v: json.dumps(v)[:40])
def test_strict_schemas_must_be_closed(schema: Any, pointer: str, reason: str) -> None:
    check(schema_spec(schema))
    with pytest.raises(InvalidValueError) as caught:
        check(schema_spec(schema, strict=True))
    assert f" at {pointer}: " in caught.value.message
    assert reason in caught.value.message


def test_strict_takes_what_openai_takes() -> None:
    check(schema_spec({**OBJECT, "properties": {"a": {"anyOf": [OBJECT, {"type": "null"}]}}}, strict=True))


def test_a_oneof_of_many_alternatives_is_looked_at_for_a_bounded_time() -> None:
    tags = [{"type": "object", "properties": {"t": {"const": i}}, "required": ["t"]} for i in range(2000)]
    assert len(rewrite_schema({"oneOf": tags}, DEFAULT_LIMITS)["anyOf"]) == 2000
    two = [{"properties": {"t": {"const": i}, "u": {"const": i}}, "required": ["tu"[i % 2]]} for i in range(2000)]
    assert "anyOf" in rewrite_schema({"type": "object", "oneOf": two[:50]}, DEFAULT_LIMITS)
    with pytest.raises(Refusal, match="alternatives"):
        rewrite_schema({"type": "object", "oneOf": two}, DEFAULT_LIMITS)


def test_limits_are_of_the_caller() -> None:
    with pytest.raises(Refusal, match="more than 1 subschemas"):
        rewrite_schema({"items": {}}, GrammarLimits(max_schemas=1))
    assert json_pointer(("a~b", 0, "c/d")) == "/a~0b/0/c~1d"


@pytest.mark.parametrize(
    "keyword", ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"]
)
@pytest.mark.parametrize("value", ["1e999", "-1e999", "1.5"])
def test_a_count_that_is_no_integer(keyword: str, value: str) -> None:
    with pytest.raises(InvalidValueError, match=f"/{keyword}: must be an integer"):
        check(spec("json_schema", f'{{"{keyword}": {value}}}'))
