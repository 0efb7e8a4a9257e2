"""The paged KV cache's bookkeeping: blocks, reference counts, prefix cache, promises. Plain Python; holds no KV."""

from forebay.kvcache.block_manager import BlockManager, BlockUsage
from forebay.kvcache.block_pool import BlockPool
from forebay.kvcache.prefix_cache import PrefixCache

__all__ = ["BlockManager", "BlockPool", "BlockUsage", "PrefixCache"]
