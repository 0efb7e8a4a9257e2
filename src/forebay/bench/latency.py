"""One stream in process: how fast prompts are computed and tokens decoded, by length of the context."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from forebay.bench.facts import new_result
from forebay.bench.machine_load import Meter
from forebay.bench.offline import target_of
from forebay.bench.result import Result, Run
from forebay.bench.statistics import quantile
from forebay.core.sampling_params import SamplingParams
from forebay.errors import BenchError
from forebay.llm import LLM
from forebay.observe.latency import RequestTimes

DEFAULT_LENGTHS = (64, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class Sample:
    """One request: seconds to its first token, and its gaps."""

    ttft: float
    itl: tuple[float, ...]


def measure_latency(
    llm: LLM,
    *,
    lengths: Sequence[int] = DEFAULT_LENGTHS,
    output: int = 32,
    repeats: int = 5,
    seed: int = 0,
    label: str = "",
    on_sample: Callable[[int], None] = lambda length: None,
) -> Result:
    """For each length: a prompt of so many random tokens, computed from an empty prefix cache, and `output` tokens
    decoded behind it; `repeats` times after one that is not counted, in an order that rotates, so that drift of the
    machine does not become a difference of lengths.

    A row per length: medians over repeats with the smallest and largest ("..._range"). prefill_token_rate: prompt
    tokens over TTFT. decode_token_rate: tokens after the first, over the time they took, at contexts from length to
    length + output. itl figures: over the gaps of all repeats. A run per repeat.

    Raises BenchError.
    """
    _check(llm, lengths, output, repeats)
    rng = random.Random(seed)
    samples: dict[int, list[Sample]] = {length: [] for length in lengths}
    for length in lengths:
        _sample(llm, rng, length, output)
        on_sample(length)
    runs = []
    for repeat in range(repeats):
        turn = repeat % len(lengths)
        started_ns = time.monotonic_ns()
        with Meter() as meter:
            for length in (*lengths[turn:], *lengths[:turn]):
                samples[length].append(_sample(llm, rng, length, output))
                on_sample(length)
        values = {name: value for length in lengths for name, value in values_of(length, samples[length][-1]).items()}
        runs.append(Run(started_ns=started_ns, load=meter.facts(), values=values))
    return new_result(
        "latency",
        label=label,
        seed=seed,
        loads=[run.load for run in runs],
        in_process=True,
        target=target_of(llm),
        workload={"lengths": list(lengths), "output": output, "repeats": repeats},
        rows=[row_of(length, some) for length, some in samples.items()],
        runs=runs,
    )


def values_of(length: int, sample: Sample) -> dict[str, float]:
    """Figures of one request, named so that two documents can be compared."""
    return {
        f"length_{length}_ttft_s": sample.ttft,
        f"length_{length}_prefill_token_rate": length / sample.ttft,
        f"length_{length}_decode_token_rate": len(sample.itl) / sum(sample.itl),
    }


def row_of(length: int, samples: Sequence[Sample]) -> dict[str, Any]:
    """Figures of the samples of one length."""
    values = [values_of(length, sample) for sample in samples]
    gaps = [gap for sample in samples for gap in sample.itl]
    return {
        "length": length,
        "repeats": len(samples),
        **{
            name: figure
            for key in ("ttft_s", "prefill_token_rate", "decode_token_rate")
            for name, figure in _spread(key, [one[f"length_{length}_{key}"] for one in values]).items()
        },
        "itl_p50_s": quantile(gaps, 0.5),
        "itl_p99_s": quantile(gaps, 0.99),
    }


def _spread(name: str, values: Sequence[float]) -> dict[str, Any]:
    return {name: statistics.median(values), f"{name}_range": [min(values), max(values)]}


def _sample(llm: LLM, rng: random.Random, length: int, output: int) -> Sample:
    """Run one request and read its events."""
    vocabulary = min(llm.info.vocab_size, llm.tokenizer.vocab_size)
    prompt = [rng.randrange(vocabulary) for _ in range(length)]
    llm.reset_prefix_cache()
    sampling = SamplingParams(max_tokens=output, temperature=0.0, ignore_eos=True)
    (result,) = llm.generate([prompt], sampling)
    times = RequestTimes.of(result.completions[0].events)
    assert times.ttft is not None
    return Sample(times.ttft, times.itl)


def _check(llm: LLM, lengths: Sequence[int], output: int, repeats: int) -> None:
    limit = llm.info.max_model_len
    if not lengths or min(lengths) < 1 or len(set(lengths)) != len(lengths):
        raise BenchError(f"lengths must be different and at least 1, got {list(lengths)}", param="lengths")
    if output < 2:
        raise BenchError(f"output must be at least 2 for a gap between tokens, got {output}", param="output")
    if repeats < 1:
        raise BenchError(f"repeats must be at least 1, got {repeats}", param="repeats")
    if max(lengths) + output > limit:
        raise BenchError(
            f"a prompt of {max(lengths)} tokens and {output} of output do not fit the context length {limit}; "
            "give shorter --lengths",
            param="lengths",
        )
