"""Small model files the tests write."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.constants import GGMLQuantizationType

STRING, ARRAY, U32 = 8, 9, 4


def write_gguf(
    path: Path,
    *,
    fill: Callable[[gguf.GGUFWriter], None] | None = None,
    tensors: Mapping[str, np.ndarray[Any, Any]] | None = None,
    quantize: Mapping[str, GGMLQuantizationType] | None = None,
    alignment: int | None = None,
) -> Path:
    """A llama-shaped GGUF written by the `gguf` package."""
    writer = gguf.GGUFWriter(path, "llama")
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    if fill is not None:
        fill(writer)
    for name, values in (tensors or {}).items():
        kind = (quantize or {}).get(name)
        data = values if kind is None else gguf.quantize(values, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def key(name: str | bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def info(name: str, dims: list[int], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def raw_gguf(
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    num_tensors: int | None = None,
    num_keys: int | None = None,
    keys: list[bytes] | None = None,
    infos: list[bytes] | None = None,
    data: bytes = b"",
    alignment: int = 32,
) -> bytes:
    """A GGUF from parts, each of which may lie."""
    keys, infos = keys or [], infos or []
    counts = (len(infos) if num_tensors is None else num_tensors, len(keys) if num_keys is None else num_keys)
    head = magic + struct.pack("<IQQ", version, *counts) + b"".join(keys) + b"".join(infos)
    return head + bytes(-len(head) % alignment) + data
