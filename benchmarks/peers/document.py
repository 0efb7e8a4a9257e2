"""The document that a comparison leaves behind: what was measured now, beside what an earlier run left of the rest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cells
from model_files import BASE_MODEL
from tables import as_markdown

from forebay.bench.facts import command_line, new_result
from forebay.bench.result import Result, read_result, write_result


@dataclass
class Findings:
    """Of one or more stages (cells.stage_name).

    rows: measurements. sweep: those of the sweep. facts: of "STAGE/ENGINE SETTING". rooflines: what the machine could
    do, by stage. unavailable: why an engine, or "STAGE/ENGINE SETTING", is missing.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    sweep: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    rooflines: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    commands: list[list[str]] = field(default_factory=list)

    def joined(self, other: Findings) -> Findings:
        """Both, `other` behind."""
        return Findings(
            rows=[*self.rows, *other.rows],
            sweep=[*self.sweep, *other.sweep],
            facts={**self.facts, **other.facts},
            rooflines={**self.rooflines, **other.rooflines},
            unavailable={**self.unavailable, **other.unavailable},
            commands=[*self.commands, *other.commands],
        )


def file_name(model: str) -> str:
    """Of its document, without the ending."""
    return "peers" if model == BASE_MODEL else f"peers-{model}"


def write(model: str, found: Findings, stages: Iterable[str], folder: Path) -> str:
    """Write the document and its tables; returns these. stages: all that were measured now."""
    path = folder / f"{file_name(model)}.json"
    found.commands.append(command_line())
    result = document(model, earlier(path, set(stages)).joined(found))
    write_result(result, path)
    text = as_markdown(result)
    path.with_suffix(".md").write_text(text)
    return text


def document(model: str, found: Findings) -> Result:
    return new_result(
        "peers",
        label=f"{model} beside other engines",
        reasons=sorted({reason for row in found.rows for reason in row["invalid"]}),
        target={
            "facts": found.facts,
            "sweep": found.sweep,
            "rooflines": found.rooflines,
            "unavailable": found.unavailable,
            "commands": found.commands,
        },
        rows=found.rows,
    )


def earlier(path: Path, measured: set[str]) -> Findings:
    """Of an earlier document what belongs to stages that are not measured now."""
    if not path.exists():
        return Findings()
    before = read_result(path)
    target = before.target

    def kept(named: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in named.items() if name.partition("/")[0] not in measured}

    reasons = {name: reason for name, reason in target.get("unavailable", {}).items() if "/" in name}
    return Findings(
        rows=[row for row in before.rows if cells.stage_of(row) not in measured],
        sweep=[row for row in target["sweep"] if cells.stage_of(row) not in measured],
        facts=kept(target["facts"]),
        rooflines=kept(target.get("rooflines", {})),
        unavailable=kept(reasons),
        commands=target.get("commands", []),
    )
