"""GGUF file -> Hugging Face folder with dequantized weights, through transformers' own reading of GGUF files.

python write_hf_folder.py MODEL.gguf FOLDER float32|bfloat16
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    source, folder, dtype = Path(sys.argv[1]), Path(sys.argv[2]), getattr(torch, sys.argv[3])
    read = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    config = read.config
    if hasattr(config, "quantization_config"):  # it says "gguf", and save_pretrained then refuses
        del config.quantization_config
    plain = type(read)(config).to(dtype)
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(folder)


if __name__ == "__main__":
    main()
