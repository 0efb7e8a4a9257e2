"""A bare HTTP client for tests that send many requests, or bytes that no library would send."""

from __future__ import annotations

import http.client
import json
from typing import Any


class PlainClient:
    """One connection, for one thread."""

    def __init__(self, address: tuple[str, int], timeout_s: float = 20.0) -> None:
        self._connection = http.client.HTTPConnection(*address, timeout=timeout_s)

    def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer."""
        self._connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        return response.status, response.read()

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        status, answer = self.post(path, json.dumps(body).encode())
        assert status == 200, answer
        found: dict[str, Any] = json.loads(answer)
        return found

    def events(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The events of a stream, which must end as it should."""
        status, answer = self.post(path, json.dumps(body | {"stream": True}).encode())
        assert status == 200, answer
        *events, done, rest = answer.decode().split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        return [json.loads(event.removeprefix("data: ")) for event in events]

    def models(self) -> list[str]:
        """The names of what is served."""
        self._connection.request("GET", "/v1/models")
        return [card["id"] for card in json.loads(self._connection.getresponse().read())["data"]]

    def close(self) -> None:
        self._connection.close()
