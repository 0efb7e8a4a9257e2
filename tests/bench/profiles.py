"""Profiles and loads of a tiny model, for tests that run one."""

from __future__ import annotations

from typing import Any

from forebay.bench.workload.spec import WorkloadSpec
from forebay.profile import Profile, load_profile
from tests.support.shared import shared_path

SMALL = {"backend.name": "reference", "kv.dtype": "f32", "kv.block_size": 8, "kv.num_blocks": 256,
         "model.max_model_len": 256, "scheduler.max_requests": 8}  # fmt: skip


def tiny_profile(**changes: Any) -> Profile:
    """stories260K on the reference backend; `changes` by name, such as block_size=16."""
    return load_profile(None, {"model.source": str(shared_path("models/stories260K/hf")), **SMALL, **changes})


def closed_loop(**fields: Any) -> WorkloadSpec:
    """Eight short requests, two at a time."""
    return WorkloadSpec(**{"requests": 8, "concurrency": 2, "input": "16", "output": "4", **fields})
