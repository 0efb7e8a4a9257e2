"""What would be computed wrongly, without a sign of it, is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from forebay.errors import ModelFormatError, UnsupportedModelError
from forebay.models.families.registry import load_decoder
from forebay.weights.checkpoint import open_checkpoint
from tests.models.gguf_export import export_gguf
from tests.models.tiny import save_tiny


@pytest.mark.parametrize("scalar", [0, -4])
def test_a_scale_without_a_meaning(scalar: int, tmp_path: Path) -> None:
    save_tiny("gemma3", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"query_pre_attn_scalar": scalar}))
    with pytest.raises(ModelFormatError, match="query_pre_attn_scalar must be a number above 0"):
        load_decoder(open_checkpoint(tmp_path))


def test_partial_rotation_of_neighbours_is_refused(tmp_path: Path) -> None:
    """A GGUF of the llama architecture orders whole heads for neighbours; half a head would be turned wrongly."""
    model = save_tiny("llama", tmp_path / "hf")
    model.config.rope_parameters["partial_rotary_factor"] = 0.5
    export_gguf(model, "llama", tmp_path / "model.gguf")
    with pytest.raises(UnsupportedModelError, match="rotate"):
        load_decoder(open_checkpoint(tmp_path / "model.gguf"))


@pytest.mark.parametrize("factors", [np.zeros(8, np.float32), np.full(8, np.nan, np.float32)])
def test_frequency_factors_must_be_positive(tmp_path: Path, factors: np.ndarray) -> None:
    export_gguf(save_tiny("llama", tmp_path / "hf"), "llama", tmp_path / "m.gguf", extra={"rope_freqs.weight": factors})
    with pytest.raises(UnsupportedModelError, match="frequency factors"):
        load_decoder(open_checkpoint(tmp_path / "m.gguf"))


def test_long_rope_factors_are_refused_by_name(tmp_path: Path) -> None:
    """Phi-3 with a long context: without its factors the answers would be wrong and nobody would know."""
    extra = {"rope_factors_long.weight": np.ones(8, np.float32)}
    export_gguf(save_tiny("phi3", tmp_path / "hf"), "phi3", tmp_path / "m.gguf", extra=extra)
    with pytest.raises(UnsupportedModelError, match="rope_factors_long"):
        load_decoder(open_checkpoint(tmp_path / "m.gguf"))


YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"expert_count": 8}, r"llama.expert_count is 8: experts are not supported"),
        (YARN | {"rope.scaling.yarn_ext_factor": 0.5}, r"llama.rope.scaling.yarn_ext_factor is 0.5"),
        (YARN | {"rope.scaling.yarn_attn_factor": 0.5}, r"yarn_attn_factor is 0.5: this form of YaRN is not supported"),
        (YARN | {"rope.scaling.yarn_log_multiplier": 0.1}, r"yarn_log_multiplier is 0.1"),
        ({"rope.scaling.attn_factor": 1.5}, r"rope.scaling.attn_factor without yarn is not supported"),
    ],
)
def test_what_a_gguf_says_and_nobody_reads(metadata: dict[str, str | float], says: str, tmp_path: Path) -> None:
    export_gguf(save_tiny("llama", tmp_path / "hf"), "llama", tmp_path / "m.gguf", metadata=metadata)
    with pytest.raises(UnsupportedModelError, match=says):
        load_decoder(open_checkpoint(tmp_path / "m.gguf"))


@pytest.mark.parametrize("name", ["num_local_experts", "num_experts"])
def test_experts_in_a_config(name: str, tmp_path: Path) -> None:
    save_tiny("llama", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {name: 8}))
    with pytest.raises(UnsupportedModelError, match=f"{name} is 8: experts are not supported"):
        load_decoder(open_checkpoint(tmp_path))
