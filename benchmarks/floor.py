"""How fast a model could be on this machine at most: floors of a token and of a prompt, from a roofline measured now.

    python benchmarks/floor.py [MODEL] [--kv f16] [--contexts 320,4032,7932] [--prompts 256,512,6000] [--threads N]

MODEL is named as for `forebay serve`. What a floor is says src/forebay/bench/ops/floor.py. Nothing else may run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from forebay.bench.ops import floor
from forebay.bench.ops.floor import ForwardPass
from forebay.bench.ops.roofline import Roofline, working_set_step
from forebay.bench.report import units
from forebay.bench.report.markdown import table_lines
from forebay.core.kv_spec import KV_ITEMSIZE
from forebay.models.families.registry import load_decoder
from forebay.ops.native import NativeBackend
from forebay.weights.checkpoint import open_checkpoint
from forebay.weights.sources import resolve_source

SAMPLES, SECONDS = 40, 0.02


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def decode_rows(model: ForwardPass, contexts: Sequence[int], roofline: Roofline) -> Iterator[tuple[str, ...]]:
    for context in contexts:
        size = model.decode_bytes(context)
        bandwidth = roofline.rate(working_set_step(size))
        least = floor.decode_floor(model, context, roofline)
        yield (
            units.count(context),
            f"{size / 1e6:.1f}",
            f"{bandwidth.best / 1e9:.0f} ({bandwidth.median / 1e9:.0f})",
            f"{least * 1e3:.2f}",
            f"{1 / least:,.0f}",
        )


def prompt_rows(model: ForwardPass, prompts: Sequence[int], roofline: Roofline) -> Iterator[tuple[str, ...]]:
    for tokens in prompts:
        least = floor.prompt_floor(model, tokens, roofline)
        operations = model.prompt_operations(tokens)
        said = ", ".join(f"{kind} {count / 1e9:.1f}" for kind, count in sorted(operations.items()))
        yield units.count(tokens), said, f"{least * 1e3:.1f}", f"{tokens / least:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--kv", default="f16", choices=tuple(KV_ITEMSIZE), help="format of the cache")
    parser.add_argument("--contexts", type=numbers, default=[320, 4032, 7932], help="keys that a token sees")
    parser.add_argument("--prompts", type=numbers, default=[256, 512, 6000], help="tokens")
    parser.add_argument("--threads", type=int, help="default: one per core")
    args = parser.parse_args()
    checkpoint = open_checkpoint(resolve_source(args.model))
    model = floor.forward_pass(*load_decoder(checkpoint), args.kv)
    checkpoint.close()
    backend = NativeBackend(threads=args.threads or "auto")
    roofline = Roofline(backend.isa, backend.threads)
    sizes = [model.decode_bytes(context) for context in args.contexts]
    kinds = {kind for tokens in args.prompts for kind in model.prompt_operations(tokens)}
    for _ in range(SAMPLES):
        floor.sample(roofline, sizes, kinds, SECONDS)
    peaks = ", ".join(f"{kind} {roofline.rate(kind).best / 1e9:.0f} GOP/s" for kind in sorted(kinds))
    print(f"{args.model}: {model.weight_bytes / 1e6:.1f} MB of packed weights, KV {args.kv}; {backend.isa}, "
          f"{backend.threads} threads; {peaks}\n")  # fmt: skip
    heads = ("context", "MB a token", "GB/s, best (median)", "floor ms", "token/s at most")
    print("\n".join(table_lines(heads, decode_rows(model, args.contexts, roofline), "rrrrr")), end="\n\n")
    heads = ("prompt", "GOP", "floor ms", "token/s at most")
    print("\n".join(table_lines(heads, prompt_rows(model, args.prompts, roofline), "rlrr")))


if __name__ == "__main__":
    main()
