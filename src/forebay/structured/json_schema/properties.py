"""Counts of properties: which of them a grammar of properties in a fixed order can keep."""

from __future__ import annotations

from typing import Any, Final

from forebay.structured.json_schema.keywords import TYPES
from forebay.structured.refusal import Pointer, Refusal

_MAX_OPTIONAL: Final = 64  # properties of which at least one is demanded


def keep_num_properties(schema: dict[str, Any], at: Pointer) -> None:
    """Rewrite the counts of one rewritten schema; those that its other keywords keep anyway are taken out of it.

    Refusal: a least number of names that are not in `required`, which a grammar lets repeat, or any number of optional
    properties, but for one of them.
    """
    properties, required = schema.get("properties", {}), set(schema.get("required", ()))
    optional = [name for name, value in properties.items() if name not in required and value is not False]
    closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    if schema.get("minProperties", 0) <= len(required):
        schema.pop("minProperties", None)
    if closed and schema.get("maxProperties", 0) >= len(required) + len(optional):
        schema.pop("maxProperties", None)
    more = schema.get("minProperties", 0) - len(required)
    if more > 1:
        reason = "names that are not in required cannot be counted past one, as a grammar lets them repeat"
        raise Refusal(reason, (*at, "minProperties"))
    if "maxProperties" in schema and optional and not (closed and schema["maxProperties"] - len(required) == 1):
        reason = "can be kept only where all of properties are required, or one of them and no other name is allowed"
        raise Refusal(reason, (*at, "maxProperties"))
    if more == 1 and optional and not closed and "maxProperties" not in schema:
        _demand_one(schema, optional, at)


def _demand_one(schema: dict[str, Any], optional: list[str], at: Pointer) -> None:
    """Of `minProperties`, where one more name than the required ones is needed: a property, or else another name."""
    if len(optional) > _MAX_OPTIONAL:
        reason = f"with more than {_MAX_OPTIONAL} properties that are not required it cannot be kept"
        raise Refusal(reason, (*at, "minProperties"))
    least = schema.pop("minProperties")
    alternatives: list[dict[str, Any]] = [{"type": "object", "required": [name]} for name in optional]
    others = {"type": "object", "properties": dict.fromkeys(optional, False), "minProperties": least}
    no_object = {"type": sorted(TYPES - {"object"})}
    schema["allOf"] = [*schema.get("allOf", []), {"anyOf": [*alternatives, others, no_object]}]
