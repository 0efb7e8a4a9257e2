"""One-line logs on standard error: time, level, process role, logger, message."""

from __future__ import annotations

import logging
import sys

from forebay.env import LOG_LEVELS
from forebay.errors import ProfileError


def configure_logs(level: str, role: str) -> None:
    """Send the `forebay` loggers to standard error. `role` names the process ("server", "engine").

    Only our own loggers are touched: a program that embeds Forebay keeps its logging. Raises ProfileError for an
    unknown level.
    """
    if level.lower() not in LOG_LEVELS:
        raise ProfileError(f"log level must be one of {', '.join(LOG_LEVELS)}, got {level!r}", param="log_level")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)-7s {role} %(name)s: %(message)s"))
    logger = logging.getLogger("forebay")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
