"""The sizes of a model that its ops depend on, and the weight formats it is stored in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forebay.models.decoder_spec import DecoderSpec
from forebay.models.decoder_weights import DecoderWeights
from forebay.models.families.registry import load_decoder
from forebay.weights.checkpoint import open_checkpoint
from forebay.weights.sources import resolve_source

HEAD = "head"


@dataclass(frozen=True, slots=True)
class ModelShape:
    """linears: role ("q", "down", "head" ...) -> (out features, in features, stored format). The head is apart from the
    `layers` layers; the embedding has the head's shape and `embed_format`."""

    name: str
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    rotary_dim: int
    vocab: int
    layers: int
    activation: str
    embed_format: str
    linears: Mapping[str, tuple[int, int, str]]

    @property
    def weight_values(self) -> int:
        """Values of all matrices that one step multiplies with."""
        sizes = {role: rows * columns for role, (rows, columns, _) in self.linears.items()}
        return sizes[HEAD] + self.layers * sum(size for role, size in sizes.items() if role != HEAD)


def load_shape(source: str) -> ModelShape:
    """The shape of a model named as for `forebay serve`; it is fetched if need be. Raises SetupError subclasses."""
    checkpoint = open_checkpoint(resolve_source(source))
    try:
        return shape_of(source, *load_decoder(checkpoint))
    finally:
        checkpoint.close()


def shape_of(name: str, spec: DecoderSpec, weights: DecoderWeights) -> ModelShape:
    """Formats are those of the first layer."""
    first = weights.layers[0]
    matrices = {role: getattr(first, role).weight for role in ("q", "k", "v", "o", "gate", "up", "down")}
    matrices[HEAD] = weights.head
    return ModelShape(
        name=name,
        hidden=spec.hidden_size,
        intermediate=spec.intermediate_size,
        heads=spec.num_heads,
        kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        rotary_dim=spec.layers[0].rope.rotary_dim,
        vocab=spec.vocab_size,
        layers=len(spec.layers),
        activation=spec.activation,
        embed_format=weights.embed.format.name,
        linears={role: (t.rows, t.columns, t.format.name) for role, t in matrices.items()},
    )


def small_shape() -> ModelShape:
    """A model so small that the reference runs it quickly, and wide enough for every format."""
    hidden, intermediate, kv = 64, 256, 32
    sizes = {
        "q": (hidden, hidden), "k": (kv, hidden), "v": (kv, hidden), "o": (hidden, hidden),
        "gate": (intermediate, hidden), "up": (intermediate, hidden), "down": (hidden, intermediate),
        HEAD: (320, hidden),
    }  # fmt: skip
    return ModelShape(
        name="small", hidden=hidden, intermediate=intermediate, heads=4, kv_heads=2, head_dim=16, rotary_dim=16,
        vocab=320, layers=2, activation="silu", embed_format="q8_0",
        linears={role: (*size, "q8_0" if role == HEAD else "q4_1") for role, size in sizes.items()},
    )  # fmt: skip
