"""`label` recognises its input, labels it, caches features, and leaves out what it cannot read."""

from __future__ import annotations

import csv
import json
import os
import re

import numpy as np
import pandas as pd
import pytest
from colour_photos import COLOURS, mean_colours, paint
from PIL import Image

from sinkshot.errors import InputError
from sinkshot.label.classifier import chain_for
from sinkshot.label.run import label


def run(source, **options):
    return label(source, encoder=mean_colours, size=8, name="mean colours", unknown=None, **options)


def right(found):
    """Share of correct predicted labels; the file name holds the truth."""
    frame = found.to_frame()
    frame = frame[frame.source == "predicted"]
    return np.mean(
        [name.split("/")[-1].startswith(answer) for name, answer in zip(frame.file_name, frame.label, strict=True)]
    )


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_folder_of_classes_and_a_pool_is_labelled(photos, tmp_path):
    told = []
    found = run(photos, out=tmp_path / "labels", tell=told.append)
    assert told[0].endswith("69 images, 9 labelled in 3 classes, 60 to label")
    assert right(found) == 1
    rows = read(tmp_path / "labels" / "labels.csv")
    assert list(rows[0]) == ["file_name", "label", "confidence", "unknown", "second", "margin", "source"]
    assert [row["file_name"] for row in rows] == list(found.items.names)
    assert {row["source"] for row in rows} == {"given", "predicted"}
    summary = json.loads((tmp_path / "labels" / "summary.json").read_text())
    assert summary["counts"] == dict.fromkeys(sorted(COLOURS), 23)
    page = (tmp_path / "labels" / "report.html").read_text()
    assert "data:image/jpeg" in page
    legend = page.partition('<ul class="key">')[2].partition("</ul>")[0]
    assert re.findall("<span>(.*?)</span>", legend) == [*sorted(COLOURS), "label given"]
    assert "http" not in page.replace("http://www.w3.org", "")
    pytest.importorskip("pyarrow")
    probabilities = pd.read_parquet(tmp_path / "labels" / "probabilities.parquet")
    assert len(probabilities) == 69


def test_loose_files_and_subfolders_are_part_of_it(photos):
    rng = np.random.default_rng(1)
    paint(photos / "red-loose.png", COLOURS["red"], rng)
    paint(photos / "_unlabeled" / "deep" / "er" / "green-9.png", COLOURS["green"], rng)
    paint(photos / "blue" / "more" / "x.png", COLOURS["blue"], rng)
    found = run(photos)
    assert right(found) == 1
    assert dict(zip(found.items.names, found.items.labels, strict=True))["blue/more/x.png"] == "blue"
    assert "_unlabeled/deep/er/green-9.png" in found.items.names


@pytest.mark.parametrize("name", ["unlabeled", "unknown", "Unlabelled"])
def test_other_names_of_the_pool_are_taken_with_a_notice(photos, name):
    (photos / "_unlabeled").rename(photos / name)
    told = []
    assert right(run(photos, tell=told.append)) == 1
    assert any(name in line and "_unlabeled" in line for line in told)


def test_known_outsiders_keep_their_label(photos):
    rng = np.random.default_rng(1)
    for i in range(4):
        paint(photos / "_none" / f"{i}.png", (250, 250, 250), rng)
    frame = run(photos).to_frame().set_index("file_name")
    assert (frame.loc[[f"_none/{i}.png" for i in range(4)], "label"] == "_none").all()
    assert "_none" not in run(photos).summary["classes"]


def test_a_flat_folder_is_labelled_by_a_file(photos, tmp_path):
    flat = tmp_path / "flat"
    flat.mkdir()
    lines = ["file_name,label"]
    for path in sorted(photos.rglob("*.png")):
        name = path.name if path.parent.name == "_unlabeled" else f"{path.parent.name}-given-{path.name}"
        path.rename(flat / name)
        lines.append(f"{name},{name.split('-')[0] if 'given' in name else ''}")
    (tmp_path / "by hand.csv").write_text("\ufeff" + "\n".join(lines), encoding="utf-8")
    assert right(run(flat, labels=tmp_path / "by hand.csv")) == 1


def test_answers_read_back_and_only_given_and_accepted_ones_count(photos, tmp_path):
    run(photos, out=tmp_path / "labels")
    rows = read(tmp_path / "labels" / "labels.csv")
    accepted = next(row for row in rows if row["source"] == "predicted")
    accepted["source"] = "accepted"
    with open(tmp_path / "reviewed.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    items = run(photos, labels=tmp_path / "reviewed.csv").items
    assert sum(name is not None for name in items.labels) == 10
    assert items.accepted.sum() == 1


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["_unlabeled/red-0.png,red", "_unlabeled/red-0.png,blue"], r"lines 2 and 3.*'red' and 'blue'"),
        (["red/0.png,blue"], r"line 2: red/0.png is 'blue' here and 'red' by its folder"),
        (["nobody.png,red"], r"none of the 1 names.*relative to the folder"),
        (["_unlabeled/red-0.png"], r"line 2 has 1 cells; the header has 2"),
        (['"open,red'], r"line 2"),
    ],
)
def test_label_files_that_contradict_are_refused_with_their_lines(photos, tmp_path, lines, message):
    (tmp_path / "bad.csv").write_text("\n".join(["file_name,label", *lines]))
    with pytest.raises(InputError, match=f"(?s){message}"):
        run(photos, labels=tmp_path / "bad.csv")


def test_labels_for_files_that_are_not_there_are_left_out_by_line(photos, tmp_path):
    (tmp_path / "some.csv").write_text("file_name,label\n_unlabeled/red-0.png,red\ngone.png,red\n")
    left_out = run(photos, labels=tmp_path / "some.csv").items.left_out
    assert [(one.name, one.reason) for one in left_out] == [
        ("gone.png", "line 3 of some.csv labels it, but there is no such item")
    ]


def test_features_are_kept_and_only_what_changed_is_encoded_again(photos, tmp_path):
    batches = []

    def counted(images):
        batches.append(len(images))
        return mean_colours(images)

    def again():
        batches.clear()
        label(photos, encoder=counted, size=8, name="counted", unknown=None)
        return sum(batches) - 1  # the first call is a trial of one image

    assert again() == 69
    assert again() == 0
    paint(photos / "_unlabeled" / "red-new.png", COLOURS["red"], np.random.default_rng(5))
    paint(photos / "red" / "0.png", COLOURS["red"], np.random.default_rng(6))
    assert again() == 2


def test_what_cannot_be_read_is_left_out_with_a_reason(photos, tmp_path):
    pool = photos / "_unlabeled"
    (pool / "empty.png").write_bytes(b"")
    (pool / "text.jpg").write_text("not an image")
    whole = (pool / "red-0.png").read_bytes()
    (pool / "cut.png").write_bytes(whole[: len(whole) // 2])
    Image.effect_noise((64, 64), 90).save(pool / "whole.jpg")
    (pool / "cut.jpg").write_bytes((pool / "whole.jpg").read_bytes()[:600])
    (pool / "whole.jpg").unlink()
    (pool / "readme.txt").write_text("hello")
    (pool / "loop").symlink_to(pool, target_is_directory=True)
    (pool / "dangling.png").symlink_to(tmp_path / "nowhere.png")
    os.mkfifo(pool / "pipe.png")
    Image.new("CMYK", (20, 20)).save(pool / "red-cmyk.jpg")
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
    frames[0].save(pool / "red-moving.gif", save_all=True, append_images=frames[1:])
    found = run(photos, out=tmp_path / "labels")
    reasons = {one.name.split("/")[-1]: one.reason for one in found.items.left_out}
    assert set(reasons) == {"empty.png", "text.jpg", "cut.png", "cut.jpg", "readme.txt", "dangling.png", "pipe.png"}
    assert all(reasons.values())
    assert len(found.items) == 71
    page = (tmp_path / "labels" / "report.html").read_text()
    assert "Left out" in page


def test_hostile_names_reach_neither_spreadsheet_nor_page(photos, tmp_path):
    rng = np.random.default_rng(1)
    names = ["=cmd.png", "+1.png", "@x.png", "-red.png", "a\nb.png", 'q"uote.png', "<script>alert(1)<.png", "'x.png"]
    for name in names:
        paint(photos / name, COLOURS["red"], rng)
    (photos / "red").rename(photos / "=red")
    found = run(photos, out=tmp_path / "labels")
    rows = read(tmp_path / "labels" / "labels.csv")
    for row in rows:
        assert not row["file_name"].startswith(("=", "+", "-", "@", "'"))
        assert not row["label"].startswith("=")
    assert "./=cmd.png" in {row["file_name"] for row in rows}
    assert "<script>alert(1)" not in (tmp_path / "labels" / "report.html").read_text()
    again = run(photos, labels=tmp_path / "labels" / "labels.csv")
    assert again.items.labels == found.items.labels
    assert not again.items.left_out


def test_one_class_no_class_and_no_images_get_an_answer_or_a_sentence(photos, tmp_path):
    for name in ("green", "blue"):
        for path in (photos / name).iterdir():
            path.unlink()
    assert set(run(photos).to_frame().label) == {"red"}
    for path in (photos / "red").iterdir():
        path.unlink()
    found = run(photos, next_count=6)
    assert found.answers is None
    assert len(found.summary["next"]) == 6
    assert len({name.split("/")[-1].split("-")[0] for name in found.summary["next"]}) == 3
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match="no images below"):
        run(tmp_path / "nothing")
    with pytest.raises(InputError, match="no file or folder"):
        run(tmp_path / "nowhere")


def test_without_labels_the_files_say_what_to_label_first_and_read_back(photos, tmp_path):
    for name in COLOURS:
        for path in (photos / name).iterdir():
            path.unlink()
    out = tmp_path / "labels"
    found = run(photos, out=out, next_count=6)
    rows = read(out / "labels.csv")
    assert [row["file_name"] for row in rows] == list(found.items.names)
    assert not any(value for row in rows for name, value in row.items() if name != "file_name")
    assert json.loads((out / "summary.json").read_text())["next"] == found.summary["next"]
    page = (out / "report.html").read_text()
    assert "Label these first" in page
    assert page.count("data:image/jpeg") == 6
    assert all(name in page for name in found.summary["next"])
    filled = out / "filled.csv"  # as a person fills it in
    lines = (out / "labels.csv").read_text().splitlines()
    for name in found.summary["next"]:
        colour = name.split("/")[-1].split("-")[0]
        lines = [
            line.replace(f"{name},", f"{name},{colour}", 1) if line.startswith(f"{name},") else line for line in lines
        ]
    filled.write_text("\n".join(lines) + "\n")
    again = run(photos, labels=filled)
    assert again.answers.sources.count("given") == 6
    assert right(again) == 1


def test_answers_of_an_earlier_run_inside_the_folder_are_no_class(photos):
    first = run(photos, out=photos / "labels", export=("folders",))
    told = []
    found = run(photos, out=photos / "others", tell=told.append)
    assert found.items.names == first.items.names
    assert "the folder labels/ holds the results of an earlier run and is skipped." in told
    (photos / "cats").mkdir()
    (photos / "cats" / "summary.json").write_text('{"kind": "of cats"}')
    paint(photos / "cats" / "0.png", COLOURS["red"], np.random.default_rng(0))
    assert "cats" in run(photos, out=photos / "others").summary["classes"]


def test_the_front_door_labels_too(photos):
    import sinkshot

    options = {"encoder": mean_colours, "size": 8, "name": "mean colours", "unknown": None}
    first, again = (sinkshot.label(photos, **options) for _ in range(2))  # a function, then the package of its name
    assert right(first) == right(again) == 1
    assert isinstance(first, sinkshot.Labelled)


def test_a_kept_classifier_labels_new_items(photos, tmp_path):
    run(photos, save=tmp_path / "model.safetensors")
    rng = np.random.default_rng(9)
    for name, colour in COLOURS.items():
        paint(tmp_path / "new" / f"{name}-1.png", colour, rng)
    found = run(tmp_path / "new", model=tmp_path / "model.safetensors")
    assert right(found) == 1
    with pytest.raises(InputError, match="use the same encoder"):
        label(tmp_path / "new", model=tmp_path / "model.safetensors", encoder=mean_colours, size=8, name="other")


def test_exports_hold_every_item_once(photos, tmp_path):
    out = tmp_path / "labels"
    run(photos, out=out, export=("label-studio", "folders", "huggingface"))
    tasks = json.loads((out / "label-studio.json").read_text())
    assert len(tasks) == 69
    assert sum("predictions" in task for task in tasks) == 60
    given = next(task for task in tasks if task["data"]["name"] == "blue/0.png")
    assert given["annotations"][0]["result"][0]["value"]["choices"] == ["blue"]
    assert '<Choice value="red"/>' in (out / "label-studio.xml").read_text()
    links = list((out / "folders").rglob("*.png"))
    assert len(links) == 69
    assert all(link.exists() for link in links)
    assert len(read(out / "metadata.csv")) == 69
    assert len(list(photos.rglob("*.png"))) == 69
    with pytest.raises(InputError, match="did you mean 'folders'"):
        run(photos, export=("folder",))


def test_wrong_labels_are_told_and_not_changed(photos):
    (photos / "_unlabeled" / "red-0.png").rename(photos / "blue" / "wrong.png")
    found = run(photos)
    assert found.summary["suspicious"][0]["name"] == "blue/wrong.png"
    assert found.summary["suspicious"][0]["suggested"] == "red"
    assert dict(zip(found.items.names, found.answers.labels, strict=True))["blue/wrong.png"] == "blue"


@pytest.mark.parametrize(
    ("shift", "labels", "expected"),
    [
        (0.0, ["a"] * 3 + ["b"] * 4 + [None] * 13, "PEMcEWE"),
        (0.0, ["a"] + ["b"] * 2 + ["_none"] * 9 + [None] * 8, "PEMcE"),  # too few labels to whiten
        (-9.0, ["a"] * 3 + ["b"] * 4 + [None] * 13, "EMcE"),  # signed features
    ],
)
def test_the_chain_follows_features_and_labels(shift, labels, expected):
    features = np.random.default_rng(0).gamma(1.0, size=(20, 5)) + shift
    assert chain_for("sinkshot", features, labels) == expected
    assert chain_for("ncm", features, labels) != expected
