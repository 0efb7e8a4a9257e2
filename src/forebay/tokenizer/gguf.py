"""A tokenizer built from GGUF metadata, with the ids llama.cpp gives (src/llama-vocab.cpp).

Two kinds: `gpt2` is byte-level BPE (through the `tokenizers` library), `llama` is SentencePiece BPE (our own code, as
equal scores must merge leftmost first, which a merge list cannot say). Where special tokens overlap in a text, the
leftmost, then longest one counts, as in `tokenizers`. Decoding keeps every space: there is no `clean_spaces`.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers

from forebay.errors import ModelFormatError, UnsupportedModelError
from forebay.tokenizer.longest import has_every_byte, longest_token
from forebay.tokenizer.pieces import Pieces, byte_level_pieces, sentencepiece_pieces
from forebay.tokenizer.pre_tokenizers import PreTokenizer, pre_tokenizer
from forebay.tokenizer.spm import SentencePieceBPE
from forebay.tokenizer.tokenizer import EncodeText, SpecialTokens, Tokenizer, checked_id, library_ids

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4  # tokenizer.ggml.token_type; 1 is normal, 5 unused, 6 byte
_log = logging.getLogger(__name__)

# GGUF names one end-of-sequence token; chat models have more, and llama.cpp knows them by these texts.
_END_TEXTS = frozenset({
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]",
    "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<\uff5cend\u2581of\u2581sentence\uff5c>",
})  # fmt: skip
_END_KEYS = ("eos", "eot", "eom")
_TEMPLATE_NAMES = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad", "seperator": "sep", "mask": "mask"}


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    tokens: list[str]
    added: dict[int, str]  # matched in the text before anything else: control, unknown and user-defined tokens
    special_ids: frozenset[int]  # of those, the ones that are not text
    rstrip_ids: frozenset[int]  # of those, the ones that swallow the whitespace behind them
    end_ids: frozenset[int]

    def text_of(self, token_id: int) -> str | None:
        return self.tokens[token_id] if 0 <= token_id < len(self.tokens) else None

    def added_tokens(self) -> list[tokenizers.AddedToken]:
        return [
            tokenizers.AddedToken(text, normalized=False, special=i in self.special_ids, rstrip=i in self.rstrip_ids)
            for i, text in self.added.items()
        ]

    def longest(self) -> int | None:
        """Most bytes of a text that one token stands for, if all of the text yields tokens."""
        return None if self.rstrip_ids else longest_token(self.tokens)

    def identity(self) -> list[bytes]:
        return ["\n".join(self.tokens).encode(), repr((self.added, sorted(self.rstrip_ids))).encode()]


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that `metadata` (a GGUF checkpoint's config) describes.

    UnsupportedModelError: a kind of tokenizer or pre-tokenizer we do not know. ModelFormatError: keys missing or wrong.
    """
    kind = metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        return _byte_level(metadata)
    if kind == "llama":
        return _sentencepiece(metadata)
    raise UnsupportedModelError(
        f"tokenizer.ggml.model is {kind!r}; use a model whose tokenizer is gpt2 (BPE) or llama (SentencePiece)",
        param="model",
    )


def _byte_level(metadata: Mapping[str, Any]) -> Tokenizer:
    vocabulary = _read_vocabulary(metadata)
    pre = _read_pre_tokenizer(metadata)
    merges = _array(metadata, "tokenizer.ggml.merges", str)
    library = tokenizers.Tokenizer(_bpe(vocabulary.tokens, merges, pre))
    library.pre_tokenizer = pre_tokenizers.Sequence([
        *(pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in pre.patterns),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    library.add_tokens(vocabulary.added_tokens())

    def encode(text: str) -> list[int]:
        return library_ids(library, text)

    piece_of = byte_level_pieces(vocabulary.text_of, vocabulary.added)
    return Tokenizer(
        encode,
        Pieces(piece_of, vocabulary.special_ids),
        _special_tokens(metadata, vocabulary, add_bos=pre.add_bos),
        vocab_size=len(vocabulary.tokens),
        templates=_templates(metadata),
        identity=[b"gguf-bpe", repr(pre).encode(), *vocabulary.identity(), "\n".join(merges).encode()],
        longest=vocabulary.longest() if has_every_byte(set(vocabulary.tokens), True) else None,
    )


def _sentencepiece(metadata: Mapping[str, Any]) -> Tokenizer:
    vocabulary = _read_vocabulary(metadata)
    tokens = vocabulary.tokens
    scores = _array(metadata, "tokenizer.ggml.scores", float, len(tokens))
    space_prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
    spm = SentencePieceBPE(tokens, scores, _byte_ids(metadata, tokens))
    piece_of = sentencepiece_pieces(vocabulary.text_of)
    defaults = {"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}
    return Tokenizer(
        _spm_encode(spm, vocabulary, space_prefix),
        Pieces(piece_of, vocabulary.special_ids, strip_spaces=int(space_prefix)),
        _special_tokens({**defaults, **metadata}, vocabulary, add_bos=True),
        vocab_size=len(tokens),
        templates=_templates(metadata),
        identity=[b"gguf-spm", *vocabulary.identity(), array("d", scores).tobytes()],
        longest=vocabulary.longest(),
    )


def _spm_encode(spm: SentencePieceBPE, vocabulary: _Vocabulary, space_prefix: bool) -> EncodeText:
    """Cut the text at special tokens; every stretch between them is encoded by itself, with a space before it."""
    splitter = tokenizers.Tokenizer(models.BPE(vocab={}, merges=[]))  # finds added tokens; other text yields nothing
    splitter.add_tokens(vocabulary.added_tokens())
    added_ids = list(vocabulary.added)
    space = " " if space_prefix else ""

    def encode(text: str) -> list[int]:
        found = splitter.encode_batch([text], add_special_tokens=False)[0]  # as in library_ids
        ids: list[int] = []
        end = 0
        for index, (start, stop) in zip(found.ids, found.offsets, strict=True):
            if start < end:
                continue  # inside the whitespace that the token before it swallowed
            if start > end:
                ids += spm.encode(space + text[end:start])
            ids.append(added_ids[index])
            end = stop
        return ids + spm.encode(space + text[end:]) if end < len(text) else ids

    return encode


def _read_vocabulary(metadata: Mapping[str, Any]) -> _Vocabulary:
    texts = _array(metadata, "tokenizer.ggml.tokens", str)
    tokens = [text or f"[EMPTY_{i}]" for i, text in enumerate(texts)]
    if len(set(tokens)) != len(tokens):
        raise ModelFormatError("tokenizer.ggml.tokens has the same token twice; convert the model again", param="model")
    types: list[int] = [1] * len(tokens)
    if "tokenizer.ggml.token_type" in metadata:
        types = _array(metadata, "tokenizer.ggml.token_type", int, len(tokens))
    added = {i: tokens[i] for i, kind in enumerate(types) if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)}
    end_ids = frozenset(i for i, text in added.items() if text in _END_TEXTS)
    special_ids = end_ids | {i for i in added if types[i] != _USER_DEFINED}
    return _Vocabulary(tokens, added, special_ids, _rstrip_ids(metadata, added), end_ids)


def _rstrip_ids(metadata: Mapping[str, Any], added: Mapping[int, str]) -> frozenset[int]:
    """Phi-3's special tokens take the whitespace behind them along; GGUF has no field for that, so the name decides."""
    name = str(metadata.get("general.name", "")).lower()
    if "phi-3" not in name and "phi3" not in name:
        return frozenset()
    return frozenset(i for i, text in added.items() if text not in ("<unk>", "<s>", "<|endoftext|>"))


def _read_pre_tokenizer(metadata: Mapping[str, Any]) -> PreTokenizer:
    name = metadata.get("tokenizer.ggml.pre")
    if name is None:
        _log.warning("tokenizer.ggml.pre is missing: words are cut by a generic rule; convert the model again")
        name = "default"
    return pre_tokenizer(str(name))


def _bpe(tokens: list[str], merges: list[str], pre: PreTokenizer) -> models.BPE:
    pairs: list[tuple[str, str]] = []
    for line in merges:
        left, _, right = line.partition(" ")
        if not left:  # a merge of a token that itself starts with a space
            left, _, right = line[1:].partition(" ")
            left = " " + left
        pairs.append((left, right))
    try:
        return models.BPE(
            vocab=dict(zip(tokens, range(len(tokens)), strict=True)), merges=pairs, ignore_merges=pre.ignore_merges
        )
    except Exception as error:  # the library raises plain Exception for a merge of tokens that are not there
        raise ModelFormatError(f"tokenizer.ggml.merges does not fit the tokens: {error}", param="model") from error


def _byte_ids(metadata: Mapping[str, Any], tokens: list[str]) -> list[int]:
    ids = {text: i for i, text in enumerate(tokens)}
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    fallback = checked_id(unknown, len(tokens), "tokenizer.ggml.unknown_token_id")
    return [ids.get(f"<0x{byte:02X}>", fallback) for byte in range(256)]


def _special_tokens(metadata: Mapping[str, Any], vocabulary: _Vocabulary, *, add_bos: bool) -> SpecialTokens:
    size = len(vocabulary.tokens)
    given = {name: metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", *_END_KEYS)}
    ids = {name: checked_id(i, size, f"tokenizer.ggml.{name}_token_id") for name, i in given.items() if i is not None}
    prefix = _around(metadata, "tokenizer.ggml.add_bos_token", add_bos, ids.get("bos"))
    suffix = _around(metadata, "tokenizer.ggml.add_eos_token", False, ids.get("eos"))
    return SpecialTokens(
        bos_token_id=ids.get("bos"),
        eos_token_ids=vocabulary.end_ids | {ids[name] for name in _END_KEYS if name in ids},
        prefix=prefix,
        suffix=suffix,
        names=_template_names(metadata, vocabulary),
    )


def _template_names(metadata: Mapping[str, Any], vocabulary: _Vocabulary) -> dict[str, str]:
    names = {}
    for name, short in _TEMPLATE_NAMES.items():
        token_id = metadata.get(f"tokenizer.ggml.{name}_token_id")
        text = vocabulary.text_of(token_id) if isinstance(token_id, int) else None
        if text is not None:  # padding and the like are often given as ids that do not exist
            names[f"{short}_token"] = text
    return names


def _around(metadata: Mapping[str, Any], key: str, default: bool, token_id: int | None) -> tuple[int, ...]:
    if not metadata.get(key, default):
        return ()
    if token_id is None:
        raise ModelFormatError(f"{key} is true, but the file names no such token; set it to false", param="model")
    return (token_id,)


def _templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    named = {"default": "tokenizer.chat_template", "tool_use": "tokenizer.chat_template.tool_use"}
    return {name: metadata[key] for name, key in named.items() if isinstance(metadata.get(key), str)}


def _array(metadata: Mapping[str, Any], key: str, kind: type[Any], length: int | None = None) -> list[Any]:
    """A list from the metadata, of the right type and length. ModelFormatError names the key."""
    values = metadata.get(key)
    if not isinstance(values, list) or not values:
        raise ModelFormatError(f"{key} is missing; use a GGUF file that holds its tokenizer", param="model")
    if kind is float and set(map(type, values)) <= {int, float}:
        values = list(map(float, values))
    if set(map(type, values)) != {kind}:
        raise ModelFormatError(f"{key} is not a list of {kind.__name__}; convert the model again", param="model")
    if length is not None and len(values) != length:
        raise ModelFormatError(f"{key} has {len(values)} entries for {length} tokens; convert again", param="model")
    return values
