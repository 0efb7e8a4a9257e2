"""JSON Schema: what of it is enforced, what is refused, and the plain schema that the backend gets."""

from __future__ import annotations

from typing import Any

from forebay.structured.json_schema.walker import Schema, Walker
from forebay.structured.limits import GrammarLimits

__all__ = ["Schema", "rewrite_schema"]


def rewrite_schema(document: Any, limits: GrammarLimits, *, strict: bool = False) -> Schema:
    """A schema that matches the same values, of keywords the backend enforces exactly.

    document: parsed JSON. strict: hold it to OpenAI's rules for strict schemas too. Refusal: what cannot be enforced,
    with the JSON pointer of the keyword and the reason.
    """
    return Walker(document, limits, strict=strict).rewritten()
