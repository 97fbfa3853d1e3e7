"""Readers of foreign files: honest seeds are read, mutated ones are read or refused; a minute of atheris on request."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from mutate import fault_of, mutated
from readers import READERS, put, repacked

HERE = Path(__file__).parent
CORPUS = sorted(file for file in (HERE / "corpus").glob("*/*") if file.is_file())
QUICK = [name for name, reader in READERS.items() if reader.share == 100]


class Unwatched:
    """Audit hooks cannot be taken away again, so tests do without; the script has one."""

    folder, seen = None, []


@pytest.mark.parametrize("name", READERS)
def test_honest_files_are_read(tmp_path, name):
    if name in (needs := {"onnx": "onnxruntime", "label-parquet": "pyarrow"}):
        pytest.importorskip(needs[name])
    for number, seed in enumerate(READERS[name].seeds()):
        READERS[name].read(put(READERS[name], tmp_path / str(number), seed))


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.filterwarnings("ignore")
def test_mutated_files_are_read_or_refused_in_a_sentence(tmp_path, name):
    rng, seeds = random.Random(name), READERS[name].seeds()
    for number in range(25):
        data = rng.choice(seeds)
        inner = repacked(data, lambda part: mutated(part, rng)) if number % 2 else None
        _, fault = fault_of(name, inner or mutated(data, rng), tmp_path / str(number), Unwatched())
        assert not fault


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: f"{file.parent.name}/{file.name}")
@pytest.mark.filterwarnings("ignore")
def test_cases_that_were_found_before_stay_mended(tmp_path, file):
    _, fault = fault_of(file.parent.name, file.read_bytes(), tmp_path, Unwatched())
    assert not fault


@pytest.mark.long
def test_a_minute_of_coverage_guided_fuzzing_finds_nothing(tmp_path):
    pytest.importorskip("atheris")
    for name in QUICK:
        command = [sys.executable, str(HERE / "fuzz.py"), name, "-max_total_time=4", f"-artifact_prefix={tmp_path}/"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert ended.returncode == 0, f"{name}: {ended.stderr[-3000:]}"
