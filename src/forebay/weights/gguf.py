"""GGUF files, versions 2 and 3, read in place: a header walked once with every count, length and offset checked, and
tensors that are views of the memory-mapped file.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The file is untrusted: nothing is allocated on the
word of a count before the bytes it speaks of are known to be there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from forebay.errors import ModelFormatError, UnsupportedModelError
from forebay.ops.tensor import Tensor
from forebay.weights.formats import FORMATS, FORMATS_BY_GGML_TYPE, BlockFormat
from forebay.weights.mapped import ContentDigest, MappedFile, corrupt, shown

MAGIC = b"GGUF"
_MAX_NAME = 65535  # of a metadata key, by the format; tensor names get the same limit
_MAX_ELEMENTS = 1 << 23  # of all metadata arrays together; a 262k vocabulary with merges needs 1.3 million
_MAX_DEPTH = 4  # arrays in arrays
_ARRAY_WEIGHT = 64  # an array in an array counts as this many elements: it costs as much
_MAX_DIMS = 4
_MAX_TENSORS = 1 << 18  # a mixture with 256 unmerged experts in 61 layers has 46 thousand
_MAX_KEYS = 1 << 16
_DEFAULT_ALIGNMENT = 32
_MIN_KV_BYTES = 8 + 4 + 1  # key length, value type, smallest value
_MIN_INFO_BYTES = 8 + 4 + 8 + 4 + 8  # name length, dimension count, one dimension, type, offset

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_BOOL, _STRING, _ARRAY = 7, 8, 9
_SCALARS: dict[int, np.dtype[Any]] = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    _BOOL: np.dtype("<u1"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
_UNREAD_TYPES = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _TensorInfo:
    name: str
    format: BlockFormat
    rows: int
    columns: int
    offset: int  # from the start of the data section
    size: int  # bytes


class _Cursor:
    """Reads forward through the header; every read is checked against the end of the file."""

    def __init__(self, file: MappedFile) -> None:
        self.data = file.map
        self.size = file.size
        self.path = file.path
        self.position = 0
        self.elements = 0

    def bad(self, problem: str) -> ModelFormatError:
        return corrupt(self.path, problem)

    def take(self, count: int, what: str) -> int:
        """Step over `count` bytes and return where they start."""
        start = self.position
        if count > self.size - start:
            raise self.bad(f"{what} needs {count} bytes at offset {start}, the file has {self.size - start} left")
        self.position = start + count
        return start

    def u32(self, what: str) -> int:
        return int(_U32.unpack_from(self.data, self.take(4, what))[0])

    def u64(self, what: str) -> int:
        return int(_U64.unpack_from(self.data, self.take(8, what))[0])

    def count(self, what: str, bytes_each: int, limit: int) -> int:
        """A u64 count of things that take at least `bytes_each` bytes, all of which must still be ahead."""
        count = self.u64(what)
        if count > limit:
            raise self.bad(f"{what} is {count} (at most {limit} allowed)")
        if count * bytes_each > self.size - self.position:
            raise self.bad(f"{what} of {count} cannot be in the {self.size - self.position} bytes left")
        return count

    def string(self, what: str, limit: int | None = None) -> str:
        length = self.u64(f"length of {what}")
        if limit is not None and not 0 < length <= limit:
            raise self.bad(f"{what} is {length} bytes long (1 to {limit} allowed)")
        start = self.take(length, what)
        return self._text(self.data[start : start + length], what)

    def value(self, kind: int, what: str, depth: int = 0) -> Any:
        """One metadata value: int, float, bool, str or a list of these."""
        if kind == _STRING:
            return self.string(what)
        if kind == _ARRAY:
            return self._array(what, depth)
        return self._scalars(kind, 1, what)[0]

    def _array(self, what: str, depth: int) -> list[Any]:
        if depth >= _MAX_DEPTH:
            raise self.bad(f"{what} nests arrays more than {_MAX_DEPTH} deep")
        kind = self.u32(f"element type of {what}")
        each = {_STRING: 8, _ARRAY: 12}.get(kind) or self._dtype(kind, what).itemsize
        weight = _ARRAY_WEIGHT if kind == _ARRAY else 1
        count = self.count(f"length of {what}", each, (_MAX_ELEMENTS - self.elements) // weight)
        self.elements += count * weight
        if kind == _STRING:
            return self._strings(count, what)
        if kind == _ARRAY:
            return [self._array(what, depth + 1) for _ in range(count)]
        return self._scalars(kind, count, what)

    def _strings(self, count: int, what: str) -> list[str]:
        """A vocabulary is 50k to 500k strings, so this loop is the one that must be tight."""
        data, position, size, unpack = self.data, self.position, self.size, _U64.unpack_from
        out: list[str] = []
        for i in range(count):
            start = position + 8
            if start > size:
                raise self.bad(f"{what} ends at element {i} of {count}")
            position = start + unpack(data, start - 8)[0]
            if position > size:
                raise self.bad(f"element {i} of {what} runs past the end of the file")
            out.append(self._text(data[start:position], what))
        self.position = position
        return out

    def _scalars(self, kind: int, count: int, what: str) -> list[Any]:
        dtype = self._dtype(kind, what)
        start = self.take(count * dtype.itemsize, what)
        values = np.frombuffer(self.data, dtype=dtype, count=count, offset=start)
        if kind == _BOOL:
            if count and int(values.max()) > 1:
                raise self.bad(f"{what} holds a boolean that is neither 0 nor 1")
            values = values.astype(np.bool_)
        return list(values.tolist())

    def _dtype(self, kind: int, what: str) -> np.dtype[Any]:
        if kind not in _SCALARS:
            raise self.bad(f"{what} has unknown value type {kind}")
        return _SCALARS[kind]

    def _text(self, raw: bytes, what: str) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.bad(f"{what} is not UTF-8") from None


def _read_version(cursor: _Cursor) -> None:
    start = cursor.take(4, "the magic number")
    magic = bytes(cursor.data[start : start + 4])
    if magic != MAGIC:
        raise ModelFormatError(
            f"{cursor.path} is not a GGUF file: it starts with {magic!r}, not {MAGIC!r}", param="model"
        )
    version = cursor.u32("the version")
    if version in (2, 3):
        return
    if version & 0xFFFF == 0 and version:
        raise UnsupportedModelError(f"{cursor.path} is a big-endian GGUF: use the little-endian file", param="model")
    raise UnsupportedModelError(
        f"{cursor.path} is GGUF version {version}, Forebay reads 2 and 3: convert the model again", param="model"
    )


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for i in range(count):
        key = cursor.string(f"metadata key {i}", _MAX_NAME)
        if key in metadata:
            raise cursor.bad(f"metadata key {shown(key)} appears twice")
        metadata[key] = cursor.value(cursor.u32(f"type of {shown(key)}"), f"metadata {shown(key)}")
    return metadata


def _read_tensor_info(cursor: _Cursor, index: int) -> _TensorInfo:
    name = cursor.string(f"name of tensor {index}", _MAX_NAME)
    label = f"tensor {shown(name)}"
    num_dims = cursor.u32(f"dimension count of {label}")
    if not 1 <= num_dims <= _MAX_DIMS:
        raise cursor.bad(f"{label} has {num_dims} dimensions (1 to {_MAX_DIMS} allowed)")
    dims = [cursor.u64(f"dimensions of {label}") for _ in range(num_dims)]  # innermost first
    kind = cursor.u32(f"type of {label}")
    offset = cursor.u64(f"offset of {label}")
    if kind not in FORMATS_BY_GGML_TYPE:
        type_name = _UNREAD_TYPES.get(kind, f"number {kind}")
        known = ", ".join(name.upper() for name in FORMATS)
        raise UnsupportedModelError(
            f"{cursor.path}: {label} has type {type_name}; use a file with only {known}", param="model"
        )
    weight_format = FORMATS_BY_GGML_TYPE[kind]
    rows = 1
    for dim in dims[1:]:
        rows *= dim
    columns = dims[0]
    if not 0 < rows * columns < 1 << 63:
        raise cursor.bad(f"{label} has an impossible shape {dims}")
    if columns % weight_format.block_size:
        raise cursor.bad(f"{label} has rows of {columns} values, not a multiple of {weight_format.block_size}")
    return _TensorInfo(name, weight_format, rows, columns, offset, rows * weight_format.row_bytes(columns))


def _check_layout(cursor: _Cursor, infos: list[_TensorInfo], alignment: int, data_size: int) -> None:
    """Names unique, offsets aligned, every tensor inside the file, no two overlapping."""
    seen: set[str] = set()
    for info in infos:
        if info.name in seen:
            raise cursor.bad(f"tensor {shown(info.name)} appears twice")
        seen.add(info.name)
        if info.offset % alignment:
            raise cursor.bad(f"tensor {shown(info.name)} starts at {info.offset}, not a multiple of {alignment}")
        if info.offset + info.size > data_size:
            end = info.offset + info.size
            raise cursor.bad(f"tensor {shown(info.name)} ends at byte {end} of a {data_size} byte data section")
    for before, after in pairwise(sorted(infos, key=lambda info: info.offset)):
        if before.offset + before.size > after.offset:
            raise cursor.bad(f"tensors {shown(before.name)} and {shown(after.name)} overlap")


def _alignment(cursor: _Cursor, metadata: dict[str, Any]) -> int:
    value = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(value) is not int or not 1 <= value <= 1 << 20 or value & (value - 1):
        raise cursor.bad(f"general.alignment is {shown(str(value))}, not a power of two up to 1 MiB")
    return value


def _refuse_split(cursor: _Cursor, metadata: dict[str, Any]) -> None:
    parts = metadata.get("split.count", 1)
    if isinstance(parts, int) and parts > 1:
        raise UnsupportedModelError(
            f"{cursor.path} is one of {parts} parts: join them with `llama-gguf-split --merge` first", param="model"
        )


class GGUFCheckpoint:
    """A GGUF file as a Checkpoint. `config` is its metadata: key -> int, float, bool, str or list."""

    kind = "gguf"

    def __init__(self, path: Path) -> None:
        """Map the file and check its whole header. ModelSourceError, ModelFormatError, UnsupportedModelError."""
        self.path = path
        self._file = MappedFile(path)
        cursor = _Cursor(self._file)
        _read_version(cursor)
        num_tensors = cursor.count("tensor count", _MIN_INFO_BYTES, _MAX_TENSORS)
        num_keys = cursor.count("metadata count", _MIN_KV_BYTES, _MAX_KEYS)
        self.config: dict[str, Any] = _read_metadata(cursor, num_keys)
        _refuse_split(cursor, self.config)
        alignment = _alignment(cursor, self.config)
        infos = [_read_tensor_info(cursor, i) for i in range(num_tensors)]
        self._header_size = cursor.position
        self._data_start = -(-cursor.position // alignment) * alignment
        _check_layout(cursor, infos, alignment, max(0, self._file.size - self._data_start))
        self._infos = {info.name: info for info in infos}

    def tensor_names(self) -> list[str]:
        """In file order."""
        return list(self._infos)

    def tensor(self, name: str) -> Tensor:
        """The tensor as stored, a view of the file, outer dimensions flattened into rows. ModelFormatError: no such."""
        info = self._infos.get(name)
        if info is None:
            raise ModelFormatError(f"{self.path} has no tensor {shown(name)}: it is not a whole model", param="model")
        data = self._file.array(self._data_start + info.offset, info.size)
        return Tensor(name, info.format, info.rows, info.columns, data.reshape(info.rows, -1))

    def file(self, name: str) -> bytes | None:
        """Always None: a GGUF has no side files."""
        return None

    @cached_property
    def digest(self) -> str:
        """sha256 (hex) of the header and of a sample of every tensor."""
        digest = ContentDigest()
        digest.part("header", self._file.array(0, self._header_size))
        for info in self._infos.values():
            digest.sample(info.name, self._file.array(self._data_start + info.offset, info.size))
        return digest.hex()

    def close(self) -> None:
        """Let go of the file; tensors handed out stay valid."""
        self._file.close()
