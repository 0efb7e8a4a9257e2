"""The scripts import each other by their file names, as they do when they are run."""

from __future__ import annotations

import sys

from tests.support.doc_tables import REPOSITORY

sys.path.append(str(REPOSITORY / "benchmarks" / "peers"))
