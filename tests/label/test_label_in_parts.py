"""`sinkshot label` in parts: the answers of the same rows in memory, whatever happens to the workers."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import sinkshot

from sinkshot import FewShotClassifier, InputError, label, load
from sinkshot.formats import parts
from sinkshot.formats.content import BankContent
from sinkshot.label import encode_parts
from sinkshot.parted import pool

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
CLASSES, ROWS = 5, 3_000


NAMES = ("owl", "hen", "emu", "jay", "auk")


def made(folder: Path, labelled: int = 2, signed: bool = False) -> tuple[BankContent, np.ndarray]:
    """Write real rows of five classes in parts of 800, a few of them labelled; return them, and the true classes."""
    whole = load("cifar-fs_wrn-28-10_novel")
    rows = np.random.default_rng(1).permutation(np.flatnonzero(whole.labels < CLASSES))[:ROWS]
    truth = whole.labels[rows]
    codes = np.full(ROWS, -1)
    for code in range(CLASSES):
        codes[np.flatnonzero(truth == code)[:labelled]] = code
    features = whole.features[rows].astype(np.float16).astype(np.float32)
    features = features - 0.2 if signed else features
    features = features.astype(np.float16).astype(np.float32)
    bank = BankContent(features, codes, NAMES, {}, {})
    parts.write(bank, folder, store="float16", part_rows=800)
    return bank, truth


def test_the_chain_is_that_of_memory_for_features_that_are_not_skewed(tmp_path: Path) -> None:
    bank, _ = made(tmp_path / "bank")
    even = np.sqrt(np.sqrt(bank.features)).astype(np.float16).astype(np.float32)
    parts.write(BankContent(even, bank.labels, NAMES, {}, {}), tmp_path / "even", store="float16", part_rows=800)
    found = label(tmp_path / "even").answers
    assert found is not None
    assert found.model is not None
    assert found.model.preprocess == FewShotClassifier().fit(even, bank.labels).preprocess_ == "EMcE"


def in_order(folder: Path) -> Any:
    """The answers as one table, in the order of the rows."""
    return pandas.read_parquet(folder / "answers")


@pytest.mark.slow
def test_labels_are_those_of_the_rows_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same chain, same labels but for approximate neighbours; also the estimated sizes, the sample and the totals."""
    monkeypatch.setattr(pool, "PART_ROWS", (700, 700))
    bank, truth = made(tmp_path / "bank")
    found = label(tmp_path / "bank", unknown=0.5, out=tmp_path / "labels")
    table = in_order(tmp_path / "labels")
    names = np.array(NAMES)
    labels = np.where(bank.labels < 0, None, names[bank.labels])
    model = FewShotClassifier(unknown=0.5).fit(bank.features, labels)
    assert model.preprocess_ == "PEMcE"
    assert np.mean(table["label"].replace("", "unknown") == model.transduction_) >= 0.995
    assert np.mean(table["label"] == names[truth]) > 0.75
    assert table["id"].tolist() == list(range(ROWS))
    assert table["source"].value_counts().to_dict() == {"predicted": ROWS - 10, "given": 10}
    assert np.allclose(np.stack(table["probabilities"]).sum(axis=1), 1, atol=1e-4)
    assert sum(found.summary["counts"].values()) + found.summary["unknown"] == found.summary["items"] == ROWS
    sizes = [found.summary["estimated_sizes"][str(name)] for name in model.classes_]
    np.testing.assert_allclose(sizes, model.report_.class_sizes, rtol=0.02, atol=5)
    assert json.loads((tmp_path / "labels" / "summary.json").read_text()) == found.summary
    assert "a sample of 3,000" in (tmp_path / "labels" / "report.html").read_text()
    assert len(found.to_frame()) == found.summary["sample"] == ROWS


@pytest.mark.slow
def test_signed_features_go_without_the_power(tmp_path: Path) -> None:
    """A negative feature anywhere changes the chain, as in memory."""
    bank, _ = made(tmp_path / "bank", signed=True)
    found = label(tmp_path / "bank", unknown=None, method="ncm")
    assert found.answers is not None
    assert found.answers.model is not None
    assert found.answers.model.preprocess_ == "E"
    same = FewShotClassifier("ncm").fit(bank.features, bank.labels)
    assert np.mean(np.array(found.answers.labels) == np.array(NAMES)[same.transduction_]) > 0.999


def test_a_label_file_names_rows_by_number(tmp_path: Path) -> None:
    """Its labels join those of the bank; a contradiction and a row that is not there are refused with their lines."""
    bank, _truth = made(tmp_path / "bank")
    free = int(np.flatnonzero(bank.labels < 0)[0])
    given = tmp_path / "labels.csv"
    given.write_text(f"id,label\n{free},emu\n")
    found = label(tmp_path / "bank", labels=given, unknown=None, method="ncm", out=tmp_path / "out")
    assert found.summary["sources"]["given"] == 2 * CLASSES + 1
    assert in_order(tmp_path / "out").loc[free, ["label", "source"]].tolist() == ["emu", "given"]
    taken = int(np.flatnonzero(bank.labels == 0)[0])
    for line, sentence in (
        (f"{taken},emu", "line 2.*'emu' here, but 'owl' in the bank"),
        ("99999,emu", "no row '99999'"),
    ):
        given.write_text(f"id,label\n{line}\n")
        with pytest.raises(InputError, match=sentence):
            label(tmp_path / "bank", labels=given)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sinkshot", "ncm"])
def test_known_outsiders_are_heard(tmp_path: Path, method: str) -> None:
    """Rows of two classes without labels, and ten of each known to be outside: rejected as in memory."""
    bank, truth = made(tmp_path / "bank")
    known, names = np.where(truth < 3, bank.labels, -1), np.array(NAMES)
    outside = np.concatenate([np.flatnonzero(truth == code)[-10:] for code in (3, 4)])
    parts.write(BankContent(bank.features, known, NAMES, {}, {}), tmp_path / "three", store="float16", part_rows=800)
    (tmp_path / "none.csv").write_text("id,label\n" + "".join(f"{row},_none\n" for row in outside))
    found = label(tmp_path / "three", labels=tmp_path / "none.csv", method=method, out=tmp_path / "labels")
    table = in_order(tmp_path / "labels")
    assert (table.loc[outside, ["label", "source", "unknown"]] == ["_none", "given", 1.0]).all(axis=None)
    assert found.summary["sources"] == {"given": 26, "accepted": 0, "predicted": ROWS - 26}
    shown = np.array([int(name) for name in found.items.names])  # what the report shows is what was written
    assert np.allclose(found.answers.unknown, table["unknown"].to_numpy()[shown], atol=1e-3)
    labels = np.where(known < 0, None, names[known])
    labels[outside] = "_none"
    chain = "PE" if method == "ncm" else "PEMcE"
    model = FewShotClassifier(method, preprocess=chain, unknown=0.5).fit(bank.features, labels)
    free = np.setdiff1d(np.flatnonzero(known < 0), outside)
    same = (table["label"].to_numpy() == "") == (model.unknown_ > 0.5)
    assert same[free].mean() > 0.95
    rejected = table["label"].to_numpy()[free] == ""
    if method == "sinkshot":  # nearest class means alone reject nothing
        assert rejected[truth[free] >= 3].mean() > rejected[truth[free] < 3].mean() + 0.3


@pytest.mark.slow
def test_converted_numbers_of_unlabelled_rows_count_as_such(tmp_path: Path) -> None:
    """A file in which -1 is unlabelled can be converted into parts and labelled."""
    bank, _ = made(tmp_path / "bank")
    np.savez(tmp_path / "rows.npz", features=bank.features, labels=bank.labels)
    ended = sinkshot("convert", tmp_path / "rows.npz", tmp_path / "parts", "--part-rows", 1_000)
    assert ended.returncode == 0, ended.stderr
    found = label(tmp_path / "parts", unknown=None, method="ncm")
    assert found.summary["classes"] == ["0", "1", "2", "3", "4"]
    assert found.summary["sources"]["predicted"] == ROWS - 2 * CLASSES


@pytest.mark.slow
def test_answers_are_read_by_others(tmp_path: Path) -> None:
    """The folder is one table for polars and pyarrow, too."""
    polars, dataset = pytest.importorskip("polars"), pytest.importorskip("pyarrow.dataset")
    made(tmp_path / "bank")
    label(tmp_path / "bank", unknown=None, method="ncm", out=tmp_path / "labels")
    answers = tmp_path / "labels" / "answers"
    table = polars.read_parquet(answers / "*.parquet")
    assert table.columns == ["id", "label", "confidence", "unknown", "second", "margin", "source", "probabilities"]
    assert dataset.dataset(answers).count_rows() == table.height == ROWS


@pytest.mark.slow
def test_a_smaller_bank_leaves_no_old_answers(tmp_path: Path) -> None:
    """Files of parts that are not there any more are removed."""
    made(tmp_path / "bank")
    answers = tmp_path / "labels" / "answers"
    answers.mkdir(parents=True)
    (answers / "part-00077.parquet").write_bytes(b"old")
    label(tmp_path / "bank", unknown=None, method="ncm", out=tmp_path / "labels")
    assert sorted(path.name for path in answers.iterdir()) == [f"part-{part:05d}.parquet" for part in range(4)]


def test_a_bank_without_labels_is_refused(tmp_path: Path) -> None:
    """There must be something to learn from."""
    bank, _ = made(tmp_path / "bank")
    empty = BankContent(bank.features, np.full(ROWS, -1), NAMES, {}, {})
    parts.write(empty, tmp_path / "none", store="float16", part_rows=800)
    with pytest.raises(InputError, match="no row has a label"):
        label(tmp_path / "none")


@pytest.mark.slow
def test_a_saved_classifier_labels_a_bank_in_parts(tmp_path: Path) -> None:
    """`--save` keeps what was learnt from a sample; `--model` labels every row alone, as it does in memory."""
    bank, truth = made(tmp_path / "bank")
    label(tmp_path / "bank", save=tmp_path / "birds.safetensors")
    model = FewShotClassifier.load(tmp_path / "birds.safetensors")
    empty = BankContent(bank.features, np.full(ROWS, -1), NAMES, {}, {})
    parts.write(empty, tmp_path / "new", store="float16", part_rows=700)
    found = label(tmp_path / "new", model=tmp_path / "birds.safetensors", out=tmp_path / "labels")
    table = in_order(tmp_path / "labels")
    np.testing.assert_allclose(np.stack(table["probabilities"]), model.predict_proba(bank.features), atol=1e-5)
    np.testing.assert_allclose(table["unknown"], model.predict_unknown(bank.features), atol=1e-4)
    assert np.mean(table["label"] == np.array(NAMES)[truth]) > 0.7
    assert found.summary["items"] == ROWS == found.summary["sources"]["predicted"]
    assert (tmp_path / "labels" / "report.html").exists()
    other = BankContent(bank.features, np.where(np.arange(ROWS) == 5, 0, -1), ("elk",), {}, {})
    parts.write(other, tmp_path / "other", store="float16", part_rows=700)
    with pytest.raises(InputError, match="'elk', which is not a class of the classifier"):
        label(tmp_path / "other", model=tmp_path / "birds.safetensors")


def test_what_cannot_be_done_in_parts_is_refused(tmp_path: Path) -> None:
    """Exports of embeddings and data frames, with what to do instead."""
    made(tmp_path / "bank")
    with pytest.raises(InputError, match="--export folders is for images and texts"):
        label(tmp_path / "bank", export=("folders",))
    with pytest.raises(InputError, match="give --out a folder"):
        label(pandas.DataFrame({"x": [1.0]}), out="s3://bucket/labels")
    with pytest.raises(InputError, match="give --out a folder"):
        label(tmp_path, workers=1, export=("folders",), out="s3://bucket/labels")
    with pytest.raises(InputError, match="not a data frame"):
        label(pandas.DataFrame({"x": [1.0]}), workers=1)


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """A small network of our own."""
    torch = pytest.importorskip("torch")
    from sinkshot.backbones import checkpoints
    from sinkshot.backbones.networks import build

    torch.manual_seed(0)
    network = build("conv4", channels=8)
    with torch.no_grad():
        network(torch.randn(32, 3, 16, 16))
    checkpoints.save(network, tmp_path / "conv4.safetensors", (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    return tmp_path / "conv4.safetensors"


def test_images_are_encoded_in_parts(
    photos: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are those of `label` in memory; a damaged image is left out, and a second run encodes nothing."""
    monkeypatch.setattr(encode_parts, "PART_ITEMS", 20)
    monkeypatch.setattr(encode_parts, "crew", _no_crew)
    (photos / "_unlabeled" / "damaged.png").write_bytes(b"\x89PNG damaged")
    given = {"encoder": str(encoder), "size": 16, "unknown": None, "method": "ncm"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sinkshot.parted.work_folder.crew", _no_crew)
        found = label(photos, workers=1, out=tmp_path / "labels", export=("folders", "huggingface"), **given)
        monkeypatch.setattr("sinkshot.encoders.registry.Encoder.encode", _never, raising=False)
        again = label(photos, workers=1, **given)
    assert found.summary["left_out"] == 1
    assert found.summary["left_out_items"][0]["name"] == "_unlabeled/damaged.png"
    table = in_order(tmp_path / "labels").set_index("file_name")
    same = label(photos, cache=tmp_path / "other", **given).to_frame().set_index("file_name")
    assert np.mean(table["label"].reindex(same.index) == same["label"]) == 1.0
    assert again.summary["counts"] == found.summary["counts"]
    listed = pandas.read_csv(tmp_path / "labels" / "metadata.csv").set_index("file_name")
    assert listed["label"].to_dict() == table["label"].to_dict()
    linked = sorted(path.parent.name for path in (tmp_path / "labels" / "folders").glob("*/*"))
    assert linked == sorted(table["label"])
    assert (
        np.mean([name.startswith(f"_unlabeled/{row}") for name, row in table["label"].items() if "_unl" in name]) > 0.8
    )


def _never(*_: Any) -> Any:
    raise AssertionError("everything was encoded before")


class _no_crew:
    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.slow
def test_the_command_labels_on_processes(tmp_path: Path) -> None:
    """Two processes, the default method, and JSON."""
    pytest.importorskip("distributed")
    made(tmp_path / "bank")
    ended = sinkshot("label", tmp_path / "bank", "--workers", 2, "--out", tmp_path / "labels", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["items"] == ROWS == len(in_order(tmp_path / "labels"))
    assert not list((tmp_path / "bank" / ".sinkshot").glob(".sinkshot-work-*"))


# --- workers die -----------------------------------------------------------------------------------------------------


def started(tmp_path: Path, out: str, *options: str) -> subprocess.Popen[str]:
    """Start the command."""
    command = [sys.executable, "-m", "sinkshot", "label", str(tmp_path / "bank"), "--out", str(tmp_path / out)]
    return subprocess.Popen([*command, *options], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def workers_of(pid: int) -> list[Any]:
    """Worker processes below a process, without the helpers of multiprocessing."""
    psutil = pytest.importorskip("psutil")
    try:
        below = psutil.Process(pid).children(recursive=True)
        return [one for one in below if "spawn_main" in " ".join(one.cmdline())]
    except psutil.Error:
        return []


def same_answers(tmp_path: Path, out: str) -> bool:
    """Whether answers are, bit for bit, those of the undisturbed run."""
    first, second = in_order(tmp_path / "undisturbed"), in_order(tmp_path / out)
    return bool(first.drop(columns="probabilities").equals(second.drop(columns="probabilities")))


def run_killing(tmp_path: Path, out: str, seed: int, all_of_them: bool = False) -> None:
    """Kill a worker, or all of them, after a random time, and compare the answers."""
    draw = random.Random(seed)
    process = started(tmp_path, out, "--workers", "2")
    deadline = time.monotonic() + 120
    while not workers_of(process.pid) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    time.sleep(draw.uniform(0.5, 6.0))
    alive = workers_of(process.pid)
    for one in alive if all_of_them else alive[:1]:
        os.kill(one.pid, signal.SIGKILL)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert same_answers(tmp_path, out)


@pytest.mark.long
def test_workers_that_die_change_nothing(tmp_path: Path) -> None:
    """Ten runs in which a worker is killed at random, one in which all are: the same bits."""
    made(tmp_path / "bank")
    assert started(tmp_path, "undisturbed", "--workers", "2").wait() == 0
    for seed in range(10):
        run_killing(tmp_path, f"killed-{seed}", seed)
    run_killing(tmp_path, "all", 10, all_of_them=True)


@pytest.mark.long
def test_a_scheduler_that_dies_is_told(tmp_path: Path) -> None:
    """The command ends with a sentence, and a new cluster gives the answer."""
    made(tmp_path / "bank")
    assert started(tmp_path, "undisturbed").wait() == 0

    def cluster() -> tuple[list[subprocess.Popen[bytes]], str]:
        port = str(random.randrange(20_000, 60_000))
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        place = f"tcp://127.0.0.1:{port}"
        scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", port]
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", place, "--nthreads", "1", "--no-dashboard"]
        alive = [subprocess.Popen([*scheduler, "--no-dashboard"], **quiet)]
        time.sleep(3)
        return [*alive, subprocess.Popen(worker, **quiet)], place

    for kill in (True, False):
        processes, place = cluster()
        try:
            time.sleep(4)
            process = started(tmp_path, "clustered", "--scheduler", place)
            if kill:
                time.sleep(6)
                processes[0].kill()
            _, said = process.communicate(timeout=300)
            assert "Traceback" not in said
            if kill and process.returncode:
                assert "schedul" in said or "cluster" in said
            else:
                assert process.returncode == 0, said
                assert same_answers(tmp_path, "clustered")
        finally:
            for one in processes:
                one.kill()
                one.wait()
