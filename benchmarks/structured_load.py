"""Real schemas under load: does each answer validate, and is it the one that the request gets alone?

    python benchmarks/structured_load.py [MODEL] [--schemas 100] [--concurrency 16] [--out benchmarks/results/structured_load.json]

Takes schemas from MaskBench (the shared data set) at an even stride, skipping those that are refused, and asks for JSON of
each: all together, plain requests among them, then one at a time. An answer that ended by `stop` must validate (jsonschema,
formats asserted), and every answer must have the tokens of its solo run. Writes a JSON document. Exit code 0: all of it held.
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from jsonschema import Draft202012Validator, validators
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a script starts with its own folder only

from tests.structured.harness import Case, maskbench_cases
from tests.support.shared import shared_root

from forebay import LLM, SamplingParams
from forebay.core.grammar_spec import GrammarKind, GrammarSpec
from forebay.core.outputs import Completion
from forebay.errors import GrammarError
from forebay.structured import check
from forebay.structured.grammar import MaskRow
from forebay.structured.guide import GrammarGuide

MASKBENCH = "structured/maskbench/maskbench_dev.jsonl.gz"


def enforceable(llm: LLM, cases: list[Case], count: int) -> list[tuple[Case, GrammarSpec]]:
    """`count` cases at an even stride whose schema is not refused; for one that is, the next that is not."""
    found: dict[str, tuple[Case, GrammarSpec]] = {}
    for i in range(count):
        first = i * len(cases) // count
        for case in cases[first:] + cases[:first]:
            spec = GrammarSpec(kind=GrammarKind.JSON_SCHEMA, source=json.dumps(case.schema), name=case.name)
            if case.name not in found and _compiles(llm, spec):
                found[case.name] = (case, spec)
                break
    return list(found.values())


def _compiles(llm: LLM, spec: GrammarSpec) -> bool:
    try:
        check(spec)
        llm.generate("a", SamplingParams(grammar=spec, max_tokens=1))
    except GrammarError:
        return False
    return True


def requests(llm: LLM, chosen: list[tuple[Case, GrammarSpec]], max_tokens: int) -> list[tuple[str, SamplingParams]]:
    """One request for each schema; every fourth is followed by a plain one."""
    asked = []
    for seed, (_, spec) in enumerate(chosen):
        text = f"Write an example of JSON for this schema:\n{spec.source[:1000]}"
        prompt = llm.tokenizer.render_chat([{"role": "user", "content": text}])
        sampling = SamplingParams(grammar=spec, temperature=1.0, top_p=0.9, seed=seed, max_tokens=max_tokens)
        asked.append((prompt, sampling))
        if seed % 4 == 0:
            asked.append((prompt, msgspec.structs.replace(sampling, grammar=None)))
    return asked


def problem(case_schema: Any, completion: Completion) -> str | None:
    """What is wrong with an answer that ended by stop."""
    try:
        value = json.loads(completion.text)
    except ValueError as error:
        return f"not JSON: {error}"
    kind = validators.validator_for(case_schema, default=Draft202012Validator)
    error = next(kind(case_schema, format_checker=kind.FORMAT_CHECKER).iter_errors(value), None)
    return None if error is None else error.message[:200]


class MaskTimes:
    """Seconds of every mask that the engine asks a grammar for, while it is the context."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __enter__(self) -> MaskTimes:
        self._fill = fill = GrammarGuide.fill

        def timed(guide: GrammarGuide, row: MaskRow, ahead: Sequence[int] = ()) -> None:
            began = time.perf_counter()
            fill(guide, row, ahead)
            self.seconds.append(time.perf_counter() - began)

        GrammarGuide.fill = timed  # type: ignore[method-assign]  # a measurement, of the method as it is
        return self

    def __exit__(self, *_: object) -> None:
        GrammarGuide.fill = self._fill  # type: ignore[method-assign]  # as above

    def microseconds(self, q: float) -> float:
        return round(float(np.quantile(self.seconds, q)) * 1e6, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--schemas", type=int, default=100)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=192)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "structured_load.json")
    args = parser.parse_args()
    console = Console(soft_wrap=True, highlight=False)
    root = shared_root()
    if root is None or not (root / MASKBENCH).exists():
        console.print(f"shared data {MASKBENCH!r} not found (set FOREBAY_SHARED_DATA to its folder)")
        return 2
    report = measure(args, maskbench_cases(root / MASKBENCH), console)
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    console.print(f"wrote {args.out}")
    return 0 if not report["invalid"] and not report["differ_from_solo"] else 1


def measure(args: argparse.Namespace, cases: list[Case], console: Console) -> dict[str, Any]:
    with LLM(args.model, max_model_len=2048, max_requests=args.concurrency) as llm:
        chosen = enforceable(llm, cases, args.schemas)
        asked = requests(llm, chosen, args.max_tokens)
        console.print(f"{len(chosen)} schemas, {len(asked)} requests, {args.concurrency} at a time")
        start = time.perf_counter()
        with MaskTimes() as masks:
            together = dict(llm.run([p for p, _ in asked], [s for _, s in asked], concurrency=args.concurrency))
        seconds = time.perf_counter() - start
        share = sum(masks.seconds) / seconds
        llm.reset_prefix_cache()
        differ, invalid, reasons = [], [], Counter[str]()
        by_name = {case.name: case.schema for case, _ in chosen}
        for index, (prompt, sampling) in enumerate(asked):
            batched, alone = together[index].completions[0], llm.generate(prompt, sampling)[0].completions[0]
            name = sampling.grammar.name if sampling.grammar else f"plain {index}"
            if (batched.token_ids, batched.text, batched.finish_reason) != (
                alone.token_ids, alone.text, alone.finish_reason,
            ):  # fmt: skip
                differ.append(name)
            if sampling.grammar is not None:
                reasons[str(batched.finish_reason)] += 1
                wrong = problem(by_name[name], batched) if batched.finish_reason == "stop" else None
                if wrong is not None:
                    invalid.append({"schema": name, "why": wrong})
            if index % 25 == 24:
                console.print(f"  {index + 1} compared, {len(differ)} differ, {len(invalid)} invalid")
    console.print(
        f"masks: p50 {masks.microseconds(0.5)} us, p99 {masks.microseconds(0.99)} us, {share:.1%} of the time"
    )
    console.print(f"ended by {dict(reasons)}; {len(invalid)} invalid; {len(differ)} differ from their solo runs")
    return {
        "benchmark": "structured_load",
        "model": args.model,
        "schemas": len(chosen),
        "requests": len(asked),
        "concurrency": args.concurrency,
        "max_tokens": args.max_tokens,
        "ended_by": dict(reasons),
        "invalid": invalid,
        "differ_from_solo": differ,
        "seconds_together": round(seconds, 1),
        "mask_us": {"p50": masks.microseconds(0.5), "p99": masks.microseconds(0.99), "count": len(masks.seconds)},
        "masks_share_of_time": round(share, 4),
        "machine": {"arch": platform.machine(), "python": platform.python_version()},
    }


if __name__ == "__main__":
    sys.exit(main())
