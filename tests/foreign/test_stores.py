"""A store of results with unexpected content is refused with a sentence."""

import os
import sqlite3

import pytest

from sinkshot.errors import InputError
from sinkshot.studies.store import Store

SETTINGS = ["[]", "3", '"x"', "[" * 100_000, '{"bank": 3}', '{"bank": {"backbones": 3}}', "{", "9" * 5_000]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("place", ["settings", "seconds", "description"])
def test_a_store_with_values_of_another_kind_is_refused(tmp_path, settings, place):
    path = tmp_path / "results.sqlite"
    Store(path).close()
    values = {"settings": "{}", "seconds": "{}", "description": '{"hardware": "x", "versions": {}}', place: settings}
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO machines VALUES (1, ?)", (values["description"],))
        database.execute("INSERT INTO cells VALUES (1, ?, 0, '', '', '')", (values["settings"],))
        row = (1, 0, 1, bytes(8), values["seconds"], 1, "")
        columns = "cell, first, count, accuracy, seconds, machine, finished"
        database.execute(f"INSERT INTO chunks ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    database.close()
    with Store(path, reading=True) as store, pytest.raises(InputError, match="damaged or not a store") as error:
        store.everything()
    assert str(error.value).isprintable()


def test_a_pipe_is_no_store(tmp_path):
    os.mkfifo(tmp_path / "results.sqlite")
    for reading in (True, False):
        with pytest.raises(InputError, match=r"results\.sqlite"):
            Store(tmp_path / "results.sqlite", reading)
