"""SmolLM2 as shipped, against transformers' own reading of the same GGUF (weights dequantized to float32).

What is left between the two is our int8 activations and f16 keys and values, so agreement is a distance, not equality.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import transformers as hf

from forebay.models.decoder import Decoder
from forebay.models.families.registry import load_decoder
from forebay.ops.protocol import PlanLimits
from forebay.ops.registry import create_backend
from forebay.tokenizer import load_tokenizer
from forebay.weights.checkpoint import open_checkpoint
from tests.models.tiny import hf_logits
from tests.support.driver import PlanDriver
from tests.support.shared import shared_path

TOKENS = 512
# docs/performance.md has the measured figures; the bounds leave room for another text
MAX_MEAN_KL = 0.01
MIN_AGREEMENT = 0.95


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


@pytest.fixture(scope="module")
def text_ids(smollm2_path: Path) -> list[int]:
    with gzip.open(shared_path("prompts/wikitext2_valid.txt.gz"), "rt") as file:
        return load_tokenizer(open_checkpoint(smollm2_path)).encode(file.read(20000))[:TOKENS]


def test_teacher_forced_agreement(smollm2_path: Path, text_ids: list[int]) -> None:
    model = hf.AutoModelForCausalLM.from_pretrained(
        smollm2_path.parent, gguf_file=smollm2_path.name, dtype="float32", attn_implementation="eager"
    )
    wanted = log_softmax(hf_logits(model.eval(), text_ids).numpy())
    spec, weights = load_decoder(open_checkpoint(smollm2_path))
    kv = spec.kv_spec(16, "f16")
    limits = PlanLimits(max_tokens=TOKENS, max_requests=1, max_logit_rows=TOKENS, max_model_len=TOKENS, num_blocks=40)
    plan = create_backend("native").compile(Decoder(spec, weights, TOKENS), kv, limits)
    got = log_softmax(PlanDriver(plan, kv, 40).logits("text", text_ids, chunk=200))
    plan.close()
    kl = float((np.exp(wanted) * (wanted - got)).sum(axis=-1).mean())
    agreement = float((wanted.argmax(axis=-1) == got.argmax(axis=-1)).mean())
    print(f"mean KL {kl:.2e}, top-1 agreement {agreement:.3f} over {TOKENS} tokens")
    assert kl < MAX_MEAN_KL
    assert agreement > MIN_AGREEMENT
