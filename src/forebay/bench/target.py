"""Who is behind a URL: which server, which model, which profile."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from forebay.errors import BenchError, SetupError
from forebay.tokenizer import Tokenizer, load_tokenizer
from forebay.weights.checkpoint import open_checkpoint
from forebay.weights.sources import resolve_source

TIMEOUT_S = 10.0
MAX_REPLY_BYTES = 2**20


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A server that answers. max_model_len: None where it does not say. facts: what it says of itself."""

    url: str
    model: str
    max_model_len: int | None
    facts: dict[str, Any] = {}


def identify(url: str, *, model: str | None = None, api_key: str | None = None) -> Target:
    """Ask a server what it serves. `model` chooses where there are several. Raises BenchError."""
    base = base_url(url)
    served = _models(base, api_key)
    names = [str(entry["id"]) for entry in served]
    if model is None and len(names) != 1:
        raise BenchError(f"{base} serves {', '.join(names) or 'no model'}; choose one with --model", param="model")
    if model is not None and model not in names:
        raise BenchError(f"--model {model!r} is not served at {base}; it serves {', '.join(names)}", param="model")
    entry = served[names.index(model) if model is not None else 0]
    return Target(
        url=base,
        model=str(entry["id"]),
        max_model_len=_context_length(entry),
        facts={"url": base, "model": str(entry["id"]), **_version(base, api_key)},
    )


def base_url(url: str) -> str:
    """scheme://host:port/prefix without a trailing slash and without /v1. Raises BenchError."""
    text = (url if "://" in url else f"http://{url}").rstrip("/").removesuffix("/v1")
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid:
        raise BenchError(f"URL {url!r} is no http(s) address; give one such as http://127.0.0.1:8000", param="url")
    return text


def tokenizer_of(target: Target, source: str | None) -> tuple[Tokenizer, str]:
    """The tokenizer that counts prompts, and where it is from. `source`: as in `model.source` of a profile; None: the
    served model by its name. Raises BenchError."""
    wanted = source or target.model
    try:
        checkpoint = open_checkpoint(Path(resolve_source(wanted, progress=False)))
        try:
            return load_tokenizer(checkpoint), wanted
        finally:
            checkpoint.close()
    except SetupError as error:
        raise BenchError(
            f"no tokenizer for {wanted!r}: {error.message}; name the served model's own with --tokenizer "
            "(a GGUF file, a folder or a known name)",
            param="tokenizer",
        ) from error


def _models(base: str, api_key: str | None) -> list[dict[str, Any]]:
    reply = _get(f"{base}/v1/models", api_key)
    entries = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(entries, list):
        raise BenchError(f"{base}/v1/models does not list models; is it an OpenAI-compatible server?", param="url")
    return [entry for entry in entries if isinstance(entry, dict) and "id" in entry]


def _context_length(entry: dict[str, Any]) -> int | None:
    """max_model_len as we and vLLM say it; llama.cpp tells only what the model was trained for."""
    value = entry.get("max_model_len")
    return value if isinstance(value, int) and value > 0 else None


def _version(base: str, api_key: str | None) -> dict[str, Any]:
    """GET /version, which not every server has."""
    try:
        reply = _get(f"{base}/version", api_key)
    except BenchError:
        return {}
    return reply if isinstance(reply, dict) else {}


def _get(url: str, api_key: str | None) -> Any:
    headers = {"accept": "application/json"} | ({"authorization": f"Bearer {api_key}"} if api_key else {})
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=ssl.create_default_context()) as reply:
            return json.loads(reply.read(MAX_REPLY_BYTES))
    except urllib.error.HTTPError as error:
        raise BenchError(f"{url} answers {error.code}; check the address and --api-key", param="url") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise BenchError(f"{url} does not answer: {reason}; is the server up?", param="url") from error
