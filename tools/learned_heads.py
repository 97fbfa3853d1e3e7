"""Small networks that learn classes of images from EfficientNet's features, and what they make of other classes.

A backbone that was trained on some classes tells new ones apart less well, and less evenly, than its own. To draw pools
with many such backbones, small networks of one to three layers learn some base classes of CIFAR-FS, of CUB or of both,
each with another width, loss and time. All classes that a network has not seen, validation classes among them, are new
to it. `make_stranger_sources.py` stores their features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[Any]
MOST = 100  # images of a base class that are stored
BATCH = 256
STRENGTH = 4.0  # length of a row, after the power


@dataclass(frozen=True)
class Images:
    """EfficientNet's features of the images of one data set."""

    features: Array  # [n, 1280]
    labels: Array  # [n], base classes first
    base: int  # classes that may be learned


@dataclass(frozen=True)
class Head:
    """How one small network learns."""

    widths: tuple[int, ...]
    epochs: int
    dropout: float
    mixed: bool  # rows and labels, two by two
    decay: float
    cosine: bool  # or inner products, as logits

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Head:
        """Draw one."""
        hidden, width = int(rng.choice([256, 512, 1024])), int(rng.choice([64, 128, 256, 512, 640]))
        depth = int(rng.choice([1, 2, 2, 3]))
        return cls(
            (hidden,) * (depth - 1) + (width,),
            int(rng.choice([4, 8, 15, 30])),
            float(rng.choice([0, 0.2, 0.5])),
            bool(rng.random() < 0.6),
            float(rng.choice([1e-4, 1e-2, 5e-2])),
            bool(rng.random() < 0.5),
        )


def features_of_others(data: tuple[Images, Images], which: int, seed: int) -> tuple[Array, Array]:
    """Train the small network of this seed and return features of the classes it has not seen, and their labels.

    Parameters
    ----------
    data : tuple of Images
        CIFAR-FS and CUB. By the seed the network learns classes of the first, of the second or of both.
    which : int
        Data set whose features are returned.
    """
    rng = np.random.default_rng(seed)
    learned = [rng.permutation(each.base)[: int(each.base * rng.choice([0.3, 0.5, 0.7]))] for each in data]
    for other in {0: (1,), 1: (0,), 2: ()}[seed % 3]:
        learned[other] = learned[other][:0]
    rows = [np.isin(each.labels, classes) for each, classes in zip(data, learned, strict=True)]
    x = np.concatenate([each.features[kept] for each, kept in zip(data, rows, strict=True)])
    labels = np.concatenate([data[0].labels[rows[0]], data[1].labels[rows[1]] + len(data[0].labels)])
    body = trained(prepared(x), np.unique(labels, return_inverse=True)[1], Head.drawn(rng), seed)
    shown, seen = data[which], learned[which]
    new = [code for code in np.unique(shown.labels) if code not in seen]
    numbers = [np.flatnonzero(shown.labels == code)[: MOST if code < shown.base else None] for code in new]
    with torch.no_grad():
        found = body(prepared(shown.features[np.concatenate(numbers)])).numpy()
    return found, np.repeat(np.arange(len(new)), [len(each) for each in numbers])


def prepared(features: Array) -> Tensor:
    """Take the power of rows and scale them."""
    x = np.maximum(features.astype(np.float32), 0)
    return torch.tensor(STRENGTH * np.sqrt(x / (np.linalg.norm(x, axis=1, keepdims=True) + 1e-9) + 1e-6))


def trained(x: Tensor, labels: Array, head: Head, seed: int) -> nn.Module:
    """Train a network and return it without its last layer."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for place, (inputs, outputs) in enumerate(zip((x.shape[1], *head.widths), head.widths, strict=False)):
        layers += [nn.Dropout(head.dropout)] if place else []
        layers += [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]
    body, classes = nn.Sequential(*layers), int(labels.max()) + 1
    last = nn.Linear(head.widths[-1], classes, bias=not head.cosine)
    codes, steps = torch.tensor(labels), head.epochs * (len(x) // BATCH)
    parameters = [*body.parameters(), *last.parameters()]
    optimiser = torch.optim.AdamW(parameters, weight_decay=head.decay)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=steps)
    shares = torch.distributions.Beta(2.0, 2.0)
    for _ in range(steps):
        pick = torch.randint(len(x), (BATCH,))
        rows, target = x[pick], nn.functional.one_hot(codes[pick], classes).float()
        rows = rows + 0.1 * rows.std() * torch.randn_like(rows)
        if head.mixed:
            share, other = shares.sample(), torch.randperm(BATCH)
            rows, target = rows.lerp(rows[other], share), target.lerp(target[other], share)
        h = body(rows)
        unit = nn.functional.normalize
        logits = 20 * unit(h) @ unit(last.weight).T if head.cosine else last(h)
        optimiser.zero_grad()
        nn.functional.cross_entropy(logits, target).backward()
        optimiser.step()
        rate.step()
    return body.eval()
