"""A memory-mapped model file: read-only, never copied, and the error lines every reader of one shares."""

from __future__ import annotations

import hashlib
import mmap
from pathlib import Path

import numpy as np

from forebay.errors import ModelFormatError, ModelSourceError
from forebay.ops.tensor import BytesArray

_SAMPLE_BYTES = 1024


def shown(name: str) -> str:
    """A name from an untrusted file, safe to print: quoted, escaped, cut to 80 characters."""
    return repr(name if len(name) <= 80 else name[:77] + "...")


def corrupt(path: Path, problem: str) -> ModelFormatError:
    """The one line for a file that breaks its own format."""
    return ModelFormatError(f"{path}: {problem}; the file is truncated or corrupt, fetch it again", param="model")


class MappedFile:
    """A regular file mapped read-only. Arrays from `array` keep the mapping alive after `close`."""

    def __init__(self, path: Path) -> None:
        """ModelSourceError when the file is missing, unreadable or not a regular file."""
        if not path.is_file():
            problem = "is not a regular file" if path.exists() else "does not exist"
            raise ModelSourceError(f"{path} {problem}: check the path", param="model")
        try:
            with path.open("rb") as file:
                self.size = file.seek(0, 2)
                self.map: mmap.mmap | bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size else b""
        except OSError as error:
            raise ModelSourceError(f"{path} cannot be read: {error.strerror or error}", param="model") from error
        self.path = path
        self._bytes: BytesArray | None = np.frombuffer(self.map, dtype=np.uint8)

    def array(self, offset: int, size: int) -> BytesArray:
        """(size,) uint8 view of the file; the caller has checked the range."""
        if self._bytes is None:
            raise ValueError(f"{self.path} is closed")
        return self._bytes[offset : offset + size]

    def close(self) -> None:
        """Drop our references; the mapping goes when the last array does."""
        self._bytes = None
        self.map = b""


def drop_pages(data: BytesArray) -> None:
    """Take the pages of `data` out of this process where it is a view of a mapped file: they can be read again.

    Only whole pages, so that nothing beside it is touched. Other memory, and systems that cannot, are left as they are.
    """
    owner: object = data
    mapped = data
    while isinstance(owner, np.ndarray):
        mapped, owner = owner, owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    if not isinstance(owner, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    start = data.ctypes.data - mapped.ctypes.data  # `mapped` is the whole file
    first, last = -(-start // mmap.PAGESIZE), (start + data.nbytes) // mmap.PAGESIZE
    if last > first:
        owner.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE)


class ContentDigest:
    """A cheap identity of a checkpoint: whole headers, and the first, middle and last KiB of every tensor."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def part(self, name: str, data: bytes | BytesArray) -> None:
        """All of `data` under `name`."""
        self._hash.update(f"{len(name)}:{name}:{len(data)}:".encode())
        self._hash.update(data if isinstance(data, bytes) else data.tobytes())

    def sample(self, name: str, data: BytesArray) -> None:
        """Three KiB of `data` under `name`; all of it when it is that small."""
        if data.size <= 3 * _SAMPLE_BYTES:
            self.part(name, data)
            return
        middle = data.size // 2
        pieces = (data[:_SAMPLE_BYTES], data[middle : middle + _SAMPLE_BYTES], data[-_SAMPLE_BYTES:])
        self.part(f"{name}/{data.size}", np.concatenate(pieces))

    def hex(self) -> str:
        return self._hash.hexdigest()
