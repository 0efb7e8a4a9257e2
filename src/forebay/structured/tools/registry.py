"""The formats by name, and which of them a model speaks, told from its chat template."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

from forebay.errors import InvalidValueError, ProfileError, UnsupportedFieldError
from forebay.structured.tools import deepseek, harmony, hermes, llama3_json, mistral, pythonic
from forebay.structured.tools.format import ToolFormat

SETTING = "tool_format"  # what a profile calls the choice of a format

FORMATS: dict[str, ToolFormat] = {
    found.name: found
    for found in (
        hermes.HERMES,
        llama3_json.LLAMA3_JSON,
        mistral.MISTRAL,
        mistral.MISTRAL_ID,
        mistral.MISTRAL_ARGS,
        pythonic.PYTHONIC,
        pythonic.PYTHONIC_TAGGED,
        deepseek.DEEPSEEK_V3,
        deepseek.DEEPSEEK_V31,
        harmony.HARMONY,
    )
}

_OTHER_BLOCKS = (
    "<function=",
    "<arg_key>",
    "<parameter=",
    "<tool_calls>",
    "<invoke",
)  # <tool_call> with other things in it
_PYTHONIC_RULE = re.compile(r"\[func_name1\(|<\|python_start\|>\s*\[")


def tool_format(name: str) -> ToolFormat:
    """The format of that name. InvalidValueError names the known ones."""
    if name in FORMATS:
        return FORMATS[name]
    close = difflib.get_close_matches(name[:100], FORMATS, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise InvalidValueError(f"{SETTING} {name[:100]!r} is unknown{hint}; known: {', '.join(FORMATS)}", param=SETTING)


def known_tool_format(name: str) -> str:
    """The name itself. ProfileError names the known ones."""
    try:
        return tool_format(name).name
    except InvalidValueError as error:
        raise ProfileError(error.message, param=SETTING) from None


def detect_tool_format(template: str | None, special_tokens: Collection[str] = ()) -> ToolFormat | None:
    """The format whose markers stand in the text of a chat template (the one for tools, if there are two), or None.

    special_tokens: their texts, for templates that leave the markers to the model.
    """
    name = _detect(template or "", special_tokens)
    return None if name is None else FORMATS[name]


def no_tool_format() -> UnsupportedFieldError:
    """Of a request with tools for a model whose format is not known."""
    return UnsupportedFieldError(
        "tools: cannot tell how this model calls tools, as its chat template has no known markers; "
        f"set {SETTING} to one of {', '.join(FORMATS)}, or leave tools out",
        param="tools",
    )


def _detect(template: str, special_tokens: Collection[str]) -> str | None:
    """The rules, most specific markers first."""
    if harmony.CHANNEL in template and harmony.MESSAGE in template:
        return "harmony"
    if deepseek.CALL_BEGIN in template:
        return "deepseek_v3" if "```json" in template else "deepseek_v31"
    if mistral.CALLS in template:
        if mistral.ID in template:
            return "mistral_id"
        return "mistral_args" if mistral.ARGS in template else "mistral"
    if pythonic.TAG_START in template or (pythonic.TAG_START in special_tokens and "<|tool_list_start|>" in template):
        return "pythonic_tagged"
    if _PYTHONIC_RULE.search(template):
        return "pythonic"
    plain = template.replace('\\"', '"')
    if hermes.BEGIN in plain and '"arguments"' in plain and not any(block in plain for block in _OTHER_BLOCKS):
        return "hermes"
    if '{"name": function name, "parameters":' in plain and "<function=" not in plain:
        return "llama3_json"
    return None
