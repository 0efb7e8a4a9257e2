"""How many tokens of an output were reasoning: by its tokens, so however the output arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class ReasoningTokens:
    """Counts those up to the one that completes the end marker, markers included; `count` is 0 where an output begins
    with anything but white space and the begin marker, unless the prompt has written that (`inside`).
    """

    __slots__ = ("_begin", "_end", "_inside", "_open", "_tail", "_token_bytes", "count")

    def __init__(self, begin: str, end: str, *, inside: bool, token_bytes: Callable[[int], bytes]) -> None:
        self._begin = begin.strip().encode()
        self._end = end.strip().encode()
        self._inside = inside
        self._token_bytes = token_bytes
        self._open = True
        self._tail = b""  # bytes in which a marker may have begun
        self.count = 0

    def push(self, token_ids: Iterable[int]) -> None:
        for token in token_ids:
            if not self._open:
                return
            self.count += 1
            self._tail += self._token_bytes(token)
            if not self._inside:
                self._look_for_begin()
            if self._inside:
                self._open = self._end not in self._tail
                self._tail = self._tail[1 - len(self._end) :] if len(self._end) > 1 else b""

    def _look_for_begin(self) -> None:
        text = self._tail.lstrip()
        if text.startswith(self._begin):
            self._inside, self._tail = True, text[len(self._begin) :]
        elif not self._begin.startswith(text):
            self._open, self.count = False, 0
