"""Who is behind a URL: which server, which model, which profile."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from typing import IO, Any

import msgspec

from forebay.bench.client.endpoint import Endpoint, check_endpoint, parse_base_url
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
    check_endpoint(Endpoint(base_url=base, model=model or "", api_key=api_key))
    served = _models(base, api_key)
    names = [entry["id"] for entry in served]
    if model is None and len(names) != 1:
        raise BenchError(f"{base} serves {', '.join(names) or 'no model'}; choose one with --model", param="model")
    if model is not None and model not in names:
        raise BenchError(f"--model {model!r} is not served at {base}; it serves {', '.join(names)}", param="model")
    entry = served[names.index(model) if model is not None else 0]
    return Target(
        url=base,
        model=entry["id"],
        max_model_len=_context_length(entry),
        facts={"url": base, "model": entry["id"], **_version(base, api_key)},
    )


def base_url(url: str) -> str:
    """scheme://host:port/prefix without a trailing slash and without /v1. Raises BenchError."""
    text = (url if "://" in url else f"http://{url}").rstrip("/").removesuffix("/v1")
    parse_base_url(text)
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
    named = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    return [entry for entry in named if entry["id"].isprintable()]


def _context_length(entry: dict[str, Any]) -> int | None:
    """max_model_len as we and vLLM say it; llama.cpp tells only what the model was trained for."""
    value = entry.get("max_model_len")
    return value if isinstance(value, int) and value > 0 else None


def _version(base: str, api_key: str | None) -> dict[str, Any]:
    """GET /version, which not every server has; nothing of it if a document could not hold it."""
    try:
        reply = _get(f"{base}/version", api_key)
        msgspec.msgpack.encode(reply)  # which has no number of more than 64 bits, as a page has none
    except (BenchError, OverflowError):
        return {}
    return reply if isinstance(reply, dict) else {}


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The load client follows none either, and the key is for one server only."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


def _get(url: str, api_key: str | None) -> Any:
    """Past any proxy, as the load client goes."""
    headers = {"accept": "application/json"} | ({"authorization": f"Bearer {api_key}"} if api_key else {})
    request = urllib.request.Request(url, headers=headers)
    tls = urllib.request.HTTPSHandler(context=ssl.create_default_context())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect, tls)
    try:
        with opener.open(request, timeout=TIMEOUT_S) as reply:
            return msgspec.json.decode(reply.read(MAX_REPLY_BYTES))
    except urllib.error.HTTPError as error:
        raise BenchError(f"{url} answers {error.code}; check the address and --api-key", param="url") from error
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        reason = ascii(str(getattr(error, "reason", error)))[1:-1][:200]
        raise BenchError(f"{url} does not answer: {reason}; is the server up?", param="url") from error
