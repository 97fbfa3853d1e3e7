"""Methods of the paper's tables that cannot run on features, because they need training of their own.

`sinkshot methods --all` lists them with the paper's numbers, so that its tables are complete.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NeedsTraining:
    """A method that cannot run on a feature bank, and why."""

    name: str
    rows: tuple[str, ...]  # its name in the paper's tables
    transductive: bool
    reference: str
    reason: str


NEEDS_TRAINING = (
    NeedsTraining(
        "matching-net",
        ("Matching Networks",),
        False,
        "Vinyals et al. 2016",
        "It trains the backbone, and layers that read the whole support set, on episodes. Its vote of the supports is "
        "available for given features as matching.",
    ),
    NeedsTraining(
        "maml",
        ("MAML",),
        False,
        "Finn, Abbeel, Levine 2017",
        "It learns initial weights of a network and trains them further on the supports of each task, so that features "
        "differ from task to task.",
    ),
    NeedsTraining(
        "protonet",
        ("ProtoNet",),
        False,
        "Snell, Swersky, Zemel 2017",
        "It trains the backbone on episodes so that class means classify well. On given features it reduces to "
        "simpleshot-un.",
    ),
    NeedsTraining(
        "leo",
        ("LEO",),
        False,
        "Rusu et al. 2019",
        "It learns a latent code for the weights of a classifier on the base classes, and optimises in that latent "
        "space for each task. Every backbone needs its own code.",
    ),
    NeedsTraining(
        "manifold-mixup",
        ("Manifold Mixup",),
        False,
        "Verma et al. 2019",
        "It is a way to train a backbone, with mixtures of hidden states; every method here can use its features.",
    ),
    NeedsTraining(
        "s2m2",
        ("S2M2_R",),
        False,
        "Mangla et al. 2020",
        "It is a way to train a backbone, by rotations and manifold mixup; every method here can use its features.",
    ),
    NeedsTraining(
        "deepemd",
        ("DeepEMD",),
        False,
        "Zhang et al. 2020",
        "It compares images patch by patch on their feature maps, and trains the backbone for it; a bank has one "
        "vector per image.",
    ),
    NeedsTraining(
        "feat",
        ("FEAT",),
        False,
        "Ye et al. 2020",
        "It trains a transformer on the base classes that adapts class means to each other. Without that training it "
        "is the nearest class mean.",
    ),
    NeedsTraining(
        "renet",
        ("RENet",),
        False,
        "Kang et al. 2021",
        "It learns how positions of feature maps relate, within an image and between two; a bank has no feature maps.",
    ),
    NeedsTraining(
        "peeler",
        ("PEELER",),
        False,
        "Liu et al. 2020",
        "It trains the backbone on episodes with unknown classes, and with it a scale of each feature for each class.",
    ),
    NeedsTraining(
        "dsn-mr",
        ("DSN-MR",),
        True,
        "Simon et al. 2020",
        "It trains the backbone so that each class spans its own subspace, and classifies queries by these subspaces.",
    ),
    NeedsTraining(
        "epnet",
        ("EPNet",),
        True,
        "Rodríguez et al. 2020",
        "It trains the backbone through a propagation of embeddings over each task.",
    ),
    NeedsTraining(
        "mct",
        ("MCT",),
        True,
        "Kye et al. 2020",
        "It learns the confidence of each query on episodes, with the backbone and the metric. With a fixed metric it "
        "reduces to soft-kmeans.",
    ),
    NeedsTraining(
        "illu-aug",
        ("Illu-Aug", "Illu-Aug-re"),
        True,
        "Zhang et al. 2021",
        "It trains the backbone with the illumination of further images, followed by MAP, available as pt-map.",
    ),
)
"""Sorted by year, inductive ones first."""
