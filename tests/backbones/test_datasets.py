"""Data sets: every layout gives the same labelled images, tried on small real files."""

from __future__ import annotations

import io
import pickle
import tarfile

import numpy as np
import pytest
from image_files import colour, folder, pack, picture, png, write

from sinkshot.backbones.datasets import check, known, load
from sinkshot.errors import InputError

BIRDS = ("crow", "finch", "heron", "owl")


def colours(images):
    """Class numbers, read from the pixels of the images."""
    means = images.pixels(range(len(images))).mean(axis=(1, 2))  # [n, 3]
    known_colours = np.array([colour(i).astype(float) + 9.5 for i in range(220)])
    return np.linalg.norm(means[:, None] - known_colours, axis=2).argmin(axis=1)


def numbers(data_set, images):
    """The place of each image's class in the sorted list of the data set's classes."""
    order = {name: i for i, name in enumerate(sorted(known.get(data_set).class_names("all")))}
    return [order[images.class_names[label]] for label in images.labels]


def test_a_folder_of_images_has_a_class_for_each_folder(tmp_path):
    images = load(folder(tmp_path / "birds", BIRDS))
    check(images)
    assert images.class_names == BIRDS
    assert images.labels.tolist() == colours(images).tolist() == np.repeat(range(4), 3).tolist()
    assert images.names[:4] == ["crow/000.png", "crow/001.png", "crow/002.png", "finch/000.png"]
    np.testing.assert_array_equal(images.pixels([4, 2]), [picture(1, 1), picture(0, 2)])


def test_hidden_files_and_what_is_no_image_are_left_out(tmp_path):
    root = folder(tmp_path / "birds", BIRDS, each=2)
    (root / "crow" / ".000.png").write_bytes(b"")
    (root / "crow" / "Thumbs.db").write_bytes(b"x")
    (root / ".cache").mkdir()
    assert len(load(root)) == 8


def test_a_folder_for_each_split_is_recognised(tmp_path):
    folder(tmp_path / "train", BIRDS[:2])
    folder(tmp_path / "val", BIRDS[2:3])
    folder(tmp_path / "test", BIRDS[3:])
    assert load(tmp_path, split="base").class_names == BIRDS[:2]
    assert load(tmp_path, split="validation").class_names == BIRDS[2:3]
    assert load(tmp_path, split="test").meta["split"] == "novel"
    everything = load(tmp_path)
    assert everything.class_names == BIRDS
    check(everything)


def test_the_classes_of_mini_imagenet_in_a_plain_folder_are_split_as_the_field_does(tmp_path):
    folder(tmp_path, known.get("mini-imagenet").class_names("all"), each=1, size=16)
    sizes = {split: len(load(tmp_path, split=split).class_names) for split in known.SPLITS}
    assert sizes == {"base": 64, "validation": 16, "novel": 20}
    novel = load(tmp_path, split="novel")
    assert novel.meta["data_set"] == "miniImageNet"
    assert novel.class_names[0] == "n01930112"
    assert colours(novel).tolist() == numbers("mini-imagenet", novel)


def test_the_classes_of_tiered_imagenet_are_picked_out_of_a_folder_of_all_imagenet(tmp_path):
    folder(tmp_path, (*known.get("tiered-imagenet").class_names("all"), "n01518878"), each=1, size=8)
    sizes = {split: len(load(tmp_path, split=split, data_set="tiered-imagenet").class_names) for split in known.SPLITS}
    assert sizes == {"base": 351, "validation": 97, "novel": 160}
    assert "n01440764" in load(tmp_path, split="novel", data_set="tiered-imagenet").class_names  # a tench is a fish


def test_a_folder_with_the_classes_of_one_split_alone_is_that_split(tmp_path):
    folder(tmp_path, known.get("cifar-fs").splits["novel"], each=1, size=16)
    images = load(tmp_path)
    assert (images.meta["data_set"], images.meta["split"], len(images.class_names)) == ("CIFAR-FS", "novel", 20)
    check(images, subset=True)  # no class of the other splits is missed
    with pytest.raises(InputError, match="holds no images of the split 'base'"):
        load(tmp_path, split="base")


def test_cifar_fs_comes_as_bertinettos_folder(tmp_path):
    splits = known.get("cifar-fs").splits
    root = tmp_path / "cifar100"
    folder(root / "data", known.get("cifar-fs").class_names("all"), each=1)
    for word, split in (("train", "base"), ("val", "validation"), ("test", "novel")):
        (root / "splits" / "bertinetto").mkdir(parents=True, exist_ok=True)
        (root / "splits" / "bertinetto" / f"{word}.txt").write_text("\n".join(splits[split]) + "\n")
    for given in (root, tmp_path):
        novel = load(given, split="novel", size=32)
        assert novel.class_names == splits["novel"]
        assert colours(novel).tolist() == numbers("cifar-fs", novel)


def cifar_tarball(path, each=2):
    """CIFAR-100 as distributed, with `each` training images and one test image per class."""
    names = sorted(known.get("cifar-fs").class_names("all"))
    halves = {}
    for part, count in (("train", each), ("test", 1)):
        order = np.random.default_rng(0).permutation(np.repeat(np.arange(100), count))
        data = np.stack([picture(n, i).transpose(2, 0, 1).reshape(-1) for i, n in enumerate(order)])
        halves[part] = {"data": data, "fine_labels": order.tolist(), "coarse_labels": [0] * len(order)}
    with tarfile.open(path, "w:gz") as archive:
        for name, content in {**halves, "meta": {"fine_label_names": names}}.items():
            raw = pickle.dumps(content, protocol=2)
            entry = tarfile.TarInfo(f"cifar-100-python/{name}")
            entry.size = len(raw)
            archive.addfile(entry, io.BytesIO(raw))
    return path


def test_cifar_100s_python_tarball_has_both_splits_built_in(tmp_path):
    tarball = cifar_tarball(tmp_path / "cifar-100-python.tar.gz")
    for data_set, sizes in (("cifar-fs", (64, 16, 20)), ("fc100", (60, 20, 20))):
        for split, size in zip(known.SPLITS, sizes, strict=True):
            images = load(tarball, split=split, data_set=data_set)
            assert len(images.class_names) == size
            assert len(images) == 3 * size
            assert colours(images).tolist() == numbers(data_set, images)
    with tarfile.open(tarball) as archive:
        archive.extractall(tmp_path, filter="data")
    np.testing.assert_array_equal(load(tmp_path).pixels(range(300)), load(tarball).pixels(range(300)))


def test_a_tarball_whose_pickle_would_run_something_is_refused(tmp_path):
    class Bomb:
        def __reduce__(self):
            return print, ("boom",)

    root = tmp_path / "cifar-100-python"
    root.mkdir()
    for name in ("train", "test", "meta"):
        (root / name).write_bytes(pickle.dumps({"data": Bomb()}))
    with pytest.raises(InputError, match=r"asks for builtins.print, which is refused"):
        load(root)


def test_a_pickle_that_refers_to_its_parts_over_and_over_is_read_once(tmp_path):
    nested = ["x"]
    for _ in range(60):
        nested = [nested, nested]  # 2^60 strings, were each to be visited
    (tmp_path / "CIFAR_FS_test.pickle").write_bytes(pickle.dumps({"data": nested, "labels": [1]}))
    with pytest.raises(InputError, match="the test files are damaged"):
        load(tmp_path, split="novel")


def test_mini_imagenet_comes_with_lists_in_csv(tmp_path):
    splits = known.get("mini-imagenet").splits
    for word, split in (("train", "base"), ("val", "validation"), ("test", "novel")):
        lines = ["filename,label"]
        for number, name in enumerate(splits[split]):
            file = f"{name}{number:08d}.png"
            write(tmp_path / "images" / file, picture(number, size=16))
            lines.append(f"{file},{name}")
        (tmp_path / f"{word}.csv").write_text("\n".join(lines))
    novel = load(tmp_path, split="novel")
    assert novel.class_names == splits["novel"]
    assert colours(novel).tolist() == novel.labels.tolist() == list(range(20))
    (tmp_path / "images" / f"{splits['novel'][3]}00000003.png").unlink()
    with pytest.raises(InputError, match=r"1 thing is wrong .*\n +n0211006300000003.png: the file is missing"):
        check(load(tmp_path, split="novel"), subset=True)
    (tmp_path / "val.csv").unlink()
    with pytest.raises(InputError, match=r"no list of the validation images \(val.csv\)"):
        load(tmp_path)
    (tmp_path / "test.csv").write_bytes(b"filename,label\n\xff.png,n01930112\n")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        load(tmp_path, split="novel")


def test_cub_is_split_by_the_number_of_the_class(tmp_path):
    names = known.get("cub").class_names("all")
    root = tmp_path / "CUB_200_2011"
    folder(root / "images", names, each=1, size=16, suffix="jpg")
    (root / "images.txt").write_text("".join(f"{i + 1} {name}/000.jpg\n" for i, name in enumerate(names)))
    (root / "image_class_labels.txt").write_text("".join(f"{i + 1} {i + 1}\n" for i in range(200)))
    (root / "classes.txt").write_text("".join(f"{i + 1} {name}\n" for i, name in enumerate(names)))
    novel = load(tmp_path, split="novel")
    assert len(load(tmp_path, split="base")) == 100
    assert len(load(tmp_path, split="validation")) == 50
    assert {(int(name[:3]) - 1) % 4 for name in novel.class_names} == {3}
    assert novel.names[0] == "004.Groove_billed_Ani/000.jpg"
    with pytest.raises(InputError, match="the split has 50 images, expected 2,953"):
        check(novel)


def test_tiered_imagenet_comes_as_pickled_pngs_or_as_an_archive_of_blue_green_red(tmp_path):
    order = [2, 0, 1, 2, 1]
    pixels = np.stack([picture(n, i, 16) for i, n in enumerate(order)])
    labels = {"label_specific": np.array(order), "label_specific_str": ["adder", "bee", "cat"]}
    one, two = tmp_path / "one", tmp_path / "two"
    for root in (one, two):
        root.mkdir()
        (root / "test_labels.pkl").write_bytes(pickle.dumps(labels, protocol=2))
    encoded = [np.frombuffer(png(image), np.uint8)[:, None] for image in pixels]
    (one / "test_images_png.pkl").write_bytes(pickle.dumps(encoded, protocol=2))
    np.savez(two / "test_images.npz", images=pixels[..., ::-1])
    for root in (one, two):
        images = load(root, split="novel")
        assert [images.class_names[label] for label in images.labels] == ["cat", "adder", "bee", "cat", "bee"]
        np.testing.assert_array_equal(images.pixels(range(5)), pixels)
    with pytest.raises(InputError, match="found 3 classes, expected 160"):
        check(images)


@pytest.mark.parametrize(
    ("data_set", "file"),
    [
        ("fc100", "FC100_test.pickle"),
        ("cifar-fs", "CIFAR_FS_test.pickle"),
        ("mini-imagenet", "miniImageNet_category_split_test.pickle"),
    ],
)
def test_pickles_of_pixels_are_read(tmp_path, data_set, file):
    pixels = np.stack([picture(n, size=16) for n in (0, 0, 1)])
    (tmp_path / file).write_bytes(pickle.dumps({"data": pixels, "labels": [80, 80, 81]}))
    images = load(tmp_path, split="novel")
    assert images.meta["data_set"] == known.get(data_set).title
    assert images.class_names == ("80", "81")
    np.testing.assert_array_equal(images.pixels([0, 1, 2]), pixels)
    with pytest.raises(InputError, match=r"found 2 classes, expected 20\n  class '80' has 2 images, expected 600"):
        check(images)


def test_packs_give_what_the_folder_gives(tmp_path):
    plain = load(folder(tmp_path / "birds", BIRDS))
    whole = load(pack(tmp_path / "one" / "birds.npz", BIRDS))
    pack(tmp_path / "two" / "train-1of2.npz", BIRDS)
    pack(tmp_path / "two" / "train-2of2.npz", BIRDS)
    pack(tmp_path / "two" / "test.npz", BIRDS[:1])
    assert whole.class_names == plain.class_names
    np.testing.assert_array_equal(whole.pixels(range(12)), plain.pixels(range(12)))
    base = load(tmp_path / "two", split="base")
    assert base.labels.tolist() == [*plain.labels, *plain.labels]
    np.testing.assert_array_equal(base.pixels([0, 12, 23]), plain.pixels([0, 0, 11]))
    assert load(tmp_path / "two", split="novel").class_names == BIRDS[:1]
    assert load(tmp_path / "two" / "test.npz").meta["split"] == "novel"


def test_packs_that_name_no_split_are_told_what_they_should_be_called(tmp_path):
    pack(tmp_path / "birds.npz", BIRDS)
    with pytest.raises(InputError, match=r"no pack of the all images \(train\*.npz, val\*.npz, test\*.npz\)"):
        load(tmp_path)


def test_a_pack_stays_on_the_disk(tmp_path):
    assert isinstance(load(pack(tmp_path / "birds.npz", BIRDS)).source.blob, np.memmap)


def test_a_damaged_pack_is_refused(tmp_path):
    path = pack(tmp_path / "birds.npz", BIRDS)
    with np.load(path) as archive:
        parts = dict(archive)
    np.savez(path, **{**parts, "offsets": parts["offsets"][:-1]})
    with pytest.raises(InputError, match="damaged pack: offsets, labels and images do not fit"):
        load(path)
    np.savez(path, **{**parts, "label": parts["label"] + 1})
    with pytest.raises(InputError, match="labels outside of its 4 class names"):
        load(path)


def test_all_that_is_wrong_is_named_at_once(tmp_path):
    root = folder(tmp_path / "birds", BIRDS, each=3)
    (root / "crow" / "001.png").write_bytes(b"")
    (root / "finch" / "000.png").write_text("no image")
    (root / "heron" / "002.png").unlink()
    (root / "heron" / "002.png").symlink_to(root / "nowhere.png")
    (root / "emu").mkdir()
    with pytest.raises(InputError) as caught:
        check(load(root))
    told = str(caught.value).split("\n")
    assert told[0] == "4 things are wrong with the images:"
    assert [line.strip() for line in told[1:]] == [
        "class 'emu' has no images",
        "crow/001.png: it is damaged or not an image",
        "finch/000.png: it is damaged or not an image",
        "heron/002.png: the file is missing",
    ]


def test_twenty_are_named_and_the_rest_counted(tmp_path):
    root = folder(tmp_path / "birds", ["crow"], each=25, size=8)
    for file in (root / "crow").iterdir():
        file.write_bytes(b"x")
    with pytest.raises(InputError, match="25 things are wrong") as caught:
        check(load(root))
    assert len(str(caught.value).split("\n")) == 22
    assert str(caught.value).endswith("and 5 more")


def test_a_truncated_image_is_found_by_decoding_it(tmp_path):
    root = folder(tmp_path / "birds", BIRDS, each=2, size=64, suffix="jpg")
    file = root / "owl" / "001.jpg"
    file.write_bytes(file.read_bytes()[:-100])
    images = load(root)
    check(images)
    with pytest.raises(InputError, match=r"owl/001.jpg: it cannot be read"):
        check(images, decode=True)
    with pytest.raises(InputError, match=r"owl/001.jpg: it cannot be read"):
        images.pixels([6, 7])


def test_a_class_of_a_known_data_set_that_is_missing_is_named(tmp_path):
    names = [name for name in known.get("fc100").splits["novel"] if name != "boy"]
    folder(tmp_path, names, each=1, size=16)
    with pytest.raises(InputError) as caught:
        check(load(tmp_path, split="novel", data_set="fc100"))
    assert "class 'boy' of FC100, novel, is missing" in str(caught.value)
    assert "class 'man' has 1 images, expected 600" in str(caught.value)
    with pytest.raises(InputError, match=r"^1 thing is wrong"):
        check(load(tmp_path, split="novel", data_set="fc100"), subset=True)


def test_images_can_be_held_in_memory_and_picked(tmp_path):
    images = load(folder(tmp_path, BIRDS), size=20)
    np.testing.assert_array_equal(images.held().pixels([3, 1]), images.pixels([3, 1]))
    some = images.only([11, 4, 5])
    assert some.class_names == ("finch", "owl")
    assert some.labels.tolist() == [1, 0, 0]
    assert some.names == ["owl/002.png", "finch/001.png", "finch/002.png"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"split": "novel"}, "has no splits"),
        ({"split": "nouvel"}, "unknown split 'nouvel'; did you mean 'novel'"),
        ({"layout": "cubs"}, "unknown layout 'cubs'; did you mean 'cub'"),
        ({"layout": "cub"}, "not the layout 'cub'"),
        ({"data_set": "cifar"}, "unknown data set 'cifar'; did you mean 'cifar-fs'"),
        ({"size": 0}, "size must be a whole number of at least 8"),
        ({"margin": 0.5}, "margin must be at least 1"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_a_sentence(tmp_path, options, sentence):
    folder(tmp_path, BIRDS, each=1)
    with pytest.raises(InputError, match=sentence):
        load(tmp_path, **options)


def test_a_missing_folder_and_one_without_images_are_told_apart(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        load(tmp_path / "nowhere")
    (tmp_path / "crow").mkdir()
    with pytest.raises(InputError, match="has no known layout"):
        load(tmp_path)


def test_the_published_splits_are_disjoint_and_whole():
    sizes = {"cifar-fs": (64, 16, 20), "fc100": (60, 20, 20), "mini-imagenet": (64, 16, 20), "cub": (100, 50, 50)}
    sizes["tiered-imagenet"] = (351, 97, 160)
    for name, expected in sizes.items():
        splits = known.get(name).splits
        assert tuple(len(splits[split]) for split in known.SPLITS) == expected
        assert len({c for classes in splits.values() for c in classes}) == sum(expected)
