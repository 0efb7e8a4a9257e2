"""Every family against Hugging Face transformers, on tiny random configurations in float32.

Tolerance: both sides compute in float32 but add in different orders, so logits of magnitude about 1 differ by some
1e-6 a layer. 2e-4 of the largest logit is a hundred times that; a wrong attention scale (24 for 32) moves logits by 1.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from forebay.models.decoder import Decoder
from forebay.models.families.registry import load_decoder
from forebay.ops.protocol import PlanLimits
from forebay.ops.registry import create_backend
from forebay.weights.checkpoint import open_checkpoint
from forebay.weights.conversion import Conversion
from tests.models.tiny import CONFIGS, hf_hidden, hf_logits, save_tiny
from tests.support.driver import PlanDriver

LENGTH = 150
BLOCKS = 256


def make_driver(
    folder: Path, backend: str, max_model_len: int = 256, block_size: int = 8, weights: str = "stored"
) -> PlanDriver:
    spec, stored = load_decoder(open_checkpoint(folder))
    kv = spec.kv_spec(block_size, "f32")
    limits = PlanLimits(
        max_tokens=256, max_requests=4, max_logit_rows=256, max_model_len=max_model_len, num_blocks=BLOCKS
    )
    served = stored.converted(Conversion(weights))
    plan = create_backend(backend).compile(Decoder(spec, served, max_model_len), kv, limits)
    return PlanDriver(plan, kv, BLOCKS)


@pytest.mark.parametrize("backend", ["reference", "native"])
@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "llama-dynamic"])
def test_logits_equal_transformers(name: str, backend: str, tmp_path: Path) -> None:
    model = save_tiny(name, tmp_path)
    tokens = np.random.default_rng(1).integers(3, 131, LENGTH).tolist()
    wanted = hf_logits(model, tokens).numpy()
    driver = make_driver(tmp_path, backend)
    results = {
        "one prefill": driver.logits("whole", tokens),
        "chunks of 37": driver.logits("chunked", tokens, chunk=37),
        "decode": np.concatenate(
            [driver.logits("decoded", tokens[:120]), driver.logits("decoded", tokens[120:], chunk=1)]
        ),
    }
    driver.plan.close()
    tolerance = 2e-4 * np.abs(wanted).max()
    for how, got in results.items():
        np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance, err_msg=f"{name} {how}")


@pytest.mark.parametrize("backend", ["reference", "native"])
@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "llama-dynamic"])
def test_hidden_states_equal_transformers(name: str, backend: str, tmp_path: Path) -> None:
    model = save_tiny(name, tmp_path)
    tokens = np.random.default_rng(3).integers(3, 131, LENGTH).tolist()
    wanted = hf_hidden(model, tokens).numpy()
    driver = make_driver(tmp_path, backend)
    batch = driver.batch({"a": tokens})
    batch.hidden_rows = np.arange(LENGTH, dtype=np.int32)
    got = driver.plan.run(batch).hidden
    driver.plan.close()
    assert got is not None
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-4 * np.abs(wanted).max())


def test_dynamic_rope_is_fixed_at_the_served_length(tmp_path: Path) -> None:
    """At exactly the served length our table is the one transformers would use for that many tokens."""
    model = save_tiny("llama-dynamic", tmp_path)
    tokens = np.random.default_rng(2).integers(3, 131, 120).tolist()
    wanted = hf_logits(model, tokens).numpy()
    got = make_driver(tmp_path, "reference", max_model_len=120).logits("a", tokens, chunk=50)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-4 * np.abs(wanted).max())
