"""A JSON Schema of a client, keyword by keyword, into one that the backend enforces exactly, or a refusal.

What comes out is plain draft 2020-12 of few keywords, in an order that does not depend on the client's: annotations are
gone, references all lead to `$defs`, formats and patterns are patterns of a Rust engine, tuples are `prefixItems`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from forebay.structured.json_schema.cycles import check_cycles
from forebay.structured.json_schema.exclusive import settle_one_of
from forebay.structured.json_schema.formats import FORMAT_MAX_LENGTH, FORMATS, NUMBER_FORMATS, format_pattern
from forebay.structured.json_schema.intersections import check_intersections
from forebay.structured.json_schema.keywords import (
    ANNOTATIONS,
    CONTAINERS,
    DRAFTS,
    ENFORCED,
    FOREIGN,
    IDENTIFIERS,
    IN_PLACE,
    REFUSED,
    TYPES,
    is_vacuous,
    misspelt,
)
from forebay.structured.json_schema.names import names_rule
from forebay.structured.json_schema.numbers import (
    LARGEST,
    LARGEST_INTEGER,
    check_range,
    exact_multiple,
    exact_number,
    is_number,
    multiples_combine,
    open_bound,
)
from forebay.structured.json_schema.properties import keep_num_properties
from forebay.structured.json_schema.refs import resolve
from forebay.structured.json_schema.strict import check_strict, check_strict_root
from forebay.structured.limits import GrammarLimits
from forebay.structured.refusal import Pointer, Refusal, shown
from forebay.structured.regex import search_pattern, unwritable

Schema = dict[str, Any]
_KNOWN: Final = ENFORCED | ANNOTATIONS | CONTAINERS | IDENTIFIERS
_ROOT: Final = "root"


class Walker:
    """Walks one document; `rewritten()` is its only use."""

    def __init__(self, root: Any, limits: GrammarLimits, *, strict: bool = False) -> None:
        self._root = root
        self._limits = limits
        self._strict = strict
        self._draft = _draft(root)
        self._base = next((root[k] for k in ("$id", "id") if isinstance(root, dict) and _is_text(root.get(k))), "")
        self._names: dict[Pointer, str] = {}
        self._waiting: list[tuple[Pointer, Any]] = []
        self._num_schemas = 0
        self._num_enum_values = 0
        self._unknown: set[str] = set()
        self._multiples: set[tuple[int, int]] = set()
        self._one_of: dict[int, Pointer] = {}  # id of a rewritten schema -> where its oneOf stands
        self._open_bounds: list[tuple[Schema, Pointer]] = []  # those of numbers with an exclusive bound
        self._rebased: Pointer | None = None  # the `$id` of its own of the subschema walked, or of one around it

    def rewritten(self) -> Schema:
        """The schema to compile. Refusal, with the pointer of the keyword: what cannot be enforced."""
        if self._strict:
            check_strict_root(self._root)
        definitions = {_ROOT: self._schema(self._root, ())}
        places: dict[str, Pointer] = {_ROOT: ()}
        while self._waiting:
            pointer, target = self._waiting.pop()
            self._draft, self._rebased = _surroundings(self._root, pointer)
            definitions[self._names[pointer]] = self._schema(target, pointer)
        places |= {name: pointer for pointer, name in self._names.items()}
        if not multiples_combine(self._multiples):
            raise Refusal("the multipleOf of this schema are too large to be combined exactly", ())
        check_cycles(definitions, places)
        check_intersections(definitions, places, self._limits.max_intersections)
        settle_one_of(definitions, self._one_of)
        for schema, at in self._open_bounds:
            _settle_bounds(schema, at)
        root = definitions.pop(_ROOT)
        if root is False:
            raise Refusal("nothing matches false", ())
        root = {} if root is True else root
        return {**root, "$defs": definitions} if definitions else root

    def _schema(self, node: Any, at: Pointer) -> Schema | bool:
        self._num_schemas += 1
        if self._num_schemas > self._limits.max_schemas:
            raise Refusal(f"more than {self._limits.max_schemas} subschemas", at)
        if isinstance(node, bool):
            return node
        if not isinstance(node, dict):
            raise Refusal("a schema must be an object or true or false", at)
        around = self._draft, self._rebased
        self._draft, self._rebased = _inside(node, at, *around)
        self._check_keywords(node, at)
        if self._strict:
            check_strict(node, at)
        out: Schema = {}
        for part in (self._type, self._object, self._array, self._string, self._number, self._values, self._combined):
            part(node, at, out)
        self._draft, self._rebased = around
        return out

    def _check_keywords(self, node: Schema, at: Pointer) -> None:
        for keyword in node:
            if keyword in _KNOWN or is_vacuous(node, keyword) or self._is_rewritten(node, keyword):
                continue
            reason = REFUSED.get(keyword) or FOREIGN.get(keyword)
            if reason is not None:
                raise Refusal(f"{keyword} cannot be enforced: {reason}", (*at, keyword))
            self._check_unknown(keyword, at)

    def _is_rewritten(self, node: Schema, keyword: str) -> bool:
        """Whether a refused keyword says here what another one can say: see `_object` and `_array`."""
        if keyword in ("unevaluatedProperties", "unevaluatedItems"):
            return IN_PLACE.isdisjoint(node)
        return keyword == "propertyNames" and "patternProperties" not in node

    def _check_unknown(self, keyword: str, at: Pointer) -> None:
        """The standard takes an unknown keyword for an annotation; one that was meant to be another is none."""
        if self._strict:
            raise Refusal("unknown keyword, which a strict schema may not have", (*at, keyword))
        self._unknown.add(keyword)
        if len(self._unknown) > self._limits.max_unknown:
            raise Refusal(f"more than {self._limits.max_unknown} different unknown keywords", (*at, keyword))
        meant = misspelt(keyword)
        if meant:
            raise Refusal(f"unknown keyword, which would not be enforced; did you mean {meant!r}?", (*at, keyword))

    def _type(self, node: Schema, at: Pointer, out: Schema) -> None:
        if "type" not in node:
            return
        types = node["type"]
        names = types if isinstance(types, list) else [types]
        if not names or any(not isinstance(name, str) or name not in TYPES for name in names):
            raise Refusal(f"must be one or more of {', '.join(sorted(TYPES))}", (*at, "type"))
        out["type"] = types

    def _object(self, node: Schema, at: Pointer, out: Schema) -> None:
        if "properties" in node:
            out["properties"] = self._schemas_by_name(node, "properties", at)
        if "patternProperties" in node:
            found = self._schemas_by_name(node, "patternProperties", at)
            out["patternProperties"] = {
                self._pattern(pattern, (*at, "patternProperties", pattern)): schema for pattern, schema in found.items()
            }
            if len(out["patternProperties"]) < len(found):
                raise Refusal("two patterns mean the same; make them one", (*at, "patternProperties"))
        others = "additionalProperties" if "additionalProperties" in node else "unevaluatedProperties"
        if others in node:
            out["additionalProperties"] = self._schema(node[others], (*at, others))
        if "propertyNames" in node and not is_vacuous(node, "propertyNames"):
            self._property_names(node, at, out)
        required = node.get("required", [])
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise Refusal("must be a list of names", (*at, "required"))
        if required:
            out["required"] = list(dict.fromkeys(required))
        self._counts(node, at, out, "minProperties", "maxProperties")
        keep_num_properties(out, at)

    def _property_names(self, node: Schema, at: Pointer, out: Schema) -> None:
        names = names_rule(self._root, self._base, node["propertyNames"], (*at, "propertyNames"))
        others = out.get("additionalProperties", True)
        if isinstance(names, list):
            properties, allowed = out.get("properties", {}), set(names)
            out["properties"] = {name: schema if name in allowed else False for name, schema in properties.items()}
            out["properties"] |= {name: others for name in names if name not in properties}
        elif names is not None and not node.get("properties"):
            out["patternProperties"] = {self._pattern(names, (*at, "propertyNames")): others}
        else:
            raise Refusal(f"propertyNames cannot be enforced: {REFUSED['propertyNames']}", (*at, "propertyNames"))
        out["additionalProperties"] = False

    def _array(self, node: Schema, at: Pointer, out: Schema) -> None:
        self._counts(node, at, out, "minItems", "maxItems")
        if node.get("uniqueItems", False) is not False and out.get("maxItems", 2) > 1:
            raise Refusal("uniqueItems cannot be enforced: a grammar does not remember", (*at, "uniqueItems"))
        first, rest = ("items", "additionalItems") if isinstance(node.get("items"), list) else ("prefixItems", "items")
        if first == "items" and (self._draft == "2020-12" or "prefixItems" in node):
            raise Refusal("a list of items is called prefixItems", (*at, "items"))
        if "prefixItems" in node and self._draft not in ("", "2020-12"):
            raise Refusal(f"prefixItems is not a keyword of {self._draft}, which this schema says it is of", at)
        if first in node:
            out["prefixItems"] = self._schema_list(node, first, at)
        if rest not in node and "unevaluatedItems" in node:
            rest = "unevaluatedItems"
        if rest in node:
            out["items"] = self._schema(node[rest], (*at, rest))

    def _string(self, node: Schema, at: Pointer, out: Schema) -> None:
        self._counts(node, at, out, "minLength", "maxLength")
        patterns = []
        if "pattern" in node:
            patterns.append(self._pattern(node["pattern"], (*at, "pattern")))
        name = node.get("format")
        if isinstance(name, str) and name in FORMATS:
            patterns.append(format_pattern(name))
            if name in FORMAT_MAX_LENGTH:
                out["maxLength"] = min(FORMAT_MAX_LENGTH[name], out.get("maxLength", FORMAT_MAX_LENGTH[name]))
        if patterns:
            out["pattern"] = patterns[0]
        if len(patterns) > 1:
            out["allOf"] = [*out.get("allOf", []), *({"pattern": pattern} for pattern in patterns[1:])]

    def _number(self, node: Schema, at: Pointer, out: Schema) -> None:
        for bound in ("minimum", "maximum"):
            exclusive = f"exclusive{bound.capitalize()}"
            if bound in node:
                out[bound] = exact_number(node[bound], (*at, bound), integers=out.get("type") == "integer")
            if exclusive not in node:
                continue
            if isinstance(node[exclusive], bool) and self._draft == "draft-04":
                if bound not in node:
                    raise Refusal(f"needs {bound} beside it", (*at, exclusive))
                if node[exclusive]:
                    out[exclusive] = out.pop(bound)
            else:
                out[exclusive] = exact_number(node[exclusive], (*at, exclusive), integers=out.get("type") == "integer")
        if "format" in node:
            self._number_format(node["format"], (*at, "format"), out)
        check_range(out, at)
        if "exclusiveMinimum" in out or "exclusiveMaximum" in out:
            self._open_bounds.append((out, at))
        if "multipleOf" in node:
            self._multiples.add(exact_multiple(node["multipleOf"], (*at, "multipleOf")))
            out["multipleOf"] = node["multipleOf"]

    def _number_format(self, name: Any, at: Pointer, out: Schema) -> None:
        if not isinstance(name, str) or name not in FORMATS.keys() | NUMBER_FORMATS.keys():
            known = ", ".join((*FORMATS, *NUMBER_FORMATS))
            raise Refusal(f"format {shown(str(name))!r} is not checked here; {known} are", at)
        bits = NUMBER_FORMATS.get(name)
        if bits is not None:
            most = min(2 ** (bits - 1), LARGEST_INTEGER if out.get("type") == "integer" else LARGEST)
            out["minimum"] = max(-most, out.get("minimum", -most))
            out["maximum"] = min(most if most != 2**31 else most - 1, out.get("maximum", most))

    def _values(self, node: Schema, at: Pointer, out: Schema) -> None:
        if "enum" in node:
            if not isinstance(node["enum"], list) or not node["enum"]:
                raise Refusal("must be a list of one value or more", (*at, "enum"))
            out["enum"] = node["enum"]
            self._check_values(node["enum"], (*at, "enum"))
        if "const" in node:
            out["const"] = node["const"]
            self._check_values([node["const"]], (*at, "const"))

    def _check_values(self, values: Iterable[Any], at: Pointer) -> None:
        for value in values:
            self._num_enum_values += 1
            if self._num_enum_values > self._limits.max_enum_values:
                raise Refusal(f"more than {self._limits.max_enum_values} values", at)
            if is_number(value):
                exact_number(value, at)
            elif isinstance(value, str) and (char := unwritable(value)):
                raise Refusal(f"holds U+{ord(char):04X}, which strings cannot hold here: there is no \\u escape", at)
            elif isinstance(value, dict | list):
                self._check_values(value.values() if isinstance(value, dict) else value, at)

    def _combined(self, node: Schema, at: Pointer, out: Schema) -> None:
        for keyword in ("allOf", "anyOf", "oneOf"):
            if keyword in node:
                found = self._schema_list(node, keyword, at)
                if not found:
                    raise Refusal("must not be empty", (*at, keyword))
                out[keyword] = [*out.get(keyword, []), *found]
                if keyword == "oneOf":
                    self._one_of[id(out)] = (*at, keyword)
        if "$ref" in node:
            address = str(node["$ref"]).partition("#")[0]
            if self._rebased is not None and (not address or address != self._base.partition("#")[0]):
                raise Refusal("an $id changes where the references inside its schema lead; remove it", self._rebased)
            pointer, target = resolve(self._root, self._base, node["$ref"], (*at, "$ref"))
            if pointer not in self._names:
                self._names[pointer] = f"d{len(self._names)}"
                self._waiting.append((pointer, target))
            out["$ref"] = f"#/$defs/{self._names[pointer]}"

    def _schemas_by_name(self, node: Schema, keyword: str, at: Pointer) -> Schema:
        found = node[keyword]
        if not isinstance(found, dict):
            raise Refusal("must be an object of schemas", (*at, keyword))
        return {name: self._schema(schema, (*at, keyword, name)) for name, schema in found.items()}

    def _schema_list(self, node: Schema, keyword: str, at: Pointer) -> list[Schema | bool]:
        found = node[keyword]
        if not isinstance(found, list):
            raise Refusal("must be a list of schemas", (*at, keyword))
        return [self._schema(schema, (*at, keyword, i)) for i, schema in enumerate(found)]

    def _counts(self, node: Schema, at: Pointer, out: Schema, *keywords: str) -> None:
        for keyword in keywords:
            if keyword in node:
                value = node[keyword]
                whole = is_number(value) and value % 1 == 0  # an infinity is no integer
                most = self._limits.max_length if keyword.endswith("Length") else self._limits.max_count
                if not whole or not 0 <= value <= most:
                    raise Refusal(f"must be an integer from 0 to {most}", (*at, keyword))
                out[keyword] = int(value)

    def _pattern(self, pattern: Any, at: Pointer) -> str:
        if not isinstance(pattern, str):
            raise Refusal("must be a string", at)
        try:
            return search_pattern(pattern, self._limits)
        except Refusal as refusal:
            raise Refusal(refusal.reason, at) from None


def _settle_bounds(schema: Schema, at: Pointer) -> None:
    """Exclusive bounds as the backend is to get them."""
    if schema.get("type") == "integer":
        return
    for exclusive, upper in (("exclusiveMinimum", False), ("exclusiveMaximum", True)):
        if exclusive in schema:
            schema[exclusive] = open_bound(schema[exclusive], (*at, exclusive), upper=upper)


def _inside(node: Any, at: Pointer, draft: str, rebased: Pointer | None) -> tuple[str, Pointer | None]:
    """The draft inside a schema, and the `$id` below the root that references in it are relative to."""
    if not isinstance(node, dict):
        return draft, rebased
    if "$schema" in node:
        draft = _draft(node, at)
    identifier = "id" if draft == "draft-04" else "$id"
    if at and _is_text(node.get(identifier)) and not node[identifier].startswith("#"):
        rebased = (*at, identifier)
    return draft, rebased


def _surroundings(root: Any, pointer: Pointer) -> tuple[str, Pointer | None]:
    """`_inside` what is around the place that a pointer leads to."""
    draft, rebased = "", None
    for depth, step in enumerate(pointer):
        draft, rebased = _inside(root, pointer[:depth], draft, rebased)
        root = root[step]
    return draft, rebased


def _draft(node: Any, at: Pointer = ()) -> str:
    """The name of the draft a document says it is of, "" where it says none."""
    if not isinstance(node, dict) or "$schema" not in node:
        return ""
    name = node["$schema"]
    plain = name.removeprefix("https://").removeprefix("http://").rstrip("#") if isinstance(name, str) else ""
    if plain not in DRAFTS:
        raise Refusal(f"unknown draft {shown(str(name))!r}; {', '.join(DRAFTS.values())} are known", (*at, "$schema"))
    return DRAFTS[plain]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
