"""Every reader of foreign files as a target: how to make a valid file, and how to read it."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from kept_files import (
    FEATURES,
    bank_in_parts,
    cache_seeds,
    cached,
    index_seeds,
    part_seeds,
    parts,
    store_seeds,
    stored,
)
from label_files import (
    NAMES,
    label_csv_seeds,
    label_file_seeds,
    label_jsonl_seeds,
    label_npz,
    label_npz_seeds,
    label_parquet_seeds,
    label_text_seeds,
    label_txt_seeds,
    npz,
)

Read = Callable[[Path], object]


@dataclass(frozen=True)
class Reader:
    """A target: `seeds` are honest files, each put as `file` into a folder beside `others` and then read."""

    file: str
    read: Read
    seeds: Callable[[], list[bytes]]
    others: Callable[[], dict[str, bytes]] = dict
    share: int = 100  # of 100 cases, how many are tried; starting a process for each takes long


LABELS = np.repeat([0, 1, 2], 2)


def npy(array: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array))
    return file.getvalue()


def bank(path: Path) -> object:
    import sinkshot

    return sinkshot.load(path)


def npz_seeds() -> list[bytes]:
    plain = {"features": FEATURES, "labels": LABELS, "class_names": NAMES}
    header = json.dumps({"version": 1, "class_names": NAMES.tolist(), "meta": {"data_set": "x"}})
    ours = {**plain, "base.": FEATURES[0], "sinkshot": np.array(header)}
    return [npz(**plain), npz(True, **ours), npz(features=np.asfortranarray(FEATURES), labels=NAMES.repeat(2))]


def native_seeds() -> list[bytes]:
    from safetensors.numpy import save

    header = json.dumps({"version": 1, "class_names": NAMES.tolist(), "meta": {"data_set": "x", "split": "novel"}})
    tensors = {"features": FEATURES, "labels": LABELS, "base.": FEATURES[0], "base.PE": FEATURES[1]}
    eight = {"features": FEATURES.astype(np.uint8), "features.scale": FEATURES[1], "labels": LABELS}
    half = {"features": FEATURES.astype(np.float16), "labels": LABELS.astype(np.int32)}
    return [save(tensors, {"sinkshot": header}), save(eight, {"sinkshot": header}), save(half)]


def plk_seeds() -> list[bytes]:
    from collections import defaultdict

    rows = defaultdict(list, {i: list(FEATURES[2 * i : 2 * i + 2]) for i in range(3)})
    listed = {name: FEATURES[:2].tolist() for name in NAMES.tolist()}
    several = [FEATURES[0], None, {0: FEATURES}, None]
    return [pickle.dumps(value, protocol) for value in (rows, listed, several) for protocol in (0, 2, 4)]


def cifar_parts() -> dict[str, bytes]:
    half = {"fine_labels": [0, 1], "data": np.zeros((2, 3072), np.uint8), "filenames": ["a", "b"]}
    names = {"fine_label_names": ["apple", "aquarium_fish"]}
    return {name: pickle.dumps(names if name == "meta" else half, 2) for name in ("meta", "test", "train")}


def cifar_seeds() -> list[bytes]:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in cifar_parts().items():
            entry = tarfile.TarInfo(f"cifar-100-python/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return [gzip.compress(file.getvalue(), 1)]


def encoded(form: str, mode: str = "RGB", **options: object) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    rows = np.arange(20 * 24 * 3, dtype=np.uint8).reshape(20, 24, 3)
    Image.fromarray(rows).convert(mode).save(file, form, **options)
    return file.getvalue()


def image_seeds() -> list[bytes]:
    forms = [("PNG", "RGB"), ("PNG", "P"), ("PNG", "L"), ("PNG", "RGBA"), ("JPEG", "RGB"), ("JPEG", "CMYK")]
    forms += [("GIF", "P"), ("BMP", "RGB"), ("TIFF", "RGB"), ("WEBP", "RGB")]
    found = [encoded(form, mode) for form, mode in forms]
    return [*found, encoded("TIFF", compression="tiff_lzw"), encoded("JPEG", progressive=True)]


def pack_seeds() -> list[bytes]:
    images = [encoded("PNG"), encoded("JPEG")]
    blob = np.frombuffer(b"".join(images), np.uint8)
    offsets = np.cumsum([0, *map(len, images)])
    arrays = {"blob": blob, "offsets": offsets, "label": np.array([0, 1]), "class_names": NAMES[:2]}
    return [npz(**arrays), npz(True, **arrays)]


def images(path: Path) -> object:
    from sinkshot.backbones import datasets

    found = datasets.load(path, size=16)
    datasets.check(found, subset=True)
    return found.pixels(range(len(found)))


def decoded(path: Path) -> object:
    from sinkshot.backbones import datasets

    found = datasets.load(path if path.suffix else path.parent, size=16)
    return found.pixels(range(len(found)))


def images_above(path: Path) -> object:
    return images(path.parent.parent)


def listed(path: Path) -> object:
    from sinkshot.backbones import datasets

    return datasets.load(path.parent, split="all")


def study(path: Path) -> object:
    from sinkshot.studies import parse

    return parse.read(path)


def study_seeds() -> list[bytes]:
    import sinkshot.studies

    folder = Path(sinkshot.studies.__file__).parent
    return [file.read_bytes() for file in sorted(folder.glob("*/*.toml"))]


def recipe(path: Path) -> object:
    from sinkshot.backbones import networks, recipes

    found = recipes.read(str(path))
    return networks.sketch(found.network, **{"size": found.size, **found.options})


def recipe_seeds() -> list[bytes]:
    from sinkshot.backbones import recipes

    folder = Path(recipes.__file__).parent / "recipes"
    return [file.read_bytes() for file in sorted(folder.glob("*_*.toml"))]


def catalogue(path: Path) -> object:
    from sinkshot.studies.catalogue import Catalogue

    return Catalogue([path.parent]).present()


def banks_seeds() -> list[bytes]:
    return [b'[titles]\na = "A"\n[[banks]]\ndata_set = "a"\nbackbone = "b"\nsplit = "novel"\nfile = "x"\n']


def weights(path: Path) -> object:
    from sinkshot.backbones import checkpoints

    return checkpoints.load(path, None if path.suffix == ".safetensors" else "conv4", channels=2)


def weights_seeds() -> list[bytes]:
    from sinkshot.backbones import checkpoints, networks

    path = Path(tempfile()) / "w.safetensors"
    checkpoints.save(networks.build("conv4", channels=2), path, (0.5, 0.5, 0.5), (1.0, 1.0, 1.0), {"recipe": "x"})
    return [path.read_bytes()]


def torch_seeds() -> list[bytes]:
    import torch

    from sinkshot.backbones import networks

    found = []
    for zipped in (True, False):
        file = io.BytesIO()
        state = {"epoch": 3, "state_dict": networks.build("conv4", channels=2).state_dict()}
        torch.save(state, file, _use_new_zipfile_serialization=zipped)
        found.append(file.getvalue())
    return found


def onnx_seeds() -> list[bytes]:
    from onnx import TensorProto, helper

    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["y"]), helper.make_node("Flatten", ["y"], ["z"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 16, 16])]
    outputs = [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return [helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()]


def network(path: Path) -> object:
    from sinkshot.foreign.onnx_network import OnnxNetwork

    found = OnnxNetwork(path, 16)
    found.child.end()
    return found


def state(path: Path) -> object:
    from sinkshot.backbones import state as states

    return states.load(path)


def state_seeds() -> list[bytes]:
    from safetensors.numpy import save

    facts = {"version": 1, "stage": 0, "step": 1, "steps": [4], "best": None, "found": {}, "images": {}, "recipe": {}}
    return [save({"learner/x": FEATURES}, {"training": json.dumps(facts)})]


def means(path: Path) -> object:
    import torch

    from sinkshot.backbones import extract
    from sinkshot.backbones.backbone import Backbone

    backbone = Backbone(torch.nn.Identity(), "x", 2, 16, (0, 0, 0), (1, 1, 1), "0" * 64)
    return extract.base_means_in(path, backbone)


def labelled(path: Path) -> object:
    from sinkshot.label import inputs

    return inputs.read(path, text="text" if "texts" in path.name else None)


def labelled_by_file(path: Path) -> object:
    from sinkshot.label import inputs

    return inputs.read(path.parent / "x.npz", labels=path)


def model(path: Path) -> object:
    import sinkshot

    found = sinkshot.FewShotClassifier.load(path)
    rows = np.abs(np.random.default_rng(0).normal(size=(3, found.n_features_in_)))
    return found.predict_proba(rows), found.predict_unknown(rows) if found.can_reject else None


def model_seeds() -> list[bytes]:
    import sinkshot

    rows = np.abs(np.random.default_rng(0).normal(size=(12, 3))).astype(np.float32)
    labels = np.array(["a", "b", *[None] * 10], dtype=object)
    found, path = [], Path(tempfile()) / "m.safetensors"
    for options in ({"unknown": 0.5}, {"method": "ncm", "preprocess": "PEMnE"}):
        sinkshot.FewShotClassifier(**options).fit(rows, labels).save(path)
        found.append(path.read_bytes())
    return found


def tempfile() -> str:
    import tempfile as temporary

    return temporary.mkdtemp()


def csv_seeds() -> list[bytes]:
    return [b"filename,label\nn01532829.jpg,n01532829\nx.png,n01558993\n"]


CUB = {
    "images.txt": b"1 001.Black_footed_Albatross/a.jpg\n2 002.Laysan_Albatross/b.jpg\n",
    "image_class_labels.txt": b"1 1\n2 2\n",
    "classes.txt": b"1 001.Black_footed_Albatross\n2 002.Laysan_Albatross\n",
}
SPLIT_LISTS = {f"{split}.csv": csv_seeds()[0] for split in ("val", "test")} | {"images/x.png": b""}

READERS: dict[str, Reader] = {
    "npz": Reader("x.npz", bank, npz_seeds),
    "npy": Reader("x.npy", bank, lambda: [npy(FEATURES)], lambda: {"x_labels.npy": npy(LABELS)}),
    "npy-labels": Reader(
        "x_labels.npy", lambda p: bank(p.parent / "x.npy"), lambda: [npy(LABELS)], lambda: {"x.npy": npy(FEATURES)}
    ),
    "safetensors": Reader("x.safetensors", bank, native_seeds),
    "base-means": Reader("x.safetensors", means, native_seeds),
    "plk": Reader("x.plk", bank, plk_seeds),
    "cifar-tar": Reader("cifar-100-python.tar.gz", decoded, cifar_seeds),
    "cifar-folder": Reader("train", decoded, lambda: [cifar_parts()["train"]], cifar_parts),
    "pack": Reader("train.npz", images, pack_seeds),
    "images": Reader("a/x.png", images_above, image_seeds, lambda: {"b/y.png": encoded("PNG")}),
    "image-list": Reader("train.csv", listed, csv_seeds, lambda: SPLIT_LISTS),
    "cub-list": Reader("images.txt", listed, lambda: [CUB["images.txt"]], lambda: CUB),
    "study": Reader("x.toml", study, study_seeds),
    "recipe": Reader("x.toml", recipe, recipe_seeds),
    "banks.toml": Reader("banks.toml", catalogue, banks_seeds),
    "weights": Reader("w.safetensors", weights, weights_seeds),
    "checkpoint": Reader("w.pt", weights, torch_seeds),
    "state": Reader("state.safetensors", state, state_seeds),
    "label-npz": Reader("x.npz", labelled, label_npz_seeds),
    "label-csv": Reader("x.csv", labelled, label_csv_seeds),
    "label-texts": Reader("texts.csv", labelled, label_text_seeds),
    "label-txt": Reader("x.txt", labelled, label_txt_seeds),
    "label-jsonl": Reader("x.jsonl", labelled, label_jsonl_seeds),
    "label-file": Reader("y.csv", labelled_by_file, label_file_seeds, lambda: {"x.npz": label_npz()}),
    "label-parquet": Reader("x.parquet", labelled, label_parquet_seeds, share=10),
    "parts-index": Reader("bank/index.json", bank_in_parts, index_seeds, parts),
    "part": Reader("bank/part-00000.safetensors", bank_in_parts, part_seeds, parts),
    "cache": Reader("features.sqlite", cached, cache_seeds, lambda: {"texts.csv": label_text_seeds()[0]}),
    "results": Reader("results.sqlite", stored, store_seeds),
    "model": Reader("m.safetensors", model, model_seeds, lambda: {"x.npz": label_npz()}),
    "onnx": Reader("x.onnx", network, onnx_seeds, share=10),
}


def put(reader: Reader, folder: Path, data: bytes) -> Path:
    """Write a file and what belongs beside it; return its path."""
    for name, content in {**reader.others(), reader.file: data}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder / reader.file


def repacked(data: bytes, change: Callable[[bytes], bytes]) -> bytes | None:
    """Change what lies inside of an archive or behind a length, so that the outside still fits; None: no such thing."""
    if data[:4] == b"PK\x03\x04":
        file = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
            for entry in old.infolist():
                new.writestr(entry.filename, change(old.read(entry)))
        return file.getvalue()
    if data[:2] == b"\x1f\x8b":
        return gzip.compress(change(gzip.decompress(data)), 1)
    length = int.from_bytes(data[:8], "little")
    if data[8:9] == b"{" and length < len(data):
        header = change(data[8 : 8 + length])
        return len(header).to_bytes(8, "little") + header + data[8 + length :]
    return None
