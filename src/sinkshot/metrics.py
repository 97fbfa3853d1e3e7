"""The metrics of results: their names, their titles in tables, and whether higher or lower is better."""

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
"""Every metric; the last three exist only under the protocol `open-set`."""

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
"""Titles in tables, whose values are percent."""

PER_EPISODE = ("accuracy", *(name for name in (*CONFIDENCE, *OPEN_SET) if name not in POOLED))
"""Metrics computed per episode, so that they have confidence intervals and can be paired."""

_LESS_IS_BETTER = {"ece", "ece_null", "brier", "nll", "aurc", "fpr95"}


def sign(metric: str) -> int:
    """1 if higher values of a metric are better, -1 if lower ones are."""
    return -1 if metric in _LESS_IS_BETTER else 1
