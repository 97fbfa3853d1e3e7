"""`sinkshot label` in parts where the disk is really full or a part really damaged: a sentence, and it works again."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from command_line import sinkshot

from sinkshot import InputError, label, load
from sinkshot.formats import parts
from sinkshot.formats.content import BankContent

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
ROWS = 3_000
NEAREST = ("--method", "ncm", "--unknown", 1)  # quick


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3,000 rows in parts of 800, ten of them labelled."""
    whole = load("cifar-fs_wrn-28-10_novel")
    rows = np.random.default_rng(1).permutation(np.flatnonzero(whole.labels < 5))[:ROWS]
    codes = np.full(ROWS, -1)
    for code in range(5):
        codes[np.flatnonzero(whole.labels[rows] == code)[:2]] = code
    path = tmp_path_factory.mktemp("bank") / "bank"
    parts.write(BankContent(whole.features[rows], codes, tuple("abcde"), {}, {}), path, store="float16", part_rows=800)
    return path


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 9 MB."""
    path = tmp_path / "disk"
    path.mkdir()
    if (
        not shutil.which("mount")
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=9m", "tmpfs", str(path)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("a file system can be mounted by root only")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def answers(folder: Path) -> list[str]:
    """The labels of all rows."""
    return list(pandas.read_parquet(folder / "answers")["label"])


@pytest.mark.slow
@pytest.mark.parametrize("step", ["sorting into cells", "finding neighbours", "running sinkshot"])
def test_a_disk_that_fills_up_is_named_and_the_run_works_once_there_is_room(
    bank: Path, disk: Path, tmp_path: Path, step: str
) -> None:
    """Another program takes the last byte in the middle of a run."""
    ballast = disk / "ballast"

    def fill(stage: str) -> None:
        if stage.startswith(step) and not ballast.exists():
            with ballast.open("wb", buffering=0) as file:
                for _ in range(10):  # files of the step before are removed beside the run, which makes room again
                    with suppress(OSError):
                        while file.write(bytes(4_096)):
                            pass
                    time.sleep(0.1)

    with pytest.raises(InputError, match=r"disk/.*No space left on device; a run on a pool in parts keeps its files"):
        label(bank, cache=disk, out=tmp_path / "full", stage=fill, next_count=0)
    assert [path.name for path in disk.iterdir()] == ["ballast"]
    ballast.unlink()
    label(bank, cache=disk, out=tmp_path / "again", next_count=0)
    label(bank, cache=tmp_path / "cache", out=tmp_path / "elsewhere", next_count=0)
    assert answers(tmp_path / "again") == answers(tmp_path / "elsewhere")


def test_answers_that_do_not_fit_are_named(bank: Path, disk: Path, tmp_path: Path) -> None:
    """The part that was being written is named; those before it are whole, and the same command finishes."""
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(9 * 1_048_576 - 60_000))
    ended = sinkshot("label", bank, *NEAREST, "--cache", tmp_path / "cache", "--out", disk / "labels")
    assert ended.returncode == 2, ended.stderr
    assert "cannot be written: No space left on device" in ended.stderr
    assert "part-0000" in ended.stderr
    assert "Traceback" not in ended.stderr
    ballast.unlink()
    ended = sinkshot("label", bank, *NEAREST, "--cache", tmp_path / "cache", "--out", disk / "labels")
    assert ended.returncode == 0, ended.stderr
    assert len(answers(disk / "labels")) == ROWS


def test_the_command_names_a_damaged_part(bank: Path, tmp_path: Path) -> None:
    """One changed byte, one cut end, one missing file; after it is made again, the command labels."""
    damaged = tmp_path / "bank"
    shutil.copytree(bank, damaged)
    part = damaged / "part-00002.safetensors"
    whole = part.read_bytes()
    for content in (whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:], whole[:-100], None):
        part.unlink() if content is None else part.write_bytes(content)
        ended = sinkshot("label", damaged, *NEAREST, "--out", tmp_path / "labels")
        assert ended.returncode == 2, ended.stderr
        assert "part-00002.safetensors" in ended.stderr
        assert "Traceback" not in ended.stderr
    part.write_bytes(whole)
    ended = sinkshot("label", damaged, *NEAREST, "--out", tmp_path / "labels")
    assert ended.returncode == 0, ended.stderr
