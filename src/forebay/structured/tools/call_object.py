"""One call written as a JSON object, {"name": ..., "arguments": {...}}, through text that arrives in pieces."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Collection

from forebay.structured.tools.json_scanner import JsonScanner

MAX_NAME_CHARS = 256  # of a function that the model names
MAX_BARE_CHARS = 512  # a bare object that has not become a call by then is none

_SPACE = re.compile(r"[ \t\r\n]*")
_NAME = re.compile(rf"[^\x00-\x1f\ud800-\udfff]{{1,{MAX_NAME_CHARS}}}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_NAME_KEY = '"name"'
_ARGUMENT_KEYS = ('"arguments"', '"parameters"')


class Status(enum.Enum):
    OPEN = "open"  # needs more text
    DONE = "done"  # the object is complete
    BROKEN = "broken"  # it is none, or no call


class CallObject:
    """Reads the object's name and passes its arguments on as they come.

    status               whether there is more to read
    name                 the function, once known
    started              name and arguments are there, so it is a call
    arguments_done       nothing of the arguments is missing
    arguments_are_object what came as arguments is a JSON object
    raw                  everything read before it started
    is_bare              as `bare` says

    Arguments before the name wait for it. Arguments written as a JSON string of JSON are unpacked; null, or none at
    all, stands for {}. Keys other than these two are skipped.

    bare: the object stands in free text without a marker, so it counts only if it is unmistakable: exactly an optional
    "type": "function", then the name of one of these functions, then arguments that are an object.
    """

    def __init__(self, bare: Collection[str] | None = None) -> None:
        self.status = Status.OPEN
        self.name: str | None = None
        self.started = False
        self.arguments_done = False
        self.arguments_are_object = False
        self.raw = ""
        self._bare = bare
        self.is_bare = bare is not None
        self._pending: list[str] = []
        self._has_arguments = False
        self._key = ""
        self._num_keys = 0
        self._token = ""
        self._scanner = JsonScanner()
        self._state: Callable[[str, int], int] = self._open
        self._value_done: Callable[[], None] = self._skipped

    def feed(self, text: str) -> int:
        """Read on. Returns where it stopped: after the object, at what breaks it, or at the end of the text."""
        at = 0
        while at < len(text) and self.status is Status.OPEN:
            before = at
            at = self._state(text, at)
            if not self.started:
                self.raw += text[before:at]
                if self._bare is not None and len(self.raw) > MAX_BARE_CHARS:
                    self.status = Status.BROKEN
        return at

    def take(self) -> str:
        """Arguments since the last call; "" until the call has started."""
        if not self.started:
            return ""
        text = "".join(self._pending)
        self._pending.clear()
        return text

    def _open(self, text: str, at: int) -> int:
        if text[at] != "{":
            return self._break(at)
        self._state = self._first_key
        return at + 1

    def _first_key(self, text: str, at: int) -> int:
        at = self._skip_space(text, at)
        if text[at : at + 1] == "}":
            return self._finish(at)
        return self._before_key(text, at)

    def _before_key(self, text: str, at: int) -> int:
        at = self._skip_space(text, at)
        if at == len(text):
            return at
        if text[at] != '"':
            return self._break(at)
        self._token, self._scanner = "", JsonScanner()
        self._state = self._in_key
        return at

    def _in_key(self, text: str, at: int) -> int:
        at = self._read_token(text, at)
        if self._scanner.done:
            self._key = self._token
            self._num_keys += 1
            self._state = self._before_colon
            if self._bare is not None and not self.started and not self._expected():
                self.status = Status.BROKEN
        return at

    def _expected(self) -> bool:
        """Whether the next key of a bare call is the right one."""
        if self.name is not None:
            return self._key in _ARGUMENT_KEYS
        return self._key == _NAME_KEY or (self._key == '"type"' and self._num_keys == 1)

    def _before_colon(self, text: str, at: int) -> int:
        at = self._skip_space(text, at)
        if at == len(text):
            return at
        if text[at] != ":":
            return self._break(at)
        self._state = self._before_value
        return at + 1

    def _before_value(self, text: str, at: int) -> int:
        at = self._skip_space(text, at)
        if at == len(text):
            return at
        self._token, self._scanner = "", JsonScanner()
        self._state, self._value_done = self._in_token, self._skipped
        if self._key == _NAME_KEY and self.name is None:
            self._value_done = self._named
        elif self._key in _ARGUMENT_KEYS and not self._has_arguments:
            if text[at] == "{":
                self._has_arguments = True
                self._state, self._value_done = self._in_arguments, self._arguments_over
                self._start_if_ready()
            elif self._bare is not None:
                return self._break(at)
            else:
                self._value_done = self._unpack
        return at

    def _in_token(self, text: str, at: int) -> int:
        """A value that is needed whole."""
        at = self._read_token(text, at)
        if self._scanner.done:
            self._state = self._next
            self._value_done()
        return at

    def _in_arguments(self, text: str, at: int) -> int:
        end = self._scanner.feed(text, at)
        self._pending.append(text[at:end])
        if self._scanner.done:
            self._state = self._next
            self._value_done()
        elif self._scanner.broken:
            self.status = Status.BROKEN
        return end

    def _next(self, text: str, at: int) -> int:
        at = self._skip_space(text, at)
        if at == len(text):
            return at
        if text[at] == "}":
            return self._finish(at)
        if text[at] != ",":
            return self._break(at)
        self._state = self._before_key
        return at + 1

    def _named(self) -> None:
        name = json.loads(self._token) if self._token.startswith('"') else ""
        if not _NAME.fullmatch(name) or (self._bare is not None and name not in self._bare):
            self.status = Status.BROKEN
            return
        self.name = name
        self._start_if_ready()

    def _unpack(self) -> None:
        """Arguments that are no object as they stand."""
        text = "{}" if self._token == "null" else self._token
        if text.startswith('"') and not _SURROGATE.search(unpacked := json.loads(text)):
            text = unpacked
        self._pending.append(text)
        self._has_arguments = True
        self.arguments_done = True
        self.arguments_are_object = _is_object(text)
        self._start_if_ready()

    def _arguments_over(self) -> None:
        self.arguments_done = True
        self.arguments_are_object = True

    def _skipped(self) -> None:
        if self._bare is not None and not self.started and self._token != '"function"':
            self.status = Status.BROKEN  # the value of "type"

    def _start_if_ready(self) -> None:
        self.started = self.name is not None and self._has_arguments

    def _finish(self, at: int) -> int:
        """At the closing brace."""
        if self.name is None or (self._bare is not None and not self._has_arguments):
            return self._break(at)
        if not self._has_arguments:
            self._pending.append("{}")
            self._has_arguments = True
            self._arguments_over()
        self._start_if_ready()
        self.status = Status.DONE
        return at + 1

    def _read_token(self, text: str, at: int) -> int:
        end = self._scanner.feed(text, at)
        self._token += text[at:end]
        if self._scanner.broken:
            self.status = Status.BROKEN
        return end

    def _break(self, at: int) -> int:
        self.status = Status.BROKEN
        return at

    @staticmethod
    def _skip_space(text: str, at: int) -> int:
        match = _SPACE.match(text, at)
        return match.end() if match else at


def _is_object(text: str) -> bool:
    scanner = JsonScanner()
    end = scanner.feed(text)
    return text.startswith("{") and scanner.done and end == len(text)
