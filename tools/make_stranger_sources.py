"""Write the features that `draw_stranger_pools.py` draws pools from: one .npz file for each source.

    python tools/make_stranger_sources.py SOURCES --cifar-fs FOLDER --cub FOLDER --sentences data_full.json

The folder of CIFAR-FS holds the image packs train-1of2.npz, train-2of2.npz and val.npz, that of CUB train.npz and
val.npz; the sentences are those of CLINC150. Features of our own networks are read from data/banks.

A file has `x` [n, d] and `labels` [n]. Those of validation banks also have `base_mean` [d] and `whitening` [d, d], for
the steps Mb and Wb. The first word of a file name is the kind of features:

    cifar, cub          our networks, of validation classes and (names that end in b) of base classes
    litecifar, litecub  EfficientNet-Lite0, of images of validation and base classes
    headcifar, headcub  what small networks learned from those features on some base classes, of all other classes
    text, lsa           MiniLM, and TF-IDF of words (w) and of characters (c) in few dimensions, of the first 75 intents
    glyph               letters in many fonts, tilted and stretched, as 8 x 8 and 12 x 12 pixels
    poor                8 x 8 pixels and colour histograms of validation images
    digits              scikit-learn's digits

No novel class is used: no novel bank or image is opened, and the other 75 intents are dropped before anything is
computed.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from learned_heads import Images, features_of_others
from measure_label import images_of, sentences_of, vectors_of
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from sinkshot import load
from sinkshot.preprocess import base_statistics, parse

Array = NDArray[Any]
Arrays = dict[str, Array]  # what a file holds
BANKS = Path(__file__).resolve().parent.parent / "data" / "banks"
NETWORKS = {  # stem of the banks, rows of each validation class and of each base class
    "cifar_wrn": ("cifar-fs_wrn-28-10", 600, 40),
    "cifar_r12": ("cifar-fs_resnet12", 600, 40),
    "cifar_r18": ("cifar-fs_resnet18", 600, 40),
    "cub_wrn": ("cub_wrn-28-10", 60, 40),
}
SHRINKAGE = 10.0  # of the step Wb
CIFAR_FS = ("train-1of2.npz", "train-2of2.npz", "val.npz")  # packs of base, base and validation images
CUB = ("train.npz", "val.npz")  # of base and validation images
HEADS = 30  # small networks that learn, each on other classes
INTENTS, SENTENCES = 75, 100  # intents that are not novel, sentences of each
LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZabdefghijkmnqrty"
FONTS = ("DejaVuSans", "DejaVuSerif", "STIXGeneral", "cmr", "cmss", "cmtt")  # of those that come with matplotlib
DRAWN = 160  # pictures of each letter
SIDE = 64  # pixels of such a picture


def first_rows(labels: Array, most: int) -> Array:
    """Return the numbers of the first rows of each class, class by class."""
    return np.concatenate([np.flatnonzero(labels == label)[:most] for label in np.unique(labels)])


def arrays(x: Any, labels: Any) -> Arrays:
    """Return features and labels as a file holds them."""
    return {"x": np.asarray(x).astype(np.float16), "labels": np.asarray(labels).astype(np.int16)}


def of_bank(stem: str, split: str, most: int) -> Arrays:
    """Return rows of a bank."""
    bank = load(BANKS / f"{stem}_{split}.safetensors")
    kept = first_rows(bank.labels, most)
    return arrays(bank.features[kept], bank.labels[kept])


def of_validation_bank(stem: str, most: int) -> Arrays:
    """Return rows of a validation bank, and what Mb and Wb need of the base classes in the chain PEMbEWbE."""
    base = base_statistics({}, load(BANKS / f"{stem}_base.safetensors"))
    return of_bank(stem, "validation", most) | {
        "base_mean": base.mean(parse("PE")).astype(np.float32),
        "whitening": base.whitening(parse("PEMbE"), SHRINKAGE).astype(np.float16),
    }


def images_in(pack: Path, most: int) -> Iterator[tuple[int, bytes]]:
    """Yield class and content of the first images of each class of a pack, class by class."""
    with np.load(pack) as file:
        content, offsets, labels = file["blob"].tobytes(), file["offsets"], file["label"]
    for number in first_rows(labels, most):
        yield int(labels[number]), content[offsets[number] : offsets[number + 1]]


def of_images(pack: Path, most: int, features: Path) -> Arrays:
    """Return EfficientNet's features of images, which are unpacked into a folder per class for a while."""
    with tempfile.TemporaryDirectory() as name:
        for number, (label, content) in enumerate(images_in(pack, most)):
            suffix = "webp" if content.startswith(b"RIFF") else "jpg"
            path = Path(name, f"{label:03}", f"{number:06}.{suffix}")
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        found = images_of(Path(name), features)
    return arrays(found.features, found.classes)


def pixels(image: Image.Image) -> Array:
    """Return an image as 8 x 8 pixels, 0 .. 1 [192]."""
    small = image.resize((8, 8), Image.Resampling.BOX)
    return np.asarray(small, np.float32).ravel() / 255


def histogram(image: Image.Image) -> Array:
    """Return shares of an image's pixels in 8 x 8 x 8 cells of hue, saturation and value [512]."""
    cells = np.asarray(image.convert("HSV").resize((32, 32)), np.int64) // 32
    hue, saturation, value = np.moveaxis(cells, 2, 0)
    return np.bincount((64 * hue + 8 * saturation + value).ravel(), minlength=512) / 32**2


def of_colours(pack: Path, most: int, describe: Callable[[Image.Image], Array]) -> Arrays:
    """Return poor features of images: what a function of their colours says."""
    labels, contents = zip(*images_in(pack, most), strict=True)
    return arrays([describe(Image.open(io.BytesIO(content)).convert("RGB")) for content in contents], labels)


def first_intents(path: Path) -> tuple[list[str], Array]:
    """Return CLINC150's sentences of the first 75 intents in alphabetical order, and the numbers of the intents."""
    sentences, codes = sentences_of(path)
    kept = np.flatnonzero((codes >= 0) & (codes < INTENTS))
    return [sentences[number] for number in kept], codes[kept]


def of_sentences(path: Path, features: Path) -> Arrays:
    """Return MiniLM's vectors of sentences."""
    sentences, codes = first_intents(path)
    kept = first_rows(codes, SENTENCES)
    return arrays(vectors_of([sentences[number] for number in kept], features), codes[kept])


def of_terms(path: Path, terms: TfidfVectorizer, few: TruncatedSVD) -> Arrays:
    """Return TF-IDF of sentences in few dimensions, fitted to all sentences of the first intents."""
    sentences, codes = first_intents(path)
    kept = first_rows(codes, SENTENCES)
    return arrays(few.fit_transform(terms.fit_transform(sentences))[kept], codes[kept])


def changed_letter(letter: str, fonts: list[Any], rng: np.random.Generator) -> Image.Image:
    """Draw a letter in one of the fonts, tilted, slanted, stretched and moved, and cut it out."""
    image = Image.new("L", (SIDE, SIDE))
    font, stroke = fonts[rng.integers(len(fonts))], int(rng.integers(0, 4))
    middle = np.array([SIDE / 2, SIDE / 2])
    ImageDraw.Draw(image).text(tuple(middle), letter, 255, font=font, anchor="mm", stroke_width=stroke)
    tilt, slant = rng.normal(0, 0.12), rng.normal(0, 0.15)
    wide, high = np.exp(rng.normal(0, 0.1, 2))
    matrix = np.array([[wide * np.cos(tilt), slant - np.sin(tilt)], [np.sin(tilt), high * np.cos(tilt)]])
    shift = middle - matrix @ middle + rng.normal(0, 1.5, 2)
    affine = (*matrix[0], shift[0], *matrix[1], shift[1])
    image = image.transform((SIDE, SIDE), Image.Transform.AFFINE, affine, Image.Resampling.BILINEAR)
    return image.crop(image.getbbox())


def drawn_letters() -> Iterator[tuple[int, Image.Image]]:
    """Yield classes and pictures of letters, `DRAWN` of each letter in turn, without end."""
    files = sorted(Path(matplotlib.get_data_path(), "fonts", "ttf").glob("*.ttf"))
    named = [file for file in files if any(name in file.name for name in FONTS)]
    named = [file for file in named if "Display" not in file.name and "NonUni" not in file.name]
    fonts = [ImageFont.truetype(str(file), 40) for file in named]
    rng = np.random.default_rng(0)
    while True:
        for label, letter in enumerate(LETTERS):
            yield from ((label, changed_letter(letter, fonts, rng)) for _ in range(DRAWN))


def of_letters(side: int, turn: int, most: int) -> Arrays:
    """Return letters as few pixels, 0 .. 16; each turn has other pictures."""
    count = len(LETTERS) * DRAWN
    labels, images = zip(*islice(drawn_letters(), turn * count, (turn + 1) * count), strict=True)
    kept = first_rows(np.array(labels), most)
    small = [images[number].resize((side, side), Image.Resampling.BOX) for number in kept]
    return arrays([np.asarray(image, np.float32).ravel() / 16 for image in small], np.array(labels)[kept])


def of_digits() -> Arrays:
    """Return scikit-learn's digits."""
    return arrays(*load_digits(return_X_y=True))


def makers(cifar_fs: Path, cub: Path, sentences: Path, features: Path) -> dict[str, Callable[[], Arrays]]:
    """Return what makes each source, by file name; the numbers are rows of a class, at most."""
    cifar_base, cifar_more, cifar_val = (cifar_fs / pack for pack in CIFAR_FS)
    cub_base, cub_val = (cub / pack for pack in CUB)
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    characters = TfidfVectorizer(ngram_range=(2, 4), analyzer="char_wb", sublinear_tf=True)
    found: dict[str, Callable[[], Arrays]] = {}
    for name, (stem, validation_rows, base_rows) in NETWORKS.items():
        found[name] = partial(of_validation_bank, stem, validation_rows)
        found[f"{name}b"] = partial(of_bank, stem, "base", base_rows)

    @cache
    def images(*packs: tuple[Path, int]) -> Images:
        parts = [of_images(pack, most, features) for pack, most in packs]
        first = np.cumsum([0] + [int(part["labels"].max()) + 1 for part in parts])
        labels = np.concatenate([part["labels"] + start for part, start in zip(parts, first, strict=False)])
        return Images(np.concatenate([part["x"] for part in parts]), labels, int(first[-2]))

    def learned(seed: int, which: int) -> Arrays:
        of_cifar = images((cifar_base, 150), (cifar_more, 150), (cifar_val, 220))
        of_cub = images((cub_base, 60), (cub_val, 60))
        return arrays(*features_of_others((of_cifar, of_cub), which, seed))

    for seed in range(HEADS):
        found |= {f"head{name}_{seed:02}": partial(learned, seed, which) for which, name in enumerate(("cifar", "cub"))}
    return found | {
        "glyph_8": partial(of_letters, 8, 0, 160),
        "glyph_12": partial(of_letters, 12, 1, 100),
        "digits_": of_digits,
        "poor_cifarpix": partial(of_colours, cifar_val, 150, pixels),
        "poor_cifarhist": partial(of_colours, cifar_val, 100, histogram),
        "poor_cubpix": partial(of_colours, cub_val, 60, pixels),
        "poor_cubhist": partial(of_colours, cub_val, 40, histogram),
        "lsa_w": partial(of_terms, sentences, words, TruncatedSVD(200, random_state=0)),
        "lsa_c": partial(of_terms, sentences, characters, TruncatedSVD(128, random_state=1)),
        "text_minilm": partial(of_sentences, sentences, features),
        "litecifar_base": partial(of_images, cifar_base, 150, features),
        "litecifar_more": partial(of_images, cifar_more, 150, features),
        "litecifar_val": partial(of_images, cifar_val, 220, features),
        "litecub_base": partial(of_images, cub_base, 60, features),
        "litecub_val": partial(of_images, cub_val, 60, features),
    }


def write(folder: Path, name: str, make: Callable[[], Arrays]) -> None:
    """Make a source, write it, and print what it holds."""
    begin = time.monotonic()
    made = make()
    np.savez_compressed(folder / f"{name}.npz", **made)
    (rows, width), classes = made["x"].shape, len(np.unique(made["labels"]))
    seconds = time.monotonic() - begin
    print(f"{name}: {rows:,} rows, {width} columns, {classes} classes, {seconds:.0f} s", flush=True)


def main() -> None:
    """Read the command line and write the sources."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of the sources")
    parser.add_argument("--cifar-fs", type=Path, required=True, help="folder with its three packs")
    parser.add_argument("--cub", type=Path, required=True, help="folder with train.npz and val.npz")
    parser.add_argument("--sentences", type=Path, required=True, help="data_full.json of CLINC150")
    parser.add_argument("--features", type=Path, help="folder that keeps encoded images and texts for a second run")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="write these sources alone, such as litecub_val")
    given = parser.parse_args()
    packs = [given.cifar_fs / pack for pack in CIFAR_FS] + [given.cub / pack for pack in CUB]
    for path in (*packs, given.sentences):
        if not path.is_file():
            parser.error(f"there is no file {path}; --cifar-fs, --cub and --sentences say where the data are.")
    with tempfile.TemporaryDirectory() as passing:
        known = makers(given.cifar_fs, given.cub, given.sentences, given.features or Path(passing))
        if wrong := set(given.only or ()) - set(known):
            parser.error(f"no source is called {', '.join(sorted(wrong))}; there are {', '.join(known)}.")
        given.out.mkdir(parents=True, exist_ok=True)
        for name in given.only or known:
            write(given.out, name, known[name])


if __name__ == "__main__":
    main()
