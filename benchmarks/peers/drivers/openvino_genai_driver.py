"""openvino-genai in process: its ContinuousBatchingPipeline, stepped from here. enable_prefix_caching is False."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai
from driver_protocol import FIRST_SCORED, Step, SteppedEngine, mean_loss, serve

BLOCK = 32  # tokens of a KV block of the CPU plugin, as in ../openvino_genai.py


class OpenVinoGenAI(SteppedEngine):
    def __init__(self, options: dict[str, Any]) -> None:
        scheduler = genai.SchedulerConfig()
        scheduler.max_num_seqs = options["concurrency"]
        scheduler.num_kv_blocks = options["kv_tokens"] // BLOCK
        scheduler.max_num_batched_tokens = options["max_num_batched_tokens"]
        scheduler.dynamic_split_fuse = options.get("dynamic_split_fuse", True)
        scheduler.enable_prefix_caching = False
        threads = options.get("inference_threads", options["threads"])
        properties = {"INFERENCE_NUM_THREADS": threads, **options.get("properties", {})}
        self.pipeline = genai.ContinuousBatchingPipeline(options["model"], scheduler, "CPU", properties)
        self.open: dict[int, Any] = {}
        self.submitted = 0
        self.version = f"openvino-genai {genai.__version__}"
        self.facts = {"properties": properties, "precision": precision_hint(properties)}

    def submit(self, index: int, token_ids: list[int], max_tokens: int) -> None:
        self.open[index] = self._add(token_ids, greedy(max_tokens))

    def step(self) -> Step:
        self.pipeline.step()
        outputs = []
        for index, handle in list(self.open.items()):
            while handle.can_read():
                (output,) = handle.read().values()
                done = output.finish_reason != genai.GenerationFinishReason.NONE
                outputs.append((index, list(output.generated_ids), done))
                if done:
                    del self.open[index]
        if not outputs:
            self._check()
        return outputs

    def score(self, chunk: list[int]) -> float:
        """From the log-probabilities of an echoed prompt, in the pipeline that also generates."""
        config = greedy(1)
        config.echo, config.logprobs = True, 1
        handle = self._add(chunk, config)
        found: list[float] = []
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()
            while handle.can_read():
                (output,) = handle.read().values()
                found += output.generated_log_probs
        return mean_loss(found[FIRST_SCORED : len(chunk)])

    def _add(self, token_ids: list[int], config: genai.GenerationConfig) -> Any:
        self.submitted += 1
        return self.pipeline.add_request(self.submitted, ov.Tensor(np.array([token_ids], np.int64)), config)

    def _check(self) -> None:
        """A request that was dropped (no room, not finished by length) would keep the closed loop waiting."""
        if not self.pipeline.has_non_finished_requests() and self.open:
            raise RuntimeError(f"the pipeline has nothing to do, but requests {sorted(self.open)} are open")


def greedy(max_tokens: int) -> genai.GenerationConfig:
    config = genai.GenerationConfig()
    config.max_new_tokens = max_tokens
    config.ignore_eos = True
    config.do_sample = False
    return config


def precision_hint(properties: dict[str, Any]) -> str:
    """What the CPU plugin computes in here, unless a property says otherwise."""
    default = str(ov.Core().get_property("CPU", "INFERENCE_PRECISION_HINT"))
    return str(properties.get("INFERENCE_PRECISION_HINT", default))


if __name__ == "__main__":
    serve(OpenVinoGenAI)
