"""llama.cpp: built here for this processor from the sources inside the llama-cpp-python sdist.

One build serves both: llama-server is a program of it, and the Python bindings load its shared libraries.
"""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import model_files
from peer import Limits, Peer, Setting
from processes import PeerError
from venvs import Venv, is_made, made_once, run_logged, work_dir

VERSION = "0.3.36"  # of llama-cpp-python; it carries llama.cpp 0c1e57098
TARGETS = ("llama-server", "llama-bench", "llama-batched-bench", "llama-quantize", "llama-perplexity")
CMAKE_FLAGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=ON",
    "-DGGML_NATIVE=ON",  # all instruction sets of this processor; without it llama.cpp is several times slower
    "-DLLAMA_BUILD_SERVER=ON",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
)
FLASH = {"flash_attn": "on"}  # which quantized keys and values need, and with them prompts take three times as long


class LlamaCpp(Peer):
    """options: n_batch and n_ubatch (tokens of a llama_decode, and of one pass of it), kv_unified (one cache that all
    requests share, or one each), flash_attn ("auto", "on", "off"). What is not named is llama.cpp's default."""

    name = "llama_cpp"
    driver = "llama_cpp_driver.py"
    has_server = True
    settings = (
        Setting("q4_0", "Q4_0", "f16"),
        Setting("q4_0-ub256", "Q4_0", "f16", {"n_ubatch": 256}),
        Setting("q4_0-unified", "Q4_0", "f16", {"kv_unified": True}),
        Setting("q4_0-unified-ub256", "Q4_0", "f16", {"kv_unified": True, "n_ubatch": 256}),
        Setting("q4_0-unified-b512", "Q4_0", "f16", {"kv_unified": True, "n_batch": 512}),
        Setting("q4_0-noflash", "Q4_0", "f16", {"flash_attn": "off"}),
        Setting("q4_0-unified-noflash", "Q4_0", "f16", {"kv_unified": True, "flash_attn": "off"}),
        Setting("q4_1", "Q4_1", "f16"),
        Setting("q4_1-unified", "Q4_1", "f16", {"kv_unified": True}),
        Setting("q8_0", "Q8_0", "f16"),
        Setting("q8_0-unified", "Q8_0", "f16", {"kv_unified": True}),
        Setting("q4_0-flash", "Q4_0", "f16", FLASH, ("long",)),
        Setting("q8_0-flash", "Q8_0", "f16", FLASH, ("long",)),
        Setting("q4_0-flash-kv8", "Q4_0", "q8_0", FLASH, ("long",)),
        Setting("q4_k_m", "Q4_K_M", "f16", groups=("larger",)),
    )

    def __init__(self, files: Callable[[str], Path] = model_files.gguf) -> None:
        self._files = files
        self._venv = Venv(self.name)
        self._sources = work_dir() / "build" / "llama_cpp_src"
        self._build = work_dir() / "build" / "llama_cpp"

    def install(self) -> None:
        made_once(self._sources, VERSION, self._fetch)
        self._venv.make(VERSION, self._fill)
        made_once(self._build, [VERSION, *CMAKE_FLAGS, *TARGETS], self._compile)

    def installed(self) -> bool:
        return is_made(self._venv.path) and is_made(self._build)

    def python(self) -> Path:
        return self._venv.python

    def model(self, setting: Setting) -> Path:
        return self._files(setting.weights)

    def env(self, setting: Setting, limits: Limits) -> dict[str, str]:
        return {"LLAMA_CPP_LIB_PATH": str(self._build / "bin")}

    def server_command(self, setting: Setting, limits: Limits, port: int) -> list[str]:
        """llama-server with a slot for each request. Without prefix_cache its stores of earlier prompts are off."""
        flags: dict[str, Any] = {
            "--model": self.model(setting),
            "--alias": self.served_name(setting),
            "--port": port,
            "--threads": limits.threads,
            "--threads-batch": limits.threads,
            "--parallel": limits.concurrency,
            "--ctx-size": self.kv_tokens(setting, limits),
            "--batch-size": setting.options.get("n_batch", 2048),
            "--ubatch-size": setting.options.get("n_ubatch", 512),
            "--flash-attn": setting.options.get("flash_attn", "auto"),
            "--cache-type-k": setting.kv_dtype,
            "--cache-type-v": setting.kv_dtype,
        }
        switches = ["--kv-unified" if setting.options.get("kv_unified") else "--no-kv-unified", "--no-ui"]
        if not limits.prefix_cache:
            switches.append("--no-cache-prompt")
            flags["--cache-ram"] = 0
        words = [str(word) for pair in flags.items() for word in pair]
        return [str(self._build / "bin" / "llama-server"), *words, *switches]

    def bench_command(self, program: str, setting: Setting, *words: str) -> list[str]:
        """llama.cpp's own benchmarks, to check the driver against: "llama-bench" or "llama-batched-bench"."""
        return [str(self._build / "bin" / program), "-m", str(self.model(setting)), *words]

    def _fetch(self) -> None:
        """Unpack the sdist, which pip fetches."""
        folder = work_dir() / "build"
        words = ["download", "--no-deps", "--no-binary", "llama-cpp-python", f"llama-cpp-python=={VERSION}"]
        run_logged([sys.executable, "-m", "pip", *words, "-d", folder], self._venv.log)
        name = f"llama_cpp_python-{VERSION}"
        try:
            with tarfile.open(folder / f"{name}.tar.gz") as archive:
                archive.extractall(folder, filter="data")
        except tarfile.TarError as error:
            raise PeerError(f"{folder / name}.tar.gz cannot be unpacked: {error}") from error
        (folder / name).rename(self._sources)
        if not (self._sources / "vendor" / "llama.cpp" / "tools" / "server").is_dir():
            raise PeerError(f"the sdist of llama-cpp-python {VERSION} has no llama.cpp/tools/server")

    def _fill(self) -> None:
        """The bindings without their own copy of the libraries, and what compiles those."""
        self._venv.pip(self._sources, "cmake", "ninja", env={"CMAKE_ARGS": "-DLLAMA_BUILD=OFF -DLLAVA_BUILD=OFF"})

    def _compile(self) -> None:
        """Two jobs and the lowest priority: it takes 4 to 8 minutes on two cores."""
        sources, cmake = self._sources / "vendor" / "llama.cpp", self._venv.program("cmake")
        ninja = self._venv.program("ninja")
        run_logged(
            [cmake, "-S", sources, "-B", self._build, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", *CMAKE_FLAGS],
            self._venv.log,
        )
        run_logged(["nice", "-n", "19", ninja, "-C", self._build, "-j", "2", *TARGETS], self._venv.log)
