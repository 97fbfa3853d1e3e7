"""Two processes compute what one does, batch norm included."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
import torch.nn.functional as F
from pattern_images import patterns, recipe_file
from safetensors.torch import load_file

from sinkshot.backbones import recipes
from sinkshot.backbones.datasets import load
from sinkshot.backbones.train import train

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("lightning_fabric") is None, reason="needs lightning-fabric"),  # slow to import
]

PROGRAM = """
import sys, torch
import torch.distributed as dist
from sinkshot.backbones.batchnorm import share_batch_norm

rank, port = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{port}", rank=rank, world_size=2)
both = torch.load(sys.argv[3], weights_only=True)
norm = torch.nn.Sequential(torch.nn.BatchNorm2d(4))
share_batch_norm(norm)
x = both["x"].chunk(2)[rank].clone().requires_grad_()
y = norm(x)
(y * both["weights"].chunk(2)[rank]).sum().backward()
for parameter in norm.parameters():
    dist.all_reduce(parameter.grad)
torch.save({"y": y.detach(), "x": x.grad, **{k: v for k, v in norm.state_dict().items()},
            **{f"{k}.grad": v.grad for k, v in norm.named_parameters()}}, f"{sys.argv[3]}.{rank}")
dist.destroy_process_group()
"""


def alone(*words, **environment):
    return subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "1", **environment}, stderr=subprocess.PIPE)


def test_shared_batch_norm_is_batch_norm_of_all_images_and_so_is_its_gradient(tmp_path):
    torch.manual_seed(0)
    both = {"x": 3 + 2 * torch.randn(8, 4, 5, 5), "weights": torch.randn(8, 4, 5, 5)}
    file = tmp_path / "both.pt"
    torch.save(both, file)
    processes = [alone(sys.executable, "-c", PROGRAM, str(r), str(tmp_path / "meet"), str(file)) for r in (0, 1)]
    for process in processes:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said.decode()
    norm = torch.nn.Sequential(torch.nn.BatchNorm2d(4))
    x = both["x"].clone().requires_grad_()
    y = norm(x)
    (y * both["weights"]).sum().backward()
    parts = [torch.load(f"{file}.{rank}", weights_only=True) for rank in (0, 1)]
    assert torch.allclose(torch.cat([part["y"] for part in parts]), y, atol=1e-5)
    assert torch.allclose(torch.cat([part["x"] for part in parts]), x.grad, atol=1e-5)
    for key, value in norm.state_dict().items():
        assert torch.allclose(parts[0][key].double(), value.double(), atol=1e-5), key
    for key, value in norm.named_parameters():
        assert torch.allclose(parts[1][f"{key}.grad"], value.grad, rtol=1e-4, atol=1e-4), key


def test_two_processes_train_as_one_within_rounding(tmp_path):
    base, other = patterns(tmp_path / "base", 8, 16, 0), patterns(tmp_path / "other", 4, 12, 1)
    file = recipe_file(
        tmp_path, "size = 20\n[stage.train]\nepochs = 5\nrate = 0.005\n"
    )  # so small that rounding stays so
    words = ["--recipe", str(file), "--out", str(tmp_path / "two"), "--device", "cpu", "--devices", "2"]
    process = alone(sys.executable, "-m", "sinkshot", "train", str(base), "--validation", str(other), *words)
    train(load(base), recipes.read(file), tmp_path / "one", validation=load(other), device="cpu")
    _, said = process.communicate(timeout=180)
    assert process.returncode == 0, said.decode()
    one, two = (load_file(tmp_path / name / "last.safetensors") for name in ("one", "two"))
    for key, value in one.items():
        assert torch.allclose(two[key].double(), value.double(), rtol=1e-3, atol=1e-4), key
    alike = F.cosine_similarity(*(torch.cat([v.flatten().double() for v in w.values()]) for w in (one, two)), dim=0)
    assert alike > 1 - 1e-9
    rows = [list(csv.DictReader((tmp_path / name / "metrics.csv").open())) for name in ("one", "two")]
    for ours, theirs in zip(*rows, strict=True):
        assert float(ours["loss"]) == pytest.approx(float(theirs["loss"]), rel=1e-3)
        assert ours["accuracy"] == theirs["accuracy"]
