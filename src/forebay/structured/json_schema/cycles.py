"""References that never come to an end: found in a rewritten schema, before a grammar loops in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from forebay.structured.refusal import Pointer, Refusal

_PREFIX: Final = "#/$defs/"
_ROUNDS: Final = 64
INSIDE: Final = ("properties", "patternProperties", "additionalProperties", "prefixItems", "items")


def check_cycles(definitions: dict[str, Any], places: Mapping[str, Pointer]) -> None:
    """definitions: name -> rewritten schema, all that `$ref` leads to and the root; places: where they stood.

    Refusal: a schema that refers to itself with nothing in between, or that only infinite values match, so that an
    output could never end.
    """
    for name in _in_place_cycle({name: set(_in_place_refs(schema)) for name, schema in definitions.items()}):
        raise Refusal("refers back to itself without a property or an item in between", places[name])
    finite = _finite(definitions)
    for name, schema in definitions.items():
        if not all(_has_finite(part, finite) for part in _parts(schema)):
            raise Refusal("contains itself again and again: no finite value matches", places[name])


def subschemas(schema: dict[str, Any], *keywords: str) -> Iterator[Any]:
    """Those that stand at these keywords, be it alone, in a list or by name."""
    for keyword in keywords:
        value = schema.get(keyword)
        if isinstance(value, list):
            yield from value
        elif isinstance(value, dict) and keyword in ("properties", "patternProperties"):
            yield from value.values()
        elif value is not None:
            yield value


def _in_place_refs(schema: Any) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    if "$ref" in schema:
        yield schema["$ref"].removeprefix(_PREFIX)
    for part in subschemas(schema, "allOf", "anyOf", "oneOf"):
        yield from _in_place_refs(part)


def _in_place_cycle(edges: Mapping[str, set[str]]) -> Iterator[str]:
    """Names that lead into a cycle: what is left when those that lead to none are taken away."""
    left = {name: len(targets) for name, targets in edges.items()}
    users: dict[str, list[str]] = {name: [] for name in edges}
    for name, targets in edges.items():
        for target in targets:
            users[target].append(name)
    done = [name for name, count in left.items() if not count]
    while done:
        name = done.pop()
        del left[name]
        for user in users[name]:
            left[user] -= 1
            if not left[user]:
                done.append(user)
    yield from left


def _parts(schema: Any) -> Iterator[Any]:
    """A schema and all inside it, but not behind a `$ref`."""
    yield schema
    if isinstance(schema, dict):
        for part in subschemas(schema, *INSIDE, "allOf", "anyOf", "oneOf"):
            yield from _parts(part)


def _finite(definitions: dict[str, Any]) -> set[str]:
    """Names of the schemas that a finite value may match: the least fixed point."""
    finite: set[str] = set()
    for _ in range(_ROUNDS):
        found = {
            name for name in reversed(definitions) if name not in finite and _has_finite(definitions[name], finite)
        }
        if not found:
            break
        finite |= found
    return finite


def _has_finite(schema: Any, finite: set[str]) -> bool:
    """False and contradictions count as finite here: the backend sees that nothing matches them."""
    if not isinstance(schema, dict):
        return True
    types = schema.get("type", "string")
    scalar = any(name not in ("object", "array") for name in (types if isinstance(types, list) else [types]))
    return (
        (scalar or "enum" in schema or "const" in schema or _container_has_finite(schema, types, finite))
        and all(_has_finite(part, finite) for part in schema.get("allOf", ()))
        and all(any(_has_finite(p, finite) for p in schema[k]) for k in ("anyOf", "oneOf") if k in schema)
        and ("$ref" not in schema or schema["$ref"].removeprefix(_PREFIX) in finite)
    )


def _container_has_finite(schema: dict[str, Any], types: str | list[str], finite: set[str]) -> bool:
    properties = schema.get("properties", {})
    others = True if "patternProperties" in schema else schema.get("additionalProperties", True)
    if "object" in types and all(_has_finite(properties.get(n, others), finite) for n in schema.get("required", ())):
        return True
    first = schema.get("prefixItems", [])
    least = schema.get("minItems", 0)
    items = [*first[:least], *([schema.get("items", True)] if least > len(first) else [])]
    return "array" in types and all(_has_finite(item, finite) for item in items)
