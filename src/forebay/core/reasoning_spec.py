"""How a model's reasoning is told from its answer by tokens, as a value that crosses processes."""

from __future__ import annotations

import msgspec


class ReasoningSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Reasoning before the answer proper, each marker one token. An output's grammar holds from its end on.

    inside: the prompt has written the begin marker; else the output reasons if that is its first token.
    budget: tokens that reasoning may take, markers not counted; then `closing_token_ids` are forced. None: no limit.
    closing_token_ids: the end marker, and the white space that models write around it.
    """

    begin_token_id: int
    end_token_id: int
    inside: bool
    budget: int | None = None
    closing_token_ids: tuple[int, ...]
