"""A model and a device cache that a test can check: the KV of a position is a hash of all tokens up to it."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from forebay.core.kv_spec import KVSpec
from forebay.core.request import Request
from forebay.core.step import ModelOutput, SampledRequest, ScheduledRequest, SchedulerOutput
from forebay.kvcache import BlockManager

VOCAB = 17  # token 0 ends a request


def prefix_hashes(namespace: str, tokens: list[int]) -> list[int]:
    """The KV that belongs at each position."""
    hashes, value = [], crc32(namespace.encode())
    for token in tokens:
        value = hash((value, token))
        hashes.append(value)
    return hashes


def sample(prefix_hash: int, seed: int, child_index: int, output_position: int) -> int:
    return hash((prefix_hash, seed, child_index, output_position)) % VOCAB


def hidden_of(hashes: list[int]) -> bytes:
    return hashes[-1].to_bytes(8, "little", signed=True)


def solo(request: Request) -> list[int]:
    """The output of a request that has the machine to itself, without scheduler or cache."""
    output: list[int] = []
    while len(output) < request.max_tokens:
        last = prefix_hashes(request.namespace, request.prompt_token_ids + output)[-1]
        output.append(sample(last, request.seed, request.child_index, len(output)))
        if output[-1] in request.end_token_ids:
            break
    return output


class ToyModel:
    """Runs steps on a simulated cache; asserts that every read finds the right content, every write has one writer."""

    def __init__(self, kv: KVSpec, blocks: BlockManager, get: Callable[[str], Request | None]) -> None:
        self._kv = kv
        self._blocks = blocks
        self._get = get
        self._cache: list[dict[int, int]] = [{} for _ in kv.groups]  # per group: slot -> content

    def execute(self, scheduled: SchedulerOutput) -> ModelOutput:
        """Every request reads the cache as it was before the step and its own writes; then all writes happen."""
        writes: list[dict[int, int]] = [{} for _ in self._kv.groups]
        results = [self._run(item, writes) for item in scheduled.requests]
        for cache, written in zip(self._cache, writes, strict=True):
            cache.update(written)
        return ModelOutput(step=scheduled.step, requests=tuple(results))

    def _run(self, item: ScheduledRequest, writes: list[dict[int, int]]) -> SampledRequest:
        request = self._get(item.request_id)
        assert request is not None
        stop = item.start + len(item.token_ids)
        known = request.num_tokens - len(request.draft_token_ids)
        tokens = (request.prompt_token_ids + request.output_token_ids)[:known] + item.draft_token_ids
        assert item.token_ids == tokens[item.start : stop]
        assert item.num_sampled == (1 + len(item.draft_token_ids) if stop >= known else 0)
        truth = prefix_hashes(item.namespace, tokens[:stop])
        for group in range(len(writes)):
            self._write(group, item, truth, writes[group])
            self._read(group, item, truth, writes[group])
        if item.wants_hidden:
            return SampledRequest(request_id=item.request_id, token_ids=[], hidden=hidden_of(truth))
        sampled: list[int] = []
        for i in range(item.num_sampled):
            position = stop - item.num_sampled + i
            sampled.append(sample(truth[position], item.seed, item.child_index, item.output_position + i))
            if i < len(item.draft_token_ids) and sampled[i] != item.draft_token_ids[i]:
                break
        return SampledRequest(request_id=item.request_id, token_ids=sampled)

    def _write(self, group: int, item: ScheduledRequest, truth: list[int], written: dict[int, int]) -> None:
        for position in range(max(item.start, item.write_start), len(truth)):
            slot = self._slot(group, item, position)
            block = self._blocks.pools[group][slot // self._kv.block_size]
            assert block.ref_count == 1, f"block {block.block_id} is written and has {block.ref_count} owners"
            assert block.block_hash is None, f"block {block.block_id} is written and findable"
            assert slot not in written, f"slot {slot} has two writers"
            written[slot] = truth[position]

    def _read(self, group: int, item: ScheduledRequest, truth: list[int], written: dict[int, int]) -> None:
        window = self._kv.groups[group].window
        first = 0 if window is None else max(0, item.start - window + 1)
        own = max(item.start, item.write_start)
        for position in range(first, len(truth)):
            slot = self._slot(group, item, position)
            content = written.get(slot) if position >= own else self._cache[group].get(slot)
            assert content == truth[position], f"{item.request_id} reads wrong KV at {position}, group {group}"

    def _slot(self, group: int, item: ScheduledRequest, position: int) -> int:
        table = item.block_tables[group]
        assert len(table) == -(-max(item.start + len(item.token_ids), item.write_start) // self._kv.block_size)
        block = table[position // self._kv.block_size]
        assert block >= 0, f"{item.request_id} needs position {position} of group {group}, which was let go"
        return block * self._kv.block_size + position % self._kv.block_size
