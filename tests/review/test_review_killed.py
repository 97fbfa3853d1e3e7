"""A server that is killed at random moments of a session: every acknowledged decision is there, once, and whole."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
import uuid

import numpy as np
import pytest
from review_server import labels_of

from sinkshot.label.decisions import put_onto, read
from sinkshot.label.inputs import read as read_items

CLASSES = ("a", "b", "c", "d")


def made_vectors(path, rows=400):
    """Embeddings of four classes, five labelled in each."""
    rng, codes = np.random.default_rng(0), np.arange(rows) % 4
    features = rng.gamma(1.0 + 4.0 * (codes[:, None] == np.arange(16) % 4)).astype(np.float32)
    labels = np.where(np.arange(rows) < 20, codes, -1)
    np.savez(path, features=features, labels=labels, class_names=np.array(CLASSES))
    return path


def session(seed, count):
    """Decisions as a page would send them: labels, rejections and undos, each with its own identity."""
    rng = random.Random(seed)
    for _ in range(count):
        kind = rng.choices(("label", "reject", "undo"), (8, 2, 2))[0]
        told = {"id": uuid.UUID(int=rng.getrandbits(128)).hex, "kind": kind}
        if kind != "undo":
            rows = rng.sample(range(20, 400), rng.choice((1, 1, 1, 5, 40)))
            told |= {"items": rows, "label": rng.choice(CLASSES)}
        yield told


def sent(server, told, acknowledged):
    """Send a decision; return whether it was answered. A refused undo, with nothing to undo, is answered too."""
    try:
        status, answer = server.ask("decisions", "POST", json.dumps(told), {"content-type": "application/json"})
    except (OSError, http.client.HTTPException):
        return False
    if status == 200:
        acknowledged[told["id"]] = json.loads(answer)["number"]
    else:
        assert b"nothing to undo" in answer
    return True


def tried(start, folder, kills, decisions, seed):
    """Kill the server so many times while a session goes on, and start it again each time."""
    source, out = made_vectors(folder / "vectors.npz"), folder / "labels"
    rng, acknowledged = random.Random(seed), {}
    waiting = list(session(seed, decisions))
    at = sorted(rng.sample(range(len(waiting)), kills))  # decisions during which a kill comes
    server = begun(start, source, out)
    for number, told in enumerate(waiting):
        if at and at[0] == number:
            at.pop(0)
            threading.Timer(rng.random() * 0.02, server.kill).start()
            while sent(server, told, acknowledged):  # until the kill comes; a repeated request is no second decision
                time.sleep(0.001)
            server.process.wait()
            server = begun(start, source, out)
        assert sent(server, told, acknowledged)
    server.fitted()
    assert server.interrupt()[0] == 0
    check(source, out, waiting, acknowledged)


def begun(start, source, out):
    command = ["-m", "sinkshot", "label", source, "--review", "--no-open", "--out", out]
    return start(source, out, *command, program="")


def check(source, out, waiting, acknowledged):
    written = (out / "decisions.jsonl").read_bytes()
    assert written.endswith(b"\n")
    found = read(out / "decisions.jsonl")
    assert [one.number for one in found] == list(range(1, len(found) + 1))
    identities = [one.id for one in found]
    assert len(set(identities)) == len(identities)
    assert {one.id: one.number for one in found} == acknowledged
    order = [told["id"] for told in waiting if told["id"] in acknowledged]
    assert identities == order
    items, _ = put_onto(read_items(source), found)
    labels = labels_of(out)
    for name, label, accepted in zip(items.names, items.labels, items.accepted, strict=True):
        if label is None:
            assert labels[name][1] == "predicted"
        else:
            assert labels[name] == (label, "accepted" if accepted else "given")


@pytest.mark.slow
def test_two_kills_lose_no_acknowledged_decision(start, tmp_path):
    tried(start, tmp_path, kills=2, decisions=40, seed=1)


@pytest.mark.long
def test_a_hundred_kills_in_a_session_of_500_lose_no_acknowledged_decision(start, tmp_path):
    tried(start, tmp_path, kills=100, decisions=500, seed=2)
