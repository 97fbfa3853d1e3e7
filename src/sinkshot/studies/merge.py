"""Concatenate features of several backbones, and select random coordinates of them (section 4.5 of the paper).

Rows of the banks must be the same images in the same order. Labels, class names and, where banks carry them, image
names or hashes are compared; a difference is an error that says at which row. A bank may say that it holds the first
rows of each class only; the others are then cut to the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sinkshot import preprocess
from sinkshot.bank import FeatureBank
from sinkshot.errors import InputError
from sinkshot.foreign import texts

IMAGES = "images"  # in meta: a JSON list with the name of the image behind each row
IMAGES_HASH = "images_sha256"  # in meta: one hash over all images in order
FIRST = "first_of_each_class"  # in meta: how many rows of each class were kept, the first ones


def merge(banks: Sequence[FeatureBank], names: Sequence[str]) -> FeatureBank:
    """Concatenate the columns of banks of the same images; `names` are used in errors."""
    if kept := [number for bank in banks if (number := _kept(bank)) is not None]:
        banks = [bank if _kept(bank) == min(kept) else first_of_each_class(bank, min(kept)) for bank in banks]
    first = banks[0]
    for bank, name in zip(banks[1:], names[1:], strict=True):
        _check_same_rows(first, bank, names[0], name)
    width = sum(bank.width for bank in banks)
    features = np.empty((len(first.labels), width), np.float32)
    np.concatenate([bank.features for bank in banks], axis=1, out=features)
    features.flags.writeable = False
    shared = {k: v for k, v in first.meta.items() if all(bank.meta.get(k) == v for bank in banks)}
    parts = [f"{name} ({bank.width} columns)" for bank, name in zip(banks, names, strict=True)]
    meta = {**shared, "backbone": "+".join(names), "merged": ", ".join(parts)}
    base = {
        prefix: np.concatenate([bank.base[prefix] for bank in banks])
        for prefix in _by_coordinate(first.base)
        if all(prefix in bank.base for bank in banks)
    }
    return FeatureBank(features, first.labels, first.class_names, meta, base)


def first_of_each_class(bank: FeatureBank, count: int) -> FeatureBank:
    """Keep the first `count` rows of each class, or all where a class has fewer, in their order."""
    if count < 1:
        raise InputError(f"at least one row of each class must stay; {count} was given.")
    rows = np.sort(np.concatenate([np.flatnonzero(bank.labels == label)[:count] for label in range(bank.classes)]))
    features = bank.features[rows]
    features.flags.writeable = False
    meta = {key: text for key, text in bank.meta.items() if key != IMAGES_HASH}
    if IMAGES in meta:
        images = _images(bank, "the bank")
        meta[IMAGES] = json.dumps([images[row] for row in rows])
    return FeatureBank(features, bank.labels[rows], bank.class_names, {**meta, FIRST: str(count)}, bank.base)


def _kept(bank: FeatureBank) -> int | None:
    """Return how many rows of each class a bank says to hold; None where it does not say."""
    text = bank.meta.get(FIRST)
    if text is not None and not (text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text)):
        raise InputError(f"{FIRST!r} in the meta of a bank must be a whole number above 0; {text!r:.40} was given.")
    return None if text is None else int(text)


def selection(bank: FeatureBank, coordinates: int, seed: int) -> FeatureBank:
    """Keep this many random columns of a bank, in their order."""
    if not 1 <= coordinates <= bank.width:
        raise InputError(f"coordinates must be from 1 to {bank.width}, the width of the bank; {coordinates} was given.")
    columns = np.sort(shuffled(bank.width, seed)[:coordinates])
    features = bank.features[:, columns]
    features.flags.writeable = False
    base = {prefix: bank.base[prefix][columns] for prefix in _by_coordinate(bank.base)}
    meta = {**bank.meta, "selected": f"{coordinates} of {bank.width} coordinates, seed {seed}"}
    return FeatureBank(features, bank.labels, bank.class_names, meta, base)


def selection_seed(seed: int, number: int) -> int:
    """Return the seed of selection `number` (from 0) of a cell whose recipe has this seed."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0])


def shuffled(count: int, seed: int) -> NDArray[np.intp]:
    """Return a permutation of 0 .. count-1 that is the same on all machines and NumPy versions."""
    return np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable")


def _by_coordinate(base: Mapping[str, NDArray[np.float32]]) -> list[str]:
    """Return the base means that stay valid for any choice of columns.

    A mean taken after unit length (E) does not: the length of a row changes with the columns around it.
    """
    return [prefix for prefix in base if all(step.name in ("P", "Ps") for step in preprocess.parse(prefix))]


def _check_same_rows(a: FeatureBank, b: FeatureBank, name_a: str, name_b: str) -> None:
    what = f"{name_a} and {name_b} cannot be merged"
    do = "Extract both from the same images in the same order."
    if len(a.labels) != len(b.labels):
        raise InputError(f"{what}: they have {len(a.labels)} and {len(b.labels)} rows. {do}")
    if a.class_names != b.class_names or (a.labels != b.labels).any():
        of_a, of_b = np.array(a.class_names)[a.labels], np.array(b.class_names)[b.labels]
        if (differ := of_a != of_b).any():
            row = int(differ.argmax())
            one, other = str(of_a[row]), str(of_b[row])
            raise InputError(f"{what}: row {row} has class {one!r} in one and {other!r} in the other. {do}")
        raise InputError(f"{what}: their classes are in a different order. {do}")
    if IMAGES in a.meta and IMAGES in b.meta and a.meta[IMAGES] != b.meta[IMAGES]:
        images = zip(_images(a, name_a), _images(b, name_b), strict=True)
        row, (one, other) = next((i, pair) for i, pair in enumerate(images) if pair[0] != pair[1])
        raise InputError(f"{what}: row {row} is image {one!r} in one and {other!r} in the other. {do}")
    if len({bank.meta[IMAGES_HASH] for bank in (a, b) if IMAGES_HASH in bank.meta}) > 1:
        raise InputError(f"{what}: the hashes of their images ({IMAGES_HASH} in their meta) differ. {do}")


def _images(bank: FeatureBank, name: str) -> list[str]:
    try:
        images = texts.json_value(bank.meta[IMAGES], name)
    except InputError:
        images = None
    if not isinstance(images, list) or len(images) != len(bank.labels):
        raise InputError(
            f"{name}: {IMAGES!r} in its meta must be a JSON list of {len(bank.labels)} names, one per row."
        )
    return images
