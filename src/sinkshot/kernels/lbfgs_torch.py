"""L-BFGS for a batch of smooth problems, each taking the steps that SciPy's `L-BFGS-B` would take without bounds.

Problems advance together, one evaluation each, but search along their own lines and stop on their own. The line search
is that of Moré, Thuente, "Line search algorithms with guaranteed sufficient decrease", ACM TOMS 20, 1994.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol, TypeVar

import torch
from torch import Tensor

HISTORY = 10  # pairs of steps and changes of the gradient
DECREASE, CURVATURE, WIDTH = 1e-3, 0.9, 0.1  # of the line search, as in L-BFGS-B
FARTHEST = 1e10
ASKED = 4  # evaluations between questions how many problems go on: a question stops a GPU


class Problem(Protocol):
    """Some problems with the same number of unknowns."""

    def evaluate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return values [R] and gradients [R, p] at x [R, p]."""

    def select(self, rows: Tensor) -> Problem:
        """Return some of the problems."""


T = TypeVar("T")


def _picked(of: T, rows: Tensor) -> T:
    """Return a dataclass of tensors with some of their rows."""
    return type(of)(**{field.name: getattr(of, field.name)[rows] for field in fields(of)})  # type: ignore[arg-type]


@dataclass
class LineSearch:
    """The search along a line, all [R]: the interval of uncertainty has its best end at `best`, its other at `end`."""

    value: Tensor  # at the start of the line
    slope: Tensor
    step: Tensor
    best: Tensor
    value_best: Tensor
    slope_best: Tensor
    end: Tensor
    value_end: Tensor
    slope_end: Tensor
    bracketed: Tensor  # bool
    second: Tensor  # bool: the second stage, which looks at the function itself
    low: Tensor  # where the next step may be
    high: Tensor
    width: Tensor
    width_before: Tensor


def begin(value: Tensor, slope: Tensor, step: Tensor) -> LineSearch:
    """Return a search that starts with a step."""
    zero, no = torch.zeros_like(step), torch.zeros_like(step, dtype=torch.bool)
    wide = torch.full_like(step, FARTHEST)
    ends = {"best": zero, "value_best": value, "slope_best": slope, "end": zero, "value_end": value, "slope_end": slope}
    return LineSearch(
        value=value,
        slope=slope,
        step=step,
        **ends,
        bracketed=no,
        second=no,
        low=zero,
        high=5 * step,
        width=wide,
        width_before=2 * wide,
    )


def advance(line: LineSearch, f: Tensor, g: Tensor) -> tuple[LineSearch, Tensor]:
    """Return the next state of searches with value and slope at their steps, and which of them are done."""
    test = DECREASE * line.slope
    enough = f <= line.value + line.step * test
    second = line.second | (enough & (g >= 0))
    narrow = line.high - line.low <= WIDTH * line.high
    outside = (line.step <= line.low) | (line.step >= line.high)
    done = line.bracketed & (narrow | outside)
    done = done | ((line.step == FARTHEST) & enough & (g <= test)) | ((line.step == 0) & (~enough | (g >= test)))
    done = done | (enough & (g.abs() <= -CURVATURE * line.slope))

    tilt = torch.where(~second & (f <= line.value_best) & ~enough, test, torch.zeros_like(test))
    stepped = _next_step(line, f, g, tilt)
    best, end, step, bracketed = stepped["best"], stepped["end"], stepped["step"], stepped["bracketed"]
    length = (end - best).abs()
    halve = bracketed & (length >= 0.66 * line.width_before)
    step = torch.where(halve, best + 0.5 * (end - best), step)
    low = torch.where(bracketed, torch.minimum(best, end), step + 1.1 * (step - best))
    high = torch.where(bracketed, torch.maximum(best, end), step + 4.0 * (step - best))
    step = step.clamp(0.0, FARTHEST)
    stuck = bracketed & ((step <= low) | (step >= high) | (high - low <= WIDTH * high))
    step = torch.where(stuck, best, step)
    return LineSearch(
        value=line.value,
        slope=line.slope,
        step=step,
        best=best,
        value_best=stepped["value_best"],
        slope_best=stepped["slope_best"],
        end=end,
        value_end=stepped["value_end"],
        slope_end=stepped["slope_end"],
        bracketed=bracketed,
        second=second,
        low=low,
        high=high,
        width=torch.where(bracketed, length, line.width),
        width_before=torch.where(bracketed, line.width, line.width_before),
    ), done


def _cubic(a: Tensor, fa: Tensor, ga: Tensor, b: Tensor, fb: Tensor, gb: Tensor) -> tuple[Tensor, Tensor]:
    """Return theta and gamma (not below zero) of the cubic through values and slopes at a and b."""
    theta = 3 * (fa - fb) / (b - a) + ga + gb
    s = torch.maximum(theta.abs(), torch.maximum(ga.abs(), gb.abs()))
    s = torch.where(s > 0, s, torch.ones_like(s))
    return theta, s * torch.sqrt(((theta / s) ** 2 - (ga / s) * (gb / s)).clamp(min=0.0))


def _next_step(line: LineSearch, f: Tensor, g: Tensor, tilt: Tensor) -> dict[str, Tensor]:
    """Return the new interval and step; `tilt` is subtracted from slopes, and its line from values, on the way."""
    x, y, t = line.best, line.end, line.step
    fx, fy, ft = line.value_best - x * tilt, line.value_end - y * tilt, f - t * tilt
    gx, gy, gt = line.slope_best - tilt, line.slope_end - tilt, g - tilt
    theta, gamma = _cubic(x, fx, gx, t, ft, gt)
    backwards = torch.where(t > x, -gamma, gamma)
    secant = t + (gt / (gt - gx)) * (x - t)

    # a higher value: the minimum is between; the cubic's if it is nearer to x, else the mean with the parabola's
    ahead = torch.where(t < x, -gamma, gamma)
    cubic = x + ((ahead - gx + theta) / (ahead - gx + ahead + gt)) * (t - x)
    parabola = x + (gx / ((fx - ft) / (t - x) + gx) / 2) * (t - x)
    nearer = (cubic - x).abs() < (parabola - x).abs()
    higher = torch.where(nearer, cubic, cubic + (parabola - cubic) / 2)

    # a lower value and slopes of opposite sign: the minimum is between; of cubic and secant the one farther from t
    cubic = t + ((backwards - gt + theta) / (backwards - gt + backwards + gx)) * (x - t)
    opposite = torch.where((cubic - t).abs() > (secant - t).abs(), cubic, secant)

    # a lower value and a flatter slope of the same sign
    r = (backwards - gt + theta) / (backwards + (gx - gt) + backwards)
    cubic = torch.where((r < 0) & (backwards != 0), t + r * (x - t), torch.where(t > x, line.high, line.low))
    farther = (cubic - t).abs() > (secant - t).abs()
    within = torch.where(farther, secant, cubic)
    limit = t + 0.66 * (y - t)
    within = torch.where(t > x, torch.minimum(limit, within), torch.maximum(limit, within))
    beyond = torch.minimum(torch.maximum(torch.where(farther, cubic, secant), line.low), line.high)
    flatter = torch.where(line.bracketed, within, beyond)

    # a lower value and a slope that is no flatter
    theta, gamma = _cubic(t, ft, gt, y, fy, gy)
    gamma = torch.where(t > y, -gamma, gamma)
    cubic = t + ((gamma - gt + theta) / (gamma - gt + gamma + gy)) * (y - t)
    steeper = torch.where(line.bracketed, cubic, torch.where(t > x, line.high, line.low))

    is_higher, is_opposite = ft > fx, gt * torch.sign(gx) < 0
    is_flatter = gt.abs() < gx.abs()
    step = torch.where(is_opposite, opposite, torch.where(is_flatter, flatter, steeper))
    step = torch.where(is_higher, higher, step)
    swap = ~is_higher & is_opposite
    new = {
        "end": torch.where(is_higher, t, torch.where(swap, x, y)),
        "value_end": torch.where(is_higher, f, torch.where(swap, line.value_best, line.value_end)),
        "slope_end": torch.where(is_higher, g, torch.where(swap, line.slope_best, line.slope_end)),
        "best": torch.where(is_higher, x, t),
        "value_best": torch.where(is_higher, line.value_best, f),
        "slope_best": torch.where(is_higher, line.slope_best, g),
    }
    return {**new, "step": step, "bracketed": line.bracketed | is_higher | is_opposite}


@dataclass
class _State:
    """Where each problem is: all [R] or [R, p]. A new pair of the history takes the place of the oldest."""

    number: Tensor  # of the problem
    x: Tensor
    f: Tensor
    g: Tensor
    direction: Tensor
    pairs: Tensor  # [R, 2 HISTORY, p]: steps, then the changes of the gradient; changed in place
    inner: Tensor  # [R, 2 HISTORY, 2 HISTORY] their inner products
    weights: Tensor  # [R, HISTORY] 1 / (step . change); zero where there is none
    newest: Tensor  # [R] place of the last pair
    scale: Tensor  # [R] of the first guess of the inverse Hessian
    first: Tensor  # bool: no step was taken yet


def minimise(problem: Problem, start: Tensor, *, tolerance: float, change: float, most: int) -> Tensor:
    """Return the points [R, p] where the problems stop.

    Parameters
    ----------
    problem : Problem
    start : Tensor [R, p]
    tolerance : float
        A problem stops when no entry of its gradient is larger.
    change : float
        Or when its value falls by no more than this, relative to the value if that is above one.
    most : int
        Evaluations at most.
    """
    answer = start.clone()
    state = _begin(start, *problem.evaluate(start))
    live = state.g.abs().amax(dim=-1) > tolerance
    line = _new_line(state)
    for done in range(most):
        if done % ASKED == 0:
            left = int(live.sum())
            if left == 0:
                break
            if 4 * left <= 3 * len(live):  # finished problems are dropped, a quarter of them at a time
                rows = live.nonzero()[:, 0]
                problem, state, line, live = problem.select(rows), _picked(state, rows), _picked(line, rows), live[rows]
        x = state.x + line.step[:, None] * state.direction
        f, g = problem.evaluate(x)
        taken = line.step
        line, ended = advance(line, f, (g * state.direction).sum(dim=-1))
        moved = ended & live
        fell = state.f - f
        state = _moved(state, moved, x, f, g, taken)
        answer[state.number] = state.x
        flat = g.abs().amax(dim=-1) <= tolerance
        level = fell <= change * torch.maximum(torch.maximum((f + fell).abs(), f.abs()), torch.ones_like(f))
        live = live & ~(moved & (flat | level))
        fresh = _new_line(state)
        line = LineSearch(
            **{c.name: torch.where(moved, getattr(fresh, c.name), getattr(line, c.name)) for c in fields(LineSearch)}
        )
    return answer


def _begin(x: Tensor, f: Tensor, g: Tensor) -> _State:
    episodes, width = x.shape
    pairs = x.new_zeros((episodes, 2 * HISTORY, width))
    inner = x.new_zeros((episodes, 2 * HISTORY, 2 * HISTORY))
    number = torch.arange(episodes, device=x.device)
    first = torch.ones_like(f, dtype=torch.bool)
    newest = torch.zeros_like(number)
    return _State(number, x, f, g, -g, pairs, inner, inner[:, 0, :HISTORY], newest, torch.ones_like(f), first)


def _new_line(state: _State) -> LineSearch:
    """Return searches along the directions: a first step has length one, later ones are those of Newton."""
    length = torch.linalg.vector_norm(state.direction, dim=-1)
    step = torch.where(state.first, (1 / length).clamp(max=FARTHEST), torch.ones_like(length))
    return begin(state.f, (state.g * state.direction).sum(dim=-1), step)


def _moved(state: _State, moved: Tensor, x: Tensor, f: Tensor, g: Tensor, taken: Tensor) -> _State:
    """Return the state after some problems accepted a point, with their next directions."""
    step, change = taken[:, None] * state.direction, g - state.g
    product = (step * change).sum(dim=-1)
    curved = product > torch.finfo(x.dtype).eps * -(state.g * step).sum(dim=-1)
    new = moved & curved
    newest = torch.where(new, (state.newest + 1) % HISTORY, state.newest)
    scale = torch.where(new, product / (change * change).sum(dim=-1), state.scale)
    g = torch.where(moved[:, None], g, state.g)
    weights = state.weights.scatter(
        1, newest[:, None], torch.where(new, 1 / product, _at(state.weights, newest))[:, None]
    )
    by_g, inner = _remember(state, new, newest, torch.stack([step, change, g], dim=1))
    direction = _direction(g, state.pairs, by_g, inner, weights, newest, scale)
    return _State(
        state.number,
        torch.where(moved[:, None], x, state.x),
        torch.where(moved, f, state.f),
        g,
        torch.where(moved[:, None], direction, state.direction),
        state.pairs,
        inner,
        weights,
        newest,
        scale,
        state.first & ~moved,
    )


def _at(values: Tensor, places: Tensor) -> Tensor:
    """Return the entry of each row [R, n] at its place [R]."""
    return values.gather(1, places[:, None])[:, 0]


def _remember(state: _State, new: Tensor, newest: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Store new pairs; return the inner products of all pairs with g [R, 2 HISTORY], and among each other.

    `rows` [R, 3, p]: step, change and g.
    """
    problems = torch.arange(len(new), device=new.device)
    for place, one in ((newest, rows[:, 0]), (newest + HISTORY, rows[:, 1])):
        state.pairs[problems, place] = torch.where(new[:, None], one, state.pairs[problems, place])
    found = torch.bmm(rows, state.pairs.mT)  # [R, 3, 2 HISTORY]
    inner = state.inner.clone()
    for place, one in ((newest, found[:, 0]), (newest + HISTORY, found[:, 1])):
        kept = torch.where(new[:, None], one, inner[problems, place])
        inner[problems, place] = kept
        inner[problems, :, place] = kept
    return found[:, 2], inner


def _direction(
    g: Tensor, pairs: Tensor, by_g: Tensor, inner: Tensor, weights: Tensor, newest: Tensor, scale: Tensor
) -> Tensor:
    """Return minus the approximate inverse Hessian times g, by the two loops of Nocedal; unused pairs have weight 0.

    The loops run over coefficients of the pairs, of which only inner products count.
    """
    age = torch.arange(HISTORY - 1, -1, -1, device=g.device)
    order = (newest[:, None] - age) % HISTORY  # [R, HISTORY], oldest first
    both = torch.cat([order, order + HISTORY], dim=1)
    sorted_g, sorted_weights = by_g.gather(1, both), weights.gather(1, order)
    rows = inner.gather(1, both[:, :, None].expand_as(inner)).gather(2, both[:, None, :].expand_as(inner))
    across, among = rows[:, :HISTORY, HISTORY:], rows[:, HISTORY:, HISTORY:]  # s_i . y_j, y_i . y_j
    parts, more = torch.zeros_like(sorted_weights), torch.zeros_like(sorted_weights)
    for i in reversed(range(HISTORY)):
        parts[:, i] = sorted_weights[:, i] * (sorted_g[:, i] - (across[:, i] * parts).sum(dim=-1))
    by_q = scale[:, None] * (sorted_g[:, HISTORY:] - (among * parts[:, None, :]).sum(dim=-1))
    for i in range(HISTORY):
        more[:, i] = parts[:, i] - sorted_weights[:, i] * (by_q[:, i] + (across[:, :, i] * more).sum(dim=-1))
    sorted_parts = torch.cat([-more, scale[:, None] * parts], dim=1)
    factors = torch.zeros_like(sorted_parts).scatter_(1, both, sorted_parts)
    return torch.bmm(factors[:, None, :], pairs)[:, 0] - scale[:, None] * g
