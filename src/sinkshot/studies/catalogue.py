"""Find the file of a feature bank by data set, backbone, split and training set.

Searched in this order; the first match wins:

1. folders the user gives (`--banks DIR`): files named `<data set>_<backbone>_<split>.<suffix>`, across data sets
   `<trained on>-to-<data set>_<backbone>_<split>.<suffix>`; a `banks.toml` in it; and the layout of published code,
   `checkpoint/<data set>/output.plk` or `checkpoint/<data set>/<model>/output.plk`;
2. the user's own `~/.config/sinkshot/banks.toml` (under $XDG_CONFIG_HOME where that is set);
3. folders in the environment variable SINKSHOT_BANKS, or where it is not set `data/banks` of a checkout;
4. what comes with the package.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sinkshot.bank import load
from sinkshot.errors import InputError
from sinkshot.foreign.files import is_regular
from sinkshot.formats import READERS
from sinkshot.studies.study import DATA_SETS, BankKey, runs
from sinkshot.studies.toml_schema import NAME, NAMES, TABLE, TABLES, Document, one_of

SPLITS = ("novel", "base", "validation")
_HERE = Path(__file__).parent
_OWN = _HERE / "banks.toml"
_BANK = {"data_set": NAME, "backbone": NAME, "split": one_of(SPLITS), "trained_on": NAME, "file": NAME}
_FILE = {"banks": TABLES, "titles": TABLE, "no_transfer": NAMES}


@dataclass(frozen=True)
class Missing:
    """Features that were not found. As a string, it says which file is missing and how to provide it."""

    key: BankKey
    names: tuple[str, ...]  # of the files, without suffix
    layout: str = ""  # where published code would keep them
    gone: tuple[Path, ...] = ()  # files that a banks.toml names and that are not there

    def __str__(self) -> str:
        files = " and ".join(f"{name}.safetensors" for name in self.names)
        verb, them = ("is", "it") if len(self.names) == 1 else ("are", "them")
        named = "".join(f" A banks.toml names {file}, which does not exist." for file in self.gone)
        taken = f" {self.layout} of the published code also works." if self.layout else ""
        return (
            f"{files} {verb} missing (or .npz, .plk, .npy with labels): features of the {self.key.split} classes, "
            f"{self.key}.{named} Put {them} into a folder and give it with --banks DIR, or name your own file in "
            f"DIR/banks.toml.{taken}"
        )


class Catalogue:
    """Feature banks by key. `present` lists them, `find` returns the file of one, or a `Missing`."""

    def __init__(self, folders: Sequence[str | os.PathLike[str]] = (), files: Sequence[Path] = ()) -> None:
        self._found: dict[BankKey, Path] = {}  # keys of one backbone
        self._gone: dict[BankKey, Path] = {}
        self._digests: dict[tuple[Path, int, int], str] = {}
        self._no_transfer: set[Path] = set()
        own = Document(_OWN)
        self._titles: dict[str, str] = {}
        self._published: dict[str, dict[str, str]] = own.content.pop("folders")
        self._folders = {folder.lower(): where for folder, where in self._published.items()}
        self._models = {model.lower(): backbone for model, backbone in own.content.pop("models").items()}
        for folder in map(Path, folders):
            if not folder.is_dir():
                raise InputError(
                    f"{folder} is not a folder; --banks takes a folder with feature files or a banks.toml."
                )
            self._add_folder(folder)
        for file in [*files, *filter(Path.is_file, [_user_file()])]:
            self._add_file(Document(file))
        said = os.environ.get("SINKSHOT_BANKS")
        parts = str(_HERE.parents[2] / "data" / "banks") if said is None else said
        for folder in filter(Path.is_dir, [Path(part) for part in parts.split(os.pathsep) if part]):
            self._add_folder(folder)
        self._add_file(own)
        self._add_folder(_HERE.parent / "data")

    def present(self) -> list[BankKey]:
        """Return the key of every bank found, each of one backbone."""
        return list(self._found)

    def takes_transfer(self, key: BankKey) -> bool:
        """Whether sheets about other banks are repeated for this one; the banks.toml beside its file may say no."""
        return self._found[key] not in self._no_transfer

    def find(self, key: BankKey) -> Path | Missing:
        """Return the file of a bank of one backbone."""
        found = self.files(key)
        return found if isinstance(found, Missing) else found[0]

    def files(self, key: BankKey) -> tuple[Path, ...] | Missing:
        """Return the files of a bank, one per backbone, or what is missing."""
        single = [BankKey(key.data_set, (backbone,), key.split, key.trained_on) for backbone in key.backbones]
        missing = [one for one in single if one not in self._found]
        if not missing:
            return tuple(self._found[one] for one in single)
        gone = tuple(self._gone[one] for one in missing if one in self._gone)
        backbones = tuple(one.backbones[0] for one in missing)
        return Missing(replace(key, backbones=backbones), tuple(map(file_name, missing)), self._layout(key), gone)

    def digest(self, key: BankKey) -> str:
        """Return the SHA-256 of the content of a bank: features, labels, class names and base means.

        It is computed once per file, and again if the size or modification time changes.
        """
        found = self.files(key)
        if isinstance(found, Missing):
            raise InputError(str(found))
        digests = [self._digest(file) for file in found]
        return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()

    def title(self, key: BankKey) -> str:
        """Return the title of a bank on pages: "CIFAR-FS, WRN"."""
        words = [self._titles.get(name, name) for name in (key.data_set, *key.backbones)]
        origin = "" if key.trained_on is None else f" from {self._titles.get(key.trained_on, key.trained_on)}"
        same = key.backbones == runs(key.backbones[0], len(key.backbones)) and len(key.backbones) > 1
        networks = f"{len(key.backbones)}\N{MULTIPLICATION SIGN}{words[1]}" if same else "+".join(words[1:])
        return f"{words[0]}{origin}, {networks}"

    def _digest(self, file: Path) -> str:
        state = file.stat()
        known = (file, state.st_size, state.st_mtime_ns)
        if known not in self._digests:
            bank = load(file)
            digest = hashlib.sha256(bank.content_hash().encode())
            for prefix in sorted(bank.base):
                digest.update(prefix.encode() + b"\0" + bank.base[prefix].astype("<f4").tobytes())
            self._digests[known] = digest.hexdigest()
        return self._digests[known]

    def _layout(self, key: BankKey) -> str:
        """Return where the published code keeps such features, if it does."""
        where = {"data_set": key.data_set} | ({"trained_on": key.trained_on} if key.trained_on else {})
        folder = next((folder for folder, to in self._published.items() if to == where), None)
        plain = key.backbones == ("wrn-28-10",) and key.split == "novel"
        return f"checkpoint/{folder}/output.plk" if plain and folder else ""

    def _add_folder(self, folder: Path) -> None:
        suffixes = list(READERS)
        files = [file for file in folder.iterdir() if file.suffix.lower() in READERS and file.is_file()]
        for file in sorted(files, key=lambda file: (suffixes.index(file.suffix.lower()), file.name)):
            self._add(_key_of_name(file.stem), file)
        if (listed := folder / "banks.toml").is_file():
            self._add_file(Document(listed))
        for root in (folder / "checkpoint", folder / "checkpoints", folder):
            if root.is_dir():
                self._add_published(root)

    def _add_published(self, root: Path) -> None:
        """Add `<data set>/output.plk` and `<data set>/<model>/output.plk` (or one folder, such as `last`, deeper)."""
        for folder in sorted(entry for entry in root.iterdir() if entry.name.lower() in self._folders):
            where = self._folders[folder.name.lower()]
            for file in sorted(file for depth in ("", "*/", "*/*/") for file in folder.glob(f"{depth}output.plk")):
                models = file.relative_to(folder).parts[:-1]
                backbone = self._backbone(models[0]) if models else "wrn-28-10"
                self._add(BankKey(where["data_set"], (backbone,), "novel", where.get("trained_on")), file)

    def _backbone(self, folder: str) -> str:
        begins = [model for model in self._models if folder.lower().startswith(model)]
        return self._models[max(begins, key=len)] if begins else folder.lower().replace("_", "-")

    def _add_file(self, listed: Document) -> None:
        listed.check(listed.content, (), _FILE, "a banks.toml")
        for name, title in listed.content.get("titles", {}).items():
            if not NAME.fits(title):
                raise listed.error(("titles", name), f"the title of {name} must be {NAME.wanted}.")
            self._titles.setdefault(DATA_SETS.get(name, name), title)
        left_out = listed.content.get("no_transfer", [])
        self._no_transfer |= {(listed.file.parent / file).resolve() for file in left_out}
        for number, bank in enumerate(listed.content.get("banks", [])):
            listed.check(bank, ("banks", number), _BANK, "a bank")
            for needed in ("data_set", "backbone", "file"):
                if needed not in bank:
                    raise listed.error(("banks", number), f"the bank has no {needed}; give it one.")
            self._add(_key_of_entry(bank), listed.file.parent / Path(bank["file"]).expanduser())

    def _add(self, key: BankKey | None, file: Path) -> None:
        if key is None:
            return
        if is_regular(file):
            self._found.setdefault(key, file.resolve())
        elif key not in self._found:
            self._gone[key] = file


def file_name(key: BankKey) -> str:
    """Return the file name, without suffix, of a bank of one backbone."""
    origin = "" if key.trained_on is None else f"{key.trained_on}-to-"
    return f"{origin}{key.data_set}_{key.backbones[0]}_{key.split}"


def _key_of_name(stem: str) -> BankKey | None:
    """Parse `<data set>_<backbone>_<split>`; None if the name has another form."""
    parts = stem.rsplit("_", 2)
    if len(parts) != 3 or parts[2] not in SPLITS or not all(parts):
        return None
    trained_on, across, data_set = parts[0].rpartition("-to-")
    return BankKey(data_set, (parts[1],), parts[2], trained_on if across else None)


def _key_of_entry(bank: dict[str, Any]) -> BankKey:
    trained_on = bank.get("trained_on")
    origin = None if trained_on == bank["data_set"] else trained_on
    return BankKey(bank["data_set"], (bank["backbone"],), bank.get("split", "novel"), origin)


def _user_file() -> Path:
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "sinkshot" / "banks.toml"
