"""The least time that a model's forward pass can take on this machine: what it must read and compute, over what the
machine can read and compute (roofline.py). (Roofline, CACM 52(4), 2009.)

One token of one request reads every packed weight once, and K and V of the tokens before it:

    decode = bytes / bandwidth, that of a working set of as many bytes

A prompt multiplies every matrix with a row for each of its tokens (the head with one), and each row attends to the keys
up to its own:

    prompt = sum over arithmetics of operations / peak; attention is float32

Left out, so that these are floors: norms, rope, activations, quantizing, sampling, and the bytes of a prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from forebay.bench.ops.cost import FMA, arithmetic_of
from forebay.bench.ops.roofline import Roofline, working_set_step
from forebay.core.kv_spec import KVGroup, KVSpec
from forebay.models.decoder_spec import DecoderSpec
from forebay.models.decoder_weights import DecoderWeights
from forebay.ops.tensor import Tensor
from forebay.weights.formats import FORMATS

BLOCK_SIZE = 16  # of the KVSpec that is asked for the bytes of a token, which do not depend on it
_CODE_BITS = {"dot_u4": 4, "dot_u8": 8}
# Bits of a packed weight beside its code: an f16 scale, and a minimum, for 32 weights; in K-quants for 256, and a byte
# for each 32 (q6_k: 16) that it is multiplied with.
_SCALE_BITS = {
    "q4_0": 16 / 32, "q5_0": 16 / 32, "q8_0": 16 / 32, "q4_1": 32 / 32, "q5_1": 32 / 32,
    "q4_k": 32 / 256 + 16 / 32, "q5_k": 32 / 256 + 16 / 32, "q6_k": 16 / 256 + 8 / 16,
}  # fmt: skip


def packed_bits(format_name: str) -> float:
    """Bits of a weight as the native kernels read it (docs/ops.md): codes of 4 or 8 bits, and what scales them."""
    fmt = FORMATS[format_name]
    if not fmt.quantized:
        return 8.0 * fmt.block_bytes
    return _CODE_BITS[arithmetic_of(format_name)] + _SCALE_BITS[format_name]


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """What a model makes the machine do.

    weight_bytes: all matrices, packed. operations: by arithmetic, of one row through the layers; head: of one row of
    logits. width: of all heads of a layer. kv: what the cache holds.
    """

    weight_bytes: int
    operations: Mapping[str, int]
    head: Mapping[str, int]
    width: int
    kv: KVSpec

    def decode_bytes(self, context: int) -> int:
        """Of one token that sees `context` keys."""
        return self.weight_bytes + sum(group.bytes_per_token() * _seen(group, context) for group in self.kv.groups)

    def prompt_operations(self, tokens: int) -> dict[str, int]:
        """By arithmetic, of a prompt that nothing is known of before."""
        found = {kind: count * tokens for kind, count in self.operations.items()}
        for kind, count in self.head.items():
            found[kind] = found.get(kind, 0) + count
        keys = sum(len(group.layers) * _seen_in_all(group, tokens) for group in self.kv.groups)
        return found | {FMA: found.get(FMA, 0) + 4 * self.width * keys}


def forward_pass(spec: DecoderSpec, weights: DecoderWeights, kv_dtype: str) -> ForwardPass:
    """Of a model as it is loaded; kv_dtype: a key of core.kv_spec.KV_ITEMSIZE."""
    matrices = [
        linear.weight
        for layer in weights.layers
        for linear in (layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up, layer.down)
    ]
    return ForwardPass(
        weight_bytes=sum(map(_packed_bytes, (*matrices, weights.head))),
        operations=_operations(matrices),
        head=_operations([weights.head]),
        width=spec.num_heads * spec.head_dim,
        kv=spec.kv_spec(BLOCK_SIZE, kv_dtype),
    )


def sample(roofline: Roofline, working_sets: Iterable[int], kinds: Iterable[str], seconds: float) -> None:
    """Measure once more what the floors of these bytes and arithmetics need."""
    for size in sorted(set(map(working_set_step, working_sets))):
        roofline.sample(size, seconds)
    for kind in sorted(set(kinds)):
        roofline.sample(kind, seconds)


def decode_floor(model: ForwardPass, context: int, roofline: Roofline) -> float:
    """Seconds. KeyError if the roofline has no sample of that working set."""
    size = model.decode_bytes(context)
    return size / roofline.rate(working_set_step(size)).best


def prompt_floor(model: ForwardPass, tokens: int, roofline: Roofline) -> float:
    """Seconds. KeyError if the roofline has no sample of an arithmetic."""
    return sum(count / roofline.rate(kind).best for kind, count in model.prompt_operations(tokens).items())


def _packed_bytes(matrix: Tensor) -> int:
    return int(matrix.rows * matrix.columns * packed_bits(matrix.format.name) / 8)


def _operations(matrices: Iterable[Tensor]) -> dict[str, int]:
    """By arithmetic, of one row: a multiplication and an addition for each weight."""
    found: dict[str, int] = {}
    for matrix in matrices:
        kind = arithmetic_of(matrix.format.name)
        found[kind] = found.get(kind, 0) + 2 * matrix.rows * matrix.columns
    return found


def _seen(group: KVGroup, context: int) -> int:
    return min(context, group.window or context)


def _seen_in_all(group: KVGroup, tokens: int) -> int:
    """Keys that the rows of a prompt see, summed: 1, 2, 3 ... and no more than the window."""
    window = _seen(group, tokens)
    return window * (window + 1) // 2 + (tokens - window) * window
