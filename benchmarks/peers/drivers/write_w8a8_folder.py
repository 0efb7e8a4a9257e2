"""Hugging Face folder -> the same with int8 weights, in the compressed-tensors format.

python write_w8a8_folder.py FOLDER NEW_FOLDER w8a8

Each row of a linear layer gets one scale, max |w| / 127, rounded to nearest; activations are quantized to int8 a token
at a time as the engine runs. Embedding, head and norms stay bfloat16, as vLLM wants them.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

SCHEME = {
    "targets": ["Linear"],
    "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"},
    "input_activations": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True},
}


def main() -> None:
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    shutil.copytree(source, folder)
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(source / "model.safetensors").items():
        if name.endswith("_proj.weight"):
            scale = tensor.abs().amax(dim=1, keepdim=True) / 127
            tensors[name] = (tensor / scale).round().to(torch.int8)
            tensors[name + "_scale"] = scale
        else:
            tensors[name] = tensor.to(torch.bfloat16)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    config["dtype"] = "bfloat16"
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": SCHEME},
        "ignore": ["lm_head"],
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))


if __name__ == "__main__":
    main()
