"""Why a body is no JSON that can be read, and which field is at fault: looked at only once reading has failed."""

from __future__ import annotations

import json
import math
import re
from typing import NoReturn

import msgspec

from forebay.errors import InvalidValueError, RequestError

_FIELD = re.compile(r'\s*[{,]\s*("(?:[^"\\]++|\\.){0,64}+")\s*:\s*', re.DOTALL)
_MAX_DIGITS = 300  # of an integer; what reads the body takes a few more
_MAX_NAME = 100
_FINITE = "has a number that is not finite or too large: {}; JSON has no NaN and no Infinity, send a finite number"
_TOO_DEEP = "nests JSON too deeply; flatten it"
_TEXT = (
    "has text that is not whole Unicode characters; send UTF-8 without half surrogate pairs, with control characters "
    "escaped"
)


def unreadable(body: bytes, error: Exception) -> RequestError:
    """The error for a body that msgspec does not read. error: what msgspec said."""
    text = body.decode("utf-8", "surrogateescape")
    at = 0
    while found := _FIELD.match(text, at):
        try:
            _, at = _DECODER.raw_decode(text, found.end())
            msgspec.json.decode(text[found.end() : at].encode("utf-8", "surrogateescape"))
        except (RecursionError, ValueError) as fault:
            return _error(found[1], fault)
        if not _is_text(found[1]):
            return RequestError(f"the name of a field {_TEXT}")
    if isinstance(error, RecursionError):
        return RequestError(f"the body {_TOO_DEEP}")
    return RequestError(f"the body is not valid JSON: {error}; send a JSON object")


def _error(key: str, fault: Exception) -> RequestError:
    if not _is_text(key):
        return RequestError(f"the name of a field {_TEXT}")
    name: str = msgspec.json.decode(key.encode())[:_MAX_NAME]
    if isinstance(fault, RecursionError):
        reason = _TOO_DEEP
    elif isinstance(fault, _NotFiniteError):
        reason = _FINITE.format(fault)
    elif isinstance(fault, json.JSONDecodeError):
        reason = f"is not valid JSON: {fault.msg} (character {fault.pos}); send a JSON value"
    else:
        reason = _TEXT
    return InvalidValueError(f"{name} {reason}", param=name)


def _is_text(key: str) -> bool:
    try:
        msgspec.json.decode(key.encode())
    except ValueError:
        return False
    return True


class _NotFiniteError(ValueError):
    """The number as the client wrote it, shortened."""


def _refuse(number: str) -> NoReturn:
    raise _NotFiniteError(number if len(number) <= 20 else f"{number[:20]}...")


def _integer(digits: str) -> int:
    return int(digits) if len(digits) <= _MAX_DIGITS else _refuse(digits)


def _float(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _refuse(digits)


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_int=_integer, parse_float=_float, strict=False)
