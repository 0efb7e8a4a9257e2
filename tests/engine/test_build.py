"""The composition root: every resolved value keeps the reason of whoever decided it."""

from __future__ import annotations

import pytest

from forebay.engine.build import assemble
from forebay.profile import load_profile
from tests.support.shared import shared_path


@pytest.mark.parametrize(
    ("settings", "name", "says"),
    [
        ({"backend.name": "native"}, "backend.threads", "this process may use"),
        ({"backend.name": "native", "backend.threads": 1}, "backend.threads", "given by the profile"),
        ({"backend.name": "native"}, "backend.isa", "the best of"),
        ({"backend.name": "native", "backend.isa": "generic"}, "backend.isa", "given by the profile"),
        ({"backend.name": "reference", "backend.threads": 7}, "backend.threads", "runs on one thread"),
    ],
)
def test_reasons(settings: dict[str, object], name: str, says: str) -> None:
    source = str(shared_path("models/stories260K/hf"))
    resolved = assemble(load_profile(None, {"source": source, **settings})).resolved
    assert says in resolved.reasons[name]
