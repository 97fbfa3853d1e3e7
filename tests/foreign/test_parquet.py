"""Parquet files: read in another process, and refused if decoding needs more than the file justifies."""

import numpy as np
import pytest

from sinkshot.errors import InputError
from sinkshot.foreign.parquet import columns
from sinkshot.label import inputs

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def written(path, table, **options):
    parquet.write_table(pyarrow.table(table), path, **options)
    return path


def test_columns_of_numbers_texts_and_lists_are_read_and_others_passed_over(tmp_path):
    table = {
        "x": [1.5, None, 3.0],
        "text": ["a", None, "c"],
        "vector": [[1, 2], [3, 4], [5, 6]],
        "deep": [{"a": 1}] * 3,
        "fixed": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(np.arange(6.0)), 2),
    }
    found = columns(written(tmp_path / "x.parquet", table))
    assert set(found) == {"x", "text", "vector", "fixed"}
    assert found["x"][0] == 1.5
    assert np.isnan(found["x"][1])
    assert found["text"].tolist() == ["a", None, "c"]
    assert found["vector"] == table["vector"]
    assert np.stack(found["fixed"]).tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_table_of_more_rows_than_its_file_justifies_is_refused(tmp_path):
    file = written(tmp_path / "x.parquet", {"x": np.zeros(40_000_000, np.int8)})
    with pytest.raises(InputError, match=r"the table would take 320\.0 MB of memory.*--max-memory"):
        inputs.read(file)


@pytest.mark.slow
def test_a_dictionary_that_repeats_a_long_text_is_ended_or_refused(tmp_path):
    column = pyarrow.DictionaryArray.from_arrays(np.zeros(4_000, np.int32), ["x" * 1_000_000])
    file = written(tmp_path / "x.parquet", {"text": column}, store_schema=False)
    assert file.stat().st_size < 2_000_000
    with pytest.raises(InputError, match=r"x\.parquet.*of memory.*--max-memory"):
        inputs.read(file, text="text")


@pytest.mark.parametrize("size", [3, 40, 200])
def test_a_truncated_file_is_refused_in_a_sentence(tmp_path, size):
    file = written(tmp_path / "x.parquet", {"x": [1.0, 2.0]})
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(InputError, match=r"x\.parquet.*truncated, damaged or not a Parquet file"):
        inputs.read(file)


def test_rows_count_beside_bytes(tmp_path):
    path = written(tmp_path / "x.parquet", {"x": np.zeros(1_500_000, np.uint8)})
    with pytest.raises(InputError, match=r"a table of 1,500,000 rows would take 300\.0 MB"):
        columns(path)
