"""Required tool calls of a real model: do they parse, validate, and stream to the same as they come whole?

    python benchmarks/tool_calls.py [MODEL] [--tool-format hermes] [--stride 8] [--concurrency 8] [--out benchmarks/results/tool_calls.json]

Takes every `--stride`th case of the Berkeley Function-Calling Leaderboard (the shared data set) and asks a real
`forebay serve` for it with `tool_choice: "required"` and strict tools, whole and as a stream with the same seed. Which function
is called, and with what, is the model's affair; that the name is one of the tools', that the arguments validate against
its parameters (jsonschema) where the answer ended by itself, and that both ways give the same, is the server's. A tool
that cannot be enforced must be a 400 with a JSON pointer. Writes a JSON document. Exit code 0: all of it held.
"""  # noqa: E501

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import jsonschema
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a script starts with its own folder only

from tests.structured.tools.test_bfcl import definition, legal, lines
from tests.support.server_process import running_server
from tests.support.shared import shared_root

POINTED = re.compile(r"at /\S+: ")
Call = tuple[str, str]


def cases(folder: Path, stride: int) -> list[dict[str, Any]]:
    """The bodies of requests, without model and stream."""
    found = []
    for path in sorted(folder.glob("*.answer.jsonl")):
        if path.name.startswith("multi_turn"):
            continue
        for case in lines(path.with_name(path.name.replace(".answer", ""))):
            named = {legal(f["name"]): f for f in case["function"]}
            tools = [definition(name, f) for name, f in named.items()]
            found.append({"messages": case["question"][0], "tools": tools, "tool_choice": "required"})
    return found[::stride]


async def whole(client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[list[Call], str]:
    """The calls and the finish reason; "refused" for a 400 with a pointer."""
    answer = await client.post("/v1/chat/completions", json=body)
    if answer.status_code == 400:
        return [], "refused" if POINTED.search(answer.text) else f"refused: {answer.text[:300]}"
    answer.raise_for_status()
    choice = answer.json()["choices"][0]
    calls = choice["message"].get("tool_calls", [])
    return [(c["function"]["name"], c["function"]["arguments"]) for c in calls], choice["finish_reason"]


async def streamed(client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[list[Call], str]:
    calls: list[Call] = []
    reason = ""
    async with client.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as answer:
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            for choice in json.loads(line[6:])["choices"]:
                reason = choice["finish_reason"] or reason
                for call in choice["delta"].get("tool_calls", []):
                    if "id" in call:
                        calls.append((call["function"]["name"], ""))
                    name, text = calls[call["index"]]
                    calls[call["index"]] = (name, text + call["function"]["arguments"])
    return calls, reason


def problem(body: dict[str, Any], calls: list[Call], reason: str) -> str | None:
    """What is wrong with an answer that ended by itself."""
    if reason != "tool_calls" or not calls:
        return f"ended by {reason} with {len(calls)} calls"
    parameters = {tool["function"]["name"]: tool["function"]["parameters"] for tool in body["tools"]}
    for name, arguments in calls:
        if name not in parameters:
            return f"no such tool: {name}"
        try:
            jsonschema.validate(json.loads(arguments), parameters[name])
        except (ValueError, jsonschema.ValidationError) as error:
            return str(error)[:200]
    return None


async def measure(url: str, bodies: list[dict[str, Any]], concurrency: int, console: Console) -> dict[str, Any]:
    counts, wrong = Counter[str](), []
    gate = asyncio.Semaphore(concurrency)

    async def one(client: httpx.AsyncClient, index: int, body: dict[str, Any]) -> None:
        async with gate:
            calls, reason = await whole(client, body)
            counts[reason] += 1
            if reason.startswith("refused"):
                if reason != "refused":
                    wrong.append({"case": index, "why": reason})
                return
            if (calls, reason) != await streamed(client, body):
                wrong.append({"case": index, "why": "the stream differs"})
            if reason != "length" and (found := problem(body, calls, reason)):
                wrong.append({"case": index, "why": found})
            if sum(counts.values()) % 50 == 0:
                console.print(f"  {sum(counts.values())} of {len(bodies)}: {dict(counts)}, {len(wrong)} wrong")

    async with httpx.AsyncClient(base_url=url, timeout=600, limits=httpx.Limits(max_connections=64)) as client:
        model = (await client.get("/version")).json()["model"]
        bodies = [body | {"model": model} for body in bodies]
        await asyncio.gather(*(one(client, i, body) for i, body in enumerate(bodies)))
    return {"cases": len(bodies), "ended_by": dict(counts), "wrong": wrong}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--tool-format", default="hermes")
    parser.add_argument("--stride", type=int, default=8)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "tool_calls.json")
    args = parser.parse_args()
    console = Console(soft_wrap=True, highlight=False)
    root = shared_root()
    if root is None or not (root / "tools/bfcl").exists():
        console.print("shared data 'tools/bfcl' not found (set FOREBAY_SHARED_DATA to its folder)")
        return 2
    bodies = cases(root / "tools/bfcl", args.stride)
    for seed, body in enumerate(bodies):
        body |= {"seed": seed, "temperature": 1.0, "top_p": 0.9, "max_tokens": args.max_tokens}
        body["parallel_tool_calls"] = seed % 4 == 0  # a small model calls without end where it may
    flags = [args.model, "--tool-format", args.tool_format, "--max-requests", str(args.concurrency)]
    with tempfile.TemporaryDirectory() as folder, running_server(flags, Path(folder) / "log") as server:
        report = asyncio.run(measure(server.url, bodies, args.concurrency, console))
    console.print(f"{report['cases']} cases, ended by {report['ended_by']}; {len(report['wrong'])} wrong")
    about = {"benchmark": "tool_calls", "model": args.model, "tool_format": args.tool_format}
    machine = {"arch": platform.machine(), "python": platform.python_version()}
    args.out.write_text(json.dumps(about | report | {"machine": machine}, indent=1) + "\n")
    console.print(f"wrote {args.out}")
    return 1 if report["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
