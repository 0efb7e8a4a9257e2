"""A Hugging Face hub on 127.0.0.1: model info, resolve URLs and a separate file store, as the real one answers.

Each path can be given faults, used up one per request: an HTTP status, "cut" (half the body), "flip" (one bit), "drop"
(the connection closes without an answer).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


@dataclass
class FakeHub:
    """repo: its id. files: name -> content. lfs: names kept in the file store. requests: (path, authorization)."""

    repo: str = "owner/tiny"
    revisions: dict[str, str] = field(default_factory=lambda: {"main": COMMIT})
    files: dict[str, bytes] = field(default_factory=dict)
    lfs: set[str] = field(default_factory=set)
    tell_blobs: bool = True  # sizes and digests in the model info
    store_url: str = ""
    token: str | None = None
    faults: dict[str, list[int | str]] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""

    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]

    def info(self, commit: str) -> dict[str, object]:
        siblings = []
        for name, content in self.files.items():
            sibling: dict[str, object] = {"rfilename": name}
            if self.tell_blobs:
                sibling |= {"size": len(content), "blobId": git_oid(content)}
                if name in self.lfs:
                    sha256 = hashlib.sha256(content).hexdigest()
                    sibling |= {"lfs": {"sha256": sha256, "size": len(content), "pointerSize": 130}, "blobId": "0" * 40}
            siblings.append(sibling)
        return {"_id": "1", "id": self.repo, "modelId": self.repo, "sha": commit, "siblings": siblings}

    def tree(self) -> list[dict[str, object]]:
        """What the real client lists files with."""
        entries = []
        for name, content in self.files.items():
            entry: dict[str, object] = {"type": "file", "path": name, "size": len(content), "oid": git_oid(content)}
            if name in self.lfs:
                sha256 = hashlib.sha256(content).hexdigest()
                entry |= {"lfs": {"oid": sha256, "size": len(content), "pointerSize": 130}}
            entries.append(entry)
        return entries


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub

    def do_HEAD(self) -> None:
        self._route()

    def do_GET(self) -> None:
        self._route()

    def _route(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        hub.requests.append((path, self.headers.get("Authorization")))
        faults = hub.faults.get(path, [])
        fault = faults.pop(0) if faults else None
        if isinstance(fault, int):
            self._answer(fault, b"{}")
        elif fault == "drop":
            self.close_connection = True
        elif path.startswith("/store/"):
            self._answer(200, hub.files[path.removeprefix("/store/")], fault)
        elif hub.token is not None and self.headers.get("Authorization") != f"Bearer {hub.token}":
            self._answer(401, b"{}")
        elif path.startswith(f"/api/models/{hub.repo}/revision/"):
            self._info(path.removeprefix(f"/api/models/{hub.repo}/revision/"), fault)
        elif path.startswith(f"/api/models/{hub.repo}/tree/"):
            self._answer(200, json.dumps(hub.tree()).encode())
        elif path.startswith(f"/{hub.repo}/resolve/"):
            revision, _, name = path.removeprefix(f"/{hub.repo}/resolve/").partition("/")
            self._resolve(revision, name, fault)
        else:
            self._answer(404, b"{}")

    def _info(self, revision: str, fault: str | None) -> None:
        commit = self.hub.revisions.get(revision, revision if revision in self.hub.revisions.values() else None)
        if commit is None:
            self._answer(404, b"{}")
        else:
            self._answer(200, json.dumps(self.hub.info(commit)).encode(), fault)

    def _resolve(self, revision: str, name: str, fault: str | None) -> None:
        hub = self.hub
        commit = hub.revisions.get(revision, revision)
        if commit not in hub.revisions.values() or name not in hub.files:
            self._answer(404, b"{}")
            return
        content = hub.files[name]
        headers = {"X-Repo-Commit": commit}
        if name in hub.lfs:
            headers["Location"] = f"{hub.store_url}/store/{name}"
            headers["X-Linked-Size"] = str(len(content))
            headers["X-Linked-Etag"] = f'"{hashlib.sha256(content).hexdigest()}"'
            self._answer(302, b"", None, headers)
        else:
            self._answer(200, content, fault, headers | {"ETag": f'"{git_oid(content)}"'})

    def _answer(
        self, status: int, body: bytes, fault: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if fault == "flip":
            body = body[:-1] + bytes([body[-1] ^ 1])
        if self.command == "GET":
            self.wfile.write(body[: len(body) // 2] if fault == "cut" else body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serve_hub() -> Iterator[FakeHub]:
    hub = FakeHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    hub.store_url = f"http://localhost:{server.server_port}"  # another host, as the real file store is
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
