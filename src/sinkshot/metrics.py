"""The metrics that results have: their names, what people call them, and whether more or less is better."""

from __future__ import annotations

from typing import Literal

from sinkshot.calibration import CONFIDENCE, POOLED
from sinkshot.open_set import OPEN_SET

Metric = Literal[
    "accuracy",
    "macro_accuracy",
    "ece",
    "ece_null",
    "brier",
    "nll",
    "aurc",
    "coverage95",
    "coverage99",
    "auroc",
    "aupr",
    "fpr95",
]
"""Every metric; the last three are known under the protocol `open-set` alone."""

TITLES: dict[str, str] = {
    "accuracy": "accuracy",
    "macro_accuracy": "macro accuracy",
    "ece": "ECE",
    "ece_null": "ECE if calibrated",
    "brier": "Brier score x 100",
    "nll": "log loss x 100",
    "aurc": "AURC",
    "coverage95": "coverage at 95 %",
    "coverage99": "coverage at 99 %",
    "auroc": "AUROC",
    "aupr": "AUPR",
    "fpr95": "FPR95",
}
"""What tables of percent call them."""

PER_EPISODE = ("accuracy", *(name for name in (*CONFIDENCE, *OPEN_SET) if name not in POOLED))
"""Metrics that each episode has, so that they have intervals and can be paired."""

_LESS_IS_BETTER = {"ece", "ece_null", "brier", "nll", "aurc", "fpr95"}


def sign(metric: str) -> int:
    """1 for a metric of which more is better, -1 for one of which less is."""
    return -1 if metric in _LESS_IS_BETTER else 1
