"""A Dask cluster, with a real scheduler and workers on loopback, gives the numbers of one process."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from optional_packages import need
from toy_studies import cell, measured, numbers, save

import sinkshot
from sinkshot import METHODS, workers
from sinkshot.errors import InputError
from sinkshot.methods import plugins

need("distributed")

pytestmark = pytest.mark.slow

CELLS = tuple(cell("bms", shot=2, hyper={"epochs": 10, "lam": float(lam)}, episodes=2000) for lam in range(5, 8))
CELLS += (cell(episodes=1500, protocol="open-set"),)


class Cluster:
    """A scheduler and the workers that are started for it, each a process of its own."""

    def __init__(self, folder):
        self.folder, self.processes = folder, []
        self.log = folder / "scheduler.log"
        self.scheduler = self.start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", log=self.log)
        self.address = self.wait_for(self.log, r"Scheduler at:\s+(tcp://\S+)")

    def start(self, *words, log, **environment):
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", *words],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, **environment},
            )
        self.processes.append(process)
        return process

    def worker(self, **environment):
        log = self.folder / f"worker-{len(self.processes)}.log"
        words = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1", "--death-timeout", "30")
        process = self.start("worker", self.address, *words, log=log, **environment)
        self.wait_for(log, "(Registered to)")
        return process

    def wait_for(self, log, pattern):
        for _ in range(1200):
            if found := re.search(pattern, log.read_text()):
                return found[1]
            time.sleep(0.05)
        raise AssertionError(log.read_text())

    def stop(self, *processes):
        for process in processes or self.processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A cluster shared by tests that do not harm it."""
    running = Cluster(tmp_path_factory.mktemp("cluster"))
    running.worker()
    yield running
    running.stop()


@pytest.fixture
def own(tmp_path):
    """A cluster to be harmed."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    running = Cluster(folder)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def local(tmp_path_factory, blobs):
    """The numbers of one process."""
    folder = tmp_path_factory.mktemp("local")
    return numbers(measured(folder / "local.sqlite", save(blobs, folder), *CELLS, workers=1))


@pytest.mark.long
def test_a_worker_killed_in_the_middle_is_survived_bit_for_bit(tmp_path, own, catalogue, local):
    first, second = own.worker(), own.worker()
    states = []

    def kill_one(state):
        states.append(state)
        if state.episodes_left < 7500 and first.poll() is None:
            first.kill()

    outcome = measured(tmp_path / "store.sqlite", catalogue, *CELLS, scheduler=own.address, progress=kill_one)
    assert states[-1].episodes_left == 0
    assert first.wait(10) != 0
    assert second.poll() is None
    assert numbers(outcome) == local


def test_workers_that_cannot_open_a_bank_receive_it_late_ones_too(tmp_path, own, catalogue, local):
    first = own.worker()

    def remove_the_file_then_exchange_the_worker(state):
        (tmp_path / "toy_net_novel.safetensors").unlink(missing_ok=True)
        if state.episodes_left < 7500 and first.poll() is None:
            own.stop(first)  # and with it the only copy of the bank
            own.worker()

    outcome = measured(
        tmp_path / "store.sqlite",
        catalogue,
        *CELLS,
        scheduler=own.address,
        progress=remove_the_file_then_exchange_the_worker,
    )
    assert numbers(outcome) == local


def test_a_scheduler_that_dies_is_said_and_what_is_finished_is_kept(tmp_path, own, catalogue, local):
    own.worker()

    def kill_it(state):
        if state.episodes_left < 7500 and own.scheduler.poll() is None:
            own.stop(own.scheduler)

    place = tmp_path / "store.sqlite"
    with pytest.raises(InputError, match="Finished cells are kept"):
        measured(place, catalogue, *CELLS, scheduler=own.address, progress=kill_it)
    states = []
    assert numbers(measured(place, catalogue, *CELLS, workers=1, progress=states.append)) == local
    assert states[0].episodes_left < 7500


def test_what_cannot_be_measured_is_said_as_in_a_local_run(tmp_path, shared, catalogue):
    cells = (cell(preprocess="PEPsMnP", episodes=50), cell(episodes=50, shot=39), cell(episodes=50))
    there, here = (
        measured(tmp_path / f"{number}.sqlite", catalogue, *cells, **where)
        for number, where in enumerate(({"scheduler": shared.address}, {"workers": 1}))
    )
    assert there.missing == here.missing != []
    assert numbers(there) == numbers(here)


def test_other_code_on_a_worker_is_refused(tmp_path, own, catalogue):
    home = Path(sinkshot.__file__).parent
    package = shutil.copytree(home, tmp_path / "other" / "sinkshot", ignore=shutil.ignore_patterns("__pycache__"))
    engine = package / "engines" / "__init__.py"
    engine.write_text(engine.read_text() + "\n# another line\n")
    own.worker(PYTHONPATH=str(package.parent))
    with pytest.raises(InputError, match=r"the worker tcp\S+ runs sinkshot .* install the same"):
        measured(tmp_path / "store.sqlite", catalogue, cell(episodes=50), scheduler=own.address)


def without(name, folder):
    """A folder that, on PYTHONPATH, hides a package."""
    folder.mkdir()
    lines = [
        "import importlib.abc, sys",
        "class Hidden(importlib.abc.MetaPathFinder):",
        "    def find_spec(self, name, path=None, target=None):",
        f"        if name.split('.')[0] == {name!r}:",
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)",
        "sys.meta_path.insert(0, Hidden())",
    ]
    (folder / "sitecustomize.py").write_text("\n".join(lines))
    return str(folder)


def test_a_worker_without_sinkshot_gets_a_sentence(tmp_path, own, catalogue):
    own.worker(PYTHONPATH=without("sinkshot", tmp_path / "bare"))
    with pytest.raises(
        InputError, match=r"the worker tcp\S+ cannot compute .*No module named 'sinkshot'.* install the same"
    ):
        measured(tmp_path / "store.sqlite", catalogue, cell(episodes=50), scheduler=own.address)


def test_without_the_extra_the_command_says_what_to_install(tmp_path, catalogue):
    words = [sys.executable, "-m", "sinkshot", "reproduce", "--study", "table-5", "--scheduler", "tcp://127.0.0.1:1"]
    bare = {**os.environ, "PYTHONPATH": without("distributed", tmp_path / "bare")}
    if "PYTHONPATH" in os.environ:
        bare["PYTHONPATH"] += os.pathsep + os.environ["PYTHONPATH"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=bare, check=False, timeout=120)
    assert done.returncode == 2
    assert "pip install 'sinkshot[dask]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense", "foo://127.0.0.1:1", "127.0.0.1", ""])
def test_a_scheduler_that_is_not_there_gets_a_sentence(tmp_path, catalogue, address, monkeypatch):
    monkeypatch.setattr(workers, "_PATIENCE", 1.0)
    with pytest.raises(InputError, match="no Dask scheduler answers at"):
        measured(tmp_path / "store.sqlite", catalogue, cell(episodes=50), scheduler=address)


def test_a_port_where_something_else_listens_gets_a_sentence(tmp_path, catalogue, monkeypatch):
    monkeypatch.setattr(workers, "_PATIENCE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(InputError, match="no Dask scheduler answers at"):
            measured(tmp_path / "store.sqlite", catalogue, cell(episodes=50), scheduler=address)


def test_a_scheduler_without_workers_gets_a_sentence(tmp_path, own, catalogue, monkeypatch):
    monkeypatch.setattr(workers, "_PATIENCE", 2.0)
    with pytest.raises(InputError, match="has no workers"):
        measured(tmp_path / "store.sqlite", catalogue, cell(episodes=50), scheduler=own.address)


def test_what_is_stored_needs_no_cluster(tmp_path, catalogue):
    measured(tmp_path / "store.sqlite", catalogue, cell(episodes=50))
    again = measured(tmp_path / "store.sqlite", catalogue, cell(episodes=50), scheduler="nowhere")
    assert len(again.results) == 1


def test_a_plugin_goes_to_workers_that_do_not_have_its_file(tmp_path, shared, catalogue):
    file = tmp_path / "own.py"
    file.write_text(
        "from sinkshot import METHODS, register\n"
        "register('own', transductive=False, preprocess='PE', reference='a test')"
        "(lambda task, *, score='distance': METHODS['ncm'].function(task, score=score))\n"
    )
    plugins.load_file(file)
    try:
        file.unlink()
        outcome = measured(tmp_path / "s.sqlite", catalogue, cell("own", episodes=50), scheduler=shared.address)
        assert [stored.method for stored in outcome.results.values()] == ["own"]
    finally:
        del METHODS["own"]
