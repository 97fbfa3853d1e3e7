"""Extraction from and into a bucket of a real S3 server on this machine (moto, from PyPI), killed and resumed."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optional_packages import need
from PIL import Image

from sinkshot import InputError, load
from sinkshot.backbones import datasets
from sinkshot.encoders.extract_parts import EncoderChoice, extract_parts

torch = pytest.importorskip("torch")
need("s3fs")
IMAGES = 60


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server with one bucket; libraries find it by their environment."""
    moto = pytest.importorskip("moto.server")
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    patch = pytest.MonkeyPatch()
    known = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in known.items():
        patch.setenv(name, value)
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    store = s3fs.S3FileSystem()
    store.mkdir("birds")
    draw = np.random.default_rng(0)
    for number in range(IMAGES):
        content = io.BytesIO()
        pixels = draw.integers(0, 60, (24, 24, 3)) + 190 * np.eye(3, dtype=np.int64)[number % 3]
        Image.fromarray(pixels.astype(np.uint8)).save(content, "png")
        store.pipe(f"birds/photos/{('owl', 'hen', 'emu')[number % 3]}/{number:03d}.png", content.getvalue())
    store.pipe("birds/photos/notes.txt", b"not an image")
    yield "s3://birds"
    running.stop()
    s3fs.S3FileSystem.clear_instance_cache()
    patch.undo()


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network of our own."""
    from sinkshot.backbones import checkpoints
    from sinkshot.backbones.networks import build

    torch.manual_seed(0)
    network = build("conv4", channels=8)
    with torch.no_grad():
        network(torch.randn(32, 3, 16, 16))
    path = tmp_path_factory.mktemp("weights") / "conv4.safetensors"
    checkpoints.save(network, path, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    return path


def command(server: str, weights: Path, out: str) -> list[str]:
    """The command line, in parts of six images."""
    words = ["extract", f"{server}/photos", "--weights", str(weights), "--size", "16", "--out", out, "--part-rows", "6"]
    return [sys.executable, "-m", "sinkshot", *words, "--json"]


def parts_there(server: str, name: str) -> int:
    """How many parts are complete."""
    import s3fs

    store: Any = s3fs.S3FileSystem(use_listings_cache=False)
    return sum(path.endswith(".safetensors") for path in store.find(f"{server}/{name}".removeprefix("s3://")))


def test_images_in_a_bucket_are_listed(server: str) -> None:
    """By class, without what is no image; an address without any is refused."""
    found = datasets.load(f"{server}/photos", size=16)
    assert (len(found), found.class_names) == (IMAGES, ("emu", "hen", "owl"))
    assert found.source.name(0) == "emu/002.png"
    assert found.pixels([0, 1]).shape == (2, 16, 16, 3)
    with pytest.raises(InputError, match="holds no images"):
        datasets.load(f"{server}/nothing")


@pytest.mark.slow
def test_extraction_from_and_into_a_bucket(server: str, weights: Path, tmp_path: Path) -> None:
    """Parts in a bucket have the rows of parts here."""
    images, choice = datasets.load(f"{server}/photos", size=16), EncoderChoice(weights, (("size", 16),))
    for out in (f"{server}/whole", str(tmp_path / "here")):
        assert extract_parts(choice, images, out, part_rows=25).rows == IMAGES
    assert load(f"{server}/whole").content_hash() == load(tmp_path / "here").content_hash()


@pytest.mark.long
def test_extraction_from_and_into_a_bucket_is_killed_and_resumed(server: str, weights: Path, tmp_path: Path) -> None:
    """A killed run leaves whole parts, the next one makes the others, and the bank is that of an undisturbed run."""
    process = subprocess.Popen(command(server, weights, f"{server}/killed"), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while parts_there(server, "killed") < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    there = parts_there(server, "killed")
    assert 2 <= there < IMAGES // 6
    with pytest.raises(InputError, match="no index"):
        load(f"{server}/killed")
    ended = subprocess.run(command(server, weights, f"{server}/killed"), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["rows"] == IMAGES
    assert (
        subprocess.run(command(server, weights, str(tmp_path / "here")), capture_output=True, check=False).returncode
        == 0
    )
    resumed, undisturbed = load(f"{server}/killed"), load(tmp_path / "here")
    assert resumed.content_hash() == undisturbed.content_hash()
    assert parts_there(server, "killed") == IMAGES // 6
