"""The only reader of the process environment. Every variable has one typed reader here; a bad value is a SetupError.

Variables are read when asked for, never at import, so that a test or an embedding program can set them late.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from forebay.errors import SetupError

LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable: its name, what it defaults to (in words) and what it does."""

    name: str
    default: str
    meaning: str


VARIABLES = (
    Variable("FOREBAY_CACHE_DIR", "$XDG_CACHE_HOME/forebay, else ~/.cache/forebay", "where fetched models are kept"),
    Variable("FOREBAY_LOG_LEVEL", "info", f"least severe log line shown: {', '.join(LOG_LEVELS)}"),
    Variable("XDG_CACHE_HOME", "~/.cache", "parent of the cache folder when FOREBAY_CACHE_DIR is not set"),
    Variable("HF_HOME", "~/.cache/huggingface", "Hugging Face's own cache, searched before anything is fetched"),
    Variable("HF_ENDPOINT", "https://huggingface.co", "where hf: sources are fetched from"),
    Variable("HF_TOKEN", "none", "sent to HF_ENDPOINT for gated models"),
    Variable("OPENAI_API_KEY", "none", "sent by `forebay bench` to the URLs it measures, unless --api-key is given"),
)


def cache_dir() -> Path:
    """Folder for fetched models (FOREBAY_CACHE_DIR). It need not exist yet."""
    own = _path("FOREBAY_CACHE_DIR")
    if own is not None:
        return own
    return (_path("XDG_CACHE_HOME") or Path.home() / ".cache") / "forebay"


def hf_home() -> Path:
    """Hugging Face's cache folder (HF_HOME)."""
    return _path("HF_HOME") or Path.home() / ".cache" / "huggingface"


def hf_endpoint() -> str:
    """Base URL of the Hugging Face hub without a trailing slash (HF_ENDPOINT)."""
    value = _text("HF_ENDPOINT") or "https://huggingface.co"
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise _bad("HF_ENDPOINT", value, "an http(s) URL such as https://huggingface.co")
    return value.rstrip("/")


def hf_token() -> str | None:
    """Access token for gated models (HF_TOKEN). Never log it."""
    return _text("HF_TOKEN")


def openai_api_key() -> str | None:
    """Bearer token for a server that is measured (OPENAI_API_KEY). Never log it."""
    return _text("OPENAI_API_KEY")


def log_level() -> str:
    """One of LOG_LEVELS (FOREBAY_LOG_LEVEL)."""
    value = (_text("FOREBAY_LOG_LEVEL") or "info").lower()
    if value not in LOG_LEVELS:
        raise _bad("FOREBAY_LOG_LEVEL", value, f"one of {', '.join(LOG_LEVELS)}")
    return value


def _text(name: str) -> str | None:
    """The variable without surrounding blanks; unset and empty are the same."""
    return os.environ.get(name, "").strip() or None


def _path(name: str) -> Path | None:
    value = _text(name)
    if value is None:
        return None
    try:
        path = Path(value).expanduser()
    except RuntimeError:
        raise _bad(name, value, "a path whose ~ is the home of a user") from None
    if not path.is_absolute():
        raise _bad(name, value, "an absolute path (a relative one would move with the working directory)")
    if path.exists() and not path.is_dir():
        raise _bad(name, value, "a folder, but it is a file")
    return path


def _bad(name: str, value: str, wanted: str) -> SetupError:
    return SetupError(f"environment variable {name}={value!r} must be {wanted}; unset it for the default", param=name)
