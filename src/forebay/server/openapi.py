"""GET /openapi.json: the routes, the schemas of their bodies with what the field tables say, the one shape of errors.

Schemas come from the types that parse the bodies (OpenAPI 3.1, JSON Schema 2020-12).
"""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from forebay.server.auth import OPEN_PATHS
from forebay.server.openai.fields import (
    CHAT_FIELDS,
    COMPLETION_FIELDS,
    JSON_SCHEMA_FIELDS,
    MESSAGE_FIELDS,
    RESPONSE_FORMAT_FIELDS,
    STREAM_OPTIONS_FIELDS,
    TEXT_PART_FIELDS,
    FieldTable,
    Kind,
)
from forebay.server.openai.messages import ROLES
from forebay.server.openai.requests import JsonSchemaFormat, Message, ResponseFormat, TextPart
from forebay.server.openai.structured import FORMATS

_REF = "#/components/schemas/{name}"
_INNER = (Message, TextPart, ResponseFormat, JsonSchemaFormat)  # parsed one at a time, so no body's type leads to them
_TABLES: dict[str, FieldTable] = {
    "CompletionBody": COMPLETION_FIELDS,
    "ChatBody": CHAT_FIELDS,
    "Message": MESSAGE_FIELDS,
    "TextPart": TEXT_PART_FIELDS,
    "StreamOptions": STREAM_OPTIONS_FIELDS,
    "ResponseFormat": RESPONSE_FORMAT_FIELDS,
    "JsonSchemaFormat": JSON_SCHEMA_FIELDS,
}


_VALUES: dict[tuple[str, str], list[str]] = {
    ("Message", "role"): list(ROLES),
    ("TextPart", "type"): ["text"],
    ("ResponseFormat", "type"): list(FORMATS),
}


SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


class ErrorDetail(msgspec.Struct, kw_only=True):
    """message: what is wrong and what to do.  param: the field at fault."""

    message: str
    type: str
    param: str | None
    code: str


class Error(msgspec.Struct):
    """Every answer that is no success."""

    error: ErrorDetail


RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "An error; docs/errors.md has the codes",
        "content": {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}},
    }
}


def operation(body: type[msgspec.Struct] | None) -> dict[str, Any] | None:
    """What a route adds to its operation: the body it takes."""
    if body is None:
        return None
    schema = {"$ref": _REF.format(name=body.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def openapi_document(app: FastAPI, bodies: list[type[msgspec.Struct]], guarded: bool) -> dict[str, Any]:
    """FastAPI's document plus the schemas of our bodies, made once. guarded: requests need a key."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        _, schemas = msgspec.json.schema_components([*bodies, *_INNER, Error], ref_template=_REF)
        for (name, field), values in _VALUES.items():
            schemas[name]["properties"][field]["enum"] = values
        for name, table in _TABLES.items():
            _describe(schemas[name], table)
        document.setdefault("components", {}).setdefault("schemas", {}).update(schemas)
        if guarded:
            document["components"]["securitySchemes"] = SECURITY_SCHEMES
            document["security"] = [{name: []} for name in SECURITY_SCHEMES]
            for path in OPEN_PATHS:
                document["paths"][path]["get"]["security"] = []
        app.openapi_schema = document
    return app.openapi_schema


def _describe(schema: dict[str, Any], table: FieldTable) -> None:
    """Adds what the table says: of a refused field the values that pass; a null is a field that was not given."""
    properties = schema["properties"]
    for name, field in table.items():
        if field.kind is Kind.REFUSED:
            properties[name] = {"enum": [None, *field.neutral], "description": f"refused: {field.why}"}
        elif name in schema.get("required", ()) or {"type": "null"} in properties[name].get("anyOf", ()):
            properties[name]["description"] = field.why
        else:
            properties[name] = {"anyOf": [properties[name], {"type": "null"}], "description": field.why}
