"""Extraction writes the network's features to disk. `test_extract_again` stops and resumes it."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from image_files import folder, picture
from toy_backbones import GREY, NAMES, linear, plain, small_network

import sinkshot
from sinkshot.backbones import checkpoints
from sinkshot.backbones import extract as module
from sinkshot.backbones.backbone import Backbone, normalised
from sinkshot.backbones.datasets import load
from sinkshot.backbones.extract import base_means, base_means_in, extract
from sinkshot.backbones.networks import build
from sinkshot.errors import InputError


@pytest.fixture
def weights(tmp_path):
    return small_network(tmp_path / "conv4.safetensors")


@pytest.fixture
def images(tmp_path):
    return load(folder(tmp_path / "animals", NAMES, each=9), size=32)


def test_a_bank_holds_the_networks_features_and_tells_where_they_come_from(tmp_path, weights, images):
    backbone = checkpoints.load(weights)
    done = extract(backbone, images, tmp_path / "zoo.safetensors", batch=4)
    assert (done.rows, done.width, done.before) == (27, 6, 0)
    bank = sinkshot.load(tmp_path / "zoo.safetensors")
    pixels = np.stack([picture(n, i) for n in range(3) for i in range(9)])
    with torch.no_grad():
        direct = backbone.network(normalised(torch.from_numpy(pixels), *GREY))
    np.testing.assert_allclose(bank.features, direct, rtol=1e-3, atol=1e-6)
    assert bank.class_names == NAMES
    np.testing.assert_array_equal(bank.labels, np.repeat(range(3), 9))
    told = {"backbone": "conv4", "weights_sha256": backbone.sha256, "recipe": "toy", "trained_data_set": "Zoo"}
    assert told.items() <= bank.meta.items()
    assert "images of 32 pixels, margin 1.15, float32" in bank.meta["made"]
    assert [float(value) for value in bank.meta["pixel_mean"].split(", ")] == pytest.approx(backbone.mean)
    assert sorted(file.name for file in tmp_path.glob("zoo*")) == ["zoo.safetensors"]


def test_the_batch_changes_nothing_but_the_speed(tmp_path, weights, images):
    backbone = checkpoints.load(weights)
    for batch in (1, 5, 64):
        extract(backbone, images, tmp_path / f"{batch}.safetensors", batch=batch, store="float32")
    one, five, all_ = (sinkshot.load(tmp_path / f"{batch}.safetensors").features for batch in (1, 5, 64))
    np.testing.assert_allclose(five, one, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(all_, one, rtol=1e-5, atol=1e-6)


def test_bf16_is_close(tmp_path, weights, images):
    backbone = checkpoints.load(weights)
    extract(backbone, images, tmp_path / "exact.safetensors")
    extract(backbone, images, tmp_path / "coarse.safetensors", precision="bf16")
    exact, coarse = (sinkshot.load(tmp_path / f"{name}.safetensors").features for name in ("exact", "coarse"))
    assert not np.array_equal(exact, coarse)
    np.testing.assert_allclose(coarse, exact, rtol=0.1, atol=0.05)


def test_memory_holds_a_chunk_and_not_the_bank(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 512)
    monkeypatch.setattr("sinkshot.arrays.BLOCK", 1 << 16)
    images, backbone = plain(20_000, split="base"), linear(512)
    extract(backbone, plain(64, split="base"), tmp_path / "warm.safetensors")  # what is made once
    tracemalloc.start()
    extract(backbone, images, tmp_path / "large.safetensors", batch=64)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000 * 512 * 2 / 4  # of the bank, 20 MB in float16


@pytest.mark.parametrize("store", ["float16", "float32"])
def test_the_file_is_the_one_that_save_would_write(tmp_path, store):
    """Odd numbers of rows and columns, so that nothing is aligned."""
    extract(linear(3), plain(7, split="base"), tmp_path / "grown.safetensors", store=store)
    bank = sinkshot.load(tmp_path / "grown.safetensors")
    bank.save(tmp_path / "saved.safetensors", store=store)
    saved = sinkshot.load(tmp_path / "saved.safetensors")
    assert saved.content_hash() == bank.content_hash()
    assert saved.meta == bank.meta
    assert sorted(bank.base) == ["", "E", "P", "PE"]


def test_the_base_split_stores_its_means_and_others_take_them_along(tmp_path):
    base, novel = tmp_path / "base.safetensors", tmp_path / "novel.safetensors"
    extract(linear(5), plain(40, split="base"), base)
    rows = sinkshot.load(base).features.astype(np.float64)
    power = np.sqrt(rows + 1e-6)
    by_hand = {"": rows, "E": unit(rows), "P": power, "PE": unit(power)}
    means = base_means_in(base, linear(5))
    for prefix, expected in by_hand.items():
        np.testing.assert_allclose(means[prefix], expected.mean(axis=0), rtol=1e-6)
    extract(linear(5), plain(10, split="novel"), novel, base=means)
    kept = sinkshot.load(novel).base
    assert sorted(kept) == sorted(by_hand)
    np.testing.assert_array_equal(kept["PE"], means["PE"])
    with pytest.raises(InputError, match="has features of different weights"):
        base_means_in(base, linear(5, seed=1))
    with pytest.raises(InputError, match=r"has shape \(5,\), but features of linear have 3 dimensions"):
        extract(linear(3), plain(10), tmp_path / "x.safetensors", base=means)


def unit(rows):
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1)


def test_a_bank_without_base_means_gives_those_of_its_rows(tmp_path):
    extract(linear(5), plain(40), tmp_path / "all.safetensors")
    found = base_means_in(tmp_path / "all.safetensors", linear(5))
    rows = sinkshot.load(tmp_path / "all.safetensors").features
    np.testing.assert_allclose(found[""], rows.mean(axis=0, dtype=np.float64), rtol=1e-6)
    np.savez(tmp_path / "all.npz", features=rows, labels=np.arange(40) % 2)
    np.testing.assert_array_equal(base_means_in(tmp_path / "all.npz", linear(5))["PE"], found["PE"])
    with pytest.raises(InputError, match="does not exist"):
        base_means_in(tmp_path / "nowhere.safetensors", linear(5))


def test_means_of_negative_features_are_those_without_a_power(tmp_path):
    extract(linear(5, shift=2.0), plain(40, split="base"), tmp_path / "b.safetensors")
    assert sorted(sinkshot.load(tmp_path / "b.safetensors").base) == ["", "E"]


def test_base_means_do_not_depend_on_how_rows_are_cut():
    rows = np.random.default_rng(0).gamma(1.0, size=(1000, 7)).astype(np.float16)
    whole = base_means([rows])
    for prefix, mean in base_means(np.array_split(rows, 60)).items():
        np.testing.assert_allclose(mean, whole[prefix], rtol=1e-6)


def test_an_image_without_finite_features_is_named(tmp_path):
    broken = Backbone(lambda x: x.mean((2, 3)) / (x[:, :1, 0, 0] - x[3:4, :1, 0, 0]), "broken", 3, None, *GREY, "0")
    with pytest.raises(InputError, match=r"features of noise\[3\] are not finite"):
        extract(broken, plain(8), tmp_path / "b.safetensors")


def test_features_beyond_float16_are_refused_and_float32_holds_them(tmp_path):
    large = Backbone(lambda x: 1e6 + x.mean((2, 3)), "large", 3, None, *GREY, "0")
    with pytest.raises(InputError, match="beyond float16; store float32"):
        extract(large, plain(8), tmp_path / "b.safetensors")
    extract(large, plain(8), tmp_path / "b.safetensors", store="float32")
    assert sinkshot.load(tmp_path / "b.safetensors").features.min() > 9e5


def test_images_of_the_wrong_size_for_a_flat_network_are_refused(tmp_path, images):
    network = build("conv4", channels=6, flat=True, size=48).eval()
    checkpoints.save(network, tmp_path / "flat.safetensors", *GREY)
    with pytest.raises(
        InputError, match=r"returns features of shape .* for 27 images of 32x32 pixels, expected 54 per image"
    ):
        extract(checkpoints.load(tmp_path / "flat.safetensors"), images, tmp_path / "b.safetensors")


def test_images_too_small_for_a_network_are_refused(tmp_path, weights):
    tiny = load(folder(tmp_path / "tiny", NAMES, each=2), size=12)
    with pytest.raises(
        InputError, match="size of images for conv4 must be a whole number of at least 16; 12 was given"
    ):
        extract(checkpoints.load(weights), tiny, tmp_path / "b.safetensors")


def test_weights_are_not_taken_for_a_bank_of_base_features(weights):
    with pytest.raises(InputError, match="holds weights of a network, not features"):
        base_means_in(weights, linear(5))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"batch": 0}, "batch must be a whole number of at least 1"),
        ({"precision": "fp16"}, "unknown precision 'fp16'"),
        ({"store": "uint8"}, "unknown store 'uint8'; known: float16, float32"),
        ({"device": "gpu"}, "the device 'gpu' cannot be used"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(tmp_path, options, sentence):
    with pytest.raises(InputError, match=sentence):
        extract(linear(3), plain(8), tmp_path / "b.safetensors", **options)


def test_a_target_that_cannot_be_written_is_said_before_anything_is_computed(tmp_path):
    never = Backbone(lambda x: 1 / 0, "never", 3, None, *GREY, "0")
    with pytest.raises(InputError, match="there is no folder"):
        extract(never, plain(8), tmp_path / "nowhere" / "b.safetensors")
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(InputError, match="a folder has that name"):
        extract(never, plain(8), tmp_path / "folder.safetensors")
