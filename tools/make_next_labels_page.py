"""Write docs/next-labels.md and its picture from the answers of the study `next-labels`.

sinkshot reproduce --study next-labels --json > next-labels.json
python tools/make_next_labels_page.py next-labels.json
"""

from __future__ import annotations

import argparse
import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sinkshot.report.label_curves import StrategyRow, strategy_rows
from sinkshot.selection import DEFAULT, STRATEGIES

DOCS = Path(__file__).parent.parent / "docs"
PICTURE = DOCS / "pictures" / "next-labels.svg"
SHOWN = ("expected-gain", "uherding", "typiclust", "probcover", "margin", "random")  # in the picture
COLOURS = ("#0067b0", "#cf5500", "#00855f", "#a5408f", "#59626d", "#9aa3ad")

INTRODUCTION = """# What to label next

    sinkshot label photos --next 20                    # works without any labels, too
    FewShotClassifier().suggest(20, X=pool)            # the same for arrays, before the first label
    model.suggest(20)                                  # and after `fit`

Each is a list of items, the most useful first. The default strategy, `expected-gain`, asks how much doubt a label would
remove: it sums the doubt of all rows that are near the item but not near a labelled one. Nearness is half a Gaussian
of the distance and half a random walk on the graph over which `sinkshot` spreads labels. Before there are labels
everything is in doubt, so the first items cover the pool and find its classes. How fast the weight shifts from
coverage to doubt depends on the labels themselves: on the share of them whose class has no other label (Good and
Turing's estimate of what has not been seen). Near-copies of labelled items come last, and items that seem to belong to
no class count less.

{strategies}

## What was measured

The study `next-labels` draws pools of 5 novel classes: balanced (60 rows per class, or as many as there are), with a
long tail (60 rows down to 6), and with strangers (30 rows of other classes to 100 of the five). A strategy starts
from zero labels and asks for 5 at a time, up to 10 per class; a classifier then labels the pool: `sinkshot`, the
nearest class mean, or scikit-learn's logistic regression (C = 100, the best of 1, 10 and 100 under random labels on
validation classes). A class without a label cannot be predicted, so its rows count as wrong. Accuracy is measured on
every second row of each class. Strategies and classifiers see these rows without labels and may not ask for them. The
area under a curve is its mean height from 0 to 10 labels per class; if all answers were right from the first 5 labels
on, it would be 95. There are {draws} draws of each kind, the same for all strategies; differences are paired, ± 95 %
CI half-width.

Strategies and constants were chosen [on validation classes](next-labels-choice.md); novel classes were evaluated
after that, and once more, as shown, with a weight of rows in `sinkshot` that was [taken back](sinkshot-choice.md)
afterwards; nothing was chosen by that.

    sinkshot reproduce --study next-labels --json > next-labels.json
    python tools/make_next_labels_page.py next-labels.json

![Accuracy and classes found against the number of labels per class, for six strategies](pictures/next-labels.svg)
"""
STRATEGY_LIST = (
    'All strategies are in `sinkshot.selection`, one file each: {}. `model.suggest(20, "margin")` takes another.'
)


def over(rows: dict[str, StrategyRow], name: str) -> str:
    """How far the default is above a strategy."""
    apart = rows[name].over_default
    return "" if apart is None else f"{-apart[0]:+.2f} ± {apart[1]:.2f}"


def verdict(sheets: list[dict[str, Any]]) -> str:
    """Say in how many tables the default is above random, and where another strategy is above it."""
    least, beaten = np.inf, []
    for sheet in sheets:
        rows = {row.name: row for row in strategy_rows(sheet)}
        apart = rows[DEFAULT].over_random
        least = min(least, apart[0] if apart else np.inf)
        beaten += [
            f"{name} ({sheet['sheet']}, {row.over_default[0]:+.2f} ± {row.over_default[1]:.2f})"
            for name, row in rows.items()
            if row.over_default is not None and row.over_default[0] > row.over_default[1]
        ]
    clear = "; ".join(beaten) if beaten else "none"
    return (
        f"In all {len(sheets)} tables `{DEFAULT}` is above random, by {least:.1f} points at least. "
        f"Strategies above it by more than the interval: {clear}."
    )


def table(sheet: dict[str, Any]) -> str:
    """One table: every strategy, the largest area first."""
    rows = {row.name: row for row in strategy_rows(sheet)}
    text = [
        f"### {sheet['sheet']}\n",
        f"| strategy | accuracy | macro accuracy | classes found | labels of strangers | {DEFAULT} is above by |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        own = f"{row.accuracy:.2f} ± {row.half_width:.2f}"
        rest = f"{row.macro_accuracy:.2f} | {row.found:.1f} | {row.strangers:.1f} | {over(rows, name)}"
        text.append(f"| {'**' + name + '**' if name == DEFAULT else name} | {own} | {rest} |")
    return "\n".join(text)


def overview(sheets: list[dict[str, Any]]) -> str:
    """Areas under the accuracy of all strategies over all tables, as one table."""
    found = {sheet["sheet"]: {row.name: row.accuracy for row in strategy_rows(sheet)} for sheet in sheets}
    order = sorted(STRATEGIES, key=lambda name: -np.mean([rows[name] for rows in found.values()]))
    text = [f"| pool and classifier | {' | '.join(order)} |", "|---|" + "---|" * len(order)]
    for label, rows in found.items():
        best = max(rows.values())
        cells = [f"**{rows[name]:.2f}**" if rows[name] == best else f"{rows[name]:.2f}" for name in order]
        text.append(f"| {label} | {' | '.join(cells)} |")
    means = [f"{np.mean([rows[name] for rows in found.values()]):.2f}" for name in order]
    return "\n".join([*text, f"| mean | {' | '.join(means)} |"])


def draw(sheets: list[dict[str, Any]]) -> None:
    """Draw accuracy and classes found behind sinkshot, balanced pools of both data sets."""
    shown = [sheet for sheet in sheets if sheet["classifier"] == "sinkshot" and sheet["pool"] == "balanced"]
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    panels = figure.subplots(2, len(shown), sharex=True, sharey="row")
    for column, sheet in enumerate(shown):
        for line, (metric, title) in enumerate((("accuracy", "accuracy, %"), ("found", "classes found, %"))):
            axes = panels[line, column]
            for name, colour in zip(SHOWN, COLOURS, strict=True):
                told = sheet["strategies"][name][metric]
                mean, half = 100 * np.array(told["mean"]), 100 * np.array(told["half_width"])
                axes.plot(sheet["labels"], mean, color=colour, label=name, linewidth=2 if name == DEFAULT else 1.3)
                axes.fill_between(sheet["labels"], mean - half, mean + half, color=colour, alpha=0.12, linewidth=0)
            axes.set_ylim(30, 100)
            axes.set_xlim(0, max(sheet["labels"]))
            axes.grid(axis="y", alpha=0.3)
            if column == 0:
                axes.set_ylabel(title)
        panels[0, column].set_title(sheet["sheet"])
        panels[1, column].set_xlabel("labels a class")
    panels[1, -1].legend(loc="lower right", frameon=False)
    figure.savefig(PICTURE, format="svg", metadata={"Date": None, "Creator": None})


def main() -> None:
    """Read the answers, and write page and picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers", type=Path)
    sheets = json.loads(parser.parse_args().answers.read_text())["label_curves"]
    named = ", ".join(f"`{name}` ({strategy.reference})" for name, strategy in sorted(STRATEGIES.items()))
    strategies = textwrap.fill(STRATEGY_LIST.format(named), 120, break_long_words=False, break_on_hyphens=False)
    parts = [
        INTRODUCTION.format(strategies=strategies, draws=sheets[0]["draws"]),
        "## Areas under the accuracy\n",
        verdict(sheets) + "\n",
        overview(sheets) + "\n",
        "## Every table\n",
        *(table(sheet) + "\n" for sheet in sheets),
    ]
    (DOCS / "next-labels.md").write_text("\n".join(parts))
    draw(sheets)


if __name__ == "__main__":
    main()
