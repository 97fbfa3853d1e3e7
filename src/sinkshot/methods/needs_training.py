"""Methods of the paper's tables that are no function of features: what they need is a training of their own.

`sinkshot methods --all` lists them with the numbers that the paper has for them, so that its tables are complete.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NeedsTraining:
    """A method that cannot run on a feature bank, and why."""

    name: str
    rows: tuple[str, ...]  # how the paper's tables call it
    transductive: bool
    reference: str
    reason: str


NEEDS_TRAINING = (
    NeedsTraining(
        "matching-net",
        ("Matching Networks",),
        False,
        "Vinyals et al. 2016",
        "It trains the backbone, and layers that read the whole support set, on episodes; its vote of the supports on "
        "given features is here as matching.",
    ),
    NeedsTraining(
        "maml",
        ("MAML",),
        False,
        "Finn, Abbeel, Levine 2017",
        "It learns a starting point for all weights of a network and trains them further on the supports of each task, "
        "so that no task has the features of another.",
    ),
    NeedsTraining(
        "protonet",
        ("ProtoNet",),
        False,
        "Snell, Swersky, Zemel 2017",
        "It trains the backbone on episodes so that class means classify well; on given features what is left of it is "
        "simpleshot-un.",
    ),
    NeedsTraining(
        "leo",
        ("LEO",),
        False,
        "Rusu et al. 2019",
        "It learns on the base classes a code for the weights of a classifier, and searches in that code for each "
        "task; every backbone needs a code of its own.",
    ),
    NeedsTraining(
        "manifold-mixup",
        ("Manifold Mixup",),
        False,
        "Verma et al. 2019",
        "It is a way to train a backbone, on mixtures of hidden states; every method here can use its features.",
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
        "vector for an image.",
    ),
    NeedsTraining(
        "feat",
        ("FEAT",),
        False,
        "Ye et al. 2020",
        "It learns on the base classes a transformer that adapts class means to each other; without that training it "
        "is the nearest class mean.",
    ),
    NeedsTraining(
        "renet",
        ("RENet",),
        False,
        "Kang et al. 2021",
        "It learns how places of feature maps relate, within an image and between two; a bank has no maps.",
    ),
    NeedsTraining(
        "peeler",
        ("PEELER",),
        False,
        "Liu et al. 2020",
        "It trains the backbone on episodes that hold strangers, and with it a scale of each feature for each class.",
    ),
    NeedsTraining(
        "dsn-mr",
        ("DSN-MR",),
        True,
        "Simon et al. 2020",
        "It trains the backbone so that each class fills a subspace of its own, by which queries are then classified.",
    ),
    NeedsTraining(
        "epnet",
        ("EPNet",),
        True,
        "Rodríguez et al. 2020",
        "It trains the backbone through a propagation of embeddings over each task, so that they propagate well.",
    ),
    NeedsTraining(
        "mct",
        ("MCT",),
        True,
        "Kye et al. 2020",
        "It learns on episodes, with the backbone and the metric, how sure to be of each query; with a fixed metric "
        "what is left of it is soft-kmeans.",
    ),
    NeedsTraining(
        "lst",
        ("LST+MAP",),
        True,
        "Chobola, Vašata, Kordík 2021",
        "Its transform of the latent space was built together with the backbone it was entered with; what follows the "
        "transform is MAP, which is here as pt-map.",
    ),
    NeedsTraining(
        "illu-aug",
        ("Illu-Aug", "Illu-Aug-re"),
        True,
        "Zhang et al. 2021",
        "It trains the backbone with the illumination of further images; what follows is MAP, which is here as pt-map.",
    ),
)
"""In the order of their years, inductive ones first."""
