"""
How fast the engines are
========================

The same evaluation by readable code (``numpy``) and by fused kernels (``numba``), on this machine.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

import sinkshot

bank = sinkshot.load("cifar-fs_wrn-28-10_novel")

# %%
# ``engine="auto"`` takes the fastest engine that can do the job, and small jobs go to ``numpy``, which needs no
# compiler. Here we ask for each by name. The first run compiles, so it is not counted.

engines = {"numpy": 50, "numba": 500}
shots = [1, 5]
rates = np.zeros((len(engines), len(shots)))
for i, (engine, episodes) in enumerate(engines.items()):
    for j, shot in enumerate(shots):
        recipe = sinkshot.Recipe(shot=shot, episodes=episodes)
        sinkshot.evaluate(bank, sinkshot.Recipe(shot=shot, episodes=8), method="bms", engine=engine)
        start = time.perf_counter()
        result = sinkshot.evaluate(bank, recipe, method="bms", engine=engine)
        rates[i, j] = episodes / (time.perf_counter() - start)
        print(f"{engine} {shot}-shot: {rates[i, j]:,.0f} episodes/s, {100 * result.accuracy:.2f} %")

figure, axis = plt.subplots(figsize=(6, 2.8), layout="constrained")
places = np.arange(len(shots))
for i, engine in enumerate(engines):
    axis.barh(places + 0.38 * (i - 0.5), rates[i], 0.36, label=engine)
axis.set(xscale="log", yticks=places, yticklabels=[f"BMS, {s}-shot" for s in shots], xlabel="episodes per second")
axis.legend()
plt.show()

# %%
# The answers agree. On an NVIDIA GPU ``device="cuda"`` uses the engine ``triton``; the page on speed has measurements.

answers = [
    sinkshot.evaluate(bank, sinkshot.Recipe(shot=1, episodes=50), method="bms", engine=engine).per_episode
    for engine in engines
]
print(f"same accuracy in {np.mean(answers[0] == answers[1]):.0%} of 50 episodes")
