"""Finding markers in text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from forebay.tokenizer import Tokenizer


def split_at(text: str, markers: Sequence[str], *, final: bool) -> tuple[str, str, str]:
    """(text before the first marker, that marker, text after it).

    First is the marker that is complete first, character by character (of those that end together the longest), so the
    answer does not depend on how much of the text is there. Without one the marker is "", and what is left is the end
    of the text that may still become one; nothing if the text is `final`.
    """
    found = [(at + len(marker), -len(marker), marker) for marker in markers if (at := text.find(marker)) >= 0]
    if found:
        end, _, marker = min(found)
        return text[: end - len(marker)], marker, text[end:]
    keep = len(text) if final else _undecided(text, markers)
    return text[:keep], "", text[keep:]


def _undecided(text: str, markers: Sequence[str]) -> int:
    """Where the first suffix of `text` begins that is a proper prefix of a marker."""
    keep = len(text)
    for marker in markers:
        at = text.find(marker[0], max(0, len(text) - len(marker) + 1))
        while 0 <= at < keep:
            if marker.startswith(text[at:]):
                keep = at
            at = text.find(marker[0], at + 1)
    return keep


def special_markers(tokenizer: Tokenizer, markers: Iterable[str]) -> dict[str, int]:
    """Text -> token id of the model's special tokens that a marker is, or begins or ends with.

    These the detokenizer must show, although they are special, and a grammar must name by id.
    """
    known = tuple(markers)
    texts = {tokenizer.token_text(i): i for i in sorted(tokenizer.pieces.special_ids, reverse=True)}
    return {
        text: i
        for text, i in texts.items()
        if len(text) > 1 and any(marker.startswith(text) or marker.endswith(text) for marker in known)
    }
