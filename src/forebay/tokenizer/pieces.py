"""The bytes each token stands for: the one table that decode(), the detokenizer and logprobs read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

PieceOf = Callable[[int], bytes | None]

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in for each byte: character -> byte (openai/gpt-2, encoder.py, bytes_to_unicode)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


def byte_level_pieces(text_of: Callable[[int], str | None], added: Mapping[int, str]) -> PieceOf:
    """Pieces written in the byte alphabet. Added tokens, and pieces outside the alphabet, stand for their own text."""
    alphabet = byte_alphabet()

    def piece(token_id: int) -> bytes | None:
        text = text_of(token_id)
        if text is None:
            return None
        if token_id in added:
            return text.encode()
        try:
            return bytes([alphabet[char] for char in text])
        except KeyError:
            return text.encode()

    return piece


def sentencepiece_pieces(
    text_of: Callable[[int], str | None],
    *,
    replacements: tuple[tuple[str, str], ...] = (("\u2581", " "),),
    byte_fallback: bool = True,
) -> PieceOf:
    """Pieces of plain text, where a mark stands for a space and <0xHH> for one byte."""

    def piece(token_id: int) -> bytes | None:
        text = text_of(token_id)
        if text is None:
            return None
        for old, new in replacements:
            text = text.replace(old, new)
        byte = _BYTE_TOKEN.fullmatch(text) if byte_fallback else None
        return bytes([int(byte[1], 16)]) if byte else text.encode()

    return piece


class Pieces:
    """Token id -> bytes, computed on first use.

    special_ids    tokens that `skip_special_tokens` leaves out
    strip_spaces   how many spaces at the very start of a text are the tokenizer's own and are taken off (SentencePiece)
    bare_first     the first token loses all its spaces (the Metaspace decoder)
    """

    def __init__(
        self, piece_of: PieceOf, special_ids: frozenset[int], *, strip_spaces: int = 0, bare_first: bool = False
    ) -> None:
        self._piece_of = piece_of
        self._known: dict[int, bytes] = {}
        self.special_ids = special_ids
        self.strip_spaces = strip_spaces
        self.bare_first = bare_first

    def __getitem__(self, token_id: int) -> bytes:
        """The token's bytes; empty for an id that is not in the vocabulary (models pad their output layer)."""
        piece = self._known.get(token_id)
        if piece is None:
            piece = self._piece_of(token_id)
            if piece is None:
                return b""
            self._known[token_id] = piece
        return piece
