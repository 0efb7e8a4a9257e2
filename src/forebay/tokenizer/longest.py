"""How much text a token can stand for at most, so that a text far too long is known without tokenizing it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from forebay.tokenizer.pieces import byte_alphabet

_NFC_SHRINKS = 3  # bytes to one, at most: Hangul syllables, and singletons such as U+212A
_KEEPS_ALL = ("ByteLevel", "Digits", "Metaspace", "Split")
_NOT_IN_TEXT = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})  # bytes that UTF-8 never has


def longest_token(tokens: Iterable[str]) -> int:
    """Bytes of the longest token as it is written, which are never fewer than those it stands for."""
    return max((len(token.encode()) for token in tokens), default=1)


def has_every_byte(tokens: Container[str], in_alphabet: bool) -> bool:
    """Whether each byte a text can have is a token, written in the byte alphabet or as <0xHH>."""
    names = {byte: char if in_alphabet else f"<0x{byte:02X}>" for char, byte in byte_alphabet().items()}
    return all(name in tokens for byte, name in names.items() if byte not in _NOT_IN_TEXT)


def longest_in_file(spec: Mapping[str, Any], vocabulary: Mapping[str, int]) -> int | None:
    """Most bytes of a text that one token of a tokenizer.json can stand for.

    None where parts of a text may yield no token, or a run of any length yield one: then there is no limit.
    """
    model, shrinks = spec["model"], 1
    if model["type"] != "BPE" or any(token["lstrip"] or token["rstrip"] for token in spec.get("added_tokens") or ()):
        return None
    for step in _steps(spec.get("normalizer"), "normalizers"):
        if step["type"] == "NFC":
            shrinks = _NFC_SHRINKS
        elif step["type"] == "Replace":
            old, new = step["pattern"].get("String"), step["content"]
            if old is None or len(new.encode()) < len(old.encode()):
                return None
        elif step["type"] != "Prepend":
            return None
    cuts = list(_steps(spec.get("pre_tokenizer"), "pretokenizers"))
    if any(step["type"] not in _KEEPS_ALL or step.get("behavior") == "Removed" for step in cuts):
        return None
    by_bytes = any(step["type"] == "ByteLevel" for step in cuts)
    if not by_bytes and not model.get("byte_fallback"):
        return None
    if not has_every_byte(vocabulary, by_bytes):
        return None
    return shrinks * longest_token(vocabulary)


def _steps(step: Mapping[str, Any] | None, parts: str) -> Iterator[Mapping[str, Any]]:
    """A normalizer or pre-tokenizer, a Sequence taken apart."""
    if step is not None and step["type"] == "Sequence":
        for part in step[parts]:
            yield from _steps(part, parts)
    elif step is not None:
        yield step
