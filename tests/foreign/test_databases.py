"""Files of SQLite that somebody else wrote: the cache of features, and stores of results."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from sinkshot.errors import InputError
from sinkshot.foreign import databases
from sinkshot.label.cache import FeatureCache, of_text
from sinkshot.studies.store import Store

ITEM, ROW = of_text("a"), np.array([[1.0, 2.0]], np.float32)
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS encoder, x AS item FROM n"


def cache(path):
    return FeatureCache(path, "encoder", 2)


def changed(path, *statements):
    with cache(path) as kept:
        kept.add([ITEM], ROW)
        kept.write()
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(*statement) if isinstance(statement, tuple) else database.execute(statement)
        database.commit()
    return path


@pytest.mark.parametrize(
    "value", [b"", bytes(7), bytes(12), "text", 3, 1 << 40, None, np.array([1, np.nan], np.float32).tobytes()]
)
def test_a_cached_vector_of_another_kind_is_computed_again(tmp_path, value):
    path = changed(tmp_path / "features.sqlite", ("update features set vector = ?", (value,)))
    with cache(path) as kept:
        assert kept.known([ITEM]) == {}
        kept.add([ITEM], ROW)
        kept.write()
        np.testing.assert_array_equal(kept.known([ITEM])[ITEM], ROW[0])


def test_a_cache_of_features_without_rowid_is_read_and_written(tmp_path):
    with closing(sqlite3.connect(tmp_path / "features.sqlite")) as database:
        columns = "encoder text, item blob, vector blob, primary key (encoder, item)"
        database.execute(f"create table features ({columns}) without rowid")
        database.execute("insert into features values (?, ?, ?)", ("encoder", ITEM, ROW.tobytes()))
        database.commit()
    other = of_text("b")
    with cache(tmp_path / "features.sqlite") as kept:
        np.testing.assert_array_equal(kept.known([ITEM])[ITEM], ROW[0])
        kept.add([ITEM, other], np.concatenate([2 * ROW, ROW]))
        kept.write()
        found = kept.known([ITEM, other])
        np.testing.assert_array_equal([found[ITEM], found[other]], np.concatenate([2 * ROW, ROW]))


@pytest.mark.parametrize("value", [b"", "text", 1 << 34, None])
def test_a_cached_digest_of_another_kind_is_computed_again(tmp_path, value):
    image = tmp_path / "x.png"
    image.write_bytes(b"x")
    with cache(tmp_path / "features.sqlite") as kept:
        digest, _ = kept.of_file(image)
    path = changed(tmp_path / "features.sqlite", ("update files set item = ?", (value,)))
    with cache(path) as kept:
        assert kept.unchanged([image]) == [None]
        assert kept.of_file(image) == (digest, image.read_bytes())


def test_a_digest_is_kept_until_the_file_changes(tmp_path):
    image, other = tmp_path / "x.png", tmp_path / "y.png"
    image.write_bytes(b"x")
    with cache(tmp_path / "features.sqlite") as kept:
        digest, _ = kept.of_file(image)
    with cache(tmp_path / "features.sqlite") as kept:
        assert kept.unchanged([other, image]) == [None, digest]
        image.write_bytes(b"longer")
        assert kept.unchanged([image]) == [None]
        image.unlink()
        assert kept.unchanged([image]) == [None]


def test_features_that_were_added_are_written_when_the_cache_is_closed(tmp_path):
    path = tmp_path / "features.sqlite"
    with cache(path) as kept:
        kept.add([ITEM], ROW)
    with cache(path) as kept:
        np.testing.assert_array_equal(kept.known([ITEM])[ITEM], ROW[0])


@pytest.mark.parametrize("at", [0, 20, 100, 4096, 4200, 8192, 8292])
def test_a_damaged_cache_is_used_or_refused_in_a_sentence(tmp_path, at):
    path = changed(tmp_path / "features.sqlite")
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 64)
    try:
        with cache(path) as kept:
            kept.unchanged([path])
            kept.of_file(path)
            kept.known([ITEM])
            kept.add([ITEM], ROW)
            kept.write()
    except InputError as error:
        assert "remove that file" in str(error)  # noqa: PT017  either way is right


def test_a_name_that_is_not_utf8_is_refused_in_a_sentence(tmp_path):
    """Of a column, as one changed byte makes it."""
    path = changed(tmp_path / "features.sqlite")
    path.write_bytes(path.read_bytes().replace(b"vector", b"vect\xffr"))
    with pytest.raises(InputError, match="remove that file"), cache(path) as kept:
        kept.known([ITEM])


@pytest.mark.parametrize("open_it", [cache, Store, lambda path: Store(path, reading=True)])
@pytest.mark.parametrize(
    "statement",
    [f"CREATE VIEW features AS {ENDLESS}", f"CREATE VIEW cells AS {ENDLESS}",
     "CREATE TRIGGER t AFTER INSERT ON other BEGIN DELETE FROM other; END",
     "CREATE VIRTUAL TABLE files USING fts5(x)"],
)  # fmt: skip
def test_a_database_that_computes_is_refused(tmp_path, open_it, statement):
    path = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE other (x)")
        database.execute(statement)
    with pytest.raises(InputError, match=r"x\.sqlite"):
        open_it(path)


def test_a_journal_cannot_have_another_file_deleted(tmp_path):
    path, victim = changed(tmp_path / "features.sqlite"), tmp_path / "mine.txt"
    victim.write_text("mine")
    name = os.fsencode(victim)
    end = len(name).to_bytes(4, "big") + (sum(name) % (1 << 32)).to_bytes(4, "big")
    start = databases._NAMES_ANOTHER + bytes(4) + bytes(8) + (512).to_bytes(4, "big") + (4096).to_bytes(4, "big")
    journal = start.ljust(512, b"\0") + bytes(4) + name + end + databases._NAMES_ANOTHER
    path.with_name("features.sqlite-journal").write_bytes(journal)
    with pytest.raises(InputError, match="names another file"):
        cache(path)
    assert victim.read_text() == "mine"


def test_a_journal_that_is_a_link_to_nothing_is_refused(tmp_path):
    path = changed(tmp_path / "features.sqlite")
    os.symlink(tmp_path / "nothing", path.with_name("features.sqlite-journal"))
    with pytest.raises(InputError, match="a link to a file that does not exist"):
        cache(path)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_only_regular_files_are_databases(tmp_path, make):
    make(tmp_path / "features.sqlite")
    for open_it in (cache, Store):
        with pytest.raises(InputError, match=r"features\.sqlite"):
            open_it(tmp_path / "features.sqlite")


def test_the_content_of_a_small_file_comes_with_its_digest(tmp_path):
    small, large = tmp_path / "small.png", tmp_path / "large.png"
    small.write_bytes(b"x")
    large.write_bytes(b"x" * ((1 << 20) + 1))
    with cache(tmp_path / "features.sqlite") as kept:
        assert kept.of_file(small) == (hashlib.sha256(b"x").digest(), b"x")
        assert kept.of_file(large) == (hashlib.sha256(large.read_bytes()).digest(), None)
