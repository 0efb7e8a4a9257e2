"""stories260K: greedy ids equal the published program's, all 962 of them.

The golden run's two best logits are never closer than 3.9e-3 (its own `min_top2_margin`), far above what the order of
float32 sums can move, so no tie has to be allowed for.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.models.test_families import make_driver
from tests.support.shared import shared_path


@pytest.mark.parametrize("backend", ["reference", "native"])
def test_greedy_ids(backend: str) -> None:
    folder = shared_path("models/stories260K")
    driver = make_driver(folder / "hf", backend, max_model_len=512)
    for row in json.loads((folder / "greedy_golden_fp32.json").read_text()):
        got = []
        logits = driver.logits(row["prompt"], row["prompt_ids"])
        while len(got) < len(row["greedy_ids"]):
            got.append(int(np.argmax(logits[-1])))
            logits = driver.logits(row["prompt"], got[-1:])
        assert got == row["greedy_ids"], row["prompt"]
    driver.plan.close()
