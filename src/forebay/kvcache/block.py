"""One block, and the arithmetic of blocks and windows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Block:
    """`block_size` KV slots of one group.

    ref_count: requests whose table holds it. block_hash: set while the prefix cache can find it.
    """

    block_id: int
    ref_count: int = 0
    block_hash: bytes | None = None


def blocks_for(num_tokens: int, block_size: int) -> int:
    """Blocks that hold `num_tokens` tokens from position 0."""
    return -(-num_tokens // block_size)


def first_block(window: int | None, start: int, block_size: int) -> int:
    """Index of the first block that a row at position >= `start` can see: keys are (position - window, position]."""
    return 0 if window is None else max(0, start - window + 1) // block_size


def window_blocks(window: int, chunk_size: int, block_size: int) -> int:
    """Most blocks that a step of `chunk_size` rows can touch: window - 1 keys before the first row, and the rows,
    at the worst alignment."""
    return (window - 1 + chunk_size + block_size - 2) // block_size + 1
