"""Draw the paper's Figure 1: feature extraction, PEME, and Boosted Min-size Sinkhorn, with histograms of real features.

python tools/draw_pipeline.py pipeline.svg
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle
from numpy.typing import NDArray

import sinkshot
from sinkshot import preprocess
from sinkshot.statistics import skewness

TEXT, LINE, BLUE = "#1c2b3a", "#7a8899", "#cfdcee"
BANK = "cifar-fs_wrn-28-10_novel"
PANELS = {  # x, width, title, colour
    "offline": (0.0, 3.0, "Feature extraction", "#fdeee3"),
    "peme": (3.5, 3.4, "Preprocessing", "#eaf5ea"),
    "bms": (7.2, 4.6, "Boosted Min-size Sinkhorn", "#eaf5ea"),
}
BLOCKS = {  # x, y, words
    "train": (1.5, 1.1, "train the extractor $f_\\varphi$"),
    "peme": (5.2, 3.0, "PEME"),
    "sinkhorn": (9.2, 3.0, "Min-size Sinkhorn"),
    "weights": (9.2, 1.9, "weight update"),
    "labels": (9.2, 0.8, "prediction"),
}


def one_feature() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return values of the most skewed feature of one class that is never constant, raw and after PE."""
    bank = sinkshot.load(BANK)
    rows = bank.features[bank.labels == 0].astype(np.float64)
    after = preprocess.run(rows, preprocess.parse("PE")).x
    active = np.flatnonzero((rows > 0.02).mean(axis=0) > 0.9)
    skews = [float(skewness(rows[:, [k]]).mean()) - abs(float(skewness(after[:, [k]]).mean())) for k in active]
    k = active[int(np.argmax(skews))]
    return rows[:, k], after[:, k]


def draw(file: Path) -> None:
    """Write the picture."""
    plt.rcParams["svg.hashsalt"] = "sinkshot"
    figure, axes = plt.subplots(figsize=(10.6, 3.9))
    for x, width, title, colour in PANELS.values():
        frame = {"boxstyle": "round,pad=0.05", "facecolor": colour, "edgecolor": LINE, "linestyle": "--"}
        axes.add_patch(FancyBboxPatch((x, 0.0), width, 3.9, linewidth=0.8, **frame))
        axes.text(x + width / 2, 3.68, title, ha="center", va="center", fontsize=10.5, weight="bold", color=TEXT)
    _images(axes)
    patches = {}
    for name, (x, y, words) in BLOCKS.items():
        style = {"boxstyle": "round,pad=0.45", "facecolor": BLUE, "edgecolor": LINE}
        patches[name] = axes.text(x, y, words, ha="center", va="center", fontsize=10, color=TEXT, bbox=style)
    axes.text(1.5, 0.4, "$x \\mapsto f_\\varphi(x) \\in (\\mathbb{R}^+)^d$", ha="center", fontsize=10, color=TEXT)
    _arrow(axes, (3.05, 3.0), (4.72, 3.0), "$S \\cup Q$ through $f_\\varphi$")
    _arrow(axes, (5.68, 3.0), (8.12, 3.0), "$f_S \\cup f_Q$")
    _arrow(axes, (9.2, 2.72), (9.2, 2.18), "$P$", side=0.22)
    _arrow(axes, (9.2, 1.62), (9.2, 1.08), "$w_j$", side=0.25)
    loop = {"arrowstyle": "-|>", "color": LINE, "connectionstyle": "arc3,rad=0.75"}
    axes.annotate("", (10.28, 2.95), (10.02, 1.9), arrowprops=loop)
    axes.text(11.2, 2.35, "$n_{steps}$", ha="center", fontsize=10, color=TEXT)
    axes.text(8.0, 2.45, "$w_j$ starts at the\nmeans of $f_S$", ha="center", va="center", fontsize=8.5, color=TEXT)
    raw, after = one_feature()
    for values, y, words in ((raw, 1.75, "$h_j(k)$: raw"), (after, 0.25, "after P and E")):
        inner = axes.inset_axes((3.95, y, 2.5, 0.72), transform=axes.transData)
        inner.hist(values, bins=30, color="#4c78a8")
        inner.set(xticks=[], yticks=[])
        inner.set_title(words, fontsize=8.5, pad=2, color=TEXT)
        inner.spines[["top", "right", "left"]].set_visible(False)
    _arrow(axes, (5.2, 1.66), (5.2, 1.3), "")
    axes.set(xlim=(-0.2, 12.0), ylim=(-0.2, 4.1))
    axes.axis("off")
    figure.savefig(file, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def _images(axes: Axes) -> None:
    """Stacks of images, one for each base class."""
    for x, y in ((0.7, 2.35), (2.0, 2.35), (1.35, 1.75)):
        for step in range(4):
            place = x + 0.05 * step - 0.05, y + 0.05 * step - 0.1
            axes.add_patch(Rectangle(place, 0.42, 0.42, facecolor="white", edgecolor=LINE, linewidth=0.7))
    axes.text(1.5, 3.3, "large data set $D_{base}$", ha="center", va="center", fontsize=10, color=TEXT)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], words: str, side: float = 0.0) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": LINE})
    x, y = (start[0] + end[0]) / 2 + side, (start[1] + end[1]) / 2 + (0.0 if side else 0.15)
    axes.text(x, y, words, ha="center", va="center", fontsize=9, color=TEXT)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    draw(Path(sys.argv[1]))
