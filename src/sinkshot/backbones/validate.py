"""Few-shot accuracy of a network on classes it was not trained on, by the project's own evaluator."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sinkshot.backbones.backbone import Triple, normalised
from sinkshot.backbones.recipes import Validation
from sinkshot.bank import FeatureBank
from sinkshot.episodes import Recipe
from sinkshot.errors import DataWarning, InputError
from sinkshot.evaluate import evaluate

BATCH = 512


def features_of(
    network: nn.Module, pixels: Tensor, mean: Triple, std: Triple, autocast: AbstractContextManager[Any]
) -> NDArray[np.float32]:
    """Return the features [n, width] of images [n, h, w, 3] that lie on the network's device."""
    was_training = network.training
    network.eval()
    with autocast, torch.inference_mode():
        found = [network(normalised(part, mean, std)).float() for part in pixels.split(BATCH)]
    network.train(was_training)
    rows: NDArray[np.float32] = torch.cat(found).cpu().numpy()
    return rows


def sizes(labels: NDArray[np.int64], how: Validation) -> dict[int, Recipe]:
    """Return the episodes for each shot: 5 classes and 15 queries, fewer where the validation classes are fewer."""
    counts = np.bincount(labels)
    least = int(counts.min())
    if len(counts) < 2 or least <= max(how.shots):
        raise InputError(
            f"validation needs at least two classes with more than {max(how.shots)} images each; there are "
            f"{len(counts)}, the smallest with {least}. Lower validation.shots, or train without validation images."
        )
    way = min(5, len(counts))
    return {s: Recipe(way=way, shot=s, query=min(15, least - s), episodes=how.episodes, seed=1) for s in how.shots}


def rehearse(labels: NDArray[np.int64], how: Validation) -> None:
    """Validate made-up features once, so that a method or a chain that cannot work is refused before training."""
    bank = FeatureBank.from_arrays(np.random.default_rng(0).random((len(labels), 64), np.float32), labels)
    for recipe in sizes(labels, replace(how, episodes=2)).values():
        for method in how.methods:
            evaluate(bank, recipe, method=method, preprocess=how.preprocess, device="cpu")


def accuracies(features: NDArray[np.float32], labels: NDArray[np.int64], how: Validation) -> dict[str, float]:
    """Return the accuracy of each method and shot, such as {"bms-star 1-shot": 0.85}."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    bank = FeatureBank.from_arrays(features, labels)
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # rows of zeros are common before anything is learnt
        for shot, recipe in sizes(labels, how).items():
            for method in how.methods:
                result = evaluate(bank, recipe, method=method, preprocess=how.preprocess, device=device)
                found[cell(method, shot)] = result.accuracy
    return found


def cell(method: str, shot: int) -> str:
    """Return what an accuracy is called in logs."""
    return f"{method} {shot}-shot"


def score(found: Mapping[str, float]) -> float:
    """Return the one number that weights are chosen by."""
    return sum(found.values()) / len(found)
