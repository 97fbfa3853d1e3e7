"""Decisions are kept line by line, survive a cut at any byte, and can be taken back as far as one likes."""

from __future__ import annotations

import json
import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkshot.errors import InputError
from sinkshot.label import decisions
from sinkshot.label.classifier import Answers
from sinkshot.label.decisions import DecisionLog, NotSavedError, put_onto, read, rule_out, standing
from sinkshot.label.items import Items


def five_items():
    labels = ("cat", None, None, None, "dog")
    return Items("embeddings", tuple("abcde"), labels, np.zeros(5, dtype=bool))


@pytest.fixture
def log(tmp_path):
    found = DecisionLog(tmp_path / "decisions.jsonl")
    yield found
    found.close()


@pytest.mark.slow
def test_a_decision_is_on_the_disk_when_append_returns(log, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(os.fstat(handle).st_size), real(handle))[1])
    decision, new = log.append("identity-1", "label", items=("b",), label="cat")
    assert new
    assert decision.number == 1
    assert synced == [log.path.stat().st_size]
    assert read(log.path) == [decision]


def test_a_repeated_request_is_no_second_decision(log):
    first, _ = log.append("identity-1", "label", items=("b",), label="cat")
    again, new = log.append("identity-1", "label", items=("b",), label="cat")
    assert (again, new) == (first, False)
    reopened = DecisionLog(log.path)
    assert reopened.append("identity-1", "label", items=("b",), label="cat") == (first, False)
    reopened.close()
    assert len(log.path.read_bytes().splitlines()) == 1


def test_threads_share_the_file(log):
    def many(name):
        for i in range(20):
            log.append(f"{name}-{i:08}", "label", items=("b",), label=name)

    threads = [threading.Thread(target=many, args=(name,)) for name in ("cat", "dog", "owl")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.number for one in read(log.path)] == list(range(1, 61))


@given(cut=st.integers(0, 10_000))
def test_a_file_cut_at_any_byte_keeps_every_whole_line(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("cut") / "decisions.jsonl"
    log = DecisionLog(path)
    made = [log.append(f"identity-{i}", "label", items=("b", "ü"), label=f"class {i}")[0] for i in range(6)]
    log.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: cut % (len(whole) + 1)])
    kept = path.read_bytes().count(b"\n")
    again = DecisionLog(path)
    assert again.decisions == made[:kept]
    again.append("identity-after", "label", items=("c",), label="cat")
    again.close()
    assert [one.id for one in read(path)] == [*(one.id for one in made[:kept]), "identity-after"]


def test_labels_are_those_given_and_then_decided(log):
    log.append("identity-1", "label", items=("b", "c"), label="cat")
    log.append("identity-2", "label", items=("a",), label="dog")
    log.append("identity-3", "label", items=("gone",), label="dog")
    log.append("identity-4", "label", items=("d",), label="_none")
    items, ruled_out = put_onto(five_items(), log.decisions)
    assert items.labels == ("dog", "cat", "cat", "_none", "dog")
    assert items.accepted.tolist() == [True, True, True, True, False]
    assert not ruled_out


def test_undo_goes_back_as_far_as_one_likes(log):
    for i, label in enumerate(("cat", "dog", "owl")):
        log.append(f"identity-{i}", "label", items=("b",), label=label)
    seen = []
    for i in range(3):
        log.append(f"undo-{i:04}", "undo")
        seen.append(put_onto(five_items(), log.decisions)[0].labels[1])
    assert seen == ["dog", "cat", None]
    with pytest.raises(InputError, match="nothing to undo"):
        log.append("undo-last", "undo")
    assert len(read(log.path)) == 6
    assert standing(log.decisions) == []


def test_any_decision_can_be_taken_back_once(log):
    log.append("identity-1", "label", items=("b",), label="cat")
    log.append("identity-2", "label", items=("c",), label="dog")
    log.append("undo-0001", "undo", of=1)
    assert put_onto(five_items(), log.decisions)[0].labels[1:3] == (None, "dog")
    with pytest.raises(InputError, match="undone already"):
        log.append("undo-0002", "undo", of=1)


def test_a_rejected_class_goes_to_the_next_best_and_a_rejected_label_is_none(log):
    log.append("identity-1", "reject", items=("b",), label="cat")
    log.append("identity-2", "reject", items=("a",), label="cat")
    items, ruled_out = put_onto(five_items(), log.decisions)
    assert items.labels[0] is None
    assert ruled_out == {0: frozenset({"cat"}), 1: frozenset({"cat"})}
    probabilities = np.array([[0.7, 0.2, 0.1]] * 5)
    answers = Answers(("cat", "dog", "owl"), probabilities, np.zeros(5), ("cat",) * 5, ("predicted",) * 5, (), (), None)
    found = rule_out(answers, ruled_out, 0.5)
    assert found.labels == ("dog", "dog", "cat", "cat", "cat")
    assert found.probabilities[1] == pytest.approx([0, 2 / 3, 1 / 3])
    nowhere = rule_out(answers, {1: frozenset(answers.classes)}, 0.5)
    assert nowhere.labels[1] == ""


@pytest.mark.parametrize(
    "line",
    [
        *('{"number": 1}', "[]", "nonsense", '{"number": 2, "id": "x", "time": "", "kind": "label"}'),
        *(
            '{"number": 1, "id": "x", "time": "", "kind": "other"}',
            '{"number": 1, "id": 3, "time": "", "kind": "label"}',
        ),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path, line):
    path = tmp_path / "decisions.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(InputError, match=r"decisions\.jsonl, line 1"):
        DecisionLog(path)
    assert path.read_text() == line + "\n"


def test_a_full_disk_leaves_no_half_line(log, monkeypatch):
    log.append("identity-1", "label", items=("b",), label="cat")
    whole = log.path.read_bytes()
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, line: real(handle, line[:10]))
    with pytest.raises(InputError, match="cannot be written: the disk is full"):
        log.append("identity-2", "label", items=("c",), label="cat")
    monkeypatch.undo()
    assert log.path.read_bytes() == whole
    assert log.append("identity-2", "label", items=("c",), label="cat")[0].number == 2


def test_half_a_line_that_could_not_be_cut_off_is_cut_off_before_the_next(log, monkeypatch):
    first, _ = log.append("identity-1", "label", items=("b",), label="cat")
    real = os.write

    def refused(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "write", lambda handle, line: real(handle, line[:10]))
    monkeypatch.setattr(os, "ftruncate", refused)
    with pytest.raises(NotSavedError):
        log.append("identity-2", "label", items=("c",), label="cat")
    monkeypatch.setattr(os, "write", real)
    with pytest.raises(NotSavedError, match="Input/output error"):
        log.append("identity-2", "label", items=("c",), label="cat")
    monkeypatch.undo()
    second, _ = log.append("identity-2", "label", items=("c",), label="cat")
    assert read(log.path) == [first, second]


def test_a_file_that_was_removed_is_written_anew(log):
    made = [log.append(f"identity-{i}", "label", items=("b", "ü"), label="cat")[0] for i in range(3)]
    log.path.unlink()
    made += [log.append(f"later-{i:03}", "undo")[0] for i in range(2)]
    assert read(log.path) == made


def test_a_file_that_another_program_changed_is_not_written_to(log):
    log.append("identity-1", "label", items=("b",), label="cat")
    before = log.path.read_bytes()
    for changed in (before + b"x", b"", before.replace(b"cat", b"dog")):
        other = log.path.with_name("other")
        other.write_bytes(changed)
        if changed.endswith(b"\n"):
            other.replace(log.path)  # as an editor does
        else:
            log.path.write_bytes(changed)
        with pytest.raises(NotSavedError, match="changed by another program"):
            log.append("identity-2", "label", items=("c",), label="cat")
        assert log.path.read_bytes() == changed


def test_a_clock_that_is_set_back_changes_no_order(log, monkeypatch):
    times = iter(("2026-03-02T10:00:00.000+00:00", "2026-03-01T10:00:00.000+00:00", "1970-01-01T00:00:00.000+00:00"))
    monkeypatch.setattr(decisions, "_now", lambda: next(times))
    for i, label in enumerate(("cat", "dog", "owl")):
        log.append(f"identity-{i}", "label", items=("b",), label=label)
    assert put_onto(five_items(), read(log.path))[0].labels[1] == "owl"


def test_a_line_holds_what_it_uses(log):
    log.append("identity-1", "label", items=("b",), label="cat")
    assert set(json.loads(log.path.read_text())) == {"number", "id", "time", "kind", "items", "label"}
