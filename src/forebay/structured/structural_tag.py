"""Structural tags: free text in which certain beginnings must be followed by JSON of a schema.

The form of vLLM and SGLang: {"type": "structural_tag", "structures": [{"begin", "schema", "end"}], "triggers": [...]}.
Text is free until a trigger has been written; from there on one of the structures that begin so must follow, to its
end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from forebay.structured.json_schema import Schema, rewrite_schema
from forebay.structured.json_schema.document import parse_json
from forebay.structured.lark import ANYTHING, SpecialTokens, json_text
from forebay.structured.limits import GrammarLimits
from forebay.structured.refusal import Pointer, Refusal, shown


@dataclass(frozen=True, slots=True)
class _Structure:
    trigger: str
    begin: str
    schema: Schema
    end: str


def structural_tag_lark(source: str, special: SpecialTokens, limits: GrammarLimits) -> str:
    """The grammar of a structural tag. Refusal: what is wrong with it, and where."""
    document = parse_json(source, limits)
    _check_fields(document, ("type", "structures", "triggers"), ())
    if document.get("type", "structural_tag") != "structural_tag":
        raise Refusal('must be "structural_tag"', ("type",))
    triggers = [_text(t, ("triggers", i)) for i, t in enumerate(_list(document, "triggers", limits))]
    found = [
        _structure(s, triggers, ("structures", i), limits) for i, s in enumerate(_list(document, "structures", limits))
    ]
    return "".join(_lark(found, _Writer(special)))


def _check_fields(value: Any, fields: tuple[str, ...], at: Pointer) -> None:
    if not isinstance(value, dict):
        raise Refusal("must be an object", at)
    for name in value:
        if name == "format" and not at:
            raise Refusal('the "format" form is not supported; use "structures" and "triggers"', ("format",))
        if name not in fields:
            raise Refusal(f"unknown field; {', '.join(fields)} are known", (*at, name))


def _list(document: dict[str, Any], name: str, limits: GrammarLimits) -> list[Any]:
    value = document.get(name)
    if not isinstance(value, list) or not 1 <= len(value) <= limits.max_choices:
        raise Refusal(f"must be a list of 1 to {limits.max_choices}", (name,))
    return value


def _text(value: Any, at: Pointer) -> str:
    if not isinstance(value, str) or not value:
        raise Refusal("must be a string, and not empty", at)
    return value


def _structure(value: Any, triggers: Iterable[str], at: Pointer, limits: GrammarLimits) -> _Structure:
    _check_fields(value, ("begin", "schema", "end"), at)
    begin = _text(value.get("begin"), (*at, "begin"))
    trigger = max((t for t in triggers if begin.startswith(t)), key=len, default="")
    if not trigger:
        raise Refusal(f"{shown(begin)!r} begins with none of the triggers", (*at, "begin"))
    end = value.get("end", "")
    if not isinstance(end, str):
        raise Refusal("must be a string", (*at, "end"))
    try:
        schema = rewrite_schema(value.get("schema", True), limits)
    except Refusal as refusal:
        raise Refusal(refusal.reason, (*at, "schema", *(refusal.pointer or ()))) from None
    return _Structure(trigger, begin, schema, end)


def _lark(structures: Iterable[_Structure], writer: _Writer) -> Iterable[str]:
    by_head: dict[str, list[str]] = {}
    for structure in structures:
        head, rest = writer.head(structure)
        body = (writer.literal(rest), f"%json {json_text(structure.schema)}", writer.literal(structure.end))
        by_head.setdefault(head, []).append(" ".join(part for part in body if part))
    yield f"start: ({' | '.join(f'tag{i}' for i in range(len(by_head)))})* tail\ntail: TEXT\nTEXT: /{ANYTHING}/\n"
    for i, (head, bodies) in enumerate(by_head.items()):
        special = head.startswith("<")
        yield f"head{i}{'' if special else '[lazy]'}: TEXT {head}\n"
        yield f"tag{i}: head{i} ({' | '.join(bodies)})\n"


class _Writer:
    """Texts as Lark, special tokens in them as tokens."""

    def __init__(self, special: SpecialTokens) -> None:
        self._special = special
        names = sorted(special.ids, key=len, reverse=True)
        self._split = re.compile(f"({'|'.join(map(re.escape, names))})") if names else None

    def head(self, structure: _Structure) -> tuple[str, str]:
        """What text leads up to, and the rest of `begin`. A special token at its start is all of the first."""
        parts = self._parts(structure.begin)
        if parts[0] in self._special.ids:
            return self.literal(parts[0]), structure.begin.removeprefix(parts[0])
        if len(self._parts(structure.trigger)) > 1:
            raise Refusal(f"{shown(structure.trigger)!r} has a special token inside; a trigger may only begin with one")
        return self.literal(structure.trigger), structure.begin.removeprefix(structure.trigger)

    def literal(self, text: str) -> str:
        return " ".join(map(self._part, self._parts(text)))

    def _parts(self, text: str) -> list[str]:
        return [part for part in (self._split.split(text) if self._split else [text]) if part]

    def _part(self, part: str) -> str:
        if part in self._special.ends:
            raise Refusal(f"{shown(part)!r} ends the output; leave it out, it comes by itself")
        if part in self._special.ids:
            return f"<[{self._special.ids[part]}]>"
        return json.dumps(part, ensure_ascii=False).replace("\x7f", "\\u007f")
