"""Honest files for `sinkshot label`: embeddings, texts and labels in each form that it reads."""

from __future__ import annotations

import io
import json

import numpy as np
from kept_files import FEATURES

NAMES = np.array(["a", "b", "c"])


def npz(compressed: bool = False, **arrays: object) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def label_npz() -> bytes:
    return npz(features=FEATURES, labels=np.array(["a", "", "b", "", "", ""]), ids=np.arange(6))


def label_npz_seeds() -> list[bytes]:
    return [label_npz(), npz(True, features=FEATURES, labels=[0, -1, 1, -1, -1, -1], class_names=NAMES[:2])]


def label_csv_seeds() -> list[bytes]:
    rows = [f"{i},{'ab'[i % 2] if i < 3 else ''},{i / 3:.4f},{1 - i / 7:.4f}" for i in range(6)]
    return ["\n".join(["id,label,x,y", *rows, ""]).encode(), "\n".join(["\ufeffid,x", "'=1,2", "3,4"]).encode()]


def label_text_seeds() -> list[bytes]:
    return [b'id,text,label\n1,"a good, long film",good\n2,no,bad\n3,\'=SUM(A1),\n4,,\n']


def label_jsonl_seeds() -> list[bytes]:
    rows = [{"id": i, "label": "ab"[i % 2] if i < 3 else None, "vector": FEATURES[i].tolist()} for i in range(6)]
    flat = [{"file_name": f"{i}.png", "label": i - 1, "x": i, "y": i / 2} for i in range(4)]
    return ["\n".join(json.dumps(row) for row in part).encode() for part in (rows, flat)]


def label_parquet_seeds() -> list[bytes]:
    import pyarrow
    import pyarrow.parquet

    lists = {"id": list("uvwxyz"), "label": ["a", None, "b", None, None, ""], "vector": FEATURES.tolist()}
    flat = {"label": [0, -1, 1], "x": [0.1, 0.2, 0.3], "y": [1, 2, 3], "note": ["no"] * 3}
    found = []
    for columns in (lists, flat):
        for compression in ("snappy", "none", "gzip"):
            file = io.BytesIO()
            pyarrow.parquet.write_table(pyarrow.table(columns), file, compression=compression)
            found.append(file.getvalue())
    return found


def label_file_seeds() -> list[bytes]:
    header = b"id,label,confidence,unknown,second,margin,source\n"
    answers = header + b"0,a,1.0000,0.0000,b,0.5000,given\n1,b,0.9,0,a,0.8,predicted\n"
    return [b"id,label\n0,a\n1,b\n3,_none\n", answers]


def label_txt_seeds() -> list[bytes]:
    return [b"a good, long film\n\nno\r\nnot bad\n", "\ufeffgut\n日本語".encode()]
