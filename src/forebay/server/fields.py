"""How the rows of a field table are written. What they mean: openai/fields.py."""

from __future__ import annotations

from typing import Any

from forebay.server.openai.fields import Field, FieldTable, Kind, check_fields


def used(why: str) -> Field:
    return Field(Kind.USED, why)


def noted(why: str) -> Field:
    return Field(Kind.NOTED, why)


def refused(why: str, *neutral: Any) -> Field:
    """neutral: the values that change nothing, which pass."""
    return Field(Kind.REFUSED, why, neutral)


def check_object(fields: dict[str, Any], name: str, table: FieldTable, where: str = "") -> None:
    """Check the object in `fields[name]`, if there is one, by a table of its own. where: path of `fields`."""
    if isinstance(value := fields.get(name), dict):
        fields[name] = check_fields(value, table, f"{where}.{name}" if where else name)
