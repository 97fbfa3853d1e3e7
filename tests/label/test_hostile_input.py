"""Odd, large and hostile input gets a sentence, the rest is labelled, and the user's files are never changed."""

from __future__ import annotations

import csv
import json
import os
import struct
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from colour_photos import COLOURS, mean_colours, paint
from PIL import Image

from sinkshot.errors import InputError, is_printable
from sinkshot.label.run import label

EVERY_EXPORT = ("label-studio", "folders", "huggingface")


def run(source, **options):
    return label(source, encoder=mean_colours, size=8, name="mean colours", unknown=None, **options)


def contents(root):
    return {path: path.read_bytes() for path in root.rglob("*.png")}


def claims_to_be(path, width, height):
    """Write a PNG file whose header claims this size; it holds no pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    end = b"IEND"
    chunks = [struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in (header, end)]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


def test_images_of_50_000_pixels_are_left_out_or_read(photos):
    pool = photos / "_unlabeled"
    claims_to_be(pool / "square.png", 50_000, 50_000)
    Image.new("L", (50_000, 3), 200).save(pool / "thin.png")
    found = run(photos)
    assert [(one.name, one.reason) for one in found.items.left_out] == [
        ("_unlabeled/square.png", "it has more pixels than allowed")
    ]
    assert "_unlabeled/thin.png" in found.items.names


def test_pictures_are_read_as_viewers_show_them(photos):
    pool = photos / "_unlabeled"
    half = np.zeros((16, 16, 3), np.uint8)
    half[:8] = COLOURS["red"]  # red above black; turned by EXIF: red on the right
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(half).save(pool / "turned.png", exif=turned)
    Image.fromarray(np.full((16, 16), 40_000, np.uint16)).save(pool / "deep.png")
    found = run(photos)
    rows = dict(zip(found.items.names, found.features, strict=True))
    quarters = rows["_unlabeled/turned.png"].reshape(4, 3)[:, 0]  # above left, above right, below left, below right
    np.testing.assert_allclose(
        quarters, [0, COLOURS["red"][0], 0, COLOURS["red"][0]], atol=8
    )  # resizing blurs the edge
    np.testing.assert_allclose(rows["_unlabeled/deep.png"], 40_000 * 255 / 65_535, atol=1)


@pytest.mark.slow
def test_names_with_control_characters_are_whole_where_programs_read_and_escaped_in_tables(photos, tmp_path):
    names = ["two\nlines.png", "cr\rx.png", "[red]x.png", "esc\x1b[31m.png"]
    for name in names:
        paint(photos / "_unlabeled" / name, COLOURS["red"], np.random.default_rng(1))
    out = tmp_path / "labels"
    found = run(photos, out=out, export=EVERY_EXPORT)
    expected = {f"_unlabeled/{name}" for name in names}
    shown = {f"_unlabeled/{name}" for name in ("two\nlines.png", "cr\\rx.png", "[red]x.png", "esc\\x1b[31m.png")}
    for file in (out / "labels.csv", out / "metadata.csv"):
        with open(file, newline="", encoding="utf-8") as lines:
            assert shown <= {row["file_name"] for row in csv.DictReader(lines)}
    assert expected <= {task["data"]["name"] for task in json.loads((out / "label-studio.json").read_text())}
    parquet = pytest.importorskip("pyarrow.parquet")
    assert expected <= set(parquet.read_table(out / "probabilities.parquet")["file_name"].to_pylist())
    assert run(photos, labels=out / "labels.csv").items.labels == found.items.labels
    links = [path for path in (out / "folders").rglob("*") if path.is_symlink()]
    assert {os.path.realpath(link) for link in links} == {str(path.resolve()) for path in found.items.paths}


def test_class_names_with_control_characters_reach_no_table_and_are_known_again(photos, tmp_path):
    os.rename(photos / "red", photos / "r\x1b[31m\u202ed")
    out = tmp_path / "labels"
    found = run(photos, out=out, export=EVERY_EXPORT)
    for file in out.glob("*.*"):
        if file.suffix != ".parquet":
            assert all(map(is_printable, file.read_text("utf-8").replace("\r", "").split("\n"))), file
    assert run(photos, labels=out / "labels.csv").items.labels == found.items.labels


def test_names_that_are_not_utf8_are_left_out(photos, tmp_path):
    os.rename(photos / "_unlabeled" / "red-0.png", os.path.join(os.fsencode(photos), b"_unlabeled", b"r\xff.png"))
    found = run(photos, out=tmp_path / "labels", export=EVERY_EXPORT)
    assert [(one.name, one.reason) for one in found.items.left_out] == [
        ("_unlabeled/r\\udcff.png", "its name is not UTF-8; rename it")
    ]
    assert len(found.items) == 68


def test_a_folder_whose_name_is_not_utf8_is_labelled(photos, tmp_path):
    odd = os.fsdecode(os.path.join(os.fsencode(tmp_path), b"od\xff"))
    os.rename(photos, odd)
    assert len(run(odd, out=Path(odd) / "labels").items) == 69


@pytest.mark.slow
def test_linking_never_writes_to_an_image(photos, tmp_path):
    pool, rng = photos / "_unlabeled", np.random.default_rng(1)
    for name in ("a_/b.png", "a/_b.png", "a/__b.png", f"{'d' * 200}/{'e' * 200}.png", f"{'f' * 200}/{'e' * 200}.png"):
        paint(pool / name, COLOURS["red"], rng)
    paint(photos / ("é" * 120) / "0.png", COLOURS["green"], rng)
    before = contents(photos)
    for _ in range(2):
        run(photos, out=tmp_path / "labels", export=("folders",))
    assert contents(photos) == before
    links = [path for path in (tmp_path / "labels" / "folders").rglob("*") if path.is_symlink()]
    assert {os.path.realpath(link) for link in links} == {str(path.resolve()) for path in before}
    assert len(links) == len(before)


def test_a_folder_of_somebody_else_is_not_replaced(photos, tmp_path):
    (tmp_path / "labels" / "folders").mkdir(parents=True)
    (tmp_path / "labels" / "folders" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="was not made by this export"):
        run(photos, out=tmp_path / "labels", export=("folders",))
    assert (tmp_path / "labels" / "folders" / "mine.txt").read_text() == "mine"


@pytest.fixture
def another_user():
    """Tests that run as root continue as `nobody`, to whom permissions apply."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    yield
    os.seteuid(0)


def test_files_that_may_not_be_read_are_left_out(photos, request):
    run(photos)  # imports what another user may not be able to read
    with tempfile.TemporaryDirectory() as name:
        root, rng = Path(name), np.random.default_rng(0)
        root.chmod(0o777)
        for colour, value in COLOURS.items():
            for i in range(3):
                paint(root / colour / f"{i}.png", value, rng)
                paint(root / f"{colour}-{i}.png", value, rng)
        paint(root / "closed" / "x.png", COLOURS["red"], rng)
        (root / "red-0.png").chmod(0)
        (root / "closed").chmod(0)
        request.getfixturevalue("another_user")
        found = run(root)
        if os.getuid() == 0:
            os.seteuid(0)
        (root / "closed").chmod(0o700)
    assert len(found.items) == 17
    left_out = sorted((one.name, one.reason) for one in found.items.left_out)
    assert left_out == [("closed", "Permission denied"), ("red-0.png", "Permission denied")]


def test_a_class_without_another_item_keeps_its_own(photos):
    for path in (photos / "_unlabeled").glob("red-*"):
        path.unlink()
    found = run(photos)
    assert found.summary["counts"] == {"blue": 23, "green": 23, "red": 3}


@pytest.mark.parametrize("count", [0, 4, 1_000])
def test_next_names_what_is_not_sure_yet_and_then_the_others(photos, count):
    for path in sorted((photos / "_unlabeled").iterdir())[::2]:  # too few are left to look for strangers
        path.unlink()
    rng = np.random.default_rng(3)
    for i in range(12):  # half red, half blue
        paint(photos / "_unlabeled" / f"purple-{i}.png", (125, 50, 120), rng)
    found = run(photos, next_count=count)
    names = found.summary["next"]
    frame = found.to_frame().set_index("file_name")
    predicted = frame[frame.source == "predicted"]
    unsure = predicted[predicted.confidence < 0.995]
    assert 4 < len(unsure) <= 12
    assert len(names) == len(set(names)) == min(count, len(predicted))
    assert set(names) <= set(predicted.index)
    first = set(names[: len(unsure)])
    assert first <= set(unsure.index) if count < len(unsure) else first == set(unsure.index)


@pytest.mark.parametrize("kind", ["lists", "fixed lists", "numbers"])
def test_polars_frames_of_every_kind(kind):
    polars = pytest.importorskip("polars")
    rng, truth = np.random.default_rng(0), np.arange(30) % 2
    x = rng.gamma(1.0 + 4.0 * (truth[:, None] == np.arange(4) % 2)).astype(np.float32)
    labels = ["a" if code == 0 else "b" for code in truth[:6]] + [None] * 24
    columns = {
        "lists": {"vector": x.tolist()},
        "fixed lists": {"vector": polars.Series(x, dtype=polars.Array(polars.Float32, 4))},
        "numbers": {f"f{i}": x[:, i] for i in range(4)},
    }[kind]
    found = label(polars.DataFrame({**columns, "label": labels}), unknown=None)
    assert np.mean(np.array(found.answers.labels) == np.where(truth == 0, "a", "b")) > 0.9
    assert isinstance(found.to_frame(), pd.DataFrame)


def test_without_pandas_a_sentence_says_so(monkeypatch):
    found = label(pd.DataFrame({"x": [0.0, 0.1, 5.0, 5.1], "y": [5.0, 5.1, 0.0, 0.1], "label": ["a", "", "b", ""]}))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        found.to_frame()
