"""The scheduler's one door to blocks: promises, block tables, and the verbs append, truncate, commit, seal, fork."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from forebay.core.kv_spec import KVSpec
from forebay.core.request import Request
from forebay.errors import InternalError, ProfileError
from forebay.kvcache.block import blocks_for, first_block, window_blocks
from forebay.kvcache.block_hash import block_hash, root_hash
from forebay.kvcache.block_pool import BlockPool
from forebay.kvcache.prefix_cache import PrefixCache

NO_BLOCK = -1  # table entry of a block that a sliding window has let go


@dataclass(frozen=True, slots=True)
class BlockUsage:
    """Counts over all KV groups. total = used + free + cached.

    promised: reserved by running requests and not yet taken. slack_slots: slots of used blocks that hold no token.
    """

    total: int
    used: int
    free: int
    cached: int
    promised: int
    slack_slots: int


@dataclass(slots=True)
class _Holding:
    """What one admitted request has: per KV group its promise, its table, and how many leading blocks it let go."""

    promised: tuple[int, ...]
    tables: tuple[list[int], ...]
    let_go: list[int]
    hashes: list[bytes] = field(default_factory=list)
    num_tokens: int = 0  # slots handed out
    committed: int = 0  # KV below is final
    sealed: int = 0
    findable: bool = True  # its blocks may enter the prefix cache


class BlockManager:
    """Block tables of all admitted requests. Each KV group has its own table and its own pool of `num_blocks` blocks.

    A block has one writer: only full blocks with final KV are ever shared, and those are never written again.

    overcommit: promises may add up to num_blocks * overcommit per group; at 1.0 `append` cannot fail.
    chunk_size: most rows of one request in one step; None promises windowed groups as much as full ones.
    """

    def __init__(
        self, kv: KVSpec, num_blocks: int, *, prefix_cache: bool, overcommit: float = 1.0, chunk_size: int | None = None
    ) -> None:
        if num_blocks < 1:
            raise ProfileError(f"num_blocks must be at least 1, got {num_blocks}", param="kv.num_blocks")
        if overcommit < 1.0:
            raise ProfileError(f"overcommit must be at least 1.0, got {overcommit}", param="scheduler.overcommit")
        self.block_size = kv.block_size
        self.num_blocks = num_blocks
        self.chunk_size = chunk_size
        self._windows = tuple(group.window for group in kv.groups)
        self._windowed = tuple([(group, w) for group, w in enumerate(self._windows) if w is not None])
        self._spans = tuple(
            None if window is None or chunk_size is None else window_blocks(window, chunk_size, kv.block_size)
            for window in self._windows
        )  # most blocks a request holds at once, however long it gets; None if that grows with it
        self._cache = PrefixCache(self._windows, kv.block_size) if prefix_cache else None
        self.pools = tuple(BlockPool(num_blocks, partial(self._evicted, group)) for group in range(len(kv.groups)))
        self._limit = int(num_blocks * overcommit)
        self._promised = [0] * len(kv.groups)
        self._holdings: dict[str, _Holding] = {}

    # --- promises ---------------------------------------------------------------------------------------------------

    def largest_total_tokens(self) -> int | None:
        """Most tokens (prompt + max_tokens) that an idle cache can promise to one request; None if any number."""
        if all(span is not None and span <= self.num_blocks for span in self._spans):
            return None
        return self.num_blocks * self.block_size

    def promise(self, request: Request) -> bool:
        """Reserve blocks for prompt + max_tokens, rounded up, in every group. False, and nothing changed, if the other
        promises leave too little, or (overcommit) if the tokens it has would not fit right now."""
        needs = self._needs(request.max_total_tokens)
        now = self._needs(request.num_tokens)
        for pool, promised, need, need_now in zip(self.pools, self._promised, needs, now, strict=True):
            if need > self.num_blocks or promised + need > self._limit or need_now > pool.num_available:
                return False
        self._promised = [promised + need for promised, need in zip(self._promised, needs, strict=True)]
        self._holdings[request.request_id] = _Holding(needs, tuple([] for _ in needs), [0] * len(needs))
        return True

    def num_promised(self, request: Request) -> int:
        """Blocks promised to an admitted request, over all groups."""
        return sum(self._holdings[request.request_id].promised)

    def _needs(self, num_tokens: int) -> tuple[int, ...]:
        total = blocks_for(num_tokens, self.block_size)
        return tuple([total if span is None else min(total, span) for span in self._spans])

    # --- sharing ----------------------------------------------------------------------------------------------------

    def match_prefix(self, request: Request) -> int:
        """Give a newly promised request the longest cached prefix of its tokens. Returns the number of cached tokens.

        Sets num_computed_tokens, write_start and, unless it was preempted, num_cached_tokens. When all tokens are
        cached the last one is computed again to get its logits, but nothing is written: write_start stays above it.
        """
        if self._cache is None or request.num_unscored_tokens:  # what is not computed has no logits
            return 0
        holding = self._holdings[request.request_id]
        num_tokens = request.num_known_tokens
        hashes = self._hashes(request, holding, num_tokens // self.block_size)
        hit = self._cache.longest_hit(hashes, num_tokens)
        self._share(
            request,
            holding,
            hit,
            [
                [self._cache.find(group, h) for h in hashes[first:hit]]
                for group, first in enumerate(self._firsts(request, hit))
            ],
        )
        if request.num_preemptions == 0:  # the client must not see a preemption
            request.num_cached_tokens = hit * self.block_size
        return hit * self.block_size

    def fork(self, parent: Request, child: Request) -> int:
        """Share the parent's full, final prompt blocks with a newly promised child of the same prompt; the child
        computes the rest itself, so a partial block keeps its one writer. Returns the number of shared tokens: 0 when
        the parent's window has already passed what the child must see. Sets the same fields as match_prefix."""
        if child.prompt_token_ids != parent.prompt_token_ids or child.namespace != parent.namespace:
            raise InternalError(f"fork: {child.request_id} and {parent.request_id} differ in prompt or namespace")
        source, holding = self._holdings[parent.request_id], self._holdings[child.request_id]
        hit = min(source.committed, parent.num_prompt_tokens) // self.block_size
        firsts = self._firsts(child, hit)
        if any(gone > first for gone, first in zip(source.let_go, firsts, strict=True)):
            return 0
        holding.findable = source.findable
        self._share(child, holding, hit, [table[first:hit] for table, first in zip(source.tables, firsts, strict=True)])
        if child.num_preemptions == 0:
            child.num_cached_tokens = min(parent.num_cached_tokens, hit * self.block_size)
        return hit * self.block_size

    def _firsts(self, request: Request, hit: int) -> list[int]:
        """Per group the first block that must be there when `hit` blocks are taken over."""
        start = min(hit * self.block_size, request.num_known_tokens - 1)
        return [min(hit, first_block(window, start, self.block_size)) for window in self._windows]

    def _share(self, request: Request, holding: _Holding, hit: int, shared: list[list[int]]) -> None:
        if holding.num_tokens:
            raise InternalError(f"request {request.request_id} already has blocks; share before the first append")
        for group, blocks in enumerate(shared):
            holding.let_go[group] = hit - len(blocks)
            holding.tables[group][:] = [NO_BLOCK] * (hit - len(blocks)) + blocks
            for block_id in blocks:
                self.pools[group].share(block_id)
        holding.num_tokens = holding.committed = request.write_start = hit * self.block_size
        request.num_computed_tokens = min(holding.committed, request.num_known_tokens - 1)

    # --- verbs ------------------------------------------------------------------------------------------------------

    def append(self, request: Request, num_tokens: int) -> bool:
        """Take the blocks for positions below `num_tokens`, in all groups or none. False if a pool has too few, which
        cannot happen at overcommit 1.0. InternalError beyond the promise."""
        holding = self._holdings[request.request_id]
        target = blocks_for(num_tokens, self.block_size)
        if min(map(len, holding.tables)) < target and not self._take(request, holding, target):
            return False
        holding.num_tokens = max(holding.num_tokens, num_tokens)
        return True

    def _take(self, request: Request, holding: _Holding, target: int) -> bool:
        """Bring every table to `target` blocks, or none."""
        missing = [target - len(table) for table in holding.tables]
        for group, count in enumerate(missing):
            if count > self.pools[group].num_available:
                return False
            if len(holding.tables[group]) - holding.let_go[group] + count > holding.promised[group]:
                raise InternalError(
                    f"request {request.request_id} was promised {holding.promised[group]} blocks "
                    f"of group {group} and asks for {target} with {holding.let_go[group]} let go"
                )
        for pool, table, count in zip(self.pools, holding.tables, missing, strict=True):
            table.extend([pool.take() for _ in range(count)])
        return True

    def truncate(self, request: Request, num_tokens: int) -> None:
        """Rewind to `num_tokens` (rejected drafts), giving back whole blocks. InternalError below the committed one."""
        holding = self._holdings[request.request_id]
        if num_tokens < holding.committed:
            kind = "sealed" if num_tokens < holding.sealed else "committed"
            raise InternalError(
                f"truncate to {num_tokens} is below the {kind} length of {request.request_id}; "
                f"its first {holding.committed} tokens are final"
            )
        keep = blocks_for(num_tokens, self.block_size)
        for pool, table in zip(self.pools, holding.tables, strict=True):
            while len(table) > keep:
                pool.release(table.pop())
        holding.num_tokens = min(holding.num_tokens, num_tokens)

    def commit(self, request: Request, num_tokens: int) -> None:
        """KV of positions below `num_tokens` is written and final: full blocks become findable, and windowed groups let
        go of the blocks that no later row (at position >= num_tokens) can see. Drafts are never committed."""
        holding = self._holdings[request.request_id]
        known = request.num_known_tokens
        if not holding.committed <= num_tokens <= holding.num_tokens or num_tokens > known:
            raise InternalError(
                f"commit of {num_tokens} tokens of {request.request_id}: {holding.committed} are "
                f"committed, {holding.num_tokens} have slots, {known} are not drafts"
            )
        old, full = holding.committed // self.block_size, num_tokens // self.block_size
        if full > old and self._cache is not None and holding.findable:
            hashes = self._hashes(request, holding, full)
            for group, (pool, table) in enumerate(zip(self.pools, holding.tables, strict=True)):
                for index in range(old, full):
                    if self._cache.insert(group, hashes[index], table[index]):
                        pool.set_hash(table[index], hashes[index])
        holding.committed = num_tokens
        for group, window in self._windowed:
            self._let_go(holding, group, first_block(window, num_tokens, self.block_size))

    def seal(self, request: Request, num_tokens: int) -> None:
        """KV of positions below `num_tokens` may take its grouped, quantized form. Float KV has none, so this only
        checks that the tokens are committed and keeps the length, below which nothing can be truncated."""
        holding = self._holdings[request.request_id]
        if not holding.sealed <= num_tokens <= holding.committed:
            raise InternalError(
                f"seal of {num_tokens} tokens of {request.request_id}: {holding.sealed} are sealed, "
                f"{holding.committed} committed"
            )
        holding.sealed = num_tokens

    def free(self, request: Request) -> None:
        """Give back all blocks and the promise. Nothing happens for a request that has none."""
        holding = self._holdings.pop(request.request_id, None)
        if holding is None:
            return
        for pool, table, gone in zip(self.pools, holding.tables, holding.let_go, strict=True):
            for block_id in reversed(table[gone:]):  # the tail is evicted first: a prefix is of use without it
                pool.release(block_id)
        self._promised = [promised - need for promised, need in zip(self._promised, holding.promised, strict=True)]

    def _let_go(self, holding: _Holding, group: int, first: int) -> None:
        table = holding.tables[group]
        for index in range(holding.let_go[group], first):
            self.pools[group].release(table[index])
            table[index] = NO_BLOCK
        holding.let_go[group] = max(first, holding.let_go[group])

    # --- views ------------------------------------------------------------------------------------------------------

    def block_tables(self, request: Request) -> tuple[list[int], ...]:
        """Per KV group a copy of the block ids from position 0; -1 where a window has let a block go."""
        return tuple([table.copy() for table in self._holdings[request.request_id].tables])

    def usage(self) -> BlockUsage:
        promised = slack = 0
        for holding in self._holdings.values():
            for table, gone, need in zip(holding.tables, holding.let_go, holding.promised, strict=True):
                promised += need - len(table) + gone
                slack += len(table) * self.block_size - holding.num_tokens
        free = sum([pool.num_free for pool in self.pools])
        cached = sum([pool.num_cached for pool in self.pools])
        total = self.num_blocks * len(self.pools)
        return BlockUsage(total, total - free - cached, free, cached, promised, slack)

    def reset_prefix_cache(self) -> bool:
        """Forget every cached prefix now; blocks of running requests stay theirs and never become findable again.
        False if the prefix cache is off."""
        if self._cache is None:
            return False
        self._cache.clear()
        for pool in self.pools:
            pool.clear_hashes()
        for holding in self._holdings.values():
            holding.findable = False
        return True

    def _evicted(self, group: int, evicted: bytes) -> None:
        assert self._cache is not None
        self._cache.remove(group, evicted)

    def _hashes(self, request: Request, holding: _Holding, count: int) -> list[bytes]:
        """Hashes of the first `count` blocks, each computed once per admission."""
        hashes = holding.hashes
        while len(hashes) < count:
            start = len(hashes) * self.block_size
            parent = hashes[-1] if hashes else root_hash(request.namespace)
            hashes.append(block_hash(parent, request.tokens(start, start + self.block_size)))
        return hashes
