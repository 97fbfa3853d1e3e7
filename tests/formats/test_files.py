"""Real-life files: missing, damaged, on a full disk, or written by a process that was killed."""

import contextlib
import os
import random
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sinkshot.bank import FeatureBank, load
from sinkshot.errors import InputError

BANK = FeatureBank.from_arrays([[1.0, 2], [3, 4], [5, 6]], ["a", "b", "a"], base={"PE": [1, 2]})


def write_one(folder, suffix):
    file = folder / f"bank{suffix}"
    if suffix == ".npy":
        np.save(file, BANK.features)
        np.save(folder / "bank_labels.npy", BANK.labels)
    else:
        BANK.save(file)
    return file


def test_a_missing_file_is_said_to_be_missing_and_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        InputError, match=rf"nothing\.npz does not exist \(the working folder is {tmp_path}\).*cifar-fs_wrn-28-10_novel"
    ):
        load("nothing.npz")


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".npy", ".plk", ".pkl", ".pickle"])
def test_an_empty_file_and_a_folder_are_named_as_such(tmp_path, suffix):
    (tmp_path / f"empty{suffix}").touch()
    (tmp_path / f"folder{suffix}").mkdir()
    with pytest.raises(InputError, match=rf"empty{suffix} is empty \(0 bytes\)"):
        load(tmp_path / f"empty{suffix}")
    with pytest.raises(InputError, match=rf"folder{suffix} is a folder; give a file of features"):
        load(tmp_path / f"folder{suffix}")


@pytest.mark.parametrize("path", ["bad\0name.npz", "x" * 5000 + ".npz", "bank.npz/inside.npz", 7, None, b"nothing.npz"])
def test_what_is_no_path_at_all_is_an_input_error_too(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    write_one(tmp_path, ".npz")
    with pytest.raises(InputError):
        load(path)


def test_an_unknown_suffix_gets_the_known_ones(tmp_path):
    (tmp_path / "bank.mat").write_text("x")
    with pytest.raises(InputError, match=r"has the suffix '\.mat'; expected one of \.safetensors, \.npz, \.npy, \.plk"):
        load(tmp_path / "bank.mat")
    with pytest.raises(InputError, match=r"expected one of \.safetensors, \.npz\.$"):
        BANK.save(tmp_path / "bank.plk")


def test_a_pipe_is_refused_rather_than_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(InputError, match="not a regular file"):
        load(tmp_path / "pipe.npz")


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".npy"])
def test_a_file_cut_anywhere_is_an_input_error_that_names_it(tmp_path, suffix):
    file = write_one(tmp_path, suffix)
    whole = file.read_bytes()
    for length in range(1, len(whole), max(1, len(whole) // 40)):
        file.write_bytes(whole[:length])
        with pytest.raises(InputError, match=f"bank{suffix}"):
            load(file)


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".npy"])
def test_a_damaged_file_is_read_or_refused_but_never_crashes(tmp_path, suffix):
    file = write_one(tmp_path, suffix)
    whole, chance = file.read_bytes(), random.Random(0)
    for _ in range(80):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(whole))] = chance.randrange(256)
        file.write_bytes(damaged)
        with contextlib.suppress(InputError):
            load(file)


def test_suffixes_may_be_in_capitals(tmp_path):
    BANK.save(tmp_path / "BANK.NPZ")
    assert load(tmp_path / "BANK.NPZ").content_hash() == BANK.content_hash()


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_a_saved_file_has_the_usual_rights_and_an_older_one_keeps_its_own(tmp_path, suffix):
    file = tmp_path / f"bank{suffix}"
    plain = tmp_path / "plain"
    plain.touch()
    BANK.save(file)
    assert file.stat().st_mode == plain.stat().st_mode
    file.chmod(0o640)
    BANK.save(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_saving_through_a_link_changes_the_file_it_points_to(tmp_path):
    (tmp_path / "link.npz").symlink_to(tmp_path / "real.npz")
    BANK.save(tmp_path / "link.npz")
    assert (tmp_path / "link.npz").is_symlink()
    assert load(tmp_path / "real.npz").content_hash() == BANK.content_hash()


def test_a_save_that_cannot_be_is_an_input_error(tmp_path):
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(InputError, match="there is no folder"):
        BANK.save(tmp_path / "nowhere" / "bank.npz")
    with pytest.raises(InputError, match="a folder or device has that name"):
        BANK.save(tmp_path / "folder.npz")
    with pytest.raises(InputError, match="unknown store 'float8'; did you mean"):
        BANK.save(tmp_path / "bank.npz", "float8")
    assert [file.name for file in tmp_path.iterdir()] == ["folder.npz"]


FULL_DISK = """
import resource, sys
sys.dont_write_bytecode = True  # it would be truncated, and fail in other processes
import numpy as np
from sinkshot.bank import FeatureBank
from sinkshot.errors import InputError
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    FeatureBank.from_arrays(np.ones((1000, 100)), np.zeros(1000, int)).save(sys.argv[1])
except InputError as error:
    print(error)
"""


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_a_failed_write_leaves_the_old_file_and_no_temporary_one(tmp_path, suffix):
    file = write_one(tmp_path, suffix)
    done = subprocess.run([sys.executable, "-c", FULL_DISK, file], capture_output=True, text=True, check=True)
    assert "cannot be written" in done.stdout
    assert "too large" in done.stdout
    assert list(tmp_path.iterdir()) == [file]
    assert load(file).content_hash() == BANK.content_hash()


SAVE_FOR_EVER = """
import sys
import numpy as np
from sinkshot.bank import FeatureBank
versions = [FeatureBank.from_arrays(np.full((2000, 300), value), np.arange(2000) % 5) for value in (1, 2)]
print(*(bank.content_hash() for bank in versions), flush=True)
versions[0].save(sys.argv[1])
print("saving", flush=True)
while True:
    for bank in versions:
        bank.save(sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_a_killed_write_leaves_the_old_file(tmp_path, suffix):
    file, kills, interrupted = tmp_path / f"bank{suffix}", 0, 0
    while kills < 2 or not interrupted:
        assert kills < 30, "no kill fell into a write, so this shows nothing"
        writer = subprocess.Popen([sys.executable, "-c", SAVE_FOR_EVER, file], stdout=subprocess.PIPE, text=True)
        versions = writer.stdout.readline().split()
        assert writer.stdout.readline() == "saving\n"
        while len(list(tmp_path.iterdir())) < 2:  # until a write has begun
            assert writer.poll() is None
        writer.send_signal(signal.SIGKILL)
        assert writer.wait() == -signal.SIGKILL
        writer.stdout.close()
        assert load(file).content_hash() in versions
        unfinished = [path for path in tmp_path.iterdir() if path != file]
        kills, interrupted = kills + 1, interrupted + len(unfinished)
        for path in unfinished:
            path.unlink()


WRITE_AND_WAIT = """
import sys, time
from pathlib import Path
from sinkshot.files import replacing

with replacing(Path(sys.argv[1]) / "bank.npz") as temporary:
    temporary.write_bytes(b"half")
    print(temporary, flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(os.name == "nt", reason="there are no locks of this kind")
def test_a_killed_write_is_swept_by_the_next_one_and_a_living_one_is_not(tmp_path):
    command = [sys.executable, "-c", WRITE_AND_WAIT, str(tmp_path)]
    killed, living = (subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2))
    with killed, living:
        left, kept = (Path(run.stdout.readline().strip()) for run in (killed, living))
        killed.kill()
        killed.wait()
        assert left.exists()
        (tmp_path / ".sinkshot-notes.tmp").touch()  # not of ours
        BANK.save(tmp_path / "other.npz")
        assert not left.exists()
        assert kept.exists()
        living.kill()
    assert {file.name for file in tmp_path.iterdir()} == {"other.npz", ".sinkshot-notes.tmp", kept.name}


@pytest.mark.skipif(os.name == "nt", reason="there are no locks of this kind")
def test_a_temporary_file_of_a_process_in_another_container_is_known_by_its_lock(tmp_path):
    import fcntl

    file = tmp_path / ".sinkshot-999999999-00.tmp"  # no such process here
    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        BANK.save(tmp_path / "bank.npz")
        assert file.exists()
