"""Sampling and log-probabilities: exact filters and ties, one distribution, the same draw on every instruction set."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.ops.native import sample
from forebay.ops.protocol import StepOutputs
from forebay.ops.reference import sample as reference
from forebay.ops.tensor import F32Array
from tests.ops.harness import ISAS, bits, logit_edits, sample_batch

EVERY_ISA = pytest.mark.parametrize("isa", ISAS)


def draws(logits: F32Array, isa: str, count: int, **columns: Any) -> np.ndarray:
    """Tokens of `count` output positions for one row of logits."""
    batch = sample_batch(count, output_position=np.arange(count), **columns)
    return sample(np.tile(logits, (count, 1)), batch, isa).token


def random_logits(rows: int, vocab: int, seed: int = 0, decimals: int | None = None) -> F32Array:
    logits = np.random.default_rng(seed).standard_normal((rows, vocab)) * 3
    return (logits if decimals is None else np.round(logits, decimals)).astype(np.float32)


def same(a: StepOutputs, b: StepOutputs) -> bool:
    return bool(
        (a.token == b.token).all()
        and (a.ok == b.ok).all()
        and (a.top_ids == b.top_ids).all()
        and (bits(a.logprob) == bits(b.logprob)).all()
        and (bits(a.top_logprobs) == bits(b.top_logprobs)).all()
    )


@EVERY_ISA
@pytest.mark.parametrize("vocab", [1, 15, 16, 17, 63, 64, 65, 128, 1009])
def test_greedy_takes_the_lowest_of_the_best(isa: str, vocab: int) -> None:
    logits = random_logits(40, vocab, decimals=0)  # full of ties
    out = sample(logits, sample_batch(40), isa)
    assert (out.token == logits.argmax(axis=1)).all()
    assert out.ok.all()
    assert np.isnan(out.logprob).all()


@EVERY_ISA
@pytest.mark.parametrize("temperature", [1e-45, 1e-40, 1e-38, 1e-31])
def test_a_temperature_too_small_to_divide_by_is_greedy(isa: str, temperature: float) -> None:
    logits = random_logits(40, 64)
    batch = sample_batch(40, temperature=temperature, output_position=np.arange(40))
    assert (sample(logits, batch, isa).token == logits.argmax(axis=1)).all()
    assert (reference.sample(logits, batch).token == logits.argmax(axis=1)).all()


@EVERY_ISA
@pytest.mark.parametrize("k", [1, 2, 5, 37])
def test_top_k_keeps_exactly_k_by_logit_then_id(isa: str, k: int) -> None:
    logits = random_logits(1, 100, seed=k, decimals=0)
    kept = set(np.argsort(-logits[0], kind="stable")[:k].tolist())
    seen = set(draws(logits, isa, 6000, temperature=4.0, top_k=k).tolist())
    assert seen <= kept
    assert k > 5 or seen == kept


@EVERY_ISA
def test_top_p_keeps_the_shortest_prefix(isa: str) -> None:
    logits = np.log(np.array([[0.1, 0.4, 0.05, 0.3, 0.15]], np.float32))
    for top_p, kept in [
        (0.01, {1}),
        (0.39, {1}),
        (0.5, {1, 3}),
        (0.75, {1, 3, 4}),
        (0.9, {1, 3, 4, 0}),
        (0.99, {0, 1, 2, 3, 4}),
    ]:
        assert set(draws(logits, isa, 2000, temperature=1.0, top_p=top_p).tolist()) == kept


@EVERY_ISA
def test_min_p_drops_what_is_weaker(isa: str) -> None:
    logits = np.log(np.array([[0.1, 0.4, 0.05, 0.3, 0.15]], np.float32))
    assert set(draws(logits, isa, 2000, temperature=1.0, min_p=0.3).tolist()) == {1, 3, 4}
    assert set(draws(logits, isa, 200, temperature=1.0, min_p=0.99).tolist()) == {1}


def chi_square(tokens: np.ndarray, probability: np.ndarray) -> float:
    """(chi2 - dof) / sqrt(2 dof): about standard normal when the draws follow `probability`."""
    expected = probability * len(tokens)
    used = expected > 0
    counts = np.bincount(tokens, minlength=len(probability))
    assert (counts[~used] == 0).all()
    chi2 = float((((counts - expected) ** 2)[used] / expected[used]).sum())
    dof = int(used.sum()) - 1
    return (chi2 - dof) / (2 * dof) ** 0.5


@EVERY_ISA
@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"top_k": 9},
        {"top_p": 0.9},
        {"min_p": 0.05},
        {"top_k": 12, "top_p": 0.8, "min_p": 0.1},
        {"typical_p": 0.6},
        {"typical_p": 0.7, "top_p": 0.9},
        {"typical_p": 0.5, "top_k": 20, "min_p": 0.02},
    ],
    ids=str,
)
def test_draws_follow_the_distribution(isa: str, filters: dict[str, Any]) -> None:
    logits = random_logits(1, 33, seed=11) * np.float32(0.5)
    token, weight = reference.candidates(
        logits[0],
        0.8,
        filters.get("top_k", 0),
        np.float32(filters.get("top_p", 1)),
        filters.get("min_p", 0),
        filters.get("typical_p", 1),
    )
    exact = np.zeros(33)
    exact[token] = weight / weight.sum(dtype=np.float64)
    tokens = draws(logits, isa, 40000, temperature=0.8, seed=5, **filters)
    assert abs(chi_square(tokens, exact)) < 4


@EVERY_ISA
def test_children_seeds_and_positions_draw_apart(isa: str) -> None:
    logits = np.zeros((4000, 64), np.float32)
    position = np.arange(4000)
    base = sample(logits, sample_batch(4000, temperature=1.0, output_position=position), isa).token
    again = sample(logits, sample_batch(4000, temperature=1.0, output_position=position), isa).token
    assert (again == base).all()
    for changed in ({"child": 1}, {"seed": 1}, {"seed": 2**63 + 1}, {"seed": 2**32}):
        other = sample(logits, sample_batch(4000, temperature=1.0, output_position=position, **changed), isa).token
        assert abs((other == base).mean() - 1 / 64) < 0.01


def test_equals_the_reference_draw_for_draw() -> None:
    rng = np.random.default_rng(3)
    rows, vocab = 300, 517
    logits = random_logits(rows, vocab, seed=9, decimals=1)
    batch = sample_batch(
        rows,
        temperature=rng.choice([0.0, 0.3, 0.8, 1.5], rows),
        top_k=rng.choice([0, 1, 7, 517, 900], rows),
        top_p=rng.choice([1.0, 0.95, 0.5], rows),
        min_p=rng.choice([0.0, 0.02], rows),
        typical_p=rng.choice([1.0, 1.0, 0.9, 0.4], rows),
        seed=rng.integers(0, 2**63, rows),
        child=rng.integers(0, 4, rows),
        output_position=rng.integers(0, 999, rows),
        num_logprobs=rng.integers(-1, 6, rows),
    )
    wanted = reference.sample(logits, batch)
    for isa in ISAS:
        got = sample(logits, batch, isa)
        assert (got.token == wanted.token).mean() > 0.99  # numpy's exp may move a weight by an ulp, and so a tie
        assert (got.top_ids == wanted.top_ids).all()
        np.testing.assert_allclose(got.top_logprobs, wanted.top_logprobs, rtol=1e-5, atol=1e-5)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**32),
    st.integers(1, 700),
    st.floats(0.01, 5),
    st.integers(0, 800),
    st.floats(0.01, 1),
    st.floats(0, 0.9),
    st.sampled_from([None, 0, 1]),
)
def test_every_instruction_set_agrees(
    seed: int, vocab: int, temperature: float, top_k: int, top_p: float, min_p: float, decimals: int | None
) -> None:
    logits = random_logits(4, vocab, seed, decimals)
    batch = sample_batch(
        4,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        num_logprobs=3,
        output_position=[0, 1, 2, 3],
    )
    wanted = sample(logits, batch, "generic")
    assert all(same(sample(logits, batch, isa), wanted) for isa in ISAS)


@EVERY_ISA
def test_filters_that_keep_everything_change_nothing(isa: str) -> None:
    """The listed race and the race over the whole vocabulary are one race."""
    logits = random_logits(1, 300, seed=4)
    plain = draws(logits, isa, 500, temperature=1.0)
    assert (draws(logits, isa, 500, temperature=1.0, top_k=300) == plain).all()
    assert (draws(logits, isa, 500, temperature=1.0, top_k=299) != plain).sum() < 5
    assert (draws(logits, isa, 500, temperature=1.0, top_p=0.9999999) != plain).sum() < 5


# From nearly greedy, where hardly a block is looked at, to so flat that a nucleus holds hundreds of tokens.
TEMPERATURES = [0.03, 0.4, 1.0, 4.0]
FILTERS: list[dict[str, Any]] = [{}, {"top_p": 0.3}, {"top_p": 0.95}, {"min_p": 0.02}, {"top_p": 0.9, "min_p": 0.1}]


@EVERY_ISA
@pytest.mark.parametrize("vocab", [2, 15, 63, 64, 65, 127, 128, 129, 1009])
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_listed_candidates_and_the_whole_row_run_one_race(isa: str, vocab: int, temperature: float) -> None:
    """top_k that leaves out only a token without weight lists and sorts all others, and changes nothing."""
    logits = random_logits(1, vocab, seed=vocab, decimals=1)
    logits[0, vocab // 2] = -np.inf
    for filters in FILTERS:
        whole = draws(logits, isa, 200, temperature=temperature, seed=8, **filters)
        listed = draws(logits, isa, 200, temperature=temperature, seed=8, top_k=vocab - 1, **filters)
        assert (whole == listed).all()


@EVERY_ISA
@pytest.mark.parametrize("vocab", [49152, 151936])
def test_long_vocabularies_run_the_same_race(isa: str, vocab: int) -> None:
    logits = random_logits(1, vocab, seed=vocab)
    logits[0, 7] = -np.inf
    for filters in FILTERS:
        whole = draws(logits, isa, 3, temperature=2.0, seed=8, **filters)
        assert (whole == draws(logits, isa, 3, temperature=2.0, seed=8, top_k=vocab - 1, **filters)).all()
        assert (whole == draws(logits, "generic", 3, temperature=2.0, seed=8, **filters)).all()


@EVERY_ISA
@pytest.mark.parametrize("top_p", [1e-38, 0.01, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("top_k", [0, 1, 100, 2999])
def test_ties_equal_the_reference_exactly(isa: str, top_p: float, top_k: int) -> None:
    """Weights are exactly 1 or 0, so that only order, filters and the random numbers decide."""
    logits = np.where(np.random.default_rng(2).random((40, 3000)) < 0.4, np.float32(-np.inf), np.float32(1.5))
    batch = sample_batch(40, temperature=0.7, top_p=top_p, top_k=top_k, seed=3, output_position=np.arange(40))
    assert (sample(logits, batch, isa).token == reference.sample(logits, batch).token).all()


@EVERY_ISA
def test_scaled_logits_that_round_together_are_ties(isa: str) -> None:
    """The best logit need not come first among candidates: divided by so large a temperature many are equal."""
    logits = (1e-6 * random_logits(40, 700)).astype(np.float32)
    for top_p in (0.2, 0.6):
        batch = sample_batch(40, temperature=3e38, top_p=top_p, output_position=np.arange(40))
        wanted = reference.sample(logits, batch).token
        assert (wanted != logits.argmax(axis=1)).any()
        assert (sample(logits, batch, isa).token == wanted).all()


@EVERY_ISA
@pytest.mark.parametrize("filters", [{"top_k": 1}, {"top_p": 1e-38}, {"min_p": 1.0}], ids=str)
@pytest.mark.parametrize("vocab", [1, 64, 1000])
def test_one_candidate_is_always_drawn(isa: str, vocab: int, filters: dict[str, Any]) -> None:
    logits = random_logits(1, vocab, seed=5)
    assert (draws(logits, isa, 50, temperature=5.0, **filters) == logits.argmax()).all()


@EVERY_ISA
@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_the_only_token_left_by_a_mask_is_drawn(isa: str, filters: dict[str, Any]) -> None:
    logits = np.full((1, 777), -np.inf, np.float32)
    logits[0, 776] = -3.0
    assert (draws(logits, isa, 50, temperature=1.0, **filters) == 776).all()


@EVERY_ISA
def test_logits_too_large_for_the_temperature_are_greedy(isa: str) -> None:
    logits = 1e30 * random_logits(5, 100)
    batch = sample_batch(5, temperature=1e-20, top_p=[1.0, 0.5, 1.0, 0.5, 1.0], top_k=[0, 0, 5, 5, 0])
    assert (sample(logits, batch, isa).token == logits.argmax(axis=1)).all()


@EVERY_ISA
@pytest.mark.parametrize("count", [1, 48, 64, 65, 300])
def test_the_best_are_found_among_ties_however_many_are_asked(isa: str, count: int) -> None:
    logits = random_logits(3, 2001, seed=count, decimals=0)
    logits[1] = 0.0
    logits[2, ::2] = -0.0
    logits[2, 1::2] = 0.0
    out = sample(logits, sample_batch(3, num_logprobs=count), isa)
    assert (out.top_ids == np.argsort(-logits, axis=1, kind="stable")[:, :count]).all()
    assert (out.token == logits.argmax(axis=1)).all()


@EVERY_ISA
def test_logprobs_are_the_models_own_distribution(isa: str) -> None:
    logits = random_logits(9, 1001, seed=6, decimals=1)
    batch = sample_batch(9, temperature=0.5, top_k=3, num_logprobs=[-1, 0, 1, 2, 3, 4, 5, 20, 20])
    out = sample(logits, batch, isa)
    exact = logits - np.log(np.exp(logits.astype(np.float64)).sum(axis=1, keepdims=True))
    order = np.argsort(-logits, axis=1, kind="stable")
    for row, count in enumerate(batch.num_logprobs):
        wanted = order[row, : max(count, 0)]
        assert (out.top_ids[row, : len(wanted)] == wanted).all()
        assert (out.top_ids[row, len(wanted) :] == -1).all()
        assert np.isnan(out.top_logprobs[row, len(wanted) :]).all()
        np.testing.assert_allclose(out.top_logprobs[row, : len(wanted)], exact[row, wanted], atol=2e-5)
    assert np.isnan(out.logprob[0])
    np.testing.assert_allclose(out.logprob[1:], exact[np.arange(9), out.token][1:], atol=2e-5)


@EVERY_ISA
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_bad_rows_are_reported_and_masked_ids_are_fine(isa: str, temperature: float) -> None:
    logits = random_logits(6, 50)
    logits[1, 49], logits[2, 3], logits[3] = np.nan, np.inf, -np.inf
    logits[4, :40] = -np.inf
    out = sample(logits, sample_batch(6, temperature=temperature, num_logprobs=2), isa)
    assert out.ok.tolist() == [True, False, False, False, True, True]
    assert (out.token[4:5] >= 40).all()
    assert ((out.token >= 0) & (out.token < 50)).all()


@EVERY_ISA
def test_no_rows(isa: str) -> None:
    out = sample(np.zeros((0, 8), np.float32), sample_batch(0), isa)
    assert out.token.shape == (0,)


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="temperature has 2 entries, expected 3"):
        sample(np.zeros((3, 8), np.float32), sample_batch(2))
    with pytest.raises(ValueError, match="logit row 0"):
        sample(np.zeros((1, 8), np.float32), sample_batch(1, top_p=0.0))


@EVERY_ISA
def test_typical_p_keeps_what_is_nearest_to_the_mean_information(isa: str) -> None:
    """By the paper's own words: |-log p - H|, ascending, until the mass is reached."""
    p = np.array([0.5, 0.2, 0.15, 0.1, 0.04, 0.01])
    distance = np.abs(-np.log(p) + (p * np.log(p)).sum())
    order = np.argsort(distance)
    assert order[0] != 0  # the best token is not the most typical one
    for mass in (0.05, 0.3, 0.5, 0.8, 0.97):
        kept = order[: int(np.searchsorted(np.cumsum(p[order]), mass)) + 1]
        seen = draws(np.log(p).astype(np.float32)[None], isa, 6000, temperature=1.0, typical_p=mass)
        assert set(seen.tolist()) == set(kept.tolist())


@EVERY_ISA
@pytest.mark.parametrize("vocab", [5, 64, 1009, 5003])
def test_typical_p_of_a_whole_vocabulary_is_the_references(isa: str, vocab: int) -> None:
    logits = random_logits(12, vocab, seed=vocab, decimals=2)
    batch = sample_batch(12, temperature=1.3, typical_p=np.linspace(0.05, 0.99, 12), output_position=np.arange(12))
    assert (sample(logits, batch, isa).token == reference.sample(logits, batch).token).all()


@EVERY_ISA
def test_edits_change_logits_as_they_say(isa: str) -> None:
    """One row per rule; greedy shows which logit won."""
    logits = np.array([[3.0, 2.5, -1.0, 0.5]] * 7, np.float32)
    rows = [
        [(0, 0, 0.0)],  # seen in the prompt: 3 / 1.5 = 2 < 2.5
        [(0, 1, 0.0)],  # once in the output, presence and frequency: 3 - 0.4 - 0.3 = 2.3 < 2.5
        [(0, -1, 0.0), (1, -1, -1.0)],  # bias only: 0 stays the best
        [(3, -1, 3.0)],  # 0.5 + 3 > 3
        [(0, -1, -np.inf), (1, -1, -np.inf)],  # both barred
        [(2, 2, 100.0)],  # penalties first, then the bias
        [],  # nothing
    ]
    edits = logit_edits(
        rows,
        vocab=4,
        repetition=[1.5, 1, 2, 1, 1, 2, 2],
        presence=[0, 0.4, 0, 0, 0, 1, 1],
        frequency=[0, 0.3] + [0.5] * 5,
    )
    out = sample(logits, sample_batch(7, edits=edits, num_logprobs=4), isa)
    assert out.token.tolist() == [1, 1, 0, 3, 3, 2, 0]
    assert out.ok.all()
    plain = sample(logits, sample_batch(7, num_logprobs=4), isa)  # log-probabilities are the model's own
    assert (bits(out.top_logprobs) == bits(plain.top_logprobs)).all()
    own = {int(t): v for t, v in zip(plain.top_ids[0], plain.top_logprobs[0], strict=True)}
    assert [own[int(t)] for t in out.token] == out.logprob.tolist()


@EVERY_ISA
@pytest.mark.parametrize("vocab", [1, 31, 32, 33, 64, 517])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_mask_allows_its_tokens_and_no_other(isa: str, vocab: int, temperature: float) -> None:
    rng = np.random.default_rng(vocab)
    allowed = [sorted(rng.choice(vocab, max(1, vocab // 5), replace=False).tolist()) for _ in range(39)]
    edits = logit_edits([[]] * 40, vocab=vocab, allowed=[None, *allowed])
    logits = random_logits(40, vocab, seed=vocab)
    batch = sample_batch(40, temperature=temperature, top_p=0.9, edits=edits, output_position=np.arange(40))
    token = sample(logits, batch, isa).token
    assert all(int(t) in ids for t, ids in zip(token[1:], allowed, strict=True))
    if temperature == 0.0:
        assert token.tolist() == [
            int(logits[0].argmax()),
            *(ids[int(logits[i + 1, ids].argmax())] for i, ids in enumerate(allowed)),
        ]


@EVERY_ISA
def test_no_token_left_is_told_and_disturbs_no_other_row(isa: str) -> None:
    logits = random_logits(3, 40)
    edits = logit_edits([[], [(7, -1, -np.inf)], []], vocab=40, allowed=[None, [7], None])
    for temperature in (0.0, 0.9):
        columns = {"temperature": temperature, "num_logprobs": 2, "typical_p": 0.9, "output_position": np.arange(3)}
        out = sample(logits, sample_batch(3, edits=edits, **columns), isa)
        plain = sample(logits, sample_batch(3, **columns), isa)
        assert out.token[1] == -1
        assert np.isnan(out.logprob[1])
        assert out.token[[0, 2]].tolist() == plain.token[[0, 2]].tolist()


def test_edits_are_the_references_and_the_same_on_every_instruction_set() -> None:
    rng = np.random.default_rng(8)
    rows, vocab = 200, 517
    logits = random_logits(rows, vocab, seed=4, decimals=1)
    entries = [
        [
            (int(t), int(rng.integers(-1, 4)), float(rng.choice([0.0, -2.5, 4.0, -np.inf])))
            for t in rng.integers(0, vocab, 30)
        ]
        for _ in range(rows)
    ]
    edits = logit_edits(
        entries,
        vocab=vocab,
        allowed=[rng.choice(vocab, 200, replace=False).tolist() if row % 3 == 0 else None for row in range(rows)],
        repetition=rng.choice([1.0, 1.3, 0.8], rows),
        presence=rng.choice([0.0, 0.7, -0.5], rows),
        frequency=rng.choice([0.0, 0.3], rows),
    )
    batch = sample_batch(
        rows,
        edits=edits,
        temperature=rng.choice([0.0, 0.7, 1.4], rows),
        top_k=rng.choice([0, 40], rows),
        top_p=rng.choice([1.0, 0.9], rows),
        typical_p=rng.choice([1.0, 0.8], rows),
        output_position=np.arange(rows),
        num_logprobs=2,
    )
    wanted, first = reference.sample(logits, batch), sample(logits, batch, ISAS[0])
    assert (first.token == wanted.token).mean() > 0.99  # numpy's exp may move a weight by an ulp
    for isa in ISAS[1:]:
        assert same(first, sample(logits, batch, isa))


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": np.array([0, 2], np.int32)},
        {"start": np.array([1, 1], np.int32)},
        {"token": np.array([9], np.int32)},
        {"token": np.array([-1], np.int32)},
        {"count": np.zeros(2, np.int32)},
        {"mask": np.array([1], np.int32)},
        {"masks": np.zeros((1, 0), np.uint32), "mask": np.zeros(1, np.int32)},
        {"repetition": np.zeros(1, np.float32)},
    ],
    ids=str,
)
def test_edits_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    edits = dataclasses.replace(logit_edits([[(3, 1, 0.0)]], vocab=9, allowed=[[1]]), **wrong)
    with pytest.raises(ValueError, match=r"out of range|entries, expected"):
        sample(random_logits(1, 9), sample_batch(1, edits=edits))


@EVERY_ISA
def test_a_target_is_scored_and_not_drawn(isa: str) -> None:
    logits = random_logits(4, 100)
    target = np.array([7, -1, 99, -1], np.int32)
    batch = sample_batch(4, temperature=1.0, num_logprobs=2, output_position=np.arange(4))
    plain, scored = sample(logits, batch, isa), sample(logits, dataclasses.replace(batch, target=target), isa)
    assert scored.token.tolist() == [7, plain.token[1], 99, plain.token[3]]
    log_sum = np.log(np.exp(logits.astype(np.float64)).sum(axis=1))
    np.testing.assert_allclose(
        scored.logprob[[0, 2]], [logits[0, 7] - log_sum[0], logits[2, 99] - log_sum[2]], rtol=1e-5
    )
    assert (bits(scored.top_logprobs) == bits(plain.top_logprobs)).all()
    with pytest.raises(ValueError, match="out of range"):
        sample(logits, dataclasses.replace(batch, target=target + 1), isa)
