"""Real text, cut to exact numbers of tokens.

Real because kernels and caches do the same work on any ids, but answers, stop tokens and detokenizing do not. Exact
because a benchmark that asks for 256 tokens and sends 251 compares nothing.
"""

from __future__ import annotations

import struct
import sysconfig
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np

from forebay.bench.files import read_bounded
from forebay.errors import BenchError, RequestError
from forebay.tokenizer import Tokenizer

MAX_TEXT_BYTES = 64 << 20  # of a file given as text, unpacked
HEAD = 8  # no two slices begin with the same so many tokens: half a cache block, so that none is shared
FAMILIES = 19  # seeds that differ modulo this have no beginning in common, so that one run leaves nothing to the next
_CHUNK_CHARS = 8 << 10  # tokenized at a time, as slices ask for more
_SPARE = 16  # more tokens than needed are read, since text made of them may have fewer when it is tokenized again
_TRIES = 24  # lengths tried on one slice
_SLICES = 8  # slices tried for one text
_SHORT_TRIES = 64 * FAMILIES  # word starts tried for a slice shorter than HEAD
_NEAR = 64  # tokens looked through for the beginning of a word
_PASS_STEP = 37  # tokens by which the beginning moves each time the text is used up
_NONE, _MIDDLE, _CHARACTER, _WORD = range(4)  # no text at all; or what it begins: nothing, a character, a word
_FILLERS = (" a", " the", ".", " x", "\n", "!", "a", "1", " 1", "x", "~", "é")
_UNFINISHED = "\ufffd"  # what decoding leaves of half a character

CountText = Callable[[str], int]


def count_text(tokenizer: Tokenizer, text: str) -> int:
    """Tokens of a text prompt as /v1/completions counts them: with the special tokens that the tokenizer adds."""
    return len(tokenizer.encode(text))


def chat_ids(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> list[int]:
    """A conversation as /v1/chat/completions makes it: the rendered template, ready for an answer.

    Raises BenchError if the model has no chat template or its template refuses the messages.
    """
    try:
        return tokenizer.encode(tokenizer.render_chat(messages, tools=tools), add_special_tokens=False)
    except RequestError as error:
        raise BenchError(f"endpoint 'chat' cannot be measured on this model: {error.message}") from error


def count_chat(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> int:
    """Tokens of a conversation. Raises BenchError as `chat_ids` does."""
    return len(chat_ids(tokenizer, messages, tools))


class TextSource:
    """One long run of tokens, handed out in slices that do not overlap and never begin alike.

    path: a text file; else the English documentation and the standard library's sources of the Python that runs, so
      that another Python version makes another workload.
    seed: where in the text it begins, and which beginnings it may use: a hash of the first HEAD tokens puts each into
      one of FAMILIES. Special tokens written out in the text are left out.
    passes: how often the text was begun; from the second on slices overlap earlier ones, but begin elsewhere.
    repeated: slices shorter than HEAD that had to begin like another, here or of another family.
    """

    def __init__(self, tokenizer: Tokenizer, *, seed: int = 0, path: Path | None = None) -> None:
        self._tokenizer = tokenizer
        self._name = "default text" if path is None else f"text {str(path)!r}"
        rng = np.random.default_rng([seed, 0])
        self._chunks = _turned(_chunks(_own_text() if path is None else read_text(path)), rng)
        self._more = _library_chunks() if path is None else iter(())
        self._ids: list[int] = []
        self._begins = bytearray()  # what each token begins
        self._kinds: dict[int, int] = {}  # the same by token id
        self._whole = False
        self._heads: set[tuple[int, ...]] = set()
        self._family = seed % FAMILIES
        self.passes = 1
        self.repeated = 0
        self._read(0, 1)
        self._cursor = int(rng.integers(len(self._ids)))

    def cut(self, n: int) -> list[int]:
        """The next n token ids, from the beginning of a word where there is one near."""
        return self._take(n, min(n, HEAD)) if n else []

    def cut_text(
        self,
        n: int,
        prefix: str = "",
        suffix: str = "",
        *,
        place: Callable[[str], str] | None = None,
        count: CountText | None = None,
    ) -> str:
        """Text of exactly n tokens: prefix, the next piece of the source, suffix.

        place: puts the piece into the whole in place of prefix and suffix. count: how the whole is counted, by default
        as a prompt of /v1/completions. BenchError names the least possible n, or says that no text was found.
        """
        place = place or (lambda piece: prefix + piece + suffix)
        count = count or (lambda text: count_text(self._tokenizer, text))
        fixed = count(place(""))
        least = fixed if place("") else fixed + 1
        if n < least:
            raise BenchError(f"a prompt of {n} tokens is impossible here: the least possible is {least}; ask for more")
        if n == fixed:
            return place("")
        for slices in range(_SLICES):
            ids = self._take(n - fixed + _SPARE, min(n - fixed, HEAD))
            text = self._fit(ids, n, fixed, place, count, fill=slices == _SLICES - 1)
            if text is not None:
                return text
        raise BenchError(f"no text of exactly {n} tokens was found in {self._name}; give another text")

    def _fit(
        self, ids: list[int], n: int, fixed: int, place: Callable[[str], str], count: CountText, *, fill: bool
    ) -> str | None:
        """The whole made of as many of `ids` as give n tokens. Where the count jumps over n, up to _SPARE short fillers
        make up for it (at once if something of the slice is left, else only when `fill` is set)."""
        size, tried, below = n - fixed, set[int](), (-1, -1)
        while size not in tried and len(tried) < _TRIES:
            tried.add(size)
            found = count(place(self._text(ids[:size])))
            if found == n:
                return place(self._text(ids[:size]))
            if found < n:
                below = max(below, (found, size))
            size = min(max(size + n - found, 0), len(ids))
        found, size = below
        if size < 0 or (size == 0 and not fill):
            return None
        missing = range(1, min(n - found, _SPARE) + 1)
        filled = (place(self._text(ids[:size]) + filler * times) for times in missing for filler in _FILLERS)
        return next((text for text in filled if count(text) == n), None)

    def _text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids).rstrip(_UNFINISHED)

    def _take(self, n: int, head_length: int) -> list[int]:
        """The next n ids of which the first head_length are of our family and have not begun a slice before. A slice
        shorter than HEAD may have to repeat one."""
        tries = 0
        while True:
            self._seek_word()
            head = tuple(self._read(self._cursor, head_length))
            if head not in self._heads and _family(head) == self._family:
                break
            tries += 1
            searched = self._whole and tries > len(self._ids)
            if head_length < HEAD and (searched or tries >= _SHORT_TRIES):
                self.repeated += 1
                break
            if searched:
                raise BenchError(
                    f"{self._name} of {len(self._ids)} tokens has too few different beginnings for "
                    f"{len(self._heads) + 1} prompts; give a longer text or ask for fewer requests"
                )
            self._advance(1)
        self._heads.add(head)
        ids = self._read(self._cursor, n)
        self._advance(n)
        return ids

    def _seek_word(self) -> None:
        """Move to the next token that begins a word, if there is one near; at least off the middle of a character."""
        self._read(self._cursor, _NEAR)
        near = (self._cursor, self._cursor + _NEAR)
        word, character = (self._begins.find(mark, *near) for mark in (_WORD, _CHARACTER))
        self._advance(max(0, (word if word >= 0 else character) - self._cursor))

    def _advance(self, n: int) -> None:
        self._cursor += n
        if self._whole and self._cursor >= len(self._ids):
            self.passes += self._cursor // len(self._ids)
            self._cursor = (self.passes - 1) * _PASS_STEP % len(self._ids)

    def _read(self, start: int, n: int) -> list[int]:
        """Ids start .. start + n, as if the text repeated for ever. Tokenizes as much more of it as that takes."""
        pieces = self._tokenizer.pieces
        while len(self._ids) < start + n and not self._whole:
            chunk = next(self._chunks, None) or next(self._more, None)
            if chunk is None:
                self._whole = True
                break
            ids = self._tokenizer.encode(chunk, add_special_tokens=False)
            for token_id in set(ids) - self._kinds.keys():
                plain = token_id not in pieces.special_ids and pieces[token_id]
                self._kinds[token_id] = _beginning(pieces[token_id]) if plain else _NONE
            plain_ids = [i for i in ids if self._kinds[i] != _NONE]
            self._ids += plain_ids
            self._begins += bytes(self._kinds[i] for i in plain_ids)
        if not self._ids:
            raise BenchError(f"{self._name} has no tokens; give a file with text in it")
        taken = self._ids[start : start + n]
        while len(taken) < n:
            taken += self._ids[: n - len(taken)]
        return taken


def _family(head: tuple[int, ...]) -> int:
    return zlib.crc32(struct.pack(f"<{len(head)}I", *head)) % FAMILIES


def _beginning(piece: bytes) -> int:
    if piece[:1] == b" " and piece.strip()[:1].isalnum():
        return _WORD
    return _CHARACTER if piece[0] & 0xC0 != 0x80 else _MIDDLE


def read_text(path: Path) -> str:
    """A UTF-8 text file, unpacked if its name ends in .gz. BenchError if it cannot be read or is too large."""
    data = read_bounded(path, MAX_TEXT_BYTES, "text", "name a readable, shorter text file")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BenchError(f"text {str(path)!r} is not UTF-8 at byte {error.start}; convert it first") from error


def _own_text() -> str:
    return "\n\n".join(topics[name] for name in sorted(topics))


def _library_chunks() -> Iterator[str]:
    """Sources of the standard library's modules by name, for those who need more than the documentation."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        try:
            yield from _chunks(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            continue


def _chunks(text: str) -> list[str]:
    """Pieces of about _CHUNK_CHARS characters that end with a line where they can. None is empty."""
    chunks = []
    start = 0
    while start < len(text):
        end = text.rfind("\n", start, start + _CHUNK_CHARS) + 1 if len(text) - start > _CHUNK_CHARS else len(text)
        end = end if end > start else start + _CHUNK_CHARS
        chunks.append(text[start:end])
        start = end
    return chunks


def _turned(chunks: list[str], rng: np.random.Generator) -> Iterator[str]:
    """All of them in order, from a random one on and round to it."""
    start = int(rng.integers(len(chunks))) if chunks else 0
    yield from chunks[start:]
    yield from chunks[:start]
