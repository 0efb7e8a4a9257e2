"""A config.json whose numbers have no meaning: one clear line before anything is computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import ModelFormatError, UnsupportedModelError
from forebay.models.families.registry import load_decoder
from forebay.weights.checkpoint import open_checkpoint
from tests.support.shared import shared_path

YARN = {"rope_type": "yarn", "factor": 4.0}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_hidden_layers": 2**31 - 1}, "num_hidden_layers must be at most 4096, got 2147483647"),
        ({"rms_norm_eps": -1}, "epsilon of norms must not be negative, got -1"),
        ({"rope_theta": 0}, "default rope cannot be served: its base must be above 1, got 0"),
        ({"rope_theta": -10000.0}, "its base must be above 1, got -10000"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "linear rope .* its factor must be above 0, got 0"),
        ({"rope_theta": 1.0, "rope_scaling": YARN}, "yarn rope cannot be served: its base must be above 1, got 1"),
        ({"rope_scaling": YARN | {"beta_fast": 0}}, "beta_fast 0 and beta_slow 1 must be above 0"),
        ({"rope_scaling": YARN | {"beta_slow": -3}}, "beta_fast 32 and beta_slow -3 must be above 0"),
        (
            {"rope_scaling": {"rope_type": "llama3", "low_freq_factor": 4.0, "high_freq_factor": 4.0}},
            "low_freq_factor 4 must be below high_freq_factor 4",
        ),
        (
            {"rope_scaling": {"rope_type": "dynamic"}, "partial_rotary_factor": 0.25},
            "must rotate more than 2 dimensions, not 2",
        ),
    ],
)
def test_one_line(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    source = shared_path("models/stories260K/hf")
    (tmp_path / "model.safetensors").symlink_to(source / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises((ModelFormatError, UnsupportedModelError), match=says) as caught:
        load_decoder(open_checkpoint(tmp_path))
    assert "\n" not in caught.value.message
