"""The cache folder: nothing stands under its final name before it was verified, and one process fetches at a time."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from forebay.errors import ModelSourceError

T = TypeVar("T")
Read = Callable[[int], bytes]
Advance = Callable[[int], None]

TRIES = 3
_CHUNK = 1 << 20
_PARTIAL = ".partial-"
_log = logging.getLogger(__name__)


class RetriesExhaustedError(ModelSourceError):
    """Every try was a broken download."""


class BrokenDownloadError(Exception):
    """One try went wrong in a way that another may not; the text says how."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What is known of a file before it arrives; None = not known. git_oid: its SHA-1 as a git blob."""

    size: int | None = None
    sha256: str | None = None
    git_oid: str | None = None


def with_retries(what: str, remedy: str, attempt: Callable[[int], T]) -> T:
    """attempt(number from 0) until it does not raise BrokenDownloadError; after TRIES, RetriesExhaustedError."""
    for number in range(TRIES):
        try:
            return attempt(number)
        except BrokenDownloadError as error:
            problem = str(error)
            if number + 1 < TRIES:
                _log.warning("%s: %s; trying again (%d of %d)", what, problem, number + 2, TRIES)
        except OSError as error:
            raise ModelSourceError(
                f"{what}: {error}; check the cache folder (FOREBAY_CACHE_DIR)", param="model"
            ) from error
    raise RetriesExhaustedError(f"{what} failed {TRIES} times: {problem}; {remedy}", param="model")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock (made if needed), with the leftovers of killed fetches swept away."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise ModelSourceError(
            f"cache folder {folder} cannot be written ({error.strerror}): set FOREBAY_CACHE_DIR to one that can",
            param="model",
        ) from error
    with lock:
        _wait_for(lock.fileno(), folder)
        for leftover in folder.glob(_PARTIAL + "*"):
            shutil.rmtree(leftover, ignore_errors=True)
        yield


def _wait_for(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _log.warning("another process is fetching into %s; waiting for it", folder)
        fcntl.flock(descriptor, fcntl.LOCK_EX)


@contextmanager
def partial_folder(folder: Path) -> Iterator[Path]:
    """A folder for unverified bytes on the same file system as `folder`; gone afterwards, whatever happens."""
    with tempfile.TemporaryDirectory(prefix=_PARTIAL, dir=folder, ignore_cleanup_errors=True) as name:
        yield Path(name)


def need_space(folder: Path, size: int) -> None:
    """ModelSourceError when `size` bytes do not fit."""
    free = shutil.disk_usage(folder).free
    if size > free:
        raise ModelSourceError(
            f"{size / 1e6:.0f} MB are needed in {folder}, {free / 1e6:.0f} MB are free: "
            "free some space or set FOREBAY_CACHE_DIR",
            param="model",
        )


def save(read: Read, target: Path, expected: Expected, advance: Advance) -> str:
    """Write what `read` gives to `target`, check it, flush it to disk and return its sha256 (hex).

    Raises BrokenDownloadError when size or digest differ; stops as soon as more bytes come than expected.
    """
    sha256, size = hashlib.sha256(), 0
    git = hashlib.sha1(b"blob %d\0" % (expected.size or 0), usedforsecurity=False)
    with target.open("wb") as file:
        while chunk := read(_CHUNK):
            size += len(chunk)
            if expected.size is not None and size > expected.size:
                raise BrokenDownloadError(f"{target.name} is longer than the {expected.size} bytes expected")
            sha256.update(chunk)
            git.update(chunk)
            file.write(chunk)
            advance(len(chunk))
        file.flush()
        os.fsync(file.fileno())
    if expected.size is not None and size != expected.size:
        raise BrokenDownloadError(f"{target.name} broke off after {size} of {expected.size} bytes")
    _check("sha256", sha256.hexdigest(), expected.sha256, target)
    if expected.size is not None:
        _check("git id", git.hexdigest(), expected.git_oid, target)
    return sha256.hexdigest()


def _check(kind: str, got: str, wanted: str | None, target: Path) -> None:
    if wanted is not None and got != wanted:
        raise BrokenDownloadError(f"{target.name} has {kind} {got}, expected {wanted}")


def publish(source: Path, target: Path, sha256: str) -> Path:
    """Give a verified file its final name, in one step, with a marker that remembers what was verified."""
    _write_marker(target, source.stat(), sha256)
    os.replace(source, target)
    return target


def intact(path: Path, sha256: str | None) -> bool:
    """Is `path` the file that was verified? Cheap while size and time are unchanged, else by hashing it again."""
    if not path.is_file():
        return False
    stat, marker = path.stat(), _read_marker(path)
    wanted = sha256 or str(marker.get("sha256"))
    if marker == _marker(stat, wanted):
        return True
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != wanted:
            _log.warning("%s is not the file that was verified; fetching it again", path)
            return False
    try:
        _write_marker(path, stat, wanted)
    except OSError:
        _log.debug("%s: marker not written", path)  # a read-only cache is hashed every time, and works
    return True


def _marker(stat: os.stat_result, sha256: str) -> dict[str, object]:
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": sha256}


def _marker_path(path: Path) -> Path:
    return path.with_name(path.name + ".verified.json")


def _write_marker(path: Path, stat: os.stat_result, sha256: str) -> None:
    write_text(_marker_path(path), json.dumps(_marker(stat, sha256)))


def _read_marker(path: Path) -> dict[str, object]:
    try:
        marker = json.loads(_marker_path(path).read_text())
    except (OSError, ValueError):
        return {}
    return marker if isinstance(marker, dict) else {}


def write_text(path: Path, text: str) -> None:
    """Replace a small file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".new-{os.getpid()}-{threading.get_ident()}-{path.name}")
    new.write_text(text)
    os.replace(new, path)
