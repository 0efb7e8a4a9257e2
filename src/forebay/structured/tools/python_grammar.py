"""Keyword arguments as in Python, f(a=1, b="x"), as grammar rules made from the JSON schema of the parameters.

Values are JSON, which PythonArguments reads as well: so every schema of a value is enforced as it is anywhere else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Final

from forebay.structured.json_schema import Schema
from forebay.structured.refusal import Refusal
from forebay.structured.tools.python_arguments import ARGUMENT_NAME

ToJson = Callable[[Schema], str]

_OF_CALL: Final = frozenset(("type", "properties", "required", "additionalProperties", "$defs"))


def python_arguments(schema: Schema, name: str, to_json: ToJson) -> list[str]:
    """Rules for what stands between the parentheses; the last of them is called `name`.

    schema: of the parameters, an object, rewritten (`rewrite_schema`). to_json: a schema as an expression.
    Arguments come in the order of `properties`, then those that only `required` names; others only where the schema
    names none. Refusal: what keyword arguments cannot have.
    """
    for keyword in schema:
        if keyword not in _OF_CALL:
            raise Refusal("a model that writes calls as in Python needs a plain list of properties", (keyword,))
    shared = {"$defs": schema["$defs"]} if "$defs" in schema else {}

    def value(item: Schema | bool) -> str:
        return to_json({**item, **shared} if isinstance(item, dict) else {})  # true, as false is left out

    if not schema.get("properties") and not schema.get("required"):
        return _any_arguments(name, schema, value)
    members = [
        (f"{name}_{i}", f"{json.dumps(f'{key}=', ensure_ascii=False)} {value(item)}", required)
        for i, (key, item, required) in enumerate(_members(schema))
    ]
    return _in_order(name, members)


def _any_arguments(name: str, schema: Schema, value: Callable[[Schema | bool], str]) -> list[str]:
    others = schema.get("additionalProperties", True)
    if others is False:
        return [f'{name}: ""']
    one = f'{name}_one: /[A-Za-z_][A-Za-z0-9_]*/ "=" {value(others)}'
    return [one, f'{name}: ({name}_one (", " {name}_one)*)?']


def _members(schema: Schema) -> Iterator[tuple[str, Schema | bool, bool]]:
    """(key, its schema, required) in order."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    for key, item in properties.items():
        _check(key, item, key in required, ("properties", key))
        if item is not False:
            yield key, item, key in required
    for i, key in enumerate(required):
        if key not in properties:
            item = schema.get("additionalProperties", True)
            _check(key, item, True, ("required", i))
            yield key, item, True


def _check(key: str, item: Schema | bool, required: bool, at: tuple[str | int, ...]) -> None:
    if not ARGUMENT_NAME.fullmatch(key):
        raise Refusal("an argument of a call as in Python cannot have this name", at)
    if required and item is False:
        raise Refusal("is required, but no value is allowed", at)


def _in_order(name: str, members: list[tuple[str, str, bool]]) -> list[str]:
    """Members (rule name, expression, required) with commas between; those that are not required may be missing."""
    rules: list[str] = []
    starts: list[str] = []  # members that may come first, last one first
    rest = ""  # what may follow a member
    for rule, text, required in reversed(members):
        rules += [f"{rule}: {text}", f"{rule}_first: {rule} {rest}".rstrip()]
        starts = [f"{rule}_first"] if required else [*starts, f"{rule}_first"]
        more = f'", " {rule}' if required else f'(", " {rule})?'
        rules.append(f"{rule}_rest: {more} {rest}".rstrip())
        rest = f"{rule}_rest"
    optional = "" if any(required for _, _, required in members) else "?"
    return [*rules, f"{name}: ({' | '.join(reversed(starts))}){optional}"]
