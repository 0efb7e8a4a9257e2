"""vLLM in process: its LLMEngine, stepped from here. enable_prefix_caching is False and detokenizing is off."""

from __future__ import annotations

from typing import Any

import vllm
from driver_protocol import FIRST_SCORED, Step, SteppedEngine, mean_loss, serve
from vllm import EngineArgs, LLMEngine, SamplingParams
from vllm.sampling_params import RequestOutputKind


class Vllm(SteppedEngine):
    def __init__(self, options: dict[str, Any]) -> None:
        self.engine = LLMEngine.from_engine_args(
            EngineArgs(
                model=options["model"],
                dtype=options["dtype"],
                max_model_len=options["max_len"],
                max_num_seqs=options["concurrency"],
                enable_prefix_caching=False,
                seed=0,
                **options.get("engine", {}),
            )
        )
        self.submitted = 0
        self.index_of: dict[str, int] = {}
        self.version = f"vllm {vllm.__version__}"
        config = self.engine.vllm_config
        self.facts = {
            "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
            "compilation": str(config.compilation_config.mode),
            "kv_cache_dtype": str(config.cache_config.cache_dtype),
        }

    def submit(self, index: int, token_ids: list[int], max_tokens: int) -> None:
        params = greedy(max_tokens, output_kind=RequestOutputKind.DELTA)
        self.index_of[self._add(token_ids, params)] = index

    def step(self) -> Step:
        outputs = []
        for output in self.engine.step():
            index = self.index_of[output.request_id]
            outputs.append((index, list(output.outputs[0].token_ids), output.finished))
            if output.finished:
                del self.index_of[output.request_id]
        return outputs

    def score(self, chunk: list[int]) -> float:
        self._add(chunk, greedy(1, prompt_logprobs=0))
        while True:
            for output in self.engine.step():
                if output.finished:
                    scored = zip(output.prompt_logprobs[FIRST_SCORED:], chunk[FIRST_SCORED:], strict=True)
                    return mean_loss([entry[token].logprob for entry, token in scored])

    def _add(self, token_ids: list[int], params: SamplingParams) -> str:
        self.submitted += 1
        name = str(self.submitted)  # add_request returns another, internal one; outputs bear this
        self.engine.add_request(name, {"prompt_token_ids": token_ids}, params)
        return name


def greedy(max_tokens: int, **more: Any) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, detokenize=False, **more)


if __name__ == "__main__":
    serve(Vllm)
