"""Grammars in the dialect of Lark that llguidance reads: those a client sends, checked, and those made here.

A client's grammar is scanned lexeme by lexeme, as llguidance's docs/syntax.md spells them. Schemas inside it go through
the same checks as any schema; what would change sampling, or needs a model to step back, is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from forebay.structured.json_schema import Schema, rewrite_schema
from forebay.structured.json_schema.document import dump_json, parse_json_prefix
from forebay.structured.limits import GrammarLimits
from forebay.structured.refusal import Refusal, json_pointer, shown

ANYTHING: Final = r"[\x{0}-\x{10ffff}]*"  # a pattern that all text matches

# Compact JSON, and one spelling of each string: no white space to loop in, no escape that hides a property's name.
_JSON_FORM: Final[dict[str, Any]] = {
    "whitespace_flexible": False,
    "item_separator": ",",
    "key_separator": ":",
    "json_allowed_escapes": 'nrbtf\\"',
}
_LEXEME: Final = re.compile(
    r"""(?P<skip>(?:\#|//)[^\n]*|\s+)
      | (?P<string>"(?:\\.|[^"\\\x00-\x1f\x7f])*"i?)
      | (?P<regex>/(?:\\.|[^/\\])+/[imslux]*)
      | (?P<special><[^<>\s]+>)
      | (?P<reference>@[A-Za-z0-9_\-]+)
      | (?P<directive>%[a-z]+)
      | (?P<name>!?[_?]?[A-Za-z][A-Za-z0-9_\-]*)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVES: Final = frozenset({"%ignore", "%import", "%json", "%llguidance", "%regex"})
_ATTRIBUTES: Final = frozenset({"stop", "stop_capture", "max_tokens", "temperature"})
_OPTIONS: Final = frozenset({"ignore_once", "allow_initial_skip"})


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """ids: the text of a special token -> its id. ends: the texts of those that end an output."""

    ids: Mapping[str, int] = field(default_factory=dict)
    ends: frozenset[str] = frozenset()


def json_text(schema: Schema) -> str:
    """A rewritten schema as the backend reads it, with the form its JSON shall have."""
    return dump_json({"x-guidance": _JSON_FORM, **schema})


def lark_of_pattern(pattern: str) -> str:
    """A grammar of one pattern, which is written in ASCII and without a slash."""
    return f"start: /{pattern}/\n"


def checked_lark(source: str, special: SpecialTokens, limits: GrammarLimits) -> str:
    """A client's grammar with its schemas rewritten. Refusal: what of it cannot be enforced, and on which line."""
    return _Scanner(source, special, limits).scan()


class _Scanner:
    def __init__(self, source: str, special: SpecialTokens, limits: GrammarLimits) -> None:
        self._source = source
        self._special = special
        self._limits = limits
        self._pos = 0
        self._out: list[str] = []
        self._num_rules = 0
        self._num_intersections = 0

    def scan(self) -> str:
        while self._pos < len(self._source):
            found = _LEXEME.match(self._source, self._pos)
            if not found:
                raise self._refusal("unexpected text")
            kind, text = found.lastgroup or "", found[0]
            if kind == "directive":
                self._directive(text, found.end())
                continue
            self._check(kind, text, found.end())
            self._out.append(text)
            self._pos = found.end()
        return "".join(self._out)

    def _refusal(self, reason: str) -> Refusal:
        return Refusal(f"line {1 + self._source.count(chr(10), 0, self._pos)}: {reason}")

    def _check(self, kind: str, text: str, end: int) -> None:
        if kind == "other" and text == ":":
            self._num_rules += 1
            if self._num_rules > self._limits.max_rules:
                raise self._refusal(f"more than {self._limits.max_rules} rules")
        elif kind == "other" and text == "&":
            self._num_intersections += 1
            if self._num_intersections > self._limits.max_intersections:
                raise self._refusal(f"more than {self._limits.max_intersections} intersections (&)")
        elif kind == "other" and text in ('"', "/"):
            raise self._refusal(f"a {text} that does not end")
        elif kind == "special" and text.startswith("<["):
            raise self._refusal(f"{shown(text)}: tokens by number are not supported; write the token's name")
        elif kind == "special" and text in self._special.ends:
            raise self._refusal(f"{shown(text)} ends the output; leave it out, it comes by itself")
        elif kind == "reference":
            raise self._refusal(f"{shown(text)}: there is no other grammar to refer to")
        elif kind == "name" and text in _ATTRIBUTES and re.compile(r"\s*=").match(self._source, end):
            raise self._refusal(f"[{text}=...] is not supported; the sampling parameters of the request decide")

    def _directive(self, text: str, end: int) -> None:
        if text not in _DIRECTIVES:
            raise self._refusal(f"{text} is not supported")
        self._out.append(text)
        if text in ("%json", "%llguidance", "%regex"):
            try:
                value, end = parse_json_prefix(self._source, end, self._limits)
                self._out.append(f" {self._embedded(text, value)}")
            except Refusal as refusal:
                where = "" if refusal.pointer is None else f" at {json_pointer(refusal.pointer)}"
                raise self._refusal(f"{text}{where}: {refusal.reason}") from None
        self._pos = end

    def _embedded(self, directive: str, value: Any) -> str:
        if directive == "%json":
            return json_text(rewrite_schema(value, self._limits))
        if directive == "%llguidance" and (not isinstance(value, dict) or value.keys() - _OPTIONS):
            raise Refusal(f"only {', '.join(sorted(_OPTIONS))} may be set")
        return dump_json(value)
