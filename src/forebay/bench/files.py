"""Files that a measurement reads: plain or packed, and hostile until checked."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import IO

from forebay.errors import BenchError

UNREADABLE = (OSError, EOFError, zlib.error)  # what reading a file that is missing or damaged raises


def opened(path: Path) -> IO[bytes] | gzip.GzipFile:
    """A file to read, unpacked if its name ends in .gz. It and its reads raise UNREADABLE."""
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def read_bounded(path: Path, limit: int, what: str, remedy: str) -> bytes:
    """The whole file. Raises BenchError, beginning with `what` it is to the user, if it cannot be read or has more than
    `limit` bytes once unpacked."""
    try:
        with opened(path) as file:
            data = file.read(limit + 1)
    except UNREADABLE as error:
        raise BenchError(f"{what} {str(path)!r} cannot be read: {error}; {remedy}") from error
    if len(data) > limit:
        raise BenchError(f"{what} {str(path)!r} is larger than {limit >> 20} MiB; {remedy}")
    return data
