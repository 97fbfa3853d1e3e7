"""PT+NCM: Hu, Gripon, Pateux, "Leveraging the feature distribution in transfer-based few-shot learning", ICANN 2021.

The inductive half of PT+MAP: the power transform makes the distribution of each feature less skewed, rows are scaled to
unit length, and queries go to the nearest class mean.
"""

from __future__ import annotations

from sinkshot.methods.ncm import ncm
from sinkshot.methods.registry import register

register("pt-ncm", transductive=False, preprocess="PE", gram=True, reference="Hu, Gripon, Pateux 2021 (PT+NCM)")(ncm)
