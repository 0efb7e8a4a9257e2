"""Forebay in process, through its public Python API. The prefix cache is off.

Token times are those of the engine's own "token" events, stamped on the same clock as everyone else's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from driver_protocol import CONTEXT, FIRST_SCORED, Engine, mean_loss, serve

from forebay import LLM, SamplingParams
from forebay.core.outputs import Completion
from forebay.models.decoder import Decoder
from forebay.models.families.registry import load_decoder
from forebay.ops.protocol import Plan, PlanLimits, SampleBatch, StepBatch
from forebay.ops.registry import create_backend
from forebay.weights.checkpoint import open_checkpoint
from forebay.weights.conversion import Conversion

BLOCK = 16


class Forebay(Engine):
    def __init__(self, options: dict[str, Any]) -> None:
        self._model, self._threads = options["model"], options["threads"]
        self._settings = {
            "backend.threads": options["threads"],
            "kv.prefix_cache": False,
            "kv.num_blocks": options["kv_tokens"] // BLOCK,
            "kv.block_size": BLOCK,
            "kv.dtype": options["kv_dtype"],
            "model.max_model_len": options["max_len"],
            "scheduler.max_requests": options["concurrency"],
            **options.get("profile", {}),
        }
        self.llm = LLM(self._model, **self._settings)
        self._plan: tuple[Plan, int] | None = None
        self.version = _version()
        self.facts = {
            "answer_class": self.llm.info.answer_class,
            "profile": self.llm.info.profile_digest,
            "resolved": self.llm.info.resolved,
        }

    def run(self, requests: list[dict[str, Any]], concurrency: int) -> list[dict[str, Any]]:
        sent: list[int] = []
        sampling = [SamplingParams(temperature=0, ignore_eos=True, max_tokens=r["max_tokens"]) for r in requests]
        records: dict[int, dict[str, Any]] = {}
        results = self.llm.run(_stamped(requests, sent), sampling, concurrency=concurrency, add_special_tokens=False)
        for index, result in results:
            records[index] = _record(sent[index], result.completions[0])
        return [records[index] for index in range(len(requests))]

    def score(self, chunk: list[int]) -> float:
        """Through a plan of its own, since the engine keeps logits to itself: same weights, kernels and KV format."""
        plan, groups = self._scorer()
        rows = np.arange(CONTEXT, dtype=np.int32)
        table = np.arange(CONTEXT // BLOCK, dtype=np.int32)[None, :]
        zeros, real = np.zeros(CONTEXT, np.int32), np.zeros(CONTEXT, np.float32)
        sample = SampleBatch(real, real + 1, real, zeros, zeros.astype(np.uint64), zeros, zeros, zeros - 1)
        tokens = np.array(chunk, np.int32)
        batch = StepBatch(tokens, rows, zeros, (rows,) * groups, (table,) * groups, rows, sample)
        logits = plan.run_logits(batch)[FIRST_SCORED - 1 : -1].astype(np.float64)
        targets = tokens[FIRST_SCORED:]
        best = logits.max(axis=1, keepdims=True)
        log_sum = np.log(np.exp(logits - best).sum(axis=1)) + best[:, 0]
        return mean_loss((logits[np.arange(len(targets)), targets] - log_sum).tolist())

    def _scorer(self) -> tuple[Plan, int]:
        if self._plan is None:
            spec, stored = load_decoder(open_checkpoint(Path(self._model)))
            weights = stored.converted(Conversion(self._settings.get("model.weights", "auto")))
            kv = spec.kv_spec(block_size=BLOCK, dtype=self._settings.get("kv.dtype", "f16"))
            limits = PlanLimits(
                max_tokens=CONTEXT,
                max_requests=1,
                max_logit_rows=CONTEXT,
                max_model_len=CONTEXT,
                num_blocks=CONTEXT // BLOCK,
            )
            backend = create_backend("native", threads=self._threads)
            self._plan = backend.compile(Decoder(spec, weights, CONTEXT), kv, limits), len(kv.groups)
        return self._plan


def _version() -> str:
    try:
        return version("forebay")
    except PackageNotFoundError:  # on the path, but not installed
        return "working tree"


def _stamped(requests: list[dict[str, Any]], sent: list[int]) -> Iterator[list[int]]:
    """The prompts; LLM.run takes one when its place is free, and that is when it counts as sent."""
    for request in requests:
        sent.append(time.monotonic_ns())
        yield request["prompt_token_ids"]


def _record(sent_ns: int, completion: Completion) -> dict[str, Any]:
    times = [event.t_ns for event in completion.events if event.kind == "token"]
    ids = list(completion.token_ids)
    return {"sent_ns": sent_ns, "token_times_ns": times, "token_counts": [1] * len(times), "output_token_ids": ids}


if __name__ == "__main__":
    serve(Forebay)
