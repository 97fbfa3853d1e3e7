"""Run a command under a fault, and list everything that does not hold afterwards."""

from __future__ import annotations

import contextlib
import csv
import fnmatch
import functools
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from table import COMMANDS, FAULTS, LATE, Command, Fault

import sinkshot

SOURCES = str(Path(sinkshot.__file__).parents[1])
LIMIT = 300  # seconds
_NEVER = ("Traceback", "bug in SinkShot", "Exception ignored", "Fatal Python error")
_STUDY = """
title = "Toys"

[defaults]
data_set = "toy"
backbone = "net"
way = 4
query = 5
episodes = 1_500

[[sheets]]
label = "toys"
columns = [{ label = "1-shot", shot = 1 }]
rows = [{ label = "NCM", method = "ncm" }, { label = "k-means", method = "kmeans", preprocess = "PE" }]
"""


@dataclass(frozen=True)
class Run:
    """How a process ended."""

    code: int
    output: str
    errors: str
    seconds: float


def make_inputs(folder: Path) -> None:
    """Write what commands without torch read: a bank, items to label, a study and an earlier report."""
    rng = np.random.default_rng(0)
    centres = rng.gamma(1.0, 1.0, size=(8, 24))
    features = np.abs(np.repeat(centres, 40, axis=0) + 0.2 * rng.normal(size=(320, 24))).astype(np.float32)
    bank = sinkshot.FeatureBank.from_arrays(features, np.repeat(np.arange(8), 40))
    (folder / "banks").mkdir(parents=True)
    bank.save(folder / "banks" / "toy_net_novel.safetensors")
    np.savez(folder / "bank.npz", features=features, labels=np.repeat(np.arange(8), 40))
    rows = [",".join([str(i), "ab"[i // 40] if i % 40 < 3 else "", *map(str, features[i])]) for i in range(80)]
    header = ",".join(["id", "label", *(f"x{i}" for i in range(24))])
    (folder / "items.csv").write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    (folder / "toys.toml").write_text(_STUDY, encoding="utf-8")
    earlier = ("reproduce", "--study", "toys.toml", "--banks", "banks", "--out", "earlier", "--workers", "1")
    run = run_command(earlier, folder, FAULTS["no-stdin"])
    assert run.code == 0, run.errors


def make_images(folder: Path) -> None:
    """Write what commands with torch read: images, a recipe and weights."""
    import torch
    from image_files import folder as image_folder
    from pattern_images import recipe_file

    from sinkshot.backbones import checkpoints
    from sinkshot.backbones.networks import build

    image_folder(folder / "images", ("ant", "bee", "cat"), each=8, size=16)
    recipe_file(folder)
    torch.manual_seed(0)
    checkpoints.save(build("conv4", channels=6), folder / "net.safetensors", (0.5,) * 3, (0.25,) * 3, {"recipe": "toy"})


def run_command(words: tuple[str, ...], home: Path, fault: Fault, after: float = 0.0) -> Run:
    """Run a command in a folder under a fault; a signal is sent `after` that many seconds."""
    command = [sys.executable, "-m", "sinkshot", *words]
    if fault.redirect:
        command = ["sh", "-c", f'"$@" {fault.redirect}', "sh", *command]
        if fault.redirect.startswith("|"):
            command[:3] = ["bash", "-c", f'"$@" {fault.redirect}; exit ${{PIPESTATUS[0]}}']
    if fault.read_only:
        command = _without_writing(command, home)
    known = {**os.environ, "PYTHONPATH": SOURCES, "SINKSHOT_BANKS": ""}
    environment = {key: value for key, value in (known | fault.environment).items() if value is not None}
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=functools.partial(_limit, fault.limits),
    )
    try:
        if fault.send:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(after)
            process.send_signal(getattr(signal, fault.send))
        output, errors = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        errors += f"\nit did not end within {LIMIT} s".encode()
    text = [part.decode("utf-8", "replace") for part in (output, errors)]
    return Run(process.returncode, *text, time.monotonic() - began)


def _limit(limits: dict[str, int]) -> None:
    import resource

    for name, value in limits.items():
        resource.setrlimit(getattr(resource, name), (value, value))


def _without_writing(command: list[str], home: Path) -> list[str]:
    """Make a folder read-only for a command; permissions do not stop root, so for root it is a read-only mount."""
    if os.geteuid() != 0:
        return ["sh", "-c", 'chmod -R a-w "$0"; "$@"; code=$?; chmod -R u+w "$0"; exit $code', str(home), *command]
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && cd "$0" && exec "$@"'
    return ["unshare", "-m", "sh", "-c", script, str(home), *command]


def cannot_be_tried(fault: Fault) -> str:
    """Say why a fault cannot be produced on this machine; empty if it can."""
    if os.name == "nt":
        return "signals, limits and shells of POSIX are needed"
    if "/dev/full" in fault.redirect and not Path("/dev/full").exists():
        return "there is no /dev/full"
    if fault.read_only and os.geteuid() == 0:
        tried = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
        if tried.returncode:
            return "root may write everywhere, and may not mount a read-only folder here"
    return ""


@dataclass
class Calm:
    """What a command produces without faults."""

    run: Run
    products: dict[str, object]
    files: set[str]


class Harness:
    """Runs commands in fresh copies of a folder of inputs."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.calm: dict[str, Calm] = {}

    def inputs(self, name: str) -> Path:
        """Return a folder with a command's inputs, made on first use."""
        torch = COMMANDS[name].torch
        folder = self.scratch / ("images" if torch else "banks")
        if not folder.exists():
            make_images(folder) if torch else make_inputs(folder)
        return folder

    def undisturbed(self, name: str) -> Calm:
        """Run a command once, without faults."""
        if name not in self.calm:
            command = COMMANDS[name]
            home = self._home(name, "calm", "home")
            run = run_command(command.words, home, FAULTS["no-stdin"])
            assert run.code == 0, run.errors
            self.calm[name] = Calm(run, products(command, home, run), files(home))
        return self.calm[name]

    def warm_seconds(self, name: str) -> float:
        """Return how long a command takes when its kernels are already compiled."""
        self.undisturbed(name)
        return run_command(COMMANDS[name].words, self._home(name, "warm", "home"), FAULTS["no-stdin"]).seconds

    def wrong(self, name: str, fault_name: str) -> tuple[Run, list[str]]:
        """Run a command under a fault and again without; return how it ended and everything that does not hold."""
        command, fault, calm = COMMANDS[name], FAULTS[fault_name], self.undisturbed(name)
        home = self._home(name, fault_name, fault.folder)
        run = run_command(command.words, home, fault, LATE * self.warm_seconds(name) if fault.send else 0.0)
        said = _wrong_words(run, fault)
        found = files(home) - files(self.inputs(name)) - set(command.makes)
        swept = [".sinkshot-*.tmp", "*/.sinkshot-*.tmp"] if fault.send == "SIGKILL" else []
        kept = [*command.keeps, *swept]
        said += [f"left {file}" for file in found if not any(fnmatch.fnmatch(file, one) for one in kept)]
        again = run_command(command.words, home, FAULTS["no-stdin"])
        if again.code:
            return run, [*said, f"the same command afterwards: exit {again.code}, {again.errors}"]
        for what, value in products(command, home, again).items():
            if value != calm.products[what]:
                said.append(f"{what} is not the same afterwards")
        if extra := files(home) - calm.files:
            said.append(f"left after the second run: {', '.join(sorted(extra))}")
        shutil.rmtree(home.parent)
        return run, said

    def _home(self, name: str, fault: str, folder: str) -> Path:
        home = self.scratch / f"{name} {fault}" / folder
        shutil.rmtree(home.parent, ignore_errors=True)
        shutil.copytree(self.inputs(name), home)
        return home


def _wrong_words(run: Run, fault: Fault) -> list[str]:
    """Say what is wrong with an exit code and its message."""
    said = [] if run.code in fault.codes else [f"exit {run.code}: {run.errors.strip()[-500:]}"]
    said += [f"{word!r} on standard error: {run.errors.strip()[-1500:]}" for word in _NEVER if word in run.errors]
    ending = [line for line in run.errors.splitlines() if re.match("error: |failed: |interrupted|stopped", line)]
    silent = run.code <= 0 or fault.unheard or fault.redirect.startswith("|")
    if not silent and len(ending) != 1:
        said.append(f"{len(ending)} sentences on standard error: {run.errors.strip()[-500:]}")
    return said


def files(home: Path) -> set[str]:
    """Return all files in a folder, by relative path."""
    return {file.relative_to(home).as_posix() for file in home.rglob("*") if file.is_file()}


def products(command: Command, home: Path, run: Run) -> dict[str, object]:
    """Return a command's files and output, without times and paths."""
    made: dict[str, object] = {file: _timeless(home / file) for file in command.makes}
    if command.prints:
        answer = run.output.replace(str(home), "HOME")
        made["what it prints"] = _without_times(json.loads(answer)) if answer.startswith("{") else answer
    return made


def _timeless(file: Path) -> object:
    content = file.read_bytes()
    if file.suffix == ".html":
        text = content.decode().replace(str(file.parents[1]), "HOME").replace(file.parents[1].name, "HOME")
        return re.sub(r"<time.*?</time>|in [\d.,]+ seconds|data-label=\"seconds\">[^<]*<", "", text, flags=re.DOTALL)
    if file.suffix == ".csv":
        rows = csv.DictReader(io.StringIO(content.decode()))
        return [{key: value for key, value in row.items() if key not in ("seconds", "finished")} for row in rows]
    return content


def _without_times(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_times(part) for key, part in value.items() if key not in ("seconds", "finished")}
    return [_without_times(part) for part in value] if isinstance(value, list) else value
