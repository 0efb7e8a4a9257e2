"""What makes two served profiles the same: the digest, the answer class, and the difference between two."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from forebay.core.grammar_spec import grammar_version
from forebay.profile.schema import PROFILE_VERSION, SETTINGS, values

# the model's digest says what was loaded; where it was loaded from is no part of what is served
_NOT_IDENTITY = frozenset({"model.source"})


def digest_of(resolved: Mapping[str, Any], model_digest: str, weight_format: str, kernel_contract: int) -> str:
    """sha256 hex over canonical JSON (sorted keys, no blanks) of dotted values, the model's digest, the formats of its
    matrices once loaded, and the kernel contract."""
    document = {
        "version": PROFILE_VERSION,
        "model": model_digest,
        "weights": weight_format,
        "kernel_contract": kernel_contract,
        "settings": {
            name: float(value) if SETTINGS[name].kind is float else value
            for name, value in resolved.items()
            if name not in _NOT_IDENTITY
        },
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def answer_class_of(
    backend: str,
    kernel_contract: int,
    weight_format: str,
    kv_dtype: str,
    *,
    tp: int = 1,
    rope_length: int | None = None,
) -> str:
    """(backend, kernel contract version, weight format, KV format, TP degree, grammar version) as one string.

    rope_length: the served length where rotary frequencies depend on it (dynamic rope), None elsewhere.
    Bits are promised equal inside one class only; it stands in cache namespaces, so that no other class is ever read.
    """
    grammar = grammar_version()
    name = f"{backend}/kernels-{kernel_contract}/weights-{weight_format}/kv-{kv_dtype}/tp-{tp}/grammar-{grammar}"
    return name if rope_length is None else f"{name}/rope-{rope_length}"


def diff(a: Any, b: Any) -> dict[str, tuple[Any, Any]]:
    """Dotted name -> (value in a, value in b) of the fields where two profiles (resolved or not) differ."""
    left, right = values(a), values(b)
    return {name: (left[name], right[name]) for name in left if left[name] != right[name]}
