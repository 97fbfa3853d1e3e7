"""Banks are found by name in the usual places; a message says what is missing and how to get it."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

import sinkshot
from sinkshot.errors import InputError
from sinkshot.studies.bank_source import find_bank
from sinkshot.studies.catalogue import Catalogue, Missing, file_name
from sinkshot.studies.study import BankKey, runs

BUNDLED = BankKey("cifar-fs", ("wrn-28-10",))


@pytest.fixture(autouse=True)
def nothing_of_ones_own(tmp_path, monkeypatch):
    """Hide the banks of the person who runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SINKSHOT_BANKS", "")


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "banks"
    made.mkdir()
    return made


def plk(file, rows=4):
    """A feature file as the published code writes it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(pickle.dumps({c: [np.full(3, c + i, np.float32) for i in range(rows)] for c in range(2)}))
    return file


def test_the_bundled_bank_is_always_there():
    found = Catalogue().find(BUNDLED)
    assert sinkshot.load(found).classes == 20
    assert BUNDLED in Catalogue().present()


def test_files_named_by_the_rule_are_found(folder, blobs):
    blobs.save(folder / "cub_resnet18_novel.safetensors")
    blobs.save(folder / "mini-to-cub_resnet18_novel.npz")
    blobs.save(folder / "my_own_birds_vit-b-16_base.npz")
    blobs.save(folder / "cub_resnet18.npz")
    blobs.save(folder / "cub_resnet18_novel_f16.npz")
    catalogue = Catalogue([folder])
    assert catalogue.present()[:4] == [
        BankKey("cub", ("resnet18",)),
        BankKey("cub", ("resnet18",), trained_on="mini"),
        BankKey("my_own_birds", ("vit-b-16",), "base"),
        BUNDLED,
    ]
    assert {key.data_set for key in catalogue.present()[4:]} <= {"cifar-fs"}
    assert catalogue.find(BankKey("cub", ("resnet18",), trained_on="mini")) == folder / "mini-to-cub_resnet18_novel.npz"


def test_the_name_of_a_file_says_what_it_is():
    key = BankKey("cub", ("resnet18",), "base", trained_on="mini")
    assert file_name(key) == "mini-imagenet-to-cub_resnet18_base"


def test_of_two_files_of_a_bank_our_own_format_is_taken(folder, blobs):
    blobs.save(folder / "cub_resnet18_novel.npz")
    blobs.save(folder / "cub_resnet18_novel.safetensors")
    assert Catalogue([folder]).find(BankKey("cub", ("resnet18",))).suffix == ".safetensors"


@pytest.mark.parametrize(
    ("where", "key"),
    [
        ("checkpoint/miniImagenet/output.plk", BankKey("mini", ("wrn-28-10",))),
        ("checkpoint/tieredImagenet/output.plk", BankKey("tiered", ("wrn-28-10",))),
        ("checkpoint/cub/output.plk", BankKey("cub", ("wrn-28-10",))),
        ("checkpoint/CUB/output.plk", BankKey("cub", ("wrn-28-10",))),
        ("checkpoint/cifar-fs/output.plk", BankKey("cifar-fs", ("wrn-28-10",))),
        ("miniImagenet/output.plk", BankKey("mini", ("wrn-28-10",))),
        ("checkpoints/cross/WideResNet28_10_S2M2_R/last/output.plk", BankKey("cub", ("wrn-28-10",), trained_on="mini")),
        ("checkpoint/CUB/ResNet18_S2M2_R/output.plk", BankKey("cub", ("resnet18",))),
        ("checkpoint/CUB/Some_Net/output.plk", BankKey("cub", ("some-net",))),
    ],
)
def test_feature_files_of_the_published_code_are_taken_as_they_are(folder, where, key):
    plk(folder / where)
    catalogue = Catalogue([folder])
    assert catalogue.find(key) == folder / where
    assert sinkshot.load(catalogue.find(key)).width == 3


def test_a_banks_toml_names_files_from_its_own_folder(folder, blobs):
    blobs.save(folder / "birds.npz")
    (folder / "banks.toml").write_text(
        '[[banks]]\ndata_set = "birds"\nbackbone = "vit"\nfile = "birds.npz"\n\n[titles]\nbirds = "My birds"\n'
    )
    catalogue = Catalogue([folder])
    key = BankKey("birds", ("vit",))
    assert catalogue.find(key) == folder / "birds.npz"
    assert catalogue.title(key) == "My birds, vit"


def test_sources_come_in_order(tmp_path, folder, blobs, monkeypatch):
    """--banks, the user's own file, the environment, what is bundled."""
    places = {name: tmp_path / name for name in ("given", "config/sinkshot", "environment")}
    for place in places.values():
        place.mkdir(parents=True)
        blobs.save(place / "cifar-fs_wrn-28-10_novel.npz")
    listed = places["config/sinkshot"] / "banks.toml"
    listed.write_text(
        '[[banks]]\ndata_set = "cifar-fs"\nbackbone = "wrn-28-10"\nfile = "cifar-fs_wrn-28-10_novel.npz"\n'
    )
    monkeypatch.setenv("SINKSHOT_BANKS", os.pathsep.join([str(places["environment"]), str(tmp_path / "not there")]))
    assert Catalogue([places["given"]]).find(BUNDLED).parent == places["given"]
    assert Catalogue().find(BUNDLED).parent == places["config/sinkshot"]
    listed.unlink()
    assert Catalogue().find(BUNDLED).parent == places["environment"]
    monkeypatch.setenv("SINKSHOT_BANKS", "")
    assert Catalogue().find(BUNDLED).parent.name == "data"


def test_what_is_missing_is_said_with_the_way_to_get_it(folder):
    missing = Catalogue([folder]).find(BankKey("mini", ("wrn-28-10",)))
    assert isinstance(missing, Missing)
    for piece in (
        "mini-imagenet_wrn-28-10_novel.safetensors is missing",
        "--banks DIR",
        "checkpoint/miniImagenet/output.plk",
    ):
        assert piece in str(missing)


def test_of_several_backbones_those_that_are_missing_are_named(folder, blobs):
    blobs.save(folder / "mini_resnet18_novel.npz")
    missing = Catalogue([folder]).files(BankKey("mini", ("resnet18", "resnet12", "wrn-28-10")))
    assert isinstance(missing, Missing)
    assert missing.names == ("mini-imagenet_resnet12_novel", "mini-imagenet_wrn-28-10_novel")
    assert "checkpoint" not in str(missing)


def test_a_file_that_a_banks_toml_names_and_that_is_gone_is_said(folder):
    (folder / "banks.toml").write_text('[[banks]]\ndata_set = "birds"\nbackbone = "vit"\nfile = "gone.npz"\n')
    missing = Catalogue([folder]).find(BankKey("birds", ("vit",)))
    assert f"A banks.toml names {folder / 'gone.npz'}, which does not exist." in str(missing)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[banks]]\ndataset = "x"\n', "line 2: a bank has no key 'dataset'; did you mean 'data_set'"),
        ('[[banks]]\ndata_set = "x"\nbackbone = "y"\n', "line 1: the bank has no file"),
        ('[[bank]]\ndata_set = "x"\n', "line 1: a banks.toml has no key 'bank'; did you mean 'banks'"),
        ('[[banks]]\nsplit = "test"\n', "line 2: split must be one of novel, base, validation"),
        ("[titles]\na = 1\n", "line 2: the title of a must be a non-empty string"),
    ],
)
def test_a_wrong_banks_toml_is_said_with_its_line(folder, text, said):
    (folder / "banks.toml").write_text(text)
    with pytest.raises(InputError) as error:
        Catalogue([folder])
    assert said in str(error.value)


def test_a_folder_that_is_none_is_refused(folder):
    with pytest.raises(InputError, match="is not a folder"):
        Catalogue([folder / "none"])


def test_the_hash_of_a_bank_follows_its_content(folder, blobs):
    file = folder / "cub_resnet18_novel.npz"
    key = BankKey("cub", ("resnet18",))
    blobs.save(file)
    catalogue = Catalogue([folder])
    first = catalogue.digest(key)
    blobs.save(folder / "cub_resnet18_novel.safetensors")
    assert Catalogue([folder]).digest(key) == first, "another format, the same content"
    other = sinkshot.FeatureBank(blobs.features + 1, blobs.labels, blobs.class_names)
    other.save(file)
    os.utime(file, ns=(1, 1))
    assert catalogue.digest(key) != first


def test_base_means_are_part_of_a_banks_content(folder, blobs):
    key = BankKey("cub", ("resnet18",))
    digests = set()
    for mean in (0.0, 1.0):
        bank = sinkshot.FeatureBank(
            blobs.features, blobs.labels, blobs.class_names, {}, {"": np.full(24, mean, np.float32)}
        )
        bank.save(folder / "cub_resnet18_novel.npz")
        digests.add(Catalogue([folder]).digest(key))
    assert len(digests) == 2


def test_the_hash_is_computed_once(folder, blobs):
    file = folder / "cub_resnet18_novel.npz"
    blobs.save(file)
    catalogue, key = Catalogue([folder]), BankKey("cub", ("resnet18",))
    first, state = catalogue.digest(key), file.stat()
    file.write_bytes(b"x" * state.st_size)  # no bank any more, but of the same size and time
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert catalogue.digest(key) == first


def test_merged_banks_have_a_hash_of_their_own(folder, blobs):
    for name in ("a", "b"):
        blobs.save(folder / f"cub_{name}_novel.npz")
    catalogue = Catalogue([folder])
    assert catalogue.digest(BankKey("cub", ("a", "b"))) != catalogue.digest(BankKey("cub", ("a",)))
    with pytest.raises(InputError, match="cub_c_novel"):
        catalogue.digest(BankKey("cub", ("a", "c")))


def test_a_checkout_brings_its_own_banks_unless_the_environment_names_others(monkeypatch):
    monkeypatch.delenv("SINKSHOT_BANKS")
    shipped = {key for key in Catalogue().present() if key.split == "novel"}
    for backbone in ("wrn-28-10", "resnet18", "resnet12"):
        assert BankKey("cifar-fs", (backbone,)) in shipped
    assert {BankKey("cub", ("wrn-28-10",)), BankKey("cub", ("wrn-28-10",), trained_on="cifar-fs")} <= shipped


def test_leaderboards_cover_four_banks_of_a_checkout_and_studies_find_the_others(monkeypatch):
    monkeypatch.delenv("SINKSHOT_BANKS")
    catalogue = Catalogue()
    plain = [key for key in catalogue.present() if key.split == "novel" and key.trained_on is None]
    covered = {(key.data_set, *key.backbones) for key in plain if catalogue.takes_transfer(key)}
    cifar_fs = {("cifar-fs", backbone) for backbone in ("wrn-28-10", "resnet18", "resnet12")}
    assert covered == {*cifar_fs, ("cub", "wrn-28-10")}
    assert {BankKey("cub", ("resnet18",)), BankKey("cub", ("resnet12",)), BankKey("cifar-fs", ("densenet121",))} <= {
        *plain
    }
    six = find_bank(BankKey("cifar-fs", runs("resnet12", 6)), catalogue).open()
    assert (len(six.labels), six.width) == (1600, 6 * 640)
    three = find_bank(BankKey("cub", ("wrn-28-10", "resnet18", "resnet12")), catalogue).open()
    assert (len(three.labels), three.width) == (2953, 640 + 512 + 640)


@pytest.mark.parametrize("name", ["mini-imagenet_wrn-28-10_novel", "mini_wrn-28-10_novel"])
def test_a_data_set_has_one_name_and_the_other_is_an_alias(folder, blobs, name):
    blobs.save(folder / f"{name}.npz")
    key = BankKey("mini", ("wrn-28-10",))
    assert key == BankKey("mini-imagenet", ("wrn-28-10",))
    assert Catalogue([folder]).find(key) == folder / f"{name}.npz"
    assert BankKey("cub", ("resnet18",), trained_on="tiered").trained_on == "tiered-imagenet"
