"""TLS: the certificate is read, and found to fit its key, before anything else is started."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NoReturn

from forebay.errors import SetupError


def load_tls(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """A server's context for a PEM chain and its private key; None without both. At least TLS 1.2.

    Raises SetupError: one without the other, a file that cannot be read or is not PEM, a key of another certificate, a
    key with a passphrase.
    """
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        missing = "--tls-cert" if cert is None else "--tls-key"
        raise _error(f"--tls-cert and --tls-key belong together; give {missing} too", missing)
    for flag, path in (("--tls-cert", cert), ("--tls-key", key)):
        try:
            path.open("rb").close()
        except OSError as error:
            raise _error(f"cannot read {flag} {path}: {error.strerror}; give a PEM file", flag) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert, key, password=lambda: _no_passphrase(key))
    except OSError as error:  # ssl.SSLError is one
        raise _error(_explained(cert, key, error), "--tls-cert") from None
    return context


def _no_passphrase(key: Path) -> NoReturn:
    """Called for an encrypted key, instead of a prompt that would hold up the start."""
    raise _error(f"--tls-key {key} has a passphrase; give a key without one", "--tls-key")


def _explained(cert: Path, key: Path, error: OSError) -> str:
    if "MISMATCH" in (getattr(error, "reason", None) or ""):
        return f"--tls-key {key} does not belong to the certificate {cert}; give the key that it was made for"
    return f"--tls-cert {cert} must be a PEM certificate chain and --tls-key {key} its PEM private key ({error})"


def _error(message: str, flag: str) -> SetupError:
    return SetupError(message, param=flag.removeprefix("--").replace("-", "_"))
