"""The field table against OpenAI's own document: nothing of it is missing, nothing is silently dropped."""

from __future__ import annotations

import ast
import gzip
import json
from typing import Any

import pytest

from forebay.errors import InvalidValueError, UnknownFieldError, UnsupportedFieldError
from forebay.server.openai import fields
from forebay.server.openai.fields import Field, FieldTable, Kind, check_fields
from forebay.server.openai.messages import REFUSED_ROLES, ROLES, parse_messages
from forebay.server.openai.requests import ChatBody, CompletionBody, EmbeddingBody, Message, StreamOptions, TextPart
from tests.support.doc_tables import REPOSITORY
from tests.support.field_tests import SHOWN_BY, unshown
from tests.support.shared import shared_path


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    with gzip.open(shared_path("openapi/openai/serving_subset.json.gz")) as file:
        found: dict[str, Any] = json.load(file)["components"]["schemas"]
        return found


def properties(schemas: dict[str, Any], name: str) -> set[str]:
    """All property names of a schema, through allOf, anyOf, oneOf and references."""
    return _properties(schemas, schemas.get(name, {}))


def _properties(schemas: dict[str, Any], schema: dict[str, Any]) -> set[str]:
    names = set(schema.get("properties", {}))
    for part in [*schema.get("allOf", []), *schema.get("anyOf", []), *schema.get("oneOf", [])]:
        target = schemas[part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        names |= _properties(schemas, target)
    return names


@pytest.mark.parametrize(
    ("schema", "table"),
    [
        ("CreateCompletionRequest", fields.COMPLETION_FIELDS),
        ("CreateChatCompletionRequest", fields.CHAT_FIELDS),
        ("CreateEmbeddingRequest", fields.EMBEDDING_FIELDS),
    ],
)
def test_every_documented_field_has_a_row(schemas: dict[str, Any], schema: str, table: FieldTable) -> None:
    assert properties(schemas, schema) == {name for name, field in table.items() if not field.ours}


def test_every_documented_message_field_has_a_row(schemas: dict[str, Any]) -> None:
    roles = ("System", "Developer", "User", "Assistant", "Tool", "Function")
    documented = set().union(*(properties(schemas, f"ChatCompletionRequest{role}Message") for role in roles))
    assert documented == {name for name, field in fields.MESSAGE_FIELDS.items() if not field.ours}
    assert properties(schemas, "ChatCompletionStreamOptions") == set(fields.STREAM_OPTIONS_FIELDS)
    assert properties(schemas, "ChatCompletionRequestMessageContentPartText") == set(fields.TEXT_PART_FIELDS)


def test_every_documented_format_field_has_a_row(schemas: dict[str, Any]) -> None:
    formats = ("ResponseFormatText", "ResponseFormatJsonObject", "ResponseFormatJsonSchema")
    assert set().union(*(properties(schemas, name) for name in formats)) == set(fields.RESPONSE_FORMAT_FIELDS)
    inner = schemas["ResponseFormatJsonSchema"]["properties"]["json_schema"]
    assert set(inner["properties"]) == set(fields.JSON_SCHEMA_FIELDS)


def _constants(schemas: dict[str, Any], union: str, name: str) -> set[str]:
    """The values of a field that tells the members of a union apart."""
    members = [schemas[member["$ref"].rpartition("/")[2]] for member in schemas[union]["oneOf"]]
    return {value for member in members for value in member["properties"][name]["enum"]}


def test_every_documented_role_and_part_is_taken_or_refused_by_name(schemas: dict[str, Any]) -> None:
    roles = _constants(schemas, "ChatCompletionRequestMessage", "role")
    assert roles == {*ROLES, *REFUSED_ROLES}
    for role in REFUSED_ROLES:
        with pytest.raises(UnsupportedFieldError, match=f"'{role}' is not supported") as caught:
            parse_messages([{"role": role, "content": "x"}])
        assert caught.value.param == "messages[0].role"
    for kind in ("User", "Assistant", "System", "Tool"):
        for part in _constants(schemas, f"ChatCompletionRequest{kind}MessageContentPart", "type") - {"text"}:
            with pytest.raises(UnsupportedFieldError, match=f'"{part}" is not supported') as caught:
                parse_messages([{"role": "user", "content": [{"type": part, part: {}}]}])
            assert caught.value.param == "messages[0].content[0].type"


def test_every_field_has_a_test_that_shows_it() -> None:
    assert unshown() == []
    for name, test in SHOWN_BY.items():
        file, _, function = test.partition("::")
        source = (REPOSITORY / file).read_text("utf-8")
        found = {f.name for f in ast.walk(ast.parse(source)) if isinstance(f, ast.FunctionDef)}
        assert function in found, test
        assert name.rpartition(".")[2] in source, (name, test)


@pytest.mark.parametrize(
    ("type_", "table"),
    [
        (CompletionBody, fields.COMPLETION_FIELDS),
        (ChatBody, fields.CHAT_FIELDS),
        (EmbeddingBody, fields.EMBEDDING_FIELDS),
        (Message, fields.MESSAGE_FIELDS),
        (StreamOptions, fields.STREAM_OPTIONS_FIELDS),
        (TextPart, fields.TEXT_PART_FIELDS),
    ],
)
def test_typed_bodies_have_the_used_and_noted_fields(type_: Any, table: FieldTable) -> None:
    taken = {name for name, field in table.items() if field.kind is not Kind.REFUSED}
    assert set(type_.__struct_fields__) == taken


REFUSED = [
    pytest.param(table, name, field, id=f"{where}-{name}")
    for where, table in {
        "completions": fields.COMPLETION_FIELDS,
        "chat": fields.CHAT_FIELDS,
        "message": fields.MESSAGE_FIELDS,
        "part": fields.TEXT_PART_FIELDS,
        "stream_options": fields.STREAM_OPTIONS_FIELDS,
    }.items()
    for name, field in table.items()
    if field.kind is Kind.REFUSED
]


@pytest.mark.parametrize(("table", "name", "field"), REFUSED)
def test_refused_fields_are_refused_by_name_unless_neutral(table: FieldTable, name: str, field: Field) -> None:
    for neutral in (None, *field.neutral):
        assert check_fields({name: neutral}, table) == {}
    for value in ("surely not", 0.5, 7, {"a": 1}, [1], True not in field.neutral):
        if value not in field.neutral:
            with pytest.raises(UnsupportedFieldError) as caught:
                check_fields({name: value}, table)
            assert caught.value.param == name
            assert name in caught.value.message


def test_a_boolean_is_not_a_neutral_number() -> None:
    with pytest.raises(UnsupportedFieldError):
        check_fields({"store": 0}, fields.CHAT_FIELDS)
    with pytest.raises(UnsupportedFieldError):
        check_fields({"disable_any_whitespace": 1}, fields.STRUCTURED_FIELDS)


def test_unknown_fields_name_the_nearest() -> None:
    with pytest.raises(UnknownFieldError, match=r"temperture.*did you mean 'temperature'") as caught:
        check_fields({"temperture": 1}, fields.CHAT_FIELDS)
    assert caught.value.param == "temperture"
    with pytest.raises(UnknownFieldError, match="remove it"):
        check_fields({"zzzzzz": 1}, fields.CHAT_FIELDS)
    assert not issubclass(UnknownFieldError, InvalidValueError)
