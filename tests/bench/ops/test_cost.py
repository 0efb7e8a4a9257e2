"""Bytes and operations against small cases worked out by hand."""

from __future__ import annotations

from forebay.bench.ops import cost
from forebay.bench.ops.cost import Cost


def test_linear_counts_stored_weights_once_and_activations_as_float32() -> None:
    # 3 rows of 64 in, 10 out. q4_0: 64 / 32 = 2 blocks of 18 bytes a row, 10 rows: 360. x: 3 * 64 * 4, y: 3 * 10 * 4.
    assert cost.linear(3, 10, 64, "q4_0") == Cost(360 + 768 + 120, 2 * 3 * 10 * 64, "dot_u4", 360)
    # f16: 10 * 64 * 2
    assert cost.linear(1, 10, 64, "f16") == Cost(1280 + 256 + 40, 1280, "fma_f32", 1280)
    # q6_k: one block of 210 bytes
    assert cost.linear(1, 2, 256, "q6_k") == Cost(420 + 1024 + 8, 1024, "dot_u8", 420)


def test_embed_reads_a_row_for_each_token() -> None:
    # q8_0: 64 / 32 * 34 = 68 bytes a row
    assert cost.embed(5, 64, "q8_0") == Cost(5 * 68 + 5 * 256, 640, "fma_f32", 340)
    assert cost.embed(1, 64, "f32") == Cost(512, 0, None, 256)


def test_elementwise_ops() -> None:
    assert cost.rms_norm(2, 8) == Cost(64 + 64 + 32, 64, "fma_f32")
    assert cost.elementwise(2, 8, 2, 1) == Cost(3 * 64, 16, "fma_f32")  # add
    assert cost.elementwise(2, 8, 1, 3) == Cost(2 * 64, 48, "fma_f32")  # softcap
    assert cost.act_mul(2, 8, "silu") == Cost(192, 64, "fma_f32")
    assert cost.act_mul(2, 8, "gelu_tanh") == Cost(192, 160, "fma_f32")
    assert cost.rows(3, 8) == Cost(192, 0, None)


def test_rope_turns_only_its_dimensions() -> None:
    # 2 rows, 3 heads of 8, of which 4 turn: x and y 2 * 24 * 4 each, cos and sin 2 * 2 * 2 * 4; 2 pairs of 6 a head
    assert cost.rope(2, 3, 8, 4) == Cost(384 + 32, 2 * 3 * 2 * 6, "fma_f32")


def test_kv_write_reads_float32_and_writes_the_caches_format() -> None:
    assert cost.kv_write(3, 16, 64) == Cost(3 * 2 * 16 * 6, 0, None, 3 * 2 * 16 * 2)


def test_attention_of_decode_reads_the_keys_of_each_request() -> None:
    # 2 requests at position 9 see 10 keys; 4 heads over 2 kv heads of 8, f16: K and V 2 * 10 * 16 * 2 = 640 a request
    # q and out: 2 rows of 32, 4 bytes, twice. Each key costs every head 8 multiplications and additions, twice.
    assert cost.attention([9, 9], 1, 32, 64) == Cost(2 * 640 + 512, 2 * 10 * 4 * 8 * 4, "fma_f32", 1280)


def test_attention_of_prefill_is_causal_and_shares_keys() -> None:
    # one request, rows at positions 2, 3, 4: they see 3 + 4 + 5 = 12 keys of the 5 that are read once
    assert cost.attention([2], 3, 4, 32) == Cost(2 * 5 * 4 * 4 + 2 * 3 * 4 * 4, 12 * 4 * 4, "fma_f32", 160)


def test_logits_are_read_once() -> None:
    assert cost.logits(2, 100, random=False) == Cost(800, 200, "fma_f32")
    assert cost.logits(2, 100, random=True) == Cost(800, 1000, "fma_f32")
