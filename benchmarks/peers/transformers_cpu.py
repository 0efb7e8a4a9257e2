"""Hugging Face transformers on CPU: the plain baseline, static batches of equal length. It has no server of its own."""

from __future__ import annotations

from pathlib import Path

import model_files
from peer import Limits, Peer, Setting
from venvs import TORCH, Venv, is_made

PACKAGES = ("transformers==5.24.0", "accelerate==1.15.0", "gguf==0.19.0")


class Transformers(Peer):
    """options: dtype. The batch is the run's concurrency: a new batch starts when the whole one before has ended."""

    name = "transformers"
    driver = "transformers_driver.py"
    settings = (
        Setting("bf16", "bfloat16", "bf16", {"dtype": "bfloat16"}),
        Setting("f32", "float32", "f32", {"dtype": "float32"}),
    )

    def __init__(self) -> None:
        self._venv = Venv("transformers_cpu")

    def install(self) -> None:
        self._venv.make([*PACKAGES, TORCH], self._fill)

    def installed(self) -> bool:
        return is_made(self._venv.path)

    def python(self) -> Path:
        return self._venv.python

    def model(self, setting: Setting) -> Path:
        return model_files.hf_folder(setting.weights)

    def kv_tokens(self, setting: Setting, limits: Limits) -> None:
        return None

    def _fill(self) -> None:
        self._venv.pip(TORCH)
        self._venv.pip(TORCH, *PACKAGES)
