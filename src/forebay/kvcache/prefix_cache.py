"""Finds computed prefixes: the one owner of block hash -> block, for every KV group."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.kvcache.block import first_block


class PrefixCache:
    """Maps block hashes to block ids, per KV group. `windows`: each group's window, None for full attention."""

    def __init__(self, windows: Sequence[int | None], block_size: int) -> None:
        self._block_size = block_size
        self._blocks: tuple[dict[bytes, int], ...] = tuple({} for _ in windows)
        self._full = [blocks for blocks, window in zip(self._blocks, windows, strict=True) if window is None]
        self._windowed = [(blocks, w) for blocks, w in zip(self._blocks, windows, strict=True) if w is not None]

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def find(self, group: int, block_hash: bytes) -> int:
        """The block of that content; KeyError if there is none."""
        return self._blocks[group][block_hash]

    def insert(self, group: int, block_hash: bytes, block_id: int) -> bool:
        """Make a full block with final KV findable. False if equal content already is.

        The second copy then stays private to its request and is freed with it: block tables only ever grow at the end,
        so nobody is moved to another block while a step may be reading it, and the bits are the same anyway.
        """
        return self._blocks[group].setdefault(block_hash, block_id) == block_id

    def remove(self, group: int, block_hash: bytes) -> None:
        del self._blocks[group][block_hash]

    def clear(self) -> None:
        for blocks in self._blocks:
            blocks.clear()

    def longest_hit(self, hashes: Sequence[bytes], num_tokens: int) -> int:
        """Leading blocks of a request of `num_tokens` tokens that every group can use.

        Full attention needs all of them, a windowed group only those its next row can still see.
        """
        hit = len(hashes)
        for blocks in self._full:
            hit = next((i for i in range(hit) if hashes[i] not in blocks), hit)
        while hit > 0:
            # A missing block is inside the window of every hit between it and this one, so go straight below it.
            missing = self._last_missing(hashes, hit, min(hit * self._block_size, num_tokens - 1))
            if missing is None:
                break
            hit = missing
        return hit

    def _last_missing(self, hashes: Sequence[bytes], hit: int, start: int) -> int | None:
        for blocks, window in self._windowed:
            for i in range(hit - 1, first_block(window, start, self._block_size) - 1, -1):
                if hashes[i] not in blocks:
                    return i
        return None
