"""API keys: who may call, and for which tenant. Where a server has keys all but OPEN_PATHS need one."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
from pathlib import Path

from starlette.types import Scope

from forebay.errors import AuthenticationError, KeyFileError, UnavailableError
from forebay.server.key_file import read_key_file
from forebay.server.tenants import EVERYONE, Tenant

logger = logging.getLogger(__name__)

OPEN_PATHS = frozenset({"/health"})  # read only; says whether the engine answers
_HOW = "send one as `Authorization: Bearer KEY` or `x-api-key: KEY`"

_Version = tuple[int, ...]


class ApiKeys:
    """The keys of a file. It is read again whenever it has changed: a removed key ends with the request it is used in.

    A request costs a look at the file and a comparison per key; key_file bounds their number.
    """

    def __init__(self, path: Path) -> None:
        """Raises KeyFileError."""
        self._path = path
        self._version = _version(path)
        self._known: list[tuple[bytes, Tenant]] | None = _load(path)

    def tenant(self, key: bytes) -> Tenant | None:
        """Whose key this is, None if it is nobody's. Raises UnavailableError while the file cannot be used."""
        given, found = hashlib.sha256(key).digest(), None
        for digest, tenant in self._current():  # all of them: how long it takes must not tell where it stands
            if hmac.compare_digest(digest, given):
                found = tenant
        return found

    def _current(self) -> list[tuple[bytes, Tenant]]:
        version = _version(self._path)
        if version != self._version:
            # in this order: what changes between the look and the reading is read once more
            self._version, self._known = version, None
            try:
                self._known = _load(self._path)
                logger.info("%s has changed: %d API keys are valid now", self._path, len(self._known))
            except KeyFileError as error:
                logger.error("%s; until then nobody is let in", error.message)
        if self._known is None:
            raise UnavailableError("the API keys of this server cannot be read just now; its log says why")
        return self._known


def authenticate(scope: Scope, keys: ApiKeys | None) -> Tenant:
    """The tenant of an HTTP request. Raises AuthenticationError for a key that is missing, ambiguous or unknown, and
    UnavailableError; no message holds a key."""
    if keys is None or (scope["path"] in OPEN_PATHS and scope["method"] in ("GET", "HEAD")):
        return EVERYONE
    presented = _presented(scope)
    if not presented:
        raise AuthenticationError(f"this server needs an API key; {_HOW}")
    if len(presented) > 1:
        raise AuthenticationError(f"the request has more than one API key; {_HOW}")
    tenant = keys.tenant(presented.pop())
    if tenant is None:
        raise AuthenticationError("the API key is not valid here; ask the operator of this server for one")
    return tenant


def _presented(scope: Scope) -> set[bytes]:
    """Every key a request holds: OpenAI's clients send a bearer token, Anthropic's x-api-key."""
    found = set()
    for name, value in scope["headers"]:
        if name == b"x-api-key":
            found.add(value.strip())
        elif name == b"authorization":
            scheme, _, token = value.strip().partition(b" ")
            if scheme.lower() == b"bearer":
                found.add(token.strip())
    return found - {b""}


def _load(path: Path) -> list[tuple[bytes, Tenant]]:
    """SHA-256 of each key, and its tenant. Raises KeyFileError for a file without keys too."""
    file = read_key_file(path)
    if not file.keys:
        raise KeyFileError(f"{path} holds no API keys; add one with: forebay keys add {path} NAME")
    secret = bytes.fromhex(file.secret)
    return [(bytes.fromhex(entry.sha256), Tenant.derived(entry.tenant, secret)) for entry in file.keys]


def _version(path: Path) -> _Version:
    """What differs once a file was written, replaced, or made readable for others; () if it is gone."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
