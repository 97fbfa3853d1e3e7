"""Coverage-guided fuzzing of one reader by atheris: python tests/fuzz/fuzz.py plk -max_total_time=60

Options are those of libFuzzer. Its corpus starts with the honest seeds and the cases in tests/fuzz/corpus; what it
finds is left in a file that belongs there once the cause is mended.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["sinkshot"]):
    from sinkshot.errors import InputError, is_printable

from readers import READERS, put


def main() -> None:
    name, *options = sys.argv[1:]
    reader, folder = READERS[name], Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
    corpus = folder / "corpus"
    corpus.mkdir()
    known = Path(__file__).parent / "corpus" / name
    for number, seed in enumerate([*reader.seeds(), *(file.read_bytes() for file in known.glob("*"))]):
        (corpus / str(number)).write_bytes(seed)
    warnings.simplefilter("ignore")

    def one(data: bytes) -> None:
        try:
            reader.read(put(reader, folder / "case", data))
        except InputError as error:
            if not all(is_printable(line) for line in str(error).split("\n  ")):
                raise RuntimeError("a control character in a message") from error

    limits = ["-rss_limit_mb=2048", "-timeout=30", "-max_len=65536"]
    atheris.Setup([sys.argv[0], *limits, *options, str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
