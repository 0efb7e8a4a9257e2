"""Tokens to text, a few at a time, never half a character."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from forebay.tokenizer.pieces import Pieces

if TYPE_CHECKING:
    from forebay.tokenizer.tokenizer import Tokenizer

_new_utf8_decoder = codecs.getincrementaldecoder("utf-8")


class PieceStream:
    """Joins token pieces and decodes them as UTF-8; what may still become a character waits inside (at most 3 bytes).

    Invalid bytes become U+FFFD, one for each maximal prefix of a character (Unicode 16, 3.9), however they arrive.
    """

    def __init__(self, pieces: Pieces, *, skip_special_tokens: bool, at_start: bool = True) -> None:
        self._pieces = pieces
        self._hidden = pieces.special_ids if skip_special_tokens else frozenset[int]()
        self._utf8 = _new_utf8_decoder("replace")
        self._bare = at_start and pieces.bare_first
        self._spaces = pieces.strip_spaces if at_start else 0

    def push(self, token_ids: Iterable[int]) -> str:
        """Text that is complete with these tokens. O(1) per token."""
        pieces, hidden = self._pieces, self._hidden
        chunks = [piece for i in token_ids if i not in hidden and (piece := pieces[i])]
        if self._bare and chunks:
            chunks[0] = chunks[0].replace(b" ", b"")
            self._bare = False
        return self._strip(self._utf8.decode(b"".join(chunks)))

    def gives_up(self, token_id: int) -> bool:
        """Whether what waits inside becomes U+FFFD because this token, coming next, does not continue it."""
        waiting, piece = self._utf8.getstate()[0], self._pieces[token_id]
        if not waiting or not piece or token_id in self._hidden:
            return False
        try:
            _new_utf8_decoder("strict").decode(waiting + piece[:1])
        except UnicodeDecodeError:
            return True
        return False

    def finish(self) -> str:
        """What is left: an unfinished character becomes U+FFFD."""
        return self._strip(self._utf8.decode(b"", final=True))

    def _strip(self, text: str) -> str:
        while self._spaces and text:
            if not text.startswith(" "):
                self._spaces = 0
                break
            text = text[1:]
            self._spaces -= 1
        return text


class IncrementalDetokenizer(PieceStream):
    """The text of one generated sequence. For every split of `ids` into pushes, all pushes + finish() == decode(ids).

    prompt_token_ids: what the output continues. When the prompt has text, the first output token keeps the space it
    brings (decode() of a whole text drops that of SentencePiece's first word). Leave it out for a text of its own.
    shown_token_ids: special tokens that are not skipped.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special_tokens: bool = True,
        shown_token_ids: Sequence[int] = (),
        prompt_token_ids: Sequence[int] = (),
    ) -> None:
        pieces = tokenizer.pieces
        hidden = pieces.special_ids if skip_special_tokens else frozenset[int]()
        prompt_has_text = any(i not in hidden and pieces[i] for i in prompt_token_ids)
        super().__init__(pieces, skip_special_tokens=skip_special_tokens, at_start=not prompt_has_text)
        self._hidden -= frozenset(shown_token_ids)
