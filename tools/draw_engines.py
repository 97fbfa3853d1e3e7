"""Draw how the four engines compute an evaluation.

python tools/draw_engines.py engines.svg
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

TEXT, LINE, READABLE, FUSED, COMMON = "#1c2b3a", "#7a8899", "#eaf1f8", "#fdeee3", "#f4f4f4"

BOXES = {
    "bank": (0.0, 1.0, "feature bank\n[n, d]", COMMON),
    "rows": (1.9, 1.0, "steps that act on\neach row: P, E, Mb\nonce for the bank", COMMON),
    "gather": (4.1, 1.7, "gather rows\n[R, N, d]", READABLE),
    "method": (6.2, 1.7, "steps of the task (Mn),\nreadable method", READABLE),
    "gram": (4.1, 0.3, "Gram matrix of an\nepisode [N, N]", FUSED),
    "kernel": (6.2, 0.3, "centre, normalise,\nsolve in one kernel", FUSED),
    "result": (8.3, 1.0, "accuracy of\neach episode", COMMON),
}
ARROWS = [
    ("bank", "rows"),
    ("rows", "gather"),
    ("rows", "gram"),
    ("gather", "method"),
    ("gram", "kernel"),
    ("method", "result"),
    ("kernel", "result"),
]
NOTES = [
    (5.15, 2.25, "engines numpy (CPU) and torch (any device): every method"),
    (5.15, -0.28, "engines numba (CPU) and triton (GPU): methods of inner products"),
]


def draw(file: Path) -> None:
    """Write the picture."""
    plt.rcParams["svg.hashsalt"] = "sinkshot"
    figure, axes = plt.subplots(figsize=(9.6, 3.1))
    patches = {name: _box(axes, *where) for name, where in BOXES.items()}
    for start, end in ARROWS:
        style = {"arrowstyle": "-|>", "color": LINE, "patchA": patches[start], "patchB": patches[end], "shrinkB": 3}
        axes.annotate("", BOXES[end][:2], BOXES[start][:2], arrowprops=style)
    for x, y, words in NOTES:
        axes.text(x, y, words, ha="center", va="center", fontsize=9.5, style="italic", color=TEXT)
    axes.set(xlim=(-0.8, 9.1), ylim=(-0.5, 2.5))
    axes.axis("off")
    figure.savefig(file, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def _box(axes: Axes, x: float, y: float, words: str, colour: str) -> object:
    style = {"boxstyle": "round,pad=0.5", "facecolor": colour, "edgecolor": LINE}
    return axes.text(x, y, words, ha="center", va="center", fontsize=9.5, color=TEXT, bbox=style).get_bbox_patch()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    draw(Path(sys.argv[1]))
