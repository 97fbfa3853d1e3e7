"""Draw how one episode is solved: features, their Gram matrix, the assignment, all of a real episode.

python tools/draw_gram_form.py gram-form.svg
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

import sinkshot
from sinkshot import METHODS, Task, preprocess

BANK, WAY, SHOT, QUERY = "cifar-fs_wrn-28-10_novel", 5, 5, 15
SHOWN = 160  # columns of the features that fit the picture


def episode() -> tuple[NDArray[np.float32], NDArray[np.float32], float]:
    """Return preprocessed rows [N, d] ordered by class, the assignment [q, way] likewise, and the accuracy."""
    bank = sinkshot.load(BANK)
    drawn = sinkshot.draw(bank.labels, way=WAY, shot=SHOT, query=QUERY, episodes=1, seed=3)
    task = Task(bank.features[drawn.support], drawn.support_labels, bank.features[drawn.query], WAY)
    ready = preprocess.apply(task, "PEMnE")
    scores = np.asarray(METHODS["bms"](ready).probabilities)[0]  # [q, way]
    truth = drawn.query_labels[0]
    supports, queries = (np.argsort(labels, kind="stable") for labels in (drawn.support_labels[0], truth))
    rows = np.concatenate([ready.support[0][supports], ready.query[0][queries]])
    return rows, scores[queries], float((scores.argmax(axis=1) == truth).mean())


def draw(file: Path) -> None:
    """Write the picture."""
    rows, scores, accuracy = episode()
    plt.rcParams["svg.hashsalt"] = "sinkshot"
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.6), width_ratios=[2.1, 1.35, 0.55], layout="constrained")
    _picture(axes[0], rows[:, :SHOWN], f"X: {len(rows)} rows × {rows.shape[1]} features", "columns (the first 160)")
    axes[0].set_ylabel(f"{WAY * SHOT} supports, then {WAY * QUERY} queries")
    _picture(axes[1], rows @ rows.T, f"G = X Xᵀ: {len(rows)} × {len(rows)}", "rows again: the width is gone")
    _picture(axes[2], scores, f"P: {len(scores)} × {WAY}", f"classes\n{100 * accuracy:.0f} % correct", scale=False)
    axes[2].set_ylabel("queries")
    figure.savefig(file, metadata={"Date": None}, dpi=110)
    plt.close(figure)


def _picture(axes: Axes, values: NDArray[np.float32], title: str, below: str, scale: bool = True) -> None:
    most = float(np.quantile(np.abs(values), 0.995))
    limits = {"vmin": -most, "vmax": most, "cmap": "RdBu_r"} if scale else {"vmin": 0, "vmax": 1, "cmap": "Blues"}
    axes.imshow(values, aspect="auto", interpolation="nearest", **limits)
    axes.set(title=title, xlabel=below, xticks=[], yticks=[])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    draw(Path(sys.argv[1]))
