"""Outputs of other methods' public code, and the tester that compares ours with them.

`golden/peers` keeps, for 200 episodes of the first feature bank, each method's accuracy and its scores on the first 16.
Where the public code depends on its batch or on rounding, a file also has what it gives one episode at a time in
float64 (`*_single64`), which is then the reference.

    check("pt-map", "5w1s15q", tolerance=5e-3)                # scores are probabilities
    check("tim-gd", "dir1", logits=True, tolerance=1e-3)      # scores are logits or minus distances
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from golden_files import GOLDEN

import sinkshot
from sinkshot import METHODS, Task, draw
from sinkshot.preprocess import apply

KINDS = ("5w1s15q", "5w5s15q", "dir1")
AT_ONCE = 20  # episodes


class Parity(NamedTuple):
    """How close we are: the largest difference of a score, and the share of episodes with the same accuracy."""

    scores: float
    accuracy: float


@cache
def novel():
    """The first feature bank as the public code saw it."""
    return sinkshot.load(GOLDEN / "cifar-fs_wrn-28-10_novel_f16.safetensors")


@cache
def base():
    """40 rows of each of its base classes, from which the public code took its base statistics."""
    return sinkshot.load(GOLDEN / "cifar-fs_wrn-28-10_base_f16.safetensors")


@cache
def rows(kind):
    """Row numbers of supports and queries [200, .] of a kind of episodes, and the labels of both."""
    if kind == "dir1":
        drawn = np.load(GOLDEN / "dirichlet_episodes.npz")
        return drawn["support"][:, :, 0], np.tile(np.arange(5), (200, 1)), drawn["query"], drawn["labels"]
    drawn = draw(novel().labels, protocol="official", shot=int(kind[2]), episodes=200)
    return drawn.support, drawn.support_labels, drawn.query, drawn.query_labels


def episodes(kind, part=slice(None), *, dtype="float64", strangers=None):
    """Raw features of golden episodes as a Task with its base bank, and the labels of its queries.

    Supports are sample-major: number i is shot i // 5 of class i % 5. With `strangers` [200, 5, 15], the `open_rows` of
    an open-set file, those queries follow the others, labelled -1.
    """
    support, support_labels, query, labels = (array[part] for array in rows(kind))
    if strangers is not None:
        unknown = strangers[part].transpose(0, 2, 1).reshape(len(query), -1)  # sample-major
        query, labels = np.hstack([query, unknown]), np.hstack([labels, np.full_like(unknown, -1)])
    features = novel().features
    return Task(features[support].astype(dtype), support_labels, features[query].astype(dtype), 5, base()), labels


@cache
def golden(name, kind):
    """The arrays of a golden file."""
    with np.load(GOLDEN / "peers" / f"{name}_{kind}.npz") as file:
        return dict(file)


def reference(name, kind):
    """Accuracy [r] and scores [16, q, way] to meet: one episode at a time in float64 where the file has them."""
    file = golden(name, kind)
    suffix = next(s for s in ("_single64", "64", "") if f"accuracy{s}" in file)
    return file[f"accuracy{suffix}"], file[f"query_scores{suffix}"]


def as_probabilities(scores, logits):
    """Golden scores in our form: the softmax of logits, else rows divided by their sums."""
    scores = scores.astype(np.float64)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True)) if logits else scores
    return weights / weights.sum(axis=-1, keepdims=True)


def hyper_parameters(method, kind, given):
    """The method's own constants for the kind of episodes, and those given."""
    return {**(METHODS[method].imbalanced if kind == "dir1" else {}), **given}


def probabilities(method, kind, count, *, chain=None, dtype="float64", file=None, **hyper):
    """Our answers to the first `count` golden episodes and the labels, with the method's own chain by default."""
    chosen = METHODS[method]
    hyper = hyper_parameters(method, kind, hyper)
    strangers = None if file is None else golden(file, kind).get("open_rows")
    answers, truth, unknown = [], [], []
    for begin in range(0, count, AT_ONCE):
        part = slice(begin, min(begin + AT_ONCE, count))
        task, labels = episodes(kind, part, dtype=dtype, strangers=strangers)
        scores = chosen(apply(task, chosen.preprocess if chain is None else chain), **hyper)
        answers.append(scores.probabilities)
        truth.append(labels)
        if scores.unknown is not None:
            unknown.append(scores.unknown)
    return np.concatenate(answers), np.concatenate(truth), np.concatenate(unknown) if unknown else None


def parity(method, kind, *, file=None, logits=False, count=None, **how):
    """Compare a registered method with a golden file (its own name by default)."""
    file = file or method
    accuracy, scores = reference(file, kind)
    count = len(accuracy) if count is None else min(count, len(accuracy))
    ours, labels, _ = probabilities(method, kind, count, file=file, **how)
    compared = min(count, len(scores))
    difference = np.abs(ours[:compared] - as_probabilities(scores[:compared], logits)).max()
    known = labels >= 0
    right = ((ours.argmax(axis=-1) == labels) & known).sum(axis=1) / known.sum(axis=1)
    return Parity(float(difference), float(np.isclose(right, accuracy[:count], atol=1e-4).mean()))


def check(method, kind, *, tolerance=1e-3, **how):
    """Accuracy is that of the public code in 98 % of the episodes, and scores are within the tolerance.

    `logits`: golden scores are logits or minus distances. `file`: another file than the method's name. `chain`,
    `dtype`, `count` (of episodes) and hyper-parameters are ours.
    """
    found = parity(method, kind, **how)
    assert found.accuracy >= 0.98, found
    assert found.scores <= tolerance, found


def open_set(method, kind, *, file=None, **how):
    """Our unknown scores [r, 150] of an open-set file's episodes, the golden ones of the first 16, and their AUROCs."""
    found = golden(file or method, kind)
    _, labels, unknown = probabilities(method, kind, len(found["auroc"]), file=file or method, **how)
    known = unknown[labels >= 0].reshape(len(unknown), -1, 1)
    strange = unknown[labels < 0].reshape(len(unknown), 1, -1)
    auroc = (strange > known).mean(axis=(1, 2)) + 0.5 * (strange == known).mean(axis=(1, 2))
    return unknown, found["unknown_score"], auroc, found["auroc"]
