"""Forebay itself, as one more peer: the Python that runs this, the GGUF file as shipped."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import model_files
from peer import Limits, Peer, PeerError, Setting

BLOCK = 16  # tokens of a KV block


class Forebay(Peer):
    """Settings are profile fields. Every file of `model_files.gguf` can be served; the base one (Q4_1) is first."""

    name = "forebay"
    driver = "forebay_driver.py"
    has_server = True
    settings = (
        Setting("q4_1", "Q4_1", "f16"),
        Setting("q4_1-budget256", "Q4_1", "f16", {"scheduler.token_budget": 256}),
        Setting("q4_0", "Q4_0", "f16", groups=("main", "long")),
        Setting("q8_0", "Q8_0", "f16", groups=("main", "long")),
        Setting("q4_0-kv8", "Q4_0", "int8", groups=("main", "long")),
        Setting("q8_0-kv8", "Q8_0", "int8", groups=("main", "long")),
        Setting("q4_k_m", "Q4_K_M", "f16", groups=("larger",)),
    )

    def __init__(self, files: Callable[[str], Path] = model_files.gguf) -> None:
        self._files = files

    def install(self) -> None:
        if not self.installed():
            raise PeerError("forebay is not importable here; run `make install` and use .venv/bin/python")

    def installed(self) -> bool:
        return importlib.util.find_spec("forebay") is not None

    def python(self) -> Path:
        return Path(sys.executable)

    def model(self, setting: Setting) -> Path:
        return self._files(setting.weights)

    def kv_tokens(self, setting: Setting, limits: Limits) -> int:
        return limits.concurrency * -(-limits.max_len // BLOCK) * BLOCK

    def driver_options(self, setting: Setting, limits: Limits) -> dict[str, Any]:
        return {"profile": dict(setting.options)}

    def server_command(self, setting: Setting, limits: Limits, port: int) -> list[str]:
        fields = {
            "backend.threads": limits.threads,
            "kv.prefix_cache": str(limits.prefix_cache).lower(),
            "kv.block_size": BLOCK,
            "kv.dtype": setting.kv_dtype,
            "model.max_model_len": limits.max_len,
            "scheduler.max_requests": limits.concurrency,
            **setting.options,
        }
        if not limits.prefix_cache:  # the room the other engines get; with a prefix cache, the default
            fields["kv.num_blocks"] = self.kv_tokens(setting, limits) // BLOCK
        flags = [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
        return [sys.executable, "-m", "forebay.cli", "serve", str(self.model(setting)), "--port", str(port), *flags]

    def served_name(self, setting: Setting) -> str:
        return self.model(setting).stem
