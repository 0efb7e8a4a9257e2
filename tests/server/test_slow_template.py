"""A chat template that takes long holds up its own request and no other."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.server.conftest import TINY_FLAGS
from tests.support.server_process import running_server

SLOW = "{% for i in range(40) %}{% for j in range(20000) %}{% endfor %}{% endfor %}hello"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
def test_others_are_served_meanwhile(path: str, tiny_model: Path, tmp_path: Path) -> None:
    model = shutil.copytree(tiny_model, tmp_path / "slow")
    (model / "chat_template.jinja").write_text(SLOW)
    with running_server([str(model), *TINY_FLAGS], tmp_path / "log") as server:
        body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "model": "slow"}
        statuses: list[int] = []

        def ask() -> None:
            fields = body if path != "/tokenize" else {"messages": body["messages"]}
            statuses.append(httpx.post(server.url + path, json=fields, timeout=60).status_code)

        began = time.monotonic()
        thread = threading.Thread(target=ask)
        thread.start()
        waits = []
        with httpx.Client(base_url=server.url) as client:
            while thread.is_alive():
                asked = time.monotonic()
                assert client.get("/health").status_code == 200
                waits.append(time.monotonic() - asked)
        thread.join()
        assert statuses == [200]
        assert max(waits) < 0.5 * (time.monotonic() - began)
