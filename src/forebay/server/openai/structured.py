"""What an output must be: `response_format`, `structured_outputs`, the older `guided_*`, as one GrammarSpec."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from forebay.core.grammar_spec import GrammarKind, GrammarSpec
from forebay.errors import InvalidValueError
from forebay.server.openai.fields import JSON_SCHEMA_FIELDS, RESPONSE_FORMAT_FIELDS, STRUCTURED_FIELDS, check_fields
from forebay.server.openai.parse import convert, shorten
from forebay.server.openai.requests import ChatBody, CompletionBody, JsonSchemaFormat, ResponseFormat, SamplingBody
from forebay.structured import check

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
FORMATS = ("text", "json_object", "json_schema")
_OF_FIELD = {  # names of our GrammarKinds in vLLM's structured_outputs; guided_X is the older way to write X
    "json": GrammarKind.JSON_SCHEMA,
    "regex": GrammarKind.REGEX,
    "choice": GrammarKind.CHOICE,
    "grammar": GrammarKind.GRAMMAR,
    "json_object": GrammarKind.JSON_OBJECT,
    "structural_tag": GrammarKind.STRUCTURAL_TAG,
}
_GUIDED = ("json", "regex", "choice", "grammar")


def is_constrained(body: ChatBody | CompletionBody) -> bool:
    """Whether a body says anything of what its output must be."""
    fields = ("response_format", "structured_outputs", *(f"guided_{name}" for name in _GUIDED))
    return any(getattr(body, name) is not None for name in fields)


def grammar_of(body: ChatBody | CompletionBody) -> GrammarSpec | None:
    """The one constraint of a body. Raises InvalidValueError for two, for values of the wrong shape, and for what
    cannot be enforced."""
    return the_one(_response_format(body), *structured_outputs(body), *_guided(body))


def the_one(*given: GrammarSpec | None) -> GrammarSpec | None:
    """Of the constraints of a body the only one, checked. Raises InvalidValueError as `grammar_of`."""
    found = [spec for spec in given if spec is not None]
    if len(found) > 1:
        raise InvalidValueError(
            f"{found[0].param} and {found[1].param} both say what the output must be; give one of them",
            param=found[1].param,
        )
    if not found:
        return None
    check(found[0])
    return found[0]


def _response_format(body: ChatBody | CompletionBody) -> GrammarSpec | None:
    if body.response_format is None:
        return None
    where = "response_format"
    given = convert(check_fields(body.response_format, RESPONSE_FORMAT_FIELDS, where), ResponseFormat, where)
    if given.type not in FORMATS:
        raise InvalidValueError(
            f"{where}.type must be one of {', '.join(FORMATS)}, got {shorten(given.type)}", param=f"{where}.type"
        )
    if given.json_schema is not None and given.type != "json_schema":
        raise InvalidValueError(
            f"{where}.json_schema needs type json_schema, got {shorten(given.type)}", param=f"{where}.json_schema"
        )
    if given.type == "text":
        return None
    if given.type == "json_object":
        return GrammarSpec(kind=GrammarKind.JSON_OBJECT, param=where)
    if given.json_schema is None:
        raise InvalidValueError(f"{where}.json_schema is required with type json_schema", param=f"{where}.json_schema")
    return named_schema(given.json_schema, f"{where}.json_schema")


def named_schema(given: dict[str, Any], where: str) -> GrammarSpec:
    """A schema with its name and `strict`. where: path of the object that has them."""
    schema = convert(check_fields(given, JSON_SCHEMA_FIELDS, where), JsonSchemaFormat, where)
    if not _NAME.fullmatch(schema.name):
        raise InvalidValueError(
            f"{where}.name must be 1 to 64 letters, digits, _ or -, got {shorten(schema.name)}", param=f"{where}.name"
        )
    return GrammarSpec(
        kind=GrammarKind.JSON_SCHEMA,
        source=json_text(schema.schema),
        strict=schema.strict,
        name=schema.name,
        param=f"{where}.schema",
    )


def structured_outputs(body: SamplingBody) -> list[GrammarSpec]:
    """What vLLM's field of that name says, unchecked."""
    if body.structured_outputs is None:
        return []
    where = "structured_outputs"
    given = check_fields(body.structured_outputs, STRUCTURED_FIELDS, where)
    if not given:
        raise InvalidValueError(f"{where} must have one of {', '.join(_OF_FIELD)}", param=where)
    return [_spec(_OF_FIELD[name], value, f"{where}.{name}") for name, value in given.items()]


def _guided(body: ChatBody | CompletionBody) -> list[GrammarSpec]:
    given = {name: getattr(body, f"guided_{name}") for name in _GUIDED}
    return [_spec(_OF_FIELD[name], value, f"guided_{name}") for name, value in given.items() if value is not None]


def _spec(kind: GrammarKind, value: Any, where: str) -> GrammarSpec:
    if kind is GrammarKind.JSON_OBJECT:
        if value is not True:
            raise InvalidValueError(f"{where} must be true, got {shorten(value)}; or leave it out", param=where)
        return GrammarSpec(kind=kind, param=where)
    if kind is GrammarKind.CHOICE:
        choices = convert(value, list[str], where)
        if not choices:
            raise InvalidValueError(f"{where} must hold at least one string", param=where)
        return GrammarSpec(kind=kind, source=json_text(choices), param=where)
    if kind in (GrammarKind.JSON_SCHEMA, GrammarKind.STRUCTURAL_TAG) and isinstance(value, dict):
        return GrammarSpec(kind=kind, source=json_text(value), param=where)
    return GrammarSpec(kind=kind, source=convert(value, str, where), param=where)


def json_text(value: Any) -> str:
    """A schema as the source of a GrammarSpec."""
    return msgspec.json.encode(value).decode()
