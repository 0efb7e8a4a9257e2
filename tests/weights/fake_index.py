"""A package index on 127.0.0.1 that serves wheels the tests make, and can spoil what it serves."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


def wheel_name(name: str, version: str) -> str:
    return f"{name.replace('-', '_')}-{version}-py3-none-any.whl"


def record_line(path: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(content)}\n"


def make_wheel(name: str, version: str, files: dict[str, bytes], *, record: str | None = None) -> bytes:
    """A wheel that pip accepts, holding `files`. record: the text of RECORD where it should not be the true one."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    content = {
        **files,
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if record is None:
        record = "".join(record_line(path, data) for path, data in content.items()) + f"{info}/RECORD,,\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, data in content.items():
            archive.writestr(path, data)
        archive.writestr(f"{info}/RECORD", record)
    return buffer.getvalue()


@dataclass
class FakeIndex:
    """wheels: file name -> what to serve, one entry per request, the last for ever. downloads: names served."""

    wheels: dict[str, list[bytes]] = field(default_factory=dict)
    downloads: list[str] = field(default_factory=list)
    url: str = ""

    def add(self, name: str, version: str, *contents: bytes) -> None:
        self.wheels[wheel_name(name, version)] = list(contents)


@contextmanager
def serve_index() -> Iterator[FakeIndex]:
    index = FakeIndex()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rsplit("/", 1)[-1]
            if name in index.wheels:
                index.downloads.append(name)
                contents = index.wheels[name]
                self._answer(contents.pop(0) if len(contents) > 1 else contents[0], "application/octet-stream")
            else:
                links = "".join(f'<a href="/files/{wheel}">{wheel}</a>' for wheel in index.wheels)
                self._answer(f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), "text/html")

        def _answer(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index.url = f"http://127.0.0.1:{server.server_port}/simple"
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
