"""What is done with each keyword of JSON Schema: enforced, an annotation, or refused for a reason."""

from __future__ import annotations

from typing import Final

ANNOTATIONS: Final = frozenset({
    "title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly",
})  # fmt: skip

# Schemas for others to refer to, which say nothing by themselves.
CONTAINERS: Final = frozenset({"$defs", "definitions"})

# Read where they stand, in walker.py.
IDENTIFIERS: Final = frozenset({"$schema", "$id", "id"})

ENFORCED: Final = frozenset({
    "type", "enum", "const", "allOf", "anyOf", "oneOf", "$ref",
    "properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties",
    "items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems",
    "minLength", "maxLength", "pattern", "format",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
})  # fmt: skip

_NEGATION = "a grammar cannot say what must not match"
_COUNTS_MATCHES = "a grammar cannot count the items that match"
_DEPENDS = "a grammar cannot make one property depend on another"
_SEEN_ELSEWHERE = "a grammar cannot know what other keywords have looked at"
_ENCODED = "a grammar cannot look inside an encoded text"
_NAMED = "only references by JSON pointer are supported"
REFUSED: Final[dict[str, str]] = {
    "not": _NEGATION,
    "if": _NEGATION,
    "then": _NEGATION,
    "else": _NEGATION,
    "contains": _COUNTS_MATCHES,
    "minContains": _COUNTS_MATCHES,
    "maxContains": _COUNTS_MATCHES,
    "dependentRequired": _DEPENDS,
    "dependentSchemas": _DEPENDS,
    "dependencies": _DEPENDS,
    "unevaluatedProperties": _SEEN_ELSEWHERE,
    "unevaluatedItems": _SEEN_ELSEWHERE,
    "propertyNames": "constrain names with patternProperties and additionalProperties: false",
    "contentEncoding": _ENCODED,
    "contentMediaType": _ENCODED,
    "contentSchema": _ENCODED,
    "$anchor": _NAMED,
    "$dynamicAnchor": _NAMED,
    "$dynamicRef": _NAMED,
    "$recursiveAnchor": _NAMED,
    "$recursiveRef": _NAMED,
    "$vocabulary": "only the standard vocabularies are supported",
}

DRAFTS: Final[dict[str, str]] = {
    "json-schema.org/draft-04/schema": "draft-04",
    "json-schema.org/draft-06/schema": "draft-06",
    "json-schema.org/draft-07/schema": "draft-07",
    "json-schema.org/draft/2019-09/schema": "2019-09",
    "json-schema.org/draft/2020-12/schema": "2020-12",
}
TYPES: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
