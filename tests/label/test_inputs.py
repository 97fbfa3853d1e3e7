"""Embeddings and texts come in many file formats; each is recognised, and errors are sentences."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from sinkshot.cli.label import _print_next as print_next
from sinkshot.errors import InputError
from sinkshot.label import inputs
from sinkshot.label.run import label


def vectors(count=60, way=3, width=8, seed=0):
    rng = np.random.default_rng(seed)
    truth = np.arange(count) % way
    return (rng.gamma(1.0 + 4.0 * (truth[:, None] == np.arange(width) % way))).astype(np.float32), truth


FEATURES, TRUTH = vectors()
CODES = np.where(np.arange(60) < 12, TRUTH, -1)
NAMES = np.array(["ant", "bee", "cow"])


def written(kind, folder):
    """Write the same embeddings and labels in one of the forms."""
    path = folder / f"vectors{kind}"
    texts = ["" if code < 0 else NAMES[code] for code in CODES]
    numbers = {f"f{i}": FEATURES[:, i] for i in range(8)}
    match kind:
        case ".npz":
            np.savez(path, features=FEATURES, labels=CODES, class_names=NAMES)
        case ".npy":
            np.save(path, FEATURES)
            np.save(folder / "vectors_labels.npy", np.array(texts))
        case ".safetensors":
            save_file({"features": FEATURES, "labels": CODES}, path)
        case ".parquet":
            pd.DataFrame({"vector": list(FEATURES), "label": texts}).to_parquet(path)
        case "-wide.parquet":
            pd.DataFrame({**numbers, "label": texts}).to_parquet(path)
        case ".csv":
            pd.DataFrame({"id": np.arange(60), **numbers, "label": texts}).to_csv(path, index=False)
        case ".jsonl":
            lines = [
                json.dumps({"vector": row.tolist(), "label": text}) for row, text in zip(FEATURES, texts, strict=True)
            ]
            path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("kind", [".npz", ".npy", ".safetensors", ".parquet", "-wide.parquet", ".csv", ".jsonl"])
def test_embeddings_in_every_form_give_the_same_answer(kind, tmp_path):
    if kind.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    found = label(written(kind, tmp_path), unknown=None)
    classes = ["0", "1", "2"] if kind == ".safetensors" else NAMES.tolist()
    assert found.summary["classes"] == classes
    assert np.mean([classes.index(name) for name in found.answers.labels] == TRUTH) > 0.95
    assert found.items.column == "id"
    np.testing.assert_allclose(found.features, FEATURES, rtol=1e-5)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_are_labelled(library):
    texts = [None if code < 0 else NAMES[code] for code in CODES]
    columns = {**{f"f{i}": FEATURES[:, i] for i in range(8)}, "label": texts}
    frame = pytest.importorskip(library).DataFrame(columns)
    answers = label(frame, unknown=None).to_frame()
    assert np.mean(answers.label == NAMES[TRUTH]) > 0.95


SENTENCES = ["what is the weather", "will it rain", "play a song", "turn the music up"] * 6


def bag(texts):
    """Features of texts: counts of a few words."""
    return np.array([[text.count(word) for word in ("weather", "rain", "it", "song", "music", "up")] for text in texts])


@pytest.mark.parametrize("kind", [".csv", ".jsonl", ".parquet", ".txt"])
def test_texts_in_every_form_are_labelled(kind, tmp_path):
    if kind.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    path, given = tmp_path / f"texts{kind}", tmp_path / "labels.csv"
    labels = ["weather", "weather", "music", "music"] + [""] * 20
    frame = pd.DataFrame({"sentence": SENTENCES, "label": labels})
    match kind:
        case ".csv":
            frame.to_csv(path, index=False)
        case ".jsonl":
            frame.to_json(path, orient="records", lines=True)
        case ".parquet":
            frame.to_parquet(path)
        case ".txt":
            path.write_text("\n".join(SENTENCES))
            given.write_text("id,label\n" + "\n".join(f"{i},{name}" for i, name in enumerate(labels[:4], start=1)))
    options = {"labels": given} if kind == ".txt" else {"text": "sentence"}
    found = label(path, encoder=bag, name="bag", unknown=None, **options)
    assert found.items.kind == "texts"
    assert list(found.answers.labels) == (["weather"] * 2 + ["music"] * 2) * 6


def test_empty_texts_are_left_out(tmp_path):
    (tmp_path / "texts.txt").write_text("one\n\n  \ntwo\n")
    items = inputs.read(tmp_path / "texts.txt")
    assert items.names == ("1", "4")
    assert [one.name for one in items.left_out] == ["line 2", "line 3"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "id,label,f\n1,x,0.5\n1,,0.7\n", "the id '1' occurs twice"),
        ("a.csv", "f,label\n0.5,x\nnan,y\n", r"row 1, column 0 .* is nan"),
        ("a.csv", "sentence,label\nhello,x\n", r"no column of numbers.*--text sentence"),
        ("a.csv", "id;label;f\n1;x;0.5\n", r"one column, id;label;f; separate columns by commas"),
        ("a.csv", "", "is empty"),
        ("a.jsonl", "{}\nnonsense\n", r"line 2 .*not valid JSON"),
        ("a.jsonl", "[1]\n", r"line 1 is not a JSON object"),
        ("a.parquet", "nonsense", r"not a Parquet file"),
        ("a.npz", "nonsense", r"a\.npz"),
        ("a.pdf", "nonsense", r"is not recognised"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(tmp_path, name, content, message):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        inputs.read(tmp_path / name)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([[[1.0, 2.0]]] * 2, "no column of numbers, or of lists of numbers\\.$"),
        ([[1.0, 2.0], None], "missing in some rows"),
    ],
)
def test_columns_of_odd_lists_are_told(tmp_path, column, message):
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    parquet.write_table(arrow.table({"label": ["x", None], "e": column}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=message):
        inputs.read(tmp_path / "a.parquet")


def test_a_label_file_with_semicolons_is_told_to_use_commas(tmp_path):
    (tmp_path / "a.csv").write_text("id,f\n1,0.5\n")
    (tmp_path / "labels.csv").write_text("id;label\n1;x\n")
    with pytest.raises(InputError, match="separate columns by commas"):
        inputs.read(tmp_path / "a.csv", labels=tmp_path / "labels.csv")


def test_class_names_that_differ_only_in_case_are_told(tmp_path):
    (tmp_path / "a.csv").write_text("id,label,f,g\n1,Cat,0.5,1\n2,cat,0.1,2\n3,dog,0.7,2\n4,,0.3,1\n")
    told = []
    label(tmp_path / "a.csv", tell=told.append)
    assert [line for line in told if "case" in line] == [
        "the classes 'Cat' and 'cat' differ only in case; they count as two"
    ]


def test_a_missing_column_is_told_with_the_nearest_name(tmp_path):
    (tmp_path / "a.csv").write_text("sentence,label\nhello,x\n")
    with pytest.raises(InputError, match="did you mean 'sentence'"):
        inputs.read(tmp_path / "a.csv", text="sentense")


def test_the_command_shows_the_beginning_of_texts_to_label_next(capsys):
    print_next(["7", "8"], {"7": "where is my parcel, which I ordered three weeks ago and paid for at once"})
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["7  where is my parcel, which I ordered three weeks ago and ...", "8"]
