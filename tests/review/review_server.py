"""A review of small made images in a process of its own, and a client that talks to it as the page does."""

from __future__ import annotations

import contextlib
import csv
import http.client
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

COLOURS = {
    "red": (205, 45, 45),
    "green": (45, 175, 65),
    "blue": (50, 65, 205),
    "grey": (128, 128, 128),
    "cyan": (40, 200, 205),
    "black": (20, 20, 20),
}
STRANGE = {"gold": (215, 185, 40), "pink": (225, 120, 205)}  # colours without a labelled image
PATIENCE = 60.0
NOISE = 0.2
SERVE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may ignore it
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from review_server import colour_codes
from sinkshot.review.server import review
review(Path(sys.argv[2]), out=Path(sys.argv[3]), open_browser=False, encoder=colour_codes, size=8, name="colours",
       announce=lambda address: print(address, flush=True), tell=lambda words: print(words, file=sys.stderr))
"""


def colour_codes(images):
    """Features of images: how near each is to many colours, with noise that depends on its pixels alone."""
    corners = np.random.default_rng(0).uniform(0, 255, (96, 3))
    pixels = np.asarray(images)
    near = np.exp(-np.square((pixels.mean(axis=(1, 2))[:, None] - corners) / 80.0).sum(axis=2))
    noise = [np.random.default_rng(int(image.sum(dtype=np.int64))).gamma(1.0, NOISE, len(corners)) for image in pixels]
    return near + np.array(noise)


def paint(path, colour, rng):
    """Write a small image of about a colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shade = np.clip(np.array(colour) + rng.normal(0, 12, 3), 0, 255)
    pixels = np.clip(shade + rng.normal(0, 12, (12, 12, 3)), 0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(path)


def made_photos(root, each=30, labelled=6, strangers=30):
    """Make a folder of images: labelled ones of each colour, others of it, and colours that have no class."""
    rng = np.random.default_rng(0)
    for name, colour in COLOURS.items():
        for i in range(labelled):
            paint(root / name / f"{i}.png", colour, rng)
        for i in range(each):
            paint(root / "_unlabeled" / f"{name}-{i:04}.png", colour, rng)
    for name, colour in STRANGE.items():
        for i in range(strangers):
            paint(root / "_unlabeled" / f"{name}-{i:04}.png", colour, rng)
    return root


class Server:
    """A running review."""

    def __init__(self, source, out, *words, program=SERVE, threads=1):
        command = [sys.executable, "-c", program, Path(__file__).parent, source, out] if program else words
        command = list(map(str, command if program else [sys.executable, *words]))
        environment = os.environ if threads is None else {**os.environ, "SINKSHOT_THREADS": str(threads)}
        self.out = Path(out)
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            raise AssertionError(self.process.communicate()[1])
        parts = urlsplit(self.address)
        self.port, self.token = parts.port, parts.path.strip("/")

    def ask(self, path, method="GET", body=None, headers=(), token=None):
        """Send one request; return its status and content."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            token = self.token if token is None else token
            connection.request(method, f"/{token}/{path}" if token else f"/{path}", body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read()

    def state(self):
        """Return the state as the page gets it."""
        return json.loads(self.ask("state")[1])

    def fitted(self, decided=0):
        """Wait until the predictions know so many decisions, and what follows from them is there; return the state."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            state = self.state()
            if (
                state["fit"]["number"]
                and not state["busy"]
                and not state["fit"]["behind"]
                and decided <= state["version"][0]
            ):
                return state
            time.sleep(0.05)
        raise AssertionError("no fit came")

    def decide(self, kind, identity=None, **fields):
        """Send a decision as the page does; return the status and the answer."""
        body = json.dumps({"id": identity or uuid.uuid4().hex, "kind": kind, **fields})
        status, content = self.ask("decisions", "POST", body, {"content-type": "application/json"})
        return status, json.loads(content)

    def kill(self):
        """End the process at once, as a loss of power would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def interrupt(self):
        """Press Ctrl+C; return the exit code and what was said."""
        self.process.send_signal(signal.SIGINT)
        said = self.process.communicate(timeout=PATIENCE)[1]
        return self.process.returncode, said

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()


def labels_of(out):
    """Return labels.csv by name: the label and its source."""
    with open(out / "labels.csv", newline="") as file:
        return {row.get("file_name") or row["id"]: (row["label"], row["source"]) for row in csv.DictReader(file)}
