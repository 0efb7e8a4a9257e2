"""Types of the compiled module (csrc/bindings.cpp). Arrays must be C-contiguous and of the stated dtype."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from forebay.ops.protocol import I32Array
from forebay.ops.tensor import BytesArray, F32Array

class Step:
    def __init__(
        self,
        token: I32Array,
        position: I32Array,
        request: I32Array,
        slots: Sequence[I32Array],
        block_tables: Sequence[I32Array],
        logit_rows: I32Array,
        hidden_rows: I32Array | None,
    ) -> None: ...

class Edits:
    def __init__(
        self,
        start: I32Array,
        token: I32Array,
        count: I32Array,
        bias: F32Array,
        repetition: F32Array,
        presence: F32Array,
        frequency: F32Array,
        masks: npt.NDArray[np.uint32],
        mask: I32Array,
        /,
    ) -> None: ...

class Sample:
    def __init__(
        self,
        temperature: F32Array,
        top_p: F32Array,
        min_p: F32Array,
        top_k: I32Array,
        seed: npt.NDArray[np.uint64],
        child: I32Array,
        output_position: I32Array,
        num_logprobs: I32Array,
        typical_p: F32Array | None,
        edits: Edits | None,
        target: I32Array | None,
    ) -> None: ...

class Outputs:
    def __init__(
        self,
        token: I32Array,
        logprob: F32Array,
        top_ids: I32Array,
        top_logprobs: F32Array,
        ok: npt.NDArray[np.bool_],
        hidden: F32Array | None,
    ) -> None: ...

class Plan:
    def __init__(
        self,
        isa: str,
        threads: int,
        limits: tuple[int, int, int, int, int],
        block_size: int,
        groups: Sequence[tuple[list[int], int, int, str, int]],
    ) -> None: ...
    def segment(self, name: str, /) -> None: ...
    def embed(self, format: str, data: BytesArray, columns: int) -> int: ...
    def linear(self, x: int, format: str, data: BytesArray, columns: int, bias: F32Array | None) -> int: ...
    def rms_norm(self, x: int, weight: F32Array, eps: float, /) -> int: ...
    def rope(self, x: int, head_dim: int, cos: F32Array, sin: F32Array) -> int: ...
    def kv_write(self, layer: int, k: int, v: int, /) -> None: ...
    def attention(self, q: int, layer: int, scale: float, /) -> int: ...
    def act_mul(self, gate: int, up: int, activation: str, /) -> int: ...
    def add(self, x: int, y: int, /) -> int: ...
    def scale(self, x: int, factor: float, /) -> int: ...
    def softcap(self, x: int, cap: float, /) -> int: ...
    def rows(self, x: int, /) -> int: ...
    def hidden(self, x: int, /) -> None: ...
    def logits(self, x: int, /) -> None: ...
    def finish(self) -> None: ...
    @property
    def vocab(self) -> int: ...
    @property
    def hidden_width(self) -> int: ...
    def run(self, step: Step, sample: Sample, outputs: Outputs, /) -> None: ...
    def run_logits(self, step: Step, out: F32Array, /) -> None: ...
    def trace(self, step: Step, /) -> list[tuple[str, list[int]]]: ...
    def segments_done(self) -> list[tuple[str, int]]: ...

class Roofline:
    def __init__(self, isa: str, threads: int, /) -> None: ...
    def read(self, bytes: int, seconds: float, repeats: int, /) -> list[float]: ...
    def peak(self, kind: str, seconds: float, repeats: int, /) -> list[float]: ...

def supported_isas() -> list[str]: ...
def read_all(isa: str, data: BytesArray, /) -> int: ...
def sample(isa: str, logits: F32Array, sample: Sample, outputs: Outputs, /) -> None: ...
def dequantize(format: str, data: BytesArray, out: F32Array, /) -> None: ...

# Kernels on their own, for tests. A weight is (format, data, bias); quantized rows are (T, columns / 32 * 48) bytes.
def quantize(isa: str, x: F32Array, out: BytesArray, /) -> None: ...
def linear_add(isa: str, weight: tuple[str, BytesArray, F32Array | None], x: F32Array, out: F32Array, /) -> None: ...
def linear_gated(
    isa: str,
    threads: int,
    is_silu: bool,
    gate: tuple[str, BytesArray, F32Array | None],
    up: tuple[str, BytesArray, F32Array | None],
    x: BytesArray,
    out: BytesArray,
    /,
) -> None: ...
