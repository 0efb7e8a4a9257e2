"""A fake OpenAI server that plays scripts and stamps everything it sends with CLOCK_MONOTONIC, in a process of its own.

    with fake_server({"slow": script(role(), text(after_s=0.2), finish(), usage(1), done())}) as server:
        ...  # a request whose `user` (else `model`) is "slow" gets this answer
        server.requests("slow")[0]["sent"]  # [["role", ns before, ns after], ["text", ...], ...]

A request that no script is for gets `max_tokens` tokens at a constant pace. As a program, for other load generators:

    python -m tests.support.fake_openai --port 8001 --ttft 0.05 --itl 0.01 --tokens-per-chunk 2

Standard library and httptools only, so that it starts in no time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import select
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import httptools

Act = dict[str, Any]  # {"kind": ..., "after_s": ..., what the kind needs}
Script = dict[str, Any]  # {"acts": [...], "framing": "chunked" | "length" | "close"}
Record = dict[str, Any]

REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 429: "Too Many Requests", 500: "Internal Server Error"}
START_S = 20.0


# What a script is made of. `after_s`: pause since the act before was due.


def script(*acts: Act, framing: str = "chunked") -> Script:
    """framing: how the end of the body is marked. "length" is a content-length, so all acts must be sent in the end."""
    return {"acts": list(acts), "framing": framing}


def role(after_s: float = 0.0) -> Act:
    """The chunk with the role and an empty content, before any token."""
    return {"kind": "role", "after_s": after_s, "delta": {"role": "assistant", "content": ""}, "text": ""}


def text(tokens: int = 1, *, after_s: float = 0.0, words: str | None = None, **extra: Any) -> Act:
    """A chunk of text: " tok1 tok2" unless `words` are given. extra: finish, usage, logprobs (number of entries),
    token_ids, total (running completion_tokens)."""
    return {"kind": "text", "after_s": after_s, "tokens": tokens, "words": words, **extra}


def reasoning(thought: str, *, field: str = "reasoning_content", after_s: float = 0.0) -> Act:
    return {"kind": "reasoning", "after_s": after_s, "delta": {field: thought}}


def tool_call(name: str | None = None, arguments: str = "", *, after_s: float = 0.0) -> Act:
    function = {"arguments": arguments} | ({} if name is None else {"name": name})
    calls = [{"index": 0, "id": "call-1", "type": "function", "function": function}]
    return {"kind": "tool_call", "after_s": after_s, "delta": {"tool_calls": calls}}


def finish(reason: str = "stop", *, after_s: float = 0.0, **extra: Any) -> Act:
    return {"kind": "finish", "after_s": after_s, "delta": {}, "text": "", "finish": reason, **extra}


def usage(completion: int, *, prompt: int = 7, cached: int | None = None, after_s: float = 0.0) -> Act:
    """The chunk without choices."""
    return {"kind": "usage", "after_s": after_s, "usage": usage_of(completion, prompt, cached)}


def done(after_s: float = 0.0) -> Act:
    return event("[DONE]", kind="done", after_s=after_s)


def event(data: str, *, name: str | None = None, kind: str = "event", after_s: float = 0.0) -> Act:
    """Any event."""
    lines = ([] if name is None else [f"event: {name}"]) + [f"data: {data}"]
    return raw("\n".join(lines) + "\n\n", kind=kind, after_s=after_s)


def raw(body: str, *, kind: str = "raw", after_s: float = 0.0) -> Act:
    """Bytes of the body (latin-1), such as comments or half a line."""
    return {"kind": kind, "after_s": after_s, "body": body}


def together(*acts: Act, after_s: float = 0.0) -> Act:
    """Several events in one write."""
    return {"kind": "together", "after_s": after_s, "acts": list(acts)}


def dribble(act: Act, *, pieces: int, gap_s: float, after_s: float = 0.0) -> Act:
    """The bytes of one act in several writes, `gap_s` apart. The stamps are those of the last."""
    return {"kind": act["kind"], "after_s": after_s, "dribbled": act, "pieces": pieces, "gap_s": gap_s}


def fail(status: int, message: str = "no", *, after_s: float = 0.0, **headers: str) -> Act:
    """An HTTP error of OpenAI's shape; headers by name with underscores."""
    body = json.dumps({"error": {"message": message, "type": "an_error", "param": None, "code": "no"}})
    return reply(status, body, content_type="application/json", after_s=after_s, **headers)


def reply(status: int, body: str, *, content_type: str, after_s: float = 0.0, **headers: str) -> Act:
    named = {name.replace("_", "-"): value for name, value in headers.items()} | {"Content-Type": content_type}
    return {"kind": "reply", "after_s": after_s, "status": status, "headers": named, "answer": body}


def socket_bytes(data: str, *, after_s: float = 0.0) -> Act:
    """Bytes past all framing (latin-1): garbage, or an interim response before the real one."""
    return {"kind": "socket", "after_s": after_s, "wire": data}


def cut(after_s: float = 0.0) -> Act:
    """The connection is closed here."""
    return {"kind": "cut", "after_s": after_s}


def hang(after_s: float = 0.0) -> Act:
    """Nothing more comes, and the connection stays."""
    return {"kind": "hang", "after_s": after_s}


def stall(seconds: float, *, after_s: float = 0.0) -> Act:
    """The whole server stands still: nobody is read, nobody is answered."""
    return {"kind": "stall", "after_s": after_s, "seconds": seconds}


def usage_of(completion: int, prompt: int, cached: int | None = None) -> dict[str, Any]:
    counts: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion}
    counts["total_tokens"] = prompt + completion
    if cached is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": cached}
    return counts


def generation(tokens: int, *, ttft_s: float, itl_s: float, per_chunk: int = 1, prompt: int = 7) -> Script:
    """An answer at a constant pace: a chunk of `per_chunk` tokens every `itl_s`."""
    acts = [role()]
    for start in range(0, tokens, per_chunk):
        acts.append(text(min(per_chunk, tokens - start), after_s=itl_s if start else ttft_s))
    return script(*acts, finish("length"), usage(tokens, prompt=prompt, cached=0), done())


# The server


class Wire:
    """Makes the bytes of acts for one request."""

    def __init__(self, number: int, body: Mapping[str, Any], chat: bool) -> None:
        self._made_of = number, body, chat
        self._chat = chat
        self._said = 0
        self._base = {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{number}",
            "object": "chat.completion.chunk" if chat else "text_completion",
            "created": 1,
            "model": body.get("model", "fake"),
        }

    def again(self) -> Wire:
        """As it was before the first act."""
        return Wire(*self._made_of)

    def bytes_of(self, act: Act) -> bytes:
        if "body" in act:
            return str(act["body"]).encode("latin-1")
        if act["kind"] == "together":
            return b"".join(self.bytes_of(inner) for inner in act["acts"])
        if "dribbled" in act:
            return self.bytes_of(act["dribbled"])
        choices = [] if act["kind"] == "usage" else [self._choice(act)]
        chunk = {**self._base, "choices": choices}
        if act.get("total") is not None:
            chunk["usage"] = usage_of(act["total"], 7)
        elif act.get("usage") is not None:
            chunk["usage"] = act["usage"]
        return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"

    def words(self, act: Act) -> str:
        if act.get("words") is not None:
            return str(act["words"])
        first = self._said + 1
        self._said += act.get("tokens", 0)
        return "".join(f" tok{i}" for i in range(first, self._said + 1))

    def _choice(self, act: Act) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": act.get("finish"), "logprobs": None}
        words = self.words(act) if act["kind"] == "text" else act.get("text", "")
        if self._chat:
            choice["delta"] = act.get("delta", {"content": words})
        else:
            choice["text"] = words
        if act.get("logprobs") is not None:
            entries = [{"token": "t", "logprob": -0.5, "bytes": None, "top_logprobs": []}] * act["logprobs"]
            choice["logprobs"] = (
                {"content": entries, "refusal": None}
                if self._chat
                else {"tokens": ["t"] * len(entries), "token_logprobs": [-0.5] * len(entries)}
            )
        if act.get("token_ids") is not None:
            choice["token_ids"] = act["token_ids"]
        return choice

    def plain(self, tokens: int, prompt: int) -> bytes:
        """The answer to a request that does not stream."""
        said = self.words({"tokens": tokens})
        content = {"message": {"role": "assistant", "content": said}} if self._chat else {"text": said}
        choice = {"index": 0, "finish_reason": "length", "logprobs": None, **content}
        name = "chat.completion" if self._chat else "text_completion"
        return json.dumps(
            {**self._base, "object": name, "choices": [choice], "usage": usage_of(tokens, prompt)}
        ).encode()


class Pace:
    """How requests without a script are answered."""

    def __init__(self, ttft_s: float, itl_s: float, per_chunk: int) -> None:
        self.ttft_s, self.itl_s, self.per_chunk = ttft_s, itl_s, per_chunk

    def script(self, body: Mapping[str, Any]) -> Script:
        tokens, prompt = tokens_wanted(body), count_words(body)
        made = generation(tokens, ttft_s=self.ttft_s, itl_s=self.itl_s, per_chunk=self.per_chunk, prompt=prompt)
        if not (body.get("stream_options") or {}).get("include_usage"):
            made["acts"] = [act for act in made["acts"] if act["kind"] != "usage"]
        return made


def tokens_wanted(body: Mapping[str, Any]) -> int:
    return int(body.get("max_completion_tokens") or body.get("max_tokens") or 16)


def count_words(body: Mapping[str, Any]) -> int:
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return len(prompt.split())
    if isinstance(prompt, list):
        return sum(len(part.split()) if isinstance(part, str) else 1 for part in prompt)
    contents = [message.get("content") or "" for message in body.get("messages") or []]
    parts = [part for c in contents for part in ([c] if isinstance(c, str) else [p.get("text", "") for p in c])]
    return sum(len(part.split()) for part in parts)


class FakeOpenAI:
    """Scripts, and what has happened. The n-th request of a key gets the n-th script of its list, and the last
    one from then on."""

    def __init__(self, scripts: Mapping[str, Sequence[Script]], pace: Pace, model: str) -> None:
        self.scripts = scripts
        self.pace = pace
        self.model = model
        self.records: list[Record] = []
        self.connections = 0
        self.open: Counter[str] = Counter()
        self.most_open: defaultdict[str, int] = defaultdict(int)
        self.tasks: set[asyncio.Task[None]] = set()

    def record(self, key: str, body: Any, connection: int, head_ns: int) -> Record:
        self.open[key] += 1
        self.most_open[key] = max(self.most_open[key], self.open[key])
        made = {
            "key": key,
            "order": sum(record["key"] == key for record in self.records),
            "connection": connection,
            "head_ns": head_ns,
            "body_ns": time.monotonic_ns(),
            "body": body,
            "sent": [],
            "gone_ns": None,
            "blocked": False,
        }
        self.records.append(made)
        return made

    def script(self, record: Record) -> Script:
        known = self.scripts.get(record["key"])
        return known[min(record["order"], len(known) - 1)] if known else self.pace.script(record["body"])


class HttpSide(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, server: FakeOpenAI) -> None:
        self._server = server
        server.connections += 1
        self._number = server.connections
        self._task: asyncio.Task[None] | None = None
        self._playing: Record | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._parser = httptools.HttpRequestParser(self)
        self._body = bytearray()
        self._url = b""
        self._head_ns: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if transport.get_extra_info("sslcontext") is None:  # asyncio's TLS does not resume from such a limit
            self._transport.set_write_buffer_limits(high=0)  # notice a client that does not read at once

    def data_received(self, data: bytes) -> None:
        if self._head_ns is None:
            self._head_ns = time.monotonic_ns()
        self._parser.feed_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._playing is not None:
            self._playing["gone_ns"] = time.monotonic_ns()
        if self._task is not None:
            self._task.cancel()
        self._room.set()

    def pause_writing(self) -> None:
        if self._playing is not None:
            self._playing["blocked"] = True
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        path, body, head_ns = self._url.decode(), bytes(self._body), self._head_ns or time.monotonic_ns()
        self._url, self._head_ns = b"", None
        self._body.clear()
        if path.endswith("/completions"):
            self._task = asyncio.ensure_future(self._complete(json.loads(body), "chat" in path, head_ns))
            self._server.tasks.add(self._task)
            self._task.add_done_callback(self._server.tasks.discard)
        else:
            self.send_all(200, self._page(path, body), {"Content-Type": "application/json"})

    def _page(self, path: str, body: bytes) -> bytes:
        server = self._server
        pages: dict[str, Any] = {
            "/health": {"status": "ok"},
            "/v1/models": {"object": "list", "data": [{"id": server.model, "object": "model", "created": 1}]},
            "/stamps": {
                "requests": server.records,
                "most_open": server.most_open,
                "connections": server.connections,
            },
        }
        if path == "/tokenize":
            words = count_words(json.loads(body))
            return json.dumps({"tokens": list(range(words)), "count": words, "max_model_len": 2**20}).encode()
        return json.dumps(pages.get(path, {"error": {"message": f"no {path}"}})).encode()

    async def _complete(self, body: dict[str, Any], chat: bool, head_ns: int) -> None:
        key = str(body.get("user") or body.get("model"))
        record = self._playing = self._server.record(key, body, self._number, head_ns)
        wire = Wire(len(self._server.records), body, chat)
        try:
            if body.get("stream"):
                await Play(self, wire, record, self._server.script(record)).run()
            else:
                pace, tokens = self._server.pace, tokens_wanted(body)
                await asyncio.sleep(pace.ttft_s + pace.itl_s * ((tokens - 1) // pace.per_chunk))
                answer = wire.plain(tokens, count_words(body))
                self.send_all(200, answer, {"Content-Type": "application/json"})
        finally:
            self._playing = None
            self._server.open[key] -= 1

    def send_all(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.write_head(status, {**headers, "Content-Length": str(len(body))})
        self._transport.write(body)

    def write_head(self, status: int, headers: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Other')}", *(f"{n}: {v}" for n, v in headers.items())]
        self._transport.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    async def write(self, data: bytes) -> int:
        """The moment right after the bytes left, or after there was room for them."""
        self._transport.write(data)
        at_ns = time.monotonic_ns()
        if not self._room.is_set():
            await self._room.wait()
            at_ns = time.monotonic_ns()
        return at_ns

    def close(self) -> None:
        self._transport.close()


class Play:
    """One script on one connection."""

    def __init__(self, side: HttpSide, wire: Wire, record: Record, script: Script) -> None:
        self._side = side
        self._wire = wire
        self._record = record
        self._acts: list[Act] = script["acts"]
        self._framing: str = script["framing"]
        self._head_sent = False

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        length = self._length() if self._framing == "length" else None
        for act in self._acts:
            due += act["after_s"]
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            if not await self._act(act, length):
                return
        if not self._head_sent:
            self._head(length)
        if self._framing == "chunked":
            await self._side.write(b"0\r\n\r\n")
        elif self._framing == "close":
            self._side.close()

    def _length(self) -> int:
        rehearsal = self._wire.again()
        return sum(len(rehearsal.bytes_of(act)) for act in self._acts)

    def _head(self, length: int | None) -> None:
        self._head_sent = True
        framing = {"chunked": {"Transfer-Encoding": "chunked"}, "length": {"Content-Length": str(length)}}
        headers = {"Content-Type": "text/event-stream; charset=utf-8", **framing.get(self._framing, {})}
        self._side.write_head(200, headers)

    async def _act(self, act: Act, length: int | None) -> bool:
        """Whether the script goes on after it."""
        kind = act["kind"]
        if kind in ("cut", "hang"):
            if kind == "cut":
                self._side.close()
            else:
                await asyncio.get_running_loop().create_future()
            return False
        if kind == "stall":
            time.sleep(act["seconds"])  # noqa: ASYNC251  # standing still is what it is for
        elif kind == "socket":
            await self._side.write(act["wire"].encode("latin-1"))
        elif kind == "reply":
            before_ns = time.monotonic_ns()
            self._side.send_all(act["status"], act["answer"].encode(), act["headers"])
            self._record["sent"].append([kind, before_ns, time.monotonic_ns()])
            return False
        else:
            await self._event(act, length)
        return True

    async def _event(self, act: Act, length: int | None) -> None:
        if not self._head_sent:
            self._head(length)
        data = self._wire.bytes_of(act)
        count = act.get("pieces", 1)
        for i in range(count):
            piece = data[len(data) * i // count : len(data) * (i + 1) // count]
            if i:
                await asyncio.sleep(act["gap_s"])
            before_ns = time.monotonic_ns()
            at_ns = await self._side.write(
                b"%x\r\n%b\r\n" % (len(piece), piece) if self._framing == "chunked" else piece
            )
        self._record["sent"].append([act["kind"], before_ns, at_ns])


async def serve(arguments: argparse.Namespace, scripts: Mapping[str, Sequence[Script]]) -> None:
    pace = Pace(arguments.ttft, arguments.itl, arguments.tokens_per_chunk)
    server = FakeOpenAI(scripts, pace, arguments.model)
    raw_socket = socket.create_server((arguments.host, arguments.port), backlog=4096)
    # asyncio does so only for sockets that name their protocol; without it small chunks wait for acknowledgements
    raw_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if arguments.send_buffer:
        raw_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, arguments.send_buffer)
    context = None
    if arguments.cert:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(arguments.cert, arguments.key)
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: HttpSide(server), sock=raw_socket, ssl=context, backlog=4096)
    port = raw_socket.getsockname()[1]
    print(f"fake OpenAI server on {'https' if context else 'http'}://{arguments.host}:{port}", flush=True)
    await listener.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description="A fake OpenAI server with exact delays.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model", default="fake")
    parser.add_argument("--ttft", type=float, default=0.05, help="seconds to the first token")
    parser.add_argument("--itl", type=float, default=0.01, help="seconds between chunks")
    parser.add_argument("--tokens-per-chunk", type=int, default=1)
    parser.add_argument("--scripts", help="a JSON file: key -> list of scripts")
    parser.add_argument("--send-buffer", type=int, help="bytes the system may hold for a client")
    parser.add_argument("--cert")
    parser.add_argument("--key")
    arguments = parser.parse_args()
    scripts = json.loads(Path(arguments.scripts).read_text()) if arguments.scripts else {}
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(arguments, scripts))


# For tests


class FakeServer:
    """A running fake server."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.url = url

    def stamps(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/stamps", timeout=10) as answer:
            return cast(dict[str, Any], json.load(answer))

    def requests(self, key: str) -> list[Record]:
        """What it knows of the requests of a key, in order of arrival."""
        return [record for record in self.stamps()["requests"] if record["key"] == key]


@contextlib.contextmanager
def fake_server(scripts: Mapping[str, Script | Sequence[Script]] | None = None, *options: str) -> Iterator[FakeServer]:
    """options: of the command line, such as "--ttft", "0.01"."""
    lists = {key: [value] if isinstance(value, dict) else list(value) for key, value in (scripts or {}).items()}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scripts.json"
        file.write_text(json.dumps(lists))
        command = [sys.executable, "-m", "tests.support.fake_openai", "--scripts", str(file), *options]
        root = Path(__file__).resolve().parents[2]
        process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            readable, _, _ = select.select([process.stdout], [], [], START_S)
            assert readable, "the fake server did not start"
            line = os.read(process.stdout.fileno(), 4096).decode()
            yield FakeServer(process, line.split()[-1])
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


if __name__ == "__main__":
    main()
