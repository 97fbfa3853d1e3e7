"""Files are opened and parsed in `sinkshot.foreign` alone; every exception stands here with its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import sinkshot

ROOT = Path(sinkshot.__file__).parent
READS = {
    *("open", "io.open", "os.open", "*.open", "*.read_text", "*.read_bytes", "mmap.mmap", "codecs.open"),
    *("np.load", "np.memmap", "np.fromfile", "np.loadtxt", "np.genfromtxt", "torch.load", "Image.open"),
    *("json.load", "json.loads", "tomllib.load", "tomllib.loads", "pickle.load", "pickle.loads", "pickle.Unpickler"),
    *("zipfile.ZipFile", "tarfile.open", "gzip.open", "sqlite3.connect", "safe_open", "load_file", "ET.parse"),
    *("ET.fromstring", "parquet.read_table", "parquet.ParquetFile", "pd.read_csv", "pd.read_parquet", "open_session"),
    *("onnxruntime.InferenceSession", "Tokenizer.from_file"),
}
ALLOWED = {  # what a module reads with, and what it reads
    "backbones/datasets/known.py": ("*.read_text", "json.loads", "a file of the package"),
    "backbones/processes.py": ("*.read_text", "json.loads", "os.open", "what our own process wrote; the null device"),
    "backbones/recipes.py": ("*.read_text", "recipes of the package"),
    "backbones/run.py": ("json.loads", "what it has just written"),
    "cli/_exit_codes.py": ("os.open", "the null device"),
    "encoders/efficientnet_lite.py": ("*.read_bytes", "open_session", "installed weights, by their digest"),
    "encoders/minilm.py": ("*.open", "Tokenizer.from_file", "load_file", "installed weights, by their digest"),
    "encoders/onnx_session.py": ("onnxruntime.InferenceSession", "the graph that we build"),
    "estimators/stranger_network.py": ("*.open", "np.load", "weights that come with the package"),
    "files.py": ("os.open", "our temporary files; folders, to sync them"),
    "formats/part_files.py": ("*.open", "what it has just written"),
    "kernels/eigh_cuda.py": ("*.read_text", "the system's list of libraries that this process has loaded"),
    "kernels/jit.py": ("*.read_bytes", "our own sources"),
    "label/answer_parts.py": ("np.memmap", "arrays of the run in its own work folder"),
    "label/decisions.py": ("os.open", "a file that it appends to; what it holds is read by `foreign`"),
    "label/export_parts.py": ("parquet.read_table", "answers that the run has just written"),
    "label/in_parts.py": ("np.memmap", "arrays of the run in its own work folder"),
    "locks.py": ("os.open", "lock files, never read"),
    "methods/plugins.py": ("*.read_text", "a program that the user names to be run"),
    "methods/references.py": ("*.read_text", "a file of the package"),
    "parted/array.py": ("*.open", "arrays of the run in its own work folder"),
    "parted/cell_files.py": ("np.load", "arrays of the run in its own work folder"),
    "parted/direct_lines.py": (
        "pickle.loads",
        "jobs and results between the command and workers that were shown its token",
    ),
    "parted/graph.py": ("np.fromfile", "np.memmap", "arrays of the run in its own work folder"),
    "parted/neighbours.py": ("np.fromfile", "np.load", "arrays of the run in its own work folder"),
    "parted/pool.py": ("*.open", "arrays of the run in its own work folder"),
    "parted/sorted_rows.py": ("np.memmap", "arrays of the run in its own work folder"),
    "report/figures/svg.py": ("ET.fromstring", "what matplotlib has just drawn"),
    "review/app.py": ("*.read_bytes", "files of the package"),
    "review/child_process.py": ("pickle.load", "answers of the process that it started, through a pipe"),
    "review/desk.py": ("json.loads", "what it has itself written"),
    "review/parent_pipe.py": ("pickle.load", "requests of the process that started it, through a pipe"),
    "studies/code_version.py": ("*.read_bytes", "our own sources and the plugins that run"),
    "studies/environment.py": ("*.read_text", "the system's description of the processor"),
    "studies/processes.py": ("pickle.loads", "what it has just pickled"),
    "studies/store.py": ("json.loads", "entries of a database that `databases` opened; all faults are caught"),
    "studies/toml_positions.py": ("tomllib.loads", "a key of a text that `texts` has parsed"),
    "workers.py": ("*.read_bytes", "our own sources"),
}


def reads(source: str) -> Iterator[str]:
    """Yield what a file reads with: names of READS that it calls, unless a mode says that it only writes."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        modes = [
            word.value for word in [*node.args, *(key.value for key in node.keywords)] if isinstance(word, ast.Constant)
        ]
        if any(isinstance(mode, str) and mode and set(mode) <= set("wabxt") for mode in modes):
            continue
        if name in READS:
            yield name
        elif isinstance(node.func, ast.Attribute) and f"*.{node.func.attr}" in READS and not ours(node):
            yield f"*.{node.func.attr}"


def ours(call: ast.Call) -> bool:
    """Whether `x.open(...)` is one of our own sources of images or banks, which are opened by number or as they are."""
    by_number = bool(call.args) and not isinstance(call.args[0], ast.Constant)
    return by_number or (not call.args and ast.unparse(call.func).endswith(("source.open", ".bank.open", "base.open")))


def test_files_of_others_are_opened_and_parsed_in_one_package():
    found = {}
    for file in sorted(ROOT.rglob("*.py")):
        place = file.relative_to(ROOT).as_posix()
        if not place.startswith("foreign/") and (used := sorted(set(reads(file.read_text(encoding="utf-8"))))):
            found[place] = used
    assert found == {place: list(used) for place, (*used, _) in ALLOWED.items()}
