"""What OpenAI demands of a schema with `"strict": true`, beyond what is demanded of all.

Source: OpenAI, Structured Outputs, "Supported schemas": objects list all their properties as required and allow no
others, and the root is an object. Keywords that OpenAI does not support there are accepted, as they are enforced here.
"""

from __future__ import annotations

from typing import Any

from forebay.structured.refusal import Pointer, Refusal


def check_strict_root(root: Any) -> None:
    if not isinstance(root, dict) or root.get("type") != "object" or "anyOf" in root:
        raise Refusal('the root of a strict schema must have "type": "object" and no anyOf', ())


def check_strict(schema: dict[str, Any], at: Pointer) -> None:
    """Of one subschema. Refusal: an object that is open, or has optional properties."""
    types = schema.get("type")
    is_object = "object" in (types if isinstance(types, list) else [types])
    if not is_object and "properties" not in schema:
        return
    if schema.get("additionalProperties") is not False:
        raise Refusal("an object of a strict schema needs additionalProperties: false", (*at, "additionalProperties"))
    required = schema.get("required")
    named = set(required) if isinstance(required, list) else set()
    missing = [name for name in schema.get("properties", {}) if name not in named]
    if missing:
        raise Refusal(
            f"a strict schema must require every property; {missing[0]!r} is not (make it nullable instead)",
            (*at, "required"),
        )
