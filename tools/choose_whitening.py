"""Choose how far `sinkshot` whitens rows by the base classes (Wb), and write docs/whitening-choice.md.

    python tools/choose_whitening.py --episodes 1000

Validation classes alone; no novel class is read. Every chain sees the same episodes.
"""

from __future__ import annotations

import argparse

from choose_sinkshot import BANKS, ROOT

from sinkshot import FeatureBank, Recipe, compare, evaluate, load

PAGE = ROOT / "docs" / "whitening-choice.md"
SHRINKAGES = (3, 5, 10, 20, 40)
KINDS = [
    *(Recipe(protocol, shot=shot, alpha=alpha)
      for shot in (1, 5)
      for protocol, alpha in (("balanced", 2.0), ("dirichlet", 2.0), ("dirichlet", 0.7), ("long-tail", 2.0))),
    *(Recipe("dirichlet", way=2, shot=shot, alpha=0.7) for shot in (1, 5)),
    *(Recipe("dirichlet", way=15, shot=shot, alpha=2.0) for shot in (1, 5)),
    Recipe("balanced", shot=10),
]  # fmt: skip


TEXT = """# How far sinkshot whitens by the base classes

The step `Wb` multiplies rows by (S + r t I)^(-1/2): S is the covariance of base rows, each less the mean of its class,
t the mean of its eigenvalues, r the shrinkage. Directions in which images of one class differ count less. Of the base
classes it needs features with labels, not only their mean; our banks hold 40 rows of each.

The shrinkage was chosen on validation classes, which the networks did not see: {chosen} is best in the mean over all
kinds of task below. No novel class was read for it. The same step behind other methods is shown too, so that what
the features gain and what the method gains can be told apart.

Differences in accuracy to PEMbE, points, {episodes} episodes of each kind (a fifth of that at 15 ways), the same for
all chains; the last column is the largest 95 % CI half-width of a difference in its row.
`python tools/choose_whitening.py --episodes {episodes}` writes this page.

{table}

## Other methods behind the same chain

Shrinkage 10 against the method's own chain, 5 ways, balanced, 1 and 5 shots.

{others}
"""


def kind(recipe: Recipe) -> str:
    """Name a kind of task."""
    alpha = f" {recipe.alpha:g}" if recipe.protocol == "dirichlet" else ""
    return f"{recipe.protocol}{alpha}, {recipe.way}-way {recipe.shot}-shot"


def rows(banks: dict[str, tuple[FeatureBank, FeatureBank]], episodes: int) -> tuple[list[str], list[float]]:
    """Lines of the table, and the mean difference of each shrinkage."""
    lines, gains = [], []
    for name, (bank, base) in banks.items():
        for one in KINDS:
            recipe = Recipe(one.protocol, one.way, one.shot, 15, episodes // (5 if one.way > 5 else 1), 1, one.alpha)
            run = {"method": "sinkshot", "base": base}
            plain = evaluate(bank, recipe, preprocess="PEMbE", **run)
            found = [compare(evaluate(bank, recipe, preprocess=f"PEMbEWb{r}E", **run), plain) for r in SHRINKAGES]
            gains.append([100 * each.difference for each in found])
            cells = [name, kind(recipe), f"{100 * plain.accuracy:.2f}", *(f"{gain:+.2f}" for gain in gains[-1])]
            lines.append("| " + " | ".join([*cells, f"{100 * max(each.ci95 for each in found):.2f}"]) + " |")
            print(lines[-1], flush=True)
    means = [sum(column) / len(gains) for column in zip(*gains, strict=True)]
    lines.append("| mean | | | " + " | ".join(f"{mean:+.3f}" for mean in means) + " | |")
    return lines, means


def of_others(banks: dict[str, tuple[FeatureBank, FeatureBank]], episodes: int) -> list[str]:
    """Lines of the table of other methods."""
    lines = []
    for name, (bank, base) in banks.items():
        for method, chain in (("ncm", "PEMbEWbE"), ("kmeans", "PEMbEWbE"), ("bms", "PEMbEWbEMnE")):
            cells = []
            for shot in (1, 5):
                recipe = Recipe(shot=shot, episodes=episodes, seed=1)
                own = evaluate(bank, recipe, method=method)
                found = evaluate(bank, recipe, method=method, preprocess=chain, base=base)
                apart = compare(found, own)
                cells.append(f"{100 * own.accuracy:.2f} {100 * apart.difference:+.2f} ± {100 * apart.ci95:.2f}")
            lines.append(f"| {name} | {method} | {chain} | {cells[0]} | {cells[1]} |")
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000)
    episodes = parser.parse_args().episodes
    folder = ROOT / "data" / "banks"
    banks = {
        name: (load(folder / f"{stem}_validation.safetensors"), load(folder / f"{stem}_base.safetensors"))
        for name, stem in BANKS.items()
    }
    lines, means = rows(banks, episodes)
    head = ["bank", "task", "PEMbE", *(f"Wb{r}" for r in SHRINKAGES), "±"]
    table = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *lines]
    others = ["| bank | method | chain | 1-shot | 5-shot |", "|---|---|---|---|---|", *of_others(banks, episodes)]
    best = SHRINKAGES[max(range(len(means)), key=means.__getitem__)]
    page = TEXT.format(chosen=best, episodes=episodes, table="\n".join(table), others="\n".join(others))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
