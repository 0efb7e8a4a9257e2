"""Do two load tools see the same? AIPerf and `forebay bench serve` against one deterministic fake server.

    python benchmarks/peers/aiperf_agreement.py

Each case is a fixed list of answers (delays, tokens per chunk, what kinds of chunks). Both tools ask for all of them,
and the server's own stamps say what is true. Where definitions differ, a case shows by how much. Writes
benchmarks/results/aiperf.json and aiperf.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from venvs import Venv, run_logged, work_dir

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.fake_openai import (
    FakeServer,
    Record,
    Script,
    done,
    fake_server,
    finish,
    reasoning,
    role,
    script,
    text,
    usage,
)

from forebay.bench.client.load import Endpoint, run_load
from forebay.bench.facts import new_result
from forebay.bench.machine_load import Meter
from forebay.bench.metrics import latencies_of
from forebay.bench.plan import Session, Turn, Workload
from forebay.bench.record import RequestRecord
from forebay.bench.report.markdown import table_lines
from forebay.bench.result import write_result
from forebay.bench.statistics import quantile

VERSION = "0.13.0"
REQUESTS = 60
CONCURRENCY = 6
FIGURES = ("mean", "p50", "p95", "max")
# A tokenizer that AIPerf can load without a network; prompts do not matter to the fake server.
TOKENIZER = Path(__file__).resolve().parents[3] / "shared" / "data" / "models" / "stories260K" / "hf"


@dataclass(frozen=True)
class Case:
    name: str
    about: str
    make: Callable[[np.random.Generator], Script]


def _answer(rng: np.random.Generator, per_chunk: int = 1, *before: Any, usage_after_s: float = 0.0) -> Script:
    """8 to 32 tokens; first after 30 to 150 ms, chunks 10 to 20 ms apart."""
    tokens, acts = int(rng.integers(8, 33)), [role(), *before]
    for start in range(0, tokens, per_chunk):
        gap = rng.uniform(0.010, 0.020) if start else rng.uniform(0.030, 0.150)
        acts.append(text(min(per_chunk, tokens - start), after_s=gap))
    return script(*acts, finish("length"), usage(tokens, cached=0, after_s=usage_after_s), done())


def _thinking(rng: np.random.Generator) -> Script:
    """4 reasoning tokens, then the answer, all counted by usage."""
    thoughts = [reasoning(f" think{i}", after_s=0.02) for i in range(4)]
    tokens = int(rng.integers(8, 20))
    words = [text(1, after_s=0.01) for _ in range(tokens)]
    return script(role(), *thoughts, *words, finish("length"), usage(4 + tokens, cached=0), done())


CASES = (
    Case("one token a chunk", "the usual stream", _answer),
    Case("three tokens a chunk", "as with speculation", lambda rng: _answer(rng, 3)),
    Case(
        "late role chunk", "a role chunk 40 ms before the first token", lambda rng: _answer(rng, 1, role(after_s=0.04))
    ),
    Case("reasoning first", "reasoning deltas are tokens", _thinking),
    Case("late usage", "usage 50 ms after the finish reason", lambda rng: _answer(rng, usage_after_s=0.05)),
)

# our latency -> AIPerf's name for it
NAMES = {
    "ttft_s": "time_to_first_token",
    "tpot_s": "inter_token_latency",
    "e2e_s": "request_latency",
    "output_tokens": "output_sequence_length",
}


def ours(server: FakeServer, key: str) -> dict[str, Any]:
    """Our figures, in ms (tokens for output_tokens)."""
    turn = Turn(prompt=[{"role": "user", "content": "hello"}], prompt_tokens=None, max_tokens=64)
    workload = Workload(sessions=(Session(turns=(turn,)),) * REQUESTS, concurrency=CONCURRENCY)
    with Meter() as meter:
        records = run_load(workload, Endpoint(base_url=server.url, model=key))
    assert all(record.completed for record in records), [record.failure for record in records if record.failure]
    return {"figures": _figures(records), "client_cores": meter.facts().client_cores}


def _figures(records: tuple[RequestRecord, ...]) -> dict[str, Any]:
    latencies = latencies_of(records)
    values = {f"{name}_s": [group[0] * 1e3 for group in latencies[name]] for name in ("ttft", "tpot", "e2e")}
    values["output_tokens"] = [record.output_tokens for record in records]
    return {name: summary(found) for name, found in values.items()}


def truth(stamps: list[Record], answers: list[Script]) -> dict[str, Any]:
    """From what the server did: first and last token, finish and counts, from the arrival of the request's head."""
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    for record in stamps:
        sent = [(kind, at) for kind, at, _ in record["sent"]]
        tokens = [at for kind, at in sent if kind in ("text", "reasoning")]
        end = next(at for kind, at in sent if kind == "finish")
        acts = answers[min(record["order"], len(answers) - 1)]["acts"]
        count = sum(act.get("tokens", act["kind"] == "reasoning") for act in acts)
        found["ttft_s"].append((tokens[0] - record["head_ns"]) / 1e6)
        found["tpot_s"].append((tokens[-1] - tokens[0]) / 1e6 / (count - 1))
        found["e2e_s"].append((end - record["head_ns"]) / 1e6)
        found["output_tokens"].append(count)
    return {name: summary(values) for name, values in found.items()}


def aiperf(venv: Venv, server: FakeServer, key: str) -> dict[str, Any]:
    folder = work_dir() / "aiperf" / key.replace(" ", "-")
    words = [
        venv.program("aiperf"), "profile", "--model", key, "--url", server.url, "--endpoint-type", "chat",
        "--streaming",
        "--concurrency", CONCURRENCY, "--request-count", REQUESTS, "--tokenizer", TOKENIZER, "--use-server-token-count",
        "--synthetic-input-tokens-mean", 16, "--synthetic-input-tokens-stddev", 0, "--ui", "none",
        "--artifact-dir", folder,
    ]  # fmt: skip
    with Meter() as meter:
        run_logged([str(word) for word in words], venv.log)
    found = json.loads((folder / "profile_export_aiperf.json").read_text())
    figures = {
        name: {"mean": found[theirs]["avg"], **{figure: found[theirs][figure] for figure in FIGURES[1:]}}
        for name, theirs in NAMES.items()
    }
    return {"figures": figures, "wall_s": meter.facts().wall_s}


def summary(values: list[float]) -> dict[str, float]:
    found = {"mean": fmean(values), "p50": quantile(values, 0.5), "p95": quantile(values, 0.95), "max": max(values)}
    return {name: float(found[name]) for name in FIGURES}


def main() -> None:
    venv = Venv("aiperf")
    print(f"installing AIPerf {VERSION} into {venv.path} (kept for next time)", file=sys.stderr)
    venv.make(VERSION, lambda: venv.pip(f"aiperf=={VERSION}"))
    rows = []
    for case in CASES:
        print(case.name, file=sys.stderr)
        answers = [case.make(np.random.default_rng([7, i])) for i in range(REQUESTS)]
        # each tool has a server of its own, so that it gets the answers from the first one on
        for tool, ask in (("forebay", ours), ("aiperf", lambda server, key: aiperf(venv, server, key))):
            with fake_server({case.name: answers}) as server:
                seen = ask(server, case.name)
                stamps = [record for record in server.requests(case.name) if record["sent"]][-REQUESTS:]
            rows.append({"case": case.name, "about": case.about, "tool": tool, "truth": truth(stamps, answers), **seen})
    _write(rows)


def _write(rows: list[dict[str, Any]]) -> None:
    folder = Path(__file__).resolve().parents[1] / "results"
    result = new_result("agreement", label=f"AIPerf {VERSION} and forebay bench on one fake server", rows=rows)
    write_result(result, folder / "aiperf.json")
    (folder / "aiperf.md").write_text(as_markdown(rows))
    print(as_markdown(rows))


def as_markdown(rows: list[dict[str, Any]]) -> str:
    """Mean / p50 / p95 of each tool, and of the server's own stamps in that tool's run."""
    rendered = []
    for case in dict.fromkeys(row["case"] for row in rows):
        own, other = (next(r for r in rows if (r["case"], r["tool"]) == (case, tool)) for tool in ("forebay", "aiperf"))
        for name in NAMES:
            cells = (own["figures"], own["truth"], other["figures"], other["truth"])
            shown = [" / ".join(f"{found[name][figure]:.1f}" for figure in FIGURES[:3]) for found in cells]
            rendered.append((case, name.removesuffix("_s"), *shown))
    heads = ("case", "figure", "forebay", "server's stamps", "AIPerf", "server's stamps")
    return "\n".join(table_lines(heads, rendered, "llllll")) + "\n"


if __name__ == "__main__":
    main()
