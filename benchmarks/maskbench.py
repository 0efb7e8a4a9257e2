"""How exact structured output is and what it costs: maskbench and the JSON Schema Test Suite, here and by llguidance.

    python benchmarks/maskbench.py [--tokenizer FILE] [--data FOLDER] [--every 1] [--out benchmarks/results/maskbench]

Each schema is compiled twice: through all of Forebay's checks, and straight by llguidance with its own options. Every
instance is written as a grammar would write it, compact and its keys in the order the grammar takes them, and accepted
or not. What counts as wrong: an instance that the data set, or the `jsonschema` package with formats asserted, calls
invalid and that is accepted; and one it calls valid that is not. Each wrong accept is listed with what jsonschema says
of it. Times: of a compilation with its checks, and of the mask before each token of every accepted instance.
--tokenizer: a GGUF file, its vocabulary is all that is read. Writes FILE.json and FILE.md. Exit code 0: nothing wrong
was accepted.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import llguidance
import numpy as np
from rich.console import Console
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a script starts with its own folder only

from tests.structured.harness import (
    Case,
    Outcome,
    checked,
    maskbench_cases,
    plain_encode,
    run_case,
    suite_cases,
    unchecked,
    wrong_accepts,
)

from forebay.bench.report.markdown import code, table_lines
from forebay.structured.llguidance_backend import LLGuidanceBackend
from forebay.tokenizer import Tokenizer
from forebay.tokenizer.gguf import tokenizer_from_gguf
from forebay.weights.checkpoint import open_checkpoint

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
DRAFT7 = "http://json-schema.org/draft-07/schema#"
Row = dict[str, Any]


def tokenizer_of(path: Path) -> Tokenizer:
    """The tokenizer of a GGUF file, which may be packed with gzip."""
    with tempfile.TemporaryDirectory() as folder:
        if path.suffix == ".gz":
            plain = Path(folder) / path.stem
            plain.write_bytes(gzip.decompress(path.read_bytes()))
            path = plain
        checkpoint = open_checkpoint(path)
        try:
            return tokenizer_from_gguf(dict(checkpoint.config))
        finally:
            checkpoint.close()


def suite(data: Path) -> list[Case]:
    """The cases of the test suite, each naming its draft."""
    found = suite_cases(data / "structured/jsonschema-suite/json-schema-test-suite.tar.gz")
    return [
        Case(c.name, c.group, {"$schema": DRAFT7, **c.schema}, c.instances)
        if c.group.startswith("draft7/") and isinstance(c.schema, dict) and "$schema" not in c.schema
        else c
        for c in found
    ]


def quantiles(seconds: list[float]) -> Row:
    """Of durations, in microseconds."""
    if not seconds:
        return {}
    values = np.array(seconds) * 1e6
    names = {"p50": 50, "p90": 90, "p99": 99, "p999": 99.9}
    return {n: round(float(np.percentile(values, q)), 1) for n, q in names.items()} | {
        "max": round(float(values.max()), 1), "mean": round(float(values.mean()), 1), "count": len(values),
    }  # fmt: skip


def reason_of(refusal: str) -> str:
    """A refusal without what is particular to its schema, to be counted by."""
    text = re.sub(r"^\S+?:( at /.*?:)? ", "", refusal)
    text = re.sub(r"'[^']*'|\d+", "...", text)
    return re.split(r"[;:(]", text)[0].strip()[:80]


class Tally:
    """What came of all cases of one compiler."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.refusals: list[Row] = []
        self.wrong: list[Row] = []
        self.missed: list[Row] = []
        self.failed: list[Row] = []
        self.compile_s: list[float] = []
        self.masks_s: list[float] = []

    def add(self, case: Case, outcome: Outcome) -> None:
        self.compile_s.append(outcome.compile_s)
        self.masks_s += outcome.masks_s
        self.counts["schemas"] += 1
        self.counts["off_mask_tokens"] += outcome.num_off_mask
        if outcome.refusal is not None:
            self.counts["refused"] += 1
            self.reasons[reason_of(outcome.refusal)] += 1
            self.refusals.append({"case": case.name, "message": outcome.refusal[:300]})
            return
        self.counts["compiled"] += 1
        wrong = [
            {"case": case.name, "group": case.group, "instance": instance.name, "jsonschema": said[:200]}
            for instance, said in wrong_accepts(case, outcome, by_label=case.group.startswith("draft"))
        ]
        self.wrong += wrong
        self.counts["schemas_with_wrong_accepts"] += bool(wrong)
        for instance in case.instances:
            if instance.name in outcome.failed:
                self.failed.append(
                    {"case": case.name, "instance": instance.name, "message": outcome.failed[instance.name]}
                )
                continue
            accepted = outcome.accepted[instance.name] is not None
            kind = "valid" if instance.valid else "invalid"
            self.counts[f"{kind}_{'accepted' if accepted else 'rejected'}"] += 1
            if instance.valid and not accepted:
                self.missed.append({"case": case.name, "group": case.group, "instance": instance.name})

    def row(self) -> Row:
        return {
            "compiler": self.name,
            **self.counts,
            "wrong_accepts": len(self.wrong),
            "missed": len(self.missed),
            "failed": len(self.failed),
            "compile_us": quantiles(self.compile_s),
            "mask_us": quantiles(self.masks_s),
        }


def run(
    title: str, cases: list[Case], backend: LLGuidanceBackend, tokenizer: Tokenizer, console: Console
) -> list[Tally]:
    tallies = [Tally("forebay"), Tally("llguidance alone")]
    compilers = [checked(backend), unchecked(backend)]
    encode = plain_encode(tokenizer)
    for case in track(cases, description=title, console=console):
        for tally, compiler in zip(tallies, compilers, strict=True):
            tally.add(case, run_case(compiler, case, encode))
    return tallies


def markdown(document: Row) -> str:
    parts = [f"llguidance {document['versions']['llguidance']}, vocabulary of {document['vocab_size']} tokens", ""]
    for title, rows in document["results"].items():
        parts += [f"**{title}**", ""]
        heads = [
            "",
            "schemas",
            "refused",
            "valid accepted",
            "valid rejected",
            "invalid rejected",
            "wrong accepts",
            "compile p50 / p99 ms",
            "mask p50 / p99 / max µs",
        ]
        lines = []
        for row in rows:
            mask, compile_us = row["mask_us"], row["compile_us"]
            lines.append([
                row["compiler"],
                    *(str(row.get(k, 0)) for k in ("schemas", "refused", "valid_accepted", "valid_rejected",
                        "invalid_rejected", "wrong_accepts")),
                f"{compile_us['p50'] / 1e3:.1f} / {compile_us['p99'] / 1e3:.1f}",
                f"{mask['p50']:.0f} / {mask['p99']:.0f} / {mask['max']:.0f}" if mask else "",
            ])  # fmt: skip
        parts += [*table_lines(heads, lines, "lrrrrrrrr"), ""]
    for title, found in document["wrong_accepts"].items():
        for compiler, rows in list(found.items())[:1]:  # those of the other are in the JSON
            parts += [f"Wrong accepts, {title}, {compiler}: {len(rows)}", ""]
            parts += [
                *(
                    f"- {code(r['group'])} {code(r['case'])} {code(r['instance'])}: {code(r['jsonschema'], 120)}"
                    for r in rows
                ),
                "",
            ]
    parts += ["Why schemas of maskbench are refused:", ""]
    parts += [f"- {count} {code(reason, 90)}" for reason, count in document["refusal_reasons"].items()]
    return "\n".join(parts) + "\n"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--tokenizer", type=Path, help="by default the Llama 3 vocabulary of the shared data")
    parser.add_argument("--every", type=int, default=1, help="take every so many-th schema only")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "maskbench")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    console = Console(stderr=True)
    tokenizer = tokenizer_of(args.tokenizer or args.data / "chat/tokenizers/ggml-vocab-llama-bpe.gguf.gz")
    backend = LLGuidanceBackend(tokenizer, vocab_size=tokenizer.vocab_size)
    sets = {
        "maskbench": maskbench_cases(args.data / "structured/maskbench/maskbench_dev.jsonl.gz")[:: args.every],
        "JSON Schema Test Suite": suite(args.data)[:: args.every],
    }
    tallies = {title: run(title, cases, backend, tokenizer, console) for title, cases in sets.items()}
    document = {
        "benchmark": "maskbench",
        "versions": {"llguidance": llguidance.__version__, "python": platform.python_version()},
        "vocab_size": tokenizer.vocab_size,
        "results": {title: [t.row() for t in found] for title, found in tallies.items()},
        "wrong_accepts": {title: {t.name: t.wrong for t in found} for title, found in tallies.items()},
        "missed": {title: {t.name: t.missed for t in found} for title, found in tallies.items()},
        "failed": {title: {t.name: t.failed for t in found} for title, found in tallies.items()},
        "refusal_reasons": dict(tallies["maskbench"][0].reasons.most_common()),
        "refusals": {title: {t.name: t.refusals for t in found} for title, found in tallies.items()},
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in document.items()]
    args.out.with_suffix(".json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    args.out.with_suffix(".md").write_text(markdown(document))
    console.print(args.out.with_suffix(".md").read_text(), markup=False)
    return 1 if any(found[0].wrong for found in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
