"""What a front end tells the engine process it starts. Definitions only: neither end imports the other."""

from __future__ import annotations

from typing import Any

import msgspec

from forebay.executor.faults import Fault


class SpawnOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One line of JSON on the standard input of `python -m forebay.engine.process`.

    profile: dotted name -> value. hang_limit_s: a longer step is logged with all stacks. fault: for tests.
    """

    profile: dict[str, Any]
    input_address: str
    output_address: str
    parent_pid: int
    log_level: str = "info"
    hang_limit_s: float = 60.0
    fault: Fault | None = None
