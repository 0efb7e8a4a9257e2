"""Log-probabilities and sampling: the rules of the random draw, in numpy.

Order: edits of the logits, temperature, top_k, top_p, min_p, typical_p, then an exponential race over what is left:
token = argmin of -log1p(-u_v) / p_v, the same distribution as Gumbel-max (arXiv:1611.01144). u_v is counter-based
(Philox4x32-10, Salmon et al., SC11), keyed by (seed, child, output position, token id): a draw depends on nothing else.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from forebay.ops.protocol import LogitEdits, SampleBatch, StepOutputs
from forebay.ops.tensor import F32Array

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_GREEDY_TEMPERATURE = 1e-30  # below this, logits / temperature overflow


def philox(counter: npt.NDArray[np.uint32], key: tuple[int, int]) -> npt.NDArray[np.uint32]:
    """Philox4x32-10: counters (N, 4) and a 64-bit key as two words -> (N, 4) uint32."""
    c = counter.astype(np.uint64).T
    k0, k1 = key
    for _ in range(10):
        first, second = _MULTIPLIERS[0] * c[0], _MULTIPLIERS[1] * c[2]
        c = np.stack(
            [
                (second >> np.uint64(32)) ^ c[1] ^ np.uint64(k0),
                second & _LOW,
                (first >> np.uint64(32)) ^ c[3] ^ np.uint64(k1),
                first & _LOW,
            ]
        )
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return c.T.astype(np.uint32)


def uniforms(token: npt.NDArray[np.int64], seed: int, child: int, output_position: int) -> npt.NDArray[np.float64]:
    """u in (0, 1) of each token id: word `id % 4` of the block with counter (id / 4, output position, child, 0)."""
    counter = np.zeros((len(token), 4), np.uint32)
    counter[:, 0] = token // 4
    counter[:, 1] = output_position
    counter[:, 2] = child
    words = philox(counter, (seed & 0xFFFFFFFF, seed >> 32))[np.arange(len(token)), token % 4]
    return (words.astype(np.float64) + 0.5) * 2.0**-32


def edited(logits: F32Array, edits: LogitEdits, row: int) -> F32Array:
    """One row of logits (vocab,) with its edits."""
    out = logits.copy()
    repetition = edits.repetition[row]
    for i in range(edits.start[row], edits.start[row + 1]):
        token, count = edits.token[i], edits.count[i]
        x = out[token]
        if count >= 0 and repetition != 1:
            x = x / repetition if x > 0 else x * repetition
        if count > 0:
            x = x - (edits.frequency[row] * np.float32(count) + edits.presence[row])
        out[token] = x + edits.bias[i]
    if edits.mask[row] >= 0:
        words = edits.masks[edits.mask[row]]
        allowed = np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little")[: len(out)]
        out[allowed == 0] = -np.inf
    return out


def typical(weight: F32Array, scaled: F32Array, typical_p: np.float32) -> npt.NDArray[np.bool_]:
    """Which of the candidates stay. scaled: their logits over the temperature, less the best one's.

    -log p - H is (mean of `scaled`) - scaled: what both have in common cancels. Nearest to 0 first, ties by place.
    """
    terms = weight.astype(np.float64) * scaled.astype(np.float64)
    mean = np.cumsum(terms)[-1] / np.cumsum(weight.astype(np.float64))[-1]
    order = np.argsort(np.abs(scaled.astype(np.float64) - mean), kind="stable")
    kept = np.zeros(len(weight), np.bool_)
    kept[order[: _shortest(weight[order], typical_p)]] = True
    return kept


def _shortest(weight: F32Array, mass: np.float32) -> int:
    """How many of the first reach this share of all; in 32-bit fixed point, so that sums are exact."""
    fixed = (weight * np.float32(2.0**32)).astype(np.uint64)
    needed = np.ceil(float(mass) * float(fixed.sum()))
    return int(np.searchsorted(np.cumsum(fixed), np.uint64(needed))) + 1


def candidates(
    logits: F32Array, temperature: float, top_k: int, top_p: float, min_p: float, typical_p: float = 1.0
) -> tuple[npt.NDArray[np.int64], F32Array]:
    """Token ids left after the filters, best first (logit descending, id ascending), and their weights (best = 1)."""
    scaled = logits * (np.float32(1) / np.float32(temperature))
    order = np.argsort(-scaled, kind="stable")
    if top_k:
        order = order[:top_k]
    weight = np.exp(scaled[order] - scaled[order[0]])
    if top_p < 1.0:
        keep = _shortest(weight, np.float32(top_p))
        order, weight = order[:keep], weight[:keep]
    strong = weight >= np.float32(min_p)
    order, weight = order[strong], weight[strong]
    if typical_p < 1.0:
        possible = weight > 0
        order, weight = order[possible], weight[possible]
        kept = typical(weight, scaled[order] - scaled.max(), np.float32(typical_p))
        order, weight = order[kept], weight[kept]
    return order, weight


def draw(logits: F32Array, batch: SampleBatch, row: int) -> int:
    """The sampled token id of one row of logits (vocab,), -1 if its edits leave none."""
    if batch.target is not None and batch.target[row] >= 0:
        return int(batch.target[row])
    if batch.edits is not None:
        logits = edited(logits, batch.edits, row)
    if logits.max() == -np.inf:
        return -1
    if batch.temperature[row] < _GREEDY_TEMPERATURE:
        return int(np.argmax(logits))
    typical_p = 1.0 if batch.typical_p is None else batch.typical_p[row]
    filters = batch.temperature[row], int(batch.top_k[row]), batch.top_p[row], batch.min_p[row], typical_p
    token, weight = candidates(logits, *filters)
    u = uniforms(token, int(batch.seed[row]), int(batch.child[row]), int(batch.output_position[row]))
    with np.errstate(divide="ignore"):
        race = -np.log1p(-u) / weight.astype(np.float64)
    return int(token[np.lexsort((token, race))[0]])


def sample(logits: F32Array, batch: SampleBatch) -> StepOutputs:
    """Sample every row of logits (S, vocab); log-probabilities are of the model's own distribution."""
    rows = len(logits)
    widest = max(0, int(batch.num_logprobs.max(initial=-1)))
    out = StepOutputs(
        token=np.zeros(rows, np.int32),
        logprob=np.full(rows, np.nan, np.float32),
        top_ids=np.full((rows, widest), -1, np.int32),
        top_logprobs=np.full((rows, widest), np.nan, np.float32),
        ok=~(np.isnan(logits) | (logits == np.inf)).any(axis=-1),
    )
    for row in np.flatnonzero(out.ok).tolist():
        out.token[row] = draw(logits[row], batch, row)
        if batch.num_logprobs[row] >= 0 and out.token[row] >= 0:
            best = logits[row].max()
            logprobs = logits[row] - (best + np.log(np.exp(logits[row] - best).sum(dtype=np.float32)))
            top = np.argsort(-logits[row], kind="stable")[: batch.num_logprobs[row]]
            out.logprob[row] = logprobs[out.token[row]]
            out.top_ids[row, : len(top)], out.top_logprobs[row, : len(top)] = top, logprobs[top]
    return out
