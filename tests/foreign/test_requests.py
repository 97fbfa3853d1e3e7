"""Recipes, weights and banks with absurd sizes or values of the wrong type."""

import json

import numpy as np
import pytest
from bounds import bounded
from safetensors.numpy import save_file

import sinkshot
from sinkshot.errors import InputError
from sinkshot.foreign import limits

torch = pytest.importorskip("torch")

from sinkshot.backbones import checkpoints, extract, networks, recipes, state  # noqa: E402
from sinkshot.backbones.backbone import Backbone  # noqa: E402
from sinkshot.studies.catalogue import Catalogue  # noqa: E402

OPTIONS = [
    ("conv4", {"channels": 20_000}, "parameters, more than"),
    ("conv4", {"channels": 1 << 62}, "is the most"),
    ("conv4", {"channels": 10**6}, "parameters, more than"),
    ("wrn-28-10", {"depth": 6_000_004}, "2,000 is the most"),
    ("wrn-28-10", {"widen": 10_000}, "parameters, more than"),
    ("resnet12", {"first": 20_000}, "parameters, more than"),
    ("resnet18", {"first": 20_000}, "parameters, more than"),
    ("densenet121", {"layers": [10**9]}, "2,000 is the most"),
    ("densenet121", {"layers": [1] * 1_000}, "16 are the most"),
    ("densenet121", {"growth": 1 << 20}, "parameters, more than"),
    ("conv4", {"size": 10**9}, "4,096 is the most"),
    ("conv4", {"channels": 1 << 20_000}, "is the most"),
]


@pytest.mark.parametrize(("name", "options", "message"), OPTIONS)
def test_a_network_too_large_to_be_meant_is_never_made(name, options, message):
    with bounded(), pytest.raises(InputError, match=message):
        networks.build(name, **options)


def test_a_large_network_is_made_where_it_is_allowed(monkeypatch):
    monkeypatch.setenv(limits.VARIABLE, "1K")
    with pytest.raises(InputError, match="parameters, more than 256"):
        networks.build("conv4")
    monkeypatch.setenv(limits.VARIABLE, "1G")
    assert networks.build("conv4").width == 64


def test_the_look_at_a_network_draws_no_random_numbers():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    networks.sketch("conv4")
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stage.train.batch": 10**9}, "65,536 is the most"),
        ({"stage.train.epochs": 1e300}, "epochs must be"),
        ({"stage.train.batch": 8192, "size": 512}, "the pixels of a batch take"),
        ({"size": 10**9}, "4,096 is the most"),
        ({"stored": 1 << 20_000}, "4,096 is the most"),
        ({"validation.episodes": 10**12}, "1,000,000 is the most"),
        ({"extends": 3}, "has no key|unknown key"),
    ],
)
def test_a_recipe_that_asks_for_too_much_is_refused(change, message):
    with bounded(), pytest.raises(InputError, match=message):
        recipes.read("cifar-fs_wrn-28-10", change)


def test_a_recipe_that_extends_no_name_is_refused(tmp_path):
    (tmp_path / "x.toml").write_text("extends = [1]")
    with pytest.raises(InputError, match="extends"):
        recipes.read(str(tmp_path / "x.toml"))


@pytest.mark.parametrize(
    "options", [{"channels": 5_000}, {"channels": 1 << 30}, {"name": "wrn"}, {"size": "x"}, {"": 1}]
)
def test_weights_that_ask_for_another_network_take_no_memory(tmp_path, options):
    facts = {"version": 1, "name": "conv4", "options": options, "mean": [0, 0, 0], "std": [1, 1, 1], "meta": {}}
    save_file({"x": np.ones(3, np.float32)}, tmp_path / "w.safetensors", {"sinkshot": json.dumps(facts)})
    with bounded(), pytest.raises(InputError):
        checkpoints.load(tmp_path / "w.safetensors")


HEADERS = ["[" * 100_000, "null", "3", '{"version": 1}', '{"version": "x", "class_names": [], "meta": {}}', "9" * 5_000]
HEADERS += [
    '{"version": 1, "class_names": ["a"], "meta": []}',
    '{"version": 1, "class_names": ["a"], "meta": {"a": 1}}',
]


@pytest.mark.parametrize("header", HEADERS)
def test_a_bank_whose_header_is_of_the_wrong_kind_is_refused(tmp_path, header):
    backbone = Backbone(torch.nn.Identity(), "x", 2, 16, (0, 0, 0), (1, 1, 1), "0" * 64)
    tensors = {
        "features": np.ones((3, 2), np.float32),
        "labels": np.zeros(3, np.int64),
        "base.": np.ones(2, np.float32),
    }
    save_file(tensors, tmp_path / "b.safetensors", {"sinkshot": header})
    with bounded(), pytest.raises(InputError, match=r"b\.safetensors"):
        sinkshot.load(tmp_path / "b.safetensors")
    with bounded(), pytest.raises(InputError, match=r"b\.safetensors"):
        extract.base_means_in(tmp_path / "b.safetensors", backbone)


@pytest.mark.parametrize("mean", [np.array([1, 2]), np.ones((2, 2), np.float32), np.array([np.nan, 1], np.float32)])
def test_base_means_of_the_wrong_kind_are_refused(tmp_path, mean):
    backbone = Backbone(torch.nn.Identity(), "x", 2, 16, (0, 0, 0), (1, 1, 1), "0" * 64)
    tensors = {"features": np.ones((3, 2), np.float32), "labels": np.zeros(3, np.int64), "base.": mean}
    save_file(tensors, tmp_path / "b.safetensors", {"sinkshot": '{"version": 1, "class_names": ["a"], "meta": {}}'})
    with pytest.raises(InputError, match=r"b\.safetensors.*base mean ''"):
        extract.base_means_in(tmp_path / "b.safetensors", backbone)


@pytest.mark.parametrize(
    "written",
    [
        "banks = 3",
        "banks = [3]",
        "[banks]\nx = 1",
        "[[banks]]\nfile = 3",
        "titles = 3",
        "[titles]\na = 3",
        "x = [[[[]]]]",
    ],
)
def test_a_banks_file_of_the_wrong_kind_is_refused(tmp_path, written):
    (tmp_path / "banks.toml").write_text(written)
    with pytest.raises(InputError, match=r"banks\.toml, line \d"):
        Catalogue([tmp_path])


@pytest.mark.parametrize("facts", ["[]", "{}", '{"version": "x"}', '{"version": 1, "stage": "0"}', "[" * 100_000])
def test_a_state_of_the_wrong_kind_is_refused(tmp_path, facts):
    save_file({"x": np.ones(3, np.float32)}, tmp_path / "state.safetensors", {"training": facts})
    with pytest.raises(InputError, match="damaged or not the state of a training run"):
        state.load(tmp_path / "state.safetensors")
