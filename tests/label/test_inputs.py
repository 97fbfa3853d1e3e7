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


def test_a_missing_column_is_told_with_the_nearest_name(tmp_path):
    (tmp_path / "a.csv").write_text("sentence,label\nhello,x\n")
    with pytest.raises(InputError, match="did you mean 'sentence'"):
        inputs.read(tmp_path / "a.csv", text="sentense")


def test_the_command_shows_the_beginning_of_texts_to_label_next(capsys):
    print_next(["7", "8"], {"7": "where is my parcel, which I ordered three weeks ago and paid for at once"})
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["7  where is my parcel, which I ordered three weeks ago and ...", "8"]
