"""Whether two rewritten schemas exclude each other, so that a `oneOf` of them is no more than an `anyOf`.

What is decided is decided by types, by values of `enum` and `const`, by bounds and counts, and by properties that one
of the two requires: the ways in which the alternatives of a tagged union differ. What these do not tell apart counts
as overlapping.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from forebay.structured.json_schema.keywords import TYPES
from forebay.structured.refusal import Pointer, Refusal

_COMBINED: Final = frozenset({"allOf", "anyOf", "oneOf"})
_PREFIX: Final = "#/$defs/"
_MAX_STEPS: Final = 400_000  # schemas looked at in one document and values they list, for each pair anew
_MAX_DEPTH: Final = 30  # properties inside each other
_COUNTS: Final = {
    "string": (("minLength",), ("maxLength",)),
    "array": (("minItems",), ("maxItems",)),
    "object": (("minProperties",), ("maxProperties",)),
    "integer": (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")),
    "number": (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")),
}

Parts = tuple[Any, ...]  # schemas that must all match


def settle_one_of(definitions: dict[str, Any], places: Mapping[int, Pointer]) -> None:
    """Make each `oneOf` of alternatives that exclude each other an `anyOf`. places: id of schema -> where its oneOf is.

    Refusal: alternatives that may both match.
    """
    judge, settled = _Judge(definitions), []
    for schema in definitions.values():
        for inner, context in _in_context(schema, ()):
            pair = judge.overlapping(inner["oneOf"], context) if "oneOf" in inner else None
            if pair is not None:
                raise Refusal(
                    f"oneOf cannot be enforced: alternatives {pair[0]} and {pair[1]} may both match; "
                    "give them types or a required property of which the values differ, or write anyOf",
                        places[id(inner)],
                )  # fmt: skip
            settled += [inner] if "oneOf" in inner else []
    for schema in settled:  # not before: alternatives may have a oneOf themselves
        alternatives = schema.pop("oneOf")
        if "anyOf" in schema:
            schema["allOf"] = [*schema.get("allOf", []), {"anyOf": alternatives}]
        else:
            schema["anyOf"] = alternatives


def _in_context(schema: Any, context: Parts) -> Iterator[tuple[dict[str, Any], Parts]]:
    """A schema and all inside it, each with what else its value must match as far as the schemas around it tell."""
    if not isinstance(schema, dict):
        return
    context = (*context, {keyword: value for keyword, value in schema.items() if keyword not in _COMBINED})
    yield schema, context
    for keyword, value in schema.items():
        if keyword in _COMBINED:
            for part in value:
                yield from _in_context(part, context)
        elif keyword in ("properties", "patternProperties"):
            for part in value.values():
                yield from _in_context(part, ())
        elif keyword in ("additionalProperties", "items", "prefixItems"):
            for part in value if isinstance(value, list) else [value]:
                yield from _in_context(part, ())


class _Judge:
    """Of the schemas of one document. What takes it more than a fixed number of steps counts as overlapping."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._steps = 0

    def overlapping(self, alternatives: list[Any], context: Parts) -> tuple[int, int] | None:
        """The first two alternatives that may both match a value, None where no two can."""
        groups = [tuple(self._conjuncts((*context, alternative))) for alternative in alternatives]
        if self._tagged(groups):
            return None
        for j, second in enumerate(alternatives):
            for i, first in enumerate(alternatives[:j]):
                if not self.exclude((*context, first), (second,)):
                    return i, j
        return None

    def _tagged(self, groups: list[Parts]) -> bool:
        """Whether all list values, or those of a property that all require, and no value twice: seen at one look."""
        plain = [[part for part in group if isinstance(part, dict)] for group in groups]
        if _all_differ(plain):
            return True
        if any(_types(group) != {"object"} for group in plain):
            return False
        required = [{key for part in group for key in part.get("required", ())} for group in plain]
        for key in sorted(set.intersection(*required)):
            values = [list(self._conjuncts(_property(group, key))) for group in plain]
            if _all_differ([[part for part in group if isinstance(part, dict)] for group in values]):
                return True
        return False

    def exclude(self, first: Parts, second: Parts, inside: tuple[int, ...] = (), depth: int = 0) -> bool:
        """Whether no value matches both. inside: schemas whose alternatives are being gone through."""
        if self._steps > _MAX_STEPS or depth > _MAX_DEPTH:
            return False
        a, b = list(self._conjuncts(first)), list(self._conjuncts(second))
        if any(part is False for part in (*a, *b)):
            return True
        a, b = [part for part in a if part is not True], [part for part in b if part is not True]
        self._steps += sum(1 + sum(map(len, _listed(part))) for part in (*a, *b))
        if _values_apart(a, b) or all(self._apart(name, a, b, depth) for name in _types(a) & _types(b)):
            return True
        return self._alternatives_apart(a, b, inside, depth) or self._alternatives_apart(b, a, inside, depth)

    def _conjuncts(self, parts: Iterable[Any]) -> Iterator[Any]:
        """The schemas behind `$ref` and in `allOf`, each once."""
        waiting, seen = list(parts), set()
        while waiting:
            part = waiting.pop()
            if id(part) in seen and isinstance(part, dict):
                continue
            seen.add(id(part))
            yield part
            if isinstance(part, dict):
                waiting += part.get("allOf", ())
                if "$ref" in part:
                    waiting.append(self._definitions[part["$ref"].removeprefix(_PREFIX)])

    def _alternatives_apart(self, a: list[Any], b: list[Any], inside: tuple[int, ...], depth: int) -> bool:
        for part in a:
            for keyword in ("anyOf", "oneOf"):
                if keyword not in part or id(part[keyword]) in inside:
                    continue
                deeper = (*inside, id(part[keyword]))
                if all(self.exclude((*a, option), tuple(b), deeper, depth + 1) for option in part[keyword]):
                    return True
        return False

    def _apart(self, name: str, a: list[Any], b: list[Any], depth: int) -> bool:
        """Whether no value of one type matches both."""
        if name in _COUNTS and not _bounds_meet([*a, *b], *_COUNTS[name]):
            return True
        if name != "object":
            return False
        required = {key for part in (*a, *b) for key in part.get("required", ())}
        return any(self.exclude(_property(a, key), _property(b, key), (), depth + 1) for key in sorted(required))


def _types(parts: Iterable[Any]) -> set[str]:
    """The types that all parts allow; "number" is a number that is no integer."""
    found = set(TYPES)
    for part in parts:
        names = part.get("type", list(TYPES))
        allowed = set(names if isinstance(names, list) else [names])
        found &= allowed | ({"integer"} if "number" in allowed else set())
        for values in _listed(part):
            found &= {_type_of(value) for value in values}
    return found


def _property(parts: Iterable[Any], key: str) -> Parts:
    """What the value of a property must match, as far as its name alone tells."""
    found = []
    for part in parts:
        if key in part.get("properties", ()):
            found.append(part["properties"][key])
        elif "additionalProperties" in part and "patternProperties" not in part:
            found.append(part["additionalProperties"])
    return tuple(found)


def _all_differ(groups: list[list[Any]]) -> bool:
    """Whether each group lists its values, and none lists one of another's."""
    seen: set[str] = set()
    for group in groups:
        values = _values(group)
        if values is None or not seen.isdisjoint(values):
            return False
        seen |= values
    return True


def _values_apart(a: list[Any], b: list[Any]) -> bool:
    mine, theirs = _values(a), _values(b)
    return mine is not None and theirs is not None and mine.isdisjoint(theirs)


def _listed(part: Any) -> Iterator[list[Any]]:
    if "enum" in part:
        yield part["enum"]
    if "const" in part:
        yield [part["const"]]


def _values(parts: list[Any]) -> set[str] | None:
    """The values of `enum` and `const`, as text of one spelling; None where there are none, and any value may match."""
    found, types = None, _types(parts)
    for values in (values for part in parts for values in _listed(part)):
        texts = {_spelled(value) for value in values if _type_of(value) in types}
        found = texts if found is None else found & texts
    return found


def _spelled(value: Any) -> str:
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    """With one form of equal numbers: 1.0 is 1."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return int(value) if isinstance(value, float) and value == int(value) else value


def _type_of(value: Any) -> str:
    names = {str: "string", bool: "boolean", int: "integer", dict: "object", list: "array"}
    if isinstance(value, float):
        return "integer" if value == int(value) else "number"
    return names.get(type(value), "null")


def _bounds_meet(parts: list[Any], lower: tuple[str, ...], upper: tuple[str, ...]) -> bool:
    lows = [(part[k], k.startswith("exclusive")) for part in parts for k in lower if k in part]
    highs = [(part[k], k.startswith("exclusive")) for part in parts for k in upper if k in part]
    return all(
        low < high or (low == high and not (open_low or open_high))
        for low, open_low in lows
        for high, open_high in highs
    )
