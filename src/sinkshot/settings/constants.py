"""Numerical constants of the methods, shared by readable and compiled code."""

LEAST_LOGIT = -60.0
"""Floor of logits before exp: exp(-60) is still a normal float32, so Sinkhorn can reach every class."""

ADAM_BETA1, ADAM_BETA2, ADAM_EPSILON = 0.9, 0.999, 1e-8
"""Adam's decay rates and the number added to its denominator, torch's defaults."""

TIM_EPSILON = 1e-12
"""Added to probabilities under a logarithm or a power."""

TIM_LEAST = 1e-30
"""Floor of a class's mean probability, in case all of its probabilities underflow."""

MANIFOLD_EPSILON = 1e-12
"""Added to the degrees of the graph of adaptive manifold."""

OPEN_SET_SPREADS = 20
"""Number of averages over neighbours in bms-open; at spread 0.7 all but 0.7^20 of the evidence is propagated."""
