"""What is done with each keyword of JSON Schema: enforced, an annotation, or refused for a reason."""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import Any, Final

# The standard takes contentEncoding and its kin for annotations as well, and OpenAPI discriminator.
ANNOTATIONS: Final = frozenset({
    "title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly",
    "contentEncoding", "contentMediaType", "contentSchema", "discriminator",
})  # fmt: skip

# Schemas for others to refer to, which say nothing by themselves.
CONTAINERS: Final = frozenset({"$defs", "definitions"})

# Read where they stand, in walker.py; anchors say nothing by themselves.
IDENTIFIERS: Final = frozenset({"$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"})

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
    "propertyNames": "only enum, const, or a pattern or lengths beside no properties, are taken of it",
    "$dynamicRef": _NAMED,
    "$recursiveRef": _NAMED,
    "$vocabulary": "only the standard vocabularies are supported",
}

# Schemas of the very value that another schema is of, which unevaluatedProperties and unevaluatedItems look into.
IN_PLACE: Final = frozenset({
    "$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies", "contains",
    "$dynamicRef", "$recursiveRef",
})  # fmt: skip

# Keywords of other dialects that say what may match: OpenAPI 3.0, draft 3, ajv-keywords, and the backend's own.
FOREIGN: Final[dict[str, str]] = {
    "nullable": 'it is OpenAPI; put "null" into type',
    "disallow": "it is draft 3",
    "divisibleBy": "it is draft 3; write multipleOf",
    "extends": "it is draft 3; write allOf",
    "min": "write minimum, minLength, minItems or minProperties",
    "max": "write maximum, maxLength, maxItems or maxProperties",
    **dict.fromkeys(
        ("allRequired", "anyRequired", "oneRequired", "patternRequired", "deepRequired", "deepProperties", "prohibited",
         "instanceof", "typeof", "regexp", "range", "exclusiveRange", "uniqueItemProperties",
         "formatMinimum", "formatMaximum", "formatExclusiveMinimum", "formatExclusiveMaximum"),
        "it is an extension of another validator",
    ),
    "x-guidance": "options of the backend are not for a schema to set",
}  # fmt: skip

# What a refused keyword may say without forbidding anything: the value, or that another keyword is not there.
_VACUOUS: Final[dict[str, tuple[Any, ...]]] = {
    "not": (False,),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "dependencies": ({},),
    "unevaluatedProperties": (True, {}),
    "unevaluatedItems": (True, {}),
    "propertyNames": (True, {}),
    "nullable": (False,),
}
_MEANS_NOTHING_WITHOUT: Final[dict[str, frozenset[str]]] = {
    "if": frozenset({"then", "else"}),
    "then": frozenset({"if"}),
    "else": frozenset({"if"}),
    "minContains": frozenset({"contains"}),
    "maxContains": frozenset({"contains"}),
}
_EXTENSION: Final = ("x-", "X-", "_", "@")  # how names begin that nobody takes for the standard's
_ALIKE: Final = 0.84

DRAFTS: Final[dict[str, str]] = {
    "json-schema.org/draft-04/schema": "draft-04",
    "json-schema.org/draft-06/schema": "draft-06",
    "json-schema.org/draft-07/schema": "draft-07",
    "json-schema.org/draft/2019-09/schema": "2019-09",
    "json-schema.org/draft/2020-12/schema": "2020-12",
}
TYPES: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})


def is_vacuous(schema: dict[str, Any], keyword: str) -> bool:
    """Whether a keyword that cannot be enforced forbids nothing where it stands."""
    needed = _MEANS_NOTHING_WITHOUT.get(keyword)
    if needed is not None and needed.isdisjoint(schema):
        return True
    return any(schema[keyword] is value or (value == {} == schema[keyword]) for value in _VACUOUS.get(keyword, ()))


@lru_cache(maxsize=4096)
def misspelt(keyword: str) -> str | None:
    """The keyword that an unknown one looks like, if that one would say what may match."""
    if keyword.startswith(_EXTENSION):
        return None
    plain = {name.lower(): name for name in (*ENFORCED, *REFUSED, *CONTAINERS, *IDENTIFIERS, *ANNOTATIONS)}
    letters = sorted(keyword.lower())
    anagram = next((name for text, name in plain.items() if sorted(text) == letters), None)
    near = difflib.get_close_matches(keyword.lower(), plain, n=1, cutoff=_ALIKE)
    found = anagram or (plain[near[0]] if near else None)
    return found if found not in ANNOTATIONS else None
