"""OpenVINO GenAI: its continuous batching pipeline on the CPU plugin. It has no server of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import model_files
from peer import Limits, Peer, Setting
from venvs import TORCH, Venv, is_made

PACKAGES = ("openvino-genai==2026.4.1.0", "openvino==2026.4.1", "openvino-tokenizers==2026.4.1.0", "nncf==3.4.0")
EXPORTER = "optimum-intel==2.2.0"
F32 = {"INFERENCE_PRECISION_HINT": "f32"}  # default: bf16 where the processor has it
BLOCK = 32  # tokens of a KV block of the CPU plugin
KV = "u8"  # what the CPU plugin stores keys and values in unless told otherwise


class OpenVinoGenAI(Peer):
    """options: max_num_batched_tokens (tokens of a step), inference_threads (default: limits.threads), properties (of
    the CPU plugin)."""

    name = "openvino_genai"
    driver = "openvino_genai_driver.py"
    settings = (
        Setting("int8-b512", "int8", KV, {"max_num_batched_tokens": 512}),
        Setting("int8-b256", "int8", KV, {"max_num_batched_tokens": 256}),
        Setting("int8-b2048", "int8", KV, {"max_num_batched_tokens": 2048}),
        Setting("int8-b512-t1", "int8", KV, {"max_num_batched_tokens": 512, "inference_threads": 1}),
        Setting("int8-b512-f32", "int8", KV, {"max_num_batched_tokens": 512, "properties": F32}, ("main", "long")),
        Setting("int4-b512", "int4", KV, {"max_num_batched_tokens": 512}),
        Setting("int4-b256", "int4", KV, {"max_num_batched_tokens": 256}),
        Setting("int4-b2048", "int4", KV, {"max_num_batched_tokens": 2048}, ("main", "long")),
        Setting("q4_k_m-b512", "Q4_K_M", KV, {"max_num_batched_tokens": 512}, ("larger",)),
    )

    def __init__(self, files: Callable[[str], Path] = model_files.openvino_ir) -> None:
        self._files = files
        self._venv = Venv(self.name)

    def install(self) -> None:
        self._venv.make([*PACKAGES, EXPORTER, TORCH], self._fill)

    def installed(self) -> bool:
        return is_made(self._venv.path)

    def python(self) -> Path:
        return self._venv.python

    def model(self, setting: Setting) -> Path:
        return self._files(setting.weights)

    def kv_tokens(self, setting: Setting, limits: Limits) -> int:
        """A block more for each request, without which the last tokens find no room."""
        return limits.concurrency * (-(-limits.max_len // BLOCK) + 1) * BLOCK

    def _fill(self) -> None:
        self._venv.pip(TORCH)
        self._venv.pip_beside_torch(EXPORTER, *PACKAGES)
