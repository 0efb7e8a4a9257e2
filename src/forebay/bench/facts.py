"""What a result document says about where and with what it was made."""

from __future__ import annotations

import dataclasses
import datetime
import sys
from collections.abc import Iterable
from importlib import metadata
from typing import Any

import msgspec

from forebay.bench.machine_load import invalid_reasons
from forebay.bench.result import LoadFacts, Result
from forebay.profile import read_machine
from forebay.version import package_version

PACKAGES = ("numpy", "msgspec", "uvloop", "httptools")


def new_result(
    kind: str,
    *,
    label: str = "",
    seed: int = 0,
    loads: Iterable[LoadFacts] = (),
    in_process: bool = False,
    reasons: Iterable[str] = (),
    **fields: Any,
) -> Result:
    """A Result with machine, versions, command and validity filled in.

    loads: of each run; what stands against them, and `reasons`, make it invalid. fields: further ones of Result.
    """
    against = list(dict.fromkeys([*reasons, *invalid_reasons(list(loads), in_process=in_process)]))
    facts = read_machine()
    machine = {**dataclasses.asdict(facts), "isa_flags": list(facts.isa_flags)}
    return Result(
        kind=kind,
        label=_text(label or kind),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        seed=seed,
        command=command_line(),
        machine=machine,
        versions={"forebay": package_version(), "python": machine["python"], **dict(_versions())},
        valid=not against,
        invalid_reasons=against,
        **fields,
    )


def against(result: Result, reasons: Iterable[str]) -> Result:
    """The same with further reasons, if there are any."""
    found = [*result.invalid_reasons, *reasons]
    return msgspec.structs.replace(result, valid=not found, invalid_reasons=found)


def command_line() -> list[str]:
    """How this process was called, without the path to the program. Secrets are left out."""
    words = ["forebay" if index == 0 else word for index, word in enumerate(sys.argv)]
    hidden = ("--api-key", "--header")
    shown: list[str] = []
    for word in words:
        if shown and shown[-1] in hidden:
            word = "***"
        elif word.startswith(tuple(f"{name}=" for name in hidden)):
            word = f"{word.partition('=')[0]}=***"
        shown.append(_text(word))
    return shown


def _text(word: str) -> str:
    """Without the bytes of a command line that are no text, which JSON could not hold."""
    return word.encode("utf-8", "replace").decode()


def _versions() -> Iterable[tuple[str, str]]:
    for package in PACKAGES:
        try:
            yield package, metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
