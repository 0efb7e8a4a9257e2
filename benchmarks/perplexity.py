"""What a format of weights costs in quality: several forms of one model on one text, chunk by chunk on the same tokens.

    python benchmarks/perplexity.py MODEL[=WEIGHTS] ... TEXT [--chunks 20] [--prompts 16] [--peer] [--output FILE]

MODEL is a GGUF file or a Hugging Face folder, WEIGHTS a value of `model.weights` ("stored" if none is given); all must
have the same tokenizer. The first is what the others are compared with.

Perplexity: the text is cut into chunks of 512 tokens; each is run from an empty context and its second half is scored,
which is the method of llama.cpp's own perplexity tool. KL and "same best token" are of the same positions, against the
first model. "Same greedy tokens": both go on by themselves from the first 64 tokens of a chunk, and of 64 tokens each
that many are equal at their place; once they part, they rarely meet again. --peer also scores each file with llama.cpp
(see peers/README.md), from which it is started in a process of its own. --output writes FILE.json and FILE.md.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from forebay import LLM, SamplingParams
from forebay.bench.facts import new_result
from forebay.bench.report.markdown import table_lines
from forebay.bench.result import write_result
from forebay.models.decoder import Decoder
from forebay.models.decoder_weights import DecoderWeights
from forebay.models.families.registry import load_decoder
from forebay.ops.protocol import PlanLimits, SampleBatch, StepBatch
from forebay.ops.registry import create_backend
from forebay.profile import read_machine
from forebay.tokenizer import load_tokenizer
from forebay.weights.checkpoint import open_checkpoint
from forebay.weights.conversion import Conversion

CONTEXT, BLOCK = 512, 16
SCORED = np.arange(CONTEXT // 2, CONTEXT - 1, dtype=np.int32)  # positions that predict the next token
PROMPT, CONTINUED = 64, 64
PEERS = Path(__file__).resolve().parent / "peers"
Score = Callable[[Sequence[int]], np.ndarray]  # ids of a chunk -> log-probabilities (scored positions, vocabulary)


@dataclass(frozen=True)
class Form:
    """One model in one form."""

    path: Path
    weights: str

    @classmethod
    def parse(cls, text: str) -> Form:
        path, _, weights = text.partition("=")
        return cls(Path(path), weights or "stored")

    @property
    def name(self) -> str:
        return self.path.name.removesuffix(".gguf") + ("" if self.weights == "stored" else f" as {self.weights}")


@dataclass
class Found:
    """Sums over chunks, and what is known once."""

    loss: list[float] = field(default_factory=list)
    kl: list[float] = field(default_factory=list)
    same: list[float] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    greedy: list[list[int]] = field(default_factory=list)

    def row(self, form: Form, first: Found) -> dict[str, Any]:
        pairs = zip(self.greedy, first.greedy, strict=True)
        equal = [a == b for mine, theirs in pairs for a, b in zip(mine, theirs, strict=True)]
        return {
            "model": form.path.name,
            "weights": form.weights,
            **self.facts,
            "perplexity": float(np.exp(np.mean(self.loss))),
            "kl": float(np.mean(self.kl)),
            "same_best_token": float(np.mean(self.same)),
            "same_greedy_tokens": float(np.mean(equal)) if equal else None,
        }


def read_text(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def read_chunks(form: Form, text: Path, count: int) -> list[list[int]]:
    tokens = load_tokenizer(open_checkpoint(form.path)).encode(read_text(text), add_special_tokens=False)
    return [tokens[i : i + CONTEXT] for i in range(0, len(tokens) - CONTEXT + 1, CONTEXT)][:count]


def bits_per_weight(weights: DecoderWeights) -> float:
    matrices = {id(m): m for m in weights.matrices()}.values()
    return weights.num_bytes() * 8 / sum(m.rows * m.columns for m in matrices)


def forebay_score(form: Form) -> tuple[Score, dict[str, Any]]:
    """A scorer on the native backend, and facts of the weights: formats, bits, seconds to load, what was converted."""
    began = time.monotonic()
    spec, stored = load_decoder(open_checkpoint(form.path))
    conversion = Conversion(form.weights)
    weights = stored.converted(conversion)
    kv = spec.kv_spec(BLOCK, "f16")
    limits = PlanLimits(
        max_tokens=CONTEXT, max_requests=1, max_logit_rows=len(SCORED), max_model_len=CONTEXT,
        num_blocks=CONTEXT // BLOCK,
    )  # fmt: skip
    plan = create_backend("native", threads=read_machine().cores).compile(Decoder(spec, weights, CONTEXT), kv, limits)
    facts = {
        "format": weights.format_name(),
        "reason": conversion.reason(),
        "bits_per_weight": bits_per_weight(weights),
        "load_s": time.monotonic() - began,
    }
    position = np.arange(CONTEXT, dtype=np.int32)
    table = np.arange(CONTEXT // BLOCK, dtype=np.int32)[None, :]
    none, real = np.zeros(len(SCORED), np.int32), np.zeros(len(SCORED), np.float32)
    sample = SampleBatch(real, real + 1, real, none, none.astype(np.uint64), none, none, none - 1)
    groups = len(kv.groups)

    def score(tokens: Sequence[int]) -> np.ndarray:
        ids = np.array(tokens, np.int32)
        batch = StepBatch(ids, position, position * 0, (position,) * groups, (table,) * groups, SCORED, sample)
        return log_softmax(plan.run_logits(batch))

    return score, facts


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """In place, float32; the sum in float64."""
    logits -= logits.max(axis=-1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True, dtype=np.float64)).astype(np.float32)
    return logits


def score_all(forms: Sequence[Form], chunks: Sequence[list[int]]) -> list[Found]:
    """All forms on a chunk, then the next chunk, so that only one chunk's logits are kept."""
    scorers = [forebay_score(form) for form in forms]
    found = [Found(facts=facts) for _, facts in scorers]
    rows = np.arange(len(SCORED))
    for number, chunk in enumerate(chunks, 1):
        targets = np.array(chunk)[SCORED + 1]
        first = np.empty(0)
        for (score, _), one in zip(scorers, found, strict=True):
            got = score(chunk)
            first = first if first.size else got
            one.loss.append(float(-got[rows, targets].mean(dtype=np.float64)))
            one.kl.append(float((np.exp(first) * (first - got)).sum(axis=-1, dtype=np.float64).mean()))
            one.same.append(float((first.argmax(axis=-1) == got.argmax(axis=-1)).mean()))
        shown = " ".join(f"{np.exp(np.mean(one.loss)):.3f}" for one in found)
        print(f"  chunk {number}/{len(chunks)}, perplexity so far: {shown}", file=sys.stderr, flush=True)
    return found


def continued(form: Form, prompts: list[list[int]]) -> list[list[int]]:
    """What the engine makes of each prompt, greedily."""
    settings = {"model.weights": form.weights, "kv.prefix_cache": False, "model.max_model_len": PROMPT + CONTINUED}
    sampling = SamplingParams(temperature=0, max_tokens=CONTINUED, ignore_eos=True)
    with LLM(form.path, **settings) as llm:
        results = dict(llm.run(prompts, sampling, add_special_tokens=False))
    return [list(results[index].completions[0].token_ids) for index in range(len(prompts))]


def peer_losses(form: Form, chunks: list[list[int]]) -> list[float] | None:
    """llama.cpp's losses; None where it cannot read what is asked."""
    if form.weights != "stored" or form.path.suffix != ".gguf":
        return None
    sys.path.insert(0, str(PEERS))
    from llama_cpp import LlamaCpp  # the peer of that name, not the package
    from peer import Limits

    class OneFile(LlamaCpp):
        def model(self, setting: object) -> Path:
            return form.path

    peer = OneFile()
    problem = peer.try_install()
    if problem:
        print(f"llama.cpp: {problem}", file=sys.stderr)
        return None
    with peer.start_driver(peer.setting("q4_1"), Limits(threads=read_machine().cores, max_len=CONTEXT)) as driver:
        return driver.score(chunks)


def rows_of(forms: list[Form], chunks: list[list[int]], prompts: int, peer: bool) -> Iterator[dict[str, Any]]:
    found = score_all(forms, chunks)
    for form, one in zip(forms, found, strict=True):
        one.greedy = continued(form, [chunk[:PROMPT] for chunk in chunks[:prompts]])
        losses = peer_losses(form, chunks) if peer else None
        yield one.row(form, found[0]) | {"llama_cpp": None if losses is None else float(np.exp(np.mean(losses)))}


def as_markdown(forms: list[Form], rows: list[dict[str, Any]]) -> str:
    def cells(form: Form, row: dict[str, Any]) -> tuple[str, ...]:
        greedy, peer = row["same_greedy_tokens"], row["llama_cpp"]
        return (
            form.name,
            f"`{row['format']}`",
            f"{row['bits_per_weight']:.2f}",
            f"{row['perplexity']:.3f}",
            "" if peer is None else f"{peer:.3f}",
            f"{row['kl']:.4f}",
            f"{row['same_best_token']:.1%}",
            "" if greedy is None else f"{greedy:.0%}",
            f"{row['load_s']:.1f}",
        )

    heads = ("model", "served as", "bits per weight", "perplexity", "llama.cpp's", "KL, nats", "same best token",
             "same greedy tokens", "load s")  # fmt: skip
    return "\n".join(table_lines(heads, map(cells, forms, rows), "llrrrrrrr")) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Form.parse, nargs="+", metavar="MODEL[=WEIGHTS]")
    parser.add_argument("text", type=Path)
    parser.add_argument("--chunks", type=int, default=20)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--output", type=Path, metavar="FILE", help="without a suffix: FILE.json and FILE.md")
    args = parser.parse_args()
    chunks = read_chunks(args.model[0], args.text, args.chunks)
    rows = list(rows_of(args.model, chunks, args.prompts, args.peer))
    text = as_markdown(args.model, rows)
    print(text, end="")
    if args.output:
        target = {"text": args.text.name, "chunks": len(chunks), "context": CONTEXT, "prompts": args.prompts}
        result = new_result("perplexity", rows=rows, target=target)
        named = [word.rpartition("/")[2] for word in result.command]  # not where they lie on this machine
        write_result(replace(result, command=named), args.output.with_suffix(".json"))
        args.output.with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
