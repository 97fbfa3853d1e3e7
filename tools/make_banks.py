"""Train a recipe and write the banks that we ship: from packs or folders of images to float16 feature banks.

    python tools/make_banks.py IMAGES --recipe cifar-fs_wrn-28-10 --run RUN --out BANKS [--seconds 780]
        [--set seed=1 --called resnet12-run2] [--cross cub=OTHER_IMAGES] [--mirror]

IMAGES is a known data set with its base, validation and novel classes, see `sinkshot.backbones.datasets.load`.
Training sees the base classes; few-shot accuracy on the validation classes chooses the weights; novel classes are
looked at last, and choose nothing. The run can be interrupted, and the same command goes on; `touch RUN/stop` ends its
training early. BANKS then holds, of the best weights,

    <data set>_<network>_novel.safetensors        all novel images
    <data set>_<network>_validation.safetensors   all validation images
    <data set>_<network>_base.safetensors         40 images of each base class
    <data set>-to-<other>_<network>_novel.safetensors   novel images of another data set, resized (--cross)

each with the means of all base images, and beside them the run's metrics and recipe. `--called` replaces the network's
name in file names, for several runs of one network. `--mirror` adds banks, in the folder `mirrored`, whose rows are the
mean over an image and its mirror image.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sinkshot import Recipe, evaluate
from sinkshot.backbones import checkpoints, datasets, recipes
from sinkshot.backbones.backbone import Backbone
from sinkshot.backbones.extract import base_means_in, extract
from sinkshot.backbones.train import train
from sinkshot.bank import load

EACH = 40  # images of each base class in the base bank
TOLD = (("ncm", "PEMbE"), ("bms", None), ("bms-star", None))


class Mirrored(torch.nn.Module):
    """A network's features of an image and of its mirror image, averaged."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return features [n, width] of images [n, 3, h, w]."""
        features: torch.Tensor = (self.network(images) + self.network(images.flip(3))) / 2
        return features


def main() -> None:
    """Train, extract, and print the accuracy on the banks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("--recipe", required=True)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", help="of the data set in file names; the recipe's up to its first _ unless given")
    parser.add_argument("--called", help="name of the network in file names; the recipe's unless given")
    parser.add_argument("--seconds", type=float, default=0.0, help="fit the epochs to this time")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON", help="change a key of the recipe")
    parser.add_argument("--cross", action="append", default=[], metavar="NAME=IMAGES")
    parser.add_argument("--mirror", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--base-precision", default="float32", help="of the features whose means go along; or bf16")
    parser.add_argument("--episodes", type=int, default=10_000)
    args = parser.parse_args()
    begin = time.monotonic()
    changes = {key: json.loads(value) for key, _, value in (text.partition("=") for text in args.set)}
    recipe = recipes.read(args.recipe, {**changes, **({"seconds": args.seconds} if args.seconds else {})})
    base = datasets.load(args.images, split="base", size=recipe.stored, margin=1.0).held()  # decoded once for all
    validation = datasets.load(args.images, split="validation", size=recipe.size).held()
    told(begin, f"{len(base):,} and {len(validation):,} images decoded")
    early: dict[str, Any] = {"stop": (args.run / "stop").exists, "resume": True}
    outcome = train(base, recipe, args.run, validation=validation, device=args.device, **early)
    speed = f"{outcome.images_per_second:,.0f} images/s"
    told(begin, f"trained {outcome.step:,} of {outcome.steps:,} steps, {speed}, best {outcome.best}")
    novel = datasets.load(args.images, split="novel", size=recipe.size).held()

    args.out.mkdir(parents=True, exist_ok=True)
    stem = f"{args.name or Path(args.recipe).stem.partition('_')[0]}_{args.called or recipe.network}"
    for name in ("metrics.csv", "recipe.json"):
        shutil.copy(args.run / name, args.out / f"{stem}_{name}")
    others = {f"{stem.replace('_', f'-to-{name}_', 1)}": place for name, _, place in map(partition, args.cross)}
    backbone = checkpoints.load(outcome.weights)
    base = replace(base, size=recipe.size, margin=None)
    results = {"": banks(backbone, (base, validation, novel), others, args.out, args.run, stem, args)}
    if args.mirror:
        twice = Mirrored(backbone.network)
        both = replace(backbone, network=twice, meta={**backbone.meta, "views": "mean of image and mirror image"})
        (args.out / "mirrored").mkdir(exist_ok=True)
        folder = args.out / "mirrored"
        results["mirrored"] = banks(both, (base, validation, novel), others, folder, args.run / "mirrored", stem, args)
    told(begin, "done")
    facts = {"recipe": args.recipe, "steps": outcome.steps, "images_per_second": outcome.images_per_second}
    facts |= {} if outcome.finished else {"stopped_at": outcome.step}
    reached = {"validation": outcome.validation, "best": outcome.best}
    summary = {**facts, **reached, "episodes": args.episodes, "accuracy": results}
    (args.out / f"{stem}_summary.json").write_text(json.dumps(summary, indent=2) + "\n")


def partition(text: str) -> tuple[str, str, str]:
    """Split NAME=IMAGES."""
    return text.partition("=")


def banks(
    backbone: Backbone,
    splits: tuple[datasets.Images, ...],
    others: dict[str, str],
    out: Path,
    work: Path,
    stem: str,
    args: argparse.Namespace,
) -> dict[str, Any]:
    """Write the banks of a backbone into `out` and return their accuracies."""
    work.mkdir(parents=True, exist_ok=True)
    base, validation, novel = splits
    options: dict[str, Any] = {"device": args.device, "batch": 512}
    whole = work / f"{stem}_base.safetensors"
    extract(backbone, base, whole, store="float32", precision=args.base_precision, **options)
    means = base_means_in(whole, backbone)
    rows = np.concatenate([np.flatnonzero(base.labels == c)[:EACH] for c in range(len(base.class_names))])
    wanted = {f"{stem}_base": base.only(rows), f"{stem}_validation": validation, f"{stem}_novel": novel}
    for name, place in others.items():
        wanted[f"{name}_novel"] = datasets.load(place, split="novel", size=backbone.size, margin=1.0)
    found = {}
    for name, images in wanted.items():
        extract(backbone, images, out / f"{name}.safetensors", base=means, **options)
        if not name.endswith("_base"):
            found[name] = accuracies(out / f"{name}.safetensors", args.episodes)
    return found


def accuracies(path: Path, episodes: int) -> dict[str, float]:
    """Print and return the accuracy of some methods at 1 and 5 shots."""
    bank, found = load(path), {}
    way, least = min(5, bank.classes), int(bank.counts.min())
    for method, chain in TOLD:
        for shot in (1, 5):
            recipe = Recipe(way=way, shot=shot, query=min(15, least - shot), episodes=episodes)
            found[f"{method} {shot}-shot"] = evaluate(bank, recipe, method=method, preprocess=chain).accuracy
    print(f"{path.stem}: " + ", ".join(f"{name} {100 * value:.2f}" for name, value in found.items()), flush=True)
    return found


def told(begin: float, message: str) -> None:
    """Print the progress with the time."""
    print(f"[{time.monotonic() - begin:.0f} s] {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
