"""The door of every check: from a spec to the text that the backend compiles, or one error that says why not."""

from __future__ import annotations

import json
from typing import Any

from forebay.core.grammar_spec import GrammarKind, GrammarSpec
from forebay.structured.gbnf import is_gbnf, lark_of_gbnf
from forebay.structured.json_schema import rewrite_schema
from forebay.structured.json_schema.document import parse_json
from forebay.structured.lark import SpecialTokens, checked_lark, json_text, lark_of_pattern
from forebay.structured.limits import DEFAULT_LIMITS, GrammarLimits
from forebay.structured.refusal import Refusal
from forebay.structured.regex import literal_pattern, whole_pattern
from forebay.structured.structural_tag import structural_tag_lark


def check(spec: GrammarSpec, limits: GrammarLimits = DEFAULT_LIMITS) -> None:
    """Everything that is known without compiling, in milliseconds: for a front end, before it takes a request.

    GrammarError, param: the spec's field; its message has the JSON pointer or the line, and the reason.
    """
    backend_text(spec, limits)


def backend_text(
    spec: GrammarSpec, limits: GrammarLimits = DEFAULT_LIMITS, special: SpecialTokens | None = None
) -> str:
    """What llguidance compiles for a checked spec. GrammarError: as `check`."""
    try:
        size = len(spec.source.encode())
        if size > limits.max_bytes:
            raise Refusal(f"{size} bytes; at most {limits.max_bytes} are taken")
        return _grammar_list(spec, limits, special or SpecialTokens())
    except UnicodeEncodeError:
        raise Refusal("half a surrogate pair is not text").error(spec.param) from None
    except Refusal as refusal:
        raise refusal.error(spec.param) from None


def _grammar_list(spec: GrammarSpec, limits: GrammarLimits, special: SpecialTokens) -> str:
    if spec.kind is GrammarKind.JSON_OBJECT:
        return _with_schema({"type": "object"})
    if spec.kind is GrammarKind.JSON_SCHEMA:
        return _with_schema(rewrite_schema(parse_json(spec.source, limits), limits, strict=spec.strict))
    if spec.kind is GrammarKind.REGEX:
        return _with_lark(lark_of_pattern(whole_pattern(spec.source, limits)))
    if spec.kind is GrammarKind.CHOICE:
        return _with_lark(lark_of_pattern(_choice_pattern(spec.source, limits)))
    if spec.kind is GrammarKind.STRUCTURAL_TAG:
        return _with_lark(structural_tag_lark(spec.source, special, limits))
    if spec.kind is GrammarKind.TOOL_CALLS:
        return _with_lark(spec.source)  # its schemas have been rewritten where it was made
    source = lark_of_gbnf(spec.source) if is_gbnf(spec.source) else spec.source
    return _with_lark(checked_lark(source, special, limits))


def _choice_pattern(source: str, limits: GrammarLimits) -> str:
    choices = parse_json(source, limits)
    if not isinstance(choices, list) or not 1 <= len(choices) <= limits.max_choices:
        raise Refusal(f"must be a list of 1 to {limits.max_choices} strings")
    for i, choice in enumerate(choices):
        if not isinstance(choice, str) or not choice:
            raise Refusal("a choice is a string, and not empty", (i,))
    return "|".join(map(literal_pattern, dict.fromkeys(choices)))


def _with_schema(schema: dict[str, Any]) -> str:
    return f'{{"grammars":[{{"json_schema":{json_text(schema)}}}]}}'


def _with_lark(lark: str) -> str:
    return json.dumps({"grammars": [{"lark_grammar": lark}]})
