"""Drives a Plan by hand: one or more token sequences, in chunks, through a KV cache laid out in shuffled blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forebay.core.kv_spec import KVSpec
from forebay.ops.protocol import Plan, SampleBatch, StepBatch


def greedy_rows(count: int) -> SampleBatch:
    """Sampling columns of `count` greedy rows with their log-probability."""
    return SampleBatch(
        temperature=np.zeros(count, np.float32),
        top_p=np.ones(count, np.float32),
        min_p=np.zeros(count, np.float32),
        top_k=np.zeros(count, np.int32),
        seed=np.zeros(count, np.uint64),
        child=np.zeros(count, np.int32),
        output_position=np.zeros(count, np.int32),
        num_logprobs=np.zeros(count, np.int32),
    )


class PlanDriver:
    """Keeps each sequence's length and blocks; every call is one step."""

    def __init__(self, plan: Plan, kv: KVSpec, num_blocks: int, *, seed: int = 0) -> None:
        self.plan = plan
        self.kv = kv
        self._free = [list(np.random.default_rng(seed + g).permutation(num_blocks)) for g in range(len(kv.groups))]
        self._tables: dict[str, list[list[int]]] = {}
        self._lengths: dict[str, int] = {}

    def batch(self, chunks: dict[str, Sequence[int]], *, all_logits: bool = True) -> StepBatch:
        """Columns that append each sequence's next tokens."""
        block = self.kv.block_size
        token, position, request, rows = [], [], [], []
        slots: list[list[int]] = [[] for _ in self.kv.groups]
        for index, (name, tokens) in enumerate(chunks.items()):
            start = self._lengths.get(name, 0)
            tables = self._tables.setdefault(name, [[] for _ in self.kv.groups])
            for group, table in enumerate(tables):
                while len(table) * block < start + len(tokens):
                    table.append(int(self._free[group].pop()))
                slots[group] += [table[p // block] * block + p % block for p in range(start, start + len(tokens))]
            rows += range(len(token), len(token) + len(tokens)) if all_logits else [len(token) + len(tokens) - 1]
            token += tokens
            position += range(start, start + len(tokens))
            request += [index] * len(tokens)
            self._lengths[name] = start + len(tokens)
        return StepBatch(
            token=np.array(token, np.int32),
            position=np.array(position, np.int32),
            request=np.array(request, np.int32),
            slots=tuple(np.array(s, np.int32) for s in slots),
            block_tables=tuple(self._table([self._tables[name][g] for name in chunks]) for g in range(len(slots))),
            logit_rows=np.array(rows, np.int32),
            sample=greedy_rows(len(rows)),
        )

    @staticmethod
    def _table(tables: list[list[int]]) -> np.ndarray:
        out = np.full((len(tables), max(map(len, tables))), -1, np.int32)
        for row, table in enumerate(tables):
            out[row, : len(table)] = table
        return out

    def logits(self, name: str, tokens: Sequence[int], chunk: int = 0) -> np.ndarray:
        """Logits (len(tokens), vocab) of tokens appended to one sequence, `chunk` at a time (0: all at once)."""
        size = chunk or len(tokens)
        parts = [self.plan.run_logits(self.batch({name: tokens[i : i + size]})) for i in range(0, len(tokens), size)]
        return np.concatenate(parts)
