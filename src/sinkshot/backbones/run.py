"""A training run: its learner, its position in the recipe, and the training loop."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sinkshot.backbones import checkpoints, networks, state
from sinkshot.backbones.batchnorm import share_batch_norm
from sinkshot.backbones.datasets import Images
from sinkshot.backbones.devices import Devices
from sinkshot.backbones.fit import fitted_steps
from sinkshot.backbones.learner import Learner
from sinkshot.backbones.log import Metrics
from sinkshot.backbones.pixels import colours, feed, hold
from sinkshot.backbones.plan import Plan, plan
from sinkshot.backbones.recipes import Stage, TrainingRecipe
from sinkshot.backbones.schedule import rate
from sinkshot.backbones.step import KINDS, ImageViews, optimiser_of, take
from sinkshot.backbones.validate import accuracies, cell, features_of, score
from sinkshot.errors import InputError
from sinkshot.files import replacing
from sinkshot.progress import ProgressReporter, duration

IN_FLIGHT = 4  # steps that a GPU may lag behind
ASK_EVERY = 10  # steps between questions of several processes whether to stop
REPORTS = 100  # steps between rows of metrics, at most


class Run:
    """The state of a run: what is trained, the current `stage`, and the `step` within it."""

    def __init__(
        self,
        devices: Devices,
        images: Images,
        recipe: TrainingRecipe,
        folder: Path,
        validation: Images | None,
        hold_images: str,
    ) -> None:
        self.devices, self.recipe, self.folder = devices, recipe, folder
        self.chief = devices.global_rank == 0
        self.images = replace(images, size=recipe.stored, margin=1.0)
        self.validation = validation if validation is None else replace(validation, size=recipe.size)
        self.held = hold(self.images, devices.device, hold_images)
        self.stages = list(recipe.stage.items())
        self.stage, self.step = 0, 0
        self.steps = [max(1, round(stage.epochs * len(images) / stage.batch)) for _, stage in self.stages]
        self.best: float | None = None
        self.found: dict[str, float] = {}
        self.views, self.seconds = 0, 0.0  # of training in this process
        self.metrics: Metrics | None = None
        self.progress = ProgressReporter(silent=True)
        self.bar = self.progress.bar()

    @property
    def total(self) -> int:
        """Steps of all stages."""
        return sum(self.steps)

    @property
    def done(self) -> int:
        """Steps done, of all stages."""
        return sum(self.steps[: self.stage]) + self.step

    @property
    def images_per_second(self) -> float:
        """Views that passed through the network in a second of training."""
        return self.views / self.seconds if self.seconds else 0.0

    def prepare(self, resume: bool, tensorboard: bool, progress_seconds: float | None) -> None:
        """Make the learner, bring it to the device, and give it the folder's state if there is one."""
        recipe, device = self.recipe, self.devices.device
        self.colours = colours(self.images, self.held)
        mean, std = (torch.tensor(values, device=device).view(1, 3, 1, 1) for values in self.colours)
        labels = torch.from_numpy(self.images.labels).to(device)
        self.shown = ImageViews(labels, mean, std, recipe.size, recipe.augment)
        torch.manual_seed(recipe.seed)
        network = networks.build(recipe.network, **{"size": recipe.size, **recipe.options})
        self.learner = Learner(network, len(self.images.class_names), recipe.head)
        self.twin = networks.build(recipe.network, **network.options).to(device)  # what is validated and kept
        if self.devices.world_size > 1:
            share_batch_norm(self.learner)
        self.learner.to(device)
        if recipe.compile == "yes" or (recipe.compile == "auto" and device.type == "cuda"):
            self.learner.compile_blocks()
        self.average = state.Average(network, recipe.ema) if recipe.ema else None
        self.strange: Tensor | None = None  # pixels of the validation images
        if self.validation is not None and self.chief:
            self.strange = hold(self.validation, device, "yes")
        known = self.folder / state.FILE
        fresh = {key: value.clone() for key, value in self.learner.state_dict().items()}
        facts, tensors = state.load(known) if resume and known.exists() else (None, {})
        if facts is not None:
            self._recognise(facts)
        elif recipe.seconds:
            self.steps = fitted_steps(self)
            self.renew(fresh)
        self.begin_stage()
        if facts is not None:
            state.restore(tensors, self.learner, self.average, self.optimiser)
        if self.chief:
            self._open(facts is None, tensorboard, progress_seconds)
        if facts is None:
            self.save()

    def _open(self, new: bool, tensorboard: bool, progress_seconds: float | None) -> None:
        how = self.recipe.validation
        cells = [cell(method, shot) for shot in how.shots for method in how.methods] if self.validation else []
        self.metrics = Metrics(self.folder, cells, self.done, tensorboard)
        self.progress = ProgressReporter(progress_seconds, silent=progress_seconds is None)
        self.bar = self.progress.bar()
        self.progress.say(
            f"{self.recipe.network}: {len(self.images):,} images of {len(self.images.class_names)} classes, "
            f"{self.total:,} steps on {self.devices.world_size} x {self.devices.device.type}"
            + ("" if new else f", from step {self.done:,} on")
        )
        if new:
            with replacing(self.folder / "recipe.json") as temporary:
                temporary.write_text(json.dumps(self.recipe.table(), indent=2) + "\n", encoding="utf-8")

    def close(self) -> None:
        """Close progress and metrics."""
        self.progress.close()
        if self.metrics is not None:
            self.metrics.close()

    # --- the loop -------------------------------------------------------------------------------------------------

    def go(self, late: Callable[[], bool], save_seconds: float) -> None:
        """Train until the end, or until `late` says that it is time to save and stop."""
        saved, self.begun = time.monotonic(), self.done
        while True:
            name, stage = self.stages[self.stage]
            steps, per_epoch = self.steps[self.stage], len(self.images) / stage.batch
            validate_every = max(1, round(self.recipe.validation.every * per_epoch))
            report_every = min(REPORTS, math.ceil(per_epoch))
            sums, mark, first = self._zeros(), time.monotonic(), self.step
            for sheet, pixels in self.batches(stage, self.step, steps):
                sums += self.take(stage, sheet, pixels, rate(stage, self.step, steps))
                self.step += 1
                stopping, last = self._stopping(late), self.step == steps
                due = self.validation is not None and (last or self.step % validate_every == 0)
                if not (last or due or stopping or self.step % report_every == 0):
                    continue
                row = self._measured(sums, self.step - first, mark, len(sheet.source))
                row = {"step": self.done, "stage": name, "epoch": self.step / per_epoch, **row}
                if due:
                    row |= self.validate()
                if self.metrics is not None:
                    self.metrics.add({**row, "rate": rate(stage, self.step - 1, steps)})
                    self._tell(row)
                if stopping or (not last and time.monotonic() - saved >= save_seconds):
                    self.save()
                    saved = time.monotonic()
                if stopping:
                    return
                sums, mark, first = self._zeros(), time.monotonic(), self.step
            if self.stage + 1 == len(self.stages):
                break
            self.stage, self.step = self.stage + 1, 0
            self.begin_stage()
        if self.chief:
            self._keep("last")
        self.save()

    def batches(self, stage: Stage, start: int, stop: int) -> Iterator[tuple[Plan, Tensor]]:
        """Yield plan and pixels [b, h, w, 3] of each step of this stage from `start` on."""
        place = {"rank": self.devices.global_rank, "world": self.devices.world_size}
        known = {"seed": self.recipe.seed, "number": self.stage, "images": len(self.images), **place}
        blocks = self.learner.network.blocks
        plans = (plan(stage, step=step, blocks=blocks, **known) for step in range(start, stop))
        return feed(plans, self.images, self.held, self.devices.device)

    def take(self, stage: Stage, sheet: Plan, pixels: Tensor, learning_rate: float) -> Tensor:
        """Take one step and return its losses and accuracy [5] without waiting for them."""
        torch.manual_seed(sheet.seed)  # of dropout
        found = take(self.devices, self.module, self.stepper, stage, self.shown, sheet, pixels, learning_rate)
        if self.average is not None:
            self.average.update(self.done)
        if self.devices.device.type == "cuda":
            self.in_flight.append(torch.cuda.Event())
            self.in_flight[-1].record()
            if len(self.in_flight) > IN_FLIGHT:
                self.in_flight.popleft().synchronize()
        return found

    def _measured(self, sums: Tensor, count: int, mark: float, views: int) -> dict[str, Any]:
        """Return means over `count` steps and how fast they were; waits for the device."""
        if self.devices.world_size > 1:
            torch.distributed.all_reduce(sums)
        means = dict(zip(KINDS, (sums / (count * self.devices.world_size)).tolist(), strict=True))
        seconds = time.monotonic() - mark
        if not math.isfinite(means["loss"]):
            raise InputError(f"the loss is not finite at step {self.done:,}; lower the rate of the recipe.")
        passed = count * views * self.devices.world_size
        self.views, self.seconds = self.views + passed, self.seconds + seconds
        return {**means, "images_per_second": passed / seconds, "seconds": self.seconds}

    def _stopping(self, late: Callable[[], bool]) -> bool:
        if self.devices.world_size == 1:
            return late()
        return self.step % ASK_EVERY == 0 and bool(self.devices.broadcast(late()))

    def _tell(self, row: dict[str, Any]) -> None:
        left = (self.total - self.done) * self.seconds / max(1, self.done - self.begun)
        words = f"loss {row['loss']:.3f}"
        if self.found:
            words += ", " + ", ".join(f"{name} {100 * value:.2f}" for name, value in self.found.items())
        speed = f"{row['images_per_second']:,.0f} images/s, {duration(left)} left, epoch {row['epoch']:.1f}"
        self.bar(self.done, self.total, f"step {self.done:,} of {self.total:,}, {speed}, {words}")

    def _zeros(self) -> Tensor:
        return torch.zeros(len(KINDS), device=self.devices.device)

    # --- stages, state and weights ----------------------------------------------------------------------------------

    def begin_stage(self) -> None:
        """Start the stage's optimiser, and hand learner and optimiser to the devices."""
        _, stage = self.stages[self.stage]
        self.optimiser = optimiser_of(self.learner, stage, fused=self.devices.device.type == "cuda")
        self.learner.train()
        self.module, self.stepper = self.devices.setup(self.learner, self.optimiser)
        self.in_flight: deque[Any] = deque()

    def validate(self) -> dict[str, float]:
        """Measure few-shot accuracy on the validation classes, keep the weights if they are the best so far."""
        if self.chief and self.strange is not None and self.validation is not None:
            features = features_of(self._shown_weights(), self.strange, *self.colours, self.devices.autocast())
            self.found = accuracies(features, self.validation.labels, self.recipe.validation)
            if self.best is None or score(self.found) > self.best:
                self.best = score(self.found)
                self._keep("best")
        self.devices.barrier()
        return {f"validation {name}": value for name, value in self.found.items()}

    def _shown_weights(self) -> networks.Network:
        """Return the network that is validated and kept: the average where there is one, else the last weights."""
        weights = self.learner.network.state_dict()
        self.twin.load_state_dict({**weights, **(self.average.values if self.average else {})})
        twin: networks.Network = self.twin
        return twin

    def _keep(self, name: str) -> None:
        """Write the weights as a backbone."""
        known = {key: value for key, value in self.images.meta.items() if key in ("data_set", "split")}
        facts = {"recipe": json.dumps(self.recipe.table()), "step": f"{self.done} of {self.total}"}
        accuracy = {"validation": json.dumps(self.found)} if self.found else {}
        path = self.folder / f"{name}.safetensors"
        checkpoints.save(self._shown_weights(), path, *self.colours, {**known, **facts, **accuracy})

    def save(self) -> None:
        """Save the state, from which the run continues exactly."""
        if self.chief:
            place = {"stage": self.stage, "step": self.step, "steps": self.steps}
            results = {"best": self.best, "found": self.found}
            facts = {**place, **results, "recipe": self.recipe.table(), "images": self._fingerprint}
            state.save(self.folder / state.FILE, self.learner, self.average, self.optimiser, facts)
        self.devices.barrier()

    @functools.cached_property
    def _fingerprint(self) -> dict[str, Any]:
        """What the images are known by: their number, classes, labels and names."""
        digest = hashlib.sha256(self.images.labels.tobytes())
        for index in range(len(self.images)):
            digest.update(self.images.source.name(index).encode("utf-8", "surrogateescape") + b"\n")
        return {"count": len(self.images), "classes": list(self.images.class_names), "names": digest.hexdigest()}

    def _recognise(self, facts: dict[str, Any]) -> None:
        """Continue a saved run if it has the same recipe and images."""
        ours = json.loads(json.dumps({"recipe": self.recipe.table(), "images": self._fingerprint}))
        if facts["images"] != ours["images"]:
            raise InputError(f"the run in {self.folder} was started with other images or classes; give the same ones.")
        if other := state.differences(facts["recipe"], ours["recipe"], ""):
            raise InputError(
                f"the run in {self.folder} has a different recipe ({'; '.join(other[:3])}); give the original "
                "one, or choose another folder."
            )
        self.stage, self.step, self.steps = facts["stage"], facts["step"], facts["steps"]
        self.best, self.found = facts["best"], facts["found"]

    def renew(self, weights: dict[str, Tensor]) -> None:
        """Restart at the first step with these weights."""
        self.stage, self.step, self.best, self.found = 0, 0, None, {}
        self.learner.load_state_dict(weights)
        if self.average is not None:
            self.average = state.Average(self.learner.network, self.recipe.ema)
        if self.chief:
            (self.folder / "best.safetensors").unlink(missing_ok=True)
