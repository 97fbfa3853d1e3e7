"""Banks in parts: the same rows as in one file, read as they are asked for; a damaged part is named."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sinkshot import FeatureBank, InputError, Recipe, evaluate, label, load
from sinkshot.bank import describe, in_parts
from sinkshot.foreign.folders import folder_at
from sinkshot.formats import parts
from tests.command_line import sinkshot

ROWS, WIDTH = 230, 16


@pytest.fixture
def bank() -> FeatureBank:
    """Five classes, not sorted, with a base mean."""
    draw = np.random.default_rng(0)
    labels = np.arange(ROWS) % 5
    features = draw.gamma(1.0, size=(ROWS, WIDTH)) + 4.0 * (labels[:, None] == np.arange(WIDTH))
    features = features.astype(np.float16).astype(np.float32)  # as parts store them
    return FeatureBank.from_arrays(features, labels, list("abcde"), {"split": "novel"}, {"": features.mean(axis=0)})


@pytest.fixture
def folder(bank: FeatureBank, tmp_path: Path) -> Path:
    """The same bank in five parts."""
    bank.save(tmp_path / "parts", part_rows=50, store="float16")
    return tmp_path / "parts"


ROW_KEYS: dict[str, Any] = {
    "number": 3,
    "number from the end": -1,
    "one number": np.array([5]),
    "slice": slice(40, 120, 7),
    "numbers": np.array([229, 0, 49, 50, 50, 3]),
    "mask": np.arange(ROWS) % 3 == 0,
    "square of numbers": np.array([[1, 60], [60, 2]]),
    "nothing": np.array([], dtype=int),
}


def test_parts_hold_the_same_bank(bank: FeatureBank, folder: Path) -> None:
    """Content, labels, names, meta and base means come back; the hash is that of the same rows in one file."""
    found = load(folder)
    assert len(parts.open_parts(folder)[1].parts) == 5
    np.testing.assert_array_equal(found.labels, bank.labels)
    np.testing.assert_array_equal(found.features[:], bank.features)
    np.testing.assert_array_equal(found.base[""], bank.base[""])
    assert (found.class_names, dict(found.meta)) == (bank.class_names, dict(bank.meta))
    assert found.content_hash() == bank.content_hash()
    assert describe(found) == {**describe(bank), "parts": 5}


@pytest.mark.parametrize("rows", ROW_KEYS.values(), ids=ROW_KEYS)
def test_rows_are_indexed_as_in_an_array(bank: FeatureBank, folder: Path, rows: Any) -> None:
    """Slices, numbers in any order, repeated ones, masks and arrays of numbers."""
    np.testing.assert_array_equal(load(folder).features[rows], bank.features[rows])


def test_parquet_parts_hold_the_same_bank(bank: FeatureBank, tmp_path: Path) -> None:
    """They are decoded one at a time; a damaged one is named."""
    pytest.importorskip("pyarrow")
    bank.save(tmp_path / "parts", part_rows=150, store="float16", part_format="parquet")
    found = load(tmp_path / "parts")
    assert found.content_hash() == bank.content_hash()
    np.testing.assert_array_equal(found.features[ROW_KEYS["numbers"]], bank.features[ROW_KEYS["numbers"]])
    part = tmp_path / "parts" / "part-00001.parquet"
    content = part.read_bytes()
    part.write_bytes(content[:-30] + bytes([content[-30] ^ 1]) + content[-29:])
    with pytest.raises(InputError, match="part-00001"):
        describe(load(tmp_path / "parts"))


def test_columns_may_be_chosen_too(bank: FeatureBank, folder: Path) -> None:
    """As in an array."""
    np.testing.assert_array_equal(load(folder).features[10:90, 2], bank.features[10:90, 2])
    with pytest.raises(IndexError):
        load(folder).features[ROWS]


@pytest.mark.parametrize("engine", ["numpy", pytest.param("numba", marks=pytest.mark.slow), "torch"])
def test_evaluation_is_the_same(bank: FeatureBank, tmp_path: Path, engine: str) -> None:
    """Every engine gathers the rows that episodes draw, and finds the same accuracies."""
    if engine == "torch":
        pytest.importorskip("torch")
    bank.save(tmp_path / "parts", part_rows=50, store="float16")
    recipe = Recipe(way=3, shot=1, query=5, episodes=20)
    expected, found = (
        evaluate(source, recipe, method="bms", engine=engine) for source in (bank, load(tmp_path / "parts"))
    )
    np.testing.assert_array_equal(found.per_episode, expected.per_episode)


def test_evaluation_reads_only_drawn_rows(bank: FeatureBank, tmp_path: Path) -> None:
    """No part is read whole."""
    bank.save(tmp_path / "parts", part_rows=50)
    source = load(tmp_path / "parts")
    features = in_parts(source)
    assert features is not None
    asked: list[int] = []
    read = features._rows
    features._rows = lambda numbers: (asked.append(len(numbers)), read(numbers))[1]  # type: ignore[method-assign]
    evaluate(source, Recipe(way=2, shot=1, query=1, episodes=4), method="ncm", engine="numpy")
    assert asked
    assert sum(asked) <= 4 * 4


def test_a_negative_entry_is_named_by_its_row(bank: FeatureBank, tmp_path: Path) -> None:
    """The number is that in the bank, not that among drawn rows."""
    features = np.array(bank.features)
    features[:, 3] = -1.0
    FeatureBank(features, bank.labels, bank.class_names).save(tmp_path / "parts", part_rows=50)
    episodes = Recipe(way=2, shot=1, query=1, episodes=2).draw(bank.labels)
    first = int(min(episodes.support.min(), episodes.query.min()))
    with pytest.raises(InputError, match=f"row {first}, column 3 is -1"):
        evaluate(load(tmp_path / "parts"), episodes, method="ncm", preprocess="PE", engine="numpy")


def test_a_bank_in_parts_can_be_pickled(bank: FeatureBank, folder: Path) -> None:
    """Workers get the address, not the rows."""
    content = pickle.dumps(load(folder).features)
    assert len(content) < 4_000
    np.testing.assert_array_equal(pickle.loads(content)[:], bank.features)


def test_an_address_works_as_a_folder(bank: FeatureBank, tmp_path: Path) -> None:
    """`file://`, and a remote file system of fsspec, here in memory."""
    pytest.importorskip("fsspec")
    bank.save("memory://birds/parts", part_rows=100, store="uint8")
    bank.save(f"file://{tmp_path}/parts", part_rows=100, store="uint8")
    far, near = load("memory://birds/parts"), load(tmp_path / "parts")
    assert far.content_hash() == near.content_hash()
    np.testing.assert_allclose(far.features[[3, 150, 229]], bank.features[[3, 150, 229]], rtol=0.05, atol=0.01)
    with pytest.raises(InputError, match="not a bank in parts"):
        load("memory://birds/nothing")
    with pytest.raises(InputError, match="nosuch"):
        load("nosuch://birds/nothing")


@pytest.mark.slow
def test_label_takes_parts(bank: FeatureBank, tmp_path: Path) -> None:
    """Unlabelled rows have label -1."""
    labels = np.where(np.arange(ROWS) < 15, bank.labels, -1)
    content = parts.BankContent(bank.features, labels, bank.class_names, {}, {})
    parts.write(content, tmp_path / "parts", store="float32", part_rows=100)
    found = label(tmp_path / "parts", unknown=None).to_frame()["label"]
    truth = np.array(bank.class_names)[bank.labels]
    assert np.mean(found == truth) > 0.9
    with pytest.raises(InputError, match="row 15 has label -1"):
        load(tmp_path / "parts")


def test_convert_makes_parts_and_a_file_again(bank: FeatureBank, tmp_path: Path) -> None:
    """On the command line, there and back."""
    bank.save(tmp_path / "bank.npz")
    done = sinkshot("convert", tmp_path / "bank.npz", tmp_path / "parts", "--part-rows", 60)
    assert done.returncode == 0
    assert "230 rows x 16 of 5 classes in 4 parts" in done.stdout
    done = sinkshot("convert", tmp_path / "parts", tmp_path / "again.safetensors")
    assert done.returncode == 0
    assert load(tmp_path / "again.safetensors").content_hash() == bank.content_hash()


def test_other_files_in_the_folder_are_never_touched(bank: FeatureBank, tmp_path: Path) -> None:
    """A folder with anything else is refused."""
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(InputError, match="holds other files"):
        bank.save(tmp_path, part_rows=60)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_smaller_bank_replaces_a_larger_one(bank: FeatureBank, tmp_path: Path) -> None:
    """Parts of the older bank that the new index does not list are removed."""
    bank.save(tmp_path / "parts", part_rows=20)
    bank.save(tmp_path / "parts", part_rows=100)
    assert load(tmp_path / "parts").content_hash() == bank.content_hash()
    assert len(folder_at(tmp_path / "parts").names()) == 3 + 2  # parts, index and base means


# --- damage ----------------------------------------------------------------------------------------------------------


def test_a_damaged_part_is_named(folder: Path) -> None:
    """Cut short, deleted, or with other bytes."""
    part = folder / "part-00003.safetensors"
    content = part.read_bytes()
    part.write_bytes(content[:-7])
    with pytest.raises(InputError, match=r"part-00003.*bytes, but the index says"):
        load(folder)
    part.unlink()
    with pytest.raises(InputError, match=r"part-00003.*does not exist"):
        load(folder)
    at = len(content) // 2
    part.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    with pytest.raises(InputError, match=r"part-00003"):
        describe(load(folder))


def test_a_part_that_shrinks_while_it_is_read_is_named(bank: FeatureBank, tmp_path: Path) -> None:
    """Mapped memory would end the process."""
    bank.save(tmp_path / "parts", part_rows=100)
    found = load(tmp_path / "parts")
    part = tmp_path / "parts" / "part-00001.safetensors"
    part.write_bytes(part.read_bytes()[:500])
    with pytest.raises(InputError, match=r"part-00001.*cut short"):
        _ = found.features[150:160]


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "other"},
        {"version": 99},
        {"version": "one"},
        {"rows": 12},
        {"width": 0},
        {"width": 17},
        {"width": 1 << 40},
        {"class_names": "abcde"},
        {"class_names": ["a"]},
        {"meta": {"split": 3}},
        {"parts": []},
        {"parts": [{"file": "../part-00000.safetensors", "rows": 230, "bytes": 10, "sha256": "0" * 64}], "rows": 230},
        {"parts": [{"file": "part-00000.safetensors", "rows": -1, "bytes": 10, "sha256": "0" * 64}]},
        {"parts": [{"file": "part-00000.safetensors", "rows": 230}]},
        {"parts": 5},
    ],
    ids=str,
)
def test_a_wrong_index_is_refused(bank: FeatureBank, tmp_path: Path, change: dict[str, Any]) -> None:
    """Every field is checked, and no name leads out of the folder."""
    bank.save(tmp_path / "parts", part_rows=100)
    index = tmp_path / "parts" / "index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | change))
    with pytest.raises(InputError, match="parts"):
        load(tmp_path / "parts")
    assert sinkshot("info", tmp_path / "parts").returncode == 2
