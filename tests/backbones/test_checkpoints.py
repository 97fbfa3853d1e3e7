"""Weights: ours and published ones give the same network; code and wrong shapes are refused by name."""

from __future__ import annotations

import json
import os
import re

import pytest
import torch
from safetensors.torch import save_file

from sinkshot.backbones import checkpoints
from sinkshot.backbones.backbone import IMAGENET, normalised
from sinkshot.backbones.networks import build
from sinkshot.errors import InputError

TINY = {"depth": 10, "widen": 1}
GREY = ((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


@pytest.fixture
def network():
    torch.manual_seed(0)
    network = build("wrn-28-10", **TINY)
    with torch.no_grad():
        network(torch.randn(8, 3, 32, 32))  # batch norms see something
    return network.eval()


@pytest.fixture
def images():
    return torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def features(network, images):
    with torch.no_grad():
        return network(images)


def test_weights_of_ours_come_back_with_all_that_is_needed_to_use_them(tmp_path, network, images):
    checkpoints.save(network, tmp_path / "w.safetensors", *GREY, {"recipe": "modern"})
    found = checkpoints.load(tmp_path / "w.safetensors")
    assert torch.equal(features(found.network, images), features(network, images))
    assert (found.name, found.width, found.size) == ("wrn-28-10", 64, 32)
    assert (found.mean, found.std) == GREY
    assert found.meta == {"recipe": "modern"}
    assert not found.network.training


def published(network, wrapper):
    """A state dict as S2M2 saved it: wrapped, with a cosine classifier."""
    state = {f"{wrapper}{key}": value for key, value in network.state_dict().items()}
    return {
        **state,
        f"{wrapper}linear.L.weight_g": torch.ones(64, 1),
        f"{wrapper}linear.L.weight_v": torch.ones(64, 64),
    }


@pytest.mark.parametrize("wrapper", ["module.", "feature.module.", "feature.", ""])
@pytest.mark.parametrize("file", ["470.tar", "best.pt"])
def test_published_checkpoints_give_the_same_features(tmp_path, network, images, wrapper, file):
    rotation = {"0.weight": torch.ones(4, 64), "0.bias": torch.ones(4)}
    torch.save({"epoch": 470, "state": published(network, wrapper), "rotate": rotation}, tmp_path / file)
    found = checkpoints.load(tmp_path / file, "wrn-28-10", **TINY)
    assert torch.equal(features(found.network, images), features(network, images))
    assert (found.mean, found.std) == IMAGENET


def test_a_bare_state_dict_and_one_of_an_old_torch_are_read(tmp_path, network, images):
    state = {k: v for k, v in network.state_dict().items() if not k.endswith("num_batches_tracked")}
    torch.save(state, tmp_path / "w.pth", _use_new_zipfile_serialization=False)
    found = checkpoints.load(tmp_path / "w.pth", "wrn-28-10", **TINY)
    assert torch.equal(features(found.network, images), features(network, images))


@pytest.mark.parametrize(
    ("name", "options", "theirs"),
    [
        ("resnet18", {"first": 4}, [(r"^stem\.0\.", "conv1."), (r"^stem\.1\.", "bn1."), ("shortcut", "downsample")]),
        (
            "resnet12",
            {"first": 4},
            [(rf"^layers\.{i}\.", f"layer{i + 1}.0.") for i in range(4)] + [("shortcut", "downsample")],
        ),
        ("densenet121", {"growth": 4, "layers": (1, 1)}, [(r"layer1\.(norm|conv)([12])\.", r"layer1.\1.\2.")]),
    ],
)
def test_names_of_torchvision_and_of_other_few_shot_code_are_known(tmp_path, images, name, options, theirs):
    network = build(name, **options).eval()
    state = network.state_dict()
    for ours, word in theirs:
        state = {re.sub(ours, word, key): value for key, value in state.items()}
    assert set(state) != set(network.state_dict())
    torch.save({"state_dict": {**state, "fc.weight": torch.ones(2, 2)}}, tmp_path / "w.pt")
    found = checkpoints.load(tmp_path / "w.pt", name, **options)
    assert torch.equal(features(found.network, images), features(network, images))


def test_the_hash_is_that_of_the_weights_not_of_the_file(tmp_path, network):
    checkpoints.save(network, tmp_path / "one.safetensors", *GREY, {"recipe": "a"})
    torch.save({"state": published(network, "module.")}, tmp_path / "two.tar")
    one, two = (
        checkpoints.load(tmp_path / "one.safetensors"),
        checkpoints.load(tmp_path / "two.tar", "wrn-28-10", **TINY),
    )
    assert one.sha256 == two.sha256
    with torch.no_grad():
        network.bn1.bias[0] += 1e-6
    checkpoints.save(network, tmp_path / "three.safetensors", *GREY)
    assert checkpoints.load(tmp_path / "three.safetensors").sha256 != one.sha256


def test_a_checkpoint_that_would_run_something_is_refused_and_does_not_run(tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    torch.save({"state": {"conv1.weight": Bomb()}}, tmp_path / "bomb.tar")
    with pytest.raises(InputError, match="so it was not loaded"):
        checkpoints.load(tmp_path / "bomb.tar", "wrn-28-10", **TINY)
    assert not (tmp_path / "ran").exists()


def test_missing_and_unexpected_names_are_told(tmp_path, network):
    state = {key.replace("block3", "stage3"): value for key, value in network.state_dict().items()}
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(InputError) as caught:
        checkpoints.load(tmp_path / "w.pt", "wrn-28-10", **TINY)
    told = str(caught.value)
    assert "lacks block3.layer.0.bn1.weight, block3.layer.0.bn1.bias" in told
    assert "also has stage3.layer.0.bn1.weight" in told
    assert "and 8 more" in told


def test_weights_of_another_size_are_told_by_name_and_shape(tmp_path):
    torch.save(build("wrn-28-10", depth=10, widen=2).state_dict(), tmp_path / "w.pt")
    with pytest.raises(InputError, match=r"block1.layer.0.bn2.weight \(32,\), not \(48,\)"):
        checkpoints.load(tmp_path / "w.pt", "wrn-28-10", depth=10, widen=3)


@pytest.mark.parametrize("lost", ["version", "name", "options", "mean", "std", "meta"])
def test_a_file_of_ours_that_does_not_say_all_is_refused_in_a_sentence(tmp_path, network, lost):
    facts = {"version": 1, "name": "wrn-28-10", "options": TINY, "mean": GREY[0], "std": GREY[1], "meta": {}}
    state = {key: value.contiguous() for key, value in network.state_dict().items()}
    for header in ({key: value for key, value in facts.items() if key != lost}, {**facts, lost: [1]}, [facts]):
        save_file(state, tmp_path / "w.safetensors", {"sinkshot": json.dumps(header)})
        with pytest.raises(InputError, match=r"does not describe its network|unknown network"):
            checkpoints.load(tmp_path / "w.safetensors")


@pytest.mark.parametrize("state", [{0: torch.ones(3)}, {"conv1.weight": torch.ones(3, 3).to_sparse()}])
def test_tensors_that_are_no_weights_by_name_or_kind_are_no_state_dict(tmp_path, state):
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(InputError, match="holds no state dict"):
        checkpoints.load(tmp_path / "w.pt", "conv4")


def test_files_that_are_no_weights_are_refused_in_a_sentence(tmp_path, network, blobs):
    checkpoints.save(network, tmp_path / "w.safetensors", *GREY)
    with pytest.raises(InputError, match="holds weights of wrn-28-10, not of resnet12"):
        checkpoints.load(tmp_path / "w.safetensors", "resnet12")
    whole = (tmp_path / "w.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="truncated, damaged"):
        checkpoints.load(tmp_path / "cut.safetensors")
    blobs.save(tmp_path / "bank.safetensors")
    with pytest.raises(InputError, match="is a feature bank, not the weights"):
        checkpoints.load(tmp_path / "bank.safetensors")
    (tmp_path / "w.pt").write_bytes(b"junk" * 100)
    with pytest.raises(InputError, match=r"w\.pt"):
        checkpoints.load(tmp_path / "w.pt", "conv4")
    torch.save({"epoch": 3, "loss": [1.0]}, tmp_path / "none.pt")
    with pytest.raises(InputError, match=r"holds no state dict.*a dict with epoch, loss"):
        checkpoints.load(tmp_path / "none.pt", "conv4")
    torch.save(network.state_dict(), tmp_path / "nameless.pt")
    with pytest.raises(InputError, match="does not say what network"):
        checkpoints.load(tmp_path / "nameless.pt")
    with pytest.raises(InputError, match=r"there is no file .* with weights"):
        checkpoints.load(tmp_path / "nowhere.pt")


def test_pixels_are_normalised_by_the_channel():
    pixels = torch.tensor([[[[0, 51, 255]]]], dtype=torch.uint8)  # [1, 1, 1, 3]
    found = normalised(pixels, (0.0, 0.2, 0.5), (1.0, 0.5, 0.25))
    assert found.shape == (1, 3, 1, 1)
    torch.testing.assert_close(found.flatten(), torch.tensor([0.0, 0.0, 2.0]))
