"""What holds an output to a grammar, as scheduler and runner see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from forebay.errors import ForebayError


class Guide(Protocol):
    """Follows one output. What it allows depends on the accepted tokens alone."""

    @property
    def ready(self) -> bool:
        """The grammar is compiled; until then its request waits."""
        ...

    @property
    def error(self) -> ForebayError | None:
        """Why the output cannot be guided (any further): the request ends with it."""
        ...

    def fill(self, row: Any, ahead: Sequence[int] = ()) -> None:
        """Write what may follow the accepted tokens and `ahead` into `row`, a numpy uint32 array of ceil(vocab / 32)
        words: bit i % 32 of word i // 32 allows token i. Nothing, if the grammar does not allow `ahead`, or where
        `error` is set by it."""
        ...

    def accept(self, token_ids: Sequence[int]) -> bool:
        """Move on by these tokens, which count. False: the grammar does not allow them, or `error` is set by it."""
        ...
