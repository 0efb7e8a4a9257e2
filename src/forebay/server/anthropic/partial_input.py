"""The input of a call as an object, also where its JSON broke off."""

from __future__ import annotations

import re
from typing import Any

import msgspec

_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+)')
_SCALAR = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_CLOSERS = {"{": "}", "[": "]"}


def tool_input(arguments: str) -> dict[str, Any]:
    """Of arguments that are no JSON object what stands in them up to the last whole value; {} if nothing does.

    Anthropic's client reads the pieces of a streamed input in the same way.
    """
    for text in (arguments, _closed(arguments)):
        try:
            found = msgspec.json.decode(text)
        except ValueError:
            continue
        return found if isinstance(found, dict) else {}
    return {}


def _closed(text: str) -> str:
    """The beginning of a JSON text up to its last whole value, with what is open closed."""
    open_: list[str] = []  # closers, the outermost first
    whole, is_key = "{}", False
    end = 0
    while (found := _TOKEN.match(text, end)) is not None:
        token, end = found[1], found.end()
        if token in _CLOSERS:
            open_.append(_CLOSERS[token])
            is_key = token == "{"
        elif token in ("}", "]"):
            if not open_ or open_.pop() != token:
                break
        elif token in (",", ":"):
            is_key = token == "," and open_[-1:] == ["}"]
            continue
        elif is_key or not (token[0] == '"' or _SCALAR.fullmatch(token)):
            continue
        whole = text[:end] + "".join(reversed(open_))
    return whole
