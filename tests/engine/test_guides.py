"""Requests whose grammar is being compiled: they wait, nobody waits for them, and all ways out leave nothing behind."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from forebay.core.grammar_spec import GrammarKind, GrammarSpec
from forebay.core.messages import AddRequest, RequestOutput
from forebay.core.sampling_params import SamplingParams
from forebay.engine.core import EngineCore
from forebay.errors import GrammarError
from tests.engine.test_core import add, assert_empty, run, tokens

MakeCore = Callable[..., EngineCore]
CHOICE = GrammarSpec(kind=GrammarKind.CHOICE, source='["yes", "no"]')
UNENFORCEABLE = GrammarSpec(kind=GrammarKind.JSON_SCHEMA, source='{"not": {"type": "string"}}', param="guided_json")

WIDE = GrammarSpec(
    kind=GrammarKind.JSON_SCHEMA,
    source=json.dumps({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(600)}}),
    param="guided_json",
)  # more ways to go on after "{" than the backend's parser holds: found when the token is accepted
DENSE = GrammarSpec(
    kind=GrammarKind.GRAMMAR,
    source="start: A\nA: /(a|b)*a(a|b){12}/ & /(a|b)*b(a|b){13}/ & ~/(.*)aa(.*)bb(.*){5}/\n",
    param="guided_grammar",
)  # found when a mask is computed


def guided(request_id: str, grammar: GrammarSpec, n: int = 1) -> AddRequest:
    sampling = SamplingParams(temperature=1.0, n=n, grammar=grammar)
    return AddRequest(request_id=request_id, prompt_token_ids=[1, 403], sampling=sampling, max_tokens=8, seed=1,
                      namespace="test", eos_token_ids=(2,), received_ns=1, tokenized_ns=1)  # fmt: skip


def compiled(core: EngineCore) -> list[RequestOutput]:
    outputs: list[RequestOutput] = []
    while core.is_compiling:
        outputs += core.collect()
    return outputs


def test_one_that_waits_lets_others_by_and_then_runs(make_core: MakeCore) -> None:
    core = make_core()
    assert core.add(guided("g", CHOICE, n=2)) == []
    assert core.add(add("plain", [1, 403, 407])) == []
    first = core.step()
    assert first is not None
    assert first.record is not None
    assert [(skip.request_id, skip.reason) for skip in first.record.skipped] == [("g:0", "grammar"), ("g:1", "grammar")]
    outputs = run(core)
    assert len(tokens([*first.outputs, *outputs], "plain")) == 6
    assert tokens(outputs, "g") == []
    assert core.has_work()
    assert compiled(core) == []
    outputs = run(core)
    assert {o.child_index for o in outputs if o.finish_reason == "stop"} == {0, 1}
    kinds = [event.kind for event in outputs[-1].events]
    assert kinds[:5] == ["received", "tokenized", "grammar", "queued", "compiled"]
    assert_empty(core)


def test_one_that_cannot_be_compiled_ends_by_itself(make_core: MakeCore) -> None:
    core = make_core()
    assert core.add(guided("g", UNENFORCEABLE, n=2)) == []
    assert core.add(add("plain", [1, 403, 407])) == []
    failed = sorted(compiled(core), key=lambda output: output.child_index)
    assert [(o.request_id, o.child_index, o.error_code, o.error_param) for o in failed] == [
        ("g", child, GrammarError.code, "guided_json") for child in (0, 1)
    ]
    assert all("/not" in str(o.error) for o in failed)
    assert len(tokens(run(core), "plain")) == 6
    assert_empty(core)


def test_one_that_is_aborted_while_it_waits(make_core: MakeCore) -> None:
    core = make_core()
    assert core.add(guided("g", CHOICE)) == []
    assert [o for o in (core.step(),) if o is not None and o.outputs] == []
    assert [o.finish_reason for o in core.abort(["g"])] == ["abort"]
    assert core.collect() == []
    assert not core.is_compiling
    assert_empty(core)


@pytest.mark.parametrize("grammar", [WIDE, DENSE], ids=["accepting a token", "computing a mask"])
def test_one_that_is_too_complex_half_way_ends_by_itself(make_core: MakeCore, grammar: GrammarSpec) -> None:
    core = make_core()
    assert core.add(guided("g", grammar, n=2)) == []
    assert compiled(core) == []
    assert core.add(add("plain", [1, 403, 407])) == []
    outputs = run(core)
    failed = [o for o in outputs if o.finish_reason == "error"]
    assert [(o.request_id, o.error_code, o.error_param) for o in failed] == [
        ("g", GrammarError.code, grammar.param)
    ] * 2
    assert len(tokens(outputs, "plain")) == 6
    assert_empty(core)
