"""transformers in process: static batches through model.generate, prompts padded on the left to equal length.

Requests of a batch start together and the next batch starts when the longest has ended. A request counts as sent when
the one before it in its place of the batch had its last token: that is when the place became free.
"""

from __future__ import annotations

import time
from typing import Any

import torch
import transformers
from driver_protocol import FIRST_SCORED, Engine, mean_loss, serve
from transformers import AutoModelForCausalLM, StoppingCriteria, StoppingCriteriaList


class Stamps(StoppingCriteria):
    """Called by generate after each token of the batch; notes when, and never stops it."""

    def __init__(self) -> None:
        self.times_ns: list[int] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        self.times_ns.append(time.monotonic_ns())
        return torch.zeros(len(input_ids), dtype=torch.bool)


class Transformers(Engine):
    def __init__(self, options: dict[str, Any]) -> None:
        torch.set_num_threads(options["threads"])
        dtype = getattr(torch, options["dtype"])
        self.model = AutoModelForCausalLM.from_pretrained(options["model"], dtype=dtype).eval()
        self.model.generation_config.eos_token_id = None
        self.version = f"transformers {transformers.__version__}, torch {torch.__version__}"
        self.facts = {"attention": self.model.config._attn_implementation, "threads": torch.get_num_threads()}

    def run(self, requests: list[dict[str, Any]], concurrency: int) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = []
        free_at = [time.monotonic_ns()] * concurrency
        for start in range(0, len(requests), concurrency):
            batch = self._batch(requests[start : start + concurrency], free_at)
            free_at = [record["token_times_ns"][-1] for record in batch]
            records += batch
        return records

    @torch.inference_mode()
    def score(self, chunk: list[int]) -> float:
        logits = self.model(torch.tensor([chunk])).logits[0, FIRST_SCORED - 1 : -1].float()
        targets = torch.tensor(chunk[FIRST_SCORED:])
        return mean_loss(logits.log_softmax(-1).gather(1, targets[:, None])[:, 0].tolist())

    @torch.inference_mode()
    def _batch(self, requests: list[dict[str, Any]], sent_ns: list[int]) -> list[dict[str, Any]]:
        longest = max(len(r["prompt_token_ids"]) for r in requests)
        ids = torch.zeros(len(requests), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, request in enumerate(requests):
            prompt = request["prompt_token_ids"]
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask[row, longest - len(prompt) :] = 1
        stamps = Stamps()
        tokens = self.model.generate(
            ids,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=max(r["max_tokens"] for r in requests),
            pad_token_id=0,
            stopping_criteria=StoppingCriteriaList([stamps]),
        )[:, longest:].tolist()
        return [
            _record(sent, stamps.times_ns, row, request["max_tokens"])
            for sent, row, request in zip(sent_ns, tokens, requests, strict=False)
        ]


def _record(sent_ns: int, times_ns: list[int], tokens: list[int], count: int) -> dict[str, Any]:
    """A row of a batch; what it was made to produce after its own end is not its output."""
    return {
        "sent_ns": sent_ns,
        "token_times_ns": times_ns[:count],
        "token_counts": [1] * count,
        "output_token_ids": tokens[:count],
    }


if __name__ == "__main__":
    serve(Transformers)
