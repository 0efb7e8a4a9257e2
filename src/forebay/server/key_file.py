"""The file of API keys: `forebay serve --api-keys` reads it, `forebay keys` writes it. It holds no key, only digests.

    version = 1
    secret = "<64 hex digits>"      the cache salts of all tenants are derived from it

    [[keys]]
    name = "alice-laptop"           whose key it is, for the operator
    tenant = "research"             tenants share no cached prefix; keys of one tenant do
    sha256 = "<64 hex digits>"      of the key

A plain SHA-256 is enough because keys are drawn at random with 256 bits: there is no dictionary to try.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shlex
import stat
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from forebay.errors import KeyFileError

VERSION = 1
KEY_PREFIX = "fb-"  # a scanner for leaked secrets can know them by it
MAX_KEYS = 1024  # each request is compared with all of them
MAX_BYTES = 2**20  # as many keys with the longest names take less than half of it

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_HEX = re.compile(r"[0-9a-f]{64}")
_NAME_IS = "1 to 64 letters, digits, '.', '_', '@' or '-', the first a letter or digit"
_HEX_IS = "64 hex digits in lower case"


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One key. `sha256`: of the key, as hex."""

    name: str
    tenant: str
    sha256: str


@dataclass(frozen=True, slots=True)
class KeyFile:
    """What a file says. `secret`: 32 bytes as hex."""

    secret: str
    keys: tuple[KeyEntry, ...] = ()


def read_key_file(path: Path) -> KeyFile:
    """Raises KeyFileError: unreadable, open to other users, empty, not TOML, wrong or unknown fields, a name or a key
    twice."""
    content = _read_private(path)
    if not content.strip():
        raise KeyFileError(f"{path} is empty; remove it, then make one with: forebay keys add {path} NAME")
    try:
        document = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML
        raise KeyFileError(f"{path} is not TOML: {error}; correct it, or make a new one with `forebay keys`") from None
    return _parse(path, document)


def add_key(path: Path, name: str, tenant: str) -> str:
    """A new key, which is stored nowhere. The file is made if there is none. Raises KeyFileError."""
    for what, value in (("name", name), ("tenant", tenant)):
        if not _NAME.fullmatch(value):
            raise KeyFileError(f"the {what} of a key must be {_NAME_IS}, got {value[:100]!r}", param=what)
    with _rewriting(path) as out:
        file = read_key_file(path) if path.exists() else KeyFile(secrets.token_hex(32))
        if any(entry.name == name for entry in file.keys):
            raise KeyFileError(f"{path} has a key named {name!r}; remove it or choose another name", param="name")
        if len(file.keys) == MAX_KEYS:
            raise KeyFileError(f"{path} has {MAX_KEYS} keys, the most it may hold; remove some")
        key = KEY_PREFIX + secrets.token_urlsafe(32)
        entry = KeyEntry(name, tenant, hashlib.sha256(key.encode()).hexdigest())
        out.write(_as_toml(replace(file, keys=(*file.keys, entry))))
    return key


def remove_key(path: Path, name: str) -> None:
    """Raises KeyFileError, also if there is no such key."""
    with _rewriting(path) as out:
        file = read_key_file(path)
        left = tuple(entry for entry in file.keys if entry.name != name)
        if len(left) == len(file.keys):
            known = ", ".join(entry.name for entry in file.keys[:20]) or "none"
            raise KeyFileError(f"{path} has no key named {name[:100]!r}; it has {known}", param="name")
        out.write(_as_toml(replace(file, keys=left)))


def _read_private(path: Path) -> bytes:
    """The content of a file that only its owner can read or change. Raises KeyFileError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe must not hold up the start
        with open(descriptor, "rb") as file:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise KeyFileError(f"{path} is not a regular file; make one with: forebay keys add FILE NAME")
            if os.name == "posix" and mode & 0o077:
                raise KeyFileError(
                    f"{path} is open to other users (mode {stat.S_IMODE(mode):03o}); "
                    f"run: chmod 600 {shlex.quote(str(path))}"
                )
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _cannot("read", path, error) from None
    if len(content) > MAX_BYTES:
        raise KeyFileError(f"{path} is larger than {MAX_BYTES} bytes, more than {MAX_KEYS} keys take; remove the rest")
    return content


def _parse(path: Path, document: dict[str, Any]) -> KeyFile:
    _check_fields(path, "", document, ("version", "secret", "keys"))
    shown = document.get("version", "none")
    if type(shown) is not int or shown != VERSION:
        raise KeyFileError(f"{path}: version must be {VERSION}, got {shown!r:.40}; this Forebay reads no other")
    secret = _text(path, "secret", document.get("secret"), _HEX, _HEX_IS)
    raw = document.get("keys", [])
    if not isinstance(raw, list) or not all(isinstance(entry, dict) for entry in raw):
        raise KeyFileError(f"{path}: every key must be a table of its own, written [[keys]]", param="keys")
    if len(raw) > MAX_KEYS:
        raise KeyFileError(f"{path} has {len(raw)} keys and may hold {MAX_KEYS}; remove some", param="keys")
    keys = tuple(_entry(path, f"keys[{i}]", entry) for i, entry in enumerate(raw))
    _check_unique(path, keys)
    return KeyFile(secret, keys)


def _entry(path: Path, where: str, raw: dict[str, Any]) -> KeyEntry:
    _check_fields(path, f"{where}.", raw, ("name", "tenant", "sha256"))
    return KeyEntry(
        name=_text(path, f"{where}.name", raw.get("name"), _NAME, _NAME_IS),
        tenant=_text(path, f"{where}.tenant", raw.get("tenant"), _NAME, _NAME_IS),
        sha256=_text(path, f"{where}.sha256", raw.get("sha256"), _HEX, f"{_HEX_IS}, the SHA-256 of a key"),
    )


def _check_fields(path: Path, prefix: str, raw: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in raw:
        if name not in known:
            where = prefix + name[:60]
            raise KeyFileError(f"{path}: unknown field {where!r}; known are {', '.join(known)}", param=where)


def _text(path: Path, where: str, value: object, pattern: re.Pattern[str], wanted: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        # a wrong value is not shown: it may be a key that somebody put here
        found = "it is missing" if value is None else "it is something else"
        raise KeyFileError(f"{path}: {where} must be {wanted}; {found}", param=where)
    return value


def _check_unique(path: Path, keys: tuple[KeyEntry, ...]) -> None:
    names: set[str] = set()
    owners: dict[str, str] = {}
    for entry in keys:
        if entry.name in names:
            raise KeyFileError(f"{path} has two keys named {entry.name!r}; rename or remove one", param="name")
        if entry.sha256 in owners:
            both = f"{owners[entry.sha256]!r} and {entry.name!r}"
            raise KeyFileError(f"{path}: {both} are the same key; remove one", param="sha256")
        names.add(entry.name)
        owners[entry.sha256] = entry.name


@contextlib.contextmanager
def _rewriting(path: Path) -> Iterator[TextIO]:
    """A private file that takes the place of `path` at the end, or is gone after an error. One at a time. It keeps the
    owner. Raises KeyFileError."""
    target = path.resolve()  # a link stays one
    new = target.with_name(f".{target.name}.new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise KeyFileError(f"{new} exists: another `forebay keys` runs, or one was killed; then remove it") from None
    except OSError as error:
        raise _cannot("write", path, error) from None
    try:
        with open(descriptor, "w", encoding="utf-8") as out:
            _keep_owner(target, descriptor)
            yield out
            out.flush()
            os.fsync(descriptor)
        new.replace(target)
    except BaseException as error:
        new.unlink(missing_ok=True)
        if isinstance(error, OSError):  # a full disk, or a file of somebody else
            raise _cannot("write", path, error) from None
        raise


def _keep_owner(target: Path, descriptor: int) -> None:
    """Root may change the keys of a server that runs as somebody else, who must be able to read them afterwards."""
    if os.name == "posix" and target.exists():
        status = target.stat()
        if status.st_uid != os.fstat(descriptor).st_uid:
            os.fchown(descriptor, status.st_uid, status.st_gid)


def _as_toml(file: KeyFile) -> str:
    """The values' patterns leave nothing to escape."""
    lines = [
        "# API keys of Forebay, written by `forebay keys`. No key stands here, only the digest of each.",
        f'version = {VERSION}\nsecret = "{file.secret}"',
        *(f'\n[[keys]]\nname = "{e.name}"\ntenant = "{e.tenant}"\nsha256 = "{e.sha256}"' for e in file.keys),
    ]
    return "\n".join(lines) + "\n"


def _cannot(verb: str, path: Path, error: OSError) -> KeyFileError:
    return KeyFileError(f"cannot {verb} {path}: {error.strerror}; name a file made with: forebay keys add FILE NAME")
