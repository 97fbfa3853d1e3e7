"""Fit a run to a time limit: time some steps, and scale the epochs."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from sinkshot.backbones.recipes import Stage

if TYPE_CHECKING:
    from sinkshot.backbones.run import Run

SECONDS, STEPS = 3.0, 60  # of trying, at most
RESERVE = 0.985  # share of the time that is planned for


def fitted_steps(run: Run) -> list[int]:
    """Return the steps of each stage with which the run takes its recipe's `seconds`, validation included.

    Weights and place of the run are changed by trying; its caller renews them.
    """
    cost, how = 0.0, run.recipe.validation
    for number, (_, stage) in enumerate(run.stages):
        run.stage = number
        run.begin_stage()
        cost += run.steps[number] * _seconds_of_a_step(run, stage)
    if run.validation is not None:
        cost += sum(stage.epochs for _, stage in run.stages) / how.every * _seconds_of_validation(run)
    share = float(run.devices.broadcast(RESERVE * run.recipe.seconds / cost))
    return [max(1, int(steps * share)) for steps in run.steps]


def warm_up(run: Run, stage: Stage, rounds: int = 2) -> None:
    """Take steps at every depth, so that all is compiled and chosen before time is taken."""
    depths = [depth for _ in range(rounds) for depth in range(run.learner.network.blocks + 1)]
    for depth, (sheet, pixels) in zip(depths, run.batches(stage, 0, len(depths)), strict=True):
        run.take(stage, replace(sheet, depth=depth), pixels, 0.0).tolist()


def _seconds_of_a_step(run: Run, stage: Stage) -> float:
    warm_up(run, stage)
    begin, count = time.monotonic(), 0
    for sheet, pixels in run.batches(stage, 0, STEPS):
        found = run.take(stage, sheet, pixels, 0.0)
        count += 1
        if run.devices.broadcast(time.monotonic() - begin > SECONDS):
            break
    found.tolist()  # waits for the device
    return (time.monotonic() - begin) / count


def _seconds_of_validation(run: Run) -> float:
    run.validate()
    begin = time.monotonic()
    run.validate()
    return time.monotonic() - begin
