"""Following one JSON value through text that arrives in pieces."""

from __future__ import annotations

import re
from collections.abc import Callable

_SPACE = re.compile(r"[ \t\r\n]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_SCALAR = re.compile(r"[-+.0-9A-Za-z]*")
_SCALAR_VALUE = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")
_HEX = frozenset("0123456789abcdefABCDEF")
_SIMPLE_ESCAPES = frozenset('"\\/bfnrt')


class JsonScanner:
    """Finds where a JSON value ends, and whether it is one (RFC 8259, checked to the letter).

    done    the value is complete
    broken  the text is no JSON value, whatever may follow
    """

    __slots__ = ("_hex_left", "_in_key", "_scalar", "_stack", "_state", "broken", "done")

    def __init__(self) -> None:
        self.done = False
        self.broken = False
        self._stack: list[str] = []  # the bracket that closes each open array and object
        self._in_key = False
        self._scalar = ""
        self._hex_left = 0
        self._state: Callable[[str, int], int] = self._value

    def feed(self, text: str, at: int = 0) -> int:
        """Read on from `at`. Returns where it stopped: after the value, at what breaks it, or at the end of the text.

        A number or word is complete only when a character follows that cannot be part of it.
        """
        while at < len(text) and not (self.done or self.broken):
            at = self._state(text, at)
        return at

    def _value(self, text: str, at: int) -> int:
        char = text[at]
        if char == '"':
            self._state = self._string
        elif char == "{":
            self._stack.append("}")
            self._state = self._first_key
        elif char == "[":
            self._stack.append("]")
            self._state = self._first_item
        elif char == "-" or char.isdecimal() or char.isalpha():
            self._scalar = ""
            self._state = self._in_scalar
            return at
        else:
            return self._space_or_broken(text, at)
        return at + 1

    def _first_item(self, text: str, at: int) -> int:
        if text[at] == "]":
            return self._close(at)
        if (after := _skip_space(text, at)) > at:
            return after
        return self._value(text, at)

    def _first_key(self, text: str, at: int) -> int:
        return self._close(at) if text[at] == "}" else self._key(text, at)

    def _key(self, text: str, at: int) -> int:
        if text[at] != '"':
            return self._space_or_broken(text, at)
        self._in_key = True
        self._state = self._string
        return at + 1

    def _colon(self, text: str, at: int) -> int:
        if text[at] != ":":
            return self._space_or_broken(text, at)
        self._state = self._value
        return at + 1

    def _next(self, text: str, at: int) -> int:
        """After a value inside an array or object."""
        char = text[at]
        if char == self._stack[-1]:
            return self._close(at)
        if char != ",":
            return self._space_or_broken(text, at)
        self._state = self._key if self._stack[-1] == "}" else self._value
        return at + 1

    def _string(self, text: str, at: int) -> int:
        match = _PLAIN.match(text, at)
        at = match.end() if match else at
        if at == len(text):
            return at
        if text[at] == '"':
            if self._in_key:
                self._in_key = False
                self._state = self._colon
            else:
                self._complete()
        elif text[at] == "\\":
            self._state = self._escape
        else:
            self.broken = True
            return at
        return at + 1

    def _escape(self, text: str, at: int) -> int:
        if text[at] == "u":
            self._hex_left = 4
            self._state = self._hex
        elif text[at] in _SIMPLE_ESCAPES:
            self._state = self._string
        else:
            self.broken = True
            return at
        return at + 1

    def _hex(self, text: str, at: int) -> int:
        if text[at] not in _HEX:
            self.broken = True
            return at
        self._hex_left -= 1
        if not self._hex_left:
            self._state = self._string
        return at + 1

    def _in_scalar(self, text: str, at: int) -> int:
        match = _SCALAR.match(text, at)
        end = match.end() if match else at
        self._scalar += text[at:end]
        if end < len(text):
            if _SCALAR_VALUE.fullmatch(self._scalar):
                self._complete()
            else:
                self.broken = True
        return end

    def _close(self, at: int) -> int:
        self._stack.pop()
        self._complete()
        return at + 1

    def _complete(self) -> None:
        self._state = self._next
        self.done = not self._stack

    def _space_or_broken(self, text: str, at: int) -> int:
        after = _skip_space(text, at)
        self.broken = after == at
        return after


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
