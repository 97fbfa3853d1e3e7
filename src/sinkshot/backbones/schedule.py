"""The learning rate as a function of the step alone."""

from __future__ import annotations

import math

from sinkshot.backbones.recipes import Stage


def rate(stage: Stage, step: int, steps: int) -> float:
    """Return the learning rate of a step, 0 .. steps-1, of a stage.

    One cycle (Smith 2018): linearly up over the warm-up, then down along a line or half a cosine, to zero just after
    the last step.
    """
    if stage.schedule == "constant":
        return stage.rate
    up = stage.warm_up * steps
    if step < up:
        return stage.rate * (step + 1) / (up + 1)
    gone = (step - up) / max(1.0, steps - up)
    left = 1 - gone if stage.fall == "linear" else (1 + math.cos(math.pi * gone)) / 2
    return stage.rate * left
