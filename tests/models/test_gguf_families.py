"""Every family read from a GGUF gives the logits of the transformers model it was written from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedModel

from tests.models.gguf_export import export_gguf
from tests.models.test_families import make_driver
from tests.models.tiny import hf_logits, save_tiny

CASES = {
    "llama": "llama",
    "llama-biased-tied": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma3-scaled-by-head": "gemma3",
    "phi3": "phi3",
    "phi3-partial-window": "phi3",
    "olmo2": "olmo2",
}


def check(model: PreTrainedModel, path: Path) -> None:
    """Logits of the GGUF at `path` equal those of the model."""
    tokens = np.random.default_rng(3).integers(3, 131, 90).tolist()
    wanted = hf_logits(model, tokens).numpy()
    driver = make_driver(path, "native")
    got = driver.logits("a", tokens, chunk=40)
    driver.plan.close()
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("name", CASES)
def test_logits_equal_transformers(name: str, tmp_path: Path) -> None:
    model = save_tiny(name, tmp_path / "hf")
    export_gguf(model, CASES[name], tmp_path / "model.gguf")
    check(model, tmp_path / "model.gguf")


def test_yarn_with_every_key(tmp_path: Path) -> None:
    """attn_factor is on top of 1 + 0.1 ln(factor); transformers' attention_factor is the whole of it."""
    model = save_tiny("llama-yarn-keys", tmp_path / "hf")
    keys = {"type": "yarn", "factor": 4.0, "original_context_length": 64, "attn_factor": 1.25}
    keys |= {"yarn_beta_fast": 8.0, "yarn_beta_slow": 2.0}
    metadata = {f"rope.scaling.{key}": value for key, value in keys.items()}
    export_gguf(model, "llama", tmp_path / "model.gguf", metadata=metadata)
    check(model, tmp_path / "model.gguf")
