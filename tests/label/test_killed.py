"""A killed run resumes: the answer is the same, and only what was in flight is encoded twice.

That is one batch, or, with an encoder that takes small batches on each core, one batch per core and one that waits.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from colour_photos import COLOURS, paint

from sinkshot.encoders.onnx_session import CORE_BATCH
from sinkshot.label.encode import BATCH
from sinkshot.threads import cores

ENCODING = """
import sys, time
sys.path.insert(0, sys.argv[1])
from colour_photos import mean_colours
from sinkshot.label.run import label

def encode(images):
    if len(images) > 1 or sys.argv[6] != "0":  # not the trial of one image, by which a function's width is known
        with open(sys.argv[3], "a") as log:
            log.write("".join(f"{hash(image.tobytes())}\\n" for image in images))
        time.sleep(0.05)
    return mean_colours(images)

folders = {"out": sys.argv[4], "cache": sys.argv[5]}
if sys.argv[6] == "0":
    label(sys.argv[2], encoder=encode, size=8, name="slow colours", unknown=None, **folders)
else:
    from sinkshot.encoders import registry
    from sinkshot.encoders.images import ImageInput

    def load():
        few = int(sys.argv[6])
        shape = ImageInput(size=8, crop=1.0)
        return registry.Encoder("colours", "image", 12, "c" * 64, encode, shape, core_batch=few)

    registry.register("colours", modality="image", summary="on each core", extra="images")(load)
    label(sys.argv[2], encoder="colours", unknown=None, **folders)
"""
IN_FLIGHT = {0: BATCH["image"], CORE_BATCH: (cores() + 1) * CORE_BATCH}  # images, by the size of a core's batch
IMAGES = 20 * BATCH["image"]


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("many") / "photos", np.random.default_rng(0)
    for name, colour in COLOURS.items():
        for i in range(4):
            paint(root / name / f"{i}.png", colour, rng)
    colours = list(COLOURS.items())
    for i in range(IMAGES - 12):
        name, colour = colours[i % 3]
        paint(root / f"{name}-{i}.png", colour, rng)
    return root


def start(photos, work, core_batch):
    arguments = [Path(__file__).parent, photos, work / "log", work / "labels", work / "cache", core_batch]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.Popen([sys.executable, "-c", ENCODING, *map(str, arguments)], env=environment)


def encoded(work):
    log = work / "log"
    return log.read_text().split() if log.exists() else []


def killed_while_encoding(photos, work, core_batch, rng):
    """Kill a run once it has encoded a random number of further images; return whether it was still encoding."""
    before = len(encoded(work))
    wanted = before + rng.randrange(1, 5 * BATCH["image"])
    process = start(photos, work, core_batch)
    while process.poll() is None and len(encoded(work)) < wanted:
        time.sleep(0.005)
    time.sleep(rng.random() * 0.1)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def tried(photos, folder, kills, seed, core_batch):
    """Kill runs this many times; once most images are encoded, let one end, check its answer, and start again."""
    whole = folder / "whole"
    whole.mkdir()
    assert start(photos, whole, core_batch).wait() == 0
    expected = (whole / "labels" / "labels.csv").read_bytes()
    assert max(Counter(encoded(whole)).values()) == 1
    rng, since, work = random.Random(seed), 0, folder / "killed"
    work.mkdir()
    for number in range(kills):
        assert killed_while_encoding(photos, work, core_batch, rng), "it ended before it was killed: too few images"
        since += 1
        if number == kills - 1 or len(set(encoded(work))) > 0.7 * IMAGES:
            finished(photos, work, expected, since, core_batch)
            shutil.rmtree(work)
            work.mkdir()
            since = 0


def finished(photos, work, expected, kills, core_batch):
    """Let a run end; the answer is the same, and each kill cost at most what was in flight."""
    assert start(photos, work, core_batch).wait() == 0
    assert (work / "labels" / "labels.csv").read_bytes() == expected
    times = Counter(encoded(work))
    assert len(times) == IMAGES
    assert sum(times.values()) <= IMAGES + kills * IN_FLIGHT[core_batch]


@pytest.mark.slow
@pytest.mark.parametrize("core_batch", IN_FLIGHT)
def test_a_kill_loses_at_most_what_is_in_flight(many, tmp_path, core_batch):
    tried(many, tmp_path, kills=1, seed=1, core_batch=core_batch)


@pytest.mark.long
@pytest.mark.parametrize("core_batch", IN_FLIGHT)
def test_ten_kills_lose_at_most_what_is_in_flight(many, tmp_path, core_batch):
    tried(many, tmp_path, kills=10, seed=2, core_batch=core_batch)
