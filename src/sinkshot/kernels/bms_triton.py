# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""The GPU engine: BMS on many episodes at once in three triton kernels.

One program processes one episode. `gram_triton` gathers its rows and builds the Gram matrix of the prepared task; then
Algorithm 2 alternates between two kernels. `_allocate` (Algorithm 1) is a chain of tiny sums, so a single warp holds
the episode and never waits for another. `_update` keeps the Gram matrix in registers, as operand of the tensor cores,
through all steps of the logistic regression. They exchange scores and allocations, [R, ways, rows], padded to powers of
two: a padded class gets no allocation, a padded row is zero.

Products have float32 accuracy, by two float16 halves of each factor, as in `gram_triton`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from sinkshot.kernels.draw_triton import Drawn, draw_balanced
from sinkshot.kernels.gram_triton import SCALE, Tensor, gram_matrices, padded_rows, scaled_grams, split_bank
from sinkshot.settings.constants import LEAST_LOGIT

if TYPE_CHECKING:
    from sinkshot.settings.bms import BMSSettings

__all__ = ["Drawn", "accuracy", "bms_episodes", "draw_balanced", "fits", "gram_matrices"]

MOST_ROWS, MOST_WAYS = 128, 16  # rows of one episode
_GRAM_BYTES = 1 << 30  # of Gram matrices at once: 24,000 episodes of 5-way 5-shot
_SAFE_LOGIT = 80.0  # its exp is far from the float32 limit

_LEAST_LOGIT = tl.constexpr(LEAST_LOGIT)
_LOG2_E = tl.constexpr(1.4426950408889634)


def fits(way: int, supports: int, queries: int, width: int) -> bool:
    """Whether the engine can do tasks of this size, with features of any width."""
    return 2 <= way <= MOST_WAYS and supports + queries <= MOST_ROWS and width >= 1


def bms_episodes(
    rows: Tensor,
    support: Tensor,
    support_labels: Tensor,
    query: Tensor,
    *,
    way: int,
    centre: bool,
    normalise: bool,
    settings: BMSSettings,
) -> Tensor:
    """Run BMS on episodes of a bank, as `sinkshot.methods.bms.solve` does.

    Parameters
    ----------
    rows : tensor [n, d]
        Features after the row-wise steps of the chain.
    support, support_labels, query : int32 tensors [R, l], [R, l], [R, q]
        Row numbers and labels.
    centre, normalise : bool
        Whether the chain goes on with Mn, and then with E.
    settings : sinkshot.settings.bms.BMSSettings

    Returns
    -------
    tensor [R, q, way]
        Probabilities, float32.
    """
    prior = None
    if settings.prior is not None:
        prior = torch.as_tensor(settings.prior, dtype=torch.float32, device=rows.device).expand(len(support), way)
    bank = split_bank(rows, centre)
    at_once = max(1, _GRAM_BYTES // (4 * (support.shape[1] + query.shape[1] + 15) ** 2))
    answers = []
    with torch.cuda.device_of(rows):
        for begin in range(0, len(support), at_once):
            part = slice(begin, begin + at_once)
            gram, unit = scaled_grams(bank, support[part], query[part], centre, normalise)
            share = None if prior is None else prior[part]
            answers.append(_solve(gram, unit, support_labels[part], query.shape[1], way, share, normalise, settings))
    return torch.cat(answers) if len(answers) > 1 else answers[0]


def accuracy(probabilities: Tensor, query_labels: Tensor) -> Tensor:
    """Accuracy on the queries of known classes, [R] float64."""
    known = query_labels >= 0
    right = (probabilities.argmax(dim=-1) == query_labels) & known
    return right.sum(dim=1) / known.sum(dim=1).double()


def _solve(
    gram: Tensor,
    unit: Tensor,
    labels: Tensor,
    queries: int,
    way: int,
    prior: Tensor | None,
    normalise: bool,
    settings: BMSSettings,
) -> Tensor:
    """Algorithm 2, as `sinkshot.methods.bms.solve` has it."""
    episodes, total, stride = gram.shape
    supports, grid = total - queries, (episodes,)
    sizes = {"WAY": way, "WAYS": 8 if way <= 8 else 16, "ROWS": padded_rows(total)}
    assignment = torch.zeros((episodes, sizes["WAYS"], sizes["ROWS"]), dtype=torch.float32, device=gram.device)
    assignment.scatter_(1, labels.long()[:, None, :], 1.0)  # supports; where Sinkhorn leaves them alone, for good
    scores, shots = torch.empty_like(assignment), assignment.sum(dim=-1)  # shots: [R, WAYS]
    min_size, target = shots[:, :way].amin(dim=1), torch.zeros_like(shots)
    if settings.variant == "robust":
        min_size.clamp_(max=max(1, queries // way))
    if prior is not None:
        target[:, :way] = queries * prior + (shots[:, :way] if settings.variant == "letter" else 0)
    learning = (settings.kappa, settings.lr, settings.momentum)
    largest_kappa = settings.kappa + 2 * settings.lr * settings.epochs / max(1e-9, 1 - settings.momentum)
    update = {**sizes, "NORMALISE": normalise, "BOUNDED": normalise and largest_kappa < _SAFE_LOGIT}
    first = 0 if settings.variant == "letter" else supports
    allocate = {**sizes, "VARIANT": settings.variant, "PRIOR": prior is not None, "num_warps": 1}

    _update[grid](scores, assignment, gram, stride, unit, total, 0, *learning, **update)
    for step in range(settings.steps):
        rule = (min_size, shots, target, first, total, settings.lam, settings.passes)
        _allocate[grid](assignment, scores, *rule, **allocate)
        if step < settings.steps - 1:
            _update[grid](scores, assignment, gram, stride, unit, total, settings.epochs, *learning, **update)
    of_queries = assignment[:, :way, supports:total]
    return (of_queries / of_queries.sum(dim=1, keepdim=True)).mT.contiguous()


# --- on the device ----------------------------------------------------------------------------------------------------


@triton.jit
def _inverse(x):
    """1 / x to the last bit but one, in one instruction where division would take eight."""
    if _INTERPRETED:
        return 1.0 / x
    else:  # noqa: RET505 - triton compiles one branch and needs to see which
        return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)


_INTERPRETED = tl.constexpr(not isinstance(_inverse, triton.JITFunction))  # TRITON_INTERPRET=1: no machine instructions


@triton.jit
def _halves(x):
    """Two float16 numbers whose sum is x, |x| <= 64, to 22 bits."""
    upper = x.to(tl.float16)
    return upper, (x - upper.to(tl.float32)).to(tl.float16)


@triton.jit
def _product(upper, lower, x):
    """G x for G = upper + lower, [OUT, ROWS], and x [ROWS, WAYS], whose halves are concatenated.

    With two separate operands of 16 columns, the code of triton 3.6 for an H200 read outside shared memory.
    """
    ROWS: tl.constexpr = x.shape[0]
    WAYS: tl.constexpr = x.shape[1]
    OUT: tl.constexpr = upper.shape[0]
    x_upper, x_lower = _halves(x)
    x_both = tl.reshape(tl.permute(tl.join(x_upper, x_lower), (0, 2, 1)), (ROWS, 2 * WAYS))
    out = tl.dot(lower, x_both, tl.dot(upper, x_both))
    of_upper, of_lower = tl.split(tl.permute(tl.reshape(out, (OUT, 2, WAYS)), (0, 2, 1)))
    return of_upper + of_lower


@triton.jit(do_not_specialize=["first", "end", "passes"])
def _allocate(
    assignment,  # [R, WAYS, ROWS]
    scores,  # [R, WAYS, ROWS]
    min_size,  # [R]
    shots,  # [R, WAYS]
    target,  # [R, WAYS]
    first,  # Sinkhorn allocates the rows from `first` up to `end`
    end,
    lam,
    passes,
    WAY: tl.constexpr,
    WAYS: tl.constexpr,
    ROWS: tl.constexpr,
    VARIANT: tl.constexpr,
    PRIOR: tl.constexpr,
):
    """Sinkhorn on the scores, P = diag(u) K diag(v), and the size of the smallest class by its labels (Eq. 15).

    With a prior every class is scaled to its target, else (Algorithm 1) up to the minimum. A pass that scales no class
    is a fixed point, where the episode stops.
    """
    number = tl.program_id(0).to(tl.int64)
    label, row = tl.arange(0, WAYS), tl.arange(0, ROWS)
    known, free = label < WAY, (row >= first) & (row < end)
    place = (number * WAYS + label)[:, None] * ROWS + row[None, :]
    cosine = tl.load(scores + place)  # [WAYS, ROWS]
    highest = tl.max(tl.where(known[:, None], cosine, float("-inf")), 0)
    logits = tl.maximum(lam * (cosine - highest[None, :]), _LEAST_LOGIT)
    kernel = tl.where(known[:, None] & free[None, :], tl.exp2(logits * _LOG2_E), 0.0)

    idle = tl.where(free, 0.0, 1.0)[None, :]  # keeps u finite on rows that are not allocated
    v = tl.full((WAYS,), 1.0, tl.float32)
    u = _inverse(tl.sum(kernel + idle, 0))
    if PRIOR:
        share = tl.load(target + number * WAYS + label)
        for _ in range(passes):
            v = tl.where(known, share * _inverse(tl.sum(kernel * u[None, :], 1)), 0.0)
            u = _inverse(tl.sum(kernel * v[:, None] + idle, 0))
    else:
        least = tl.load(min_size + number)
        done = passes * 0
        moving = done == 0
        while done < passes:
            u = _inverse(tl.sum(kernel * v[:, None] + idle, 0))
            total = tl.sum(kernel * u[None, :], 1)  # v * total is the size of a class
            small = (v * total < least) & known
            v = tl.where(small, least * _inverse(total), v)
            done = tl.where(moving, done + 1, passes)  # decided by the pass before, to avoid waiting for this one
            moving = tl.max(small.to(tl.int32), 0) > 0
    p = u[None, :] * kernel * v[:, None]
    tl.store(assignment + place, p, mask=free[None, :])

    p = tl.where(known[:, None], p, -1.0)
    best = tl.min(tl.where(p == tl.max(p, 0)[None, :], label[:, None], WAYS), 0)
    sizes = tl.sum(tl.where((best[None, :] == label[:, None]) & free[None, :], 1.0, 0.0), 1)
    if VARIANT == "published":
        sizes += tl.load(shots + number * WAYS + label)
    smallest = tl.min(tl.where(known, sizes, float("inf")), 0)
    if VARIANT == "robust":
        smallest = tl.maximum(smallest, 1.0)
    tl.store(min_size + number, smallest)


@triton.jit
def _add_pairs(a, b, more_a, more_b):
    return a + more_a, b + more_b


@triton.jit(do_not_specialize=["count", "epochs"])
def _update(
    scores,  # [R, WAYS, ROWS]
    assignment,  # [R, WAYS, ROWS]
    gram,  # [R, count, stride]
    stride,
    units,  # [R]
    count,
    epochs,
    kappa,
    lr,
    momentum,
    WAY: tl.constexpr,
    WAYS: tl.constexpr,
    ROWS: tl.constexpr,
    NORMALISE: tl.constexpr,
    BOUNDED: tl.constexpr,
):
    """Scores of weighted means of unit length (Eq. 10, 11) after `epochs` steps of logistic regression (Eq. 12, 13).

    For w = X^T a and a momentum buffer z = X^T b it keeps S = G a and V = G b, and of each class w.z (`along_speed`)
    and z.z (`speed`), but neither a nor b. With the pull D, one product G D and the sums S.D and D.(2 m V + G D) move
    all of them:

        V <- m V + G D - (S.D) S        S <- (S - lr V) / |w - lr z|
    """
    number = tl.program_id(0).to(tl.int64)
    row, label = tl.arange(0, ROWS), tl.arange(0, WAYS)
    is_real = row < count
    place = (number * count + row)[:, None] * stride + row[None, :]
    upper, lower = _halves(tl.load(gram + place, mask=is_real[:, None] & is_real[None, :], other=0.0))
    unit = 1.0 if NORMALISE else tl.load(units + number)
    place = (number * WAYS + label)[None, :] * ROWS + row[:, None]
    share = tl.load(assignment + place)  # [ROWS, WAYS]

    largest = tl.max(share, 0)
    a = share * (1.0 / tl.where(largest > 0, largest, 1.0) * SCALE)[None, :]  # unit length will hide the factor
    s = _product(upper, lower, a) * unit
    square = tl.sum(a * s, 0) * (1.0 / SCALE)
    s *= (tl.where(square > 0, tl.rsqrt(square), 1.0) * (1.0 / SCALE))[None, :]

    mass = tl.sum(share, 1) * SCALE  # `error` is at most 64 then, as `_product` wants it
    share *= SCALE
    per_row = 1.0 / count / SCALE
    nobody = tl.where(label < WAY, 0.0, float("-inf"))[None, :]
    flow = tl.zeros_like(s)  # V
    along_speed, speed = tl.zeros_like(square), tl.zeros_like(square)
    kappa_speed = 0.0
    for _ in range(epochs):
        logits = s * (kappa * _LOG2_E) + nobody
        if not BOUNDED:
            logits -= tl.max(logits, 1)[:, None]
        guess = tl.exp2(logits)
        error = guess * (mass * _inverse(tl.sum(guess, 1)))[:, None] - share
        moved = _product(upper, lower, error)
        pull = kappa * per_row  # D = pull * error
        pulled = pull * unit / SCALE  # G D = pulled * moved
        wide = error * ((2 * momentum) * flow + pulled * moved)
        error_scores, gain = tl.reduce((error * s, wide), 0, _add_pairs)
        along = pull * error_scores
        kappa_speed = momentum * kappa_speed + tl.sum(error_scores, 0) * per_row
        flow = momentum * flow + (pulled * moved - along[None, :] * s)
        speed = momentum * momentum * speed + pull * gain - along * (along + 2 * momentum * along_speed)
        along_speed *= momentum
        shrink = tl.rsqrt(tl.maximum(1 - 2 * lr * along_speed + lr * lr * speed, 1e-30))
        s = (s - lr * flow) * shrink[None, :]
        along_speed = (along_speed - lr * speed) * shrink
        kappa -= lr * kappa_speed
    tl.store(scores + place, s)
