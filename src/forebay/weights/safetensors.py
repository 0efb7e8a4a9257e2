"""Hugging Face model folders: config.json and safetensors, one file or sharded, read in place.

Format: https://huggingface.co/docs/safetensors (8 bytes header length, JSON header, data). Files are untrusted: the
header is checked whole before a tensor is handed out, shard names must be plain file names, and pickled weights are
never opened.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from forebay.errors import ModelFormatError, ModelSourceError, UnsupportedModelError
from forebay.ops.tensor import BytesArray, Tensor
from forebay.weights.formats import FORMATS
from forebay.weights.mapped import ContentDigest, MappedFile, corrupt, shown

CONFIG_NAME = "config.json"
SINGLE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")

_MAX_HEADER = 100_000_000  # the reference implementation's limit
_MAX_JSON = 1 << 28
_FORMATS = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
_ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip


def refuse_pickle(path: Path) -> UnsupportedModelError:
    """The error for a pickled checkpoint; loading one can run any code its author likes."""
    return UnsupportedModelError(
        f"{path} is a pickle, which Forebay never loads because it can run code: save the model as safetensors "
        "(transformers: model.save_pretrained(folder)) and use that folder",
        param="model",
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key appears twice")
    return out


def parse_json_object(raw: bytes, what: str) -> dict[str, Any]:
    """A JSON object without duplicate keys. ValueError says what is wrong, with `what` as its subject."""
    try:
        value = json.loads(raw.decode(), object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError(f"{what} is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{what} is not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not a JSON object")
    return value


@dataclass(frozen=True, slots=True)
class _Entry:
    dtype: str
    shape: tuple[int, ...]
    begin: int  # from the start of the data section
    end: int


def _whole(value: object) -> bool:
    return type(value) is int and value >= 0


class SafetensorsFile:
    """One .safetensors file, its header checked whole."""

    def __init__(self, path: Path) -> None:
        """ModelSourceError, ModelFormatError."""
        self.path = path
        self._file = MappedFile(path)
        if self._file.size < 8:
            raise corrupt(path, f"{self._file.size} bytes are too few for a safetensors file")
        length = int.from_bytes(self._file.map[:8], "little")
        if length > min(_MAX_HEADER, self._file.size - 8):
            raise corrupt(path, f"header length {length} does not fit in the file's {self._file.size} bytes")
        try:
            header = parse_json_object(self._file.map[8 : 8 + length], "header")
        except ValueError as error:
            raise corrupt(path, str(error)) from None
        header.pop("__metadata__", None)
        self._data_start = 8 + length
        self._entries = {name: self._entry(name, value) for name, value in header.items()}
        self._check_layout()

    def names(self) -> list[str]:
        """Tensor names in file order."""
        return list(self._entries)

    def tensor(self, name: str) -> Tensor:
        """A view of the file; outer dimensions are flattened into rows. KeyError: no such tensor."""
        entry = self._entries[name]
        if entry.dtype not in _FORMATS:
            known = ", ".join(_FORMATS)
            raise UnsupportedModelError(
                f"{self.path}: tensor {shown(name)} has dtype {shown(entry.dtype)}; use a checkpoint in {known}",
                param="model",
            )
        columns = entry.shape[-1] if entry.shape else 1
        rows = math.prod(entry.shape[:-1])
        if rows * columns == 0:
            raise corrupt(self.path, f"tensor {shown(name)} is empty (shape {list(entry.shape)})")
        return Tensor(name, FORMATS[_FORMATS[entry.dtype]], rows, columns, self._bytes(entry).reshape(rows, -1))

    def add_to(self, digest: ContentDigest) -> None:
        """Header and a sample of every tensor."""
        digest.part("header", self._file.array(0, self._data_start))
        for name, entry in self._entries.items():
            digest.sample(name, self._bytes(entry))

    def close(self) -> None:
        self._file.close()

    def _bytes(self, entry: _Entry) -> BytesArray:
        return self._file.array(self._data_start + entry.begin, entry.end - entry.begin)

    def _entry(self, name: str, value: object) -> _Entry:
        label = f"tensor {shown(name)}"
        if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
            raise corrupt(self.path, f"{label} is not described by dtype, shape and data_offsets")
        dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
        if not isinstance(dtype, str):
            raise corrupt(self.path, f"{label} has a dtype that is not a string")
        if not isinstance(shape, list) or not all(map(_whole, shape)) or len(shape) > 16:
            raise corrupt(self.path, f"{label} has an impossible shape")
        if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_whole, offsets)):
            raise corrupt(self.path, f"{label} has impossible data_offsets")
        begin, end = offsets
        if not begin <= end <= self._file.size - self._data_start:
            raise corrupt(self.path, f"{label} lies at {begin}..{end}, outside the data section")
        if dtype in _ITEM_BYTES and math.prod(shape) * _ITEM_BYTES[dtype] != end - begin:
            raise corrupt(self.path, f"{label} of shape {shape} and dtype {dtype} cannot take {end - begin} bytes")
        return _Entry(dtype, tuple(shape), begin, end)

    def _check_layout(self) -> None:
        """No holes, no overlaps, nothing left over: what the format demands."""
        position = 0
        for name, entry in sorted(self._entries.items(), key=lambda item: (item[1].begin, item[1].end)):
            if entry.begin != position:
                raise corrupt(self.path, f"tensor {shown(name)} begins at {entry.begin}, expected {position}")
            position = entry.end
        if position != self._file.size - self._data_start:
            raise corrupt(self.path, f"the tensors end at byte {position} of the data section, not at its end")


class SafetensorsCheckpoint:
    """A Hugging Face folder as a Checkpoint. `config` is config.json."""

    kind = "hf"

    def __init__(self, path: Path) -> None:
        """Open every shard and check its header. ModelSourceError, ModelFormatError, UnsupportedModelError."""
        self.path = path
        self.config: dict[str, Any] = self._json(CONFIG_NAME)
        self._shard_of = self._find_shards()
        self._shards = {name: SafetensorsFile(path / name) for name in sorted(set(self._shard_of.values()))}
        if not self._shard_of:
            shard = SafetensorsFile(path / SINGLE_NAME)
            self._shards = {SINGLE_NAME: shard}
            self._shard_of = dict.fromkeys(shard.names(), SINGLE_NAME)
        self._check_index()

    def tensor_names(self) -> list[str]:
        return list(self._shard_of)

    def tensor(self, name: str) -> Tensor:
        """The tensor as stored, a view of its file. ModelFormatError: no such; UnsupportedModelError: its dtype."""
        shard = self._shard_of.get(name)
        if shard is None:
            raise ModelFormatError(f"{self.path} has no tensor {shown(name)}: it is not a whole model", param="model")
        return self._shards[shard].tensor(name)

    def file(self, name: str) -> bytes | None:
        """A side file of the folder (tokenizer.json ...), None when it is not there."""
        if not _is_plain_name(name):
            raise ValueError(f"{name!r} is not a plain file name")
        path = self.path / name
        if not path.is_file():
            return None
        try:
            size = path.stat().st_size
            if size > _MAX_JSON:
                raise corrupt(path, f"{size} bytes are too many for a side file")
            return path.read_bytes()
        except OSError as error:
            raise ModelSourceError(f"{path} cannot be read: {error.strerror or error}", param="model") from error

    @cached_property
    def digest(self) -> str:
        """sha256 (hex) of config.json, the headers and a sample of every tensor."""
        digest = ContentDigest()
        digest.part(CONFIG_NAME, self.file(CONFIG_NAME) or b"")
        for shard in self._shards.values():
            shard.add_to(digest)
        return digest.hex()

    def close(self) -> None:
        """Let go of the files; tensors handed out stay valid."""
        for shard in self._shards.values():
            shard.close()

    def _json(self, name: str) -> dict[str, Any]:
        raw = self.file(name)
        if raw is None:
            raise ModelSourceError(
                f"{self.path} has no {name}: give a Hugging Face model folder or a .gguf file", param="model"
            )
        try:
            return parse_json_object(raw, name)
        except ValueError as error:
            raise corrupt(self.path, str(error)) from None

    def _find_shards(self) -> dict[str, str]:
        """Tensor name -> shard file name; empty when the model is the single file."""
        if (self.path / SINGLE_NAME).is_file():
            return {}
        if not (self.path / INDEX_NAME).is_file():
            raise self._no_weights()
        try:
            return shards_of(self._json(INDEX_NAME))
        except ValueError as error:
            raise corrupt(self.path / INDEX_NAME, str(error)) from None

    def _no_weights(self) -> ModelSourceError | UnsupportedModelError:
        for path in sorted(self.path.iterdir()):
            if path.suffix in PICKLE_SUFFIXES:
                return refuse_pickle(path)
        return ModelSourceError(
            f"{self.path} has neither {SINGLE_NAME} nor {INDEX_NAME}: fetch the model's safetensors", param="model"
        )

    def _check_index(self) -> None:
        held = {name: set(shard.names()) for name, shard in self._shards.items()}
        for tensor, shard in self._shard_of.items():
            if tensor not in held[shard]:
                raise corrupt(self.path, f"{INDEX_NAME} says that {shown(tensor)} is in {shown(shard)}, it is not")


def _is_plain_name(name: str) -> bool:
    return name not in ("", ".", "..") and not set(name) & set("/\\\0")


def shards_of(index: dict[str, Any]) -> dict[str, str]:
    """The weight_map of model.safetensors.index.json: tensor name -> file name beside it. ValueError: a bad one."""
    shards = index.get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise ValueError("weight_map is missing or empty")
    for tensor, shard in shards.items():
        if not isinstance(shard, str) or not _is_plain_name(shard) or not shard.endswith(".safetensors"):
            raise ValueError(
                f"weight_map puts {shown(tensor)} in {shown(str(shard))}, not a .safetensors file beside it"
            )
    return shards
