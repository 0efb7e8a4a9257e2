"""Preemption by recompute: how an overcommitted cache pays for its promises."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.core.request import Request, RequestStatus
from forebay.kvcache.block_manager import BlockManager


def choose_victim(running: Sequence[Request]) -> Request:
    """The running request of the worst rank: highest `priority`, then latest arrived. `running` is in rank order."""
    return running[-1]


def preempt(request: Request, blocks: BlockManager) -> None:
    """Take all blocks from a request. It keeps its output tokens and computes their KV again when it returns."""
    blocks.free(request)
    request.status = RequestStatus.PREEMPTED
    request.draft_token_ids = []
    request.num_computed_tokens = 0
    request.write_start = 0
    request.num_preemptions += 1
