"""An extraction resumes after any kind of stop, if the images are the same and no other process writes the file."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from image_files import folder, picture, write
from toy_backbones import NAMES, linear, plain, small_network

from sinkshot.backbones import checkpoints
from sinkshot.backbones import extract as module
from sinkshot.backbones.datasets import load
from sinkshot.backbones.extract import extract
from sinkshot.errors import InputError


@pytest.fixture
def weights(tmp_path):
    return small_network(tmp_path / "conv4.safetensors")


@pytest.fixture
def images(tmp_path):
    return load(folder(tmp_path / "animals", NAMES, each=9), size=32)


KILLED = """
    import time
    from sinkshot.backbones import checkpoints, extract as module
    from sinkshot.backbones.datasets import load

    module.CHUNK = 8
    images = load({images!r}, size=32)
    wait = lambda done, total: done >= 16 and (print("16 rows are safe", flush=True), time.sleep(600))
    module.extract(checkpoints.load({weights!r}), images, {out!r}, batch=4, progress=wait)
"""


@pytest.mark.slow
def test_a_killed_extraction_goes_on_and_ends_with_the_same_bytes(tmp_path, weights, images):
    """While it lives, no other process writes the same bank."""
    backbone = checkpoints.load(weights)
    extract(backbone, images, tmp_path / "whole.safetensors", batch=4)
    out = tmp_path / "killed.safetensors"
    code = KILLED.format(images=str(tmp_path / "animals"), weights=str(weights), out=str(out))
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "16 rows are safe\n"
        with pytest.raises(InputError, match=rf"killed.safetensors cannot be written: .* by process {process.pid} on "):
            extract(backbone, images, out, batch=4)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    assert not out.exists()
    with (tmp_path / "killed.safetensors.part").open("ab") as part:
        part.write(b"half a row that never became safe")
    done = extract(backbone, images, out, batch=4)
    assert done.before == 16
    assert out.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()
    assert not list(tmp_path.glob("killed*.part*"))


@pytest.mark.parametrize("change", ["weights", "batch", "images"])
def test_other_work_does_not_go_on_from_what_is_left(tmp_path, monkeypatch, change):
    monkeypatch.setattr(module, "CHUNK", 8)

    def stop(done, total):
        raise KeyboardInterrupt

    out, images = tmp_path / "out.safetensors", plain(32)
    with pytest.raises(KeyboardInterrupt):
        extract(linear(3), images, out, batch=4, progress=stop)
    assert extract(linear(3), images, tmp_path / "other.safetensors", batch=4).before == 0
    if change == "images":
        images = images.only(range(31, -1, -1))
    done = extract(linear(3, seed=int(change == "weights")), images, out, batch=8 if change == "batch" else 4)
    assert done.before == 0
    fresh = tmp_path / "fresh.safetensors"
    extract(linear(3, seed=int(change == "weights")), images, fresh, batch=8 if change == "batch" else 4)
    assert fresh.read_bytes() == out.read_bytes()


@pytest.fixture
def said():
    """The library's log messages."""

    class Keeping(logging.Handler):
        def emit(self, record):
            told.append(record.getMessage())

    told, log, keeping = [], logging.getLogger("sinkshot"), Keeping()
    level = log.level
    log.addHandler(keeping)
    log.setLevel(logging.INFO)
    yield told
    log.removeHandler(keeping)
    log.setLevel(level)


def stopped(backbone, images, out, monkeypatch):
    """Extract eight rows and stop."""

    def stop(done, total):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "CHUNK", 8)
        with pytest.raises(KeyboardInterrupt):
            extract(backbone, images, out, batch=4, progress=stop)


@pytest.mark.parametrize("change", ["content", "time"])
def test_an_image_that_changed_after_it_was_done_is_not_kept(tmp_path, images, monkeypatch, said, change):
    out, file = tmp_path / "out.safetensors", tmp_path / "animals" / "ant" / "002.png"
    stopped(linear(3), images, out, monkeypatch)
    if change == "content":
        write(file, picture(2, 100))
    else:
        os.utime(file, ns=(0, 0))
    assert extract(linear(3), images, out, batch=4).before == 0
    assert said == ["1 image changed since an earlier run used them (the first is ant/002.png); starting again."]
    extract(linear(3), images, tmp_path / "fresh.safetensors", batch=4)
    assert out.read_bytes() == (tmp_path / "fresh.safetensors").read_bytes()


def test_an_image_that_changed_before_its_turn_hinders_nobody(tmp_path, images, monkeypatch, said):
    stopped(linear(3), images, tmp_path / "out.safetensors", monkeypatch)
    write(tmp_path / "animals" / "cat" / "002.png", picture(1, 100))
    assert extract(linear(3), images, tmp_path / "out.safetensors", batch=4).before == 8
    assert said == ["8 of 27 images were done by an earlier run; continuing from there."]


def test_images_without_files_are_known_by_their_content(tmp_path, monkeypatch, said):
    images, other = plain(32), plain(32)
    stopped(linear(3), images, tmp_path / "out.safetensors", monkeypatch)
    other.source.pixels[[5, 6], 0, 0, 0] ^= 1
    assert extract(linear(3), other, tmp_path / "out.safetensors", batch=4).before == 0
    assert said == ["2 images changed since an earlier run used them (the first is noise[5]); starting again."]


def test_what_was_left_without_stamps_is_not_gone_on_with(tmp_path, monkeypatch, said):
    stopped(linear(3), plain(32), tmp_path / "out.safetensors", monkeypatch)
    (tmp_path / "out.safetensors.part.stamps").unlink()
    assert extract(linear(3), plain(32), tmp_path / "out.safetensors", batch=4).before == 0
    assert said[0].endswith(
        "out.safetensors.part is from a run with other images, weights or settings, or from an "
        "older SinkShot; starting again."
    )
