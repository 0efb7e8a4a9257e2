"""Perplexity of a GGUF on a text, ours and llama.cpp's, chunk by chunk on the same tokens.

    python benchmarks/perplexity.py MODEL.gguf TEXT [--chunks 40] [--peer]

The text is cut into chunks of 512 tokens; each is run from an empty context and its second half is scored, which is
the method of llama.cpp's own perplexity tool. --peer also runs llama.cpp (package llama-cpp-python): prints the ratio.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from forebay.core.kv_spec import KVSpec
from forebay.models.decoder import Decoder
from forebay.models.families.registry import load_decoder
from forebay.ops.protocol import Plan, PlanLimits, SampleBatch, StepBatch
from forebay.ops.registry import create_backend
from forebay.profile import read_machine
from forebay.tokenizer import load_tokenizer
from forebay.weights.checkpoint import open_checkpoint

CONTEXT = 512
Score = Callable[[list[int]], np.ndarray]  # token ids of a chunk -> logits (CONTEXT, vocab)


def read_text(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def chunk_loss(logits: np.ndarray, tokens: list[int]) -> float:
    """Mean negative log-likelihood (nats) of the second half of a chunk."""
    scored = logits[CONTEXT // 2 : -1].astype(np.float64)
    targets = np.array(tokens[CONTEXT // 2 + 1 :])
    best = scored.max(axis=-1, keepdims=True)
    log_sum = np.log(np.exp(scored - best).sum(axis=-1)) + best[:, 0]
    return float((log_sum - scored[np.arange(len(targets)), targets]).mean())


def forebay_plan(model: Path) -> tuple[Plan, KVSpec]:
    spec, weights = load_decoder(open_checkpoint(model))
    kv = spec.kv_spec(block_size=16, dtype="f16")
    limits = PlanLimits(
        max_tokens=CONTEXT, max_requests=1, max_logit_rows=CONTEXT, max_model_len=CONTEXT, num_blocks=CONTEXT // 16
    )
    backend = create_backend("native", threads=read_machine().cores)
    return backend.compile(Decoder(spec, weights, CONTEXT), kv, limits), kv


def forebay_score(model: Path) -> Score:
    plan, kv = forebay_plan(model)
    rows = np.arange(CONTEXT, dtype=np.int32)
    table = np.arange(CONTEXT // kv.block_size, dtype=np.int32)[None, :]
    zeros = np.zeros(CONTEXT, np.int32)
    real = np.zeros(CONTEXT, np.float32)
    sample = SampleBatch(real, real + 1, real, zeros, zeros.astype(np.uint64), zeros, zeros, zeros - 1)
    groups = len(kv.groups)

    def score(tokens: list[int]) -> np.ndarray:
        batch = StepBatch(np.array(tokens, np.int32), rows, zeros, (rows,) * groups, (table,) * groups, rows, sample)
        return plan.run_logits(batch)

    return score


def peer_score(model: Path) -> Score:
    import llama_cpp

    llama = llama_cpp.Llama(str(model), n_ctx=CONTEXT, n_batch=CONTEXT, logits_all=True, verbose=False)

    def score(tokens: list[int]) -> np.ndarray:
        llama.reset()
        llama.eval(tokens)
        return llama.scores[:CONTEXT].copy()

    return score


def progress(score: Score, chunks: list[list[int]]) -> Iterator[float]:
    for number, tokens in enumerate(chunks, 1):
        loss = chunk_loss(score(tokens), tokens)
        print(f"  chunk {number}/{len(chunks)}: {np.exp(loss):.3f}", flush=True)
        yield loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--chunks", type=int, default=40)
    parser.add_argument("--peer", action="store_true")
    args = parser.parse_args()
    tokens = load_tokenizer(open_checkpoint(args.model)).encode(read_text(args.text), add_special_tokens=False)
    count = min(args.chunks, len(tokens) // CONTEXT)
    chunks = [tokens[i * CONTEXT : (i + 1) * CONTEXT] for i in range(count)]
    result: dict[str, float] = {}
    for name, make in {"forebay": forebay_score, **({"llama.cpp": peer_score} if args.peer else {})}.items():
        print(name)
        result[name] = float(np.exp(np.mean(list(progress(make(args.model), chunks)))))
    if args.peer:
        result["ratio"] = result["forebay"] / result["llama.cpp"]
    print(json.dumps({"chunks": count, "context": CONTEXT, **result}))


if __name__ == "__main__":
    main()
