"""What SinkShot keeps between runs, as somebody else may have left it: banks in parts, cached features, results."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import numpy as np

FEATURES = np.arange(12, dtype=np.float32).reshape(6, 2)
IMAGE = b"content of an image"


def scratch() -> Path:
    return Path(tempfile.mkdtemp())


@functools.cache
def parts() -> dict[str, bytes]:
    """Return the files of a bank in parts, by name."""
    import sinkshot

    folder = scratch() / "bank"
    bank = sinkshot.FeatureBank.from_arrays(FEATURES, ["a", "a", "b", "b", "c", "c"], base={"": FEATURES[0]})
    bank.save(folder, part_rows=4)
    return {f"bank/{file.name}": file.read_bytes() for file in folder.iterdir()}


def bank_in_parts(path: Path) -> object:
    import sinkshot

    bank = sinkshot.load(path.parent)
    return bank.features[:], bank.base


def index_seeds() -> list[bytes]:
    return [parts()["bank/index.json"]]


def part_seeds() -> list[bytes]:
    return [parts()["bank/part-00000.safetensors"]]


def cached(path: Path) -> object:
    """Use a cache as `label` does."""
    from sinkshot.label.cache import FeatureCache, of_text

    image = path.with_name("x.png")
    image.write_bytes(IMAGE)
    with FeatureCache(path, "encoder", 2) as cache:
        items = [cache.unchanged([image])[0] or cache.of_file(image)[0], of_text("a"), of_text("b")]
        cache.add(items[1:], FEATURES[:2])
        cache.write()
        return cache.known(items)


def cache_seeds() -> list[bytes]:
    path = scratch() / "features.sqlite"
    cached(path)
    return [path.read_bytes()]


def stored(path: Path) -> object:
    """Use a store of results as `compare` and `reproduce` do."""
    from sinkshot.studies.store import Store

    with Store(path, reading=True) as store:
        found = store.everything()
    with Store(path) as store:
        return found, store.fact("question", "bank", "version")


def store_seeds() -> list[bytes]:
    import sqlite3

    from sinkshot.studies.store import Store

    path = scratch() / "results.sqlite"
    with Store(path) as store:
        store.add_fact("question", "bank", "version", {"mean": 0.5})
    database = sqlite3.connect(path)
    database.execute("INSERT INTO machines VALUES (1, ?)", ('{"hardware": "x", "versions": {"numpy": "2"}}',))
    settings = '{"method": "ncm", "preprocess": "PE", "hyper": {}, "recipe": {"way": 5}, "bank": {"data_set": "a", '
    settings += '"split": "novel", "backbones": ["b"]}}'
    database.execute("INSERT INTO cells VALUES (1, ?, 0, 'hash', 'numpy', '1')", (settings,))
    columns = "cell, first, count, accuracy, seconds, machine, finished"
    values = (1, 0, 3, np.ones(3).tobytes(), '{"total": 1.0}', 1, "2026-01-01")
    database.execute(f"INSERT INTO chunks ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", values)
    database.commit()
    database.execute("PRAGMA journal_mode = DELETE")
    database.close()
    return [path.read_bytes()]
