"""A tokenizer from a Hugging Face folder: tokenizer.json, its configuration files and its chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers

from forebay.errors import ModelFormatError, UnsupportedModelError
from forebay.tokenizer.longest import longest_in_file
from forebay.tokenizer.pieces import Pieces, byte_level_pieces, sentencepiece_pieces
from forebay.tokenizer.tokenizer import SpecialTokens, Tokenizer, checked_id, library_ids
from forebay.weights.checkpoint import Checkpoint
from forebay.weights.safetensors import parse_json_object

_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_DECODERS = "ByteLevel, Metaspace, or a Sequence of Replace, ByteFallback, Fuse and Strip"


def tokenizer_from_folder(checkpoint: Checkpoint) -> Tokenizer:
    """The tokenizer of a Hugging Face checkpoint.

    UnsupportedModelError: no tokenizer.json, or one that decodes in a way we do not know. ModelFormatError: bad files.
    """
    raw = checkpoint.file("tokenizer.json")
    if raw is None:
        raise UnsupportedModelError(
            f"{checkpoint.path} has no tokenizer.json; make one with transformers: "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)",
            param="model",
        )
    try:
        library = tokenizers.Tokenizer.from_buffer(raw)
    except Exception as error:  # the library raises plain Exception
        raise ModelFormatError(f"{checkpoint.path}/tokenizer.json cannot be read: {error}", param="model") from error
    library.no_truncation()
    library.no_padding()
    config = _json_file(checkpoint, "tokenizer_config.json")
    names = _special_names(config, _json_file(checkpoint, "special_tokens_map.json"))
    _mark_special(library, names)
    vocabulary = library.get_vocab()
    size = 1 + max(vocabulary.values(), default=-1)  # ids may have holes

    def encode(text: str) -> list[int]:
        return library_ids(library, text)

    return Tokenizer(
        encode,
        _pieces(library, names, size),
        _special_tokens(checkpoint, library, config, names, size),
        vocab_size=size,
        templates=_templates(checkpoint, config),
        identity=[b"tokenizer.json", raw, repr(sorted(names.items())).encode()],
        longest=longest_in_file(json.loads(raw), vocabulary),
    )


def _json_file(checkpoint: Checkpoint, name: str) -> dict[str, Any]:
    raw = checkpoint.file(name)
    if raw is None:
        return {}
    try:
        return parse_json_object(raw, f"{checkpoint.path}/{name}")
    except ValueError as error:
        raise ModelFormatError(str(error), param="model") from error


def _special_names(config: Mapping[str, Any], special_map: Mapping[str, Any]) -> dict[str, str]:
    names = {}
    for name in _NAMES:
        value = config.get(name, special_map.get(name))
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            names[name] = text
    return names


def _mark_special(library: tokenizers.Tokenizer, names: Mapping[str, str]) -> None:
    """Named tokens of the vocabulary that the file does not match as a whole. One the model has no id for stays out."""
    known = {token.content for token in library.get_added_tokens_decoder().values()}
    unmarked = [text for text in names.values() if text not in known and library.token_to_id(text) is not None]
    library.add_special_tokens([tokenizers.AddedToken(text, normalized=False, special=True) for text in unmarked])


def _pieces(library: tokenizers.Tokenizer, names: Mapping[str, str], size: int) -> Pieces:
    """How the file's decoder turns tokens into bytes; the library's own text, except where bytes are not UTF-8."""
    added = library.get_added_tokens_decoder()

    def text_of(token_id: int) -> str | None:
        return library.id_to_token(token_id) if 0 <= token_id < size else None

    named = {i for text in names.values() if (i := library.token_to_id(text)) is not None}
    special = frozenset({i for i, token in added.items() if token.special} | named)
    spec: dict[str, Any] = {"type": None} if library.decoder is None else json.loads(library.decoder.__getstate__())
    steps: list[dict[str, Any]] = spec["decoders"] if spec["type"] == "Sequence" else [spec]
    kinds = [step["type"] for step in steps]
    if kinds in (["ByteLevel"], ["ByteLevel", "Fuse"]):
        return Pieces(byte_level_pieces(text_of, {i: token.content for i, token in added.items()}), special)
    replacements: list[tuple[str, str]] = []
    strip_spaces, bare_first = 0, False
    for i, step in enumerate(steps):
        if step["type"] == "Metaspace":
            replacements.append((step["replacement"], " "))
            bare_first = step.get("prepend_scheme", "always") != "never"
        elif step["type"] == "Replace" and "String" in step["pattern"]:
            replacements.append((step["pattern"]["String"], step["content"]))
        elif step["type"] == "Strip" and step["content"] == " " and not step["stop"] and "Fuse" in kinds[:i]:
            strip_spaces = step["start"]
        elif step["type"] not in ("ByteFallback", "Fuse"):
            raise UnsupportedModelError(
                f"tokenizer.json: decoder {json.dumps(spec)[:200]} is not known; use a model with {_DECODERS}",
                param="model",
            )
    piece_of = sentencepiece_pieces(text_of, replacements=tuple(replacements), byte_fallback="ByteFallback" in kinds)
    return Pieces(piece_of, special, strip_spaces=strip_spaces, bare_first=bare_first)


def _special_tokens(
    checkpoint: Checkpoint,
    library: tokenizers.Tokenizer,
    config: Mapping[str, Any],
    names: Mapping[str, str],
    size: int,
) -> SpecialTokens:
    generation = {**checkpoint.config, **_json_file(checkpoint, "generation_config.json")}
    bos = library.token_to_id(names["bos_token"]) if "bos_token" in names else generation.get("bos_token_id")
    eos = library.token_to_id(names["eos_token"]) if "eos_token" in names else None
    ends = generation.get("eos_token_id")
    end_ids = [i for i in ([eos, *ends] if isinstance(ends, list) else [eos, ends]) if i is not None]
    prefix, suffix = _around(library)
    prefix = _forced(prefix, config.get("add_bos_token"), bos)
    suffix = _forced(suffix, config.get("add_eos_token"), eos)
    return SpecialTokens(
        bos_token_id=None if bos is None else checked_id(bos, size, "bos_token_id"),
        eos_token_ids=frozenset(checked_id(i, size, "eos_token_id") for i in end_ids),
        prefix=prefix,
        suffix=suffix,
        names=names,
    )


def _around(library: tokenizers.Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the file's post-processor puts before and after a text, seen on a text of our own."""
    plain: Sequence[int] = library.encode("a", add_special_tokens=False).ids
    full: Sequence[int] = library.encode("a", add_special_tokens=True).ids
    for start in range(len(full) - len(plain) + 1):
        if full[start : start + len(plain)] == plain:
            return tuple(full[:start]), tuple(full[start + len(plain) :])
    raise UnsupportedModelError("tokenizer.json: post_processor does more than add tokens around a text", param="model")


def _forced(found: tuple[int, ...], flag: object, token_id: int | None) -> tuple[int, ...]:
    """add_bos_token / add_eos_token of tokenizer_config.json, where it says so, overrule tokenizer.json."""
    if flag is True and token_id is not None and token_id not in found:
        return (token_id,)
    return () if flag is False else found


def _templates(checkpoint: Checkpoint, config: Mapping[str, Any]) -> dict[str, str]:
    raw = checkpoint.file("chat_template.jinja")
    if raw is not None:
        try:
            return {"default": raw.decode()}
        except UnicodeDecodeError as error:
            raise ModelFormatError(f"{checkpoint.path}/chat_template.jinja: {error}", param="model") from error
    value = config.get("chat_template")
    if isinstance(value, str):
        return {"default": value}
    if isinstance(value, list) and all(isinstance(entry, dict) for entry in value):
        named = {str(entry.get("name")): entry.get("template") for entry in value}
        return {name: template for name, template in named.items() if isinstance(template, str)}
    return {}
