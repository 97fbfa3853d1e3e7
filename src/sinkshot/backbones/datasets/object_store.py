"""Image folders in an object store: `s3://bucket/photos/<class>/*`, listed by one request for many files."""

from __future__ import annotations

import zlib

import numpy as np

from sinkshot.backbones.datasets.images import Images
from sinkshot.backbones.datasets.known import no_split
from sinkshot.backbones.datasets.sources import Objects
from sinkshot.errors import InputError
from sinkshot.foreign.folders import RemoteFolder
from sinkshot.foreign.pictures import suffixes


def read_objects(address: str, split: str) -> Images:
    """List the images at an address; the first folder of a name is the class."""
    if split != "all":
        raise no_split(split, address)
    folder = RemoteFolder(address)
    endings = tuple(suffixes())
    found = [
        (name, stamp)
        for name, stamp in folder.below()
        if "/" in name and name.lower().endswith(endings) and "/." not in f"/{name}"
    ]
    if not found:
        raise InputError(f"{address} holds no images; they are looked for in one folder per class.")
    tops = [name.partition("/")[0] for name, _ in found]
    names, labels = np.unique(tops, return_inverse=True)
    stamps = np.array([zlib.crc32(stamp.encode()) for _, stamp in found], np.uint32)
    source = Objects(folder, [name for name, _ in found], stamps)
    return Images(source, labels.astype(np.int64), tuple(names.tolist()), meta={"layout": "folder", "split": "all"})
