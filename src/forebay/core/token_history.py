"""Which tokens a request has seen, kept for penalties."""

from __future__ import annotations

from array import array
from collections.abc import Iterable


class TokenHistory:
    """Each token once: ids[i] was said counts[i] times in the output; 0 is a token of the prompt only.

    Both are int32 arrays that only grow, so that a step reads them without copying. They stay as they are until the
    step's own tokens are added.
    """

    __slots__ = ("_place", "counts", "ids")

    def __init__(self, prompt_token_ids: Iterable[int]) -> None:
        self._place = {token: i for i, token in enumerate(dict.fromkeys(prompt_token_ids))}
        self.ids = array("i", self._place)
        self.counts = array("i", bytes(4 * len(self.ids)))

    def add(self, output_token_ids: Iterable[int]) -> None:
        """New tokens of the output."""
        for token in output_token_ids:
            place = self._place.get(token)
            if place is None:
                self._place[token] = len(self.ids)
                self.ids.append(token)
                self.counts.append(1)
            else:
                self.counts[place] += 1
