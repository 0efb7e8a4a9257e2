"""Floors of a model small enough to count by hand, and the bits of a packed weight against the memory it takes."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from forebay.bench.ops import floor
from forebay.bench.ops.floor import ForwardPass, forward_pass, packed_bits
from forebay.bench.ops.roofline import Roofline
from forebay.bench.ops.synthetic import random_weight
from forebay.core.kv_spec import KVGroup, KVSpec
from forebay.models.decoder_spec import DecoderSpec, LayerSpec, RopeSpec
from forebay.models.decoder_weights import DecoderWeights, LayerWeights, Linear
from forebay.ops.native import supported_isas
from forebay.ops.tensor import Tensor
from forebay.weights.formats import FORMATS

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, VOCAB, LAYERS = 64, 96, 4, 2, 16, 128, 2


def matrix(rows: int, columns: int, name: str = "q4_0") -> Tensor:
    return random_weight(np.random.default_rng(0), name, rows, columns)


def tiny(kv_dtype: str = "f16", windows: tuple[int | None, ...] = (None, None)) -> ForwardPass:
    """Layers in q4_0, the head in q8_0."""
    kv = KV_HEADS * HEAD_DIM
    layer = LayerWeights(
        q=Linear(matrix(HIDDEN, HIDDEN)), k=Linear(matrix(kv, HIDDEN)), v=Linear(matrix(kv, HIDDEN)),
        o=Linear(matrix(HIDDEN, HIDDEN)), gate=Linear(matrix(INTERMEDIATE, HIDDEN)),
        up=Linear(matrix(INTERMEDIATE, HIDDEN)), down=Linear(matrix(HIDDEN, INTERMEDIATE)),
    )  # fmt: skip
    head = matrix(VOCAB, HIDDEN, "q8_0")
    weights = DecoderWeights(head, (layer,) * LAYERS, np.ones(HIDDEN, np.float32), head)
    layers = tuple(LayerSpec(RopeSpec(1e4, HEAD_DIM), window) for window in windows)
    spec = DecoderSpec("llama", VOCAB, HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, layers, 1e-5, 512)
    return forward_pass(spec, weights, kv_dtype)


# of one layer: q and o 64 x 64, k and v 32 x 64, gate, up and down 96 x 64
LAYER_WEIGHTS = 2 * 4096 + 2 * 2048 + 3 * 6144
HEAD_WEIGHTS = 128 * 64


def test_a_token_reads_every_packed_weight_and_the_cache() -> None:
    model = tiny()
    # 4.5 bits and 8.5 bits; K and V of 2 layers: 2 * 2 * 32 values of 2 bytes
    assert model.weight_bytes == LAYERS * LAYER_WEIGHTS * 9 // 16 + HEAD_WEIGHTS * 17 // 16
    assert model.decode_bytes(0) == model.weight_bytes
    assert model.decode_bytes(100) == model.weight_bytes + 100 * 256
    assert tiny("f32").decode_bytes(100) == model.weight_bytes + 100 * 512


def test_a_window_bounds_what_is_read_and_seen() -> None:
    model = tiny(windows=(None, 10))
    assert model.decode_bytes(100) == model.weight_bytes + 100 * 128 + 10 * 128
    # 12 rows: 1 + 2 + ... + 12 = 78 keys in the first layer; 1 + ... + 10, 10, 10 = 75 in the second; 4 * 64 each
    assert model.prompt_operations(12)["fma_f32"] == 4 * 64 * (78 + 75)


def test_a_prompt_multiplies_layers_for_each_token_and_the_head_once() -> None:
    assert tiny().prompt_operations(3) == {
        "dot_u4": 3 * 2 * LAYERS * LAYER_WEIGHTS, "dot_u8": 2 * HEAD_WEIGHTS, "fma_f32": 4 * 64 * LAYERS * (1 + 2 + 3)
    }  # fmt: skip


def test_float_weights_and_attention_share_a_peak() -> None:
    kv = KVSpec(groups=(KVGroup((0,), 1, 8, "f16"),), block_size=16)
    model = ForwardPass(100, {"fma_f32": 50}, {"fma_f32": 7}, 8, kv)
    assert model.prompt_operations(2) == {"fma_f32": 2 * 50 + 7 + 4 * 8 * 3}


def test_floors_are_bytes_over_bandwidth_and_operations_over_peaks() -> None:
    model, roofline = tiny(), Roofline(supported_isas()[-1], 1)
    with pytest.raises(KeyError):
        floor.decode_floor(model, 100, roofline)
    for _ in range(3):
        floor.sample(roofline, [model.decode_bytes(100)], ["dot_u4", "dot_u8", "fma_f32"], 0.0005)
    size = model.decode_bytes(100)  # 68,864 bytes: looked up at 64 KiB
    assert floor.decode_floor(model, 100, roofline) == size / roofline.rate(2**16).best
    peak = {kind: roofline.rate(kind).best for kind in ("dot_u4", "dot_u8", "fma_f32")}
    expected = sum(count / peak[kind] for kind, count in model.prompt_operations(3).items())
    assert floor.prompt_floor(model, 3, roofline) == expected


QUANTIZED = [name for name, fmt in FORMATS.items() if fmt.quantized]
MEASURE = """
import sys
from pathlib import Path
import numpy as np
from forebay.bench.ops.synthetic import f32_tensor, random_weight
from forebay.core.kv_spec import KVSpec
from forebay.ops.native import NativeBackend
from forebay.ops.protocol import PlanLimits

def held():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) * 1024

rows, columns = 8192, 8192  # many huge pages, the last of which may be half empty
backend, x = NativeBackend("auto", 1), f32_tensor(np.zeros((1, columns), np.float32))
for name in sys.argv[1:]:
    weight = random_weight(np.random.default_rng(0), name, rows, columns)
    before = held()
    plan = backend.compile(
        lambda ops: ops.logits(ops.rows(ops.linear(ops.embed(x), weight))),
        KVSpec(groups=(), block_size=16),
        PlanLimits(max_tokens=1, max_requests=1, max_logit_rows=1, max_model_len=1, num_blocks=1),
    )
    print(name, 8 * (held() - before) / (rows * columns))
    plan.close()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_packed_weight_takes_the_bits_that_are_said() -> None:
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}  # what was freed is given back, and not used again
    command = [sys.executable, "-c", MEASURE, *QUANTIZED, "f16"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    measured = {name: float(bits) for name, bits in (line.split() for line in done.stdout.splitlines())}
    assert measured == {name: pytest.approx(packed_bits(name), rel=0.03) for name in measured}
    assert set(measured) == {*QUANTIZED, "f16"}
