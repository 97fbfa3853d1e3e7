"""Draw the picture of README: a pool with a few labels, the pool labelled, and accuracy by method.

    python tools/draw_overview.py                  # writes docs/pictures/overview.png

Accuracies are those of the table in README (`sinkshot demo`); the pool is real: rows of five novel classes of the
bundled bank, laid out by t-SNE, which sees no labels.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from sklearn.manifold import TSNE

import sinkshot

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs" / "pictures" / "overview.png"
BANK, CLASSES, EACH, LABELLED = "cifar-fs_wrn-28-10_novel", 5, 120, 5
COLOURS = np.array([(0.12, 0.47, 0.71), (0.89, 0.47, 0.12), (0.2, 0.6, 0.3), (0.75, 0.2, 0.25), (0.5, 0.38, 0.7)])
GREY = (0.72, 0.74, 0.77)


def pool() -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64], float]:
    """Return places [n, 2], classes [n], which rows are labelled, the labels found, and their accuracy."""
    bank = sinkshot.load(BANK)
    rng = np.random.default_rng(4)
    rows = np.concatenate([rng.choice(np.flatnonzero(bank.labels == k), EACH, replace=False) for k in range(CLASSES)])
    X, truth = bank.features[rows], bank.labels[rows]
    labelled = np.arange(len(rows)) % EACH < LABELLED
    model = sinkshot.BMSClassifier().fit(X, np.where(labelled, truth, -1))
    prepared = sinkshot.PEME().fit_transform(X)
    places = TSNE(perplexity=40, init="pca", random_state=0).fit_transform(prepared)
    found = np.asarray(model.transduction_)
    return places, truth, labelled, found, float((found == truth)[~labelled].mean())


def table() -> list[tuple[str, float]]:
    """Read the 1-shot accuracies of README's table, method by method."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+?) \|[^|]*\| ([\d.]+) ± ", text, flags=re.MULTILINE)
    return [(name.replace("\\*", "*"), float(value)) for name, value in rows]


def draw(file: Path) -> None:
    """Write the picture."""
    places, truth, labelled, found, accuracy = pool()
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), width_ratios=[1, 1, 1.05], layout="constrained")
    _points(axes[0], places, np.full((len(places), 3), GREY), labelled, truth)
    axes[0].set_title(f"{LABELLED} labels per class, {(~labelled).sum()} rows without")
    _points(axes[1], places, COLOURS[found], labelled, truth)
    axes[1].set_title(f"labelled: {100 * accuracy:.0f} % correct")
    names, values = zip(*table(), strict=True)
    colours = [COLOURS[1] if name.startswith(("BMS", "SinkShot")) else (0.4, 0.43, 0.47) for name in names]
    axes[2].scatter(values, names, c=colours, s=55)
    for name, value in zip(names, values, strict=True):
        axes[2].annotate(f"{value:.1f}", (value, name), xytext=(8, 0), textcoords="offset points", va="center")
    axes[2].invert_yaxis()
    axes[2].set(xlim=(65, 95), title="1-shot accuracy, %, 10,000 episodes")
    axes[2].grid(axis="y", alpha=0.4)
    axes[2].spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=110, metadata={"Software": None}, pil_kwargs={"optimize": True})
    plt.close(figure)


def _points(
    axes: Axes,
    places: NDArray[np.float64],
    colours: NDArray[np.float64],
    labelled: NDArray[np.bool_],
    truth: NDArray[np.int64],
) -> None:
    axes.scatter(*places[~labelled].T, c=colours[~labelled], s=9, linewidths=0)
    axes.scatter(*places[labelled].T, c=COLOURS[truth[labelled]], marker="*", s=110, edgecolors="black", linewidths=0.6)
    axes.set(xticks=[], yticks=[])


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    draw(Path(sys.argv[1]) if len(sys.argv) == 2 else FILE)
