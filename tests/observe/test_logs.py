from __future__ import annotations

import logging

import pytest

from forebay.errors import ProfileError
from forebay.observe.logs import configure_logs


def test_lines_name_the_process_and_other_loggers_are_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    ours, root = logging.getLogger("forebay"), logging.getLogger()
    before = (ours.handlers[:], ours.level, ours.propagate, root.handlers[:])
    try:
        configure_logs("warning", "engine")
        logging.getLogger("forebay.engine.core").warning("block %d", 3)
        logging.getLogger("forebay.engine.core").info("not shown")
        assert root.handlers == before[3]
    finally:
        ours.handlers[:], ours.level, ours.propagate = before[:3]
    line = capsys.readouterr().err
    assert line.endswith("WARNING engine forebay.engine.core: block 3\n")
    assert line.count("\n") == 1


def test_unknown_level() -> None:
    with pytest.raises(ProfileError, match="must be one of debug, info"):
        configure_logs("loud", "engine")
