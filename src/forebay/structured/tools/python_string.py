"""One Python string literal, written as a JSON string while it arrives."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

_PLAIN = {"'": re.compile(r"[^\\']*"), '"': re.compile(r'[^\\"]*')}
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a"}
_HEX_LENGTHS = {"x": 2, "u": 4, "U": 8}
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")
_OCTAL_DIGITS = frozenset("01234567")


class PythonString:
    """Reads from after the first quote; single, double or triple quotes, with Python's escapes. Line breaks may stand
    in it.

    done, broken   as in JsonScanner; an empty string is done when a character follows that is no quote
    """

    def __init__(self, quote: str, out: list[str]) -> None:
        """out: where the JSON text is appended."""
        self.done = False
        self.broken = False
        self._quote = quote
        self._out = out
        self._triple = False
        self._run = 1  # quotes in a row that have been read and mean nothing yet
        self._digits = ""
        self._num_digits = 0
        self._state: Callable[[str, int], int] = self._opening

    def feed(self, text: str, at: int) -> int:
        """Read on from `at`. Returns where it stopped: after the string, at what breaks it, or at the end of the
        text.
        """
        while at < len(text) and not (self.done or self.broken):
            at = self._state(text, at)
        return at

    def _opening(self, text: str, at: int) -> int:
        """After one quote, or two."""
        if text[at] != self._quote:
            self._out.append('"')
            self._state = self._inside
            if self._run == 2:
                self._end()
            self._run = 0
            return at
        self._run += 1
        if self._run == 3:
            self._out.append('"')
            self._triple, self._run = True, 0
            self._state = self._inside
        return at + 1

    def _inside(self, text: str, at: int) -> int:
        if text[at] == self._quote:
            self._run += 1
            if self._run == 3 or not self._triple:
                self._end()
            return at + 1
        self._emit(self._quote * self._run)
        self._run = 0
        if text[at] == "\\":
            self._state = self._escape
            return at + 1
        match = _PLAIN[self._quote].match(text, at)
        end = match.end() if match else at
        self._emit(text[at:end])
        return end

    def _end(self) -> None:
        self._out.append('"')
        self.done = True

    def _escape(self, text: str, at: int) -> int:
        char = text[at]
        self._state = self._inside
        self._digits = ""
        if char in _HEX_LENGTHS:
            self._num_digits = _HEX_LENGTHS[char]
            self._state = self._hex
        elif char in _OCTAL_DIGITS:
            self._state = self._octal
            return at
        elif char in "\\'\"":
            self._emit(char)
        elif char != "\n":  # a line break after a backslash is dropped
            self._emit(_ESCAPES.get(char, "\\" + char))  # an unknown escape keeps its backslash
        return at + 1

    def _hex(self, text: str, at: int) -> int:
        if text[at] not in _HEX_DIGITS:
            self.broken = True
            return at
        self._digits += text[at]
        if len(self._digits) == self._num_digits:
            code = int(self._digits, 16)
            if code > 0x10FFFF:
                self.broken = True
                return at
            self._emit(chr(code))
            self._state = self._inside
        return at + 1

    def _octal(self, text: str, at: int) -> int:
        if text[at] in _OCTAL_DIGITS and len(self._digits) < 3:
            self._digits += text[at]
            return at + 1
        self._emit(chr(int(self._digits, 8)))
        self._state = self._inside
        return at

    def _emit(self, text: str) -> None:
        """Characters of the string; half of a surrogate pair stays an escape."""
        if text:
            self._out.append(json.dumps(text, ensure_ascii=bool(_SURROGATE.search(text)))[1:-1])
