"""`propertyNames`, where it says which names there are or what all of them look like."""

from __future__ import annotations

from typing import Any, Final

from forebay.structured.json_schema.keywords import ANNOTATIONS
from forebay.structured.json_schema.refs import resolve
from forebay.structured.refusal import Pointer

_MAX_HOPS: Final = 8
_LENGTHS: Final = frozenset({"minLength", "maxLength"})


def names_rule(root: Any, base: str, schema: Any, at: Pointer) -> list[str] | str | None:
    """The names themselves, or a pattern (ECMA-262) that they match, or None where neither says it all.

    root, base: the document and its `$id`, for a `$ref`. Refusal: a reference that leads nowhere.
    """
    for _ in range(_MAX_HOPS):
        if not isinstance(schema, dict):
            return None
        rules = {keyword: value for keyword, value in schema.items() if keyword not in ANNOTATIONS}
        if rules.keys() != {"$ref"}:
            break
        _, schema = resolve(root, base, rules["$ref"], (*at, "$ref"))
    if rules.pop("type", "string") != "string":
        return None
    if rules.keys() == {"enum"} and isinstance(rules["enum"], list):
        return [name for name in rules["enum"] if isinstance(name, str)]
    if rules.keys() == {"const"}:
        return [rules["const"]] if isinstance(rules["const"], str) else []
    if rules.keys() == {"pattern"}:
        return rules["pattern"] if isinstance(rules["pattern"], str) else None
    low, high = rules.get("minLength", 0), rules.get("maxLength", "")
    if rules.keys() <= _LENGTHS and type(low) is int and (high == "" or type(high) is int):
        return f"^[^]{{{low},{high}}}$"
    return None
