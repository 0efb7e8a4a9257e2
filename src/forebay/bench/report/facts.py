"""How to repeat a measurement: every fact that a result document holds, as names with values."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from forebay.bench.report import series, units
from forebay.bench.report.columns import Cell, word
from forebay.bench.report.tables import Table
from forebay.bench.result import Result

_SHOWN = 200  # facts of one kind
_LONGEST = 400  # characters of one fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    label: str
    command: str
    groups: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    load: Table | None


def facts(result: Result) -> Facts:
    groups = (
        ("Measurement", _measurement(result)),
        ("Target", _items(result.target)),
        ("Workload", _items(result.workload)),
        ("Machine", _items(result.machine)),
        ("Versions", _items(result.versions)),
    )
    return Facts(
        label=units.clean(result.label),
        command=units.clean(shlex.join(result.command)) if result.command else "",
        groups=tuple((title, found) for title, found in groups if found),
        load=load_table([result]),
    )


def _measurement(result: Result) -> tuple[tuple[str, str], ...]:
    found = {"kind": result.kind, "created": result.created, "seed": result.seed, "runs": len(result.runs)}
    slo = {} if result.slo is None else {"SLO": result.slo}
    return _items({**found, **slo, "document": f"{result.format} {result.version}"})


def _items(known: dict[str, object] | dict[str, str]) -> tuple[tuple[str, str], ...]:
    found = [(units.clean(key), _said(key, value)) for key, value in series.flat(known).items()]
    shown = [(key, text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…") for key, text in found[:_SHOWN]]
    if len(found) > _SHOWN:
        shown.append(("…", f"{len(found) - _SHOWN} more in the document"))
    return tuple(shown)


def _said(key: str, value: object) -> str:
    if key.endswith("_bytes") and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1e300:
        unit = units.size_unit(value)
        return units.with_unit(units.figure(value, unit), unit)
    return units.plain(value)


def load_table(results: Sequence[Result]) -> Table | None:
    """Who used the processor in each run."""
    rows = []
    for result in results:
        for number, run in enumerate(result.runs[:100], 1):
            load = run.load
            values = [units.duration(load.wall_s), units.number(load.client_cores)]
            values.append("elsewhere" if load.target_cores is None else units.number(load.target_cores))
            shares = (load.foreign_share, load.steal_share)
            values += [units.with_unit(units.number(100 * share, 1), units.PERCENT) for share in shares]
            rows.append((word(number), *map(Cell, values)))
    if not rows:
        return None
    heads = ("run", "wall time", "client, cores", "target, cores", "other programs", "hypervisor")
    note = "Cores: processor seconds a second. Shares: of all processor time of the client's machine."
    return Table(title="Processor use", heads=heads, rows=tuple(rows), note=note)
