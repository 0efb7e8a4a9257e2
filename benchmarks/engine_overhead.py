"""What serving costs beside the model: Python of an engine step, and processor time of server and client per token.

    python benchmarks/engine_overhead.py [MODEL] [--streams 1 8 32] [--steps 300] [--out benchmarks/results]

The engine: `--streams` requests decode in process. Of every step the whole is timed, and the plan's run inside it; the
difference is the engine's Python. Encoding the step's message for the front end comes on top and is timed apart.

The server: a real `forebay serve` answers as many streams over HTTP. Processor seconds (user and system) of the front
end, of the engine process and of the load client, each over the tokens that were streamed; the engine's are mostly the
model's. Writes engine_overhead.json and engine_overhead.md.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import psutil

from forebay.bench.facts import new_result
from forebay.bench.interrupt import ended_by_sigterm
from forebay.bench.report.markdown import table_lines
from forebay.bench.result import LoadFacts, write_result
from forebay.bench.served import Served, served
from forebay.bench.statistics import quantile
from forebay.bench.workload.spec import WorkloadSpec
from forebay.core.messages import AddRequest
from forebay.core.sampling_params import SamplingParams
from forebay.engine.build import build_engine_core
from forebay.engine.core import EngineCore
from forebay.ops.protocol import Plan, StepBatch, StepOutputs
from forebay.ops.tensor import F32Array
from forebay.profile import Profile, load_profile

PROMPT = 64
SAMPLING = {"greedy": 0.0, "drawn": 0.8}  # temperatures


class TimedPlan:
    """A plan that knows how long its last run took."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.last_s = 0.0

    def run(self, batch: StepBatch) -> StepOutputs:
        began = time.perf_counter()
        outputs = self._plan.run(batch)
        self.last_s = time.perf_counter() - began
        return outputs

    def run_logits(self, batch: StepBatch) -> F32Array:
        return self._plan.run_logits(batch)

    def trace(self, batch: StepBatch) -> list[tuple[str, npt.NDArray[np.uint64]]]:
        return self._plan.trace(batch)

    def close(self) -> None:
        self._plan.close()


class Engine:
    """An engine in this process, step by step."""

    def __init__(self, profile: Profile) -> None:
        self._plans: list[TimedPlan] = []
        self.core: EngineCore = build_engine_core(profile, wrap_plan=self._timed)
        self._encoder = msgspec.msgpack.Encoder()

    def _timed(self, plan: Plan) -> Plan:
        self._plans.append(TimedPlan(plan))
        return self._plans[-1]

    def add(self, streams: int, temperature: float, max_tokens: int) -> list[str]:
        rng = random.Random(streams)
        sampling = SamplingParams(temperature=temperature, top_p=0.95, ignore_eos=True)
        names = [f"stream-{index}" for index in range(streams)]
        for name in names:
            prompt = [rng.randrange(self.core.info.vocab_size) for _ in range(PROMPT)]
            refused = self.core.add(
                AddRequest(
                    request_id=name, prompt_token_ids=prompt, sampling=sampling, max_tokens=max_tokens, seed=7,
                    namespace=name,
                )
            )  # fmt: skip
            assert not refused, refused
        return names

    def step(self) -> tuple[int, float, float, float]:
        """Tokens, seconds of the step, of the plan in it, and of encoding its message."""
        began = time.perf_counter()
        outputs = self.core.step()
        stepped = time.perf_counter()
        self._encoder.encode(outputs)
        encoded = time.perf_counter()
        assert outputs is not None
        tokens = sum(len(output.token_ids) for output in outputs.outputs)
        return tokens, stepped - began, self._plans[-1].last_s, encoded - stepped


def engine_rows(profile: Profile, streams: Sequence[int], steps: int) -> list[dict[str, Any]]:
    """A row for each number of streams and way of sampling, over `steps` steps in which all of them decode."""
    engine = Engine(profile)
    rows = []
    for count in streams:
        for name, temperature in SAMPLING.items():
            ids = engine.add(count, temperature, max_tokens=2 * steps)
            while engine.step()[0] < count:
                pass
            times = np.array([engine.step()[1:] for _ in range(steps)])
            engine.core.abort(ids)
            python = (times[:, 0] - times[:, 1]).tolist()
            rows.append(
                {
                    "streams": count,
                    "sampling": name,
                    "step_p50_s": quantile(times[:, 0].tolist(), 0.5),
                    "python_p50_s": quantile(python, 0.5),
                    "python_p95_s": quantile(python, 0.95),
                    "python_share": sum(python) / float(times[:, 0].sum()),
                    "encode_p50_s": quantile(times[:, 2].tolist(), 0.5),
                }
            )
    engine.core.close()
    return rows


def used_s(pid: int) -> float:
    """Processor seconds that a process has used."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def server_row(server: Served, streams: int, tokens: int) -> tuple[dict[str, Any], LoadFacts]:
    """About `tokens` tokens on `streams` connections."""
    assert server.process is not None
    front = server.process.pid
    requests = max(streams, round(tokens / 128 / streams) * streams)
    spec = WorkloadSpec(requests=requests, concurrency=streams, input=str(PROMPT), output="128")
    (workload,), warmup = server.planned(spec, runs=1, warmup=streams)
    assert warmup is not None
    server.run_once(warmup)
    pids = {"server": front, "engine": next(iter(server.process.pids() - {front})), "client": os.getpid()}
    before = {name: used_s(pid) for name, pid in pids.items()}
    measured = server.run_once(workload)
    used = {name: used_s(pid) - before[name] for name, pid in pids.items()}
    streamed = sum(record.output_tokens for record in measured.records)
    row: dict[str, Any] = {"streams": streams, "tokens": streamed, "wall_s": measured.run.load.wall_s}
    return row | {f"{name}_s_per_token": seconds / streamed for name, seconds in used.items()}, measured.run.load


def lines_of(engine: Sequence[dict[str, Any]], server: Sequence[dict[str, Any]]) -> list[str]:
    """Both tables."""
    micro = 1e6
    return [
        *table_lines(
            ("streams", "sampling", "step ms", "Python us", "p95", "of the step", "encoding us"),
            [
                (
                    str(row["streams"]),
                    row["sampling"],
                    f"{row['step_p50_s'] * 1e3:.2f}",
                    f"{row['python_p50_s'] * micro:.0f}",
                    f"{row['python_p95_s'] * micro:.0f}",
                    f"{row['python_share']:.1%}",
                    f"{row['encode_p50_s'] * micro:.0f}",
                )
                for row in engine
            ],
            "rlrrrrr",
        ),
        "",
        *table_lines(
            ("streams", "tokens", "server us per token", "client us per token", "engine us per token"),
            [
                (
                    str(row["streams"]),
                    str(row["tokens"]),
                    *(f"{row[f'{name}_s_per_token'] * micro:.0f}" for name in ("server", "client", "engine")),
                )
                for row in server
            ],
            "rrrrr",
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--steps", type=int, default=300, help="measured steps of the engine")
    parser.add_argument("--tokens", type=int, default=4096, help="streamed by the server for each number of streams")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    profile = load_profile(None, {"model.source": args.model, "kv.prefix_cache": False})
    with ended_by_sigterm():
        engine = engine_rows(profile, args.streams, args.steps)
        with served(profile, name="overhead") as server:
            measured = [server_row(server, count, args.tokens) for count in args.streams]
            facts = server.facts
    # the client's share of the machine is one of the figures here, and speaks against none of them
    result = new_result(
        "overhead",
        label="cost of serving beside the model",
        loads=[load for _, load in measured],
        in_process=True,
        target=facts,
        rows=[{"part": "engine", **row} for row in engine] + [{"part": "server", **row} for row, _ in measured],
    )
    text = "\n".join(lines_of(engine, [row for row, _ in measured])) + "\n"
    write_result(result, args.out / "engine_overhead.json")
    (args.out / "engine_overhead.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
