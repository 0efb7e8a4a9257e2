"""A float32 model with the weights of a quantized one, that no quantizer gets for nothing.

    python benchmarks/shuffled_model.py MODEL.gguf OUT.gguf [--seed 0]

The values of a Q4_1 file lie on 16 levels per 32 columns: a quantizer with the same groups would find them all again,
which says nothing of it. Here the channels of the residual stream, of each MLP and of each value head are put into
another order. The function is the same (each product adds the same numbers in another order), but every group of 32
now holds values from many groups of the file. Of the llama architecture only; needs the `gguf` package.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from forebay.weights.checkpoint import Checkpoint, open_checkpoint

ARCHITECTURE = "llama"
Order = np.ndarray[Any, np.dtype[np.intp]]


class Orders:
    """A new order for each kind of channel."""

    def __init__(self, checkpoint: Checkpoint, seed: int) -> None:
        config = checkpoint.config
        if config.get("general.architecture") != ARCHITECTURE:
            raise SystemExit(f"{checkpoint.path} is not of the {ARCHITECTURE} architecture")
        self._rng = np.random.default_rng(seed)
        self._heads = config["llama.attention.head_count"]
        self._kv_heads = config["llama.attention.head_count_kv"]
        self._head_dim = config["llama.embedding_length"] // self._heads
        self.hidden = self._rng.permutation(config["llama.embedding_length"])
        layers = range(config["llama.block_count"])
        self.inner = [self._rng.permutation(config["llama.feed_forward_length"]) for _ in layers]
        self._within = [[self._rng.permutation(self._head_dim) for _ in range(self._kv_heads)] for _ in layers]

    def values(self, layer: int) -> Order:
        """Rows of V: each head keeps its place, its channels do not."""
        return self._joined(self._within[layer])

    def attended(self, layer: int) -> Order:
        """Columns of the output projection: each query head has the channels of the KV head it reads."""
        return self._joined(np.repeat(self._within[layer], self._heads // self._kv_heads, axis=0))

    def _joined(self, within: Any) -> Order:
        return np.concatenate([head * self._head_dim + order for head, order in enumerate(within)])


def shuffled(name: str, values: np.ndarray[Any, Any], orders: Orders) -> np.ndarray[Any, Any]:
    """One tensor of the file, as float32 (rows, columns), in the new order."""
    parts = name.split(".")
    if parts[0] != "blk":
        return values[:, orders.hidden]  # token_embd, output, output_norm
    layer, kind = int(parts[1]), parts[2]
    if kind == "attn_output":
        return values[orders.hidden][:, orders.attended(layer)]
    if kind == "ffn_down":
        return values[orders.hidden][:, orders.inner[layer]]
    rows = {"attn_v": orders.values(layer), "ffn_gate": orders.inner[layer], "ffn_up": orders.inner[layer]}.get(kind)
    columns = values[:, orders.hidden]
    return columns if rows is None else columns[rows]


def write(source: Path, target: Path, seed: int) -> None:
    checkpoint, reader = open_checkpoint(source), gguf.GGUFReader(source)
    orders = Orders(checkpoint, seed)
    writer = gguf.GGUFWriter(target, ARCHITECTURE)
    left = {"general.architecture", "general.file_type", "general.quantization_version"}
    for key, field in reader.fields.items():
        if key not in left and not key.startswith("GGUF."):
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, field.contents(), field.types[0], sub_type=inner)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for name in checkpoint.tensor_names():
        tensor = checkpoint.tensor(name)
        values = np.ascontiguousarray(shuffled(name, tensor.dequantize(), orders))
        writer.add_tensor(name, values if tensor.rows > 1 else values[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    write(args.model, args.target, args.seed)


if __name__ == "__main__":
    main()
