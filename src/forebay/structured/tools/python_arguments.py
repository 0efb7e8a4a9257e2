"""Keyword arguments as in Python, `city='Rome', days=3)`, written as JSON while they arrive."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence

from forebay.structured.tools.python_string import PythonString

_SPACE = re.compile(r"\s*")
ARGUMENT_NAME = re.compile(r"[^\s=,:()\[\]{}'\"\-+.0-9][^\s=,:()\[\]{}'\"]*")
_KEY = re.compile(r"[^\s=,:()\[\]{}'\"]*")
_NUMBER = re.compile(r"[-+.\w]*")
_WORD = re.compile(r"\w*")
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_NUMBER_STARTS = frozenset("-+.0123456789")
_VALUE_STARTS = _NUMBER_STARTS | frozenset("'\"[{(")

# what is open: the call, a list, a dictionary, parentheses around one value or a tuple, a tuple
_CALL, _LIST, _DICT, _PARENTHESES, _TUPLE = "call", "[", "{", "(", "(,"
_CLOSING = {_CALL: ")", _LIST: "]", _DICT: "}", _PARENTHESES: ")", _TUPLE: ")"}


class PythonArguments:
    """Reads from after the opening parenthesis of a call to its closing one.

    done     the closing parenthesis has been read
    broken   this is no call whose arguments JSON can say

    Understood: strings (PythonString; no prefixes, no joining), numbers, True, False and None (also as JSON spells
    them), lists, tuples (as arrays), dictionaries with scalar keys, and arguments without a name, which take the
    names of `positional` in order and come first. A name that comes twice is written twice. Not understood: nested
    calls, operators, sets, bytes, infinities.
    """

    def __init__(self, positional: Sequence[str] = ()) -> None:
        self.done = False
        self.broken = False
        self._positional = positional
        self._num_positional = 0
        self._num_arguments = 0
        self._out: list[str] = ["{"]
        self._marks: list[int] = []  # for each _PARENTHESES, where in `out` they opened
        self._stack: list[str] = [_CALL]
        self._comma = False  # a comma is due before the next item
        self._in_key = False  # the value at hand is a key of a dictionary
        self._token = ""
        self._quoted = PythonString("'", self._out)
        self._state: Callable[[str, int], int] = self._argument

    def feed(self, text: str) -> int:
        """Read on. Returns where it stopped: after the parenthesis, at what breaks it, or at the end of the text."""
        at = 0
        while at < len(text) and not (self.done or self.broken):
            at = self._state(text, at)
        return at

    def take(self) -> str:
        """JSON text since the last call. In parentheses that may be a tuple nothing comes until that is known."""
        end = self._marks[0] if self._marks else len(self._out)
        text = "".join(self._out[:end])
        del self._out[:end]
        self._marks = [mark - end for mark in self._marks]
        return text

    def _argument(self, text: str, at: int) -> int:
        """Before an argument, or the closing parenthesis."""
        at = _end(_SPACE, text, at)
        if at == len(text):
            return at
        if text[at] == ")":
            self._out.append("}")
            self.done = True
            return at + 1
        if text[at] in _VALUE_STARTS:
            self._begin_unnamed()
        else:
            self._token = ""
            self._state = self._name
        return at

    def _name(self, text: str, at: int) -> int:
        end = _end(_KEY, text, at)
        self._token += text[at:end]
        if end < len(text):
            self._state = self._after_name
        return end

    def _after_name(self, text: str, at: int) -> int:
        """A name is followed by `=`; otherwise the word may be a value."""
        at = _end(_SPACE, text, at)
        if at == len(text):
            return at
        if text[at] == "=" and self._token:
            self._begin_argument(self._token)
            return at + 1
        if text[at] not in ",)" or self._token not in _WORDS:
            return self._break(at)
        self._begin_unnamed()
        if not self.broken:
            self._write_scalar(_WORDS[self._token])
        return at

    def _begin_unnamed(self) -> None:
        if self._num_arguments > self._num_positional or self._num_positional >= len(self._positional):
            self.broken = True
            return
        self._num_positional += 1
        self._begin_argument(self._positional[self._num_positional - 1])

    def _begin_argument(self, name: str) -> None:
        self._out.append((", " if self._num_arguments else "") + json.dumps(name, ensure_ascii=False) + ": ")
        self._num_arguments += 1
        self._state = self._value

    def _value(self, text: str, at: int) -> int:
        at = _end(_SPACE, text, at)
        if at == len(text):
            return at
        char = text[at]
        if char in "'\"":
            self._quoted = PythonString(char, self._out)
            self._state = self._in_string
            return at + 1
        if char in (_LIST, _DICT, _PARENTHESES) and not self._in_key:
            return self._open(char, at)
        self._token = ""
        self._state = self._in_number if char in _NUMBER_STARTS else self._in_word
        return at

    def _in_string(self, text: str, at: int) -> int:
        at = self._quoted.feed(text, at)
        if self._quoted.done:
            self._complete()
        self.broken = self._quoted.broken
        return at

    def _in_number(self, text: str, at: int) -> int:
        return self._scalar(_NUMBER, _json_number, text, at)

    def _in_word(self, text: str, at: int) -> int:
        return self._scalar(_WORD, _WORDS.get, text, at)

    def _scalar(self, pattern: re.Pattern[str], json_of: Callable[[str], str | None], text: str, at: int) -> int:
        end = _end(pattern, text, at)
        self._token += text[at:end]
        if end < len(text):
            value = json_of(self._token)
            if value is None:
                return self._break(end)
            self._write_scalar(value)
        return end

    def _write_scalar(self, text: str) -> None:
        self._out.append(f'"{text}"' if self._in_key else text)
        self._complete()

    def _open(self, bracket: str, at: int) -> int:
        self._stack.append(bracket)
        if bracket == _PARENTHESES:
            self._marks.append(len(self._out))
        else:
            self._out.append(bracket)
        self._state = self._item
        return at + 1

    def _item(self, text: str, at: int) -> int:
        """Before an item, or the closing bracket."""
        at = _end(_SPACE, text, at)
        if at == len(text):
            return at
        if text[at] == _CLOSING[self._stack[-1]]:
            self._comma = False
            return self._close(at)
        if self._comma:
            self._out.append(", ")
            self._comma = False
        self._in_key = self._stack[-1] == _DICT
        self._state = self._value
        return at

    def _complete(self) -> None:
        """A value or key has been written."""
        self._state = self._colon if self._in_key else self._after_value
        self._in_key = False

    def _colon(self, text: str, at: int) -> int:
        at = _end(_SPACE, text, at)
        if at == len(text):
            return at
        if text[at] != ":":
            return self._break(at)
        self._out.append(": ")
        self._state = self._value
        return at + 1

    def _after_value(self, text: str, at: int) -> int:
        at = _end(_SPACE, text, at)
        if at == len(text):
            return at
        bracket = self._stack[-1]
        if text[at] == _CLOSING[bracket]:
            if bracket != _CALL:
                return self._close(at)
            self._state = self._argument
            return at
        if text[at] != ",":
            return self._break(at)
        if bracket == _PARENTHESES:
            self._out.insert(self._marks.pop(), "[")
            self._stack[-1] = _TUPLE
        self._comma = bracket != _CALL
        self._state = self._argument if bracket == _CALL else self._item
        return at + 1

    def _close(self, at: int) -> int:
        bracket = self._stack.pop()
        if bracket != _PARENTHESES:
            self._out.append("}" if bracket == _DICT else "]")
        elif self._marks.pop() == len(self._out):
            self._out.append("[]")  # an empty tuple; otherwise the parentheses mean nothing
        self._complete()
        return at + 1

    def _break(self, at: int) -> int:
        self.broken = True
        return at


def _json_number(token: str) -> str | None:
    """A Python number as JSON writes it; None if it is none, or not finite."""
    if _JSON_NUMBER.fullmatch(token):
        return token
    try:
        return str(int(token, 0))
    except ValueError:
        pass
    try:
        value = float(token)
    except ValueError:
        return None
    return repr(value) if math.isfinite(value) else None


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at
