"""Which ops are measured at which shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from forebay.bench.ops import cost, subjects
from forebay.bench.ops.cost import Cost
from forebay.bench.ops.model_shape import HEAD, ModelShape
from forebay.bench.ops.subjects import KV_DTYPES, Subject, kv_group
from forebay.bench.ops.synthetic import StepShape
from forebay.errors import BenchError
from forebay.ops.protocol import Ops
from forebay.weights.formats import FORMATS

MARKERS = ("segment", "hidden")  # of the op set, what names parts of the plan and values, and computes nothing
OPS = tuple(name for name in vars(Ops) if not name.startswith("_") and name not in MARKERS)
SAMPLINGS = ("greedy", "greedy with 5 logprobs", "drawn", "drawn with top_p 0.95")

DECODE_ROWS = (1, 8, 32)
PREFILL_ROWS = (256, 512)
CONTEXTS = (128, 1024, 4096)


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the result: an op (`subject`) at a step of a given shape, and what it costs at least."""

    subject: Subject
    step: StepShape
    cost: Cost

    @property
    def words(self) -> str:
        context = f", context {self.step.context}" if self.subject.op == "attention" else ""
        return f"{self.step.words}{context}"


@dataclass(frozen=True, slots=True)
class ShapeSet:
    """steps: for every op but attention; attention_steps: with the contexts it is measured at."""

    steps: tuple[StepShape, ...]
    attention_steps: tuple[StepShape, ...]


def _decode(rows: int, context: int) -> StepShape:
    return StepShape(requests=rows, rows_each=1, context=context)


def _prefill(rows: int, context: int) -> StepShape:
    return StepShape(requests=1, rows_each=rows, context=context)


SHAPE_SETS = {
    "small": ShapeSet((_decode(4, 40), _prefill(16, 16)), (_decode(4, 40), _prefill(16, 40))),
    "decode": ShapeSet(
        tuple(_decode(rows, CONTEXTS[0]) for rows in DECODE_ROWS),
        tuple(_decode(rows, context) for rows in DECODE_ROWS for context in CONTEXTS),
    ),
    "prefill": ShapeSet(
        tuple(_prefill(rows, rows) for rows in PREFILL_ROWS),
        tuple(_prefill(rows, context) for rows in PREFILL_ROWS for context in CONTEXTS if context >= rows),
    ),
}
"""Shape set by name: `small` is measured on a tiny model, the others on the sizes of a real one."""


def check_names(ops: Iterable[str], shapes: Iterable[str]) -> None:
    """Raises BenchError with the nearest name for an op or shape set that is not there."""
    for kind, names, known in (("op", ops, OPS), ("shape", shapes, tuple(SHAPE_SETS))):
        for name in names:
            if name not in known:
                near = get_close_matches(name, known, n=1, cutoff=0.5)
                meant = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
                raise BenchError(f"{kind} {name!r} is not known; {meant}", param=kind)


def cases_of(shape: ModelShape, shape_set: ShapeSet, ops: Iterable[str] = OPS) -> list[Case]:
    """Every case of these ops, those of a subject side by side."""
    return [case for op in ops for case in _MAKERS[op](shape, shape_set)]


def _at_every_step(subject: Subject, shape_set: ShapeSet, cost_of: Callable[[int], Cost]) -> Iterator[Case]:
    return (Case(subject, step, cost_of(step.rows)) for step in shape_set.steps)


def _linears(shape: ModelShape, shape_set: ShapeSet) -> Iterator[Case]:
    """The model's matrices in their own formats, equal ones once; then one of them in every other format."""
    roles: dict[tuple[int, int, str], list[str]] = {}
    for role, matrix in shape.linears.items():
        roles.setdefault(matrix, []).append(role)
    for name in FORMATS:
        other = _in_format(shape, name)
        if other is not None:
            roles.setdefault(other, [_DOWN])
    for (outputs, columns, name), names in roles.items():
        subject = subjects.linear(",".join(names), outputs, columns, name)
        for step in shape_set.steps:
            if names == [HEAD] and step.rows_each > 1:
                continue  # a prompt's chunk has one logit row at most
            yield Case(subject, step, cost.linear(step.rows, outputs, columns, name))


_DOWN = "down"


def _in_format(shape: ModelShape, name: str) -> tuple[int, int, str] | None:
    """The down projection in a format, if its rows fill whole blocks; else the widest matrix that does."""
    sizes = [shape.linears[_DOWN], *sorted(shape.linears.values(), key=lambda matrix: -matrix[1])]
    fitting = (size for size in sizes if size[1] % FORMATS[name].block_size == 0)
    return next(((rows, columns, name) for rows, columns, _ in fitting), None)


def _embed(shape: ModelShape, shape_set: ShapeSet) -> Iterator[Case]:
    subject = subjects.embed(shape)
    return _at_every_step(subject, shape_set, lambda rows: cost.embed(rows, shape.hidden, shape.embed_format))


def _rms_norm(shape: ModelShape, shape_set: ShapeSet) -> Iterator[Case]:
    return _at_every_step(subjects.rms_norm(shape), shape_set, lambda rows: cost.rms_norm(rows, shape.hidden))


def _rope(shape: ModelShape, shape_set: ShapeSet) -> Iterator[Case]:
    def cost_of(rows: int) -> Cost:
        return cost.rope(rows, shape.heads, shape.head_dim, shape.rotary_dim)

    return _at_every_step(subjects.rope(shape), shape_set, cost_of)


def _kv_write(shape: ModelShape, shape_set: ShapeSet) -> Iterator[Case]:
    width = shape.kv_heads * shape.head_dim
    for dtype in KV_DTYPES:
        token_bytes = kv_group(shape, dtype, 1).bytes_per_token()

        def cost_of(rows: int, token_bytes: int = token_bytes) -> Cost:
            return cost.kv_write(rows, width, token_bytes)

        yield from _at_every_step(subjects.kv_write(shape, dtype), shape_set, cost_of)


def _attention(shape: ModelShape, shape_set: ShapeSet) -> Iterator[Case]:
    for dtype in KV_DTYPES:
        subject, token_bytes = subjects.attention(shape, dtype), kv_group(shape, dtype, 1).bytes_per_token()
        for step in shape_set.attention_steps:
            starts = [step.start] * step.requests
            least = cost.attention(starts, step.rows_each, shape.heads * shape.head_dim, token_bytes)
            yield Case(subject, step, least)


def _act_mul(shape: ModelShape, shape_set: ShapeSet) -> Iterator[Case]:
    for activation in ("silu", "gelu_tanh"):

        def cost_of(rows: int, activation: str = activation) -> Cost:
            return cost.act_mul(rows, shape.intermediate, activation)

        yield from _at_every_step(subjects.act_mul(shape, activation), shape_set, cost_of)


def _add(shape: ModelShape, shape_set: ShapeSet) -> Iterator[Case]:
    return _at_every_step(
        subjects.add(shape.hidden), shape_set, lambda rows: cost.elementwise(rows, shape.hidden, 2, 1)
    )


def _scale(shape: ModelShape, shape_set: ShapeSet) -> Iterator[Case]:
    return _at_every_step(
        subjects.scale(shape.hidden), shape_set, lambda rows: cost.elementwise(rows, shape.hidden, 1, 1)
    )


def _of_logit_rows(shape_set: ShapeSet) -> ShapeSet:
    """Steps that have a logit row for every row; a prompt's chunk has one at most."""
    return ShapeSet(tuple(step for step in shape_set.steps if step.rows_each == 1), ())


def _softcap(shape: ModelShape, shape_set: ShapeSet) -> Iterator[Case]:
    return _at_every_step(
        subjects.softcap(shape.vocab),
        _of_logit_rows(shape_set),
        lambda rows: cost.elementwise(rows, shape.vocab, 1, 3),
    )


def _rows(shape: ModelShape, shape_set: ShapeSet) -> Iterator[Case]:
    return _at_every_step(
        subjects.rows(shape.hidden), _of_logit_rows(shape_set), lambda rows: cost.rows(rows, shape.hidden)
    )


def _logits(shape: ModelShape, shape_set: ShapeSet) -> Iterator[Case]:
    for variant in SAMPLINGS:

        def cost_of(rows: int, variant: str = variant) -> Cost:
            return cost.logits(rows, shape.vocab, random="drawn" in variant)

        yield from _at_every_step(subjects.logits(shape.vocab, variant), _of_logit_rows(shape_set), cost_of)


_MAKERS: dict[str, Callable[[ModelShape, ShapeSet], Iterator[Case]]] = {
    "embed": _embed,
    "linear": _linears,
    "rms_norm": _rms_norm,
    "rope": _rope,
    "kv_write": _kv_write,
    "attention": _attention,
    "act_mul": _act_mul,
    "add": _add,
    "scale": _scale,
    "softcap": _softcap,
    "rows": _rows,
    "logits": _logits,
}
