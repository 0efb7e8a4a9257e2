"""What a model must be held to so that its calls parse, and strict arguments follow their schema, as a grammar.

The grammar is in llguidance's dialect of Lark, of one whole message. Source: guidance-ai/llguidance, docs/syntax.md
(%json, special tokens by id, lazy lexemes) and docs/toolcalls.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from forebay.structured.json_schema import Schema, rewrite_schema
from forebay.structured.json_schema.document import dump_json
from forebay.structured.limits import DEFAULT_LIMITS
from forebay.structured.refusal import Pointer, Refusal
from forebay.structured.tools.python_grammar import python_arguments
from forebay.structured.tools.request import ChoiceMode, Tool, ToolChoice
from forebay.structured.tools.shape import CallShape, Part, Parts, Regex, Span

# JSON as models were taught to write arguments: one space after commas and colons, or none. No other white space, in
# which a model could loop, and one spelling of each string, so that no escape hides a property's name.
_JSON_FORM: Final[dict[str, Any]] = {
    "whitespace_flexible": False,
    "item_separator": ", ?",
    "key_separator": ": ?",
    "json_allowed_escapes": 'nrbtf\\"',
}

_TYPES: Final[dict[type, str]] = {str: "string", list: "array", dict: "object", type(None): "null"}


def call_grammar(
    shape: CallShape, choice: ToolChoice, *, before: Sequence[Span] = (), token_ids: Mapping[str, int] | None = None
) -> str | None:
    """The grammar of one request, or None: there is nothing to enforce.

    That is so without tools, and with tool_choice "auto" where no tool is strict, all may be called and any number of
    calls is allowed: then the model writes freely and the parser reads what comes.

    before: what comes first besides the shape's own spans. token_ids: the markers that are special tokens, with their
    ids (`special_markers`); all others are plain text.
    Raises InvalidValueError (param: the tool's parameters) with the JSON pointer of what of a strict tool's schema
    cannot be enforced.
    """
    tools = choice.callable_tools
    limited = choice.mode is ChoiceMode.REQUIRED or choice.restricted or not choice.parallel
    if not tools or not (limited or any(tool.strict for tool in tools)):
        return None
    return _Grammar(shape, choice, token_ids or {}).text((*before, *shape.before))


class _Grammar:
    def __init__(self, shape: CallShape, choice: ToolChoice, ids: Mapping[str, int]) -> None:
        self._shape = shape
        self._tools = choice.tools
        self._required = choice.mode is ChoiceMode.REQUIRED
        self._one_call = shape.one_call or not choice.parallel
        self._ids = ids
        marker = "|".join(re.escape(text) for text in sorted(ids, key=len, reverse=True))
        self._marker = re.compile(f"({marker})") if ids else None
        self._rules: list[str] = []

    def text(self, before: Sequence[Span]) -> str:
        spans = [self._span(span, f"before_{i}") for i, span in enumerate(before)]
        first = _repeated(spans[0], before[0]) if len(spans) == 1 else f"{_any(spans)}*" if spans else ""
        start = "start: " + _sequence(first, self._main())
        return "\n".join(["%llguidance {}", start, *self._rules, "TEXT: /(?s:.*)/"]) + "\n"

    def _main(self) -> str:
        """Calls, or what may stand in their place."""
        for i, tool in enumerate(self._tools):
            self._add_arguments(tool, f"arguments_{i}")
        following = "" if self._one_call else self._any_call("following", self._shape.following) + "*"
        ending = _sequence(following, self._parts(self._shape.end))
        if not self._required and self._shape.instead is None:
            calls = _sequence(self._triggered_call(), ending)
            return f"({calls} | TEXT)" if self._one_call else f"({calls})* TEXT"
        calls = _sequence(self._any_call("first", self._shape.first), ending)
        if self._required or self._shape.instead is None:
            return calls
        return f"({calls} | {self._span(self._shape.instead, 'instead')})"

    def _add_arguments(self, tool: Tool, rule: str) -> None:
        """The rule of a tool's arguments; without `strict` any object will do."""
        try:
            schema: Schema = {"type": "object"}
            if tool.strict:
                _check_values(tool.parameters)
                schema = rewrite_schema(dict(tool.parameters), DEFAULT_LIMITS)
            self._rules += python_arguments(schema, rule, _json) if self._shape.python else [f"{rule}: {_json(schema)}"]
        except Refusal as refusal:
            raise refusal.error(tool.param) from None

    def _any_call(self, kind: str, opening: Parts) -> str:
        """An expression of one call of any tool, from its opening to its close."""
        for i, tool in enumerate(self._tools):
            parts = (self._parts(opening, tool.name), f"arguments_{i}", self._parts(self._shape.close))
            self._rules.append(f"{kind}_{i}: " + _sequence(*parts))
        return _any([f"{kind}_{i}" for i in range(len(self._tools))])

    def _triggered_call(self) -> str:
        """Free text up to a trigger, then the call that must follow."""
        trigger, rest = self._shape.first[0], self._shape.first[1:]
        special = isinstance(trigger, str) and trigger in self._ids  # such a token cannot stand in TEXT
        lazy = "" if special else "[lazy]"
        opened = self._any_call("opened", rest)
        if not _names_tool(trigger):
            self._rules.append(f"lead{lazy}: TEXT {self._trigger(trigger)}")
            return _sequence("lead", opened)
        for i, tool in enumerate(self._tools):
            self._rules.append(f"lead_{i}{lazy}: TEXT {self._trigger(trigger, tool.name)}")
        return _any([f"lead_{i} opened_{i}" for i in range(len(self._tools))])

    def _span(self, span: Span, name: str) -> str:
        """The name of a rule for the span, once."""
        if not span.end:
            body = "TEXT"
        elif any(span.end.startswith(marker) for marker in self._ids):
            body = f"TEXT {self._part(span.end)}"
        else:
            body = f"{name}_text"
            self._rules.append(f"{body}[lazy]: TEXT {_quoted(span.end)}")
        gap = r"/[ \t\r\n]+/?" if span.gap else ""
        self._rules.append(f"{name}: " + _sequence(self._parts(span.begin), body, gap))
        return name

    def _parts(self, parts: Parts, name: str = "") -> str:
        return _sequence(*(self._part(part, name) for part in parts))

    def _part(self, part: Part, name: str = "") -> str:
        if isinstance(part, Regex):
            if not part.usual:
                return self._trigger(part)
            part = part.usual
        part = part.replace("{name}", name)
        pieces: Sequence[str] = self._marker.split(part) if self._marker else (part,)
        return " ".join(f"<[{self._ids[p]}]>" if p in self._ids else _quoted(p) for p in pieces if p)

    def _trigger(self, part: Part, name: str = "") -> str:
        if isinstance(part, str):
            return self._part(part, name)
        return "/" + part.pattern.replace("{name}", name).replace("/", r"\/") + "/"


def _check_values(node: object, at: Pointer = ()) -> None:
    """Refusal: an enum of which no value has the type beside it. No grammar can be made of such a schema."""
    if isinstance(node, list):
        for i, item in enumerate(node):
            _check_values(item, (*at, i))
    elif isinstance(node, dict):
        values, kinds = node.get("enum"), node.get("type")
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if isinstance(values, list) and isinstance(kinds, list) and not any(_has_type(v, kinds) for v in values):
            raise Refusal(f"none of these values has the type beside them, {', '.join(map(str, kinds))}", (*at, "enum"))
        for key, item in node.items():
            _check_values(item, (*at, key))


def _has_type(value: object, kinds: list[Any]) -> bool:
    if isinstance(value, bool):
        return "boolean" in kinds
    if isinstance(value, int | float):
        return "number" in kinds or ("integer" in kinds and value == int(value))
    return next(name for kind, name in _TYPES.items() if isinstance(value, kind)) in kinds


def _names_tool(part: Part) -> bool:
    return "{name}" in (part.pattern if isinstance(part, Regex) else part)


def _json(schema: Schema) -> str:
    return "%json " + dump_json({"x-guidance": _JSON_FORM, **schema})


def _sequence(*expressions: str) -> str:
    return " ".join(filter(None, expressions))


def _any(choices: Sequence[str]) -> str:
    return choices[0] if len(choices) == 1 else "(" + " | ".join(choices) + ")"


def _repeated(name: str, span: Span) -> str:
    if span.at_most is None:
        return name + ("+" if span.at_least else "*")
    return name if span.at_least else name + "?"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
