"""Hyper-parameters of TIM's loss and of Adam, shared by TIM-GD, alpha-TIM and adaptive manifold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TIMSettings:
    """Checked values; `sinkshot.methods._tim.decide` makes them."""

    weights: tuple[float, float, float]
    alpha: float
    temperature: float
    steps: int
    lr: float
