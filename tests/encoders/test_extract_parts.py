"""Extraction into a bank in parts: the rows of a single file, whoever computes them, and nothing done twice."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import sinkshot
from PIL import Image

from sinkshot import InputError, load
from sinkshot.backbones import checkpoints, datasets
from sinkshot.backbones import extract as steps
from sinkshot.encoders import extract_parts as module
from sinkshot.encoders.extract_parts import EncoderChoice, extract_parts
from sinkshot.workers import check_code, crew, each, package_version

torch = pytest.importorskip("torch")
PHOTOS = 44


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Four classes of eleven small images."""
    rng = np.random.default_rng(0)
    for number, name in enumerate(("ant", "bee", "cat", "dog")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for index in range(PHOTOS // 4):
            pixels = rng.integers(0, 60, (24, 24, 3)) + 190 * np.eye(4)[number, :3]
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / name / f"{index}.png")
    return tmp_path / "photos"


@pytest.fixture
def choice(tmp_path: Path) -> EncoderChoice:
    """A small network of our own."""
    from sinkshot.backbones.networks import build

    torch.manual_seed(0)
    network = build("conv4", channels=16)
    with torch.no_grad():
        network(torch.randn(32, 3, 16, 16))
    checkpoints.save(network, tmp_path / "conv4.safetensors", (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    return EncoderChoice(tmp_path / "conv4.safetensors", (("size", 16),))


def listed(photos: Path, split: str = "all") -> datasets.Images:
    """The images as the command lists them."""
    images = datasets.load(photos, size=16)
    return images if split == "all" else module.replace(images, meta={**images.meta, "split": split})


def test_parts_are_the_rows_of_one_file(photos: Path, choice: EncoderChoice, tmp_path: Path) -> None:
    """Features, labels, class names, provenance and base means."""
    images = listed(photos, "base")
    steps.extract(choice.load(), images, tmp_path / "one.safetensors", batch=5)
    done = extract_parts(choice, images, str(tmp_path / "parts"), part_rows=10, batch=5)
    one, parts = load(tmp_path / "one.safetensors"), load(tmp_path / "parts")
    assert (done.rows, done.before) == (PHOTOS, 0)
    assert parts.content_hash() == one.content_hash()
    assert parts.meta == one.meta
    assert set(parts.base) == set(one.base)
    for prefix, mean in one.base.items():
        np.testing.assert_allclose(parts.base[prefix], mean, rtol=1e-6)
    assert sorted(file.name for file in (tmp_path / "parts").iterdir())[:2] == ["base.safetensors", "index.json"]


def test_a_killed_run_continues(photos: Path, choice: EncoderChoice, tmp_path: Path, monkeypatch: Any) -> None:
    """Parts that are complete are not made again; one that lost its note, or whose images changed, is."""
    made: list[int] = []
    real = module.make_part

    def counted(job: module.PartJob) -> module.PartDone:
        made.append(job.number)
        if len(made) == 4:
            raise KeyboardInterrupt
        return real(job)

    monkeypatch.setattr(module, "make_part", counted)
    out = str(tmp_path / "parts")
    with pytest.raises(KeyboardInterrupt):
        extract_parts(choice, listed(photos), out, part_rows=10)
    assert not (tmp_path / "parts" / "index.json").exists()
    (tmp_path / "parts" / "part-00001.json").write_text('{"work": ')  # killed while writing it, on a poor file system
    image = photos / "ant" / "0.png"
    os.utime(image, (1, 1))  # of part 0
    made.clear()
    monkeypatch.setattr(module, "make_part", lambda job: (made.append(job.number), real(job))[1])
    done = extract_parts(choice, listed(photos), out, part_rows=10)
    assert made == [0, 1, 3, 4]
    assert done.before == 10
    steps.extract(choice.load(), listed(photos), tmp_path / "one.safetensors")
    assert load(out).content_hash() == load(tmp_path / "one.safetensors").content_hash()
    assert not list((tmp_path / "parts").glob("*.json"))[1:]  # the index alone


def test_the_command_writes_parts(photos: Path, choice: EncoderChoice, tmp_path: Path) -> None:
    """A folder instead of a file; options that do not go together are refused."""
    words = ("extract", photos, "--weights", choice.spec, "--size", 16)
    done = sinkshot(*words, "--out", tmp_path / "parts", "--part-rows", 20, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["rows"] == PHOTOS
    assert "rows              44 in 3 parts" in sinkshot("info", tmp_path / "parts").stdout
    refused = sinkshot(*words, "--out", tmp_path / "one.safetensors", "--workers", 2)
    assert refused.returncode == 2
    assert "give --out a folder" in refused.stderr
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("precious")
    refused = sinkshot(*words, "--out", tmp_path / "other")
    assert refused.returncode == 2
    assert "holds other files" in refused.stderr


# --- on workers ------------------------------------------------------------------------------------------------------


def _pid(_: int) -> int:
    return os.getpid()


def _dies_once(marker: Path) -> str:
    """End the process, the first time."""
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def _refuses(_: int) -> None:
    raise InputError("this part is damaged.")


@pytest.mark.slow
def test_workers_share_parts_and_may_die(photos: Path, choice: EncoderChoice, tmp_path: Path) -> None:
    """One cluster for all of it: processes share jobs, a killed one is replaced, an InputError comes home."""
    pytest.importorskip("distributed")
    with crew(workers=2) as client:
        assert len({pid for _, pid in each(client, _pid, range(40))}) == 2
        assert [found for _, found in each(client, _dies_once, [tmp_path / "marker"])] == ["done"]
        with pytest.raises(InputError, match="this part is damaged"):
            list(each(client, _refuses, range(3)))
        check_code(client, package_version())
        with pytest.raises(InputError, match="install the same there"):
            check_code(client, "another version")
        address = client.scheduler_info()["address"]
        extract_parts(choice, listed(photos), str(tmp_path / "parts"), part_rows=10, scheduler=address)
    steps.extract(choice.load(), listed(photos), tmp_path / "one.safetensors")
    assert load(tmp_path / "parts").content_hash() == load(tmp_path / "one.safetensors").content_hash()


def test_both_kinds_of_workers_are_refused() -> None:
    """One or the other; a number below one is refused."""
    with pytest.raises(InputError, match="give one of them"), crew(2, "tcp://127.0.0.1:1"):
        pass
    with pytest.raises(InputError, match="at least 1"), crew(0):
        pass
