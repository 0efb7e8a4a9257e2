"""JSON text of a client, read with no doubt about what it says."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NoReturn

from forebay.structured.limits import GrammarLimits
from forebay.structured.refusal import Refusal, shown


def parse_json(text: str, limits: GrammarLimits) -> Any:
    """The value. Refusal: not JSON, a key twice in an object, NaN or an infinity, nested too deeply."""
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except RecursionError:
        raise _too_deep(limits) from None
    except ValueError as error:
        raise Refusal(f"not JSON: {error}") from None
    _check_depth(value, limits)
    return value


def dump_json(value: Any) -> str:
    """Compact JSON text. Refusal: a string with half a surrogate pair, which is no text."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Refusal(f"half a surrogate pair, U+{ord(text[error.start]):04X}, is not text") from None
    return text


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise Refusal(f"the key {shown(twice)!r} stands twice in one object")
    return found


def _constant(name: str) -> NoReturn:
    raise Refusal(f"not JSON: {name} is not a number")


def _check_depth(value: Any, limits: GrammarLimits) -> None:
    level = [value]
    for _ in range(limits.max_depth + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise _too_deep(limits)


def _too_deep(limits: GrammarLimits) -> Refusal:
    return Refusal(f"objects and arrays nested more than {limits.max_depth} deep")


def parse_json_prefix(text: str, start: int, limits: GrammarLimits) -> tuple[Any, int]:
    """The value that begins at `start`, white space before it aside, and where it ends."""
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
    while text[start : start + 1].isspace():
        start += 1
    try:
        value, end = decoder.raw_decode(text, start)
    except RecursionError:
        raise _too_deep(limits) from None
    except ValueError as error:
        raise Refusal(f"not JSON: {error}") from None
    _check_depth(value, limits)
    return value, end
