"""The blocks of one KV group: free list, reference counts, and idle blocks that stay cached until they are needed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from forebay.errors import InternalError
from forebay.kvcache.block import Block


class BlockPool:
    """Every block is in one of three states: used (ref_count > 0), cached (idle but findable), free. Moves are O(1).

    on_evict: called with the hash of a cached block that is about to be given away.
    """

    def __init__(self, num_blocks: int, on_evict: Callable[[bytes], None]) -> None:
        self._blocks = [Block(block_id) for block_id in range(num_blocks)]
        self._free = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._on_evict = on_evict

    @property
    def num_blocks(self) -> int:
        return len(self._blocks)

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    @property
    def num_used(self) -> int:
        return len(self._blocks) - len(self._free) - len(self._cached)

    @property
    def num_available(self) -> int:
        """Blocks that `take` can give: free ones and cached ones."""
        return len(self._free) + len(self._cached)

    def __getitem__(self, block_id: int) -> Block:
        return self._blocks[block_id]

    def take(self) -> int:
        """A block for one writer; evicts the least recently used cached block when none is free."""
        if self._free:
            block = self._blocks[self._free.pop()]
        elif self._cached:
            block = self._blocks[self._cached.popitem(last=False)[0]]
            assert block.block_hash is not None
            self._on_evict(block.block_hash)
            block.block_hash = None
        else:
            raise InternalError(f"num_blocks={len(self._blocks)} are all in use; check num_available before take()")
        block.ref_count = 1
        return block.block_id

    def share(self, block_id: int) -> None:
        """One more request reads the block (used or cached, always full)."""
        block = self._blocks[block_id]
        if block.ref_count == 0:
            del self._cached[block_id]
        block.ref_count += 1

    def release(self, block_id: int) -> None:
        """One request less; the last one makes the block cached if it is findable, else free."""
        block = self._blocks[block_id]
        if block.ref_count <= 0:
            raise InternalError(f"block {block_id} released more often than taken")
        block.ref_count -= 1
        if block.ref_count == 0:
            if block.block_hash is None:
                self._free.append(block_id)
            else:
                self._cached[block_id] = None

    def set_hash(self, block_id: int, block_hash: bytes) -> None:
        """The prefix cache can find this used block from now on."""
        self._blocks[block_id].block_hash = block_hash

    def clear_hashes(self) -> None:
        """The prefix cache has forgotten everything: cached blocks become free."""
        for block in self._blocks:
            block.block_hash = None
        self._free.extend(reversed(self._cached))
        self._cached.clear()
