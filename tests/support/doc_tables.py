"""The parts of docs/ that are written from code. `make docs` rewrites them; a test says when they are out of date.

In a document a part stands between `<!-- table: NAME -->` and `<!-- end -->`; `<!-- include: FILE -->` is one that a
benchmark has written to benchmarks/results/.
"""

from __future__ import annotations

import configparser
import json
import re
from collections.abc import Iterator
from pathlib import Path

from forebay import env
from forebay.bench.workload.buckets import BUCKETS
from forebay.cli.bench.workload_flags import workload_parameters
from forebay.errors import ForebayError, SetupError
from forebay.observe.metrics import METRICS
from forebay.profile.schema import SECTIONS
from forebay.profile.settings import settings_of, toml_value
from forebay.server.anthropic.fields import BLOCKS, COUNT_TOKENS_FIELDS, MESSAGES_FIELDS
from forebay.server.openai.fields import (
    CHAT_FIELDS,
    COMPLETION_FIELDS,
    EMBEDDING_FIELDS,
    Field,
    FieldTable,
    Kind,
    refusal,
)
from forebay.server.openai.responses.fields import INPUT_TOKENS_FIELDS, RESPONSE_FIELDS
from forebay.weights.conversion import bits, decide
from forebay.weights.formats import FORMATS
from tests.support.field_tests import TABLES as FIELD_TABLES
from tests.support.field_tests import shown_by

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results"
_INCLUDED = re.compile(r"(<!-- include: ([\w.-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_PART = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def profile_fields() -> Iterator[str]:
    for section, cls in SECTIONS.items():
        yield f"### `[{section}]`"
        yield ""
        yield (cls.__doc__ or "").strip()
        yield ""
        yield from _table("field", "default", "allowed", "meaning")
        for name, s in settings_of(cls).items():
            unit = f" ({s.unit})" if s.unit else ""
            yield _row(f"`{name}`{unit}", f"`{toml_value(s.default)}`", s.wanted(), s.meaning)
        yield ""


def environment() -> Iterator[str]:
    yield from _table("variable", "default", "meaning")
    for variable in env.VARIABLES:
        yield _row(f"`{variable.name}`", variable.default, variable.meaning)


def metrics() -> Iterator[str]:
    yield from _table("metric", "kind", "labels", "meaning")
    for metric in METRICS:
        yield _row(f"`{metric.name}`", metric.kind, ", ".join(metric.labels), metric.help)


def errors() -> Iterator[str]:
    yield from _table("code", "status", "type", "metric label")
    for cls in error_classes():
        if issubclass(cls, SetupError):
            yield _row(f"`{cls.code}`", "exit code 2", "", cls.label)
        else:
            yield _row(f"`{cls.code}`", str(cls.http_status), f"`{cls.error_type}`", cls.label)


def workload_flags() -> Iterator[str]:
    """The flags that every bench command with a workload takes."""
    yield from _table("flag", "default", "meaning")
    for parameter in workload_parameters():
        option = parameter.annotation.__metadata__[0]
        flags = ", ".join(f"`{flag}`" for flag in (option.default, *option.param_decls))
        default = parameter.default
        shown = "" if default is None else ("on" if default else "off") if isinstance(default, bool) else f"`{default}`"
        yield _row(flags, shown, option.help)


def buckets() -> Iterator[str]:
    yield from _table("bucket", "what")
    for bucket in BUCKETS:
        yield _row(f"`{bucket.name}`", bucket.about)


def openai_fields() -> Iterator[str]:
    """Every field of the two generation endpoints: which of them has it, what becomes of it, what shows that."""
    both = COMPLETION_FIELDS | CHAT_FIELDS
    for kind in Kind:
        yield from ["", f"**{kind.value.capitalize()}**", ""]
        yield from _table("field", "completions", "chat", *_FATES[kind])
        for name, f in both.items():
            if f.kind is kind:
                marks = ["yes" if name in table else "" for table in (COMPLETION_FIELDS, CHAT_FIELDS)]
                places = [place for place, mark in zip(("completions", "chat"), marks, strict=True) if mark]
                yield _row(f"`{name}`", *marks, *_fate(f, name, name, places))


def openai_inner_fields() -> Iterator[str]:
    """The same of objects inside the bodies."""
    yield from _table("field", "", "what", "shown by")
    for place, table in list(FIELD_TABLES.items())[2:]:
        for name, f in table.items():
            what = _fate(f, name, f"{place}.{name}", [place])
            yield _row(f"`{place}.{name}`", f.kind.value, *(what if len(what) == 2 else [*what, ""]))


def responses_fields() -> Iterator[str]:
    yield from _fields({"responses": RESPONSE_FIELDS, "input_tokens": INPUT_TOKENS_FIELDS})


def anthropic_fields() -> Iterator[str]:
    yield from _fields({"messages": MESSAGES_FIELDS, "count_tokens": COUNT_TOKENS_FIELDS})


def anthropic_blocks() -> Iterator[str]:
    """What becomes of each kind of content block."""
    yield from _table("block", "", "")
    for name, f in BLOCKS.items():
        yield _row(f"`{name}`", f.kind.value, f.why)


def _fields(tables: dict[str, FieldTable]) -> Iterator[str]:
    """The rows of all tables by kind; a column for each table says which fields it has."""
    rows = {name: field for table in tables.values() for name, field in table.items()}
    for kind in Kind:
        neutral = ["passes"] if kind is Kind.REFUSED else []
        yield from ["", f"**{kind.value.capitalize()}**", ""]
        yield from _table("field", *tables, *neutral, "")
        for name, f in rows.items():
            if f.kind is kind:
                marks = ["yes" if name in table else "" for table in tables.values()]
                passes = [" ".join(f"`{json.dumps(value)}`" for value in f.neutral)] if neutral else []
                yield _row(f"`{name}`", *marks, *passes, f.why)


_FATES = {Kind.USED: ("what", "shown by"), Kind.NOTED: ("what", "shown by"), Kind.REFUSED: ("the error",)}


def _fate(field: Field, name: str, path: str, places: list[str]) -> list[str]:
    """What the table says of a field and the tests that show it; of a refused one the error."""
    if field.kind is Kind.REFUSED:
        return [refusal(path, field)]
    tests = dict.fromkeys(filter(None, (shown_by(place, name) for place in places)))
    names = [f"[{test.rpartition('::')[2]}](../{test.partition('::')[0]})" for test in tests]
    return [field.why, ", ".join(names)]


def embedding_fields() -> Iterator[str]:
    yield from _table("field", "", "")
    for name, f in EMBEDDING_FIELDS.items():
        yield _row(f"`{name}`", f.kind.value, f.why)


def weight_conversions() -> Iterator[str]:
    """What `model.weights` makes of a matrix; after the comma of the embedding and the head, where that differs."""
    yield from _table("in the file", "bits", "`int8`", "`int4`", "`bf16`", "`f32`")
    for name, fmt in FORMATS.items():
        cells = []
        for asked in ("int8", "int4", "bf16", "f32"):
            found = [decide(asked, fmt, fmt.block_size * 32, outer=outer)[0] for outer in (False, True)]
            shown = ["as stored" if target is None else f"`{target.name}`" for target in found]
            cells.append(", ".join(dict.fromkeys(shown)))
        yield _row(f"`{name}`", f"{bits(fmt):g}", *cells)


def layers() -> Iterator[str]:
    """The packages of .importlinter, top to bottom; those in brackets there may not exist yet."""
    config = configparser.ConfigParser()
    config.read(REPOSITORY / ".importlinter")
    yield "```text"
    yield from config["importlinter:contract:layers"]["layers"].strip().splitlines()
    yield "```"


def error_classes() -> list[type[ForebayError]]:
    """All classes of errors.py with a code of their own, parents first."""
    found: list[type[ForebayError]] = []
    pending: list[type[ForebayError]] = [ForebayError]
    while pending:
        cls = pending.pop(0)
        if "code" in cls.__dict__:
            found.append(cls)
        pending.extend(cls.__subclasses__())
    return found


TABLES = {
    f.__name__: f
    for f in (
        profile_fields,
        environment,
        metrics,
        errors,
        openai_fields,
        responses_fields,
        anthropic_fields,
        anthropic_blocks,
        openai_inner_fields,
        embedding_fields,
        layers,
        workload_flags,
        buckets,
        weight_conversions,
    )
}


def up_to_date(document: str) -> str:
    """`document` with each part as it should be."""
    made = _PART.sub(lambda m: m[1] + "\n".join(TABLES[m[2]]()).rstrip() + "\n" + m[3], document)
    return _INCLUDED.sub(lambda m: m[1] + (RESULTS / m[2]).read_text("utf-8").rstrip() + "\n" + m[3], made)


def documents() -> list[Path]:
    return [*sorted((REPOSITORY / "docs").rglob("*.md")), REPOSITORY / "README.md"]


def _table(*heads: str) -> list[str]:
    return [_row(*heads), "|" + "---|" * len(heads)]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    for path in documents():
        before = path.read_text("utf-8")
        if (after := up_to_date(before)) != before:
            path.write_text(after, "utf-8")
            print(f"wrote {path.relative_to(REPOSITORY)}")
