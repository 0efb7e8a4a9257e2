"""Weights converted when they are loaded: both backends serve the same model, and that is nearly the stored one.

Tolerance between backends: where a sum in another order moves an activation across the middle of two int8 codes, it
changes by 1/127 of its group's largest, and all that comes after it a little. That moves a logit by up to 2 % of the
largest, and by 0.3 % on average; without such a tie, as in half of these models, by less than 1e-6.
"""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from forebay.models.decoder import Decoder
from forebay.models.decoder_weights import DecoderWeights
from forebay.models.families.registry import load_decoder
from forebay.ops.protocol import PlanLimits
from forebay.ops.registry import create_backend
from forebay.weights.checkpoint import open_checkpoint
from forebay.weights.conversion import Conversion
from tests.models.gguf_export import export_gguf
from tests.models.test_families import make_driver
from tests.models.tiny import save_tiny

FAMILIES = ("llama", "llama-biased-tied", "qwen3", "gemma3", "phi3", "olmo2")
TOKENS = np.random.default_rng(1).integers(3, 131, 120).tolist()
# of the largest logit: half an int8 step of weights and activations; a fifteenth of the range for int4
NEAR_THE_STORED = {"int8": 0.1, "int4": 0.6, "bf16": 0.05, "f32": 0.0}


def logits(path: Path, backend: str, weights: str) -> np.ndarray:
    driver = make_driver(path, backend, weights=weights)
    try:
        return driver.logits("a", TOKENS, chunk=50)
    finally:
        driver.plan.close()


@pytest.mark.parametrize("asked", NEAR_THE_STORED)
@pytest.mark.parametrize("name", FAMILIES)
def test_both_backends_serve_the_same(name: str, asked: str, tmp_path: Path) -> None:
    save_tiny(name, tmp_path)
    stored, reference, native = (
        logits(tmp_path, "native", "auto"),
        logits(tmp_path, "reference", asked),
        logits(tmp_path, "native", asked),
    )
    largest = np.abs(stored).max()
    np.testing.assert_allclose(native, reference, rtol=0, atol=(3e-2 if "int" in asked else 2e-4) * largest)
    assert np.abs(native - reference).mean() < 4e-3 * largest
    off = np.abs(native - stored).max() / largest
    assert off <= NEAR_THE_STORED[asked]
    assert (off > 0) == (asked != "f32"), "nothing was converted"


@pytest.mark.parametrize(("name", "architecture"), [("llama-biased-tied", "llama"), ("qwen3", "qwen3")])
def test_int8_is_bit_for_bit_a_q8_0_file(name: str, architecture: str, tmp_path: Path) -> None:
    """One float model written as two files: what is quantized when loaded equals what the `gguf` package quantized."""
    model = save_tiny(name, tmp_path / "hf")
    export_gguf(model, architecture, tmp_path / "f32.gguf")
    export_gguf(model, architecture, tmp_path / "q8.gguf", "q8_0")
    made, read = logits(tmp_path / "f32.gguf", "native", "int8"), logits(tmp_path / "q8.gguf", "native", "stored")
    assert (made.view(np.uint32) == read.view(np.uint32)).all()
    assert not np.array_equal(made, logits(tmp_path / "f32.gguf", "native", "stored"))


@pytest.mark.parametrize("asked", ["int4", "bf16"])
def test_a_quantized_gguf_in_another_row_order(asked: str, tmp_path: Path) -> None:
    """Rows of Q and K of this architecture are put into another order before they are converted."""
    model = save_tiny("llama", tmp_path / "hf")
    export_gguf(model, "llama", tmp_path / "q8.gguf", "q8_0")
    reference, native = (logits(tmp_path / "q8.gguf", backend, asked) for backend in ("reference", "native"))
    stored = logits(tmp_path / "hf", "native", "auto")
    np.testing.assert_allclose(native, reference, rtol=0, atol=3e-2 * np.abs(stored).max())
    assert np.abs(native - stored).max() <= NEAR_THE_STORED[asked] * np.abs(stored).max()


def converted(path: Path, asked: str) -> DecoderWeights:
    return load_decoder(open_checkpoint(path))[1].converted(Conversion(asked))


def test_a_tied_head_stays_tied_and_norms_stay_float(tmp_path: Path) -> None:
    save_tiny("llama-biased-tied", tmp_path)
    stored, made = converted(tmp_path, "auto"), converted(tmp_path, "int4")
    assert made.head is made.embed
    assert made.embed.format.name == "q8_0"
    assert {linear.weight.format.name for layer in made.layers for linear in layer.linears().values()} == {"q4_1"}
    assert made.format_name() == "q4_1:forebay-1+q8_0:forebay-1"
    np.testing.assert_array_equal(made.norm, stored.norm)
    assert made.layers[0].q.bias is not None
    matrices = {id(m): m for m in made.matrices()}.values()
    assert made.num_bytes() == sum(m.data.nbytes for m in matrices) < stored.num_bytes() / 5


def large_model(folder: Path) -> int:
    """A llama of random float32 weights in `folder`; returns the bytes of its largest matrix."""
    hidden, inner, vocab, layers = 512, 1024, 1024, 8
    config = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "intermediate_size": inner, "vocab_size": vocab,
        "num_hidden_layers": layers, "num_attention_heads": 8, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 64, "tie_word_embeddings": True,
    }  # fmt: skip
    rng = np.random.default_rng(0)
    square, up, down = (hidden, hidden), (inner, hidden), (hidden, inner)
    shapes = {f"self_attn.{x}_proj": square for x in "qkvo"} | {"mlp.gate_proj": up, "mlp.up_proj": up}
    shapes |= {"mlp.down_proj": down}
    tensors = {
        f"model.layers.{i}.{name}.weight": rng.standard_normal(shape, np.float32)
        for i in range(layers)
        for name, shape in shapes.items()
    }
    norms = [f"model.layers.{i}.{x}_layernorm.weight" for i in range(layers) for x in ("input", "post_attention")]
    tensors |= {name: np.ones(hidden, np.float32) for name in [*norms, "model.norm.weight"]}
    tensors["model.embed_tokens.weight"] = rng.standard_normal((vocab, hidden), np.float32)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return inner * hidden * 4


@pytest.mark.parametrize("asked", ["int8", "int4"])
def test_memory_beside_the_plan_is_that_of_one_matrix(asked: str, tmp_path: Path) -> None:
    """numpy's memory is traced, that of the plan is not: converted matrices are gone once the plan has packed them."""
    one = large_model(tmp_path / "model")
    spec, stored = load_decoder(open_checkpoint(tmp_path / "model"))
    kv = spec.kv_spec(16, "f16")
    limits = PlanLimits(max_tokens=16, max_requests=1, max_logit_rows=1, max_model_len=64, num_blocks=4)
    backend = create_backend("native")
    tracemalloc.start()
    try:
        weights = stored.converted(Conversion(asked))
        plan = backend.compile(Decoder(spec, weights, 64), kv, limits)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    plan.close()
    embedding = weights.embed.nbytes
    assert embedding <= held < embedding + 2**19  # the plan reads it row by row
    assert peak < embedding + 2 * one
    assert peak < weights.num_bytes() / 2
