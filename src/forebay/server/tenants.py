"""Whose request it is, and what its prefix cache is kept apart by."""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from starlette.requests import Request
from starlette.types import Scope

_SCOPE_KEY = "forebay.tenant"


@dataclass(frozen=True, slots=True)
class Tenant:
    """Requests of one tenant may reuse each other's prefixes, and nobody else's. Without a name: everyone.

    cache_salt: part of the namespace of every block this tenant caches (InputProcessor), 64 hex digits or "".
    """

    name: str = ""
    cache_salt: str = ""

    @classmethod
    def derived(cls, name: str, secret: bytes) -> Tenant:
        """The salt is HMAC-SHA256 of the name under the key file's secret: the same after a restart and on every server
        with that file, and of no use to whoever knows names and sees block hashes, but not the secret."""
        return cls(name, hmac.digest(secret, name.encode(), "sha256").hex())

    def salt(self, narrower: str | None) -> str:
        """The salt of a request with this `cache_salt` field. It is derived from the tenant's, so it can divide what a
        tenant has cached and never reach beyond it."""
        if narrower is None:
            return self.cache_salt
        return hmac.digest(self.cache_salt.encode(), narrower.encode(), "sha256").hex()


EVERYONE = Tenant()


def set_tenant(scope: Scope, tenant: Tenant) -> None:
    scope[_SCOPE_KEY] = tenant


def tenant_of(request: Request) -> Tenant:
    """The tenant the gateway has found. Raises KeyError if none was set: a request around the gateway has no tenant."""
    tenant: Tenant = request.scope[_SCOPE_KEY]
    return tenant
