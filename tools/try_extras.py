"""Install each extra from the built wheel into a fresh environment, and try what it is for.

    python tools/try_extras.py                 # all of them
    python tools/try_extras.py core torch      # some

Packages are held to constraints.txt. Every extra of pyproject.toml needs a trial here: a script that runs in an empty
folder, in an environment that has the extra and nothing else, and fails if the extra does not do its job.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BANK = "cifar-fs_wrn-28-10_novel"

CORE = f"""
import json, subprocess, sys, sinkshot
bank = sinkshot.load("{BANK}")
assert sinkshot.evaluate(bank, sinkshot.Recipe(episodes=30), method="bms").accuracy > 0.8
assert sinkshot.BMSClassifier().fit(bank.features[:600:100], bank.labels[:600:100]).classes_.size
assert "torch" not in sys.modules
words = [sys.executable, "-m", "sinkshot", "eval", "{BANK}", "--method", "ncm", "--episodes", "600", "--json"]
assert json.loads(subprocess.run(words, check=True, capture_output=True).stdout)["accuracy"] > 0.7
"""
IMAGES = """
import pathlib, subprocess, sys
import numpy as np
from PIL import Image
for name in ("cat", "dog"):
    for index in range(4):
        file = pathlib.Path("photos", name, f"{index}.png")
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(index).integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file)

def extract(*words):
    command = [sys.executable, "-m", "sinkshot", "extract", "photos", "--out", "photos.safetensors", "--device", "cpu"]
    subprocess.run([*command, *words], check=True)
    import sinkshot
    bank = sinkshot.load("photos.safetensors")
    assert len(bank.labels) == 8 and bank.class_names == ("cat", "dog"), bank
"""
TORCH = """
from sinkshot.backbones import checkpoints, networks
checkpoints.save(networks.build("conv4"), "weights.safetensors", mean=(0.5,) * 3, std=(0.25,) * 3)
extract("--weights", "weights.safetensors", "--size", "32")
"""
TIMM = """
import timm, torch
torch.save(timm.create_model("resnet10t", pretrained=False).state_dict(), "weights.pt")
extract("--weights", "weights.pt", "--backbone", "timm:resnet10t", "--size", "64")
"""
ONNX = """
import onnx
from onnx import TensorProto, helper
pool = helper.make_node("GlobalAveragePool", ["images"], ["maps"])
inputs = [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, 32, 32])]
outputs = [helper.make_tensor_value_info("maps", TensorProto.FLOAT, ["n", 3, 1, 1])]
graph = helper.make_graph([pool], "mean", inputs, outputs)
opset = [helper.make_opsetid("", 17)]
onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), "mean.onnx")
extract("--weights", "mean.onnx")
"""
GPU = f"""
import sinkshot, torch, triton
bank, recipe = sinkshot.load("{BANK}"), sinkshot.Recipe(episodes=30)
if torch.cuda.is_available():
    result = sinkshot.evaluate(bank, recipe, method="bms", device="cuda", engine="triton")
else:  # without a card it must say so, and torch must do the work on the CPU
    try:
        sinkshot.evaluate(bank, recipe, method="bms", device="cuda", engine="triton")
        raise SystemExit("an evaluation ran on a card that is not there")
    except sinkshot.InputError as error:
        print(error)
    result = sinkshot.evaluate(bank, recipe, method="bms", device="cpu", engine="torch")
assert result.accuracy > 0.8, result
"""
JAX = """
import jax.numpy as jnp
from sinkshot import METHODS, Task
support = jnp.asarray([[[1.0, 0.0], [0.0, 1.0]]])
answers = METHODS["ncm"](Task(support, jnp.asarray([[0, 1]]), support, way=2)).probabilities
assert type(answers).__module__.startswith("jax"), type(answers)
assert answers.argmax(axis=-1).tolist() == [[0, 1]], answers
"""
STUDY = """
import pathlib, subprocess, sys
pathlib.Path("study.toml").write_text('''
title = "A trial"
[defaults]
data_set = "cifar-fs"
backbone = "wrn-28-10"
episodes = 20
[[sheets]]
label = "CIFAR-FS"
columns = [{ label = "1-shot", shot = 1 }]
rows = [{ label = "NCM", method = "ncm" }]
''')
def reproduce(*words):
    subprocess.run([sys.executable, "-m", "sinkshot", "reproduce", "--study", "study.toml", *words], check=True)
"""
DASK = """
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        reproduce("--scheduler", cluster.scheduler_address)
    assert pathlib.Path("sinkshot-report/index.html").is_file()
"""
FAISS = """
import numpy as np
from sinkshot import FewShotClassifier
from sinkshot.kernels import sinkshot_large
sinkshot_large.EXACT = 4_000
truth = np.arange(5_000) % 4
x = np.random.default_rng(0).gamma(1 + 2.0 * (truth[:, None] == np.arange(32) % 4))
model = FewShotClassifier().fit(x, np.where(np.arange(5_000) < 20, truth, -1))
assert sinkshot_large.has_faiss() and np.mean(model.transduction_ == truth) > 0.95
"""
PARQUET = """
reproduce()
import pyarrow.parquet
assert pyarrow.parquet.read_table("sinkshot-report/cells.parquet").num_rows == 1
"""
LABEL = """
import csv, pathlib, subprocess, sys

def label(*words):
    subprocess.run([sys.executable, "-m", "sinkshot", "label", *words], check=True)
    with open("labels/labels.csv", newline="") as file:
        return list(csv.DictReader(file))
"""
LABEL_IMAGES = """
pathlib.Path("photos/_unlabeled").mkdir()
for name in ("cat", "dog"):
    pathlib.Path("photos", name, "3.png").rename(f"photos/_unlabeled/{name}.png")
assert len(label("photos")) == 8
"""
LABEL_TEXTS = """
texts = {"the cat sleeps": "cat", "a cat purrs": "cat", "the dog barks": "dog", "a dog bites": "dog", "my cat eats": ""}
with open("texts.csv", "w", newline="") as file:
    csv.writer(file).writerows([("text", "label"), *texts.items()])
assert len(label("texts.csv", "--text", "text")) == 5
"""
REVIEW = """
import subprocess, sys, urllib.request
with open("items.csv", "w") as file:
    rows = [f"{i},{'ab'[i % 2] if i < 6 else ''},{i % 2},{i / 40}" for i in range(40)]
    file.write("\\n".join(["id,label,x,y", *rows, ""]))
words = [sys.executable, "-m", "sinkshot", "label", "items.csv", "--review", "--no-open"]
with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
    try:
        address = server.stdout.readline().strip()
        assert "<html" in urllib.request.urlopen(address, timeout=60).read().decode().lower(), address
    finally:
        server.terminate()
"""
TESTS = f"""
import subprocess, sys
words = ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "tests/test_bank.py", "tests/test_preprocess.py"]
subprocess.run([sys.executable, *words], check=True, cwd={str(ROOT)!r})
"""
DOCS = f"""
import subprocess, sys
options = ["-q", "-b", "html", "-D", "plot_gallery=0"]
subprocess.run([sys.executable, "-m", "sphinx", *options, {str(ROOT / "docs")!r}, "site"], check=True)
"""
TRIALS = {
    "core": CORE,
    "torch": IMAGES + TORCH,
    "timm": IMAGES + TIMM,
    "onnx": IMAGES + ONNX,
    "gpu": GPU,
    "app": REVIEW,
    "jax": JAX,
    "dask": STUDY + DASK,
    "faiss": FAISS,
    "parquet": STUDY + PARQUET,
    "images": IMAGES + LABEL + LABEL_IMAGES,
    "text": LABEL + LABEL_TEXTS,
    "test": TESTS,
    "dev": TESTS,
    "docs": DOCS,
}


def extras() -> list[str]:
    """Return the extras of pyproject.toml, after the core without any."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return ["core", *project["optional-dependencies"]]


def build(folder: Path) -> Path:
    """Build the wheel, in an environment of its own."""
    run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT], ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def attempt(extra: str, wheel: Path) -> str:
    """Install one extra into a fresh environment and run its trial; return what went wrong, or nothing."""
    with tempfile.TemporaryDirectory(prefix=f"sinkshot-{extra}-") as name:
        place = Path(name)
        venv.create(place / "venv")  # the pip at hand installs into it
        python = place / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        wanted = f"{wheel}" if extra == "core" else f"{wheel}[{extra}]"
        script, work = place / "trial.py", place / "work"
        script.write_text(TRIALS[extra], encoding="utf-8")
        work.mkdir()
        try:
            pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "--quiet"]
            run([*pip, "--no-compile", "--constraint", ROOT / "constraints.txt", wanted], work)
            run([python, script], work)
        except subprocess.CalledProcessError as error:
            return f"{' '.join(map(str, error.cmd))[-120:]} exited with {error.returncode}:\n{error.stdout[-1500:]}"
    return ""


def run(words: list[object], folder: Path) -> None:
    """Run a command away from the sources, so that only what is installed is found."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    subprocess.run(list(map(str, words)), check=True, cwd=folder, env=clean, text=True, **both)


def main() -> None:
    """Try all extras or some; exit 1 if one fails."""
    parser = argparse.ArgumentParser(description="Try each extra from the built wheel.")
    parser.add_argument("extras", nargs="*", help="which; all by default")
    names = parser.parse_args().extras or extras()
    if without := [name for name in names if name not in TRIALS]:
        sys.exit(f"no trial of {', '.join(without)}: add one to TRIALS in {Path(__file__).name}.")
    failed = []
    with tempfile.TemporaryDirectory(prefix="sinkshot-wheel-") as folder:
        wheel = build(Path(folder))
        for name in names:
            start = time.monotonic()
            fault = attempt(name, wheel)
            print(f"{name}: {'failed' if fault else 'works'} ({time.monotonic() - start:.0f} s)", flush=True)
            if fault:
                print(fault, flush=True)
                failed.append(name)
    sys.exit(f"failed: {', '.join(failed)}." if failed else 0)


if __name__ == "__main__":
    main()
