"""Weights: where a model comes from (sources), how its files are read (gguf, safetensors), how matrices are stored."""
