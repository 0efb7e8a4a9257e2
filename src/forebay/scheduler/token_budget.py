"""The tokens of one step, handed out."""

from __future__ import annotations


class TokenBudget:
    def __init__(self, total: int) -> None:
        self.left = total

    def take(self, wanted: int) -> int:
        """Up to `wanted` tokens, 0 when none are left."""
        given = min(max(wanted, 0), self.left)
        self.left -= given
        return given

    def limit(self, most: int) -> None:
        """Leave at most this many."""
        self.left = min(self.left, most)

    def give_back(self, count: int) -> None:
        self.left += count
