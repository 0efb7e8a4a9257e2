"""Many streams for minutes, a third of which hang up half way: do answers, blocks and memory hold?

    python benchmarks/soak.py [MODEL] [--minutes 5] [--streams 64] [--out benchmarks/results/soak.json]

Starts a real `forebay serve` on a free port, asks it a set of questions one at a time, and then asks the same questions
on `--streams` connections at once, over and over. Every third stream closes its socket half way (with FIN and RST in
turn). Text, log-probabilities (as bits) and finish reason of each completed stream must equal the solo answer, what a
hung-up stream has seen must be its beginning; afterwards no block may be used or promised and no socket be open.
Meanwhile the memory of the server and the engine process is read from /proc/PID/smaps_rollup (so this needs Linux); its
growth is the slope of a line through the second half. Writes a JSON document and, with matplotlib, a figure beside it.
Exit code 0: all of it held, and no memory grew by 1 MB a minute.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a script starts with its own folder only

from tests.support.memory import KINDS, MB, second_half
from tests.support.server_process import running_server
from tests.support.soak import LIMIT_MB_PER_MINUTE, Report, Say, server_flags, soak

PROCESSES = ("server", "engine")


def document(report: Report, about: dict[str, Any]) -> dict[str, Any]:
    """A report as JSON: `about` it, the verdicts, then all figures."""
    return {
        **about,
        "passed": report.passed,
        "every_stream_gave_its_solo_answer": report.streams_hold,
        "distinct_answers": report.distinct_answers,
        "streams": dataclasses.asdict(report.tally),
        "finished_by_reason": report.finished,
        "at_rest": report.at_rest,
        "limit_mb_per_minute": LIMIT_MB_PER_MINUTE,
        "growth_in_second_half": {
            name: {kind: dataclasses.asdict(g) for kind, g in kinds.items()} for name, kinds in report.growth.items()
        },
        "t_s": [round(s.t_s, 1) for s in report.samples["server"]],
        "running": report.running,
        "bytes": {
            name: {kind: [getattr(s, kind) for s in samples] for kind in KINDS}
            for name, samples in report.samples.items()
        },
    }


def plot(report: Report, path: Path) -> None:
    """Memory of both processes over time, with the fitted line. Raises ImportError without matplotlib."""
    plt = importlib.import_module("matplotlib.pyplot")
    figure, axes = plt.subplots(len(PROCESSES), 1, sharex=True, figsize=(8, 6), layout="constrained")
    for axis, name in zip(axes, PROCESSES, strict=True):
        samples = report.samples[name]
        half = second_half(samples)
        for kind, colour in zip(KINDS, ("tab:blue", "tab:orange"), strict=True):
            fit = report.growth[name][kind]
            label = f"{kind}: {fit.mb_per_minute:+.2f} ± {fit.error:.2f} MB/min in the second half"
            axis.plot([s.t_s for s in samples], [getattr(s, kind) / MB for s in samples], color=colour, label=label)
            middle_t = np.mean([s.t_s for s in half])
            middle = np.mean([getattr(s, kind) for s in half]) / MB
            ends = np.array([half[0].t_s, half[-1].t_s])
            axis.plot(ends, middle + (ends - middle_t) / 60 * fit.mb_per_minute, color="black", linewidth=1)
        axis.set(title=f"{name} process", ylabel="MB")
        axis.set_ylim(0, 1.15 * max(s.rss for s in samples) / MB)
        axis.legend(loc="lower right")
    axes[-1].set_xlabel("seconds of load")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--minutes", type=float, default=5.0, help="heaps need the first one or two to settle")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--num-blocks", type=int, default=512, help="of the KV cache, 16 tokens each")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="any other profile setting")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "soak.json")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    console = Console(soft_wrap=True, highlight=False)
    flags = server_flags(args.model, args.streams, args.num_blocks, args.set)
    with tempfile.TemporaryDirectory() as folder, running_server(flags, Path(folder) / "log") as server:
        console.print(server.ready_line.strip())
        served = httpx.get(f"{server.url}/version").json()
        with console.status("") as status:
            report = soak(
                server,
                served["model"],
                seconds=args.minutes * 60,
                streams=args.streams,
                num_questions=args.streams,
                num_blocks=args.num_blocks,
                say=status.update if console.is_terminal else _every(15.0, console.print),
            )
    about = {
        "benchmark": "soak",
        "served": served,
        "minutes": args.minutes,
        "num_streams": args.streams,
        "settings": [f"kv.num_blocks={args.num_blocks}", *args.set],
        "machine": {"processors": os.cpu_count(), "arch": platform.machine(), "python": platform.python_version()},
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in document(report, about).items()]
    args.out.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    _print(report, console)
    try:
        plot(report, args.out.with_suffix(".png"))
    except ImportError:
        console.print("no figure: matplotlib is not installed (pip install matplotlib)")
    console.print(f"wrote {args.out}")
    return 0 if report.passed else 1


def _every(seconds: float, say: Say) -> Say:
    """`say`, at most once in so many seconds."""
    last = -seconds

    def now_and_then(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            say(text)

    return now_and_then


def _print(report: Report, console: Console) -> None:
    tally = report.tally
    console.print(f"{tally.completed} streams completed, {tally.hung_up} hung up half way, {tally.tokens} tokens")
    console.print(f"running at once: {np.mean(report.running):.1f} on average, at most {max(report.running):.0f}")
    console.print(f"finished, as the server counted: {report.finished}")
    console.print(f"left at rest: {report.at_rest}")
    for name, kinds in report.growth.items():
        for kind, g in kinds.items():
            sizes, slope = f"{g.start_mb:8.1f} -> {g.end_mb:8.1f} MB", f"{g.mb_per_minute:+.3f} ± {g.error:.3f} MB/min"
            console.print(f"{name:>7} {kind:<9} {sizes}, {slope}")
    for problem in tally.problems:
        console.print(f"problem: {problem}")
    console.print("passed" if report.passed else "FAILED")


if __name__ == "__main__":
    sys.exit(main())
